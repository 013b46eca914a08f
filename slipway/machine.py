"""Whether this machine can rehearse: each missing part is one line with its repair."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from slipway.places import FILES

ENGINE_PYTHON = FILES / ".venv-rehearsal/bin/python"
ENVIRONMENTS = (
    (ENGINE_PYTHON, "the rehearsal's environment"),
    (FILES / ".venv-pcluster/bin/pcluster", "ParallelCluster's environment"),
    (FILES / "node_modules/.bin/cdk", "the CDK CLI"),
)
HOST_TOOLS = FILES / ".rehearsal-tools"
COMMANDS = (
    "unshare",
    "nsenter",
    "systemd-nspawn",
    "ip",
    "tc",
    "mount",
    "slurmctld",
    "slurmd",
    "srun",
    "munged",
    "mpirun",
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED_MEMORY_MB = 4000
WITHOUT_HOSTS = "or add --cloud-only"
PRIVILEGED = f"Hint: start the container with --privileged, {WITHOUT_HOSTS}"

# Bits of Linux capabilities (linux/capability.h), and what a rehearsal uses each for.
CAPABILITIES = {
    12: ("CAP_NET_ADMIN", "the hosts' network"),
    18: ("CAP_SYS_CHROOT", "the hosts' file systems"),
    21: ("CAP_SYS_ADMIN", "namespaces and mounts"),
    27: ("CAP_MKNOD", "the hosts' devices"),
}
NAMESPACES = (
    *("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"),
    *("--propagation", "private"),
)
PROBE = "mount -t tmpfs slipway-probe /run && ip link set lo up && mkdir /run/netns && ip netns add probe"
PROBE_TIMEOUT_S = 20


def missing_parts(*, cloud_only: bool) -> list[str]:
    """Return what this machine lacks; an empty list when the rehearsal can start."""
    setup = "make setup-cloud" if cloud_only else "make setup-rehearsal"
    lines = [f"{what} is missing: {path}. Hint: {setup}" for path, what in ENVIRONMENTS if not path.exists()]
    if cloud_only:
        return lines
    commands = [name for name in COMMANDS if shutil.which(name, path=search_path()) is None]
    if os.geteuid() != 0:
        lines.append(f"local hosts need root (namespaces, mounts). Hint: sudo make rehearse, {WITHOUT_HOSTS}")
    elif not commands:
        lines += missing_rights()
    if commands:
        lines.append(
            f"commands are missing: {', '.join(commands)}. Hint: make setup-rehearsal as root, {WITHOUT_HOSTS}"
        )
    if not HOST_TOOLS.is_dir():
        lines.append(
            f"the tools of the local hosts are missing: {HOST_TOOLS}. Hint: make setup-rehearsal, {WITHOUT_HOSTS}"
        )
    available = _available_memory_mb()
    if available is not None and available < NEEDED_MEMORY_MB:
        lines.append(
            f"memory: {available} MB free, local hosts need {NEEDED_MEMORY_MB}. Hint: free some, {WITHOUT_HOSTS}"
        )
    return lines


def missing_rights() -> list[str]:
    """Return what this root may not do, as in a container or a user namespace: capabilities first, then a trial."""
    if Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]:
        return [f"local hosts need root of the machine, and this is root of a user namespace only. {PRIVILEGED}"]
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = int(status.split("CapEff:", 1)[1].split()[0], 16)
    lacking = [f"{name} ({use})" for bit, (name, use) in CAPABILITIES.items() if not effective >> bit & 1]
    if lacking:
        return [f"this root lacks {', '.join(lacking)}, which local hosts need. {PRIVILEGED}"]
    try:
        trial = subprocess.run(
            [*NAMESPACES, "sh", "-c", PROBE],
            env={"PATH": search_path()},
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"namespaces cannot be made here: no answer in {PROBE_TIMEOUT_S} s. {PRIVILEGED}"]
    if trial.returncode != 0:
        reason = trial.stderr.strip() or f"exit {trial.returncode}"
        return [f"namespaces cannot be made here: {' '.join(reason.split())}. {PRIVILEGED}"]
    return []


def search_path() -> str:
    """Return the user's PATH with the folders of administration commands, which a user's PATH may lack."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"


def _available_memory_mb() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None)
