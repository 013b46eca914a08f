"""Fixtures of the acceptance tests: a real Slurm on the loopback interface, and `acceptance run` against it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import NODES, REPOSITORY, Finished, LoopbackSlurm, loopback_slurm

from tests.loopback_accounting import accounted_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[LoopbackSlurm]:
    """A running Slurm of 4 nodes."""
    with loopback_slurm(NODES) as cluster:
        yield cluster


# Jobs of the partition urgent preempt those of train.
PREEMPTION = """PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=0
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10"""


@pytest.fixture(scope="session")
def accounted() -> Iterator[LoopbackSlurm]:
    """A running Slurm of 4 nodes with slurmdbd."""
    with accounted_slurm(NODES, PREEMPTION) as cluster:
        yield cluster


@pytest.fixture
def accept(slurm: LoopbackSlurm, tmp_path: Path) -> Callable[..., Finished]:
    """Run `acceptance run` on a scenario against the loopback Slurm."""

    def run(scenario: dict[str, Any], *options: str, env: dict[str, str] | None = None, wait: bool = True) -> Finished:
        if wait:
            slurm.wait_idle()
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps(scenario))
        argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(path), "--output", str(tmp_path / "runs")]
        done = subprocess.run(
            [*argv, *options],
            cwd=REPOSITORY,
            env={**slurm.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        directory = max(path for path in (tmp_path / "runs").iterdir() if path.is_dir())
        report = json.loads((directory / "report.json").read_text())
        return Finished(done.returncode, done.stdout, done.stderr, report, directory)

    return run
