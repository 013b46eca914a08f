"""run.json: what happened in a run, in facts. Together with scenario.json and the raw logs it is all a report needs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.jsonable import FormError, form_fault, object_of
from acceptance.locate.model import Fleet, FullScale, Result, Rules
from acceptance.runner.files import read_plain, write_whole
from acceptance.runner.follow import JobOutcome
from acceptance.runner.topology import NETWORK_NODE

FILE = "run.json"


@dataclass
class TestRecord:
    """One test's job. log: its path in the run directory; command: the argv that repeats it.

    job_id: None before it is submitted; outcome: None before it has ended.
    """

    __test__ = False  # pytest takes classes of this name for its own
    name: str
    log: str
    command: list[str]
    job_id: int | None = None
    outcome: JobOutcome | None = None


@dataclass
class LocateRecord:
    """The search for the node to blame.

    sizes: bytes by collective; limits: [collective, nodes, GB/s]; pair_limit: the GB/s that a pair of the test's own
    collective must reach, None where unknown; relative: whether pairs are compared with each other as well; groups:
    node -> its switch; full_scale_failed: whether a run over all nodes failed before (else none was measured);
    full_scale_busbw: what it reached in GB/s at the size that is measured, None where it gave no figure.
    """

    test: str
    collective: str
    size_bytes: int
    nodes: list[str]
    pair_limit: float | None
    factor: float
    max_rounds: int
    alone: str | None = None
    collectives: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    limits: list[tuple[str, int, float]] = field(default_factory=list)
    relative: bool = True
    groups: dict[str, str] = field(default_factory=dict)
    full_scale_failed: bool = True
    full_scale_busbw: float | None = None
    ended: bool = False
    results: list[Result] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    trouble: str | None = None

    @property
    def topology(self) -> str:
        """Where the switches are from: slurm, ec2, or none where they are unknown."""
        if not self.groups:
            return "none"
        return "ec2" if all(group.startswith(NETWORK_NODE) for group in self.groups.values()) else "slurm"

    @property
    def done(self) -> bool:
        """Whether the search ended regularly."""
        return self.ended and self.trouble is None

    def fleet(self) -> Fleet:
        """What the search looks at."""
        full = FullScale(self.collective, failed=True, busbw=self.full_scale_busbw)
        full_scale = full if self.full_scale_failed else None
        return Fleet(tuple(self.nodes), self.groups, full_scale)

    def rules(self) -> Rules:
        """What the search goes by."""
        limits = {(collective, nodes): below for collective, nodes, below in self.limits}
        pairs = tuple(self.collectives)
        return Rules(limits, self.factor, self.relative, self.max_rounds, self.alone, pairs)


@dataclass
class RunRecord:
    """A run. nodes: name -> Slurm's state and, where it cannot be used, why. Times are UTC, ISO 8601.

    infrastructure: why too few nodes can be used; trouble: what Slurm or the file system refused, which ended the run.

    purpose: accept (the scenario's tests judge the cluster), locate (only the search, no test over all nodes) or
    scenario (the jobs of a scenario of CloudAI).
    """

    run_id: str
    started: str
    purpose: str = "accept"
    finished: str | None = None
    slurm: str = ""
    nodes: dict[str, dict[str, str | None]] = field(default_factory=dict)
    infrastructure: str | None = None
    interrupted: str | None = None
    trouble: str | None = None
    tests: list[TestRecord] = field(default_factory=list)
    locate: LocateRecord | None = None

    def write(self, directory: Path) -> None:
        """Write run.json in one step."""
        write_whole(directory / FILE, json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")


def read_record(directory: Path) -> RunRecord:
    """Read run.json. Raises InputError if it is missing or not one of ours."""
    path = directory / FILE
    try:
        return _record(object_of(read_plain(path)))
    except OSError as error:
        raise InputError([f"{path}: {error.strerror}. Hint: give the directory of a run"]) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            [f"{path}: is not the record of a run: {form_fault(error)}. Hint: give the directory of a run"]
        ) from None


def _record(value: dict[str, Any]) -> RunRecord:
    tests = [
        TestRecord(**{**t, "outcome": JobOutcome(**t["outcome"]) if t["outcome"] else None}) for t in value["tests"]
    ]
    own = re.compile(r"(?:[^/]+/)*[^/]+" if value["purpose"] == "scenario" else r"[^/]+")
    elsewhere = [test.log for test in tests if not own.fullmatch(test.log) or ".." in test.log.split("/")]
    if elsewhere:
        raise FormError(f"the log {elsewhere[0]!r} is not in its directory")
    locate = None
    if value["locate"]:
        results = [Result(**{**one, "nodes": tuple(one["nodes"])}) for one in value["locate"]["results"]]
        locate = LocateRecord(**{**value["locate"], "results": results})
    return RunRecord(**{**value, "tests": tests, "locate": locate})
