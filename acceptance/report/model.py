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
from acceptance.scenario import Baseline
from acceptance.text import size_text

SCHEMA_VERSION = 2
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
class Command:
    """A command that repeats a part of the run."""

    what: str
    command: str


@dataclass(frozen=True)
class Report:
    """A run: what was measured, and what follows from it.

    purpose: accept, or locate for a search without a test over all nodes. verdict: accepted, not accepted, or error
    where the environment prevented an answer. summary: the text after `[RESULT] SUCCESS` or `[RESULT] FAILURE`.
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

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        return {"schema_version": SCHEMA_VERSION, **json_of_fields(self)}

    def nodes_that_are(self, *verdicts: str) -> list[NodeReport]:
        """Return the nodes with one of these verdicts."""
        return [node for node in self.nodes if node.verdict in verdicts]
