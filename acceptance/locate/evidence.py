"""Who is to blame. Pure.

A pair runs at the speed of the slowest of its two nodes and their link. So a node is good as soon as one of its pairs
is, and a bad pair accuses a node only if the partner has shown to be good elsewhere, in the same collective.
"""

from __future__ import annotations

from collections.abc import Iterable

from acceptance.locate.level import TINY, kind_of
from acceptance.locate.measurements import CONFIRMATIONS
from acceptance.locate.model import Fleet, Result, Rules
from acceptance.locate.switches import Switches


class Evidence(Switches):
    """Everything that follows from the results; made anew for each decision.

    accused: nodes; links: pairs of good nodes that were bad together twice; open_links: once.
    """

    def __init__(self, fleet: Fleet, results: Iterable[Result], rules: Rules) -> None:
        super().__init__(fleet, results, rules)
        measured = ((node, collective) for collective, own in self.pairs.items() for node in own)
        self.accused_by_pairs = {one for one in measured if self._guilty(*one)}
        self.accused = self.accused_alone | {node for node, _ in self.accused_by_pairs}
        self._links()

    def proofs(self, node: str, collective: str) -> list[Result]:
        """The bad pairs of a node with good ones that no switch explains."""
        return [result for result in self.against_good(node, collective) if not self.by_group(result)]

    def _guilty(self, node: str, collective: str) -> bool:
        if node in self.good_in[collective] or self.stands_for_switch(node, collective):
            return False
        proofs = self.proofs(node, collective)
        partners = {result.partner(node) for result in proofs}
        return len(partners) >= CONFIRMATIONS and self.bounds[kind_of(proofs[0])].sound

    def _links(self) -> None:
        """Find the pairs of good nodes that are bad together: repeated (a bad link) or not yet."""
        self.links: dict[tuple[str, frozenset[str]], list[Result]] = {}
        self.open_links: dict[tuple[str, frozenset[str]], Result] = {}
        for collective, met in self.met.items():
            good = self.good_in[collective]
            for pair, some in met.items():
                if any(map(self.good, some)) or not pair <= good or self.by_group(some[0]):
                    continue
                if len(some) >= CONFIRMATIONS:
                    self.links[collective, pair] = some
                else:
                    self.open_links[collective, pair] = some[0]

    def suspects(self, collective: str) -> list[str]:
        """The nodes with nothing but bad pairs that are not accused yet, in the order of the fleet."""
        known = self.good_in[collective] | self.accused
        open_nodes = [node for node in self.fleet.nodes if node in self.pairs[collective] and node not in known]
        return [n for n in open_nodes if self.group(n) not in self.inside or not self.stands_for_switch(n, collective)]

    def untested(self, collective: str) -> list[str]:
        """The nodes that took part in no pair yet and could."""
        pairs = self.pairs[collective]
        return [node for node in self.fleet.nodes if node not in pairs and node not in self.alone_bad]

    def rest(self) -> Result | None:
        """The last run over all nodes but the accused."""
        return next((result for result in reversed(self.results) if result.kind == "rest"), None)

    def rest_passed(self, result: Result) -> bool:
        """Whether the fleet is fast without the accused: by the whole fleet's limit, else by what it was before."""
        before = self.fleet.full_scale
        limit = self.rules.limits.get((result.collective, len(self.fleet.nodes)))
        if limit is None and before is not None and before.busbw is not None:
            limit = before.busbw / self.rules.factor
        return result.value >= max(limit or 0.0, TINY)

    def blamed(self) -> set[str]:
        """The nodes that the fleet is better off without: the accused, those of bad switches, one end of bad links."""
        switches = self.inside.keys() | self.uplinks.keys()
        nodes = self.accused | {node for node in self.fleet.nodes if self.group(node) in switches}
        return nodes | {max(pair) for _, pair in self.links if not pair & nodes}

    def found(self) -> bool:
        """Whether anything is to blame so far."""
        return bool(self.accused or self.inside or self.uplinks or self.paths or self.links)
