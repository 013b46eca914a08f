"""The words of the local hosts: what a host is asked to be, and what a command on it answered."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Literal

Role = Literal["head", "compute"]

NO_ADDRESS = "0.0.0.0"  # noqa: S104 (nothing listens here: a host that is not started has none)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True)
class HostSpec:
    """One host of the cluster, as ParallelCluster would make it.

    name: its host name and, for a compute host, its Slurm node name; ip: its private address in the network;
    vcpus, memory_mib, gpus: the facts of the instance type, as Slurm gets them (the real machine has fewer);
    gpu_kind: the Gres type as ParallelCluster writes it (`h100`); features: further Slurm features (`efa`);
    dynamic: Slurm starts and ends it; its address is known only once it has been started (before that: NO_ADDRESS).
    """

    name: str
    ip: str
    role: Role
    instance_type: str
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_kind: str = "gpu"
    queue: str = ""
    compute_resource: str = ""
    features: tuple[str, ...] = ()
    dynamic: bool = False
    cfnconfig: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(f"host name {self.name!r}: lower-case letters, digits and hyphens, at most 63")
        IPv4Address(self.ip)
        if self.role == "compute" and not self.queue:
            raise ValueError(f"compute host {self.name!r}: its queue is missing")


@dataclass(frozen=True)
class Completed:
    """What a command on a host answered. rc 124 with `timed_out` set: it was ended when its time was over."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True when the command ended with 0."""
        return self.rc == 0
