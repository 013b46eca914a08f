"""The results, each judged good or bad, by node and by pair. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from acceptance.locate.level import ANYTHING_BAD, Bound, Spread, bound_of, spread_of
from acceptance.locate.model import Comparable, Fleet, Result, Rules

CONFIRMATIONS = 2  # different nodes known to be good that a node must be bad with; bad runs of a link or a switch
SURE = 3  # bad runs that it takes to accuse a node or a link: two happen by chance in a large fleet
_PLAIN_LOSS = 0.75  # share of the healthy level: a loss of less than a quarter may be chance, unless each run is alike
_RUNS_ALIKE = 1.03  # five times what pairs spread


@dataclass(frozen=True)
class Measurements:
    """What was measured.

    rounds: how many there were. alone: the results of each node alone; alone_bad: nodes without a good one;
    accused_alone: those of them that were repeated. By collective: pairs (results of each node), met (of each pair),
    good_in (nodes with a good pair).
    """

    fleet: Fleet
    rules: Rules
    results: list[Result]
    rounds: int
    bounds: dict[Comparable, Bound]
    alone: dict[str, list[Result]]
    alone_bad: set[str]
    accused_alone: set[str]
    pairs: dict[str, dict[str, list[Result]]]
    good_in: dict[str, set[str]]
    met: dict[str, dict[frozenset[str], list[Result]]]

    @property
    def nothing_runs(self) -> bool:
        """Whether every launch failed or hung, so that their cause is common: no further launch shows more."""
        return len(self.results) >= len(self.fleet.nodes) and not any(result.value for result in self.results)

    def good(self, result: Result) -> bool:
        """Whether a result is as it should be."""
        return result.value >= self.bounds[result.comparable].below

    @cached_property
    def tops(self) -> dict[str, dict[frozenset[str], Result]]:
        """By collective, the fastest result of each pair."""
        return {collective: {pair: fastest(some) for pair, some in met.items()} for collective, met in self.met.items()}

    def spread(self, collective: str, fine: list[float]) -> Spread:
        """How far these bandwidths of good pairs spread; a limit that alone decides needs no more."""
        return spread_of(fine, self.rules.limits.get((collective, 2))) if self.rules.relative else ANYTHING_BAD

    def sure(self, bad: list[Result]) -> bool:
        """Whether these are so many bad runs that chance is no explanation."""
        if len(bad) != SURE:
            return len(bad) > SURE
        shares = [result.value / (self.bounds[result.comparable].level or 1.0) for result in bad]
        return min(shares) < _PLAIN_LOSS or max(shares) <= _RUNS_ALIKE * min(shares)

    def severe(self, bad: Result) -> bool:
        """Whether a bad run loses more than chance takes from a good one."""
        return bad.value < _PLAIN_LOSS * self.bounds[bad.comparable].level

    def bound(self, result: Result) -> float:
        """The bus bandwidth in GB/s that this result is compared with."""
        return self.bounds[result.comparable].below

    def group(self, node: str) -> str | None:
        """The switch of a node, None where it is unknown."""
        return self.fleet.groups.get(node)

    def crossing(self, result: Result) -> tuple[str, str] | None:
        """The two switches between which a pair was measured, None for a pair below one."""
        if not self.fleet.groups:
            return None
        first, second = (self.group(node) for node in result.nodes)
        return (first, second) if first is not None and second is not None and first != second else None

    def hidden(self, node: str, collective: str) -> list[str]:
        """The nodes with which a node was good in another collective, and that it has not met in this one."""
        others = (by_node.get(node, ()) for other, by_node in self.pairs.items() if other != collective)
        fine = dict.fromkeys(one.partner(node) for some in others for one in some if self.good(one))
        return [other for other in fine if frozenset((node, other)) not in self.met[collective]]

    def against_good(self, node: str, collective: str) -> list[Result]:
        """The bad pairs of a node with nodes known to be good."""
        good = self.good_in[collective]
        return [r for r in self.pairs[collective].get(node, []) if r.partner(node) in good and not self.good(r)]


def fastest(results: list[Result]) -> Result:
    """The first of the fastest results."""
    return results[0] if len(results) == 1 else max(results, key=lambda result: result.value)


def measurements_of(fleet: Fleet, results: Iterable[Result], rules: Rules) -> Measurements:
    """Sort the results and judge each."""
    results = list(results)
    by_kind: dict[Comparable, list[Result]] = defaultdict(list)
    for result in results:
        by_kind[result.comparable].append(result)
    bounds = {kind: bound_of(some, rules) for kind, some in by_kind.items()}
    collectives = dict.fromkeys([*rules.pairs, *(collective for kind, collective, _ in by_kind if kind == "pair")])
    alone: dict[str, list[Result]] = defaultdict(list)
    pairs: dict[str, dict[str, list[Result]]] = {one: defaultdict(list) for one in collectives}
    good_in: dict[str, set[str]] = {one: set() for one in collectives}
    met: dict[str, dict[frozenset[str], list[Result]]] = {one: defaultdict(list) for one in collectives}
    passed: set[str] = set()
    for (kind, collective, _), some in by_kind.items():
        if kind == "alone":
            for result in some:
                alone[result.nodes[0]].append(result)
            passed.update(*(result.nodes for result in some if result.value >= bounds[result.comparable].below))
        elif kind == "pair":
            own, of_pair = pairs[collective], met[collective]
            for result in some:
                first, second = result.nodes
                of_pair[result.node_set].append(result)
                own[first].append(result)
                own[second].append(result)
            good = (result.nodes for result in some if result.value >= bounds[result.comparable].below)
            good_in[collective].update(*good)
    # If more than three quarters are slow alone, no node is the cause: the software is, or a limit that does not fit.
    alone_bad = set(alone) - passed if len(passed) >= max(1, len(alone) // 4) else set()
    rounds = max((result.round for result in results), default=-1) + 1
    measured = Measurements(fleet, rules, results, rounds, bounds, alone, alone_bad, set(), pairs, good_in, met)
    measured.accused_alone.update(node for node in alone_bad if measured.sure(alone[node]))
    return measured
