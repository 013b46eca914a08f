"""One question about a measurement and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from acceptance.scenario.model import Limit

ORDER = ("pass", "warn", "unjudged", "fail")


@dataclass(frozen=True)
class Check:
    """One question and its answer. outcome: pass, warn, unjudged or fail; the numbers are in GB/s."""

    name: str
    outcome: str
    message: str
    measured: float | None = None
    limit: Limit | None = None


def worst(outcomes: list[str]) -> str:
    """The worst of some outcomes; no outcome at all is 'unjudged'."""
    return max(outcomes, key=ORDER.index, default="unjudged")
