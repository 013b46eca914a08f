"""Which rank this process is, by what started it: torchrun, srun with one task a GPU, mpirun, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCAL = "127.0.0.1"


class LaunchError(Exception):
    """The environment of the launcher is incomplete or contradicts itself."""


@dataclass(frozen=True)
class Rank:
    """One process of a group. launcher: torchrun, srun, mpirun or none; address and port: where rank 0 listens.

    agent_store: torchrun's agent listens there already, so that rank 0 does not.
    """

    launcher: str
    rank: int
    world: int
    local: int
    address: str
    port: int
    agent_store: bool = False


def find_rank(environment: Mapping[str, str]) -> Rank:
    """Return this process's rank. Raises LaunchError with variable, value and repair.

    torchrun's variables go first: under `srun ... torchrun` both exist. A single process needs no variables. A batch
    script has SLURM_PROCID and SLURM_NTASKS too, but it is no task of a step.
    """
    if "TORCHELASTIC_RUN_ID" in environment or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= set(environment):
        return _torchrun(environment)
    if "OMPI_COMM_WORLD_RANK" in environment:
        return _mpirun(environment)
    if int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1 and "SLURM_PROCID" in environment:
        return _srun(environment)
    return Rank("none", 0, 1, 0, LOCAL, 0)


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    if not value.isdigit():
        raise LaunchError(f"{name} is {value!r}, expected a number. Hint: start with torchrun, srun or mpirun")
    return int(value)


def _torchrun(environment: Mapping[str, str]) -> Rank:
    rank = _number(environment, "RANK")
    return Rank(
        "torchrun",
        rank,
        _number(environment, "WORLD_SIZE"),
        _number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else rank,
        environment.get("MASTER_ADDR", LOCAL),
        _number(environment, "MASTER_PORT"),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _mpirun(environment: Mapping[str, str]) -> Rank:
    world = _number(environment, "OMPI_COMM_WORLD_SIZE")
    local_world = int(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") or world)
    address = environment.get("MASTER_ADDR") or (LOCAL if local_world == world else "")
    if not address:
        hint = "Hint: mpirun -x MASTER_ADDR=$(hostname) ..., on the host of rank 0"
        raise LaunchError(f"MASTER_ADDR is not set, and mpirun started ranks on several hosts. {hint}")
    rank, local = _number(environment, "OMPI_COMM_WORLD_RANK"), _number(environment, "OMPI_COMM_WORLD_LOCAL_RANK")
    return Rank("mpirun", rank, world, local, address, int(environment.get("MASTER_PORT") or 29501))


def _srun(environment: Mapping[str, str]) -> Rank:
    rank, world = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")
    local = _number(environment, "SLURM_LOCALID")
    address = environment.get("MASTER_ADDR") or _first_of_srun(environment)
    here = environment.get("SLURMD_NODENAME")
    if rank == 0 and here and here != address and "MASTER_ADDR" not in environment:
        raise LaunchError(f"rank 0 is on {here}, and the first host is {address}. Hint: MASTER_ADDR={here} srun ...")
    job = int(environment.get("SLURM_JOB_ID") or 0)
    port = int(environment.get("MASTER_PORT") or 61000 + job % 4536)  # as enroot's hook for PyTorch images chooses it
    return Rank("srun", rank, world, local, address, port)


def _first_of_srun(environment: Mapping[str, str]) -> str:
    """Return the host of rank 0: the first node of the step, or of the host file that gives each rank its host.

    With --distribution=arbitrary srun still sorts the node list that it sets.
    """
    if not environment.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        return first_host(environment.get("SLURM_STEP_NODELIST", "")) or LOCAL
    file = environment.get("SLURM_HOSTFILE", "")
    with suppress(OSError):
        for line in Path(file).read_text("utf-8", "replace").splitlines():
            host = first_host(re.split(r"[#*]", line)[0])  # a comment; how many ranks the host has
            if host:
                return host
    rule = f"SLURM_DISTRIBUTION is arbitrary, and SLURM_HOSTFILE ({file or 'not set'}) names no first host here"
    raise LaunchError(f"{rule}. Hint: MASTER_ADDR=HOST srun ..., with the host of rank 0")


def first_host(nodelist: str) -> str:
    """Return the first host of Slurm's compressed list: `gpu-01` of `gpu-[01-03,7],login-1`. Empty for an empty list.

    scontrol does the same, but containers do not have it.
    """
    head = nodelist.strip()
    while True:
        match = re.match(r"([^\[,]*)\[([^\]]*)\]", head)
        if match is None:
            return head.partition(",")[0]
        first = match[2].partition(",")[0].partition("-")[0]
        head = match[1] + first + head[match.end() :]


def device_index(rank: Rank, visible: int) -> int:
    """Return the GPU of this rank among the visible ones.

    With srun --gpus-per-task each task sees its own GPU as number 0, so the local rank is taken modulo their number.
    """
    return rank.local % visible
