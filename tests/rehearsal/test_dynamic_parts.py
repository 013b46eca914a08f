"""The parts behind nodes that come and go, without hosts: who lives how long, what Slurm is told, who asks whom how."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from rehearsal.engine import clustermgtd, dynamic
from rehearsal.engine.configuration import Node, host_spec, judged_nodes, planned_nodes, power_saving
from rehearsal.engine.dynamic import DynamicNodes
from rehearsal.engine.instances import Instance, LaunchFailed
from rehearsal.engine.progress import Progress
from rehearsal.engine.scale import site_values
from rehearsal.hosts import BootFailed, HostSpec, NodeFailed, slurm
from rehearsal.hosts.power import PowerSocket
from slipway import bundle
from slipway.breakage import node_names, parse_breakage
from slipway.errors import UsageError
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "rehearsal/standins/slurm-power"
SETTINGS = Path(__file__).with_name("comes-and-goes.yaml")
PATIENCE_S = 60.0
needs_slurm = pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs the Debian packages of Slurm")
needs_account = pytest.mark.skipif(
    os.geteuid() != 0 or not any(line.startswith("slurm:") for line in Path("/etc/passwd").read_text().splitlines()),
    reason="needs root and Slurm's account",
)


def node(number: int, queue: str = "train") -> Node:
    return Node(f"{queue}-dy-gpu-{number}", "compute", "p5.48xlarge", "subnet-1", {}, queue, "gpu", dynamic=True)


ONE, TWO = node(1), node(2)


class Machine:
    """A host that is alive until it is killed."""

    boot_s = 0.1

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = threading.Event()

    def alive(self) -> bool:
        return not self.dead.is_set()


class Head:
    """Takes `scontrol update`; refuses as often as `deaf` says."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.deaf = 0

    def exec(self, argv: list[str], timeout_s: float, stdin: bytes = b"") -> Any:
        self.deaf -= 1
        if self.deaf < 0 and argv[0] == "scontrol":
            self.told.append(" ".join(argv[2:]))
        return type("Done", (), {"ok": self.deaf < 0, "stderr": "Unable to contact slurm controller"})()


class Machines:
    """What DynamicNodes asks of a fleet. While `slow_boot` is not set, a host that boots does so until it is killed."""

    def __init__(self) -> None:
        self.head = Head()
        self.hosts: dict[str, Machine] = {}
        self.log: list[str] = []
        self.may_boot = threading.Event()
        self.may_boot.set()
        self._booting: dict[str, Machine] = {}

    def boot(self, spec: HostSpec) -> list[Machine]:
        machine = self._booting[spec.name] = Machine(spec.name)
        self.log.append(f"boot {spec.name}")
        while not self.may_boot.wait(0.01):
            if not machine.alive():
                raise BootFailed(spec.name, "systemd-nspawn ended with 255", "")
        self.hosts[spec.name] = machine
        return [machine]

    def start_slurm(self, host: Machine) -> None:
        self.log.append(f"slurmd {host.name}")

    def kill(self, name: str) -> None:
        if name in self._booting:
            self._booting[name].dead.set()

    def end(self, name: str) -> None:
        self.kill(name)
        self.hosts.pop(name, None)
        self.log.append(f"end {name}")


class Account:
    """EC2: counts up; has no capacity where the test says so."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}
        self.made = 0
        self.full = False

    def launch(self, one: Node) -> Instance:
        if self.full:
            raise LaunchFailed("InsufficientInstanceCapacity")
        self.made += 1
        instance = Instance(f"i-{self.made}", f"10.0.0.{self.made}")
        self.running[instance.id] = one.name
        return instance

    def terminate(self, instance: Instance) -> None:
        del self.running[instance.id]


class Cluster:
    """Two dynamic nodes of queue train, one of queue more, at most two at a time."""

    def __init__(self) -> None:
        self.machines, self.account, self.kept = Machines(), Account(), list[str]()
        self.launch, self.terminate = self.account.launch, self.account.terminate
        self.set_up: Callable[[Any, Node], None] = lambda _host, _node: None
        progress = Progress(Console(file=io.StringIO()), time.monotonic())
        self.daemon = clustermgtd.Clustermgtd(self.machines, progress)  # type: ignore[arg-type]
        self.nodes = DynamicNodes(
            self.machines,  # type: ignore[arg-type]
            [ONE, TWO, node(1, "more")],
            self,
            progress,
            self.daemon,
            most=2,
        )

    def keep_log(self, host: Any) -> None:
        self.kept.append(host.name)

    def resume(self, *names: str) -> dict[str, dict[str, str]]:
        return self.nodes.answer("resume", list(names))

    def suspend(self, *names: str) -> dict[str, dict[str, str]]:
        return self.nodes.answer("suspend", list(names))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("WATCH_S", "NO_CAPACITY_PAUSE_S"):
        monkeypatch.setattr(dynamic, name, 0.01)
    one = Cluster()
    yield one
    one.machines.may_boot.set()
    one.nodes.stop()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.005)


# ---- lives ----


def test_a_node_is_set_up_joins_slurm_and_goes_when_asked(cluster: Cluster) -> None:
    assert cluster.resume(ONE.name) == {ONE.name: {"address": "10.0.0.1"}}
    until(lambda: f"slurmd {ONE.name}" in cluster.machines.log)
    assert cluster.suspend(ONE.name) == {ONE.name: {}}
    until(lambda: not cluster.account.running)
    assert cluster.machines.log == [f"boot {ONE.name}", f"slurmd {ONE.name}", f"end {ONE.name}"]
    assert cluster.kept == [ONE.name]
    assert cluster.machines.head.told == [], "Slurm knows: it asked"


def test_a_node_that_still_boots_is_ended_at_once_and_is_no_failure(cluster: Cluster) -> None:
    cluster.machines.may_boot.clear()
    cluster.resume(ONE.name)
    until(lambda: cluster.machines.log)
    cluster.suspend(ONE.name)
    until(lambda: not cluster.account.running)
    assert cluster.machines.log == [f"boot {ONE.name}", f"end {ONE.name}"]
    assert (cluster.daemon.failures, cluster.machines.head.told) == ([], [])


def test_a_node_asked_for_again_waits_until_its_last_host_has_gone(cluster: Cluster) -> None:
    cluster.resume(ONE.name)
    until(lambda: f"slurmd {ONE.name}" in cluster.machines.log)
    assert cluster.resume(ONE.name) == {ONE.name: {"address": "10.0.0.2"}}
    until(lambda: cluster.machines.log.count(f"slurmd {ONE.name}") == 2)
    assert cluster.machines.log[2:4] == [f"end {ONE.name}", f"boot {ONE.name}"]
    assert cluster.account.running == {"i-2": ONE.name}


def test_what_does_not_run_can_be_suspended(cluster: Cluster) -> None:
    assert cluster.suspend(ONE.name, "no-such-node") == {ONE.name: {}, "no-such-node": {}}


def test_a_set_up_that_fails_is_told_once_and_slurm_gets_the_node_back(cluster: Cluster) -> None:
    def fail(_host: Any, one: Node) -> None:
        raise NodeFailed(one.name, "s3://b/k", 1, "compute/30-nccl", [], "a custom action failed")

    cluster.set_up = fail
    for time_ in range(1, clustermgtd.PROTECTED_FAILURES + 1):
        cluster.resume(TWO.name)
        until(lambda time_=time_: len(cluster.machines.head.told) >= 2 * time_)
    until(lambda: len(cluster.machines.head.told) == 2 * clustermgtd.PROTECTED_FAILURES + 1)
    down = [f"nodename={TWO.name} state=down reason={dynamic.REASON}", f"nodename={TWO.name} state=power_down_force"]
    assert cluster.machines.head.told == [*down * clustermgtd.PROTECTED_FAILURES, "partitionname=train state=inactive"]
    (failure,) = cluster.daemon.failures
    assert failure.startswith(f"{TWO.name}: s3://b/k: a custom action failed (exit 1)")
    assert not cluster.account.running
    assert not cluster.machines.hosts


def test_a_file_system_that_is_full_is_a_failure_too(cluster: Cluster) -> None:
    def full(_host: Any, _one: Node) -> None:
        raise OSError(28, "No space left on device")

    cluster.set_up = full
    cluster.resume(ONE.name)
    until(lambda: len(cluster.machines.head.told) == 2)
    assert cluster.daemon.failures == [f"{ONE.name}: [Errno 28] No space left on device"]


def test_a_host_that_dies_is_given_up_and_counts_as_no_failed_set_up(cluster: Cluster) -> None:
    cluster.resume(ONE.name)
    until(lambda: f"slurmd {ONE.name}" in cluster.machines.log)
    cluster.machines.hosts[ONE.name].dead.set()
    until(lambda: len(cluster.machines.head.told) == 2)
    assert cluster.machines.head.told[1] == f"nodename={ONE.name} state=power_down_force"
    assert cluster.daemon.failures == []
    assert cluster.resume(ONE.name)[ONE.name] == {"address": "10.0.0.2"}, "and it can come again"


def test_slurm_is_told_when_it_answers_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustermgtd, "SLURM_PAUSE_S", 0.01)
    cluster.machines.head.deaf = 3
    cluster.resume(ONE.name)
    until(lambda: f"slurmd {ONE.name}" in cluster.machines.log)
    cluster.machines.kill(ONE.name)
    until(lambda: len(cluster.machines.head.told) == 2)


def test_slurm_that_never_answers_is_told_to_the_user(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustermgtd, "SLURM_TRIES_S", 0.0)
    said: list[str] = []
    monkeypatch.setattr(Progress, "say", lambda _self, text, _style="": said.append(text))
    cluster.machines.head.deaf = 2
    cluster.account.full = True
    cluster.resume(ONE.name)
    until(lambda: any("Unable to contact slurm controller" in line for line in said))


# ---- no instance ----


def test_more_nodes_than_may_run_get_no_capacity_and_are_powered_down_later(cluster: Cluster) -> None:
    answers = cluster.resume(ONE.name, TWO.name, "more-dy-gpu-1")
    assert [sorted(answer) for answer in answers.values()] == [["address"], ["address"], ["error"]]
    words = "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"
    assert answers["more-dy-gpu-1"] == {"error": words}
    until(lambda: cluster.machines.head.told == ["nodename=more-dy-gpu-1 state=power_down_force"])


def test_ec2s_own_refusal_is_passed_on(cluster: Cluster) -> None:
    cluster.account.full = True
    assert "InsufficientInstanceCapacity" in cluster.resume(ONE.name)[ONE.name]["error"]
    assert cluster.machines.log == []


def test_an_unknown_node_and_the_end_of_the_rehearsal_give_no_instance(cluster: Cluster) -> None:
    assert cluster.resume("train-st-gpu-1")["train-st-gpu-1"]["error"].endswith("no dynamic node of this cluster")
    cluster.nodes.stop()
    assert cluster.resume(ONE.name)[ONE.name] == {"error": "the rehearsal ends"}
    assert cluster.account.made == 0


def test_the_end_ends_what_runs_and_what_boots(cluster: Cluster) -> None:
    cluster.resume(ONE.name)
    until(lambda: f"slurmd {ONE.name}" in cluster.machines.log)
    cluster.machines.may_boot.clear()
    cluster.resume(TWO.name)
    until(lambda: f"boot {TWO.name}" in cluster.machines.log)
    cluster.nodes.stop()
    assert cluster.account.running == {}
    assert cluster.daemon.failures == []


# ---- which nodes ----


@pytest.mark.parametrize(
    ("counts", "most", "names"),
    [
        ((0, 2), 4, ["q-dy-gpu-1", "q-dy-gpu-2"]),
        ((0, 9), 2, ["q-dy-gpu-1", "q-dy-gpu-2"]),
        ((1, 3), 2, ["q-st-gpu-1", "q-dy-gpu-1"]),
        ((3, 3), 4, ["q-st-gpu-1", "q-st-gpu-2", "q-st-gpu-3"]),
        ((5, 8), 4, ["q-st-gpu-1", "q-st-gpu-2", "q-st-gpu-3", "q-st-gpu-4"]),
    ],
)
def test_static_nodes_come_first_and_all_stay_within_the_bound(counts: Any, most: int, names: list[str]) -> None:
    found = list(node_names("q", "gpu", counts, most))
    assert [name for name, _ in found] == names
    assert [is_dynamic for _, is_dynamic in found] == ["-dy-" in name for name in names]


def configuration(**slurm_settings: Any) -> dict[str, Any]:
    """As CloudFormation sends it: every scalar is text."""
    resource = {"Name": "gpu", "InstanceType": "p5.48xlarge", "MinCount": "1", "MaxCount": "3"}
    queue = {"Name": "train", "Networking": {"SubnetIds": ["subnet-2"]}, "ComputeResources": [resource]}
    head = {"InstanceType": "m5.2xlarge", "Networking": {"SubnetId": "subnet-1"}}
    return {"HeadNode": head, "Scheduling": {"SlurmSettings": slurm_settings, "SlurmQueues": [queue]}}


def test_planned_nodes_and_those_that_acceptance_measures() -> None:
    nodes = planned_nodes(configuration(), 4)
    assert [one.name for one in nodes] == ["head", "train-st-gpu-1", "train-dy-gpu-1", "train-dy-gpu-2"]
    assert [one.name for one in judged_nodes(nodes, 2)] == ["train-st-gpu-1", "train-dy-gpu-1"]
    assert len(judged_nodes(nodes, 9)) == 3
    assert judged_nodes(nodes[:1], 2) == []


def test_minutes_of_idleness_are_seconds_here() -> None:
    assert power_saving(configuration(ScaledownIdletime="30")).suspend_s == 30
    assert power_saving(configuration(ScaledownIdletime="1")).suspend_s == 5
    assert power_saving(configuration()).suspend_s == slurm.POWER.suspend_s


def test_nodes_that_have_to_start_are_waited_for_longer() -> None:
    assert site_values(2, starts_nodes=True)["queue_timeout_s"] > site_values(2)["queue_timeout_s"]


def test_acceptance_measures_dynamic_nodes_where_it_is_told_how_many(tmp_path: Path) -> None:
    told = (
        SETTINGS.read_text(encoding="utf-8")
        .replace("scenario: none", "nodes: 2")
        .replace("max_count: 1", "max_count: 2")
    )
    (tmp_path / "told.yaml").write_text(told, encoding="utf-8")
    scenario = bundle.acceptance_scenario(load_settings(tmp_path / "told.yaml"))
    assert (scenario["nodes"], scenario["partition"]) == (2, "spare")
    minutes = load_settings(tmp_path / "told.yaml").acceptance.timeout_minutes
    assert scenario["queue_timeout_s"] == int(minutes * 60 * bundle.STARTING_QUEUE_SHARE)
    assert bundle.STARTING_QUEUE_SHARE + bundle.SWEEP_SHARE + bundle.STARTING_LOCATE_SHARE < 1
    assert bundle.acceptance_scenario(load_settings(SETTINGS))["nodes"] == 0


@pytest.mark.parametrize(
    ("fault", "static", "host"),
    [
        ("bootstrap=head", ["a-st-gpu-1"], "head"),
        ("bootstrap=compute", ["a-st-gpu-1", "a-st-gpu-2"], "a-st-gpu-2"),
        ("bootstrap=compute", [], "a-dy-gpu-1"),
        ("hang", [], "a-dy-gpu-1"),
        ("slow-node=a-dy-gpu-2", [], "a-dy-gpu-2"),
    ],
)
def test_a_fault_finds_its_host_among_static_and_dynamic_ones(fault: str, static: list[str], host: str) -> None:
    names = ["a-dy-gpu-1", "a-dy-gpu-2", "b-dy-gpu-1", "b-dy-gpu-2"]
    assert parse_breakage(fault).name_of_host("head", static, names) == host


def test_a_fault_without_a_host_says_so() -> None:
    with pytest.raises(UsageError, match="this cluster has none"):
        parse_breakage("hang").name_of_host("head", [], [])
    with pytest.raises(UsageError, match="no such node"):
        parse_breakage("slow-node=gpu-3").name_of_host("head", [], ["a-dy-gpu-1"])


# ---- what Slurm reads ----


@needs_slurm
def test_power_saving_is_set_up_as_by_parallelcluster(tmp_path: Path) -> None:
    head = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
    static = HostSpec(
        "prep-st-cpu-1", "10.0.1.9", "compute", "c7i.large", 2, 4096, queue="prep", compute_resource="cpu"
    )
    power = slurm.PowerSaving(suspend_s=7)
    slurm.write_tree(tmp_path, "ml", head, [host_spec(ONE), static, host_spec(TWO)], power=power)
    main = (tmp_path / "etc/slurm.conf").read_text(encoding="utf-8")
    assert {
        "ReconfigFlags=KeepPartState",
        "CommunicationParameters=NoAddrCache",
        "ResumeProgram=/opt/parallelcluster/scripts/slurm/slurm_resume",
        "ResumeFailProgram=/opt/parallelcluster/scripts/slurm/slurm_suspend",
        "SlurmctldParameters=idle_on_node_suspend,power_save_min_interval=1,power_save_interval=2,cloud_dns",
    } <= set(main.splitlines())
    part = (tmp_path / "etc/slurm_parallelcluster.conf").read_text(encoding="utf-8").splitlines()
    assert part[-3:] == ["SuspendTime=7", "ResumeTimeout=300", "SuspendExcNodes=prep-st-cpu-1"]
    assert "train" in part[1], "queues keep their order, also where all of their nodes are dynamic"
    line = (
        (tmp_path / "etc/pcluster/slurm_parallelcluster_train_partition.conf")
        .read_text(encoding="utf-8")
        .split("\n")[0]
    )
    assert line == (
        "NodeName=train-dy-gpu-1 CPUs=192 RealMemory=1992294 Feature=dynamic,p5.48xlarge,gpu,efa"
        " Weight=1000 State=CLOUD Gres=gpu:h100:8"
    )


@needs_slurm
def test_the_sites_own_parameters_of_power_saving_replace_ours(tmp_path: Path) -> None:
    head = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
    site = slurm.Parameters({"SuspendTimeout": "60"}, {})
    slurm.write_tree(tmp_path, "ml", head, [host_spec(ONE)], site)
    both = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "etc").glob("slurm*.conf"))
    assert both.count("SuspendTimeout=") == 1
    assert "SuspendExcNodes" not in both


# ---- who asks whom ----


def ask(path: Path, line: bytes) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(line)
        return json.loads(connection.makefile().readline())


@needs_account
def test_the_socket_serves_requests_and_refuses_what_is_none(tmp_path: Path) -> None:
    path, asked = tmp_path / "engine.sock", []

    def answer(action: str, nodes: list[str]) -> dict[str, dict[str, str]]:
        asked.append((action, nodes))
        return {name: {"address": "10.0.0.1"} for name in nodes}

    power = PowerSocket(path, answer)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert ask(path, b'{"action": "resume", "nodes": ["a"]}\n') == {"nodes": {"a": {"address": "10.0.0.1"}}}
        assert "no request of the power saving: what" in ask(path, b"what\n")["fault"]
        assert "no request" in ask(path, b'{"action": "resume"}\n')["fault"]
        assert ask(path, b'{"action": "reboot", "nodes": []}\n') == {
            "fault": "action reboot: neither resume nor suspend"
        }
        assert asked == [("resume", ["a"])]
    finally:
        power.stop()
    power.stop()
    with pytest.raises(OSError, match="refused"):
        ask(path, b"{}\n")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """slurm_resume and slurm_suspend as a module, with a scontrol that notes its arguments and knows no node `lost`."""
    loader = importlib.machinery.SourceFileLoader("slurm_power", str(PROGRAM))
    spec = importlib.util.spec_from_loader("slurm_power", loader)
    assert spec is not None
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\nif [ "$1" = show ]; then echo "$3" | tr , "\\n"; exit; fi\n'
        f'echo "$*" >>{tmp_path}/told\ncase $2 in *=lost) echo "Invalid node name" >&2; exit 1 ;; esac\n',
        encoding="utf-8",
    )
    scontrol.chmod(0o755)
    monkeypatch.setattr(module, "SCONTROL", str(scontrol))
    monkeypatch.setattr(module, "LOG_DIR", tmp_path)
    monkeypatch.setattr(module, "SOCKET", str(tmp_path / "engine.sock"))
    monkeypatch.setattr(module.logging, "basicConfig", lambda **_: None)
    return module


@needs_account
def test_the_resume_program_gives_addresses_and_sets_down_what_got_none(program: ModuleType, tmp_path: Path) -> None:
    answers = {
        "a": {"address": "10.0.0.1"},
        "b": {"error": "(Code:X)Failure when resuming nodes"},
        "lost": {"address": "10.0.0.3"},
    }
    power = PowerSocket(tmp_path / "engine.sock", lambda _action, nodes: {name: answers[name] for name in nodes})
    try:
        assert program.main("slurm_resume", "a,b") == 0
        assert program.main("slurm_resume", "lost,a") == 1, (
            "the nodes behind one that Slurm refuses are reported as well"
        )
        assert program.main("slurm_suspend", "a") == 0
    finally:
        power.stop()
    assert (tmp_path / "told").read_text(encoding="utf-8").splitlines() == [
        "update nodename=a nodeaddr=10.0.0.1 nodehostname=a",
        "update nodename=b state=down reason=(Code:X)Failure when resuming nodes",
        "update nodename=lost nodeaddr=10.0.0.3 nodehostname=lost",
        "update nodename=a nodeaddr=10.0.0.1 nodehostname=a",
    ]


def test_the_resume_program_without_an_engine_fails(program: ModuleType, tmp_path: Path) -> None:
    assert program.main("slurm_resume", "a") == 1
    assert not (tmp_path / "told").exists()
