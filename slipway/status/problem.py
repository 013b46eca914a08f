"""One thing that is wrong with a cluster."""

from __future__ import annotations

import dataclasses

LEVELS = FAILED, DEGRADED, BUSY = "failed", "degraded", "busy"  # the worst first
MOST_NODES = 8  # named one by one; the rest is counted


@dataclasses.dataclass(frozen=True)
class Problem:
    """`level`: failed, degraded, or busy for what is not done yet. `where`: a stack, a node, background work."""

    level: str
    where: str
    text: str
    hint: str = ""
