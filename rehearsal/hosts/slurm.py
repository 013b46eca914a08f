"""Slurm's configuration, laid out as ParallelCluster lays it out below /opt/slurm."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rehearsal.hosts.errors import HostsError
from rehearsal.hosts.image import write
from rehearsal.hosts.spec import HostSpec

_USER_COMMANDS = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sattach",
    "sbatch",
    "sbcast",
    "scancel",
    "scontrol",
    "sdiag",
    "sinfo",
    "sprio",
    "squeue",
    "sreport",
    "srun",
    "sshare",
    "sstat",
    "strigger",
)
_DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
# ParallelCluster tells Slurm this part of an instance's memory.
_SCHEDULABLE_MEMORY = 0.95
_MAIN = """\
# Laid out as by ParallelCluster; written for the local hosts of the rehearsal.
ClusterName={cluster}
SlurmUser=slurm
SlurmctldPort=6817
SlurmdPort=6818
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurm.state
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SwitchType=switch/none
MpiDefault=pmix
# Local hosts: no control groups for jobs, and the CPUs of the instance type instead of this machine's.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=60
InactiveLimit=0
MinJobAge=300
KillWait=5
Waittime=0
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PrologFlags=Alloc
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
include slurm_parallelcluster.conf
"""
_MPI = """\
# With the tree (also part of the default, mixed) Slurm 22.05 lets ranks leave MPI_Init that write to ranks still in it:
# 10 of 16 jobs of 32 ranks ended with a segmentation fault; with the ring none of 44 did.
PMIxCollFence=ring
"""


def write_tree(target: Path, cluster: str, head: HostSpec, computes: Sequence[HostSpec]) -> None:
    """Write /opt/slurm (bin, sbin, etc) into `target`, for these hosts."""
    _links(target / "bin", _USER_COMMANDS, "/usr/bin")
    _links(target / "sbin", _DAEMONS, "/usr/sbin")
    etc = target / "etc"
    queues = list(dict.fromkeys(host.queue for host in computes))
    write(etc / "slurm.conf", _MAIN.format(cluster=cluster).encode())
    write(etc / "mpi.conf", _MPI.encode())
    write(etc / "slurm_parallelcluster.conf", _cluster_part(head, queues).encode())
    gres = "".join(f"include pcluster/slurm_parallelcluster_{queue}_gres.conf\n" for queue in queues)
    write(etc / "gres.conf", b"include slurm_parallelcluster_gres.conf\n")
    write(etc / "slurm_parallelcluster_gres.conf", gres.encode())
    for position, queue in enumerate(queues):
        hosts = [host for host in computes if host.queue == queue]
        part = _partition(queue, hosts, default=position == 0)
        write(etc / f"pcluster/slurm_parallelcluster_{queue}_partition.conf", part.encode())
        write(etc / f"pcluster/slurm_parallelcluster_{queue}_gres.conf", "".join(map(_gres_line, hosts)).encode())


def _links(directory: Path, names: Sequence[str], source: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        link = directory / name
        if not Path(source, name).exists() and shutil.which(name) is None:
            raise HostsError(f"{source}/{name}: not found. Hint: install Debian's slurm packages (`make setup`)")
        if not link.is_symlink():
            link.symlink_to(f"{source}/{name}")


def _cluster_part(head: HostSpec, queues: Sequence[str]) -> str:
    includes = "".join(f"include pcluster/slurm_parallelcluster_{queue}_partition.conf\n" for queue in queues)
    return f"SlurmctldHost={head.name}({head.ip})\n{includes}"


def _partition(queue: str, hosts: Sequence[HostSpec], *, default: bool) -> str:
    names = ",".join(host.name for host in hosts)
    lines = [_node_line(host) for host in hosts]
    lines.append(f"NodeSet={queue}_nodes Nodes={names}")
    flag = "YES" if default else "NO"
    lines.append(f"PartitionName={queue} Nodes={queue}_nodes MaxTime=INFINITE State=UP Default={flag}")
    return "\n".join(lines) + "\n"


def _node_line(host: HostSpec) -> str:
    features = ",".join(("static", host.instance_type, host.compute_resource or "cpu", *host.features))
    memory_mib = int(host.memory_mib * _SCHEDULABLE_MEMORY)
    line = f"NodeName={host.name} NodeAddr={host.ip} CPUs={host.vcpus} RealMemory={memory_mib} Feature={features}"
    return f"{line} Weight=1 State=UNKNOWN" + (f" Gres=gpu:{host.gpu_kind}:{host.gpus}" if host.gpus else "")


def _gres_line(host: HostSpec) -> str:
    if not host.gpus:
        return ""
    devices = "/dev/nvidia0" if host.gpus == 1 else f"/dev/nvidia[0-{host.gpus - 1}]"
    return f"NodeName={host.name} Name=gpu Type={host.gpu_kind} File={devices}\n"
