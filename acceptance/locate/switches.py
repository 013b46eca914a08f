"""Switches that slow their nodes: all of their traffic, what leaves them, or what passes between two. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from acceptance.locate.measurements import CONFIRMATIONS, Measurements
from acceptance.locate.model import Fleet, Result, Rules

GROUP_PROOFS = 3  # bad results, of different nodes, that it takes to accuse a switch
_ALIKE = 1.08  # a slow switch slows all its nodes alike: most of the ratio of the best to the others


class Switches(Measurements):
    """What the results say about switches.

    inside, uplinks, paths: the accused, with the results that show it. inside_level: by collective and switch, what
    the nodes reach of a switch that may be slow for all of them.
    """

    def __init__(self, fleet: Fleet, results: Iterable[Result], rules: Rules) -> None:
        super().__init__(fleet, results, rules)
        self._groups()

    def _groups(self) -> None:
        self.inside: dict[str, list[Result]] = {}
        self.inside_level: dict[tuple[str, str | None], float] = {}
        self.unmet: dict[tuple[str, str], list[str]] = {}  # alike nodes that may be fast with each other
        self.uplinks: dict[str, list[Result]] = {}
        self.paths: dict[frozenset[str], list[Result]] = {}
        self.cleared: set[str] = set()  # switches that a good pair of nodes left
        self.left: set[str] = set()  # switches that any pair of good nodes left
        if len(set(self.fleet.groups.values())) < 2:
            return
        for collective in self.pairs:
            self._slow_inside(collective)
            self._slow_uplinks(collective)
            self._slow_paths(collective)

    def _slow_inside(self, collective: str) -> None:
        """Find the switches none of whose nodes has a good pair, most of them equally slow with good nodes."""
        members: dict[str, list[str]] = defaultdict(list)
        for node in self.pairs[collective]:
            group = self.group(node)
            if group is not None and node not in self.accused_alone:
                members[group].append(node)
        for group, nodes in members.items():
            if len(nodes) > 2 and self.good_in[collective].isdisjoint(nodes):
                self._judge_inside(group, collective, nodes)

    def _judge_inside(self, group: str, collective: str, nodes: list[str]) -> None:
        """Accuse a switch if its fastest nodes are alike; slower ones among them have a fault of their own as well.

        Two of the alike must have met: they could be fast with each other, and then it is the uplink.
        """
        proofs = {node: self.against_good(node, collective) for node in nodes}
        best = {node: max(result.value for result in some) for node, some in proofs.items() if some}
        top = max(best.values(), default=0.0)
        alike = [node for node, value in best.items() if value > 0 and value * _ALIKE >= top]
        if len(alike) < 2 or 2 * len(alike) < len(best):
            return
        level = self.inside_level[collective, group] = median(best[node] for node in alike)
        met = [r.value for pair, some in self.met[collective].items() if pair <= set(alike) for r in some]
        if not level / _ALIKE <= max(met, default=0.0) <= level * _ALIKE:
            self.unmet[collective, group] = alike
            return
        twice = sum(len(proofs[node]) >= CONFIRMATIONS for node in alike)
        if twice >= min(GROUP_PROOFS, len(alike)):
            self.inside[group] = [result for node in alike for result in proofs[node]]

    def _as_its_switch(self, value: float, group: str | None, collective: str) -> bool:
        """Whether a bandwidth is that of a switch that slows all its nodes; where it was not measured, it may be."""
        level = self.inside_level.get((collective, group))
        return group in self.inside if level is None else value * _ALIKE >= level

    def stands_for_switch(self, node: str, collective: str) -> bool:
        """Whether a node is slow in the way of all nodes of a switch that may be slow: then a few stand for all."""
        group = self.group(node)
        if group not in self.inside and (collective, group) not in self.inside_level:
            return False
        own = [result.value for result in self.against_good(node, collective)]
        return not own or self._as_its_switch(max(own), group, collective)

    def _cross_results(self, collective: str) -> tuple[dict[str, list[Result]], dict[str, list[Result]]]:
        """By switch: the bad pairs of good nodes that leave it, and the good pairs that do."""
        bad: dict[str, list[Result]] = defaultdict(list)
        fine: dict[str, list[Result]] = defaultdict(list)
        good = self.good_in[collective]
        for some in self.met[collective].values():
            for result in some:
                ends = self.crossing(result)
                if ends is None or not good.issuperset(result.nodes):
                    continue
                for group in ends:
                    (fine if self.good(result) else bad)[group].append(result)
        return bad, fine

    def _slow_uplinks(self, collective: str) -> None:
        """Find the switches whose good nodes are slow with good nodes of other switches, whichever those are."""
        bad, fine = self._cross_results(collective)
        self.cleared.update(group for group, some in fine.items() if some)
        self.left.update(group for by in (bad, fine) for group, some in by.items() if some)
        while True:
            open_bad = {
                g: [r for r in some if not self.by_group(r)] for g, some in bad.items() if g not in self.uplinks
            }
            group = max(open_bad, key=lambda one: len(open_bad[one]), default=None)
            if group is None or not self._leaves_slowly(group, open_bad[group], len(fine[group])):
                return
            self.uplinks[group] = open_bad[group]

    def _leaves_slowly(self, group: str, bad: list[Result], fine: int) -> bool:
        own = {node for result in bad for node in result.nodes if self.group(node) == group}
        others = {self.group(node) for result in bad for node in result.nodes} - {group}
        return len(bad) >= GROUP_PROOFS and len(own) > 1 and len(others) > 1 and fine * 4 <= len(bad)

    def _slow_paths(self, collective: str) -> None:
        """Find two switches whose good nodes are slow with each other, where neither of the two can be told apart."""
        between: dict[frozenset[str], list[Result]] = defaultdict(list)
        good = self.good_in[collective]
        for some in self.met[collective].values():
            for result in some:
                ends = self.crossing(result)
                if ends and good.issuperset(result.nodes) and not self.by_group(result):
                    between[frozenset(ends)].append(result)
        for pair, results in between.items():
            bad = [result for result in results if not self.good(result)]
            nodes = {node for result in bad for node in result.nodes}
            wide = all(sum(self.group(node) == group for node in nodes) > 1 for group in pair)
            if len(bad) >= GROUP_PROOFS and len(bad) == len(results) and wide:
                self.paths[pair] = bad

    def by_group(self, result: Result) -> bool:
        """Whether an accused switch explains a bad pair."""
        groups = {self.group(node) for node in result.nodes}
        if any(self._as_its_switch(result.value, g, result.collective) for g in groups & self.inside.keys()):
            return True
        return len(groups) > 1 and (bool(groups & self.uplinks.keys()) or frozenset(groups) in self.paths)
