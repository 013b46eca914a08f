"""Reasons not to accuse a node although all its pairs with good nodes are bad. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from acceptance.locate.common import Common
from acceptance.locate.measurements import CONFIRMATIONS, SURE, Measurements
from acceptance.locate.model import Result

_SAME_CAUSE = 1.08  # ratio of two bandwidths that may have the same cause
_SAME_KIND = 1.04  # the same for the nodes of one kind: a generation, a driver, a switch
MILD_KIND = 0.85  # share of the healthy level: two nodes that lose less than 15 %, and the same, are likely of one kind
_SHARE_OF_KIND = 0.16  # of the fleet


@dataclass(frozen=True)
class Candidate:
    """A node without a good pair. proofs: its pairs with good nodes, which accuse it; pairs: all in the collective."""

    node: str
    collective: str
    proofs: list[Result]
    pairs: list[Result]

    @cached_property
    def value(self) -> float:
        """What it reaches with good nodes, if it met any."""
        return median(result.value for result in self.proofs or self.pairs)

    def like(self, other: Candidate) -> bool:
        """Whether two nodes may be slow, or fail, for the same reason."""
        low, high = sorted((self.value, other.value))
        return low * _SAME_CAUSE >= high if low else not high and self.pairs[0].outcome == other.pairs[0].outcome


def kind_of_nodes(
    candidates: list[Candidate], fine: Iterable[tuple[str, float]], level: float, count: int
) -> list[str]:
    """The largest number of nodes that are slow alike, if so many share one cause rather than have a fault each.

    fine: what each node with a good pair reaches at best. It is of the kind too if that is as slow: its good pair only
    just passed. level: what the healthy reach; count: the nodes of the fleet.
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
    mild = bool(best) and best[0].value >= MILD_KIND * level
    nodes = [one.node for one in best]
    if mild:
        nodes += [node for node, top in fine if top <= best[0].value * _SAME_KIND]
    least = 2 if mild or 2 * len(nodes) >= count else 3
    return nodes if len(nodes) >= max(least, _SHARE_OF_KIND * count) else []


def _alike(one: Candidate, peer: Candidate) -> bool:
    return not peer.proofs or peer.like(one)


@dataclass(frozen=True)
class Court:
    """What a candidate is judged by, in its collective.

    commons: what pairs of good nodes show in every collective; split: whether there are islands, in any collective.
    kind: the nodes that are slow alike; of_a_kind: those that are in any collective; peers: all nodes without a good
    pair; elsewhere: bad runs of each node with good ones in other collectives.
    """

    measured: Measurements
    common: Common
    commons: dict[str, Common]
    split: bool
    kind: list[str]
    of_a_kind: set[str]
    peers: list[Candidate]
    elsewhere: dict[str, list[Result]]

    def proofs(self, one: Candidate) -> list[Result]:
        """The bad runs of a candidate with good nodes, those in other collectives too."""
        return one.proofs + self.elsewhere.get(one.node, [])

    def doubt(self, one: Candidate) -> str | None:
        """Return the first reason not to accuse a candidate, or None."""
        return next(self._doubts(one), None)

    def unmet(self, one: Candidate, used: Container[str] = ()) -> Iterator[tuple[str, str]]:
        """The nodes with which a candidate may be good, and that it has not met; and why it may be.

        Of the nodes that are as slow, not the used ones.
        """
        for node in self.measured.hidden(one.node, one.collective):
            yield node, "with which it is good in another collective"
        met = {result.partner(one.node) for result in self._runs(one)} | {one.node}
        for result in self.proofs(one):
            for pair in self.commons[result.collective].as_bad(result):
                for node in sorted(pair - met):
                    yield node, "which is as bad with another good node"
        for peer in self.peers:
            if peer.node not in used and peer.node not in met and _alike(one, peer):
                yield peer.node, "which is as slow"

    def _together(self, one: Candidate) -> list[Result]:
        """The runs of a candidate with nodes that may be slow for the same reason."""
        peers = ((result, self._by_node.get(result.partner(one.node))) for result in self._runs(one))
        return [result for result, peer in peers if peer is not None and _alike(one, peer)]

    def _runs(self, one: Candidate) -> list[Result]:
        return [result for by_node in self.measured.pairs.values() for result in by_node.get(one.node, ())]

    def seems_bad(self, one: Candidate) -> bool:
        """Whether a candidate may be accused next. A failing node needs no good partner yet: such nodes are alike."""
        if one.value:
            return bool(one.proofs) and len(self.proofs(one)) >= CONFIRMATIONS
        runs = self._runs(one)
        return len(runs) >= CONFIRMATIONS and not any(map(self.measured.good, runs))

    @cached_property
    def _by_node(self) -> dict[str, Candidate]:
        return {peer.node: peer for peer in self.peers}

    def _doubts(self, one: Candidate) -> Iterator[str]:
        good = self.measured.good_in[one.collective]
        proofs = self.proofs(one)
        partners = {result.partner(one.node) for result in proofs}
        if len(partners) < CONFIRMATIONS:
            yield f"only {len(partners)} of its pairs had a partner known to be good: too little to accuse it"
        if not self.common.spread.excludes([result.value for result in one.proofs]):
            yield "it differs from the good pairs by no more than those spread: too little to accuse it"
        if one.node in self.of_a_kind:
            yield f"{len(self.of_a_kind)} nodes are bad alike: what they share may be the cause, not each node"
        if self.split or self.common.untried(partners):
            yield "nodes that are good with others are bad with each other: it may be on an island of the network"
        level = self.measured.bounds[one.proofs[0].comparable].level
        if one.value >= MILD_KIND * level and any(True for _ in self.common.as_bad(one.proofs[0])):
            yield "good nodes are as slow with each other: the cause may be the same, and not this node"
        if 2 * len(good) <= self.fit:
            yield f"only {len(good)} of {self.fit} nodes have a good pair: too few to accuse others"
        runs = proofs + self._together(one)
        with_whom = {result.partner(one.node) for result in runs}
        # A bad link and one slow run by chance are no proof, with a node that is bad itself besides.
        proven = self.measured.sure(proofs) or sum(map(self.measured.severe, proofs)) >= CONFIRMATIONS
        # Two partners may both be bad at times. Where few nodes are good, repeats with the same two must do.
        if not (proven and self.measured.sure(runs)) or len(with_whom) < min(SURE, len(good) - 1):
            words = f"bad in {len(proofs)} runs with nodes known to be good, with {len(with_whom)} nodes in all"
            yield f"{words}: too little to accuse it"
        for node, why in self.unmet(one):
            yield f"it did not meet {node}, {why}: the two may be good with each other"
        if not self.measured.bounds[one.proofs[0].comparable].sound:
            yield "only one pair at all is fast, and it was not repeated: too little to accuse it"

    @cached_property
    def fit(self) -> int:
        """How many nodes took part in pairs and are not bad alone."""
        collective = self.peers[0].collective
        return sum(1 for node in self.measured.pairs[collective] if node not in self.measured.alone_bad)
