"""One question about a measurement and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from acceptance.scenario.model import Limit

ORDER = ("pass", "no limit", "warn", "skipped", "unjudged", "fail")  # best first
ACCEPTED = ("pass", "no limit", "warn")  # outcomes that accept a test


@dataclass(frozen=True)
class Check:
    """One question and its answer. outcome: one of ORDER. limit: what the measured bandwidth was compared with.

    no limit: nothing is known to compare with, and the scenario accepts that; unjudged: it does not accept it.
    skipped: another failure prevented it.
    """

    name: str
    outcome: str
    message: str
    measured_gb_per_s: float | None = None
    limit: Limit | None = None


def worst(outcomes: list[str]) -> str:
    """The worst of some outcomes; no outcome at all is 'unjudged'."""
    return max(outcomes, key=ORDER.index, default="unjudged")
