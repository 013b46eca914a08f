"""The jobs of the GPU suite in a run: what they are called, what their script needs, and why one left no result."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.report.gpus import FOLDER, STORAGE, SUITE
from acceptance.runner.files import open_plain
from acceptance.runner.follow import JobOutcome
from acceptance.runner.script import KILL_AFTER_S, slurm_minutes
from acceptance.scenario.model import Scenario

_MOST, _LONGEST = 1 << 20, 300  # bytes of a log that are looked at; characters of a line in a message
# What names the reason, best first: the script's own line, the suite's without torch, its result.
_REASONS = (
    re.compile(r"^acceptance: (.+)$", re.MULTILINE),
    re.compile(r"^.*?(\S+ has no (?:torch|numpy)\b.*)$", re.MULTILINE),
    re.compile(r"^\[RESULT\] (?:FAILURE|SKIPPED): (.+)$", re.MULTILINE),
)


@dataclass(frozen=True)
class SuiteJob:
    """One job. part: SUITE or STORAGE; name: of its record, script and log."""

    part: str
    name: str
    timeout_s: int
    image: str | None = None
    storage_directory: str = ""

    def values(self, scenario: Scenario, directory: Path, job_name: str) -> dict[str, Any]:
        """Return what the script needs besides the values of every script."""
        wanted = scenario.suite
        what = "the storage test" if self.storage_directory else "the GPU suite"
        return {
            "title": f"{what} on all nodes",
            "job_name": job_name,
            "nodes": scenario.nodes,
            "ranks_per_node": 1,
            "nodelist": "",
            "minutes": slurm_minutes(self.timeout_s),
            "timeout_s": self.timeout_s,
            "kill_after_s": KILL_AFTER_S,
            "programs": wanted.programs if wanted else "",
            "reports": str(directory / FOLDER / self.part),
            "gpus": scenario.gpus_per_node,
            "options": "--quick" if wanted and wanted.quick else "",
            "image": self.image,
            "storage_directory": self.storage_directory,
            "status_file": f"{self.name}.status",
        }


def suite_jobs(scenario: Scenario) -> list[SuiteJob]:
    """Return the jobs of a run after its tests: the GPU suite in the first image if there is one, then storage."""
    wanted = scenario.suite
    if wanted is None:
        return []
    return [
        SuiteJob(SUITE, "gpu-suite", wanted.timeout_s, scenario.gpu_image),
        SuiteJob(STORAGE, "storage", wanted.storage_timeout_s, storage_directory=wanted.storage_directory),
    ]


def why_ended(outcome: JobOutcome | None, log: Path) -> str | None:
    """Return why a node may have left no result, for the report; None if the job ended well."""
    if outcome is None:
        return "its job was not run"
    if outcome.kind == "done":
        return None
    try:
        with os.fdopen(open_plain(log), "r", encoding="utf-8", errors="replace") as stream:
            text = stream.read(_MOST)
    except OSError:
        text = ""
    matches = (pattern.search(text) for pattern in _REASONS if outcome.kind == "failed")
    reason = next((match[1] for match in matches if match), "")
    return f"{reason[:_LONGEST]} ({outcome.message})" if reason else outcome.message
