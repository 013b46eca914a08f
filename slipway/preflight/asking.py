"""Run the questions and their parts in parallel. A call without an answer hides or delays no other answer."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.model import Answer, Question, Result, Status
from slipway.settings import Settings

QUESTION_TIMEOUT_S = 20.0  # two attempts of a call and what follows from its answer


def could_not_ask(error: Unasked) -> Answer:
    """Return the answer with the reason why AWS gave none, and the repair."""
    hint = f"allow {error.permission}, or ask an administrator" if error.permission else "try again, or look by hand"
    return Answer(Status.COULD_NOT_ASK, (), error.text, hint)


def attempted(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Yield `answers`, then what could not be asked. Never raises an Exception."""
    try:
        yield from answers  # one by one: what was found before a failure stays
    except Unasked as error:
        yield could_not_ask(error)
    except Refused as error:
        yield could_not_ask(Unasked(f"AWS answered: {error}"))
    except Exception as error:
        yield could_not_ask(Unasked(f"unexpected answer: {type(error).__name__}: {error}"))


def together(*parts: Iterator[Answer]) -> Iterator[Answer]:
    """Yield the answers of every part, each once."""
    yielded: set[Answer] = set()
    for part in parts:
        for answer in attempted(part):
            if answer not in yielded:
                yielded.add(answer)
                yield answer


def found(pending: Pending, *absent: str) -> dict[str, Any] | None:
    """The response, or None when AWS refuses with one of the codes in `absent`. Raises what `result` raises."""
    try:
        return pending.result()
    except Refused as error:
        if error.code in absent:
            return None
        raise


def run_questions(
    questions: Sequence[Question], settings: Settings, aws: Aws, timeout_s: float = QUESTION_TIMEOUT_S
) -> list[Result]:
    """Ask every question that applies, all at once; the results in the order of `questions`.

    A question without an answer after `timeout_s` seconds could not be asked; its thread ends with the process.
    """
    began = time.monotonic()
    asked = [(question, _start(question, settings, aws)) for question in questions if question.applies(settings)]
    concurrent.futures.wait([run.future for _, run in asked], timeout=timeout_s)
    return [_result(question, run, began, timeout_s) for question, run in asked]


@dataclasses.dataclass
class _Run:
    """A question being asked: the answers so far, and the seconds it took once it is done."""

    answers: list[Answer] = dataclasses.field(default_factory=list)
    future: Future[float] = dataclasses.field(default_factory=Future)


def _start(question: Question, settings: Settings, aws: Aws) -> _Run:
    run = _Run()

    def ask() -> None:
        began = time.monotonic()
        for answer in attempted(question.ask(settings, aws)):
            run.answers.append(answer)  # one by one: what was found stays when the rest takes too long
        run.future.set_result(time.monotonic() - began)

    threading.Thread(target=ask, daemon=True, name=question.name).start()
    return run


def _result(question: Question, run: _Run, began: float, timeout_s: float) -> Result:
    if run.future.done():
        return Result(question, tuple(run.answers), run.future.result())
    no_answer = could_not_ask(Unasked(f"no answer within {timeout_s:.0f} s"))
    return Result(question, (*run.answers, no_answer), time.monotonic() - began)
