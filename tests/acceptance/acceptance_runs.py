"""What the acceptance tests share by import: scenarios, nccl-tests programs, and what a finished command left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loopback_slurm import NODES, LoopbackSlurm, loopback_slurm

__all__ = [
    "HERE",
    "NODES",
    "REPOSITORY",
    "Finished",
    "LoopbackSlurm",
    "loopback_slurm",
    "make_programs",
    "make_scenario",
]

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def make_programs(directory: Path, behaviour: str) -> list[str]:
    """all_reduce_perf and alltoall_perf made of the test program, with lines of bash before they print; where they are.

    The lines may set algbw (GB/s) by `${nodes[@]}` and $collective.
    """
    directory.mkdir()
    source = (HERE / "program/all_reduce_perf").read_text()
    first, rest = source.split("printf '# nccl-tests version", 1)
    for collective in ("all_reduce", "alltoall"):
        text = f"{first}collective={collective}\n{behaviour}\nprintf '# nccl-tests version{rest}"
        if collective == "alltoall":
            text = text.replace("* 2 * (n - 1) / n", "* (n - 1) / n").replace("all_reduce_perf", "alltoall_perf")
        path = directory / f"{collective}_perf"
        path.write_text(text)
        path.chmod(0o755)
    return [str(directory)]


def make_scenario(**changes: Any) -> dict[str, Any]:
    """A valid scenario for 4 nodes of 2 ranks; `changes` replace its top-level keys."""
    value: dict[str, Any] = {
        "schema": 1,
        "cluster": "loopback",
        "partition": "train",
        "instance_type": "p5.48xlarge",
        "nodes": NODES,
        "gpus_per_node": 2,
        "network": None,
        "mpi": "none",
        "node_wait_s": 0,
        "queue_timeout_s": 60,
        "nccl_tests_paths": [str(HERE / "program")],
        "tests": [
            {
                "name": "all_reduce",
                "collective": "all_reduce",
                "min_bytes": 1048576,
                "max_bytes": 16777216,
                "step_factor": 2,
                "iterations": 2,
                "warmup_iterations": 0,
                "timeout_s": 60,
            }
        ],
        "limits": [
            {
                "collective": "all_reduce",
                "nodes": NODES,
                "size_bytes": 16777216,
                "fail_below_gb_per_s": 40,
                "warn_below_gb_per_s": 50,
                "source": "the test program prints 87.5",
                "date": "2026-11-27",
            }
        ],
    }
    value.update(changes)
    return value


@dataclass
class Finished:
    """A finished `acceptance` command and the report it left."""

    code: int
    out: str
    err: str
    report: dict[str, Any]
    directory: Path
