"""``slipway check --explain``: why a rule exists, and the same for preflight's questions."""

from __future__ import annotations

import dataclasses
from typing import Any

from slipway.errors import UsageError
from slipway.settings.rules import RULES, RULES_BY_NAME, Rule
from slipway.settings.rules.fields import FILE_RULES
from slipway.text import nearest

ABOUT_THE_FILE, ABOUT_ONE_FIELD = "looks at the file", "looks at one field"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One row of docs/checks.md. ``what`` names the keys that a rule looks at, or is the question in words.

    ``kind`` is ``offline`` (a rule of ``slipway check``) or ``live`` (a question of ``slipway preflight``).
    """

    name: str
    kind: str
    severity: str
    what: str
    why: str
    source: str
    examples: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The row for ``--json``."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        shown = "".join(f"\n  example:  {example}" for example in self.examples)
        where = "slipway check, offline" if self.kind == "offline" else "slipway preflight, asks AWS"
        head = f"{self.name} ({self.severity}; {where})\n  {self.what}"
        return f"{head}\n  why:      {self.why}\n  source:   {self.source}{shown}"


def explanations() -> list[Explanation]:
    """Every rule, then every question, in the order in which they are told."""
    return [*map(_of_rule, RULES), *_questions()]


def _of_rule(rule: Rule) -> Explanation:
    if rule.keys:
        what = f"looks at {', '.join(rule.keys)}"
    else:
        what = ABOUT_THE_FILE if rule in FILE_RULES else ABOUT_ONE_FIELD
    return Explanation(rule.name, "offline", rule.severity, what, rule.why, rule.source, (rule.example,))


def _questions() -> list[Explanation]:
    from slipway.preflight.questions import QUESTIONS

    return [
        Explanation(
            question.name,
            "live",
            ", ".join(status.value for status in question.finds),
            question.asks,
            question.why,
            question.source,
            (),
        )
        for question in QUESTIONS
    ]


def explain(name: str) -> list[Explanation]:
    """The row called ``name``, in any case, or all of them for ``all``. Raises UsageError for a name that is none."""
    name = name.lower()
    if name in RULES_BY_NAME:
        return [_of_rule(RULES_BY_NAME[name])]
    rows = explanations()
    if name == "all":
        return rows
    found = [row for row in rows if row.name == name]
    if not found:
        near = nearest(name, [row.name for row in rows])
        hint = f"did you mean {near}?" if near else "slipway check --explain all lists them"
        raise UsageError(f"--explain {name}: is no rule of check and no question of preflight. Hint: {hint}")
    return found
