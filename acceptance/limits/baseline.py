"""The site's own baseline: what its good runs reached, and how far from it a run may be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from acceptance.scenario.model import Baseline, Limit
from acceptance.text import gb_text, plural

GOOD_RUNS = 3  # runs that make a baseline
BASELINE_RUNS = 20  # the last ones count
MAD_TO_SIGMA = 1.4826  # of a normal distribution
LEAST_SPREAD = 0.01  # of the median; healthy clusters spread by 0.3 % (one node) to 0.6 % (pairs), too few runs by less
WARN_SIGMAS, FAIL_SIGMAS = 3.0, 6.0


def middle(values: Sequence[float]) -> tuple[float, float]:
    """The median of some values and their median absolute deviation from it."""
    level = median(values)
    return level, median(abs(value - level) for value in values)


def spread(median_gb_per_s: float, mad_gb_per_s: float) -> float:
    """One deviation in GB/s: the scaled MAD, 1 % of the median at least."""
    return max(MAD_TO_SIGMA * mad_gb_per_s, LEAST_SPREAD * median_gb_per_s)


def baseline_limit(baseline: Baseline) -> Limit:
    """The bounds of a baseline as a limit: warn below three, fail below six deviations under the median."""
    level, mad = baseline.median_gb_per_s, baseline.mad_gb_per_s
    deviation = spread(level, mad)
    runs = f"{plural(baseline.runs, 'good run')} since {baseline.since[:10]}"
    return Limit(
        collective=baseline.collective,
        nodes_min=baseline.nodes,
        nodes_max=baseline.nodes,
        size_bytes=baseline.size_bytes,
        fail_below_gb_per_s=max(level - FAIL_SIGMAS * deviation, 0.0),
        warn_below_gb_per_s=max(level - WARN_SIGMAS * deviation, 0.0),
        source=f"this site's median {gb_text(level)}, MAD {gb_text(mad)} of {runs}",
        date=baseline.until[:10],
        basis="baseline",
    )
