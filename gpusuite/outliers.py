"""Finding the values that are slower than their peers: the modified z-score AND a least share below the median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SCORE = -3.5  # Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993)
_SIGMA = 0.6745  # a normal distribution's MAD in standard deviations
FEWEST = 3  # peers that can outvote one of them


@dataclass(frozen=True)
class Outlier:
    """A value below its peers. share: how far below the median, 0.07 for 7 %; score: None where the MAD is 0."""

    position: int
    value: float
    median: float
    share: float
    score: float | None


def slow_ones(values: Sequence[float], floor: float) -> list[Outlier]:
    """Return the values that are slower than their peers, slowest first. floor: the least share that counts.

    Both rules must hold. With eight healthy values the score alone flags 7.6 % of the sets, the score and 5 % at most
    1.9 %. If more than half of the values are equal the MAD is 0, and the floor alone decides.
    """
    if len(values) < FEWEST:
        return []
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    found = []
    for position, value in enumerate(values):
        share = 1 - value / middle if middle > 0 else 0.0
        score = _SIGMA * (value - middle) / deviation if deviation else None
        if share > floor and (score is None or score < SCORE):
            found.append(Outlier(position, value, middle, share, score))
    return sorted(found, key=lambda one: one.value)


def gap_of_two(values: Sequence[float], floor: float) -> int | None:
    """Return the position of the slower one of two values that differ by more than `floor`; else None.

    Two values cannot outvote each other, so that this is a warning and never a failure.
    """
    if len(values) != 2 or max(values) <= 0 or 1 - min(values) / max(values) <= floor:
        return None
    return 0 if values[0] < values[1] else 1
