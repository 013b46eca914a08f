"""Judging the figures of GPUs: compared with their peers of the same model, and with the limits of that model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from gpusuite.limits import Limit, find_limit
from gpusuite.outliers import FEWEST, gap_of_two, slow_ones
from gpusuite.readings import FLOORS, Reading

OUTCOMES = ("pass", "no limit", "warn", "fail")  # best first
_FLOOR = 0.05  # of a metric whose kind has none


@dataclass(frozen=True)
class Check:
    """One question and its answer. outcome: one of OUTCOMES; gpu: the index of the GPU that a finding names.

    kind: of a finding about one GPU: 'wrong result', 'slow', 'droop', or 'failed' for anything else.
    """

    name: str
    outcome: str
    message: str
    gpu: int | None = None
    metric: str | None = None
    kind: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object of the report."""
        names = ("name", "outcome", "message", "gpu", "metric", "kind")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def judge(readings: Sequence[Reading]) -> list[Check]:
    """Compare each metric with the limits of the GPU model, and each GPU with its peers."""
    checks: list[Check] = []
    for (model, _, metric), same in _grouped(readings).items():
        checks += _with_limit(find_limit(model, metric), metric, same)
        checks += _with_peers(metric, same)
    return checks


def judge_nodes(readings: Sequence[Reading]) -> list[Check]:
    """Compare the nodes: the median of each node's GPUs of one kind with the other nodes', by metric. Needs three."""
    checks = []
    for (_, _, metric), same in _grouped(readings).items():
        by_node: dict[str, list[Reading]] = defaultdict(list)
        for reading in same:
            by_node[reading.node].append(reading)
        names = sorted(by_node)
        medians = [median(one.value for one in by_node[name]) for name in names]
        for slow in slow_ones(medians, FLOORS.get(same[0].kind, _FLOOR)):
            text = f"{number(slow.value)} {same[0].unit}, {slow.share:.0%} below the median of {len(names)} nodes"
            message = f"{names[slow.position]}: {metric} {text} ({number(slow.median)})"
            checks.append(Check("slow node", "fail", message, None, metric))
    return checks


def confirmed(first: Iterable[Check], repeated: Mapping[tuple[int, str], float]) -> list[Check]:
    """Take the failures back, as warnings, whose repeated measurement was good. repeated: by GPU and metric.

    A measurement that was not repeated keeps its outcome. `repeated` holds the values that passed.
    """
    checks = []
    for check in first:
        key = (check.gpu if check.gpu is not None else -1, check.metric or "")
        if check.outcome == "fail" and key in repeated:
            message = f"{check.message}; repeated: {number(repeated[key])}, which is good: slow once"
            check = replace(check, outcome="warn", message=message)
        checks.append(check)
    return checks


def number(value: float) -> str:
    """Four significant digits without an exponent: 743.1, 51.02, 26790."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _grouped(readings: Iterable[Reading]) -> dict[tuple[str, int, str], list[Reading]]:
    """The peers: the same model, number of multiprocessors, and metric."""
    groups: dict[tuple[str, int, str], list[Reading]] = defaultdict(list)
    for reading in readings:
        groups[reading.model, reading.multiprocessors, reading.metric].append(reading)
    return groups


def _with_limit(limit: Limit | None, metric: str, same: Sequence[Reading]) -> list[Check]:
    if limit is None:
        values = ", ".join(number(one.value) for one in same[:8])
        what = f"{metric}: {values} {same[0].unit}: no limit is known for {same[0].model}"
        return [Check("limit", "no limit", what, None, metric)]
    checks = []
    for one in same:
        outcome = limit.outcome(one.value)
        if outcome != "pass":
            message = f"{one.where}: {metric} {number(one.value)} {one.unit}, expected {limit}"
            checks.append(Check("limit", outcome, message, one.gpu, metric, "slow"))
    if checks:
        return checks
    lowest = min(same, key=lambda one: one.value)
    return [Check("limit", "pass", f"{metric}: lowest {number(lowest.value)} {lowest.unit}, {limit}", None, metric)]


def _with_peers(metric: str, same: Sequence[Reading]) -> list[Check]:
    values, floor = [one.value for one in same], FLOORS.get(same[0].kind, _FLOOR)
    two = gap_of_two(values, 2 * floor)
    if two is not None:
        slower, other = same[two], same[1 - two]
        gap = f"{number(slower.value)} {slower.unit}, {1 - slower.value / other.value:.0%} below {other.where}"
        message = f"{slower.where}: {metric} {gap}; two GPUs cannot outvote each other"
        return [Check("peers", "warn", message, slower.gpu, metric, "slow")]
    checks = []
    for slow in slow_ones(values, floor):
        one = same[slow.position]
        score = "more than half of the peers are equal" if slow.score is None else f"modified z {slow.score:.1f}"
        gap = f"{number(one.value)} {one.unit}, {slow.share:.0%} below the median {number(slow.median)}"
        message = f"{one.where}: {metric} {gap} of {len(same)} ({score})"
        checks.append(Check("peers", "fail", message, one.gpu, metric, "slow"))
    if not checks and len(same) >= FEWEST:
        spread = 1 - min(values) / max(values) if max(values) > 0 else 0.0
        checks.append(Check("peers", "pass", f"{metric}: {len(same)} GPUs within {spread:.1%}", None, metric))
    return checks
