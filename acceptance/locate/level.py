"""What the healthy reach, and the bus bandwidth below which a result is bad. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from acceptance.limits.baseline import MAD_TO_SIGMA
from acceptance.locate.model import Result, Rules

_MADS = 6.0  # distance from the healthy level, in scaled median absolute deviations, that is no noise
TINY = 1e-12  # GB/s, smallest positive bound: any launch that finished passes when nothing else is known

Kind = tuple[str, str, int]


def kind_of(result: Result) -> Kind:
    """What may be compared with each other: the same kind, collective and, to a factor of two, number of nodes."""
    return result.kind, result.collective, len(result.nodes).bit_length()


@dataclass(frozen=True)
class Bound:
    """The bus bandwidth below which results of a kind are bad; level: what the healthy reach; support: how many do."""

    below: float
    level: float
    support: int
    limit: float | None

    @property
    def sound(self) -> bool:
        """Whether it is a known limit or rests on more than one fast result: a single one could be a mistake."""
        return self.limit is not None or self.support > 1


def healthy(values: list[float], factor: float) -> list[float]:
    """The highest values that enough others are near to, highest first.

    Not the median of all: in a small fleet two bad nodes drag it down through their partners. From 16 values on, the
    healthy must be an eighth of all, so that no single odd figure sets the level.
    """
    ranked = sorted(values, reverse=True)
    need = 1 if len(ranked) < 16 else len(ranked) // 8
    for index, top in enumerate(ranked):
        near = [value for value in ranked[index:] if value >= factor * top]
        if len(near) >= need:
            return near
    return ranked


def bound_of(results: list[Result], rules: Rules) -> Bound:
    """The bound for results of one kind: the limit where one is known, and the distance from the healthy level.

    Of launches that were repeated the lowest value counts: a single fast figure that cannot be repeated is no level.
    """
    limit = rules.limits.get((results[0].collective, len(results[0].nodes)))
    lowest: dict[frozenset[str], float] = {}
    for result in results:
        if result.value > 0:
            nodes = frozenset(result.nodes)
            lowest[nodes] = min(result.value, lowest.get(nodes, result.value))
    near = healthy(list(lowest.values()), rules.factor)
    if not near:
        return Bound(max(limit or 0.0, TINY), 0.0, 0, limit)
    level = median(near)
    spread = MAD_TO_SIGMA * median(abs(value - level) for value in near)
    relative = min(rules.factor * level, level - _MADS * spread) if rules.relative else 0.0
    support = sum(1 for result in results if result.value >= rules.factor * level)
    return Bound(max(limit or 0.0, relative, TINY), level, support, limit)
