"""What only the rows of a table together show: a bandwidth that lost a digit, and rows that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from acceptance.nccl.model import BadRow, Row, Side, Table

_LEAST_ROWS = 3  # rows that are compared with each other
_LEAST_BUSBW = 1.0  # GB/s; the digits of smaller ones say too little
_DIGIT = "its bus and its algorithm bandwidth do not fit the other rows: a digit is missing"


def rounding(bandwidth: float) -> float:
    """Return the largest difference in GB/s between a bandwidth and its printed text.

    Two decimals are printed, above 1000 GB/s one, above 10,000 none.
    """
    if bandwidth < 1_000:
        return 0.0051
    if bandwidth < 10_000:
        return 0.051
    return 0.51 if bandwidth < 1e6 else bandwidth


def take_out_lost_digits(table: Table) -> None:
    """Move rows whose busbw / algbw is not that of the other rows to the bad ones.

    The quotient depends on the collective and the number of ranks alone, so it is the same in every row.
    """
    sides = [side for row in table.rows for side in (row.out_of_place, row.in_place) if side and _counts(side)]
    if len(sides) < _LEAST_ROWS:
        return
    factor = median(side.busbw / side.algbw for side in sides)
    if all(_fits(side, factor) for side in sides):
        return
    rows: list[Row] = []
    for row in table.rows:
        if not _fits(row.out_of_place, factor):
            table.bad_rows.append(BadRow(row.size, _DIGIT))
        elif row.in_place is not None and not _fits(row.in_place, factor):
            rows.append(replace(row, in_place=None))
        else:
            rows.append(row)
    table.rows[:] = rows


def _counts(side: Side) -> bool:
    return side.measured and side.busbw >= _LEAST_BUSBW and side.algbw > 0


def _fits(side: Side, factor: float) -> bool:
    if not side.measured or side.algbw < _LEAST_BUSBW:
        return True
    slack = rounding(side.busbw) + (factor + 0.001) * rounding(side.algbw) + 0.0005 * side.busbw
    return abs(side.busbw - factor * side.algbw) <= slack


def sizes_by_step(sizes: Sequence[int]) -> int | None:
    """Return how many sizes a sweep has, by the step between those that are there; None where it shows no step.

    sizes: in bytes, as measured. A gap of several steps means that the rows between are missing.
    """
    if len(sizes) < _LEAST_ROWS or sizes[0] < 1 or any(high <= low for low, high in zip(sizes, sizes[1:])):
        return None
    pairs = list(zip(sizes, sizes[1:]))
    by_factor = _steps([_power(pairs, high, low) for low, high in pairs])
    step = min(high - low for low, high in pairs)
    by_bytes = _steps([(high - low) // step if (high - low) % step == 0 else 0 for low, high in pairs])
    known = [steps for steps in (by_factor, by_bytes) if steps is not None]
    return min(known) + 1 if known else None


def _power(pairs: Sequence[tuple[int, int]], high: int, low: int) -> int:
    """How many times the smallest quotient of neighbours takes `low` to `high`; 0 if it never does."""
    factor = min(above // below if above % below == 0 else 1 for below, above in pairs)
    steps = 0
    while factor > 1 and low < high:
        low, steps = low * factor, steps + 1
    return steps if low == high and factor > 1 else 0


def _steps(gaps: Sequence[int]) -> int | None:
    """The number of steps, if every gap is a whole number of them and at least half of the gaps is one step."""
    if min(gaps) < 1 or 2 * sum(gap == 1 for gap in gaps) < len(gaps):
        return None
    return sum(gaps)
