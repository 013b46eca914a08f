"""The local hosts of the rehearsal: real systemd and Slurm, one network namespace a host, on one machine."""

from __future__ import annotations

from rehearsal.host_spec import Completed, HostSpec
from rehearsal.hosts.errors import BootFailed, HostsError, MachineUnfit, NodeFailed, SlurmNotReady
from rehearsal.hosts.fleet import Fleet
from rehearsal.hosts.host import Host

__all__ = [
    "BootFailed",
    "Completed",
    "Fleet",
    "Host",
    "HostSpec",
    "HostsError",
    "MachineUnfit",
    "NodeFailed",
    "SlurmNotReady",
]  # fmt: skip
