"""The type of a rule, and names that several rules share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from slipway.settings.forms import PCLUSTER
from slipway.settings.model import Settings
from slipway.settings.source import Place, Reason

__all__ = ["COUNT_KEYS", "PCLUSTER", "Find", "Finding", "Rule", "Severity"]

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
