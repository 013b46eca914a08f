"""The rules about several keys: one module for each subject."""

from __future__ import annotations

from collections.abc import Collection

from slipway.errors import Fault
from slipway.settings.model import Settings
from slipway.settings.rules import acceptance, network, place, queues, scenario, slurm, software, storage
from slipway.settings.rules.rule import Rule
from slipway.settings.source import Place, Source

SUBJECTS = (place, network, queues, storage, slurm, software, acceptance, scenario)
RULES = tuple(rule for subject in SUBJECTS for rule in vars(subject).values() if isinstance(rule, Rule))
"""Every rule: by subject, then in the order of its module."""


def rule_faults(settings: Settings, source: Source, bad_places: Collection[Place] = ()) -> list[Fault]:
    """Return a fault for every broken rule. Findings that depend on one of `bad_places` are left out."""
    return [
        source.fault(place, text, hint, rule.name, severity=rule.severity)
        for rule in RULES
        for place, text, hint in rule.find(settings)
        if not any(_depends(rule, place, bad) for bad in bad_places)
    ]


def _depends(rule: Rule, place: Place, bad: Place) -> bool:
    """Whether a finding of `rule` at `place` may come from the wrong value at `bad`."""
    if not rule.across and _in_another_item(place, bad):
        return False
    wrong = ".".join(part for part in bad if isinstance(part, str))
    return any(_one_contains_the_other(wrong, key) for key in rule.keys)


def _in_another_item(place: Place, bad: Place) -> bool:
    """Whether both are in different items of one list."""
    for key, other in zip(place, bad, strict=False):
        if key != other:
            return isinstance(key, int) and isinstance(other, int)
    return False


def _one_contains_the_other(path: str, other: str) -> bool:
    return not path or path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")
