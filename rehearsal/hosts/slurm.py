"""Slurm's configuration, laid out as ParallelCluster lays it out below /opt/slurm."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal.host_spec import HostSpec
from rehearsal.hosts.errors import HostsError
from rehearsal.hosts.image import POWER_PROGRAM_DIR, write

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
# ParallelCluster gives Slurm this part of an instance's memory.
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
CommunicationParameters=NoAddrCache
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PrologFlags=Alloc
Prolog={scripts}/prolog.d/*
Epilog={scripts}/epilog.d/*
SchedulerParameters=nohold_on_prolog_fail
BatchStartTimeout=180
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
include slurm_parallelcluster.conf
"""
# As ParallelCluster's slurm.conf has it, but for what PowerSaving shortens. PrivateData=cloud: without it Slurm older
# than 23.02 does not show nodes that are powered down.
_POWER = """\
ReconfigFlags=KeepPartState
SlurmctldParameters=idle_on_node_suspend,power_save_min_interval={power.min_interval_s},power_save_interval={power.interval_s},cloud_dns
SuspendProgram={programs}/slurm_suspend
ResumeProgram={programs}/slurm_resume
ResumeFailProgram={programs}/slurm_suspend
SuspendTimeout={power.suspend_timeout_s}
PrivateData=cloud
ResumeRate=0
SuspendRate=0
"""
# ParallelCluster's own scripts of Prolog and Epilog: each of the two directories has to hold at least one. Here they
# do nothing (ParallelCluster user guide, "Slurm prolog and epilog", 3.6.0 and newer; its cookbook's tests).
_SCRIPTS = "/opt/slurm/etc/scripts"
_JOB_SCRIPTS = ("prolog.d/90_pcluster_health_check_manager", "epilog.d/90_pcluster_noop")
_MPI = """\
# With the tree (also part of the default, mixed) Slurm 22.05 lets ranks leave MPI_Init that write to ranks still in it:
# 10 of 16 jobs of 32 ranks ended with a segmentation fault; with the ring none of 44 did.
PMIxCollFence=ring
"""


#: Parameters that the local hosts need as they are: how the name begins, in small letters -> why.
_OURS = {
    "accounting": "no slurmdbd runs behind the local hosts",
    "jobacct": "no slurmdbd runs behind the local hosts",
    "jobcomp": "no slurmdbd runs behind the local hosts",
    "proctrack": "the jobs of local hosts have no control groups",
    "taskplugin": "the jobs of local hosts have no control groups",
    "slurmdparameters": "the local hosts use it to be instances of another size",
    "mpi": "MPI between the local hosts is Open MPI's, with PMIx",
}
_PLUGIN = re.compile(r"[a-z_]+/[a-z0-9_]+")
_PLUGIN_FILES = "/usr/lib/*/slurm*/{name}.so"
_PROBE = """\
ClusterName=probe
SlurmctldHost=localhost
NodeName=node CPUs=1
PartitionName=probe Nodes=node {partition}
{cluster}
"""


@dataclass(frozen=True)
class Parameters:
    """The site's own parameters of slurm.conf: of the cluster, and of each queue's partition line."""

    cluster: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


NONE = Parameters()


@dataclass(frozen=True)
class PowerSaving:
    """The times of Slurm's power saving in seconds, here shorter than ParallelCluster's (named behind each).

    suspend_s: a dynamic node that is idle for so long ends (ScaledownIdletime, in minutes); resume_timeout_s: one that
    is not up after so long is given up (2100); suspend_timeout_s: one that ends can start again after so long (120);
    min_interval_s, interval_s: between two looks at what there is to do, at least (30) and at most (Slurm's 10).
    """

    suspend_s: int = 10
    resume_timeout_s: int = 300
    suspend_timeout_s: int = 3
    min_interval_s: int = 1
    interval_s: int = 2


POWER = PowerSaving()


def choose(wanted: Parameters) -> tuple[Parameters, list[str]]:
    """Those that this machine's Slurm can be given, and a line for each other one: which, and why not.

    HostsError: Slurm knows a parameter and refuses its value; it would on AWS as well.
    """
    left_out: list[str] = []
    cluster = _chosen(wanted.cluster, "slurm.conf", lambda line: _PROBE.format(cluster=line, partition=""), left_out)
    queues = {
        queue: _chosen(values, f"partition {queue}", lambda line: _PROBE.format(cluster="", partition=line), left_out)
        for queue, values in wanted.queues.items()
    }
    return Parameters(cluster, queues), left_out


def _chosen(wanted: Mapping[str, str], where: str, probe: Callable[[str], str], left_out: list[str]) -> dict[str, str]:
    kept = {}
    for key, value in wanted.items():
        reason = next(_reasons(key, value, probe(f"{key}={value}"), where), "")
        if reason:
            left_out.append(f"{where}: {key}={value} is not tried: {reason}")
        else:
            kept[key] = value
    return kept


def _reasons(key: str, value: str, probe: str, where: str) -> Iterator[str]:
    yield from (why for start, why in _OURS.items() if key.lower().startswith(start))
    for plugin in _PLUGIN.findall(value) if _PLUGIN.match(value) else ():
        if not list(Path("/").glob(_PLUGIN_FILES.format(name=plugin.replace("/", "_")).lstrip("/"))):
            yield f"this machine's Slurm has no plugin {plugin}"
    said = _parse(probe)
    if "unrecognized key" in said:
        yield "this machine's Slurm does not know it"
    elif said:
        raise HostsError(f"{where}: {key}={value}: Slurm refuses it: {said.splitlines()[0]}")


def _parse(text: str) -> str:
    """What Slurm's own parser has against a slurm.conf; empty when it takes it."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        # This command reads slurm.conf and contacts no daemon.
        done = subprocess.run(
            ["scontrol", "show", "hostnames", "node"],
            env={"PATH": "/usr/bin:/bin", "SLURM_CONF": file.name},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    return "" if done.returncode == 0 else done.stderr.replace("scontrol: ", "")


def write_tree(
    target: Path,
    cluster: str,
    head: HostSpec,
    computes: Sequence[HostSpec],
    site: Parameters = NONE,
    power: PowerSaving = POWER,
) -> None:
    """Write /opt/slurm (bin, sbin, etc) into `target`, for these hosts and with the site's parameters.

    Power saving is set up where one of the hosts is dynamic; it spares the static ones.
    """
    _links(target / "bin", _USER_COMMANDS, "/usr/bin")
    _links(target / "sbin", _DAEMONS, "/usr/sbin")
    etc = target / "etc"
    queues = list(dict.fromkeys(host.queue for host in computes))
    has_dynamic = any(host.dynamic for host in computes)
    write(etc / "slurm.conf", _main(cluster, site.cluster, power if has_dynamic else None).encode())
    write(etc / "mpi.conf", _MPI.encode())
    for name in _JOB_SCRIPTS:
        write(etc / "scripts" / name, b"#!/bin/bash\nexit 0\n", 0o755)
    part = _cluster_part(head, queues, site.cluster) + (_power_part(computes, power) if has_dynamic else "")
    write(etc / "slurm_parallelcluster.conf", part.encode())
    gres = "".join(f"include pcluster/slurm_parallelcluster_{queue}_gres.conf\n" for queue in queues)
    write(etc / "gres.conf", b"include slurm_parallelcluster_gres.conf\n")
    write(etc / "slurm_parallelcluster_gres.conf", gres.encode())
    for position, queue in enumerate(queues):
        hosts = [host for host in computes if host.queue == queue]
        part = _partition(queue, hosts, site.queues.get(queue, {}), default=position == 0)
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


def _main(cluster: str, site: Mapping[str, str], power: PowerSaving | None) -> str:
    """Without the lines that the site's own replace: each Slurm command would warn of the repetition."""
    replaced = {key.lower() for key in site}
    text = _POWER.format(power=power, programs=POWER_PROGRAM_DIR) if power else ""
    lines = (text + _MAIN.format(cluster=cluster, scripts=_SCRIPTS)).splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("=")[0].lower() not in replaced)


def _cluster_part(head: HostSpec, queues: Sequence[str], site: Mapping[str, str]) -> str:
    own = "".join(f"{key}={value}\n" for key, value in site.items())
    includes = "".join(f"include pcluster/slurm_parallelcluster_{queue}_partition.conf\n" for queue in queues)
    return f"SlurmctldHost={head.name}({head.ip})\n{own}{includes}"


def _power_part(computes: Sequence[HostSpec], power: PowerSaving) -> str:
    static = ",".join(host.name for host in computes if not host.dynamic)
    spared = f"SuspendExcNodes={static}\n" if static else ""
    return f"SuspendTime={power.suspend_s}\nResumeTimeout={power.resume_timeout_s}\n{spared}"


def _partition(queue: str, hosts: Sequence[HostSpec], site: Mapping[str, str], *, default: bool) -> str:
    names = ",".join(host.name for host in hosts)
    lines = [_node_line(host) for host in hosts]
    lines.append(f"NodeSet={queue}_nodes Nodes={names}")
    given = {key.lower() for key in site}
    own = {"MaxTime": "INFINITE", "State": "UP", "Default": "YES" if default else "NO"}
    values = {**{key: value for key, value in own.items() if key.lower() not in given}, **site}
    parameters = " ".join(f"{key}={value}" for key, value in values.items())
    lines.append(f"PartitionName={queue} Nodes={queue}_nodes {parameters}")
    return "\n".join(lines) + "\n"


def _node_line(host: HostSpec) -> str:
    kind = "dynamic" if host.dynamic else "static"
    features = ",".join((kind, host.instance_type, host.compute_resource or "cpu", *host.features))
    memory_mib = int(host.memory_mib * _SCHEDULABLE_MEMORY)
    # Without an address, as with ParallelCluster: the name is looked up, and a replaced node has another address.
    line = f"NodeName={host.name} CPUs={host.vcpus} RealMemory={memory_mib} Feature={features}"
    # Jobs take static nodes first, as with ParallelCluster's default priorities.
    state = "Weight=1000 State=CLOUD" if host.dynamic else "Weight=1 State=UNKNOWN"
    return f"{line} {state}" + (f" Gres=gpu:{host.gpu_kind}:{host.gpus}" if host.gpus else "")


def _gres_line(host: HostSpec) -> str:
    if not host.gpus:
        return ""
    devices = "/dev/nvidia0" if host.gpus == 1 else f"/dev/nvidia[0-{host.gpus - 1}]"
    return f"NodeName={host.name} Name=gpu Type={host.gpu_kind} File={devices}\n"
