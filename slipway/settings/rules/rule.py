"""What a rule is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from slipway.settings.source import Place

if TYPE_CHECKING:
    from slipway.settings import Settings

Finding = tuple[Place, str, str]
"""Where (path), what is wrong, how to repair it."""

Find = Callable[["Settings"], Iterator[Finding]]
Severity = Literal["fault", "warning"]

PCLUSTER = "ParallelCluster 3.16.1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule of the settings file.

    ``why`` is what happens without it and ``source`` where that is known from. ``example`` is the message (without
    file and line) that tests/slipway/bad/<name>.yaml gives. ``find`` yields every place that breaks the rule; None for
    rules of a single field or of the file, which are told where the file is read. ``keys`` are the settings that
    ``find`` looks at: a finding is not told while one of them is wrong by itself. ``across`` says that a finding in one
    item of a list depends on the other items too.
    """

    name: str
    why: str
    source: str
    example: str
    severity: Severity = "fault"
    keys: tuple[str, ...] = ()
    find: Find | None = None
    across: bool = False
