"""A real Slurm on the loopback interface, for tests: slurmctld and a slurmd for each node, stopped by their pids."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.ports import free_ports

NODES = 4
_DAEMONS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "srun")


@dataclass
class LoopbackSlurm:
    """Slurm's daemons, each node a slurmd of its own on 127.0.0.1; stopped by their pids."""

    root: Path
    port: int
    env: dict[str, str] = field(default_factory=dict)
    nodes: int = NODES
    more: str = ""  # further lines of slurm.conf; ROOT is replaced by the root
    before: Callable[[LoopbackSlurm], None] | None = None  # called when munge runs, before the other daemons

    def start(self) -> None:
        for name in ("etc", "log", "run", "state", "munge", *(f"spool/gpu-{i + 1}" for i in range(self.nodes))):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for i in range(self.nodes):
            (self.root / f"tmp/gpu-{i + 1}").mkdir(parents=True)
        key = self.root / "munge/munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        conf = self.root / "etc/slurm.conf"
        conf.write_text(self._conf())
        # Slurm 22.05's other way of joining the ranks ends or hangs an MPI job now and then: see docs/decisions.
        (self.root / "etc/mpi.conf").write_text("PMIxCollFence=ring\n")
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        munge = self.root / "munge"
        subprocess.run(
            [
                *("munged", "--force", "--num-threads=1", f"--key-file={key}", f"--socket={munge}/socket"),
                *(f"--pid-file={self.root}/run/munged.pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"),
            ],
            check=True,
            timeout=30,
        )
        if self.before:
            self.before(self)
        self.start_controller("-c")
        for i in range(self.nodes):
            self.start_node(i + 1)
        self.wait_idle()

    def start_controller(self, *options: str) -> None:
        """Start slurmctld; -c makes it forget all that was before."""
        subprocess.run(["slurmctld", *options, "-f", self.env["SLURM_CONF"]], check=True, timeout=30)

    def start_node(self, number: int) -> None:
        command = ["slurmd", "-N", f"gpu-{number}", "-f", self.env["SLURM_CONF"]]
        subprocess.run(command, check=True, timeout=30, env=self.env)

    def kill(self, daemon: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one daemon (slurmctld, slurmd-gpu-1), by the process id it wrote."""
        path = self.root / f"run/{daemon}.pid"
        pid = int(path.read_text())
        os.kill(pid, number)
        until = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < until, f"{daemon} goes on"
            time.sleep(0.05)
        path.unlink(missing_ok=True)

    def stop(self) -> None:
        pids = [int(path.read_text()) for path in (self.root / "run").glob("*.pid") if path.read_text().strip()]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, number)
            until = time.monotonic() + 10
            while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
                time.sleep(0.1)

    def call(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def wait_idle(self, seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            argv = ["sinfo", "-h", "-N", "-p", "train", "-o", "%T"]
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
            states = done.stdout.split()  # none while slurmctld still starts
            if states == ["idle"] * self.nodes:
                return
            time.sleep(0.2)
        raise AssertionError(f"the nodes are not idle: {self.call('sinfo', '-N', '-l')}")

    def _conf(self) -> str:
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=gpu-{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 2 + i} CPUs=8"
            " RealMemory=8000 State=UNKNOWN"
            for i in range(self.nodes)
        )
        text = f"""ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self.port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.root}/munge/socket
CredType=cred/munge
StateSaveLocation={self.root}/state
SlurmdSpoolDir={self.root}/spool/%n
TmpFS={self.root}/tmp/%n
SlurmctldPidFile={self.root}/run/slurmctld.pid
SlurmdPidFile={self.root}/run/slurmd-%n.pid
SlurmctldLogFile={self.root}/log/slurmctld.log
SlurmdLogFile={self.root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=2
MinJobAge=300
{nodes}
PartitionName=train Nodes=gpu-[1-{self.nodes}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
        replaced = {line.partition("=")[0] for line in self.more.splitlines()}
        kept = [line for line in text.splitlines() if line.partition("=")[0] not in replaced]
        return "\n".join([*kept, self.more.replace("ROOT", str(self.root))]) + "\n"


@contextlib.contextmanager
def loopback_slurm(
    nodes: int, more: str = "", before: Callable[[LoopbackSlurm], None] | None = None
) -> Iterator[LoopbackSlurm]:
    """A running Slurm; needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.

    more: further lines of slurm.conf; before: called when munge runs, before the other daemons are started.
    """
    missing = [name for name in _DAEMONS if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and Slurm's daemons (missing: {', '.join(missing) or 'root'})")
    root = Path(tempfile.mkdtemp(prefix="acceptance-slurm-", dir="/tmp"))
    root.chmod(0o755)
    cluster = LoopbackSlurm(root, free_ports(nodes + 2), nodes=nodes, more=more, before=before)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
