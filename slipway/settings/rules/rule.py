"""The type of a rule, and names that several rules share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Literal

from slipway.settings.forms import PCLUSTER
from slipway.settings.model import Settings
from slipway.settings.source import Place, Reason

__all__ = ["COUNT_KEYS", "PCLUSTER", "Find", "Finding", "Rule", "Severity", "repeated", "rule", "warning"]

Finding = tuple[Place, str, str]
"""The place, what is wrong there, and the repair."""

Find = Callable[[Settings], Iterator[Finding]]
Severity = Literal["fault", "warning"]

COUNT_KEYS = ("queues.count", "queues.min_count", "queues.max_count")
"""The keys behind `Queue.min_count` and `Queue.max_count`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rule(Reason):
    """A rule about several keys, or about one key and facts of AWS. Its bad file is slipway/settings/bad/NAME.yaml.

    `find` returns every place that breaks the rule. `keys` are the settings that `find` reads: a finding is left out
    while one of them is wrong itself. `across` means that a finding in one item of a list depends on the other items.
    """

    keys: tuple[str, ...]
    find: Find
    severity: Severity = "fault"
    across: bool = False


def rule(
    *, why: str, source: str, keys: tuple[str, ...], severity: Severity = "fault", across: bool = False
) -> Callable[[Find], Rule]:
    """Make a rule of the function below: `efa_missing` finds what breaks the rule `efa-missing`."""

    def rule_of(find: Find) -> Rule:
        name = find.__name__.replace("_", "-")
        return Rule(name=name, why=why, source=source, keys=keys, find=find, severity=severity, across=across)

    return rule_of


warning = functools.partial(rule, severity="warning")
"""A rule that warns: the settings can be deployed although they break it."""


def repeated(values: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """Return the number of each value that is there before, with the number of the first that is equal."""
    first: dict[Hashable, int] = {}
    for number, value in enumerate(values):
        if first.setdefault(value, number) != number:
            yield number, first[value]
