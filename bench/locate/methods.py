"""Three plain ways to look for bad nodes, to compare the planner with.

Each measures alltoall and, unlike the planner, knows what the healthy reach; below 94 % of that a launch is bad.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from acceptance.locate import Launch, Result
from bench.locate.simulated_fleet import LEVELS, Site

COLLECTIVE = "alltoall"


@dataclass
class Effort:
    """What a way of looking cost, and whom it accuses."""

    site: Site
    noise: random.Random
    rounds: int = 0
    launches: int = 0
    accused: set[str] = field(default_factory=set)

    def measure(self, sets: list[tuple[str, ...]]) -> list[bool]:
        """Measure sets of nodes that share none, in one round; return which are good."""
        launches = tuple(Launch("pair" if len(nodes) == 2 else "block", COLLECTIVE, nodes) for nodes in sets)
        results = self.site.measure(launches, self.rounds, self.noise)
        self.rounds += 1
        self.launches += len(launches)
        return [_good(result) for result in results]


def _good(result: Result) -> bool:
    level = LEVELS[result.collective][min((len(result.nodes) - 1).bit_length(), 5)]
    return result.value >= 0.94 * level


def circle(nodes: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    """The rounds of a tournament of an even number: one node stays, the others move on by one place a round."""
    for turn in range(len(nodes) - 1):
        order = [nodes[0], *nodes[1 + turn :], *nodes[1 : 1 + turn]]
        yield [(order[index], order[-1 - index]) for index in range(len(order) // 2)]


def tournament(effort: Effort) -> None:
    """Every node with every other; a node without a good pair is bad."""
    nodes = effort.site.fleet.nodes
    good: set[str] = set()
    for pairs in circle(nodes):
        for pair, fine in zip(pairs, effort.measure(pairs), strict=True):
            good.update(pair if fine else ())
    effort.accused = set(nodes) - good


def pairs_twice(effort: Effort) -> None:
    """Two rounds of neighbours; a node whose two pairs are bad is bad."""
    nodes = effort.site.fleet.nodes
    good: set[str] = set()
    for order in (nodes, (*nodes[1:], nodes[0])):
        pairs = [order[index : index + 2] for index in range(0, len(order), 2)]
        for pair, fine in zip(pairs, effort.measure(pairs), strict=True):
            good.update(pair if fine else ())
    effort.accused = set(nodes) - good


def groups_then_bisect(effort: Effort) -> None:
    """About sqrt(n) groups, then halves of the bad ones; a single node is measured with a node of a good group."""
    nodes = effort.site.fleet.nodes
    size = max(2, round(len(nodes) ** 0.5))
    in_question = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    known_good: list[str] = []
    while in_question:
        helpers = iter(list(known_good))
        asked = [(part, part if len(part) > 1 else (*part, next(helpers, ""))) for part in in_question]
        asked = [(part, whole) for part, whole in asked if "" not in whole]  # too few good nodes to compare with
        in_question = []
        for (part, _), fine in zip(asked, effort.measure([whole for _, whole in asked]), strict=True):
            if fine:
                known_good += part
            elif len(part) == 1:
                effort.accused.update(part)
            else:
                in_question += [part[: len(part) // 2], part[len(part) // 2 :]]


METHODS = {
    "full tournament": tournament,
    "pairs twice": pairs_twice,
    "sqrt(n) groups, then bisect": groups_then_bisect,
}
