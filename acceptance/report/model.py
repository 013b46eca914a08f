"""A report as values: all that report.json, the page, JUnit, the summary, the history and the metrics show.

A field's name is its key in report.json, whose schema is report.schema.json. Bandwidths in GB/s, sizes in bytes, times
in UTC (ISO 8601).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acceptance.causes import Finding
from acceptance.jsonable import json_of_fields
from acceptance.limits import Check, Reference
from acceptance.locate import GroupVerdict, LinkVerdict
from acceptance.nccl import Failure, Network, Row
from acceptance.report.gpus_model import SuiteReport
from acceptance.scenario import Baseline
from acceptance.text import plural, size_text

SCHEMA_VERSION = 3  # 3: with `gpus`
NODE_VERDICTS = ("failed", "slow", "infrastructure", "suspect", "not measured", "good")  # worst first
BAD_VERDICTS = ("slow", "failed", "infrastructure")  # of nodes; each of these is a failure of the run


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. log: file name in the run directory; repeat: the command that measures just this again.

    test: the test that showed it. None where there is no such thing.
    """

    what: str
    log: str | None = None
    repeat: str | None = None
    test: str | None = None


@dataclass(frozen=True)
class Job:
    """The Slurm job of a test. kind: as in JobOutcome."""

    id: int
    state: str
    exit_code: int | None
    nodes: list[str]
    seconds: float
    kind: str


@dataclass(frozen=True)
class MeasuredRow:
    """One size of a sweep. The bandwidths have all the digits that the row contains."""

    row: Row
    measured_busbw_gb_per_s: float | None
    in_place_busbw_gb_per_s: float | None

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.row.size

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        values = json_of_fields(self)
        return {**values.pop("row"), "size_text": size_text(self.size), **values}


@dataclass(frozen=True)
class SiteBaseline:
    """What this site's good runs reached at one size, with the bounds that follow from it."""

    baseline: Baseline
    fail_below_gb_per_s: float
    warn_below_gb_per_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        values = json_of_fields(self)
        return {**values.pop("baseline"), **values}


@dataclass(frozen=True)
class Figure:
    """A result that is no bus bandwidth, such as the time of a training step. higher: whether higher is better."""

    name: str
    value: float
    unit: str
    higher: bool = False


@dataclass(frozen=True)
class TestReport:
    """One test of the scenario. verdict: the worst outcome of its checks, or 'not run'."""

    __test__ = False  # pytest takes classes of this name for its own
    name: str
    collective: str
    verdict: str
    checks: tuple[Check, ...]
    rows: tuple[MeasuredRow, ...]
    baseline: tuple[SiteBaseline, ...]
    references: tuple[Reference, ...]
    job: Job | None
    log: str | None
    repeat: str | None
    network: Network
    causes: tuple[Finding, ...]
    events: tuple[Failure, ...]
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class NodeReport:
    """A node. verdict: one of NODE_VERDICTS; state: Slurm's; best: the GB/s of its best pair, None without pairs."""

    name: str
    state: str | None
    verdict: str
    evidence: str
    best: float | None


@dataclass(frozen=True)
class LaunchReport:
    """One launch of the search. round: from 1; kind: pair, alone, block or rest."""

    round: int
    collective: str
    nodes: tuple[str, ...]
    outcome: str
    busbw_gb_per_s: float | None
    good: bool
    bad_below_gb_per_s: float
    log: str
    kind: str


@dataclass(frozen=True)
class LocateReport:
    """The search for the node, link or switch to blame. others: the launches that are not pairs; rest: as in Verdict.

    slow_below_gb_per_s: the bound of a pair in the test's own collective, None where none was measured. topology: where
    the switches are from: slurm, ec2 or none.
    """

    test: str
    collective: str
    size_bytes: int
    topology: str
    pair_limit_gb_per_s: float | None
    slow_below_gb_per_s: float | None
    factor: float
    trouble: str | None
    pairs: tuple[LaunchReport, ...]
    others: tuple[LaunchReport, ...]
    links: tuple[LinkVerdict, ...]
    groups: tuple[GroupVerdict, ...]
    rest: str

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json; the kind of a pair is left out."""
        values = json_of_fields(self)
        for pair in values["pairs"]:
            del pair["kind"]
        return values


@dataclass(frozen=True)
class StepReport:
    """A step of a scenario's job. kind: pre_test, test or post_test; name: of the hook's test."""

    kind: str
    name: str
    started: str
    ended: str | None
    code: int | None


@dataclass(frozen=True)
class JobReport:
    """When and where a job of a scenario ran. name: of its test in the report; test: its id in the scenario."""

    name: str
    test: str
    job_id: int | None
    state: str
    verdict: str
    nodes: tuple[str, ...]
    started: str | None
    ended: str | None
    steps: tuple[StepReport, ...]


@dataclass(frozen=True)
class SweepPoint:
    """A point of a sweep. job: its name; value: the figure by which points are compared, None without one."""

    job: str
    values: Mapping[str, Any]
    verdict: str
    value: float | None


@dataclass(frozen=True)
class SweepReport:
    """The points of a test's sweep. figure, unit, higher: what they are compared by; best: the best point's job."""

    figure: str
    unit: str
    higher: bool
    points: tuple[SweepPoint, ...]
    best: str | None


@dataclass(frozen=True)
class ScenarioTest:
    """A test of a scenario. verdict: the worst of its jobs; dependencies: pairs of kind and the other test's id."""

    id: str
    test: str
    template: str
    description: str
    dependencies: tuple[tuple[str, str], ...]
    verdict: str
    cause: str
    sweep: SweepReport | None


@dataclass(frozen=True)
class ScenarioReport:
    """A scenario of CloudAI. skipped: points of sweeps that cannot run, with the reason."""

    name: str
    tests: tuple[ScenarioTest, ...]
    jobs: tuple[JobReport, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command that repeats a part of the run."""

    what: str
    command: str


@dataclass(frozen=True)
class Report:
    """A run: what was measured, and what follows from it.

    purpose: accept, locate for a search without a test over all nodes, scenario for one of CloudAI, or gpus for the
    GPU suite without a run, which has no partition and names its nodes as the cluster. verdict: accepted, not accepted,
    or error where the environment prevented an answer. summary: the text after `[RESULT] SUCCESS` or `[RESULT]
    FAILURE`. tests: of a scenario one for each of its jobs. gpus: None where the GPU suite was not part of the run.
    """

    run_id: str
    purpose: str
    directory: str
    started: str
    finished: str | None
    cluster: str
    partition: str
    instance_type: str
    nodes_expected: int
    gpus_per_node: int
    tests: tuple[TestReport, ...]
    nodes: tuple[NodeReport, ...]
    locate: LocateReport | None
    versions: Mapping[str, str]
    commands: tuple[Command, ...]
    verdict: str
    failures: tuple[Problem, ...]
    summary: str = ""
    scenario: ScenarioReport | None = None
    gpus: SuiteReport | None = None

    @property
    def size(self) -> str:
        """Nodes and their type; where the type is a GPU's, because there was no run, also the GPUs of a node."""
        size = f"{self.nodes_expected} x {self.instance_type}"
        if self.purpose != "gpus" or not (self.gpus and self.gpus.gpus):
            return size
        return f"{size}, {plural(self.gpus_per_node, 'GPU')} a node"

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        return {"schema_version": SCHEMA_VERSION, **json_of_fields(self)}

    def nodes_that_are(self, *verdicts: str) -> list[NodeReport]:
        """Return the nodes with one of these verdicts."""
        return [node for node in self.nodes if node.verdict in verdicts]
