"""How often the planner is right, what it costs, and how long it thinks, on simulated fleets. Exit 1 below the target.

    python -m bench.locate [--trials 1000] [--sizes 2,3,...]

Three tables: verdicts by fleet size; the planner and three plain methods on the same fleets; the time of one
decision for 1024 nodes. The last line sums up.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from acceptance.locate import Result, Verdict, decide
from bench.locate.methods import METHODS, Effort
from bench.locate.simulated_fleet import NODE_FAULTS, random_site, score, search

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64, 100, 128, 256, 512, 1024)
COMPARED = (16, 64, 256, 1024)
COMPARED_TRIALS = 20
MOST_LAUNCHES = 600_000  # of a method and size: a tournament of 1024 nodes is simulated once
PLAN_S = 0.2  # seconds that a decision for 1024 nodes may take
RIGHT = 0.995  # share of verdicts that must be right


@dataclass
class Tally:
    """What the trials of one size came to. extra: the most launches beyond 2n for each bad thing."""

    nodes: int
    verdicts: int = 0
    wrong: int = 0
    trials: int = 0
    wrong_trials: int = 0
    accused: int = 0
    rounds: int = 0
    launches: int = 0
    extra: float = 0.0
    over: int = 0


def simulate(count: int, trials: int) -> Tally:
    """Run seeded trials of one size; every wrong verdict on a node, link or switch counts."""
    tally = Tally(count)
    for seed in range(trials):
        dice = random.Random(count * 100_003 + seed)  # noqa: S311 - a seed, so that a trial can be repeated
        site = random_site(count, dice)
        found = search(site, site.rules(), dice)
        result = score(site, found)
        tally.trials += 1
        tally.verdicts += result.nodes
        tally.wrong += len(result.wrong)
        tally.wrong_trials += bool(result.wrong)
        tally.accused += len(result.accused)
        tally.rounds = max(tally.rounds, found.rounds)
        tally.launches += len(found.results)
        beyond = len(found.results) - 2 * count
        tally.over += beyond > 20 * site.faults
        tally.extra = max(tally.extra, beyond / max(site.faults, 1))
    return tally


def compare(count: int) -> list[tuple[str, int, float, float, float, float]]:
    """Method, trials, mean rounds, mean launches, share of bad nodes found, good nodes accused a trial."""
    kinds = tuple(kind for kind in NODE_FAULTS if kind != "inside")  # alltoall alone does not see those
    rows = []
    for name in ("acceptance locate", *METHODS):
        launches = count * (count - 1) // 2 if name == "full tournament" else 2 * count
        trials = max(1, min(COMPARED_TRIALS, MOST_LAUNCHES // launches))
        rounds = cost = bad = found_bad = accused = 0
        for seed in range(trials):
            dice = random.Random(count * 7_919 + seed)  # noqa: S311 - as above
            site = random_site(count, dice, kinds)
            if name in METHODS:
                effort = Effort(site, dice)
                METHODS[name](effort)
                rounds, cost, named = rounds + effort.rounds, cost + effort.launches, effort.accused
            else:
                found = search(site, site.rules(), dice)
                rounds, cost = rounds + found.rounds, cost + len(found.results)
                named = {one.node for one in found.verdict.nodes if one.verdict in ("slow", "failed")}
            bad += len(site.bad_nodes)
            found_bad += len(site.bad_nodes & named)
            accused += len(named - site.bad_nodes)
        rows.append((name, trials, rounds / trials, cost / trials, found_bad / max(bad, 1), accused / trials))
    return rows


def slowest_decision(count: int, trials: int) -> float:
    """The longest that one decision took, in seconds."""
    worst = 0.0
    for seed in range(trials):
        dice = random.Random(seed)  # noqa: S311 - as above
        site = random_site(count, dice)
        rules, results = site.rules(), list[Result]()
        for number in range(rules.max_rounds + 1):
            started = time.perf_counter()
            answer = decide(site.fleet, results, rules)
            worst = max(worst, time.perf_counter() - started)
            if isinstance(answer, Verdict):
                break
            results += site.measure(answer.launches, number, dice)
    return worst


def main() -> int:
    """Print the tables; return 0 if every target is met."""
    parser = argparse.ArgumentParser(description="Simulate the search for bad nodes.")
    parser.add_argument("--trials", type=int, default=1000, help="seeded trials a size (1000)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes, by commas")
    arguments = parser.parse_args()
    tallies = _show_verdicts([int(size) for size in arguments.sizes.split(",")], arguments.trials)
    fewer = _show_methods()
    plan_s = slowest_decision(1024, 10)
    print(f"\nslowest of the decisions for 1024 nodes: {plan_s:.3f} s (at most {PLAN_S} s)")
    verdicts, wrong = sum(one.verdicts for one in tallies), sum(one.wrong for one in tallies)
    accused, rounds = sum(one.accused for one in tallies), max(one.rounds for one in tallies)
    met = all(one.wrong <= (1 - RIGHT) * one.verdicts and not one.over for one in tallies)
    met = met and accused == 0 and rounds <= 6 and plan_s <= PLAN_S
    extra = max(one.extra for one in tallies)
    print(
        f"{'' if met else 'TARGET MISSED: '}{100 * (1 - wrong / verdicts):.3f} % of {verdicts} verdicts right,"
        f" {accused} good nodes accused, {rounds} rounds at most, 2n + {extra:.0f}d launches at most,"
        f" {fewer:.0f}x fewer than a tournament of 1024, planned in {plan_s:.3f} s"
    )
    return 0 if met else 1


def _show_verdicts(sizes: list[int], trials: int) -> list[Tally]:
    print(" nodes  trials  verdicts right  trials right  good accused  rounds  launches/n  extra a fault")
    tallies = []
    for size in sizes:
        one = simulate(size, trials)
        tallies.append(one)
        right, whole = 1 - one.wrong / one.verdicts, 1 - one.wrong_trials / one.trials
        cost = one.launches / one.trials / size
        print(
            f"{size:6d}  {one.trials:6d}  {right:13.3%}  {whole:12.1%}  {one.accused:12d}  {one.rounds:6d}"
            f"  {cost:10.2f}  {one.extra:13.1f}",
            flush=True,
        )
    return tallies


def _show_methods() -> float:
    """Print the comparison; return how many times more launches the tournament of the largest fleet needs."""
    print("\n nodes  method                       trials   rounds  launches  bad found  good accused")
    times = 1.0
    for size in COMPARED:
        rows = compare(size)
        for name, trials, rounds, launches, found, accused in rows:
            print(f"{size:6d}  {name:27}  {trials:6d}  {rounds:7.1f}  {launches:8.0f}  {found:8.1%}  {accused:12.2f}")
        times = rows[1][3] / rows[0][3]
    return times


if __name__ == "__main__":
    sys.exit(main())
