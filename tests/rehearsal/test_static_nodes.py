"""Static nodes on a real Slurm: the nodes' own health program drains, and the rehearsal's clustermgtd replaces.

The hosts are slurmd processes on the loopback interface, and what each node's hardware says comes from a folder.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nodes.health import ask
from rehearsal.engine.clustermgtd import PROTECTED_FAILURES, Clustermgtd
from rehearsal.engine.configuration import Node
from rehearsal.engine.instances import Instance
from rehearsal.engine.progress import Progress
from rehearsal.engine.static import StaticNodes
from rehearsal.hosts import HostSpec, NodeFailed
from tests.loopback_slurm import LoopbackSlurm, loopback_slurm
from tests.nodes.health_node import FakeNode

PATIENCE_S = 120.0
NAMES = [f"gpu-{number}" for number in (1, 2, 3, 4)]
NODE_ENV = "HEALTH_DRAIN=true\nFSX_MOUNT={fsx}\n"


class Head:
    """The head node: `scontrol` and `sinfo` are real, files are in a folder."""

    def __init__(self, slurm: LoopbackSlurm, root: Path) -> None:
        self.slurm, self.root = slurm, root

    def exec(self, argv: list[str], timeout_s: float, stdin: bytes = b"") -> Any:
        argv = [f"{self.root}{word}" if word.startswith(("/var/", "/etc/", "/opt/")) else word for word in argv]
        done = subprocess.run(
            argv, env=self.slurm.env, input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
        result = {"ok": done.returncode == 0, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
        return type("Completed", (), result)()


class Site:
    """Four nodes of a queue, their slurmd's, and the daemon that replaces them."""

    def __init__(self, slurm: LoopbackSlurm, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm, self.root, self.monkeypatch = slurm, root, monkeypatch
        self.head = Head(slurm, root / "head")
        self.hosts: dict[str, Any] = {}
        self.fsx = root / "fsx"
        self.fsx.mkdir()
        self.launched: list[str] = []
        self.fails_set_up = False
        nodes = [Node(name, "compute", "p5.48xlarge", "subnet-1", {}, "train", "gpu") for name in NAMES]
        progress = Progress(Console(file=io.StringIO()), time.monotonic())
        self.daemon = Clustermgtd(self, progress)  # type: ignore[arg-type]
        running = [(node, Instance(f"i-{node.name}", "127.0.0.1")) for node in nodes]
        self.static = StaticNodes(self, running, self, progress, self.daemon)  # type: ignore[arg-type]
        self.nodes = {name: self._node(name) for name in NAMES}

    def _node(self, name: str) -> FakeNode:
        folder = self.root / f"{name}-{len(self.launched)}"
        folder.mkdir()
        node = FakeNode(folder, self.monkeypatch)
        for program in ("sinfo", "scontrol"):
            node.say(program, "")  # the real ones
        node.write("nodename", f"{name}\n")
        node.write("node.env", NODE_ENV.format(fsx=self.fsx))
        node.write("mounts", f"lustre {self.fsx} lustre rw,flock 0 0\n/dev/vg /scratch ext4 rw 0 0\n")
        return node

    # ---- what the daemon asks of the fleet and of the cluster ----

    def end(self, name: str) -> None:
        if (self.slurm.root / f"run/slurmd-{name}.pid").exists():  # else its set-up failed, and slurmd never ran
            self.slurm.kill(f"slurmd-{name}", signal.SIGKILL)

    def keep_log(self, host: Any) -> None:
        pass

    def terminate(self, instance: Instance) -> None:
        pass

    def launch(self, node: Node) -> Instance:
        self.launched.append(node.name)
        return Instance(f"i-{len(self.launched)}", "127.0.0.1")

    def boot(self, spec: HostSpec) -> list[Any]:
        self.nodes[spec.name] = self._node(spec.name)  # another machine
        return [spec]

    def set_up(self, host: Any, node: Node) -> None:
        if self.fails_set_up:
            raise NodeFailed(node.name, "s3://b/k", 1, "compute/10-fsx", [], "/fsx is not mounted")

    def start_slurm(self, host: Any) -> None:
        self.slurm.start_node(int(host.name.rpartition("-")[2]))

    # ---- time passes ----

    def health_runs(self, times: int = 1) -> None:
        """Run every node's health timer, then one loop of clustermgtd, as often as said."""
        for _ in range(times):
            for node in list(self.nodes.values()):
                self.monkeypatch.setattr(ask, "PATH", f"{node.bin}:/usr/bin:/bin")
                node.run()
            self.static.look()
            for thread in list(self.static._replacing.values()):
                thread.join(PATIENCE_S)

    def states(self) -> dict[str, str]:
        lines = self.slurm.call("sinfo", "-h", "-N", "-o", "%N|%T").splitlines()
        return dict(line.split("|") for line in lines)

    def until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, (self.states(), self.slurm.call("sinfo", "-R"))
            time.sleep(0.1)

    @property
    def log(self) -> str:
        return (self.root / "head/var/log/parallelcluster/clustermgtd").read_text()


@pytest.fixture(scope="module")
def slurm() -> Iterator[LoopbackSlurm]:
    with loopback_slurm(len(NAMES), "ReturnToService=1") as cluster:
        yield cluster


@pytest.fixture
def site(slurm: LoopbackSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setitem(os.environ, "SLURM_CONF", slurm.env["SLURM_CONF"])
    one = Site(slurm, tmp_path, monkeypatch)
    yield one
    one.static.stop()
    slurm.call("scontrol", "update", "partitionname=train", "state=up")
    for name in NAMES:
        slurm.call("scontrol", "update", f"nodename={name}", "comment=")
        if one.states()[name] not in ("idle", "idle*"):
            slurm.call("scontrol", "update", f"nodename={name}", "state=resume")
    slurm.wait_idle()


def test_a_file_system_that_is_away_replaces_no_node(site: Site) -> None:
    for node in site.nodes.values():
        node.write("mounts", "/dev/vg /scratch ext4 rw 0 0\n")
    site.health_runs(8)
    assert site.static.replaced == []
    assert set(site.states().values()) == {"idle"}


def break_gpu(node: FakeNode) -> None:
    node.gpus(persistence=True, gpu={"3": {"volatile_uncorrectable": 12}})


def test_a_broken_gpu_replaces_one_node_and_its_evidence_is_there(site: Site) -> None:
    break_gpu(site.nodes["gpu-3"])
    site.health_runs(2)
    assert site.static.replaced == ["gpu-3"]
    site.until(lambda: set(site.states().values()) == {"idle"})
    assert "Found the following unhealthy static nodes: (x1) ['gpu-3(127.0.0.1)']" in site.log
    (file,) = (site.fsx / "logs/slipway/evidence/gpu-3").iterdir()
    assert "gpu 3: 12 uncorrectable ECC errors" in file.read_text()
    assert "slipway-drains=" in site.slurm.call("sinfo", "-h", "-N", "-n", "gpu-3", "--Format=Comment:200")


def test_a_fault_that_all_nodes_seem_to_have_replaces_one_node(site: Site) -> None:
    """A check that misreads a new driver: what ParallelCluster replaced looks just as broken."""

    def misread() -> None:
        for node in site.nodes.values():
            break_gpu(node)

    misread()
    for _ in range(4):
        site.health_runs()
        site.until(lambda: "down" not in "".join(site.states().values()))
        misread()
    assert len(site.static.replaced) == 1


def test_the_notes_outlive_slurmctld(site: Site) -> None:
    break_gpu(site.nodes["gpu-2"])
    site.health_runs()
    site.until(lambda: set(site.states().values()) == {"idle"})
    site.slurm.kill("slurmctld", signal.SIGTERM)
    site.slurm.start_controller()
    site.until(lambda: set(site.states().values()) == {"idle"})
    break_gpu(site.nodes["gpu-4"])
    site.health_runs(2)
    assert site.static.replaced == ["gpu-2"]


def test_with_terminate_drain_nodes_false_a_drained_node_stays(site: Site) -> None:
    conf = site.root / "head/etc/parallelcluster/slurm_plugin/parallelcluster_clustermgtd.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[clustermgtd]\nterminate_drain_nodes = false\n")
    break_gpu(site.nodes["gpu-1"])
    site.health_runs(3)
    assert site.static.replaced == []
    assert site.states()["gpu-1"] == "drained"
    conf.write_text("[clustermgtd]\n")
    site.health_runs()
    assert site.static.replaced == ["gpu-1"]


def test_a_node_whose_set_up_keeps_failing_ends_in_protected_mode(site: Site) -> None:
    site.fails_set_up = True
    (site.root / "head/opt/parallelcluster/shared").mkdir(parents=True)
    site.slurm.call("scontrol", "update", "nodename=gpu-2", "state=drain", "reason=operator")
    for _ in range(PROTECTED_FAILURES + 2):
        site.health_runs()
    assert site.static.replaced == ["gpu-2"] * PROTECTED_FAILURES
    assert site.slurm.call("sinfo", "-h", "-o", "%a").startswith("inact")
    assert '"PROTECTED"' in (site.root / "head/opt/parallelcluster/shared/computefleet-status.json").read_text()
    (failure,) = site.daemon.failures
    assert "/fsx is not mounted" in failure
    site.fails_set_up = False
    site.slurm.call("scontrol", "update", "partitionname=train", "state=up")
    site.health_runs()
    site.until(lambda: set(site.states().values()) == {"idle"})


def test_a_node_with_running_jobs_is_replaced_when_they_have_ended(site: Site) -> None:
    job = subprocess.Popen(["srun", "-Q", "-w", "gpu-1", "sleep", "60"], env=site.slurm.env)
    try:
        site.until(lambda: site.states()["gpu-1"] in ("mixed", "allocated"))
        site.slurm.call("scontrol", "update", "nodename=gpu-1", "state=drain", "reason=operator")
        assert site.static.look() == []
    finally:
        job.terminate()
        job.wait(PATIENCE_S)
    site.until(lambda: site.states()["gpu-1"] == "drained")
    assert site.static.look() == ["gpu-1"]
    site.until(lambda: site.states()["gpu-1"] == "idle")
