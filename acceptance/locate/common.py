"""What bad pairs of good nodes have in common: a link, a node that is bad at times, or islands of nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from acceptance.locate.measurements import Measurements
from acceptance.locate.model import Result
from acceptance.locate.switches import Switches

Pair = frozenset[str]
_LARGE = 0.2  # share of the good nodes
_MANY = 0.1  # share of the pairs of good nodes that are bad, once each, by no chance


@dataclass(frozen=True)
class Common:
    """What the pairs of good nodes show in one collective; made by `common_of`.

    fine: the bandwidths of good nodes with each other. bad: the pairs that were always bad, and that no switch
    explains. erratic: nodes that are good with some and bad with others. across: the bad pairs between groups of nodes
    that are joined by good pairs; component: the name of each good node's group.
    """

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
        return [members[name] for name in ends if len(members[name]) >= max(2, _LARGE * len(self.component))]

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
    joined = Joined()
    for pair, some in met.items():
        top = max(some, key=lambda result: result.value)
        if measured.good(top):
            low = [result for result in some if not measured.good(result)]
            fine.append(min(result.value for result in some if result not in low))
            joined.join(pair)
            if low:
                once[pair] = low
        elif pair <= good and not switches.explain(some[0]):
            bad[pair] = some
    fine.sort()  # once: `distinct` looks at them for each pair
    if not bad:
        return Common(fine, bad)
    component = {node: joined.root(node) for node in good}
    plain = {pair: some for pair, some in bad.items() if measured.distinct([max(one.value for one in some)], fine)}
    own = {pair: some for pair, some in plain.items() if measured.crossing(some[0]) is None}
    across = {pair: some for pair, some in own.items() if len({component[node] for node in pair}) > 1}
    found = Common(fine, bad, {}, across, component)
    inner = {pair: some for pair, some in plain.items() if pair not in across} if found.split else plain
    bad_runs = {
        **inner,
        **{pair: some for pair, some in once.items() if measured.distinct([max(one.value for one in some)], fine)},
    }
    erratic = _erratic(
        {pair: some for pair, some in bad_runs.items() if switches.cleared.issuperset(_ends(measured, some))}
    )
    return Common(fine, bad, erratic, across, component)


def _ends(measured: Measurements, some: list[Result]) -> tuple[str, ...]:
    """The two switches that a pair crosses: as long as no good pair left both, the switches may be the cause."""
    return measured.crossing(some[0]) or ()


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


class Joined:
    """Nodes joined to sets, each with whether it is on the same side as its set's root."""

    def __init__(self) -> None:
        self._up: dict[str, tuple[str, bool]] = {}
        self.contradiction = False

    def root(self, node: str) -> str:
        """The node that names the set of a node."""
        return self.side(node)[0]

    def side(self, node: str) -> tuple[str, bool]:
        """The root of a node's set, and whether the node is on the other side than the root."""
        path, other = [], False
        while node in self._up:
            path.append(node)
            node = self._up[node][0]
        for one in reversed(path):
            other ^= self._up[one][1]
            self._up[one] = (node, other)
        return node, other

    def join(self, pair: Iterable[str], apart: bool = False) -> None:
        """Note that two nodes are on the same side, or on different ones."""
        (first, one), (second, other) = (self.side(node) for node in sorted(pair))
        if first == second:
            self.contradiction |= (one ^ other) != apart
        else:
            self._up[second] = (first, one ^ other ^ apart)


def islands_of(measured: Measurements, collective: str, found: Common) -> tuple[tuple[str, ...], ...]:
    """The islands by name: two, if each pair fits to two sides, else those that are proven by good pairs."""
    sides, same = Joined(), Joined()
    for pair, some in measured.met[collective].items():
        top = max(result.value for result in some)
        if top >= measured.bound(some[0]):
            sides.join(pair)
            same.join(pair)
        elif measured.distinct([top], found.fine):
            sides.join(pair, apart=True)
    in_pairs = [node for node in measured.fleet.nodes if node in measured.pairs[collective]]
    two = list(_sets(sides.side, in_pairs))
    if not sides.contradiction and len({sides.root(node) for node in in_pairs}) == 1 and len(two) == 2:
        proven = {sides.side(node) for node in in_pairs if node in measured.good_in[collective]}
        if len(proven) == 2:
            return tuple(sorted(two, key=len, reverse=True))
    return tuple(sorted(_sets(same.root, in_pairs), key=len, reverse=True))


def _sets(name: Callable[[str], object], nodes: list[str]) -> Iterator[tuple[str, ...]]:
    """The sets of two nodes or more, by the name of each node's set."""
    sets: dict[object, list[str]] = defaultdict(list)
    for node in nodes:
        sets[name(node)].append(node)
    return (tuple(some) for some in sets.values() if len(some) > 1)
