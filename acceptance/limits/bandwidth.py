"""Bus bandwidth and what it proves about the number of ranks."""

from __future__ import annotations

from acceptance.nccl.model import Row, Side

_HALF_DIGIT = 0.005  # GB/s; nccl-tests prints bandwidths with two decimals


def bus_factor(collective: str, ranks: int) -> float:
    """busbw / algbw for `ranks` ranks, as nccl-tests defines it."""
    if ranks < 1:
        return 1.0
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def proves_ranks(collective: str) -> bool:
    """Whether busbw / algbw depends on the number of ranks for this collective."""
    return bus_factor(collective, 2) != bus_factor(collective, 3)


def factor_range(row: Row) -> tuple[float, float] | None:
    """Bounds of busbw / algbw that the printed digits of a row leave open; None if the row says nothing.

    The algorithm bandwidth is taken from size and time, which are printed with more digits.
    """
    side = row.out_of_place
    if not (0 < side.time_us < float("inf")) or not (0 < side.busbw < float("inf")) or row.size <= 0:
        return None
    algbw = row.size / side.time_us / 1e3
    slack = 1.001  # time is printed with four digits at least
    return (side.busbw - _HALF_DIGIT) / algbw / slack, (side.busbw + _HALF_DIGIT) / algbw * slack


def rank_range(collective: str, row: Row) -> tuple[int, int | None] | None:
    """The numbers of ranks that a row is compatible with: (least, most); most is None where it has no bound."""
    bounds = factor_range(row)
    if bounds is None or not proves_ranks(collective):
        return None
    scale = 2.0 if collective == "all_reduce" else 1.0
    low, high = bounds[0] / scale, bounds[1] / scale  # both bound (n - 1) / n
    least = 1 if low <= 0 else (10**9 if low >= 1 else int(1 / (1 - low) + 0.999))
    most = None if high >= 1 else max(int(1 / (1 - high)), 1)
    return max(least, 1), most


def measured_busbw(collective: str, ranks: int, row: Row) -> float:
    """The out-of-place bus bandwidth in GB/s with all the digits there are."""
    return fine_busbw(collective, ranks, row.size, row.out_of_place)


def fine_busbw(collective: str, ranks: int, size: int, side: Side) -> float:
    """One side's bus bandwidth in GB/s.

    Below 10 GB/s the two printed decimals are coarse: there it is size / time x factor, if that agrees with them.
    """
    printed = side.busbw
    if printed < 10 and 0 < side.time_us < float("inf"):
        fine = size / side.time_us / 1e3 * bus_factor(collective, ranks)
        if abs(fine - printed) <= _HALF_DIGIT * 1.05:
            return fine
    return printed
