"""Which nodes and links are to blame. Pure.

A pair runs at the speed of the slowest of its two nodes and their link. So a node is good as soon as one of its pairs
is, and a bad pair accuses a node only if the partner is good in another pair of the same collective.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acceptance.locate.level import TINY, kind_of
from acceptance.locate.measurements import CONFIRMATIONS, Measurements, measurements_of
from acceptance.locate.model import Fleet, Result, Rules
from acceptance.locate.switches import Switches, switches_of

Link = tuple[str, frozenset[str]]  # collective, nodes


@dataclass(frozen=True)
class Evidence:
    """All that follows from the results; made by `evidence_of` for each decision.

    accused: nodes; links: pairs of good nodes that were bad together twice; open_links: once.
    """

    measured: Measurements
    switches: Switches
    accused_by_pairs: set[tuple[str, str]]
    accused: set[str]
    links: dict[Link, list[Result]]
    open_links: dict[Link, Result]

    def proofs(self, node: str, collective: str) -> list[Result]:
        """The bad pairs of a node with good nodes that no switch explains."""
        return _proofs(self.measured, self.switches, node, collective)

    def suspects(self, collective: str) -> list[str]:
        """The nodes with nothing but bad pairs that are not accused yet, in the order of the fleet."""
        measured, switches = self.measured, self.switches
        known = measured.good_in[collective] | self.accused
        nodes = [node for node in measured.fleet.nodes if node in measured.pairs[collective] and node not in known]
        return [n for n in nodes if measured.group(n) not in switches.inside or not switches.represents(n, collective)]

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
        return bool(self.accused or self.switches.inside or self.switches.uplinks or self.switches.paths or self.links)


def evidence_of(fleet: Fleet, results: Iterable[Result], rules: Rules) -> Evidence:
    """Draw the conclusions from all results so far."""
    measured = measurements_of(fleet, results, rules)
    switches = switches_of(measured)
    in_pairs = ((node, collective) for collective, by_node in measured.pairs.items() for node in by_node)
    accused_by_pairs = {pair for pair in in_pairs if _guilty(measured, switches, *pair)}
    accused = measured.accused_alone | {node for node, _ in accused_by_pairs}
    bad_together = _bad_together(measured, switches)
    links = {link: some for link, some in bad_together.items() if len(some) >= CONFIRMATIONS}
    open_links = {link: some[0] for link, some in bad_together.items() if len(some) < CONFIRMATIONS}
    return Evidence(measured, switches, accused_by_pairs, accused, links, open_links)


def _proofs(measured: Measurements, switches: Switches, node: str, collective: str) -> list[Result]:
    return [result for result in measured.against_good(node, collective) if not switches.explain(result)]


def _guilty(measured: Measurements, switches: Switches, node: str, collective: str) -> bool:
    if node in measured.good_in[collective] or switches.represents(node, collective):
        return False
    proofs = _proofs(measured, switches, node, collective)
    partners = {result.partner(node) for result in proofs}
    return len(partners) >= CONFIRMATIONS and measured.bounds[kind_of(proofs[0])].sound


def _bad_together(measured: Measurements, switches: Switches) -> dict[Link, list[Result]]:
    """The pairs of good nodes that are bad together, and that no switch explains."""
    return {
        (collective, pair): some
        for collective, met in measured.met.items()
        for pair, some in met.items()
        if pair <= measured.good_in[collective] and not any(map(measured.good, some)) and not switches.explain(some[0])
    }
