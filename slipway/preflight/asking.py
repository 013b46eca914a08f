"""How the parts of a question are asked: one that gets no answer hides none of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Pending, Refused, Unasked
from slipway.preflight.model import Answer, Status


def could_not_ask(error: Unasked) -> Answer:
    """The answer that says why there is none, and what to do about it."""
    hint = f"allow {error.permission}, or ask somebody who may" if error.permission else "try again, or look by hand"
    return Answer(Status.COULD_NOT_ASK, (), error.text, hint)


def attempted(answers: Iterator[Answer]) -> Iterator[Answer]:
    """``answers``, and what could not be found out after them. Never raises an Exception."""
    try:
        yield from answers  # one by one: what was found before a failure stays
    except Unasked as error:
        yield could_not_ask(error)
    except Refused as error:
        yield could_not_ask(Unasked(f"AWS answered: {error}"))
    except Exception as error:
        yield could_not_ask(Unasked(f"unexpected answer: {type(error).__name__}: {error}"))


def together(*parts: Iterator[Answer]) -> Iterator[Answer]:
    """The answers of every part; the same answer is given once."""
    given: set[Answer] = set()
    for part in parts:
        for answer in attempted(part):
            if answer not in given:
                given.add(answer)
                yield answer


def found(pending: Pending, *absent: str) -> dict[str, Any] | None:
    """The response, or None when AWS refuses with one of the codes in ``absent``. Raises what ``result`` raises."""
    try:
        return pending.result()
    except Refused as error:
        if error.code in absent:
            return None
        raise
