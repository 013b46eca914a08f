"""Seeded trials of the search, one after the other or in several processes, and what they came to."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool

from bench.locate.odd_fleets import FLEETS, judge, make
from bench.locate.simulated_fleet import Score, Search, Site, search

_NODES_PER_TASK = 4000  # simulated nodes that a process searches before it reports
BY_NAME = {build.__name__: build for build in FLEETS}


@dataclass(frozen=True)
class Trial:
    """One simulated search: everything in it follows from these three."""

    fleet: str
    count: int
    seed: int

    @property
    def name(self) -> str:
        """What `--trial` takes to repeat it."""
        return f"{self.fleet}:{self.count}:{self.seed}"

    def run(self) -> tuple[Site, Search, Score]:
        """Make the fleet, search it and judge the verdict."""
        dice = random.Random(self.name)  # noqa: S311 - a seed, so that a trial can be repeated
        site = make(BY_NAME[self.fleet], self.count, dice)
        found = search(site, site.rules(), dice)
        return site, found, judge(site, found)


@dataclass
class Tally:
    """What trials came to. over: random faults that took more launches than they may; failures: trials in words."""

    verdicts: int = 0
    wrong: int = 0
    suspect: int = 0
    trials: int = 0
    wrong_trials: int = 0
    accused: int = 0
    rounds: int = 0
    launches: int = 0
    nodes: int = 0
    over: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count the trials of another tally too."""
        for name in ("verdicts", "wrong", "suspect", "trials", "wrong_trials", "accused", "launches", "nodes", "over"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rounds = max(self.rounds, other.rounds)
        self.failures += other.failures

    @property
    def right(self) -> float:
        """Share of the verdicts on nodes, links and groups that are right."""
        return 1 - self.wrong / max(self.verdicts, 1)

    def row(self) -> str:
        """One line of a table; `HEAD` names the columns."""
        whole, suspect = 1 - self.wrong_trials / max(self.trials, 1), self.suspect / max(self.verdicts, 1)
        cost = self.launches / max(self.nodes, 1)
        return (
            f"{self.trials:7d}  {self.accused:12d}  {self.right:14.3%}  {whole:12.1%}  {suspect:7.2%}"
            f"  {self.rounds:6d}  {cost:10.2f}  {self.over:4d}"
        )


HEAD = " trials  good accused  verdicts right  trials right  suspect  rounds  launches/n  over"


def tally_of(trials: Iterable[Trial]) -> Tally:
    """Run trials one after the other; every wrong verdict on a node, link or group counts."""
    tally = Tally()
    for trial in trials:
        site, found, score = trial.run()
        over = trial.fleet == "random_faults" and len(found.results) > site.budget
        tally.trials += 1
        tally.verdicts += score.nodes
        tally.wrong += len(score.wrong)
        tally.suspect += sum(one.verdict == "suspect" for one in found.verdict.nodes)
        tally.wrong_trials += bool(score.wrong)
        tally.accused += len(score.accused)
        tally.rounds = max(tally.rounds, found.rounds)
        tally.launches += len(found.results)
        tally.nodes += trial.count
        tally.over += over
        tally.failures += [f"{trial.name} accused {', '.join(score.accused)}"] if score.accused else []
        tally.failures += [f"{trial.name} {len(found.results)} launches"] if over else []
        tally.failures += [f"{trial.name} {one}" for one in score.wrong]
    return tally


Task = tuple[str, int, int, int]  # fleet, nodes, first seed, how many


def _run_task(task: Task) -> tuple[Task, Tally]:
    fleet, count, first, number = task
    return task, tally_of(Trial(fleet, count, first + index) for index in range(number))


def run_all_trials(
    fleets: Iterable[str], by_size: dict[int, int], seed: int, jobs: int
) -> Iterator[tuple[Task, Tally]]:
    """Run so many trials of each size with each fleet, from a seed on, large ones first."""
    tasks: list[Task] = []
    for count in sorted(by_size, reverse=True):
        step = max(1, _NODES_PER_TASK // count)
        for first in range(0, by_size[count], step):
            number = min(step, by_size[count] - first)
            tasks += [(fleet, count, seed + first, number) for fleet in fleets]
    if jobs == 1:
        yield from map(_run_task, tasks)
        return
    with Pool(jobs) as pool:
        yield from pool.imap_unordered(_run_task, tasks)
