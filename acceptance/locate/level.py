"""What the healthy reach, and the bus bandwidth below which a result is bad. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from acceptance.limits.baseline import MAD_TO_SIGMA
from acceptance.locate.model import Result, Rules

_MADS = 6.0  # distance from the healthy level, in scaled median absolute deviations, that is no noise
TINY = 1e-12  # GB/s, smallest positive bound: any launch that finished passes when nothing else is known
_FEW = 16  # values from which on the healthy must be an eighth of all
_FEW_FINE, _WIDE_GAP = 4, 0.15  # below so many good values a gap must be such a share of their level
_WIDEST_GAP = 0.25  # the same for a single one, where no limit is missed
_SPREADS_OF_FEW, _SPREADS = 3, 2  # a gap is so many times as wide as good values spread: of fewer than _FEW, of more
_EDGE = 10  # values of which the highest and the lowest tenth may be odd ones

Nodes = frozenset[str]


@dataclass(frozen=True)
class Bound:
    """The bus bandwidth below which results of a kind are bad; level: what the healthy reach; support: how many do.

    odd: the nodes of a launch that was faster than all others, once: it set no level.
    """

    below: float
    level: float
    support: int
    limit: float | None
    odd: Nodes | None = None

    @property
    def sound(self) -> bool:
        """Whether it is a known limit or rests on more than one fast result: a single one could be a mistake."""
        return self.limit is not None or self.support > 1


def healthy(values: dict[Nodes, float], factor: float, repeated: set[Nodes]) -> tuple[list[float], Nodes | None]:
    """Return the values of the healthy, and the nodes of a single fast launch that was passed over.

    The values fall into clusters: between two of them is a gap of half of what `factor` allows. The healthy are the
    fastest cluster that is no mistake: a single launch counts only if it was repeated, where others agree with each
    other, and from 16 values on a cluster must be an eighth of all. The median of all would not do: in a small fleet
    two bad nodes drag it down through their partners.
    """
    clusters = _clusters(sorted(values.items(), key=lambda item: -item[1]), (1 + factor) / 2)
    need = 1 if len(values) < _FEW else len(values) // 8
    odd = None
    for index, cluster in enumerate(clusters):
        if len(cluster) < need:
            continue
        if len(cluster) == 1 and cluster[0][0] not in repeated and any(map(_agree, clusters[index + 1 :])):
            odd = odd or cluster[0][0]
            continue
        return [value for _, value in cluster], odd
    return list(values.values()), odd


def _clusters(ranked: list[tuple[Nodes, float]], ratio: float) -> list[list[tuple[Nodes, float]]]:
    values = [value for _, value in ranked]
    starts = [0, *(place for place, (above, value) in enumerate(zip(values, values[1:]), 1) if value < ratio * above)]
    return [ranked[start:end] for start, end in zip(starts, [*starts[1:], len(ranked)])] if ranked else []


def _agree(cluster: list[tuple[Nodes, float]]) -> bool:
    """Whether more than two launches are alike, not all of one node."""
    return len(cluster) > 2 and not frozenset.intersection(*(nodes for nodes, _ in cluster))


def bound_of(results: list[Result], rules: Rules) -> Bound:
    """The bound for results of one kind: the limit where one is known, and the distance from the healthy level.

    Of launches that were repeated the lowest value counts: a single fast figure that cannot be repeated is no level.
    """
    limit = rules.limits.get((results[0].collective, len(results[0].nodes)))
    lowest: dict[Nodes, float] = {}
    repeated: set[Nodes] = set()
    for result in results:
        nodes, value = result.node_set, result.value
        if nodes in lowest:
            repeated.add(nodes)
        if value > 0:
            lowest[nodes] = min(value, lowest.get(nodes, value))
    near, odd = healthy(lowest, rules.factor, repeated)
    if not near:
        return Bound(max(limit or 0.0, TINY), 0.0, 0, limit)
    level = median(near)
    spread = MAD_TO_SIGMA * median(abs(value - level) for value in near)
    relative = min(rules.factor * level, level - _MADS * spread) if rules.relative else 0.0
    support = sum(1 for result in results if result.value >= rules.factor * level)
    return Bound(max(limit or 0.0, relative, TINY), level, support, limit, odd)


@dataclass(frozen=True)
class Spread:
    """How far the good values spread. low: the lowest of them; gap: a value that is further below is no spread."""

    low: float
    gap: float

    def excludes(self, own: list[float]) -> bool:
        """Whether values are further below the good ones than either spread."""
        return self.low - max(own) > max(self.gap, max(own) - min(own))


ANYTHING_BAD = Spread(math.inf, 0.0)  # where a limit alone decides


def spread_of(fine: list[float], limit: float | None) -> Spread:
    """The spread of the good values.

    Of more than ten the highest and lowest tenth are left out; a few values do not show how far healthy ones spread,
    so that the gap must be wide, unless a known limit is missed as well.
    """
    fine = sorted(fine)
    cut = len(fine) // 10 if len(fine) > _EDGE else 0
    fine = fine[cut : len(fine) - cut]
    if not fine:
        return Spread(0.0, math.inf)
    low, times = fine[0], _SPREADS_OF_FEW if len(fine) < _FEW else _SPREADS
    gap = max(times * (fine[-1] - low), _WIDE_GAP * low if len(fine) < _FEW_FINE else 0.0)
    if len(fine) == 1:
        gap = low - max((1 - _WIDEST_GAP) * low, min(limit or 0.0, low - gap))
    return Spread(low, gap)
