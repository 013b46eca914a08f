"""Reasons not to accuse a node although all its pairs with good nodes are bad. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from acceptance.locate.common import Common
from acceptance.locate.level import kind_of
from acceptance.locate.measurements import CONFIRMATIONS, SURE, Measurements
from acceptance.locate.model import Result

_ALIKE = 1.08  # ratio of two bandwidths that may have the same cause
_SAME_KIND = 1.04  # the same for the nodes of one kind: a generation, a driver, a switch
_MILD = 0.85  # share of the healthy level: two nodes that lose less than 15 %, and the same, are likely of one kind
_SHARE_OF_KIND = 0.16  # of the fleet


@dataclass(frozen=True)
class Candidate:
    """A node that its pairs accuse. proofs: its bad pairs with good nodes; value: what it reaches in these."""

    node: str
    collective: str
    proofs: list[Result]

    @cached_property
    def value(self) -> float:
        """What it reaches with good nodes."""
        return median(result.value for result in self.proofs)

    def like(self, other: Candidate) -> bool:
        """Whether two nodes may be slow, or fail, for the same reason."""
        low, high = sorted((self.value, other.value))
        return low * _ALIKE >= high if low else not high and self.proofs[0].outcome == other.proofs[0].outcome


def kind_of_nodes(candidates: list[Candidate], level: float, count: int) -> list[str]:
    """The largest number of nodes that are slow alike, if so many share one cause rather than have a fault each.

    count: the nodes of the fleet; level: what the healthy reach.
    """
    ranked = sorted((one for one in candidates if one.value > 0), key=lambda one: one.value)
    best: list[Candidate] = []
    start = 0
    for end, one in enumerate(ranked):
        while ranked[start].value * _SAME_KIND < one.value:
            start += 1
        if end + 1 - start > len(best):
            best = ranked[start : end + 1]
    failing = [one for one in candidates if not one.value]
    if len(failing) * 2 >= count:
        best = failing
    mild = bool(best) and best[0].value >= _MILD * level
    least = 2 if mild or 2 * len(best) >= count else 3
    return [one.node for one in best] if len(best) >= max(least, _SHARE_OF_KIND * count) else []


@dataclass(frozen=True)
class Court:
    """What a candidate is judged by, in its collective. split: whether there are islands, in any collective.

    kind: the nodes that are slow alike; peers: all nodes without a good pair; elsewhere: bad runs of each node with
    good ones in other collectives.
    """

    measured: Measurements
    common: Common
    split: bool
    kind: list[str]
    peers: list[Candidate]
    elsewhere: dict[str, list[Result]]

    def doubt(self, one: Candidate) -> str | None:
        """Return the first reason not to accuse a candidate, or None."""
        return next(self._doubts(one), None)

    def unmet(self, one: Candidate) -> list[Candidate]:
        """The nodes that may be slow for the same reason and that the candidate has not met."""
        met = self.measured.met[one.collective]
        return [peer for peer in self._alike(one) if frozenset((one.node, peer.node)) not in met]

    def _alike(self, one: Candidate) -> list[Candidate]:
        return [peer for peer in self.peers if peer.node != one.node and (not peer.proofs or peer.like(one))]

    def _doubts(self, one: Candidate) -> Iterator[str]:
        met, good = self.measured.met[one.collective], self.measured.good_in[one.collective]
        proofs = one.proofs + self.elsewhere.get(one.node, [])
        partners = {result.partner(one.node) for result in proofs}
        if len(partners) < CONFIRMATIONS:
            yield f"only {len(partners)} of its pairs had a partner known to be good: too little to accuse it"
        if not self.measured.distinct([result.value for result in one.proofs], self.common.fine):
            yield "it differs from the good pairs by no more than those spread: too little to accuse it"
        if one.node in self.kind:
            yield f"{len(self.kind)} nodes are bad alike: what they share may be the cause, not each node"
        if self.split or self.common.untried(partners):
            yield "nodes that are good with others are bad with each other: it may be on an island of the network"
        if 2 * len(good) <= self.fit:
            yield f"only {len(good)} of {self.fit} nodes have a good pair: too few to accuse others"
        alike = self._alike(one)
        together = [result for peer in alike for result in met.get(frozenset((one.node, peer.node)), ())]
        if len(proofs) + len(together) < SURE:
            yield f"bad in {len(proofs) + len(together)} runs only: too little to accuse it"
        if alike and not together:
            yield "it met no other node that is as slow: they may be fast with each other"
        if not self.measured.bounds[kind_of(one.proofs[0])].sound:
            yield "only one pair at all is fast, and it was not repeated: too little to accuse it"

    @cached_property
    def fit(self) -> int:
        """How many nodes took part in pairs and are not bad alone."""
        collective = self.peers[0].collective
        return sum(1 for node in self.measured.pairs[collective] if node not in self.measured.alone_bad)
