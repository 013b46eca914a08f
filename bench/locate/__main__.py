"""How often the planner is right, what it costs, and how long it thinks, on simulated fleets. Exit 1 below the target.

    python -m bench.locate [--trials 12000] [--seed 0] [--jobs 1] [--sizes 2,3,...] [--fleets islands,...] [--json FILE]
    python -m bench.locate --trial islands:24:17

Tables: verdicts by sort of fleet; verdicts by fleet size; the planner and three plain methods on the same fleets; the
time of one decision for 1024 nodes by sort of fleet. The last line sums up. `--trial` repeats one trial and prints its
rounds. The standard library is all it needs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

from acceptance.locate import Fleet, Result, Rules, Verdict, decide
from bench.locate.methods import METHODS, Effort
from bench.locate.odd_fleets import make
from bench.locate.simulated_fleet import NODE_FAULTS, random_site, search
from bench.locate.trials import BY_NAME, HEAD, Tally, Trial, run_all_trials

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64, 100, 128, 256, 512, 1024)
COMPARED = (16, 64, 256, 1024)
COMPARED_TRIALS = 20
MOST_LAUNCHES = 600_000  # of a method and size: a tournament of 1024 nodes is simulated once
PLAN_S = 0.06  # seconds of CPU that a decision for 1024 nodes may take
PLANNED = 3  # fleets of each sort whose decisions are timed
REPEATS = 3  # times that each of these decisions is taken
RIGHT = 0.995  # share of verdicts that must be right, in each sort of fleet
SHOWN = 20  # wrong verdicts printed


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


def slowest_decision(fleet: str, count: int) -> float:
    """The longest that one decision took, in seconds of CPU, each the best of a few: the machine may be busy."""
    worst = 0.0
    for seed in range(PLANNED):
        dice = random.Random(seed)  # noqa: S311 - as above
        site = make(BY_NAME[fleet], count, dice)
        rules, results = site.rules(), list[Result]()
        for number in range(rules.max_rounds + 1):
            worst = max(worst, min(_seconds(site.fleet, results, rules) for _ in range(REPEATS)))
            answer = decide(site.fleet, results, rules)
            if isinstance(answer, Verdict):
                break
            results += site.measure(answer.launches, number, dice)
    return worst


def _seconds(fleet: Fleet, results: list[Result], rules: Rules) -> float:
    started = time.process_time()
    decide(fleet, results, rules)
    return time.process_time() - started


def main() -> int:
    """Print the tables; return 0 if every target is met."""
    parser = argparse.ArgumentParser(description="Simulate the search for bad nodes.")
    parser.add_argument("--trials", type=int, default=12_000, help="seeded trials in all (12000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial of each sort and size (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes, by commas")
    parser.add_argument("--fleets", default=",".join(BY_NAME), help="sorts of fleets, by commas")
    parser.add_argument("--json", type=Path, help="write the figures and every wrong verdict to this file")
    parser.add_argument("--trial", help="repeat one trial, FLEET:NODES:SEED, and print it")
    arguments = parser.parse_args()
    if arguments.trial:
        return _show_trial(arguments.trial)
    fleets = arguments.fleets.split(",")
    unknown = [name for name in fleets if name not in BY_NAME]
    if unknown:
        parser.error(f"--fleets: {', '.join(unknown)}: not one of {', '.join(BY_NAME)}")
    sizes = shares([int(size) for size in arguments.sizes.split(",")], -(-arguments.trials // len(fleets)))
    by_fleet, by_size = _show_verdicts(fleets, sizes, arguments.seed, arguments.jobs)
    total = Tally()
    for tally in by_fleet.values():
        total.add(tally)
    fewer = _show_methods() if len(fleets) == len(BY_NAME) else None
    plan_s = _show_planning(fleets)
    met = all(one.right >= RIGHT for one in by_fleet.values()) and not total.over and total.accused == 0
    met = met and total.rounds <= 6 and max(plan_s.values()) <= PLAN_S
    if arguments.json:
        figures = {
            "trials": total.trials,
            "seed": arguments.seed,
            "met": met,
            "fleets": {name: {**asdict(one), "plan_s": plan_s[name]} for name, one in by_fleet.items()},
            "sizes": {str(size): {**asdict(one), "failures": []} for size, one in by_size.items()},
        }
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(
        f"{'' if met else 'TARGET MISSED: '}{total.right:.3%} of {total.verdicts} verdicts right in"
        f" {total.trials} trials ({min(one.right for one in by_fleet.values()):.3%} in the worst sort),"
        f" {total.accused} good nodes accused,"
        f" {total.rounds} rounds at most,"
        + (f" {fewer:.0f}x fewer launches than a tournament of 1024," if fewer is not None else "")
        + f" planned in {max(plan_s.values()):.3f} s"
    )
    return 0 if met else 1


def _show_verdicts(
    fleets: list[str], sizes: dict[int, int], seed: int, jobs: int
) -> tuple[dict[str, Tally], dict[int, Tally]]:
    by_fleet, by_size = {name: Tally() for name in fleets}, {size: Tally() for size in sizes}
    for (fleet, count, _, _), tally in run_all_trials(fleets, sizes, seed, jobs):
        by_fleet[fleet].add(tally)
        by_size[count].add(tally)
    print(f"{'fleets':20} {HEAD}")
    for name, tally in by_fleet.items():
        print(f"{name:20} {tally.row()}")
    print(f"\n{'nodes':20} {HEAD}")
    for size, tally in by_size.items():
        print(f"{size:<20} {tally.row()}")
    failures = [one for tally in by_fleet.values() for one in sorted(tally.failures)]
    failures.sort(key=lambda one: " accused " not in one)
    print(f"\nwrong: {len(failures)}")
    for one in failures[:SHOWN]:
        print(one[:200])
    return by_fleet, by_size


def _show_planning(fleets: list[str]) -> dict[str, float]:
    print(f"\nslowest of the decisions for 1024 nodes, {PLANNED} fleets of each sort (at most {PLAN_S} s of CPU)")
    plan_s = {name: slowest_decision(name, 1024) for name in fleets}
    for name, seconds in plan_s.items():
        print(f"{name:20} {seconds:.3f} s")
    return plan_s


def _show_trial(name: str) -> int:
    fleet, count, seed = name.split(":")
    site, found, score = Trial(fleet, int(count), int(seed)).run()
    blank = type(site)(site.fleet)
    shown = {key: value for key, value in vars(site).items() if value != getattr(blank, key) and key[0] != "_"}
    print(f"{name}: full scale {site.fleet.full_scale}, {shown}")
    if site.fleet.groups:
        print(site.fleet.groups)
    for number in range(found.rounds):
        print(f"round {number + 1}")
        for one in (one for one in found.results if one.round == number):
            print(f"  {one.kind} {one.collective} {'+'.join(one.nodes)}: {one.outcome} {one.value:.2f}")
    for verdict in (*found.verdict.nodes, *found.verdict.links, *found.verdict.groups):
        if verdict.verdict != "good":
            print(verdict)
    print(f"rest: {found.verdict.rest}; accused good nodes: {score.accused or 'none'}")
    print("\n".join(["wrong:", *score.wrong]) if score.wrong else "right")
    return 1 if score.wrong or score.accused else 0


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
