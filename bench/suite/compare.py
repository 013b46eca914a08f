"""The suite's figures next to the bare script's of the same call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WITHIN = 0.03  # of the bare figure


@dataclass(frozen=True)
class Row:
    """One figure of one GPU, or of all GPUs together. `bare` is from the run that is nearer to the suite's figure."""

    where: str
    metric: str
    suite: float
    bare: float

    @property
    def ratio(self) -> float:
        """The suite's figure as a share of the bare one."""
        return self.suite / self.bare if self.bare > 0 else float("inf")

    @property
    def good(self) -> bool:
        """Whether the two agree."""
        return abs(self.ratio - 1) <= WITHIN


def figures_of_suite(gpus: Mapping[str, Any], group: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The figures that gpu_tests.py and ddp_tests.py (none with one GPU) have reported, by place and metric."""
    found = {(f"gpu {one['gpu']}", str(one["metric"])): float(one["value"]) for one in gpus["readings"]}
    for one in group.get("allreduce", ()):
        found["all GPUs", f"all_reduce {one['bytes']}"] = float(one["busbw_gb_per_s"])
    return found


def figures_of_bare(report: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The figures that the bare script has printed, by place and metric."""
    found = {("all GPUs", metric): float(value) for metric, value in report["together"].items()}
    for gpu, figures in enumerate(report["gpus"]):
        found.update({(f"gpu {gpu}", metric): float(value) for metric, value in figures.items()})
    return found


def compare(
    suite: Mapping[tuple[str, str], float], bares: Sequence[Mapping[tuple[str, str], float]]
) -> tuple[list[Row], list[str]]:
    """Return a row for each figure that both have, and the names of those that only one has."""
    both = [key for key in suite if all(key in bare for bare in bares)]
    rows = []
    for key in both:
        nearest = min((bare[key] for bare in bares), key=lambda value: abs(suite[key] - value))
        rows.append(Row(*key, suite[key], nearest))
    every = {*suite, *(key for bare in bares for key in bare)}
    return rows, sorted({metric for where, metric in every if (where, metric) not in both})
