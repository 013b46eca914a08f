"""Which nodes and links are to blame. Pure.

A pair runs at the speed of the slowest of its two nodes and their link. So a node is good as soon as one of its pairs
is, and a bad pair accuses a node only if the partner is good in another pair of the same collective.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from acceptance.locate.common import Common, common_of
from acceptance.locate.doubts import Candidate, Court, kind_of_nodes
from acceptance.locate.level import TINY
from acceptance.locate.measurements import SURE, Measurements, fastest, measurements_of
from acceptance.locate.model import Fleet, Result, Rules
from acceptance.locate.switches import Switches, switches_of

Link = tuple[str, frozenset[str]]  # collective, nodes


@dataclass(frozen=True)
class Evidence:
    """All that follows from the results; made by `evidence_of` for each decision.

    accused: nodes; accused_by_pairs: those of them that their pairs accuse, with the collective; doubts: why a node
    that its pairs would accuse is not accused; common, courts: by collective, what pairs of good nodes show and what
    candidates are judged by. links: pairs of good nodes that were bad together twice, both ends good with others;
    open_links: the others.
    """

    measured: Measurements
    switches: Switches
    common: dict[str, Common]
    courts: dict[str, Court]
    accused_by_pairs: set[tuple[str, str]]
    accused: set[str]
    doubts: dict[tuple[str, str], str]
    links: dict[Link, list[Result]]
    open_links: dict[Link, list[Result]]

    def proofs(self, node: str, collective: str) -> list[Result]:
        """The bad pairs of a node with good nodes that no switch explains."""
        return _proofs(self.measured, self.switches, node, collective)

    def suspects(self, collective: str) -> list[str]:
        """The nodes with nothing but bad pairs that are not accused yet, in the order of the fleet."""
        measured, switches = self.measured, self.switches
        known = measured.good_in[collective] | self.accused | self.excused[collective]
        nodes = [node for node in measured.fleet.nodes if node in measured.pairs[collective] and node not in known]
        return [n for n in nodes if measured.group(n) not in switches.inside or not switches.represents(n, collective)]

    @cached_property
    def excused(self) -> dict[str, set[str]]:
        """By collective, the nodes that are good in another one, and bad in this one only for known reasons."""
        good_in = self.measured.good_in
        return {
            collective: {
                node
                for node in set().union(*(good_in[other] for other in good_in if other != collective))
                if node not in good and all(self._has_a_reason(node, one) for one in self._met(node, collective))
            }
            for collective, good in good_in.items()
        }

    def _has_a_reason(self, node: str, bad: Result) -> bool:
        pair = bad.node_set
        linked = any((other, pair) in some for some in (self.links, self.open_links) for other in self.common)
        return linked or bad.partner(node) in self.accused or self.switches.explain(bad)

    def _met(self, node: str, collective: str) -> list[Result]:
        return self.measured.pairs[collective].get(node, [])

    def untested(self, collective: str) -> list[str]:
        """The nodes that took part in no pair yet and could."""
        pairs = self.measured.pairs[collective]
        return [node for node in self.measured.fleet.nodes if node not in pairs and node not in self.measured.alone_bad]

    def rest(self) -> Result | None:
        """The last run over all nodes but the accused."""
        return next((result for result in reversed(self.measured.results) if result.kind == "rest"), None)

    def rest_passed(self, result: Result) -> bool:
        """Whether the fleet is fast without the accused: by the whole fleet's limit, else by what it was before."""
        fleet, rules = self.measured.fleet, self.measured.rules
        limit = rules.limits.get((result.collective, len(fleet.nodes)))
        if limit is None and fleet.full_scale is not None and fleet.full_scale.busbw is not None:
            limit = fleet.full_scale.busbw / rules.factor
        return result.value >= max(limit or 0.0, TINY)

    def blamed(self) -> set[str]:
        """The nodes that the fleet is better off without: the accused, those of bad switches, one end of bad links."""
        switches = self.switches.inside.keys() | self.switches.uplinks.keys()
        nodes = self.accused | {n for n in self.measured.fleet.nodes if self.measured.group(n) in switches}
        return nodes | {max(pair) for _, pair in self.links if not pair & nodes}

    def any_blame(self) -> bool:
        """Whether anything is to blame so far."""
        switches = self.switches
        joint = any(one.erratic or one.split for one in self.common.values()) or any(
            court.kind for court in self.courts.values()
        )
        return bool(self.accused or switches.inside or switches.uplinks or switches.paths or self.links or joint)


def evidence_of(fleet: Fleet, results: Iterable[Result], rules: Rules) -> Evidence:
    """Draw the conclusions from all results so far."""
    measured = measurements_of(fleet, results, rules)
    switches = switches_of(measured)
    common = {collective: common_of(measured, switches, collective) for collective in measured.pairs}
    peers = {collective: _peers(measured, switches, collective) for collective in measured.pairs}
    split = any(one.split for one in common.values())
    courts = {}
    doubts: dict[tuple[str, str], str] = {}
    accused_by_pairs: set[tuple[str, str]] = set()
    kinds = {collective: _kind(measured, common[collective], some) for collective, some in peers.items()}
    of_a_kind = set().union(*kinds.values())
    for collective, some in peers.items():
        elsewhere = _elsewhere(measured, switches, collective, some)
        court = courts[collective] = Court(
            measured, common[collective], common, split, kinds[collective], of_a_kind, some, elsewhere
        )
        for one in (one for one in some if one.proofs):
            reason = court.doubt(one)
            if reason is None:
                accused_by_pairs.add((one.node, collective))
            else:
                doubts[one.node, collective] = reason
    accused = measured.accused_alone | {node for node, _ in accused_by_pairs}
    links: dict[Link, list[Result]] = {}
    open_links: dict[Link, list[Result]] = {}
    for collective, found in common.items():
        for pair, runs in found.links().items() if not split else ():
            sure = len(runs) >= SURE and ends_are_good(measured, collective, pair, found)
            if sure or (collective, 2) in rules.limits or found.spread.excludes([max(one.value for one in runs)]):
                (links if sure else open_links)[collective, pair] = runs
    return Evidence(measured, switches, common, courts, accused_by_pairs, accused, doubts, links, open_links)


def _proofs(measured: Measurements, switches: Switches, node: str, collective: str) -> list[Result]:
    """The bad pairs of a node with good nodes; between two switches only where good pairs left both."""
    own = measured.against_good(node, collective)
    return [result for result in own if not switches.explain(result) and switches.innocent(result)]


def _peers(measured: Measurements, switches: Switches, collective: str) -> list[Candidate]:
    """The nodes without a good pair; not those that are good in another collective and met only bad nodes in this."""
    good, alone = measured.good_in[collective], measured.alone_bad
    nodes = [node for node in measured.pairs[collective] if node not in good and node not in alone]
    nodes = [node for node in nodes if not switches.represents(node, collective)]
    fine = set().union(*(some for other, some in measured.good_in.items() if other != collective))
    found = [
        Candidate(node, collective, _proofs(measured, switches, node, collective), measured.pairs[collective][node])
        for node in nodes
    ]
    return [one for one in found if one.proofs or one.node not in fine]


def _elsewhere(
    measured: Measurements, switches: Switches, collective: str, peers: list[Candidate]
) -> dict[str, list[Result]]:
    """The bad runs of each node in other collectives, with nodes that are good in this one and in that one."""
    good = measured.good_in[collective]
    others = [by_node for other, by_node in measured.pairs.items() if other != collective]
    runs: dict[str, list[Result]] = {}
    for node in [one.node for one in peers] if others else ():
        met = [result for by_node in others for result in by_node.get(node, ()) if result.partner(node) in good]
        # A good pair in another collective contradicts what is bad there, so that it is no proof.
        if not any(map(measured.good, met)):
            bad = [one for one in met if one.partner(node) in measured.good_in[one.collective]]
            runs[node] = [one for one in bad if not switches.explain(one) and switches.innocent(one)]
    return runs


def _kind(measured: Measurements, common: Common, peers: list[Candidate]) -> list[str]:
    known = [one for one in peers if one.proofs]
    if not common.fine or not any(common.spread.excludes([result.value for result in one.proofs]) for one in known):
        return []
    collective = known[0].collective
    pairs = measured.pairs[collective]
    good = measured.good_in[collective]
    fine = ((node, fastest(pairs[node]).value) for node in measured.fleet.nodes if node in good)
    return kind_of_nodes(known, fine, median(common.fine), len(measured.fleet.nodes))


def ends_are_good(measured: Measurements, collective: str, pair: frozenset[str], found: Common) -> bool:
    """Whether each end of a bad pair was good, after it was bad, with a third node that is good with the other end.

    Else one end may be bad at times, or with some nodes only.
    """
    some = measured.met[collective][pair]
    if not found.spread.excludes([max(result.value for result in some)]):
        return False
    own = measured.pairs[collective]
    partners = {node: {one.partner(node) for one in own[node] if measured.good(one)} for node in pair}
    first, second = sorted(pair)
    for node, others in ((first, partners[second]), (second, partners[first])):
        groups = {measured.group(other) for other in pair - {node}} - {None}
        late = [one for one in own[node] if one.round > some[0].round and measured.good(one)]
        if not any(one.partner(node) in others or measured.group(one.partner(node)) in groups for one in late):
            return False
    return True
