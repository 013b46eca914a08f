"""Which bad nodes `--drain` drains, and when a search ends because no launch can run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acceptance.errors import ExternalError
from acceptance.limits import find_limits
from acceptance.locate import Result
from acceptance.report.model import NodeReport
from acceptance.runner.drain import drain_bad_nodes
from acceptance.runner.record import LocateRecord
from acceptance.runner.search import common_trouble
from acceptance.scenario.load import read_scenario
from acceptance.scenario.model import NetworkWanted, Scenario


class RecordingSlurm:
    """Takes the drains; nodes in `drained` are so already, those in `refused` may not be."""

    def __init__(self, drained: tuple[str, ...] = (), refused: tuple[str, ...] = ()) -> None:
        self.drained, self.refused, self.reasons = drained, refused, dict[str, str]()

    def nodes(self, _: str) -> list[Any]:
        return [SimpleNamespace(name=name, trouble="drained", reason="fan") for name in self.drained]

    def drain(self, name: str, reason: str) -> None:
        if name in self.refused:
            raise ExternalError("Access denied")
        self.reasons[name] = reason


def report(count: int, bad: int) -> Any:
    nodes = [
        NodeReport(f"gpu-{index}", "IDLE", "slow" if index < bad else "good", "best pair", 1.0)
        for index in range(count)
    ]
    return SimpleNamespace(
        nodes=nodes,
        partition="gpu",
        run_id="run",
        nodes_that_are=lambda *words: [node for node in nodes if node.verdict in words],
    )


@pytest.mark.parametrize(
    ("count", "bad", "percent", "drained"),
    [(4, 1, 10, 1), (8, 2, 10, 1), (20, 2, 10, 2), (20, 3, 10, 2), (64, 30, 10, 6), (8, 2, 25, 2), (8, 8, 100, 8)],
)
def test_at_most_a_share_of_the_nodes_is_drained_and_the_others_are_named(
    count: int, bad: int, percent: int, drained: int
) -> None:
    slurm, said = RecordingSlurm(), list[str]()
    drain_bad_nodes(report(count, bad), slurm, percent, said.append)  # type: ignore[arg-type]
    assert list(slurm.reasons) == [f"gpu-{index}" for index in range(drained)]
    left = [f"gpu-{index}" for index in range(drained, bad)]
    assert ("NOT drained" in said[-1]) == bool(left)
    if left:
        assert said[-1].startswith(f"{', '.join(left)}: NOT drained: {bad} nodes of {count} are bad")
        assert f"at most {drained} ({percent} %)" in said[-1]
        assert "acceptance.drain_percent" in said[-1]


def test_nodes_that_are_drained_already_or_refused_do_not_count() -> None:
    slurm, said = RecordingSlurm(drained=("gpu-0",), refused=("gpu-1",)), list[str]()
    drain_bad_nodes(report(8, 3), slurm, 10, said.append)  # type: ignore[arg-type]
    assert list(slurm.reasons) == ["gpu-2"]
    assert said[0] == "gpu-0: not drained: it is drained already (fan)"
    assert said[1].startswith("gpu-1: NOT drained: Access denied")


@pytest.mark.parametrize("value", [0, 101, "all", 2.5])
def test_a_share_that_is_not_a_percentage_is_refused(value: object) -> None:
    faults: list[str] = []
    read_scenario({"locate": {"drain_percent": value}}, faults)
    assert any("locate.drain_percent" in fault for fault in faults), faults


def result(outcome: str) -> Result:
    return Result(0, "alone", "all_reduce", ("n1",), outcome, None)


def test_only_launches_that_all_failed_for_one_reason_end_the_search() -> None:
    failed, missing = result("failed"), {"nccl-tests were not found"}
    assert common_trouble([failed, failed], missing) == (
        "every launch failed for the same reason: nccl-tests were not found"
    )
    assert common_trouble([failed], missing) is None
    assert common_trouble([failed, failed], {"", *missing}) is None
    assert common_trouble([failed, failed], {""}) is None
    assert common_trouble([failed, result("ok")], missing) is None
    assert common_trouble([failed, result("hang")], missing) is None


def test_the_run_without_the_accused_is_compared_with_the_run_before() -> None:
    record = LocateRecord("t", "all_reduce", 1, ["n1", "n2"], None, 0.94, 6, full_scale_busbw=103.0)
    full = record.fleet().full_scale
    assert full is not None
    assert full.busbw == 103.0


@pytest.mark.parametrize("name", ["p4d.24xlarge", "p5en.48xlarge", "p6-b200.48xlarge"])
def test_types_whose_network_is_known_have_an_alltoall_limit_of_pairs(name: str) -> None:
    scenario = Scenario("c", "train", name, 16, 8, NetworkWanted("efa"), ())
    (limit,) = find_limits(scenario, "alltoall", 2, [16 << 30])
    assert limit.fail_below_gb_per_s > 1
