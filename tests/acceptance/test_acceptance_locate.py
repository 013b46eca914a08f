"""The planner, simulated: every fleet from 2 to 64 nodes with no, one or two bad nodes."""

from __future__ import annotations

import random

import pytest

from acceptance.locate import PairResult, Rules, next_round, schedule, verdicts

GOOD = 79.0  # GB/s of a healthy pair here
NOISE = 0.006  # healthy spread of pairs


def simulate(
    count: int, bad: dict[str, float], rules: Rules, seed: int = 1
) -> tuple[dict[str, str], list[PairResult], int]:
    """Measure until the planner has enough. bad: node -> factor of its speed; 0 hangs."""
    noise = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
    nodes = [f"n{i}" for i in range(count)]
    results: list[PairResult] = []
    rounds = 0
    while True:
        pairs = next_round(nodes, results, rules)
        if not pairs:
            break
        used = [node for pair in pairs for node in pair]
        assert len(used) == len(set(used)), "a round's pairs share a node"
        for first, second in pairs:
            factor = min(bad.get(first, 1.0), bad.get(second, 1.0))
            value = GOOD * factor * (1 + noise.gauss(0, NOISE)) if factor else None
            results.append(PairResult(rounds, first, second, "ok" if value else "hang", value, "log"))
        rounds += 1
    return {v.node: v.verdict for v in verdicts(nodes, results, rules)}, results, rounds


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64])
@pytest.mark.parametrize("factor", [0.0, 0.15, 0.7])
def test_one_bad_node_is_found_wherever_it_is(count: int, factor: float) -> None:
    for position in range(count):
        found, results, rounds = simulate(count, {f"n{position}": factor}, Rules(), seed=position)
        wanted = "failed" if factor == 0 else "slow"
        assert found == {f"n{i}": wanted if i == position else "good" for i in range(count)}
        assert rounds <= 4
        assert len(results) <= 2 * count + 4


@pytest.mark.parametrize("count", [4, 5, 6, 8, 13, 64])
@pytest.mark.parametrize("factors", [(0.15, 0.15), (0.0, 0.5), (0.0, 0.0)])
def test_two_bad_nodes_are_found_and_no_good_one_is_accused(count: int, factors: tuple[float, float]) -> None:
    for first in range(count):
        for second in range(first + 1, count, 1 if count < 20 else 7):
            bad = {f"n{first}": factors[0], f"n{second}": factors[1]}
            found, _, rounds = simulate(count, bad, Rules(), seed=first * 100 + second)
            accused = {node for node, verdict in found.items() if verdict in ("slow", "failed")}
            assert accused == set(bad), (count, bad, found)
            assert rounds <= 6


@pytest.mark.parametrize("bad", [{}, {"n1": 0.2}, {"n0": 0.0}])
def test_of_two_nodes_both_are_suspect(bad: dict[str, float]) -> None:
    found, _, rounds = simulate(2, bad, Rules())
    assert found == {"n0": "suspect", "n1": "suspect"}
    assert rounds == 1


def test_two_good_nodes_are_cleared_by_a_pair_limit() -> None:
    assert simulate(2, {}, Rules(pair_limit=70))[0] == {"n0": "good", "n1": "good"}


@pytest.mark.parametrize("count", [3, 8, 64])
def test_without_a_bad_node_nobody_is_accused(count: int) -> None:
    assert set(simulate(count, {}, Rules())[0].values()) == {"suspect"}
    assert set(simulate(count, {}, Rules(pair_limit=70))[0].values()) == {"good"}


def test_all_nodes_slow_against_the_limit_are_suspect_not_guilty() -> None:
    found, _, rounds = simulate(8, {f"n{i}": 0.5 for i in range(8)}, Rules(pair_limit=70))
    assert set(found.values()) == {"suspect"}
    assert rounds <= 6


@pytest.mark.parametrize("count", [2, 3, 4, 7, 10])
def test_no_pair_comes_twice(count: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    turns = count - 1 if count % 2 == 0 else count
    pairs = [frozenset(pair) for turn in range(turns) for pair in schedule(nodes, turn)]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2


def test_evidence_names_partner_and_bound() -> None:
    nodes = [f"n{i}" for i in range(4)]
    _, results, _ = simulate(4, {"n2": 0.1}, Rules())
    evidence = next(v.evidence for v in verdicts(nodes, results, Rules()) if v.node == "n2")
    assert "best pair busbw=7.9" in evidence
    assert "every pair with a good node" in evidence
