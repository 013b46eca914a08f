"""The planner on simulated fleets: how often it is right and what it costs. `bench/locate` runs more of the same."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.locate import methods
from bench.locate import simulated_fleet as fleets

REPOSITORY = Path(__file__).parents[2]
SMALL = [(count, 200) for count in (2, 3, 4, 5, 6, 7, 8, 12, 16)]
LARGE = [(17, 150), (33, 100), (64, 60), (128, 40), (256, 20), (1024, 4)]


@pytest.mark.parametrize(("count", "trials"), SMALL + LARGE)
def test_right_bounded_and_no_good_node_is_accused(count: int, trials: int) -> None:
    verdicts, wrong = 0, []
    for seed in range(trials):
        dice = random.Random(count * 1009 + seed)  # noqa: S311 - a seed, so that a trial can be repeated
        site = fleets.random_site(count, dice)
        found = fleets.search(site, site.rules(), dice)
        result = fleets.score(site, found)
        assert result.accused == [], (count, seed, result.accused)
        assert found.rounds <= 6, (count, seed)
        assert len(found.results) <= site.budget, (count, seed)
        verdicts += result.nodes
        wrong += [(seed, one) for one in result.wrong]
    assert len(wrong) <= 0.005 * verdicts, wrong[:5]


@pytest.mark.parametrize("count", [3, 4, 5, 8, 13])
def test_a_launch_that_fails_once_accuses_nothing(count: int) -> None:
    """Whichever of the launches it is."""
    for failing in range(2 * count):
        site = fleets.Site(fleets.Fleet(fleets.node_names(count)))
        results: list[Any] = []
        dice = random.Random(failing)  # noqa: S311 - as above
        while isinstance(answer := fleets.decide(site.fleet, results, site.rules()), fleets.Round):
            number = max((result.round for result in results), default=-1) + 1
            measured = site.measure(answer.launches, number, dice)
            place = failing - len(results)
            if 0 <= place < len(measured):
                measured[place] = replace(measured[place], outcome="failed", busbw=None)
            results += measured
        assert {node.verdict for node in answer.nodes} == {"good"}, failing
        assert answer.links == answer.groups == (), failing


@pytest.mark.parametrize(("count", "size"), [(48, 16), (64, 8), (256, 16), (1024, 16), (1024, 8)])
def test_an_uplink_too_narrow_for_all_is_narrowed_down(count: int, size: int) -> None:
    """No pair is slow by it: only parts of the fleet show it."""
    for seed in range(5):
        dice = random.Random(seed)  # noqa: S311 - as above
        nodes = fleets.node_names(count)
        site = fleets.Site(fleets.Fleet(nodes, fleets.group_by(nodes, size)))
        switch = dice.choice(sorted(set(site.fleet.groups.values())))
        site.narrow_uplinks[switch] = 0.4
        fleets.run_all(site, dice, "alltoall")
        found = fleets.search(site, site.rules(), dice)
        assert {node.verdict for node in found.verdict.nodes} == {"good"}
        (group,) = found.verdict.groups
        assert group.where == "set"
        assert switch in group.groups
        assert len(group.groups) <= (2 if count == 48 else 1)
        assert len(found.results) <= 2 * count + 20


def test_the_same_results_give_the_same_answer_whatever_the_hashes() -> None:
    program = (
        "import random; import bench.locate.simulated_fleet as f; d = random.Random(47);"
        "s = f.random_site(17, d); r = f.search(s, s.rules(), d); print([x.nodes for x in r.results], r.verdict)"
    )
    argv = [sys.executable, "-c", program]
    said = {
        subprocess.run(
            argv, cwd=REPOSITORY, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_every_plain_method_of_the_bench_finds_a_hanging_node() -> None:
    for name, method in methods.METHODS.items():
        site = fleets.Site(fleets.Fleet(fleets.node_names(16)))
        fleets.break_node(site, "train-st-p5-7", "hang", 0)
        effort = methods.Effort(site, random.Random(1))  # noqa: S311 - as above
        method(effort)
        assert effort.accused == {"train-st-p5-7"}, name
