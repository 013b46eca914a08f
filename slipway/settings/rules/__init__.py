"""Every rule of the settings file, as rows of tables: one module a subject.

Rules of a single field or of the file are told where the file is read; the others look at the whole ``Settings``.
``rule_faults`` runs those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from slipway.errors import Fault
from slipway.settings.rules import acceptance, fields, network, place, queues, slurm, software, storage
from slipway.settings.rules.acceptance import known_limits
from slipway.settings.rules.rule import Rule
from slipway.settings.source import Place, Source, path_text, redacted

if TYPE_CHECKING:
    from slipway.settings import Settings

__all__ = ["RULES", "RULES_BY_NAME", "Rule", "known_limits", "rule_faults"]

RULES: tuple[Rule, ...] = (
    *fields.RULES,
    *place.RULES,
    *network.RULES,
    *queues.RULES,
    *storage.RULES,
    *slurm.RULES,
    *software.RULES,
    *acceptance.RULES,
)
RULES_BY_NAME = {rule.name: rule for rule in RULES}


def rule_faults(settings: Settings, source: Source, bad_paths: Collection[Place] = ()) -> list[Fault]:
    """Every broken rule as a Fault. Findings that depend on one of ``bad_paths`` (told already) are left out."""
    told = []
    for rule in RULES:
        if rule.find is None:
            continue
        for path, text, hint in rule.find(settings):
            if not any(_depends(rule, path, bad) for bad in bad_paths):
                told.append(_fault(rule, source, path, text, hint))
    return told


def _fault(rule: Rule, source: Source, path: Place, text: str, hint: str) -> Fault:
    return Fault(
        source.file,
        source.line(path),
        redacted(path_text(path)),
        source.value(path),
        redacted(text),
        redacted(hint),
        rule_name=rule.name,
        severity=rule.severity,
    )


def _depends(rule: Rule, path: Place, bad: Place) -> bool:
    """Whether a finding of ``rule`` at ``path`` may come from the wrong value at ``bad``."""
    if not rule.across and _in_another_item(path, bad):
        return False
    wrong = _key(bad)
    return any(_one_holds_the_other(wrong, key) for key in rule.keys)


def _in_another_item(path: Sequence[str | int], bad: Sequence[str | int]) -> bool:
    """Whether both lie in different items of one list."""
    for one, other in zip(path, bad, strict=False):
        if one != other:
            return isinstance(one, int) and isinstance(other, int)
    return False


def _key(path: Place) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def _one_holds_the_other(one: str, other: str) -> bool:
    return not one or one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
