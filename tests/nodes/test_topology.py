"""Where the nodes are in EC2's network: what the head node asks, and what its file holds when nodes come and go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jmespath
import pytest

from .programs import load_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load_program(ROOT / "headnode/topology.py")


class Site:
    """sinfo and the AWS CLI. nodes: name -> NodeAddr; running: address -> instance; network: instance -> nodes."""

    def __init__(self, nodes: dict[str, str], running: dict[str, str], network: dict[str, list[str] | None]) -> None:
        self.nodes, self.running, self.network = nodes, running, network
        self.asked: list[tuple[str, ...]] = []
        self.refusal = ""

    def __call__(self, *command: str) -> str:
        if command[0] == "sinfo":
            return "".join(f"{node}|{address}\n" * 2 for node, address in self.nodes.items())  # of two partitions
        self.asked.append(command)
        if self.refusal:
            raise subprocess.CalledProcessError(254, command, stderr=f"\n{self.refusal}\n")
        query = command.index("--query")
        if command[2] == "describe-instances":
            shapes = [{"PrivateIpAddress": address, "InstanceId": one} for address, one in self.running.items()]
            answer: dict[str, Any] = {"Reservations": [{"Instances": shapes[:1]}, {"Instances": shapes[1:]}]}
        else:
            ids = command[command.index("--instance-ids") + 1 : query]
            assert len(ids) <= 100
            places = [{"InstanceId": one, "NetworkNodes": self.network.get(one, [])} for one in ids]
            answer = {"Instances": [place for place in places if place["InstanceId"] in self.network]}
        return json.dumps(jmespath.search(command[query + 1], answer))  # as the AWS CLI does


def site(count: int) -> Site:
    nodes = {f"gpu-{one}": f"10.0.{one // 250}.{one % 250 + 1}" for one in range(count)}
    running = {address: f"i-{node}" for node, address in nodes.items()}
    network: dict[str, list[str] | None] = {one: ["nn-top", "nn-middle", f"nn-{one[-1]}"] for one in running.values()}
    return Site(nodes, {"10.9.9.9": "i-head", **running}, network)


@pytest.fixture
def refresh(program: ModuleType, tmp_path: Path) -> Callable[[Site], tuple[str, bool]]:
    return lambda asked: program.refresh(tmp_path / "topology.json", "ml", "us-east-1", asked)


def held(tmp_path: Path) -> dict[str, tuple[str, str]]:
    nodes = json.loads((tmp_path / "topology.json").read_text())["nodes"]
    return {node: (entry["address"], (entry["network_nodes"] or [""])[-1]) for node, entry in nodes.items()}


def test_more_than_a_hundred_nodes_are_asked_for_in_several_requests(
    refresh: Callable[[Site], tuple[str, bool]], tmp_path: Path
) -> None:
    fleet = site(230)
    assert refresh(fleet) == ("EC2: 230 of 230 nodes below 10 network nodes", True)
    assert [command[2] for command in fleet.asked] == ["describe-instances", *["describe-instance-topology"] * 3]
    assert held(tmp_path)["gpu-217"] == ("10.0.0.218", "nn-7")
    assert "i-head" not in str(fleet.asked)
    assert "Name=tag:parallelcluster:cluster-name,Values=ml" in fleet.asked[0]


def test_ec2_is_asked_only_when_a_node_has_another_address(
    refresh: Callable[[Site], tuple[str, bool]], tmp_path: Path
) -> None:
    fleet = site(3)
    fleet.nodes["gpu-3"] = "gpu-3"  # powered down: ParallelCluster sets its address to its name
    refresh(fleet)
    fleet.asked.clear()
    assert refresh(fleet) == ("EC2: 3 of 3 nodes below 3 network nodes", True)
    assert not fleet.asked
    fleet.nodes["gpu-1"] = "10.0.7.7"  # replaced: the new instance still starts
    assert refresh(fleet) == ("EC2: 2 of 3 nodes below 2 network nodes", True)
    assert held(tmp_path).keys() == {"gpu-0", "gpu-2"}
    fleet.running["10.0.7.7"], fleet.network["i-new"] = "i-new", ["nn-top", "nn-middle", "nn-new"]
    assert refresh(fleet)[1]
    assert held(tmp_path)["gpu-1"] == ("10.0.7.7", "nn-new")
    fleet.nodes["gpu-0"] = "gpu-0"
    fleet.asked.clear()
    refresh(fleet)
    assert not fleet.asked
    assert held(tmp_path).keys() == {"gpu-1", "gpu-2"}


def test_a_refusal_leaves_the_nodes_that_stayed(refresh: Callable[[Site], tuple[str, bool]], tmp_path: Path) -> None:
    fleet = site(2)
    refresh(fleet)
    fleet.nodes |= {"gpu-0": "10.0.7.7", "gpu-2": "10.0.7.8"}
    fleet.refusal = "An error occurred (UnauthorizedOperation) when calling DescribeInstanceTopology"
    line, good = refresh(fleet)
    assert (line, good) == (f"EC2: 1 of 3 nodes below 1 network nodes; EC2 does not answer: {fleet.refusal}", False)
    assert held(tmp_path) == {"gpu-1": ("10.0.0.2", "nn-1")}


@pytest.mark.parametrize("answer", [None, []])
def test_a_type_without_a_topology_is_asked_for_once(
    refresh: Callable[[Site], tuple[str, bool]], answer: list[str] | None
) -> None:
    fleet = site(1)
    fleet.network = {"i-gpu-0": answer} if answer is None else {}
    assert refresh(fleet) == ("EC2 has no network topology of the nodes that run", True)
    fleet.asked.clear()
    refresh(fleet)
    assert not fleet.asked


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 1}', '{"nodes": {"gpu-0": {"address": "10.0.0.1"}}}'])
def test_a_damaged_file_is_written_anew(refresh: Callable[[Site], tuple[str, bool]], tmp_path: Path, text: str) -> None:
    (tmp_path / "topology.json").write_text(text)
    assert refresh(site(1)) == ("EC2: 1 of 1 nodes below 1 network nodes", True)
    assert held(tmp_path) == {"gpu-0": ("10.0.0.1", "nn-0")}


def test_no_machine_runs(refresh: Callable[[Site], tuple[str, bool]], tmp_path: Path) -> None:
    assert refresh(Site({"gpu-1": "gpu-1"}, {}, {})) == ("no node has a machine that runs", True)
    assert held(tmp_path) == {}


def test_the_state_of_the_node_has_the_line_and_each_line_is_printed_once(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = site(2)
    fleet.refusal = "Unable to locate credentials"
    monkeypatch.setattr(program.state, "STATE", tmp_path)
    monkeypatch.setattr(program.state, "SETUP_LOG", tmp_path / "log/setup.log")
    monkeypatch.setattr(program, "FILE", tmp_path / "topology.json")
    monkeypatch.setattr(program, "run", fleet)
    monkeypatch.setattr(program.env, "NODE_ENV", tmp_path / "node.env")
    (tmp_path / "node.env").write_text("CLUSTER_NAME=ml\nREGION=us-east-1\n")
    assert (program.main(), program.main()) == (1, 1)
    out = capsys.readouterr().out
    assert out.count("EC2 does not answer: Unable to locate credentials") == 2  # of this program and of the state
    assert out.count("slipway-hint:") == 1
    fleet.refusal = ""
    assert program.main() == 0
    assert program.state.read("topology")["detail"] == "EC2: 2 of 2 nodes below 2 network nodes"
    assert program.state.read("topology")["state"] == "done"
