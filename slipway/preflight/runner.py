"""Runs the questions side by side; none can hide or hold up the others."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from slipway.preflight.aws import Aws, Refused, Unasked
from slipway.preflight.model import Answer, Question, Result, Status
from slipway.settings import Settings

QUESTION_TIMEOUT_S = 20.0  # two attempts of a call and what follows from its answer


def run_questions(
    questions: Sequence[Question], settings: Settings, aws: Aws, timeout_s: float = QUESTION_TIMEOUT_S
) -> list[Result]:
    """Ask every question that applies, all at once; the results in the order of ``questions``.

    A question without an answer after ``timeout_s`` seconds could not be asked; its thread ends with the process.
    """
    began = time.monotonic()
    asked = [(question, _start(question, settings, aws)) for question in questions if question.applies(settings)]
    concurrent.futures.wait([future for _, future in asked], timeout=timeout_s)
    return [
        future.result() if future.done() else Result(question, (_no_answer(timeout_s),), time.monotonic() - began)
        for question, future in asked
    ]


def _start(question: Question, settings: Settings, aws: Aws) -> Future[Result]:
    future: Future[Result] = Future()

    def run() -> None:
        began = time.monotonic()
        answers = _answers(question, settings, aws)
        future.set_result(Result(question, tuple(answers), time.monotonic() - began))

    threading.Thread(target=run, daemon=True, name=question.name).start()
    return future


def _answers(question: Question, settings: Settings, aws: Aws) -> list[Answer]:
    """What the question found, and what it could not find out after that."""
    answers: list[Answer] = []
    try:
        for answer in question.ask(settings, aws):
            answers.append(answer)  # one by one: what was found before a failure stays
    except Unasked as error:
        answers.append(_could_not_ask(error))
    except Refused as error:
        answers.append(_could_not_ask(Unasked(f"AWS answered: {error}")))
    except Exception as error:
        answers.append(_could_not_ask(Unasked(f"unexpected answer: {type(error).__name__}: {error}")))
    return answers


def _could_not_ask(error: Unasked) -> Answer:
    hint = f"allow {error.permission}, or ask somebody who may" if error.permission else "try again, or look by hand"
    return Answer(Status.COULD_NOT_ASK, (), error.text, hint)


def _no_answer(timeout_s: float) -> Answer:
    return _could_not_ask(Unasked(f"no answer within {timeout_s:.0f} s"))
