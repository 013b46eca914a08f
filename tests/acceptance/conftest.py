"""What the acceptance tests share: scenarios, and a real Slurm on the loopback interface."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
NODES = 4
_DAEMONS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "srun")


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
class LoopbackSlurm:
    """Slurm's daemons, each node a slurmd of its own on 127.0.0.1; stopped by their pids."""

    root: Path
    port: int
    env: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        for name in ("etc", "log", "run", "state", "munge", *(f"spool/gpu-{i + 1}" for i in range(NODES))):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for i in range(NODES):
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
        subprocess.run(["slurmctld", "-c", "-f", conf], check=True, timeout=30)
        for i in range(NODES):
            subprocess.run(["slurmd", "-N", f"gpu-{i + 1}", "-f", conf], check=True, timeout=30, env=self.env)
        self.wait_idle()

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

    def wait_idle(self, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            states = self.call("sinfo", "-h", "-N", "-p", "train", "-o", "%T").split()
            if states == ["idle"] * NODES:
                return
            time.sleep(0.2)
        raise AssertionError(f"the nodes are not idle: {self.call('sinfo', '-N', '-l')}")

    def _conf(self) -> str:
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=gpu-{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 2 + i} CPUs=8"
            " RealMemory=8000 State=UNKNOWN"
            for i in range(NODES)
        )
        return f"""ClusterName=loopback
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
PartitionName=train Nodes=gpu-[1-{NODES}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free now, away from the range for outgoing connections."""
    for first in range(20000 + os.getpid() % 5000, 32000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return first
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def slurm() -> Iterator[LoopbackSlurm]:
    """A running Slurm of 4 nodes; needs root and Debian's packages slurmctld, slurmd, slurm-client and munge."""
    missing = [name for name in _DAEMONS if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and Slurm's daemons (missing: {', '.join(missing) or 'root'})")
    root = Path(tempfile.mkdtemp(prefix="acceptance-slurm-", dir="/tmp"))
    root.chmod(0o755)
    cluster = LoopbackSlurm(root, _free_ports(NODES + 2))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


@dataclass
class Finished:
    """A finished `acceptance` command and the report it left."""

    code: int
    out: str
    err: str
    report: dict[str, Any]
    directory: Path


@pytest.fixture
def accept(slurm: LoopbackSlurm, tmp_path: Path) -> Callable[..., Finished]:
    """Run `acceptance run` on a scenario against the loopback Slurm."""

    def run(scenario: dict[str, Any], *options: str, env: dict[str, str] | None = None, wait: bool = True) -> Finished:
        if wait:
            slurm.wait_idle()
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps(scenario))
        argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(path), "--output", str(tmp_path / "runs")]
        done = subprocess.run(
            [*argv, *options],
            cwd=REPOSITORY,
            env={**slurm.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        directory = max((tmp_path / "runs").iterdir())
        report = json.loads((directory / "report.json").read_text())
        return Finished(done.returncode, done.stdout, done.stderr, report, directory)

    return run
