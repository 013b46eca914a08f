"""The results, each judged good or bad, by node and by pair. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from acceptance.locate.level import Kind, bound_of, kind_of
from acceptance.locate.model import Fleet, Result, Rules

CONFIRMATIONS = 2  # bad results that it takes to accuse: of pairs with different nodes known to be good, or repeated


class Measurements:
    """What was measured. By collective: pairs (of each node), met (of each pair), good_in (nodes with a good pair)."""

    def __init__(self, fleet: Fleet, results: Iterable[Result], rules: Rules) -> None:
        self.fleet, self.rules, self.results = fleet, rules, list(results)
        self.rounds = max((result.round for result in self.results), default=-1) + 1
        by_kind: dict[Kind, list[Result]] = defaultdict(list)
        for result in self.results:
            by_kind[kind_of(result)].append(result)
        self.bounds = {kind: bound_of(some, rules) for kind, some in by_kind.items()}
        self._alone()
        self._pairs()

    def good(self, result: Result) -> bool:
        """Whether a result is as it should be."""
        return result.value >= self.bounds[kind_of(result)].below

    def bound(self, result: Result) -> float:
        """The bus bandwidth in GB/s that this result is held against."""
        return self.bounds[kind_of(result)].below

    def _alone(self) -> None:
        self.alone: dict[str, list[Result]] = defaultdict(list)
        for result in self.results:
            if result.kind == "alone":
                self.alone[result.nodes[0]].append(result)
        passed = {node for node, own in self.alone.items() if any(map(self.good, own))}
        # Where most nodes are slow alone it is not theirs: the software, or a limit that does not fit.
        peers = len(passed) >= max(1, len(self.alone) // 4)
        self.alone_bad = set(self.alone) - passed if peers else set()
        self.accused_alone = {node for node in self.alone_bad if len(self.alone[node]) >= CONFIRMATIONS}

    def _pairs(self) -> None:
        collectives = dict.fromkeys([*self.rules.pairs, *(r.collective for r in self.results if r.kind == "pair")])
        self.pairs: dict[str, dict[str, list[Result]]] = {one: defaultdict(list) for one in collectives}
        self.good_in: dict[str, set[str]] = {one: set() for one in collectives}
        self.met: dict[str, dict[frozenset[str], list[Result]]] = {one: defaultdict(list) for one in collectives}
        for result in self.results:
            if result.kind != "pair":
                continue
            self.met[result.collective][frozenset(result.nodes)].append(result)
            for node in result.nodes:
                self.pairs[result.collective][node].append(result)
            if self.good(result):
                self.good_in[result.collective].update(result.nodes)

    def group(self, node: str) -> str | None:
        """The switch of a node, None where it is unknown."""
        return self.fleet.groups.get(node)

    def crossing(self, result: Result) -> tuple[str, str] | None:
        """The two switches between which a pair was measured, None for a pair below one."""
        first, second = (self.group(node) for node in result.nodes)
        return (first, second) if first is not None and second is not None and first != second else None

    def against_good(self, node: str, collective: str) -> list[Result]:
        """The bad pairs of a node with nodes known to be good."""
        good = self.good_in[collective]
        return [r for r in self.pairs[collective].get(node, []) if r.partner(node) in good and not self.good(r)]
