"""What a case is: an account arranged in some way, settings, and the answer that a question has to give."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Callable, Iterable
from typing import Any

from slipway.preflight.model import Answer, Status
from slipway.settings import Settings
from tests.aws.preflight_aws import PreflightAws

REGION = "us-east-1"
NOW = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)
"""The moment that counts as now, so that texts with times in them can be exact."""

BASE: dict[str, Any] = {
    "name": "p5",
    "region": REGION,
    "zone": f"{REGION}a",
    "os": "ubuntu2204",
    "network": {"cidr": "10.0.0.0/16"},
    "head_node": {"instance_type": "m5.2xlarge"},
    "queues": [
        {
            "name": "train",
            "instance_type": "p5.48xlarge",
            "count": 4,
            "reservation": {"kind": "capacity-block", "id": "cr-0123456789abcdef1"},
            "efa": True,
        }
    ],
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes``: tables are merged, all else is replaced, None takes a key away."""
    result = copy.deepcopy(base)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = copy.deepcopy(value)
    return result


def settings_of(changes: dict[str, Any]) -> Settings:
    """BASE with changes, through the model."""
    return Settings.model_validate(merged(BASE, changes))


def nothing(_: PreflightAws) -> None:
    return


@dataclasses.dataclass(frozen=True)
class Case:
    """One outcome of one question. ``text`` is the whole text of the answer; ``hint`` is compared when given.

    ``settings``: changes to BASE. ``arrange`` prepares the account, which is the healthy seed's until then.
    ``alone``: no other answer but ok ones may be given.
    """

    question: str
    name: str
    status: Status
    text: str
    path: tuple[str | int, ...] | None = None
    hint: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    arrange: Callable[[PreflightAws], object] = nothing
    now: Callable[[], datetime.datetime] = lambda: NOW
    region: str = REGION
    alone: bool = True

    def __str__(self) -> str:
        return f"{self.question}: {self.name}"


def denied(operation: str, question: str, permission: str = "", **more: Any) -> Case:
    """The case that an operation is not allowed; ``permission`` where the IAM action has another name."""
    permission = permission or operation
    arrange = more.pop("arrange", nothing)

    def deny(aws: PreflightAws) -> None:
        arrange(aws)
        aws.misbehave(operation, deny=True)

    return Case(
        question,
        f"{operation} denied",
        Status.COULD_NOT_ASK,
        f"{permission} is not allowed",
        (),
        f"allow {permission}, or ask an administrator",
        arrange=deny,
        **more,
    )


def all_of(*steps: Callable[[PreflightAws], object]) -> Callable[[PreflightAws], None]:
    """Several arrangements, one after the other."""

    def arrange(aws: PreflightAws) -> None:
        for step in steps:
            step(aws)

    return arrange


def check(case: Case, answers: Iterable[Answer]) -> None:
    """The answer is there, to the letter; nothing else is wrong."""
    answers = tuple(answers)
    told = "\n".join(f"{item.status.value} {item.path} {item.text} | {item.hint}" for item in answers)
    same = [answer for answer in answers if (answer.status, answer.text) == (case.status, case.text)]
    assert same, f"no answer {case.status.value}: {case.text}\nbut\n{told}"
    if case.path is not None:
        assert case.path in [answer.path for answer in same], told
    if case.hint is not None:
        assert case.hint in [answer.hint for answer in same], told
    for answer in answers:
        assert bool(answer.hint) == (answer.status is not Status.OK), told
    if case.alone:
        others = [answer for answer in answers if answer.status is not Status.OK and answer not in same]
        assert not others, told
