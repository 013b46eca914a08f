"""What bench/bootstrap reads out of a rehearsal's logs."""

from __future__ import annotations

import pytest

from bench.bootstrap.foreground import NoFigures, read_log, slowest, table

HEAD = """\
==> custom actions <==
slipway: step headnode/10-one started
==> /var/log/slipway/setup.log <==
2026-11-28T05:00:00Z slipway: step headnode/10-one started
2026-11-28T05:00:01Z slipway: step headnode/10-one ok 1.4 s
2026-11-28T05:00:01Z slipway: step headnode/20-two started
2026-11-28T05:00:09Z slipway: WARNING host=head step=headnode/20-two exit=1 log=/var/log/slipway/20-two.log hint=x
2026-11-28T05:00:09Z slipway: set-up of this headnode node done in 9 s
"""
COMPUTE = "2026-11-28T05:00:00Z slipway: step compute/10-one started\n2026-11-28T05:00:00Z slipway: step compute/10-one ok {} s\n"


def test_seconds_of_each_step_and_of_one_that_reported_a_failure() -> None:
    node = read_log("head", HEAD)
    assert node.steps == {"headnode/10-one": 1.4, "headnode/20-two": 8.0}
    assert node.reported == ["headnode/20-two"]
    assert node.kind == "headnode"


def test_the_slowest_of_each_kind_against_its_limit() -> None:
    nodes = [read_log("head", HEAD), read_log("n-1", COMPUTE.format("0.5")), read_log("n-2", COMPUTE.format("11.0"))]
    chosen = slowest(nodes)
    assert (chosen["headnode"].name, chosen["compute"].name) == ("head", "n-2")
    lines = table(chosen)
    assert "    9.4 s  head (head), limit 10 s" in lines
    assert "   11.0 s  compute (n-2), limit 10 s  TOO LONG" in lines
    assert "    8.0 s  headnode/20-two  reported a failure" in lines


def test_logs_without_steps_are_no_figures() -> None:
    with pytest.raises(NoFigures, match="n-1: its log has no line of a step"):
        read_log("n-1", "==> custom actions <==\n")
    with pytest.raises(NoFigures, match="no log of a compute node"):
        slowest([read_log("head", HEAD)])
