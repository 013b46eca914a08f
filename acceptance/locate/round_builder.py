"""A round in the making: which nodes are still free, and who may meet whom. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from acceptance.locate.evidence import Evidence
from acceptance.locate.measurements import SURE
from acceptance.locate.model import Fleet, Launch


class RoundBuilder:
    """A round in the making: no node is used twice. used: the nodes that are taken."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.launches = evidence, list[Launch]()
        self.ring = ring(evidence.measured.fleet)
        self._place = {node: index for index, node in enumerate(self.ring)}
        self.used: set[str] = set()

    def free(self, *nodes: str) -> bool:
        """Whether none of the nodes is taken in this round."""
        return self.used.isdisjoint(nodes)

    def add(self, kind: str, collective: str, *nodes: str) -> bool:
        """Take the nodes for a launch, if they are free."""
        if not self.free(*nodes):
            return False
        self.used.update(nodes)
        self.launches.append(Launch(kind, collective, nodes))
        return True

    def new_pair(self, collective: str, first: str, second: str) -> bool:
        """Take two nodes that have not met in this collective."""
        if first in self.used or second in self.used:
            return False
        met = self.evidence.measured.met[collective]
        return frozenset((first, second)) not in met and self.add("pair", collective, first, second)

    def _met(self, first: str, second: str) -> bool:
        """Whether two nodes have met, in whichever collective."""
        pair = frozenset((first, second))
        return any(pair in met for met in self.evidence.measured.met.values())

    def with_good(self, collective: str, nodes: list[str]) -> list[str]:
        """Pair each node with the nearest free one known to be good that it has not met; return those left over.

        First those with which it was good in another collective, then new ones; of these, those of the same switch
        first, so that a slow uplink casts no doubt on a node.
        """
        measured = self.evidence.measured
        group = measured.group
        places = sorted(self._place[node] for node in measured.good_in[collective] if self.free(node))
        of_switch: dict[str | None, list[int]] = {}
        for place in places:
            of_switch.setdefault(group(self.ring[place]), []).append(place)
        left = []
        for node in nodes:
            if not self.free(node):
                continue
            pools = [places] if group(node) is None else [of_switch.get(group(node), []), places]
            partner = next(
                (one for one in measured.hidden(node, collective) if self.new_pair(collective, node, one)), None
            )
            partner = partner or self._partner(collective, node, pools, self._met)
            partner = partner or self._partner(collective, node, pools)
            if partner is None and len(measured.good_in[collective]) <= SURE:  # so few that it has met them all
                partner = next((one for one in self.ring if one in measured.good_in[collective] and self.free(one)), "")
                partner = partner if partner and self.add("pair", collective, node, partner) else None
            if partner is None:
                left.append(node)
                continue
            for taken in {partner, node} & measured.good_in[collective]:
                places.remove(self._place[taken])
                of_switch[group(taken)].remove(self._place[taken])
        return left

    def _partner(
        self, collective: str, node: str, pools: list[list[int]], but: Callable[[str, str], bool] | None = None
    ) -> str | None:
        """Pair a node with the nearest one of the pools that it has not met, but with none of the excepted."""
        near = (self.ring[place] for pool in pools for place in self._nearest(pool, self._place[node]))
        fit = (other for other in near if but is None or not but(node, other))
        return next((other for other in fit if self.new_pair(collective, node, other)), None)

    def _nearest(self, pool: list[int], place: int) -> Iterator[int]:
        """The places of a sorted pool by their distance from one on the ring, without that one."""
        size, count = len(self.ring), len(pool)
        above = bisect_right(pool, place)
        below = bisect_left(pool, place) - 1
        for _ in range(count - (above - below - 1)):
            up, down = (pool[above % count] - place) % size, (place - pool[below % count]) % size
            if up < down:
                yield pool[above % count]
                above += 1
            else:
                yield pool[below % count]
                below -= 1

    def among(self, collective: str, nodes: list[str]) -> None:
        """Pair nodes with each other that have not met."""
        for index, node in enumerate(nodes):
            if self.free(node):
                next((other for other in nodes[index + 1 :] if self.new_pair(collective, node, other)), None)


def ring(fleet: Fleet) -> list[str]:
    """The nodes in the order of their ranks, those of a switch side by side."""
    first: dict[str, int] = {}
    for index, node in enumerate(fleet.nodes):
        first.setdefault(fleet.groups.get(node, ""), index)
    return sorted(fleet.nodes, key=lambda node: first[fleet.groups.get(node, "")])
