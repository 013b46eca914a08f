"""What a question is, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from slipway.settings.source import Place

if TYPE_CHECKING:
    from slipway.aws.calls import Aws
    from slipway.settings import Settings

EC2_GUIDE = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide"
"""Where most sources of the questions about EC2 are."""


class Status(StrEnum):
    """Severity of an answer: a fault stops a deployment, a warning does not; could-not-ask: AWS did not say."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    COULD_NOT_ASK = "could-not-ask"


@dataclasses.dataclass(frozen=True)
class Answer:
    """One finding. `path` names the key of the settings it is about; `hint` is the repair, empty for ok."""

    status: Status
    path: Place
    text: str
    hint: str = ""


def ok(path: Place, text: str) -> Answer:
    """Return the answer that all is as the deployment needs it."""
    return Answer(Status.OK, path, text)


def warning(path: Place, text: str, hint: str) -> Answer:
    """Return a finding that does not stop the deployment, but that its user should know."""
    return Answer(Status.WARNING, path, text, hint)


def fault(path: Place, text: str, hint: str) -> Answer:
    """Return a finding with which the deployment would fail, or its cluster would be of no use."""
    return Answer(Status.FAULT, path, text, hint)


Ask = Callable[["Settings", "Aws"], Iterator[Answer]]


@dataclasses.dataclass(frozen=True)
class Question:
    """One thing to find out.

    `asks` is the question in words, `why` what goes wrong without it, `source` where that is known from,
    `permissions` the IAM actions it uses, `finds` the statuses that its answers may have in addition to ok and
    could-not-ask. `applies` says whether the question is of use for some settings.
    """

    name: str
    asks: str
    why: str
    source: str
    permissions: tuple[str, ...]
    ask: Ask
    finds: tuple[Status, ...] = (Status.FAULT,)
    applies: Callable[[Settings], bool] = lambda _: True


@dataclasses.dataclass(frozen=True)
class Result:
    """The answers to one question and how long it took, in seconds."""

    question: Question
    answers: tuple[Answer, ...]
    seconds: float
