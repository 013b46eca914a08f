"""The results of the GPU suite in a report: the section `gpus` of report.json.

Each verdict is one that a program of the suite wrote, or that follows from the nodes and the file system of the run. A
test without a result is 'not measured', never good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GPU_VERDICTS = ("wrong result", "failed", "slow", "droop", "warn", "not measured", "good")  # worst first
BAD_GPUS = GPU_VERDICTS[:4]


@dataclass(frozen=True)
class SuiteTest:
    """One test on one node. verdict: pass, no limit, warn, fail or 'not measured'; cause: why, empty after a pass."""

    node: str
    name: str
    verdict: str
    cause: str


@dataclass(frozen=True)
class GpuReport:
    """One GPU. verdict: the worst of GPU_VERDICTS; findings: what warned or failed, or why it was not measured.

    software: what its figures depend on, such as `torch 2.11.0, CUDA 13.0, quick`.
    """

    node: str
    gpu: int
    bus: str
    uuid: str
    model: str
    software: str
    verdict: str
    findings: tuple[str, ...]

    @property
    def where(self) -> str:
        """Node, index and bus id, as the programs name a GPU."""
        return f"{self.node} gpu {self.gpu} ({self.bus})"

    @property
    def name(self) -> str:
        """What its history is kept by: its UUID, without one its node and index."""
        return self.uuid or f"{self.node} gpu {self.gpu}"


@dataclass(frozen=True)
class GpuBaseline:
    """What `runs` good runs of one GPU reached. name, software: as in `GpuReport`; last: node and index of the last."""

    name: str
    metric: str
    software: str
    median: float
    mad: float
    runs: int
    since: str
    last: str


@dataclass(frozen=True)
class GpuFigure:
    """One figure of one GPU; more is better. outcome: pass, warn or fail."""

    node: str
    gpu: int
    bus: str
    uuid: str
    model: str
    metric: str
    value: float
    unit: str
    outcome: str


@dataclass(frozen=True)
class Pair:
    """A copy from one GPU of a node to another, in GB/s. good: the data were right and no finding names the pair."""

    source: int
    target: int
    gb_per_s: float
    good: bool


@dataclass(frozen=True)
class Watched:
    """What nvidia-smi reported of one GPU during the stress test; None where the GPU has no such figure.

    seconds: from one sample to the next; a long test is thinned out.
    """

    node: str
    gpu: int
    seconds: int
    sm_mhz: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]


@dataclass(frozen=True)
class StorageFigure:
    """One figure of a directory, measured by one node."""

    node: str
    directory: str
    what: str
    value: float
    unit: str


@dataclass(frozen=True)
class CollectiveRow:
    """A collective of one size over the ranks of one launch. ok: all data were right. node: empty for many nodes."""

    node: str
    ranks: int
    collective: str
    size_bytes: int
    busbw_gb_per_s: float
    ok: bool


@dataclass(frozen=True)
class ReportedJob:
    """A job of a run that wrote results. name: suite or storage; ended: why it ended early, None if it did not."""

    name: str
    nodes: tuple[str, ...]
    log: str | None = None
    repeat: str | None = None
    ended: str | None = None


@dataclass(frozen=True)
class SuiteFailure:
    """One thing that is wrong. job: the name of the job that showed it."""

    what: str
    job: str


@dataclass(frozen=True)
class SuiteReport:
    """What the suite found. verdict: accepted, not accepted, or 'not measured' where no test ran on a GPU or disk.

    jobs: empty for results outside a run.
    """

    date: str
    nodes: tuple[str, ...]
    tests: tuple[SuiteTest, ...]
    gpus: tuple[GpuReport, ...]
    figures: tuple[GpuFigure, ...]
    peers: Mapping[str, tuple[Pair, ...]]
    watched: tuple[Watched, ...]
    storage: tuple[StorageFigure, ...]
    collectives: tuple[CollectiveRow, ...]
    versions: Mapping[str, str]
    failures: tuple[SuiteFailure, ...]
    verdict: str
    jobs: tuple[ReportedJob, ...] = ()
