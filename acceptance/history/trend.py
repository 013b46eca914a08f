"""What the history says: how each kind of measurement developed, and how two runs differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from acceptance.history.read import Kind, Point, baseline_of
from acceptance.history.significance import ALPHA, LEAST, TREND_RUNS, lowest_step, runs_needed
from acceptance.limits import spread

BUSBW_DROP = 0.01  # of the median: less than healthy runs differ by is no degradation, however significant
_PAIR_SIGMAS = 3 * 2**0.5  # the difference of two single values spreads by the root of two more than one


@dataclass(frozen=True)
class Step:
    """Whether a series became lower. verdict: steady, degraded or 'too few runs'.

    The last 24 runs are split where the later ones are lowest against the earlier. later, earlier: their medians;
    change: later against earlier, as a fraction; p: of the rank test, times the number of series of the report;
    runs_needed: the least number of runs that distinguishes a degradation from chance.
    """

    verdict: str
    runs_needed: int
    later_runs: int | None = None
    later: float | None = None
    earlier: float | None = None
    change: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Trend:
    """One kind of measurement over time. Bandwidths in GB/s."""

    kind: Kind
    points: tuple[Point, ...]
    step: Step

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance history --json`."""
        found = baseline_of(self.kind, self.points)
        shown = asdict(self.step)
        shown.update(later_gb_per_s=shown.pop("later"), earlier_gb_per_s=shown.pop("earlier"))
        points = [asdict(point) for point in self.points]
        return {
            **asdict(self.kind),
            **shown,
            "baseline": asdict(found) if found else None,
            "points": points,
        }


def trends(found: dict[Kind, list[Point]]) -> list[Trend]:
    """Judge every kind that is judged in runs, or is the largest of its sweep.

    The chance of a false alarm is kept over all of them together (Bonferroni's correction).
    """
    shown = [kind for kind in found if _worth_showing(kind, found)]
    shown.sort(key=lambda kind: (kind.instance_type, kind.collective, kind.nodes, kind.setup, kind.size_bytes))
    values = {kind: [point.gb_per_s for point in found[kind]] for kind in shown}
    return [Trend(kind, tuple(found[kind]), step(values[kind], len(shown), BUSBW_DROP)) for kind in shown]


def _worth_showing(kind: Kind, found: dict[Kind, list[Point]]) -> bool:
    sweep = [other.size_bytes for other in found if _sweep(other) == _sweep(kind)]
    return kind.size_bytes == max(sweep) or any(point.outcome != "unjudged" for point in found[kind])


def _sweep(kind: Kind) -> tuple[object, ...]:
    return kind.instance_type, kind.gpus_per_node, kind.nodes, kind.setup, kind.collective


def step(values: Sequence[float], tests: int, least_drop: float) -> Step:
    """Judge one series, oldest value first. tests: how many series the chance of a false alarm is shared by."""
    needed, values = runs_needed(ALPHA / tests), values[-TREND_RUNS:]
    if len(values) < 2 * LEAST:
        return Step("too few runs", needed)
    later, p = lowest_step(values)
    now, before = median(values[-later:]), median(values[:-later])
    change = now / before - 1 if before else 0.0
    verdict = "steady" if len(values) >= needed else "too few runs"
    if p * tests <= ALPHA and change <= -least_drop:
        verdict = "degraded"
    return Step(verdict, needed, later, now, before, change, p * tests)


@dataclass(frozen=True)
class Difference:
    """Two runs at one size, in GB/s. noise: what two single runs may differ by; known: it comes from this site's runs.

    verdict: alike, slower or faster (the second against the first).
    """

    collective: str
    size_bytes: int
    first: float
    second: float
    noise: float
    known: bool

    @property
    def change(self) -> float:
        """Second against first, as a fraction."""
        return self.second / self.first - 1 if self.first else 0.0

    @property
    def verdict(self) -> str:
        """Whether the two differ by more than the noise."""
        if abs(self.second - self.first) <= self.noise:
            return "alike"
        return "slower" if self.second < self.first else "faster"

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance history --compare --json`."""
        return {**asdict(self), "change": self.change, "verdict": self.verdict}


def compare(found: dict[Kind, list[Point]], first: str, second: str) -> list[Difference]:
    """The sizes that two runs have in common, each with what single runs may differ by.

    One value of each run has no significance. The difference is compared with the spread of the good runs of its
    kind, or, with fewer than three of them, with 1 % of the first, which healthy clusters do not exceed.
    """
    differences = []
    for kind, points in sorted(found.items(), key=lambda one: (one[0].collective, one[0].size_bytes)):
        # Runs with other variables may well be compared, so that one sees what these change.
        twins = [other for other in found if replace(other, setup=kind.setup) == kind]
        seconds = [point.gb_per_s for other in twins for point in found[other] if point.run_id == second]
        firsts = [point.gb_per_s for point in points if point.run_id == first]
        if firsts and seconds:
            own = baseline_of(kind, points)
            level, mad = (own.median_gb_per_s, own.mad_gb_per_s) if own else (firsts[-1], 0.0)
            noise = _PAIR_SIGMAS * spread(level, mad)
            pair = (firsts[-1], seconds[-1])
            differences.append(Difference(kind.collective, kind.size_bytes, *pair, noise, own is not None))
    return differences
