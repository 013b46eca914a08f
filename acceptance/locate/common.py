"""What bad pairs of good nodes have in common: a link, a node that is bad at times, or islands of nodes. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

from acceptance.locate.level import Spread
from acceptance.locate.measurements import Measurements, fastest
from acceptance.locate.model import Result
from acceptance.locate.switches import Switches

Pair = frozenset[str]
_SAME = 1.04  # ratio of two bandwidths that likely have the same cause
_LARGE = 0.2  # share of the good nodes
_MANY = 0.1  # share of the pairs of good nodes that are bad, once each, by no chance


@dataclass(frozen=True)
class Common:
    """What the pairs of good nodes show in one collective; made by `common_of`.

    spread: how far the good pairs spread. fine: the bandwidths of good nodes with each other. bad: the pairs that were
    always bad, and that no switch explains. erratic: nodes that are good with some and bad with others. across: the bad
    pairs between groups of nodes that are joined by good pairs; component: the name of each good node's group.
    """

    spread: Spread
    fine: list[float] = field(default_factory=list)
    bad: dict[Pair, list[Result]] = field(default_factory=dict)
    erratic: dict[str, list[Result]] = field(default_factory=dict)
    across: dict[Pair, list[Result]] = field(default_factory=dict)
    component: dict[str, str] = field(default_factory=dict)

    @cached_property
    def split(self) -> bool:
        """Whether good nodes are bad with each other in a way that one link, one node or chance does not explain."""
        cover = _cover(self.across).values()
        sure = [own for own in cover if len(own) > 1 or len(own[0]) > 1]
        return len(cover) > 1 and (len(sure) > 1 or len(self.across) >= _MANY * (len(self.fine) + len(self.bad)))

    def untried(self, partners: set[str]) -> list[str]:
        """Nodes of large groups that are bad with another large group, if none of these partners is one of them.

        A node that is bad with one of two such groups may belong to the other.
        """
        if len(self._large) < 2:
            return []
        return [node for members in self._large if partners.isdisjoint(members) for node in members]

    @cached_property
    def _large(self) -> list[list[str]]:
        """The large groups of nodes that are good with each other, and bad with those of another group."""
        members: dict[str, list[str]] = defaultdict(list)
        for node, name in self.component.items():
            members[name].append(node)
        ends = {self.component[node] for pair in self.across for node in pair}
        least = max(2, _LARGE * len(self.component))
        return [some for name, some in members.items() if name in ends and len(some) >= least]

    def as_bad(self, bad: Result) -> Iterator[Pair]:
        """The pairs of good nodes that are as bad with each other as this one: their cause may be the same."""
        start = bisect_left(self._ranked, (bad.value / _SAME, "", frozenset()))  # its `key` is not in Python 3.9
        for index in range(start, len(self._ranked)):
            value, outcome, pair = self._ranked[index]
            if value > bad.value * _SAME:
                return
            if outcome == bad.outcome:
                yield pair

    @cached_property
    def _ranked(self) -> list[tuple[float, str, Pair]]:
        """The bad pairs by the best that each reached."""
        tops = ((pair, fastest(some)) for pair, some in self.bad.items())
        return sorted(((top.value, top.outcome, pair) for pair, top in tops), key=itemgetter(0))

    def links(self) -> dict[Pair, list[Result]]:
        """The bad pairs that may be links: neither between islands, nor of an erratic node."""
        left = {pair: some for pair, some in self.bad.items() if not pair & self.erratic.keys()}
        return {pair: some for pair, some in left.items() if not (self.split and pair in self.across)}


def common_of(measured: Measurements, switches: Switches, collective: str) -> Common:
    """Sort the pairs of good nodes: those that are always bad, at times, or never."""
    good, met = measured.good_in[collective], measured.met[collective]
    fine: list[float] = []
    bad: dict[Pair, list[Result]] = {}
    once: dict[Pair, list[Result]] = {}
    joined: list[tuple[Pair, bool]] = []
    for pair, top in measured.tops[collective].items():
        some = met[pair]
        if measured.good(top):
            joined.append((pair, False))
            if len(some) == 1:
                fine.append(top.value)
                continue
            fine.append(min(result.value for result in some if measured.good(result)))
            low = [result for result in some if not measured.good(result)]
            if low:
                once[pair] = low
        elif pair <= good and not switches.explain(some[0]):
            bad[pair] = some
    spread = measured.spread(collective, fine)
    if not bad:
        return Common(spread, fine, bad)
    component, _, _ = _joined((node for node in measured.fleet.nodes if node in good), joined)
    plain = {pair: some for pair, some in bad.items() if spread.excludes([measured.tops[collective][pair].value])}
    own = {pair: some for pair, some in plain.items() if measured.crossing(some[0]) is None}
    across = {pair: some for pair, some in own.items() if len({component[node] for node in pair}) > 1}
    found = Common(spread, fine, bad, {}, across, component)
    inner = {pair: some for pair, some in plain.items() if pair not in across} if found.split else plain
    bad_runs = {
        **inner,
        **{pair: some for pair, some in once.items() if spread.excludes([max(one.value for one in some)])},
    }
    found.erratic.update(_erratic({pair: some for pair, some in bad_runs.items() if switches.innocent(some[0])}))
    return found


def _erratic(pairs: dict[Pair, list[Result]]) -> dict[str, list[Result]]:
    """The nodes that were bad with two good partners or more, the worst first: their partners are not to blame."""
    return {node: [one for some in own for one in some] for node, own in _cover(pairs).items() if len(own) > 1}


def _cover(pairs: dict[Pair, list[Result]]) -> dict[str, list[list[Result]]]:
    """A few nodes that have to do with all pairs, with the results of these: nodes with many pairs first."""
    own: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        for node in sorted(pair):
            own[node].append(pair)
    chosen: dict[str, list[list[Result]]] = {}
    left = set(pairs)
    for node in sorted(own, key=lambda node: -len(own[node])):
        mine = [pair for pair in own[node] if pair in left]
        if mine:
            chosen[node] = [pairs[pair] for pair in mine]
            left.difference_update(mine)
    return chosen


def _joined(nodes: Iterable[str], pairs: Iterable[tuple[Pair, bool]]) -> tuple[dict[str, str], dict[str, bool], bool]:
    """Join nodes to sets by pairs that are on the same side, or apart.

    Return the name of each node's set, which is one of its nodes; whether each node is on the other side than that one;
    and whether the pairs fit to two sides.
    """
    members = {node: [node] for node in nodes}
    name, side = {node: node for node in members}, dict.fromkeys(members, False)
    fit = True
    for (first, second), apart in pairs:
        large, small = name[first], name[second]
        other = side[first] ^ side[second] ^ apart
        if large == small:
            fit = fit and not other
            continue
        if len(members[large]) < len(members[small]):
            large, small = small, large
        for node in members[small]:
            name[node] = large
            side[node] ^= other
        members[large] += members.pop(small)
    return name, side, fit


def islands_of(measured: Measurements, collective: str, found: Common) -> tuple[tuple[str, ...], ...]:
    """The islands by name: two, if each pair fits to two sides, else those that are proven by good pairs."""
    pairs = []
    for pair, top in measured.tops[collective].items():
        good = measured.good(top)
        if good or found.spread.excludes([top.value]):
            pairs.append((pair, not good))
    nodes = [node for node in measured.fleet.nodes if node in measured.pairs[collective]]
    joined, side, fit = _joined(nodes, pairs)
    two = list(_sets(side, nodes)) if fit and len(set(joined.values())) == 1 else []
    if len(two) == 2 and len({side[node] for node in nodes if node in measured.good_in[collective]}) == 2:
        return tuple(sorted(two, key=len, reverse=True))
    name = {node: found.component.get(node, node) for node in nodes}
    return tuple(sorted(_sets(name, nodes), key=len, reverse=True))


def _sets(name: Mapping[str, object], nodes: list[str]) -> Iterator[tuple[str, ...]]:
    """The sets of two nodes or more, by the name of each node's set."""
    sets: dict[object, list[str]] = defaultdict(list)
    for node in nodes:
        sets[name[node]].append(node)
    return (tuple(some) for some in sets.values() if len(some) > 1)
