"""How often the planner is right, what it costs, and how long it thinks, on simulated fleets. Exit 1 below the target.

    python -m bench.locate [--trials 12000] [--sizes 2,3,...] [--fleets islands,...]

Tables: verdicts by sort of fleet; verdicts by fleet size; the planner and three plain methods on the same fleets; the
time of one decision for 1024 nodes. The last line sums up.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from acceptance.locate import Result, Verdict, decide
from bench.locate.methods import METHODS, Effort
from bench.locate.odd_fleets import FLEETS, Build, judge, make, random_faults
from bench.locate.simulated_fleet import NODE_FAULTS, random_site, search

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64, 100, 128, 256, 512, 1024)
COMPARED = (16, 64, 256, 1024)
COMPARED_TRIALS = 20
MOST_LAUNCHES = 600_000  # of a method and size: a tournament of 1024 nodes is simulated once
PLAN_S = 0.2  # seconds that a decision for 1024 nodes may take
RIGHT = 0.995  # share of verdicts that must be right


@dataclass
class Tally:
    """What the trials of one sort or size came to. over: random ones that took more launches than they may."""

    name: str
    verdicts: int = 0
    wrong: int = 0
    trials: int = 0
    wrong_trials: int = 0
    accused: int = 0
    rounds: int = 0
    launches: int = 0
    nodes: int = 0
    over: int = 0

    def add(self, other: Tally) -> None:
        """Count the trials of another tally too."""
        for name in ("verdicts", "wrong", "trials", "wrong_trials", "accused", "launches", "nodes", "over"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rounds = max(self.rounds, other.rounds)

    def row(self) -> str:
        """One line of a table."""
        right, whole = 1 - self.wrong / max(self.verdicts, 1), 1 - self.wrong_trials / max(self.trials, 1)
        cost = self.launches / max(self.nodes, 1)
        return (
            f"{self.name:20} {self.trials:7d}  {right:13.3%}  {whole:12.1%}  {self.accused:12d}  {self.rounds:6d}"
            f"  {cost:10.2f}  {self.over:4d}"
        )


def simulate(build: Build, count: int, trials: int) -> Tally:
    """Run seeded trials of one sort of fleet and size; every wrong verdict on a node, link or group counts."""
    tally = Tally(str(count))
    for seed in range(trials):
        dice = random.Random(f"{build.__name__} {count} {seed}")  # noqa: S311 - a seed, so that a trial can be repeated
        site = make(build, count, dice)
        found = search(site, site.rules(), dice)
        result = judge(site, found)
        tally.trials += 1
        tally.verdicts += result.nodes
        tally.wrong += len(result.wrong)
        tally.wrong_trials += bool(result.wrong)
        tally.accused += len(result.accused)
        tally.rounds = max(tally.rounds, found.rounds)
        tally.launches += len(found.results)
        tally.nodes += count
        tally.over += build is random_faults and len(found.results) > site.budget
    return tally


def shares(sizes: list[int], trials: int) -> dict[int, int]:
    """How many of the trials each size gets: as many as 32 nodes up to there, then fewer in proportion to the size."""
    weights = {size: min(1.0, 32 / size) for size in sizes}
    return {size: max(1, round(trials * weight / sum(weights.values()))) for size, weight in weights.items()}


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
    parser.add_argument("--trials", type=int, default=12_000, help="seeded trials in all (12000)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes, by commas")
    parser.add_argument("--fleets", default=",".join(one.__name__ for one in FLEETS), help="sorts of fleets, by commas")
    arguments = parser.parse_args()
    wanted = arguments.fleets.split(",")
    fleets = [build for build in FLEETS if build.__name__ in wanted]
    total = _show_verdicts(fleets, shares([int(size) for size in arguments.sizes.split(",")], arguments.trials))
    fewer = _show_methods()
    plan_s = slowest_decision(1024, 10)
    print(f"\nslowest of the decisions for 1024 nodes: {plan_s:.3f} s (at most {PLAN_S} s)")
    met = total.wrong <= (1 - RIGHT) * total.verdicts and not total.over
    met = met and total.accused == 0 and total.rounds <= 6 and plan_s <= PLAN_S
    print(
        f"{'' if met else 'TARGET MISSED: '}{100 * (1 - total.wrong / total.verdicts):.3f} % of {total.verdicts}"
        f" verdicts right in {total.trials} trials, {total.accused} good nodes accused, {total.rounds} rounds at most,"
        f" {fewer:.0f}x fewer launches than a tournament of 1024, planned in {plan_s:.3f} s"
    )
    return 0 if met else 1


def _show_verdicts(fleets: list[Build], trials: dict[int, int]) -> Tally:
    head = " trials  verdicts right  trials right  good accused  rounds  launches/n  over"
    print(f"{'fleets':20} {head}")
    total, by_size = Tally("all"), {size: Tally(f"{size} nodes") for size in trials}
    for build in fleets:
        tally = Tally(build.__name__)
        for size, number in trials.items():
            one = simulate(build, size, -(-number // len(fleets)))
            tally.add(one)
            by_size[size].add(one)
        print(tally.row(), flush=True)
        total.add(tally)
    print(f"\n{'size':20} {head}")
    for tally in (*by_size.values(), total):
        print(tally.row())
    return total


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
