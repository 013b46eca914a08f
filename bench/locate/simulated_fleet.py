"""Simulated fleets with faults on purpose, and what a right verdict on them is.

A pair runs at the speed of the slowest of its nodes, their network cards and what lies between them. Bus bandwidths of
the healthy in GB/s as measured by others on p5.48xlarge (crazyguitar/aws-gpu-communication-benchmark and
awsome-distributed-training, read 2026-11); their spread as measured: 0.3 % for one node, 0.6 % for pairs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from acceptance.locate import Fleet, FullScale, Launch, Result, Round, Rules, Verdict, decide
from acceptance.runner.search import begin
from acceptance.scenario.model import Scenario, Test

SPREAD = {"alone": 0.003, "pair": 0.006, "block": 0.006, "rest": 0.006}
LEVELS = {  # by the number of nodes, as a power of two: 1, 2, 4, 8, 16, 32 and more
    "all_reduce": (483.0, 487.0, 357.0, 355.0, 356.0, 321.0),
    "alltoall": (300.0, 79.2, 54.1, 49.6, 44.2, 40.8),  # the first, inside a node, is never used
}
EFA_NEEDED = 0.65  # share of a node's EFA that an all_reduce of two nodes needs: 260 of 400 GB/s
NODE_FAULTS = ("network", "inside", "hang", "hang in pairs", "failed", "wrong data")


FROM_ROUND = 3  # the third round of pairs: each node alone is round 0


@cache
def runner_rules(count: int) -> Rules:
    """What `acceptance run` searches `count` p5.48xlarge by, with all_reduce and alltoall in the scenario."""
    tests = tuple(Test(one, one, 1 << 20, 1 << 34, 2, 20, 5, 600) for one in ("all_reduce", "alltoall"))
    scenario = Scenario("simulated", "train", "p5.48xlarge", count, 8, None, tests)
    return begin(scenario, tests[0], list(node_names(count)), {}).rules()


@dataclass
class Site:
    """A fleet and its faults. Factors are shares of the healthy speed; 0 is a hang."""

    fleet: Fleet
    limits: bool = True
    network: dict[str, float] = field(default_factory=dict)
    inside: dict[str, float] = field(default_factory=dict)
    broken: dict[str, tuple[str, bool]] = field(default_factory=dict)  # outcome, and whether alone too
    links: dict[frozenset[str], float] = field(default_factory=dict)
    slow_inside: dict[str, float] = field(default_factory=dict)
    slow_uplinks: dict[str, float] = field(default_factory=dict)
    narrow_uplinks: dict[str, float] = field(default_factory=dict)  # share of the switch's traffic that fits
    islands: dict[str, int] = field(default_factory=dict)  # node -> its island, which no topology shows
    between_islands: float = 1.0
    at_times: dict[str, float] = field(default_factory=dict)  # slow in half of the launches
    towards: dict[str, tuple[set[str], float]] = field(default_factory=dict)  # slow with these nodes only
    from_third_round: dict[str, float] = field(default_factory=dict)
    kind: dict[str, float] = field(default_factory=dict)  # nodes of a slower kind: no fault of a node
    pair_spread: Callable[[random.Random], float] | None = None  # a factor that is fixed for each pair of nodes
    transient: float = 0.0  # share of launches that fail for no lasting reason
    hangs_once: int | None = None  # the launch with this number hangs
    nothing_runs: bool = False
    tail: float = 0.0  # share of launches that are slower by up to 20 % for no lasting reason
    spread: float = 1.0  # multiple of the measured spread
    _launched: int = 0
    _of_pair: dict[frozenset[str], float] = field(default_factory=dict)

    @property
    def bad_nodes(self) -> set[str]:
        """The nodes that are to be blamed."""
        return {*self.network, *self.inside, *self.broken, *self.at_times, *self.towards, *self.from_third_round}

    @property
    def faults(self) -> int:
        """How many things are bad: a node, a link or a switch each count as one."""
        switches = len(self.slow_inside) + len(self.slow_uplinks) + len(self.narrow_uplinks)
        joint = len(set(self.islands.values())) + len(self.kind) + self.nothing_runs
        return len(self.bad_nodes) + len(self.links) + switches + joint

    @property
    def budget(self) -> int:
        """The launches that a search may take: two a node, 20 a fault, and the nodes of a switch that is slow inside.

        From 16 nodes on each collective measures half of the ring, so that the nodes of such a switch have met only
        each other before.
        """
        inside = sum(group in self.slow_inside for group in self.fleet.groups.values())
        return 2 * len(self.fleet.nodes) + 2 + 20 * self.faults + inside

    def rules(self, **changes: Any) -> Rules:
        """The rules that the runner would search this fleet by; without `limits` none is known."""
        rules = runner_rules(len(self.fleet.nodes))
        return replace(rules if self.limits else replace(rules, limits={}), **changes)

    def measure(self, launches: tuple[Launch, ...], number: int, noise: random.Random) -> list[Result]:
        """The results of a round whose launches run at the same time."""
        flows = Counter(g for one in launches if one.kind == "pair" for g in self._left(one.nodes))
        return [self._one(launch, number, flows, noise) for launch in launches]

    def _one(self, launch: Launch, number: int, flows: Counter[str], noise: random.Random) -> Result:
        def result(outcome: str, busbw: float | None) -> Result:
            return Result(number, launch.kind, launch.collective, launch.nodes, outcome, busbw)

        for node in launch.nodes:
            if node in self.broken and (len(launch.nodes) > 1 or self.broken[node][1]):
                return result(self.broken[node][0], None)
        if self.nothing_runs or (self.transient and noise.random() < self.transient):
            return result("failed", None)
        self._launched += 1
        if self._launched == self.hangs_once:
            return result("hang", None)
        factor = self._factor(launch, flows) * self._odd_factor(launch, number, noise)
        if factor == 0:
            return result("hang", None)
        level = LEVELS[launch.collective][min((len(launch.nodes) - 1).bit_length(), 5)]
        return result("ok", level * factor * (1 + noise.gauss(0, SPREAD[launch.kind] * self.spread)))

    def _odd_factor(self, launch: Launch, number: int, noise: random.Random) -> float:
        """What depends on the moment, or on who meets whom."""
        nodes = launch.nodes
        factor = 1 - noise.uniform(0.05, 0.2) if self.tail and noise.random() < self.tail else 1.0
        if len(nodes) == 1:
            return factor
        for node in self.at_times.keys() & set(nodes):
            factor = min(factor, self.at_times[node] if noise.random() < 0.5 else 1.0)
        for node in self.towards.keys() & set(nodes):
            others, slow = self.towards[node]
            factor = min(factor, 1.0 if others.isdisjoint(nodes) else slow)
        if number >= FROM_ROUND:
            factor = min([factor, *(self.from_third_round.get(node, 1.0) for node in nodes)])
        if self.islands and len({self.islands[node] for node in nodes}) > 1:
            factor = min(factor, self.between_islands)
        if self.pair_spread is not None and len(nodes) == 2:
            pair = frozenset(nodes)
            if pair not in self._of_pair:
                self._of_pair[pair] = self.pair_spread(noise)
            factor *= self._of_pair[pair]
        return factor

    def _factor(self, launch: Launch, flows: Counter[str]) -> float:
        inside = min(self.inside.get(node, 1.0) for node in launch.nodes)
        if len(launch.nodes) == 1:
            return inside
        slowest = min(self.network.get(node, 1.0) * self.kind.get(node, 1.0) for node in launch.nodes)
        network = min(slowest, self._between(launch, flows))
        if launch.collective == "alltoall":
            return min(network, 4 * inside)  # a node's share of NVLink is more than four times its share of EFA
        return min(inside, network / EFA_NEEDED) if len(launch.nodes) == 2 else min(inside, network)

    def _between(self, launch: Launch, flows: Counter[str]) -> float:
        """What links and switches leave: in a ring its neighbours matter, in an alltoall every two."""
        nodes, factor = launch.nodes, 1.0
        if len(nodes) == 2 or launch.collective == "all_reduce":
            for first, second in zip(nodes, (*nodes[1:], nodes[0])):  # noqa: B905 - the same length
                factor = min(factor, self.links.get(frozenset((first, second)), 1.0))
        for group in {self.fleet.groups.get(node, "") for node in nodes}:
            factor = min(factor, self.slow_inside.get(group, 1.0))
        for group in self._left(nodes):
            factor = min(factor, self.slow_uplinks.get(group, 1.0))
            share = self.narrow_uplinks.get(group)
            if share is not None:
                size = sum(1 for other in self.fleet.groups.values() if other == group)
                load = flows[group] if len(nodes) == 2 else 2 if launch.collective == "all_reduce" else size
                factor = min(factor, share * size / max(load, 1))
        return factor

    def _left(self, nodes: tuple[str, ...]) -> set[str]:
        """The switches whose uplink a launch uses."""
        groups = {self.fleet.groups[node] for node in nodes if node in self.fleet.groups}
        return groups if len(groups) > 1 else set()


@dataclass
class Search:
    """A finished search."""

    results: list[Result]
    rounds: int
    verdict: Verdict


def search(site: Site, rules: Rules, noise: random.Random) -> Search:
    """Measure what the planner asks for until it gives its verdict."""
    results: list[Result] = []
    rounds = 0
    while True:
        answer = decide(site.fleet, results, rules)
        if isinstance(answer, Verdict):
            return Search(results, rounds, answer)
        check_round(answer)
        results += site.measure(answer.launches, rounds, noise)
        rounds += 1


def check_round(answer: Round) -> None:
    """Fail if two launches of a round share a node: they run at the same time."""
    used = [node for launch in answer.launches for node in launch.nodes]
    if len(used) != len(set(used)):
        raise AssertionError("two launches of a round share a node")


def node_names(count: int) -> tuple[str, ...]:
    """Names as Slurm's on ParallelCluster."""
    return tuple(f"train-st-p5-{number + 1}" for number in range(count))


def group_by(nodes: tuple[str, ...], size: int) -> dict[str, str]:
    """Switches of `size` nodes each; the last has up to twice as many, less one."""
    last = max(len(nodes) // size - 1, 0)
    return {node: f"switch-{min(index // size, last) + 1}" for index, node in enumerate(nodes)}


def random_site(count: int, dice: random.Random, kinds: tuple[str, ...] = NODE_FAULTS) -> Site:
    """A fleet with 0 to 5 bad nodes, now and then a slow link or switch, its topology and limits known or not.

    A slow part loses at least 15 %. Without limits the bad are fewer than the good: else they look alike.
    """
    nodes = node_names(count)
    sizes = [size for size in (4, 8, 16, 32) if 2 * size <= count]
    groups = group_by(nodes, dice.choice(sizes)) if sizes and dice.random() < 0.7 else {}
    site = Site(Fleet(nodes, groups), limits=dice.random() < 0.5)
    for node in dice.sample(nodes, min(dice.randint(0, 5), count - 1 if site.limits else (count - 1) // 2)):
        break_node(site, node, dice.choice(kinds), dice.uniform(0.1, 0.85))
    # A switch with fewer than three healthy nodes cannot be distinguished from bad nodes.
    healthy = Counter(group for node, group in groups.items() if node not in site.bad_nodes)
    names = sorted(group for group, size in healthy.items() if size > 2)
    if count >= 16 and len(set(groups.values())) > 2 and names and dice.random() < 0.2:
        kind = dice.choice([site.slow_inside, site.slow_uplinks])
        kind[dice.choice(names)] = dice.uniform(0.1, 0.85)
    good = [index for index, node in enumerate(nodes) if node not in site.bad_nodes]
    if count > 3 and len(good) > 1 and dice.random() < 0.3:
        first, second = dice.sample(good, 2)
        following = (first + 1) % count
        if dice.random() < 0.5 and following in good:
            second = following
        site.links[frozenset((nodes[first], nodes[second]))] = 0 if dice.random() < 0.2 else dice.uniform(0.1, 0.85)
    run_all(site, dice)
    return site


def run_all(site: Site, noise: random.Random, collective: str = "all_reduce") -> None:
    """Measure all nodes together, as acceptance does before it looks for the one to blame."""
    result = site.measure((Launch("rest", collective, site.fleet.nodes),), -1, noise)[0]
    site.fleet = replace(site.fleet, full_scale=FullScale(collective, site.faults > 0, result.busbw))


def break_node(site: Site, node: str, kind: str, factor: float) -> None:
    """Return a node one of NODE_FAULTS."""
    if kind == "network":
        site.network[node] = factor
    elif kind == "inside":
        site.inside[node] = factor
    elif kind == "hang in pairs":
        site.broken[node] = ("hang", False)
    else:
        site.broken[node] = (kind, kind != "wrong data")


@dataclass
class Score:
    """How right a verdict is. accused: good nodes that were called bad; wrong: what is not as it should be."""

    nodes: int
    accused: list[str]
    wrong: list[str]


def decidable(site: Site) -> bool:
    """Whether pairs can show which node is to blame: most nodes are healthy, and there are two to compare with.

    A bad link takes one more node: in a small fleet its ends are left without good partners.

    Three where no limit is known: two healthy nodes make one pair, and nothing says that it is fast.
    """
    switches = site.slow_inside.keys()
    bad = site.bad_nodes | {node for node, group in site.fleet.groups.items() if group in switches}
    count = len(site.fleet.nodes)
    return count - len(bad) >= (2 if site.limits else 3) and 2 * (len(bad) + len(site.links)) < count


def score(site: Site, found: Search) -> Score:
    """Compare a verdict with the faults that were made."""
    wrong, accused = [], []
    lenient = not decidable(site)
    for verdict in found.verdict.nodes:
        fine = _right_words(site, verdict.node)
        if verdict.verdict not in fine and not (lenient and verdict.verdict == "suspect"):
            wrong.append(f"node {verdict.node}: {verdict.verdict}, not {' or '.join(sorted(fine))}: {verdict.evidence}")
        if verdict.verdict in ("slow", "failed") and verdict.node not in site.bad_nodes:
            accused.append(verdict.node)
    wrong += _wrong_links(site, found) + _wrong_switches(site, found)
    return Score(len(found.verdict.nodes), accused, wrong)


def _right_words(site: Site, node: str) -> set[str]:
    words = {"good"}
    if node in site.bad_nodes:
        words = {"failed" if node in site.broken else "slow"}
    elif site.fleet.failed and not site.limits and not (site.slow_inside or site.slow_uplinks or site.bad_nodes):
        words.add("suspect")
    if site.fleet.groups.get(node) in site.slow_inside:
        words = words - {"good"} | {"infrastructure"}
    return words


def _wrong_links(site: Site, found: Search) -> list[str]:
    """A link that was measured between two good nodes and that no switch hides must be named, and no other."""
    named = {frozenset(link.nodes) for link in found.verdict.links}
    pairs = [result for result in found.results if result.kind == "pair"]
    measured = {frozenset(r.nodes) for r in pairs if r.collective == "alltoall"}
    sure = {frozenset(link.nodes) for link in found.verdict.links if link.verdict != "suspect"}
    wrong = [f"link {sorted(link)} named" for link in sure - site.links.keys()]
    for link in site.links.keys() - named:
        groups = {site.fleet.groups.get(node, "") for node in link}
        hidden = groups & (site.slow_inside.keys() | site.slow_uplinks.keys())
        if link in measured and not hidden and decidable(site):
            wrong.append(f"link {sorted(link)} measured but not named")
    return wrong


def _wrong_switches(site: Site, found: Search) -> list[str]:
    said = {(group, verdict.where) for verdict in found.verdict.groups for group in verdict.groups}
    right = {(group, "inside") for group in site.slow_inside} | {(group, "uplink") for group in site.slow_uplinks}
    if len(set(site.fleet.groups.values())) == 2:  # of two switches no one can say which of their uplinks it is
        right = {one for one in right if one[1] == "inside"}
        right |= {(group, "path") for group in site.fleet.groups.values() if site.slow_uplinks}
    right |= {one for one in said if one[0] in site.narrow_uplinks}
    right |= {(group, "set") for group in site.narrow_uplinks.keys() - {group for group, _ in right}}
    wrong = [f"switch {group} called slow ({where})" for group, where in said - right if where != "set"]
    return wrong + [f"switch {group} ({where}) not found" for group, where in right - said]
