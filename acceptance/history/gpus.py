"""The history of each GPU: its figures in the last runs, what is normal for it, and whether it became slower.

A GPU is known by its UUID, so that it keeps its history when it moves to another node or index; without a UUID by node
and index. Figures are compared only where torch, CUDA and `--quick` are the same.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from acceptance.history.significance import TREND_RUNS
from acceptance.history.trend import Step, step
from acceptance.limits import GOOD_RUNS, middle
from acceptance.report.gpus_model import GpuBaseline, SuiteReport
from acceptance.report.model import Report

GPU_DROP = 0.03  # Llama 3's report: the heat of the day alone makes 1 to 2 %


@dataclass(frozen=True)
class GpuKind:
    """What has to be the same for two figures to be comparable. name: as in `GpuReport`."""

    name: str
    metric: str
    unit: str
    software: str


@dataclass(frozen=True)
class GpuPoint:
    """One figure of one run, and where the GPU was then."""

    run_id: str
    started: str
    node: str
    gpu: int
    value: float
    outcome: str


@dataclass(frozen=True)
class GpuTrend:
    """One figure of one GPU over time; its step as that of a bus bandwidth."""

    kind: GpuKind
    points: tuple[GpuPoint, ...]
    step: Step

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance history --json`."""
        return {**asdict(self.kind), **asdict(self.step), "points": [asdict(point) for point in self.points]}


def insert_gpus(connection: sqlite3.Connection, cluster: str, run_id: str, suite: SuiteReport) -> None:
    """Put the figures of a run in; of each cluster those of the last 24 runs are kept."""
    gpus = {(gpu.node, gpu.gpu): gpu for gpu in suite.gpus}
    rows = []
    for one in suite.figures:
        gpu = gpus[one.node, one.gpu]
        rows.append(
            (cluster, run_id, gpu.name, one.node, one.gpu, one.metric, one.unit, gpu.software, one.value, one.outcome)
        )
    connection.executemany("INSERT OR REPLACE INTO gpu_figures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    text = """
        DELETE FROM gpu_figures WHERE cluster = ? AND run_id NOT IN (
            SELECT r.run_id FROM runs r WHERE r.cluster = ? AND EXISTS (
                SELECT 1 FROM gpu_figures g WHERE g.cluster = r.cluster AND g.run_id = r.run_id)
            ORDER BY r.started DESC, r.run_id DESC LIMIT ?)
    """
    connection.execute(text, (cluster, cluster, TREND_RUNS))


def gpu_series(connection: sqlite3.Connection, cluster: str | None) -> dict[GpuKind, list[GpuPoint]]:
    """The figures of every GPU, oldest first; of one cluster where it is named."""
    text = """
        SELECT g.name, g.metric, g.unit, g.software, g.run_id, r.started, g.node, g.gpu, g.value, g.outcome
        FROM gpu_figures g JOIN runs r ON r.cluster = g.cluster AND r.run_id = g.run_id
        WHERE ? IS NULL OR g.cluster = ?
        ORDER BY r.started, r.run_id
    """
    found: dict[GpuKind, list[GpuPoint]] = defaultdict(list)
    for row in connection.execute(text, (cluster, cluster)):
        found[GpuKind(*tuple(row)[:4])].append(GpuPoint(*tuple(row)[4:]))
    return dict(found)


def gpu_baselines(connection: sqlite3.Connection, report: Report) -> list[GpuBaseline]:
    """What is normal for each GPU of a report by the good figures of earlier runs, where there are three of them."""
    names = {gpu.name for gpu in report.gpus.gpus} if report.gpus else set()
    found = []
    for kind, points in gpu_series(connection, report.cluster).items():
        good = [one for one in points if one.outcome == "pass" and one.started < report.started]
        if kind.name in names and len(good) >= GOOD_RUNS:
            level, mad = middle([one.value for one in good])
            last = f"{good[-1].node} gpu {good[-1].gpu}"
            found.append(
                GpuBaseline(kind.name, kind.metric, kind.software, level, mad, len(good), good[0].started, last)
            )
    return found


def gpu_trends(found: Mapping[GpuKind, Sequence[GpuPoint]]) -> list[GpuTrend]:
    """Judge every figure of every GPU, the largest loss first. The chance of a false alarm is kept over all of them."""
    judged = [
        GpuTrend(kind, tuple(points), step([one.value for one in points], len(found), GPU_DROP))
        for kind, points in found.items()
    ]
    return sorted(judged, key=lambda one: (one.step.verdict != "degraded", one.step.change or 0.0, one.kind.name))
