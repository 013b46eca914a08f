"""The planner's rounds on a real Slurm: alone, alltoall pairs, a bad link, what stays good without the accused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import Finished, make_programs, make_scenario

pytestmark = pytest.mark.hosts
Accept = Callable[..., Finished]

# Of the test program: how slow a launch is. gpu-3 lost a quarter of its network: an all_reduce of two nodes hides it.
LOSS = """
for node in "${nodes[@]}"; do
  if [[ $node == gpu-3 && ${#nodes[@]} -gt 1 ]] && [[ $collective == alltoall || ${#nodes[@]} -gt 2 ]]; then algbw=35; fi
done
"""
LINK = """
if [[ " ${nodes[*]} " == *" gpu-2 "* && " ${nodes[*]} " == *" gpu-3 "* ]]; then algbw=5; fi
"""


def parts(done: Finished) -> list[dict[str, Any]]:
    return [*done.report["locate"]["others"], *done.report["locate"]["pairs"]]


def test_alltoall_pairs_name_the_node_whose_loss_an_all_reduce_hides(accept: Accept, tmp_path: Path) -> None:
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", LOSS))
    scenario["limits"][0].update(fail_below_gb_per_s=80, warn_below_gb_per_s=None)
    scenario["tests"].append({**scenario["tests"][0], "name": "alltoall", "collective": "alltoall"})
    scenario["limits"].append({**scenario["limits"][0], "collective": "alltoall", "fail_below_gb_per_s": 1})
    scenario["locate"] = {"factor": 0.94}
    done = accept(scenario)
    assert done.code == 1
    assert {node["name"]: node["verdict"] for node in done.report["nodes"] if node["verdict"] != "good"} == {
        "gpu-3": "slow"
    }
    assert {pair["collective"] for pair in done.report["locate"]["pairs"]} == {"alltoall"}
    alone = [one for one in parts(done) if one.get("kind") == "alone"]
    assert {(one["collective"], *one["nodes"]) for one in alone} == {("all_reduce", f"gpu-{i + 1}") for i in range(4)}
    rest = next(one for one in parts(done) if one.get("kind") == "rest")
    assert rest["nodes"] == ["gpu-1", "gpu-2", "gpu-4"]
    assert done.report["locate"]["rest"] == "explained"
    for one in parts(done):
        assert (done.directory / one["log"]).stat().st_size > 0
    assert json.loads((done.directory / "run.json").read_text())["locate"]["limits"]


def test_a_bad_link_is_named_and_its_nodes_are_good(accept: Accept, tmp_path: Path) -> None:
    done = accept(make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", LINK)))
    assert done.code == 1
    (link,) = done.report["locate"]["links"]
    assert (sorted(link["nodes"]), link["verdict"]) == (["gpu-2", "gpu-3"], "slow")
    assert {node["verdict"] for node in done.report["nodes"]} == {"good"}
    assert done.out.rstrip().splitlines()[-1].endswith("; slow link gpu-2 - gpu-3")
    assert "gpu-2 - gpu-3" in (done.directory / "junit.xml").read_text() + (done.directory / "report.html").read_text()
