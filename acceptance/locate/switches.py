"""Switches that slow their nodes: all of their traffic, what leaves them, or what passes between two. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from acceptance.locate.measurements import CONFIRMATIONS, Measurements
from acceptance.locate.model import Result

GROUP_PROOFS = 3  # bad results, of different nodes, that it takes to accuse a switch
_NODES_ALIKE = 1.08  # a slow switch slows all its nodes alike: the largest ratio of the best to the others


@dataclass(frozen=True)
class Switches:
    """What the measurements show about switches; made by `switches_of`.

    inside, uplinks, paths: the accused, with the results that show it. inside_level: by collective and switch, what
    the nodes reach of a switch that may be slow for all of them. unmet: nodes that are slow alike, but may be fast with
    each other. cleared: switches, with the collective, that a good pair of nodes left; left: those that any pair of
    good nodes left.
    """

    measured: Measurements
    inside: dict[str, list[Result]] = field(default_factory=dict)
    inside_level: dict[tuple[str, str | None], float] = field(default_factory=dict)
    unmet: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    uplinks: dict[str, list[Result]] = field(default_factory=dict)
    paths: dict[frozenset[str], list[Result]] = field(default_factory=dict)
    cleared: set[tuple[str, str]] = field(default_factory=set)
    left: set[tuple[str, str]] = field(default_factory=set)

    def _as_its_switch(self, value: float, group: str | None, collective: str) -> bool:
        """Whether a bandwidth is that of a switch that slows all its nodes; if that was not measured, it may be."""
        level = self.inside_level.get((collective, group))
        return group in self.inside if level is None else value * _NODES_ALIKE >= level

    def represents(self, node: str, collective: str) -> bool:
        """Whether a node is as slow as all nodes of its switch, which may be the cause: then a few represent all."""
        group = self.measured.group(node)
        if group not in self.inside and (collective, group) not in self.inside_level:
            return False
        values = [result.value for result in self.measured.against_good(node, collective)]
        return not values or self._as_its_switch(max(values), group, collective)

    def innocent(self, result: Result) -> bool:
        """Whether no switch may be why a pair is bad: it crosses none, or good pairs left both."""
        ends = self.measured.crossing(result) or ()
        return self.cleared.issuperset((result.collective, group) for group in ends)

    def explain(self, result: Result) -> bool:
        """Whether an accused switch explains a bad pair."""
        if not (self.inside or self.uplinks or self.paths):
            return False
        groups = {self.measured.group(node) for node in result.nodes}
        if any(self._as_its_switch(result.value, g, result.collective) for g in groups & self.inside.keys()):
            return True
        return len(groups) > 1 and (bool(groups & self.uplinks.keys()) or frozenset(groups) in self.paths)


def switches_of(measured: Measurements) -> Switches:
    """Find the switches to blame. Each step takes the switches into account that the steps before it accused."""
    switches = Switches(measured)
    if len(set(measured.fleet.groups.values())) > 1:
        for collective in measured.pairs:
            _find_inside(switches, collective)
            _find_uplinks(switches, collective)
            _find_paths(switches, collective)
    return switches


def _find_inside(switches: Switches, collective: str) -> None:
    """Find the switches none of whose nodes has a good pair, most of them equally slow with good nodes."""
    measured = switches.measured
    members: dict[str, list[str]] = defaultdict(list)
    for node in measured.pairs[collective]:
        group = measured.group(node)
        if group is not None and node not in measured.accused_alone:
            members[group].append(node)
    for group, nodes in members.items():
        if len(nodes) > 2 and measured.good_in[collective].isdisjoint(nodes):
            _judge_inside(switches, group, collective, nodes)


def _judge_inside(switches: Switches, group: str, collective: str, nodes: list[str]) -> None:
    """Accuse a switch if its fastest nodes are alike; slower nodes of it have a fault of their own as well.

    Two of the alike must have met: they could be fast with each other, and then it is the uplink.
    """
    measured = switches.measured
    proofs = {node: measured.against_good(node, collective) for node in nodes}
    best = {node: max(result.value for result in some) for node, some in proofs.items() if some}
    top = max(best.values(), default=0.0)
    alike = [node for node, value in best.items() if value > 0 and value * _NODES_ALIKE >= top]
    if len(alike) < 2 or 2 * len(alike) < len(best):
        return
    level = switches.inside_level[collective, group] = median(best[node] for node in alike)
    among = set(alike)
    met = [r.value for pair, some in measured.met[collective].items() if pair <= among for r in some]
    if not level / _NODES_ALIKE <= max(met, default=0.0) <= level * _NODES_ALIKE:
        switches.unmet[collective, group] = alike
        return
    twice = sum(len(proofs[node]) >= CONFIRMATIONS for node in alike)
    if twice >= min(GROUP_PROOFS, len(alike)):
        switches.inside[group] = [result for node in alike for result in proofs[node]]


def _crossing_results(measured: Measurements, collective: str) -> list[tuple[Result, tuple[str, str]]]:
    """The pairs of good nodes of two switches, with these."""
    good = measured.good_in[collective]
    results = (result for some in measured.met[collective].values() for result in some)
    ends = ((result, measured.crossing(result)) for result in results if good.issuperset(result.nodes))
    return [(result, pair) for result, pair in ends if pair is not None]


def _find_uplinks(switches: Switches, collective: str) -> None:
    """Find the switches whose good nodes are slow with good nodes of other switches, whichever those are."""
    measured = switches.measured
    bad: dict[str, list[Result]] = defaultdict(list)
    fine: dict[str, list[Result]] = defaultdict(list)
    for result, ends in _crossing_results(measured, collective):
        for group in ends:
            (fine if measured.good(result) else bad)[group].append(result)
    switches.cleared.update((collective, group) for group in fine)
    switches.left.update((collective, group) for group in (*bad, *fine))
    while True:
        open_bad = {
            group: [result for result in some if not switches.explain(result)]
            for group, some in bad.items()
            if group not in switches.uplinks
        }
        worst = max(open_bad, key=lambda group: len(open_bad[group]), default=None)
        if worst is None or not _leaves_slowly(measured, worst, open_bad[worst], len(fine[worst])):
            return
        switches.uplinks[worst] = open_bad[worst]


def _leaves_slowly(measured: Measurements, group: str, bad: list[Result], fine: int) -> bool:
    inside = {node for result in bad for node in result.nodes if measured.group(node) == group}
    others = {measured.group(node) for result in bad for node in result.nodes} - {group}
    return len(bad) >= GROUP_PROOFS and len(inside) > 1 and len(others) > 1 and fine * 4 <= len(bad)


def _find_paths(switches: Switches, collective: str) -> None:
    """Find two switches whose good nodes are slow with each other, where neither of the two alone can be blamed."""
    measured = switches.measured
    between: dict[frozenset[str], list[Result]] = defaultdict(list)
    for result, ends in _crossing_results(measured, collective):
        if not switches.explain(result):
            between[frozenset(ends)].append(result)
    two = len(set(measured.fleet.groups.values())) == CONFIRMATIONS
    for pair, results in between.items():
        if not two and not switches.innocent(results[0]):
            continue  # the uplink of one of the two may be the cause
        bad = [result for result in results if not measured.good(result)]
        nodes = {node for result in bad for node in result.nodes}
        wide = all(sum(measured.group(node) == group for node in nodes) > 1 for group in pair)
        if len(bad) >= GROUP_PROOFS and len(bad) == len(results) and wide:
            switches.paths[pair] = bad
