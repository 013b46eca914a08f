"""Whether runs became slower at some point by more than chance would have it: exact rank tests over every point. Pure.

For each point that leaves three runs or more on both sides, Mann-Whitney's one-sided test counts out how many ways to
choose the later runs among all would put them as low as they are (ties share their ranks). That assumes nothing about
how figures are distributed. The point with the smallest such chance is the candidate. Because it is the best of many,
its p is the chance that *any* point looks as good or better: the sum over all points, which errs towards no alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

ALPHA = 0.01  # chance of calling a healthy cluster degraded, over all series of one report together
LEAST = 3  # runs on each side of the point
TREND_RUNS = 24  # the last ones are looked at


def lowest_step(values: Sequence[float]) -> tuple[int, float]:
    """How many of the last values are the lowest against those before them, and p of that (1 at most).

    values: oldest first, six at least.
    """
    ranks = _doubled_ranks(values)
    chances = _chances(tuple(sorted(ranks)))
    sums = list(accumulate(reversed(ranks)))
    alone = {later: chances[later][sums[later - 1]] for later in range(LEAST, len(ranks) - LEAST + 1)}
    later = min(alone, key=lambda one: alone[one])
    return later, min(1.0, _any_as_low(chances, alone[later]))


@lru_cache(maxsize=64)
def runs_needed(alpha: float) -> int:
    """How many runs it takes at least until a step, at the point where it is seen best, can have p <= alpha."""
    count = 2 * LEAST
    while count < TREND_RUNS and lowest_step([1.0] * (count - count // 2) + [0.0] * (count // 2))[1] > alpha:
        count += 1
    return count


def _any_as_low(chances: dict[int, dict[int, float]], bound: float) -> float:
    """The sum over all points of the chance that its own chance is at most `bound`."""
    return sum(max((one for one in own.values() if one <= bound), default=0.0) for own in chances.values())


@lru_cache(maxsize=256)
def _chances(ranks: tuple[int, ...]) -> dict[int, dict[int, float]]:
    """By number of later values: for each sum of their ranks the chance to have this one or a lower one."""
    most = len(ranks) - LEAST
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(most))]
    for rank in ranks:
        for count in range(most, 0, -1):
            for total, number in ways[count - 1].items():
                ways[count][total + rank] = ways[count].get(total + rank, 0) + number
    chances = {}
    for count in range(LEAST, most + 1):
        totals, every = sorted(ways[count]), sum(ways[count].values())
        running = accumulate(ways[count][total] for total in totals)
        chances[count] = {total: low / every for total, low in zip(totals, running)}
    return chances


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value from the lowest on, so that the mean rank of ties is a whole number."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(ordered)))}
    last = {value: index for index, value in enumerate(ordered)}
    return [first[value] + last[value] + 2 for value in values]
