"""Which network nodes of EC2 become the switches of the locator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acceptance.runner.record import LocateRecord
from acceptance.runner.slurm import Slurm
from acceptance.runner.topology import leaves


def put(path: Path, places: dict[str, list[str]]) -> dict[str, str]:
    """Write the head node's file; return Slurm's addresses."""
    addresses = {node: f"10.0.0.{number}" for number, node in enumerate(places, 1)}
    nodes = {
        node: {"address": addresses[node], "instance": f"i-{node}", "network_nodes": network_nodes}
        for node, network_nodes in places.items()
    }
    path.write_text(json.dumps({"schema": 1, "nodes": nodes}))
    return addresses


def fleet(*sizes: int, middle: int = 2) -> dict[str, list[str]]:
    """Nodes below lowest network nodes of these sizes, `middle` of which share the one above."""
    places = [f"{leaf // middle}/{leaf}" for leaf, size in enumerate(sizes) for _ in range(size)]
    return {
        f"gpu-{number}": ["nn-top", f"nn-m{place.partition('/')[0]}", f"nn-l{place.partition('/')[2]}"]
        for number, place in enumerate(places, 1)
    }


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (fleet(4, 4), {"nn-l0": 4, "nn-l1": 4}),
        (fleet(1, 1, 1), {"nn-top": 3}),  # one group: the planner does not use it
        (fleet(1, 1, 1, 1, 1, 1, middle=3), {"nn-m0": 3, "nn-m1": 3}),
        (fleet(6, 1), {"nn-l0": 6}),  # of the seventh node's switch nothing could be said
        (fleet(3, 2, 2), {"nn-m0": 5}),
        (fleet(2), {}),
        ({"gpu-1": [], "gpu-2": []}, {}),  # a type without a topology
        (
            {**fleet(3), "p6-1": ["nn-x", "nn-top", "nn-m0", "nn-l0"]},
            {"nn-l0": 4},
        ),  # levels are counted from the lowest
    ],
)
def test_the_level_whose_switches_can_be_judged(
    tmp_path: Path, places: dict[str, list[str]], expected: dict[str, int]
) -> None:
    groups = leaves(put(tmp_path / "topology.json", places), tmp_path / "topology.json")
    assert {group: list(groups.values()).count(group) for group in groups.values()} == expected


def test_the_place_of_an_instance_that_was_replaced_is_not_used(tmp_path: Path) -> None:
    addresses = put(tmp_path / "topology.json", fleet(4, 4))
    addresses["gpu-1"] = "10.9.9.9"
    del addresses["gpu-8"]
    groups = leaves(addresses, tmp_path / "topology.json")
    assert groups.keys() == {f"gpu-{number}" for number in range(2, 8)}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"nodes": []}', '{"nodes": {"a": 1}}', '{"nodes": {"a": {}}}', "\xff"]
)
def test_another_file_gives_no_switches(tmp_path: Path, text: str) -> None:
    (tmp_path / "topology.json").write_bytes(text.encode("latin-1"))
    assert leaves({"a": "10.0.0.1"}, tmp_path / "topology.json") == {}
    assert leaves({"a": "10.0.0.1"}, tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=gpu-[1-2]\nSwitchName=s2 Level=1 Nodes=gpu-[1-2] Switches=s1", "s1"),
        # topology/block of Slurm 24.11 and newer (topology_block.c): the size, and blocks of blocks.
        (
            "BlockName=b1 BlockIndex=0 Nodes=gpu-[1-2] BlockSize=2\nAggregatedBlock=b[1-2] BlockIndex=2 Nodes=gpu-[1-4]"
            " BlockSize=4",
            "b1",
        ),
        ("", "nn-l0"),  # topology/none and topology/flat print no switches
    ],
)
def test_slurms_own_topology_is_used_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, expected: str
) -> None:
    addresses = put(tmp_path / "topology.json", fleet(3))
    nodes = "".join(
        f"NodeName={node} Arch=x86_64 NodeAddr={address} State=IDLE\n" for node, address in addresses.items()
    )

    def call(_: Slurm, argv: list[str]) -> str:
        answers: dict[str, Any] = {"topology": topology, "node": nodes, "hostnames": "gpu-1 gpu-2"}
        return str(answers[argv[2]])

    monkeypatch.setattr(Slurm, "call", call)
    monkeypatch.setattr(leaves, "__defaults__", (tmp_path / "topology.json",))
    assert set(Slurm().groups().values()) == {expected}


@pytest.mark.parametrize(("group", "expected"), [("nn-0a1b", "ec2"), ("leaf1", "slurm"), ("", "none")])
def test_the_report_names_where_the_switches_are_from(group: str, expected: str) -> None:
    groups = {"gpu-1": group} if group else {}
    record = LocateRecord("t", "all_reduce", 8, ["gpu-1", "gpu-2"], None, 0.9, 6, groups=groups)
    assert record.topology == expected
