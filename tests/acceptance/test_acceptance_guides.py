"""The NCCL test of ParallelCluster's runbooks: their commands as they are typed, and the one command that takes their place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance_runs import HERE, REPOSITORY, Finished, LoopbackSlurm, make_scenario

PROGRAM = HERE / "program/all_reduce_perf"
# Of our own; with the options and the two arguments of the runbook's script.
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --tasks-per-node=8
#SBATCH --job-name=nccl-all_reduce_perf
#SBATCH --output %x_%j.out
#SBATCH --error %x_%j.err
set -euo pipefail
export LD_LIBRARY_PATH=$2
srun --mpi=none "$1" -b 8 -e 1024 -f 2
"""
PROVIDERS = {
    "NCCL INFO NET/OFI Selected Provider is efa": ("efa", None),
    "NCCL INFO NET/OFI Selected Provider is efa (found 32 nics)": ("efa", 32),
    "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)": ("efa", 16),
}


def parse(log: Path) -> tuple[int, dict[str, object]]:
    """Exit code and answer of `acceptance parse LOG --json`."""
    argv = [sys.executable, "-m", "acceptance", "parse", str(log), "--json"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    answer: dict[str, object] = json.loads(done.stdout)
    return done.returncode, answer


@pytest.mark.hosts
def test_the_runbooks_job_is_submitted_and_read(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    slurm.wait_idle()
    (tmp_path / "nccl-tests-ami.sbatch").write_text(SCRIPT)
    words = ["sbatch", "nccl-tests-ami.sbatch", str(PROGRAM), "/opt/nccl/build/lib"]
    said = subprocess.run(words, cwd=tmp_path, env=slurm.env, capture_output=True, text=True, timeout=60, check=True)
    job = re.fullmatch(r"Submitted batch job (\d+)\n", said.stdout)
    assert job is not None, said.stdout
    ask = ["squeue", "--noheader", "--states=all", f"--job={job[1]}", "--format=%T"]
    until = time.monotonic() + 120
    while (state := slurm.call(*ask).strip()) != "COMPLETED":
        assert time.monotonic() < until, state
        time.sleep(0.1)
    code, log = parse(tmp_path / f"nccl-all_reduce_perf_{job[1]}.out")
    assert (code, log["complete"]) == (0, True), log
    devices = log["devices"]
    assert isinstance(devices, list)
    assert len(devices) == 16


@pytest.mark.hosts
def test_one_command_takes_its_place(accept: Callable[..., Finished]) -> None:
    scenario = make_scenario(nodes=2)
    scenario["limits"][0]["nodes"] = 2
    done = accept(scenario)
    assert (done.code, done.out.rstrip().splitlines()[-1]) == (0, "[RESULT] SUCCESS"), done.out
    script = (done.directory / "all_reduce.sbatch").read_text()
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --ntasks-per-node=2\n" in script
    code, log = parse(done.directory / "all_reduce.out")
    assert (code, log["complete"]) == (0, True)


@pytest.mark.parametrize("line", PROVIDERS)
def test_the_provider_is_read_whatever_the_plugin_calls_it(line: str, tmp_path: Path) -> None:
    log = tmp_path / "nccl-all_reduce_perf_2.out"
    log.write_text(f"gpu-1:100:120 [0] {line}\n")
    network = parse(log)[1]["network"]
    assert isinstance(network, dict)
    (host,) = network["hosts"].values()
    assert (host["provider"], host["nics"]) == PROVIDERS[line]
    # The runbook's own way finds nothing in logs of today's plugins.
    found = subprocess.run(["grep", "Selected Provider is", str(log)], capture_output=True, timeout=20, check=False)
    assert (found.returncode == 0) is ("Provider" in line)
