"""`slipway check --explain` and docs/checks.md: why a rule of check or a question of preflight exists."""

from __future__ import annotations

import dataclasses
from typing import Any

from slipway.errors import UsageError
from slipway.preflight.model import Question
from slipway.preflight.questions import QUESTIONS
from slipway.settings.bad_files import message_of
from slipway.settings.check import REASONS, TEXT_REASONS
from slipway.settings.rules.rule import Rule
from slipway.settings.source import FILE_REASONS, Reason
from slipway.text import nearest

ABOUT_THE_FILE, ABOUT_ONE_FIELD = "reads the file", "reads one key"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A row of docs/checks.md. `what` names the keys that a rule reads, or is the question in words.

    `kind` is `offline` (a rule of `slipway check`) or `live` (a question of `slipway preflight`).
    """

    name: str
    kind: str
    severity: str
    what: str
    why: str
    source: str

    @property
    def examples(self) -> tuple[str, ...]:
        """The message that a check of the rule's bad file gives; none for a question."""
        return (message_of(self.name),) if self.kind == "offline" else ()

    def as_dict(self) -> dict[str, Any]:
        """The row for `--json`."""
        return {**dataclasses.asdict(self), "examples": self.examples}

    def __str__(self) -> str:
        shown = "".join(f"\n  example:  {example}" for example in self.examples)
        where = "slipway check, offline" if self.kind == "offline" else "slipway preflight, asks AWS"
        head = f"{self.name} ({self.severity}; {where})\n  {self.what}"
        return f"{head}\n  why:      {self.why}\n  source:   {self.source}{shown}"


def explanations() -> list[Explanation]:
    """Return every rule, then every question, in the order in which they are reported."""
    return [*map(_of_reason, REASONS), *map(_of_question, QUESTIONS)]


def _of_reason(reason: Reason) -> Explanation:
    if isinstance(reason, Rule):
        what, severity = f"reads {', '.join(reason.keys)}", reason.severity
    else:
        what = ABOUT_THE_FILE if reason in (*FILE_REASONS, *TEXT_REASONS) else ABOUT_ONE_FIELD
        severity = "fault"
    return Explanation(reason.name, "offline", severity, what, reason.why, reason.source)


def _of_question(question: Question) -> Explanation:
    severity = ", ".join(status.value for status in question.finds)
    return Explanation(question.name, "live", severity, question.asks, question.why, question.source)


def explain(name: str) -> list[Explanation]:
    """Return the row called `name`, in any case, or all of them for `all`. Raises UsageError for an unknown name."""
    rows = explanations()
    named = [row for row in rows if name.lower() in (row.name, "all")]
    if not named:
        near = nearest(name.lower(), [row.name for row in rows])
        hint = f"did you mean {near}?" if near else "slipway check --explain all lists them"
        raise UsageError(f"--explain {name}: no rule of check and no question of preflight has this name. Hint: {hint}")
    return named
