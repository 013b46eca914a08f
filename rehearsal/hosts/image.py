"""A host's root: this machine's `/` as the lower layer, and above it what ParallelCluster would have left on a node.

Everything of the user is hidden by opaque directories: homes, keys, own software, enabled services, logs. What is seen
of this machine is its packages (/usr, /lib, /etc).
"""

from __future__ import annotations

import os
import pwd
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rehearsal.host_spec import HostSpec
from rehearsal.standins import hardware

CLUSTER_USER = "ubuntu"
CLUSTER_UID = 1000
TARGET = "slipway-host.target"
READY_MARK = "run/slipway-host-ready"
PROFILE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
AWS_TOOL_DIR = "/opt/rehearsal/aws"  # the same in standins/aws
POWER_SOCKET = "/opt/rehearsal/power/engine.sock"
POWER_PROGRAMS = ("slurm_resume", "slurm_suspend")
POWER_PROGRAM_DIR = "/opt/parallelcluster/scripts/slurm"
CLUSTERMGTD_CONF = "/etc/parallelcluster/slurm_plugin/parallelcluster_clustermgtd.conf"
FLEET_STATUS = "/opt/parallelcluster/shared/computefleet-status.json"
FLEET_STATUS_PROGRAM = "/usr/local/bin/get-compute-fleet-status.sh"
IMAGE_PLACES = ("opt/amazon", "usr/local/cuda")  # stand-ins of the image's EFA software and CUDA toolkit
NCCL_TESTS_DIR = "/opt/nccl-tests/build"

# Directories of the user's machine that a host must not see: path -> mode.
HIDDEN = {
    "root": 0o700,
    "home": 0o755,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
    "srv": 0o755,
    "mnt": 0o755,
    "media": 0o755,
    "opt": 0o755,
    "usr/local": 0o755,
    "var/log": 0o755,
    "var/spool": 0o755,
    "var/mail": 0o755,
    "var/lib/prometheus": 0o755,
    "etc/systemd/system": 0o755,
    "etc/ssh": 0o755,
    "etc/munge": 0o700,
    "var/lib/munge": 0o711,
    "etc/prometheus": 0o755,
}
_EMPTY_FILES = ("etc/fstab", "etc/crypttab", "etc/resolv.conf")
# Debian's own Prometheus is only where the software mirror is made from: a node of ParallelCluster has none.
_DROPPED_USERS = frozenset({"prometheus"})
# The second part: this machine may be one that Slipway has set up.
_ABSENT = (
    "usr/lib/systemd/system/prometheus.service",
    "usr/lib/systemd/system/prometheus-node-exporter.service",
    "usr/bin/prometheus",
    "usr/bin/promtool",
    "usr/bin/prometheus-node-exporter",
    "etc/slipway",
    "var/lib/slipway",
    "var/cache/slipway",
)
_MPI_PARAMETERS = """\
# Of the rehearsal's hosts: many ranks share few CPUs, and only eth0 leads to the other hosts.
mpi_yield_when_idle = 1
pml = ob1
btl = tcp,vader,self
btl_tcp_if_include = eth0
hwloc_base_binding_policy = none
# A ring: what crosses each host's link is what NCCL's ring sends, so the figure can reach the link's rate.
coll_tuned_use_dynamic_rules = 1
coll_tuned_allreduce_algorithm = 4
coll_tuned_alltoall_algorithm = 2
btl_base_warn_component_unused = 0
mtl = ^ofi
osc = ^ucx,pt2pt
"""
_UNITS = {
    TARGET: """\
[Unit]
Description=A local host of the rehearsal
Requires=basic.target
Wants=slipway-host-ready.service rehearsal-aws.socket
After=basic.target slipway-host-ready.service
AllowIsolate=yes
""",
    "slipway-host-ready.service": f"""\
[Unit]
Description=Tell the rehearsal that this host is up
After=basic.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/touch /{READY_MARK}
""",
    "rehearsal-aws.socket": """\
[Unit]
Description=Where root's calls of the AWS CLI arrive
[Socket]
ListenStream=/run/rehearsal-aws.sock
SocketMode=0600
""",
    "rehearsal-aws.service": """\
[Unit]
Description=The AWS CLI, loaded once
[Service]
ExecStart=/usr/local/bin/aws --rehearsal-serve
""",
    "slurmctld.service": """\
[Unit]
Description=Slurm controller daemon
After=munge.service
Requires=munge.service
ConditionPathExists=/opt/slurm/etc/slurm.conf
[Service]
Type=simple
ExecStart=/opt/slurm/sbin/slurmctld -D
ExecReload=/bin/kill -HUP $MAINPID
LimitNOFILE=65536
[Install]
WantedBy=multi-user.target
""",
    "slurmd.service": """\
[Unit]
Description=Slurm node daemon
After=munge.service
Requires=munge.service
ConditionPathExists=/opt/slurm/etc/slurm.conf
[Service]
Type=simple
EnvironmentFile=-/etc/sysconfig/slurmd
ExecStart=/opt/slurm/sbin/slurmd -D $SLURMD_OPTIONS
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
LimitNOFILE=131072
LimitMEMLOCK=infinity
LimitSTACK=infinity
Delegate=yes
[Install]
WantedBy=multi-user.target
""",
}
# A local host's uptime is this machine's; a node that Slurm powered up must have booted since, or it stays powering up.
_SLURMD_OPTIONS = "SLURMD_OPTIONS=-b\n"


@dataclass(frozen=True)
class ClusterFacts:
    """What is the same on every host of one fleet. endpoint_url: where the embedded AWS answers the hosts.

    has_metadata: credentials come from the metadata service; without it every host has the rehearsal's own key.
    """

    cluster: str
    region: str
    endpoint_url: str
    munge_key: bytes
    has_metadata: bool = False


def build_upper(upper: Path, spec: HostSpec, head: HostSpec, facts: ClusterFacts, standins: Path) -> None:
    """Write the upper layer of one host's root (before it is mounted)."""
    _hide(upper)
    for name in _EMPTY_FILES:
        write(upper / name, b"")
    for name in _ABSENT:
        _absent(upper / name)
    write(upper / "etc/hostname", f"{spec.name}\n".encode())
    write(upper / "etc/machine-id", f"{secrets.token_hex(16)}\n".encode(), 0o444)
    write(upper / "etc/profile.d/slurm.sh", b"export PATH=$PATH:/opt/slurm/bin:/opt/slurm/sbin\n", 0o644)
    write(upper / "etc/openmpi/openmpi-mca-params.conf", _MPI_PARAMETERS.encode())
    write(upper / "etc/parallelcluster/cfnconfig", _cfnconfig(spec, head, facts).encode(), 0o644)
    write(upper / "etc/systemd/journald.conf.d/rehearsal.conf", b"[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n")
    write(upper / "etc/systemd/system.conf.d/rehearsal.conf", b"[Manager]\nDefaultTimeoutStopSec=5s\n")
    _mask_generators(upper)
    for name, text in _UNITS.items():
        write(upper / "etc/systemd/system" / name, text.encode())
    if spec.dynamic:
        write(upper / "etc/sysconfig/slurmd", _SLURMD_OPTIONS.encode())
    _accounts(upper)
    _slurm_places(upper, facts)
    _tools(upper, spec, facts, standins)


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file of an upper layer; the directories above it are root's, 0755."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def _hide(upper: Path) -> None:
    for name, mode in {**HIDDEN, **_other_homes(pwd.getpwall())}.items():
        directory = upper / name
        directory.mkdir(parents=True, exist_ok=True)
        os.setxattr(directory, "trusted.overlay.opaque", b"y")
        directory.chmod(mode)
    for name in ("bin", "sbin", "lib", "etc", "share", "include"):
        (upper / "usr/local" / name).mkdir()
    (upper / "etc/systemd/system/multi-user.target.wants").mkdir()


def _mask_generators(upper: Path) -> None:
    """Mask systemd's generators, all of which run at each reload of a unit. Only /scratch comes from one: fstab's."""
    masks = upper / "etc/systemd/system-generators"
    masks.mkdir(parents=True)
    for generator in Path("/usr/lib/systemd/system-generators").glob("*"):
        if generator.name != "systemd-fstab-generator":
            (masks / generator.name).symlink_to("/dev/null")


def _other_homes(users: Iterable[pwd.struct_passwd]) -> dict[str, int]:
    """Homes of people outside /home and /root."""
    homes = {}
    for user in users:
        home = Path(user.pw_dir)
        person = user.pw_uid >= CLUSTER_UID and not user.pw_shell.endswith(("nologin", "false"))
        hidden = any(home.is_relative_to(f"/{name}") for name in HIDDEN)
        if person and home.is_dir() and home != Path("/") and not hidden:
            homes[str(home.relative_to("/"))] = 0o755
    return homes


def _absent(path: Path) -> None:
    """A whiteout: the file or directory of the lower layer is not there."""
    if Path("/", *path.parts[-_depth(path) :]).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o600 | 0o020000, os.makedev(0, 0))


def _depth(path: Path) -> int:
    """How many of the path's last parts name the file below the root."""
    return next(len(Path(name).parts) for name in _ABSENT if path.match(name))


def _accounts(upper: Path) -> None:
    """System accounts of this machine without passwords, and the cluster's user; no people of this machine."""
    users = [line for line in _lines("/etc/passwd") if _system(line) and line.split(":")[0] not in _DROPPED_USERS]
    groups = [_without_members(line) for line in _lines("/etc/group") if _system(line)]
    names = [line.split(":")[0] for line in users]
    users.append(f"{CLUSTER_USER}:x:{CLUSTER_UID}:{CLUSTER_UID}::/home/{CLUSTER_USER}:/bin/bash")
    groups = [line for line in groups if line.split(":")[0] not in (CLUSTER_USER, *_DROPPED_USERS)]
    groups.append(f"{CLUSTER_USER}:x:{CLUSTER_UID}:")
    write(upper / "etc/sudoers.d/90-cloud-init-users", f"{CLUSTER_USER} ALL=(ALL) NOPASSWD:ALL\n".encode(), 0o440)
    write(upper / "etc/passwd", ("\n".join(users) + "\n").encode())
    write(upper / "etc/group", ("\n".join(groups) + "\n").encode())
    write(upper / "etc/shadow", "".join(f"{name}:*:19700::::::\n" for name in [*names, CLUSTER_USER]).encode(), 0o640)
    write(upper / "etc/gshadow", "".join(f"{line.split(':')[0]}:!::\n" for line in groups).encode(), 0o640)


def _lines(path: str) -> list[str]:
    return [line for line in Path(path).read_text().splitlines() if line.count(":") >= 3]


def _system(line: str) -> bool:
    """True for an account of the system or of a package (Debian's fixed ones are above 60000)."""
    number = int(line.split(":")[2])
    return number < CLUSTER_UID or number >= 60000


def _without_members(line: str) -> str:
    return line.rsplit(":", 1)[0] + ":"


def _cfnconfig(spec: HostSpec, head: HostSpec, facts: ClusterFacts) -> str:
    values = {
        "stack_name": facts.cluster,
        "cfn_cluster_user": CLUSTER_USER,
        "cfn_region": facts.region,
        "cfn_node_type": "HeadNode" if spec.role == "head" else "ComputeFleet",
        "cfn_scheduler": "slurm",
        "cfn_instance_type": spec.instance_type,
        "cfn_head_node": head.name,
        "cfn_head_node_private_ip": head.ip,
        "scheduler_queue_name": spec.queue,
        "scheduler_compute_resource_name": spec.compute_resource,
        **spec.cfnconfig,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items() if value)


def _slurm_places(upper: Path, facts: ClusterFacts) -> None:
    munge, slurm = pwd.getpwnam("munge"), pwd.getpwnam("slurm")
    write(upper / "etc/munge/munge.key", facts.munge_key, 0o400)
    owned = {
        "etc/munge": munge,
        "etc/munge/munge.key": munge,
        "var/lib/munge": munge,
        "var/log/munge": munge,
        "var/spool/slurm.state": slurm,
    }
    for name, user in owned.items():
        path = upper / name
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(0o700)
        os.chown(path, user.pw_uid, user.pw_gid)
    (upper / "var/spool/slurmd").mkdir(parents=True)
    for log in ("slurmctld.log", "slurmd.log"):
        write(upper / "var/log" / log, b"", 0o640)
        os.chown(upper / "var/log" / log, slurm.pw_uid, slurm.pw_gid)
    (upper / "etc/slurm").symlink_to("/opt/slurm/etc")


def _tools(upper: Path, spec: HostSpec, facts: ClusterFacts, standins: Path) -> None:
    """The AWS CLI with the embedded AWS as its endpoint, and the stand-ins of the image's own programs."""
    write(upper / "usr/local/bin/aws", (standins / "aws").read_bytes(), 0o755)
    config = f"[default]\nregion = {facts.region}\nendpoint_url = {facts.endpoint_url}\ncli_pager =\n"
    write(upper / "root/.aws/config", config.encode(), 0o600)
    (upper / "root/.aws").chmod(0o700)
    if not facts.has_metadata:
        keys = b"[default]\naws_access_key_id = rehearsal\naws_secret_access_key = rehearsal\n"
        write(upper / "root/.aws/credentials", keys, 0o600)
        of_services = b"[Manager]\nDefaultEnvironment=AWS_ACCESS_KEY_ID=rehearsal AWS_SECRET_ACCESS_KEY=rehearsal\n"
        write(upper / "etc/systemd/system.conf.d/rehearsal-keys.conf", of_services)
    write(upper / "usr/local/bin/enroot", (standins / "enroot").read_bytes(), 0o755)
    if spec.role == "head":
        _power_programs(upper, standins)
        _clustermgtd(upper, spec, facts)
    for name, (data, mode) in hardware.files(spec).items():
        write(upper / name, data, mode)
    if spec.gpus:
        write(upper / "usr/local/bin/dcgm-exporter", (standins / "dcgm-exporter").read_bytes(), 0o755)


def _power_programs(upper: Path, standins: Path) -> None:
    """What Slurm runs to start and end nodes, where ParallelCluster has it, and its logs."""
    slurm = pwd.getpwnam("slurm")
    for name in POWER_PROGRAMS:
        write(upper / POWER_PROGRAM_DIR.lstrip("/") / name, (standins / "slurm-power").read_bytes(), 0o755)
        log = upper / f"var/log/parallelcluster/{name}.log"
        write(log, b"")
        os.chown(log, slurm.pw_uid, slurm.pw_gid)


def _clustermgtd(upper: Path, head: HostSpec, facts: ClusterFacts) -> None:
    """The daemon's configuration and the program that prints the fleet's status, as the cookbook leaves them.

    Compared with parallelcluster_clustermgtd.conf.erb and get-compute-fleet-status.erb (cookbook, 2024-10-21). The
    status is a file here, which the engine writes; on AWS it is an item of a DynamoDB table.
    """
    values = {
        "cluster_name": facts.cluster,
        "region": facts.region,
        "heartbeat_file_path": "/opt/slurm/etc/pcluster/.slurm_plugin/clustermgtd_heartbeat",
        "head_node_private_ip": head.ip,
        "node_replacement_timeout": "1800",
        "insufficient_capacity_timeout": "600",
    }
    text = "[clustermgtd]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    write(upper / CLUSTERMGTD_CONF.lstrip("/"), text.encode())
    status = b'{"lastStatusUpdatedTime": "2026-01-01T00:00:00.000Z", "status": "RUNNING"}\n'
    write(upper / FLEET_STATUS.lstrip("/"), status)
    write(upper / FLEET_STATUS_PROGRAM.lstrip("/"), f"#!/bin/sh\nexec cat {FLEET_STATUS}\n".encode(), 0o755)
