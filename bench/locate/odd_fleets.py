"""Fleets on which a locator is easily wrong, each with what a right verdict on it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from acceptance.locate import Fleet, FullScale, LinkVerdict
from bench.locate.simulated_fleet import (
    NODE_FAULTS,
    Score,
    Search,
    Site,
    break_node,
    group_by,
    node_names,
    random_site,
    run_all,
    score,
)

MEASURED_TWICE = 2  # good partners with which a node must have been slow before a verdict on it is expected


def _site(count: int, dice: random.Random, switches: bool = False) -> Site:
    nodes = node_names(count)
    sizes = [size for size in (4, 8, 16) if 2 * size <= count]
    groups = group_by(nodes, dice.choice(sizes)) if switches and sizes else {}
    return Site(Fleet(nodes, groups), limits=dice.random() < 0.5)


def islands(count: int, dice: random.Random) -> Site:
    """Two islands, now and then three, of at least two nodes each, in a random order; slower or no traffic between."""
    site = _site(count, dice)
    parts = 3 if count > 8 and dice.random() < 0.2 else 2
    order = dice.sample(site.fleet.nodes, count)
    cuts = sorted(dice.sample(range(1, count // 2), parts - 1)) if count > 5 else [1]
    for index, node in enumerate(order):
        site.islands[node] = sum(index // 2 >= cut for cut in cuts)
    site.between_islands = 0.0 if dice.random() < 0.1 else dice.uniform(0.2, 0.9)
    return site


def two_leaves(count: int, dice: random.Random) -> Site:
    """Half of the nodes below each of two leaves, five to seven of 23.6 GB/s between them, in a random order."""
    site = _site(count, dice)
    order = dice.sample(site.fleet.nodes, count)
    site.islands = {node: int(index >= (count + 1) // 2) for index, node in enumerate(order)}
    site.between_islands = dice.uniform(5.0, 7.0) / 23.6
    return site


def two_kinds(count: int, dice: random.Random) -> Site:
    """A fifth to a half of the nodes, two at least, is 8 % slower."""
    site = _site(count, dice)
    slow = max(2, round(count * dice.uniform(0.2, 0.5)))
    site.kind = dict.fromkeys(dice.sample(site.fleet.nodes, slow), 0.92)
    return site


def at_times(count: int, dice: random.Random) -> Site:
    """One or two nodes are slow in half of their launches."""
    site = _site(count, dice)
    for node in dice.sample(site.fleet.nodes, 2 if count > 8 and dice.random() < 0.3 else 1):
        site.at_times[node] = dice.uniform(0.1, 0.85)
    return site


def towards_one_switch(count: int, dice: random.Random) -> Site:
    """One node is slow with the nodes of one other switch, or of one half of the fleet where no topology is known."""
    site = _site(count, dice, switches=dice.random() < 0.7)
    node = dice.choice(site.fleet.nodes)
    others = {one for one in site.fleet.nodes if dice.random() < 0.5} - {node}
    if site.fleet.groups:
        switch = dice.choice(sorted(set(site.fleet.groups.values()) - {site.fleet.groups[node]}))
        others = {one for one, group in site.fleet.groups.items() if group == switch}
    site.towards[node] = (others, dice.uniform(0.1, 0.85))
    return site


def from_third_round(count: int, dice: random.Random) -> Site:
    """One node becomes slow in the third round of pairs."""
    site = _site(count, dice)
    site.from_third_round[dice.choice(site.fleet.nodes)] = dice.uniform(0.1, 0.85)
    return site


def one_hang(count: int, dice: random.Random) -> Site:
    """A healthy fleet; one launch hangs by chance."""
    site = _site(count, dice, switches=True)
    site.hangs_once = dice.randint(2, 2 * count + 1)
    return site


def heavy_tails(count: int, dice: random.Random) -> Site:
    """Bad nodes or none; one launch in a hundred is up to 20 % slower by chance."""
    site = random_site(count, dice) if dice.random() < 0.5 else _site(count, dice, switches=True)
    site.tail = 0.01
    return site


def slow_uplink(count: int, dice: random.Random) -> Site:
    """Bad nodes next to a slow uplink."""
    nodes = node_names(count)
    sizes = [size for size in (4, 8, 16, 32) if 3 * size <= count]
    if not sizes:
        return random_site(count, dice)
    site = Site(Fleet(nodes, group_by(nodes, dice.choice(sizes))), limits=dice.random() < 0.5)
    switch = dice.choice(sorted(set(site.fleet.groups.values())))
    own = [node for node in nodes if site.fleet.groups[node] == switch]
    site.slow_uplinks[switch] = dice.uniform(0.1, 0.85)
    near = [nodes[(nodes.index(own[0]) - 1) % count], nodes[(nodes.index(own[-1]) + 1) % count], own[0]]
    for node in dice.sample(near, dice.randint(1, 2)) + dice.sample(nodes, dice.randint(0, 2)):
        if node not in site.bad_nodes and len(site.bad_nodes) < min(len(own) - 2, (count - 1) // 2):
            break_node(site, node, dice.choice(NODE_FAULTS), dice.uniform(0.1, 0.85))
    return site


def spread(count: int, dice: random.Random) -> Site:
    """A healthy fleet whose pairs differ by 5 %, or a few of which are faster, as measured on public clusters."""
    site = _site(count, dice, switches=dice.random() < 0.3)
    site.pair_spread = _one_in_twenty if dice.random() < 0.5 else _few_faster
    return site


def _one_in_twenty(dice: random.Random) -> float:
    return 1 + dice.gauss(0, 0.05)


def _few_faster(dice: random.Random) -> float:
    return min(0.99 + dice.expovariate(1 / 0.02), 1.09)


def nothing_runs(count: int, dice: random.Random) -> Site:
    """Every launch fails."""
    site = _site(count, dice, switches=True)
    site.nothing_runs = True
    return site


def random_faults(count: int, dice: random.Random) -> Site:
    """Bad nodes, links and switches at random."""
    return random_site(count, dice)


Build = Callable[[int, random.Random], Site]
HEALTHY = (one_hang, spread)
FLEETS: tuple[Build, ...] = (
    random_faults,
    islands,
    two_leaves,
    two_kinds,
    at_times,
    towards_one_switch,
    from_third_round,
    one_hang,
    heavy_tails,
    slow_uplink,
    spread,
    nothing_runs,
)
_LEAST = {islands: 4, two_leaves: 4, two_kinds: 5, at_times: 3, towards_one_switch: 3, from_third_round: 3}


def make(build: Build, count: int, dice: random.Random) -> Site:
    """A fleet of one sort, measured as a whole; fleets too small for it are random ones."""
    if count < _LEAST.get(build, 2):
        build = random_faults
    site = build(count, dice)
    if site.fleet.full_scale is None or build is slow_uplink:
        run_all(site, dice)
        full = site.fleet.full_scale
        if full is not None and (build in HEALTHY or not site.faults):
            site.fleet = replace(site.fleet, full_scale=FullScale(full.collective, dice.random() < 0.5, full.busbw))
    return site


def judge(site: Site, found: Search) -> Score:
    """Compare a verdict with what was made."""
    if not (site.islands or site.kind or site.at_times or site.towards or site.from_third_round or site.nothing_runs):
        return score(site, found) if site.pair_spread is None else _score(site, found, {"good", "suspect"})
    result = _score(site, found, {"good", "suspect"})
    if site.islands:
        result.wrong += _islands_named(site, found)
    return result


def _score(site: Site, found: Search, fine: set[str]) -> Score:
    accused, wrong = [], []
    for one in found.verdict.nodes:
        if one.verdict in ("slow", "failed"):
            if one.node in site.bad_nodes:
                continue
            accused.append(one.node)
        if one.verdict not in fine or (one.verdict == "good" and _seen(site, found, one.node)):
            wrong.append(f"node {one.node}: {one.verdict}: {one.evidence}")
    links = [link for link in found.verdict.links if link.verdict != "suspect" and not _as_a_link(site, found, link)]
    wrong += [f"link {link.nodes} named: {link.evidence}" for link in links]
    if site.pair_spread is not None:
        wrong += [
            f"{group.where} named: {group.evidence}"
            for group in found.verdict.groups
            if group.where not in ("alike", "set")
        ]
    return Score(len(found.verdict.nodes), accused, wrong)


def _as_a_link(site: Site, found: Search, link: LinkVerdict) -> bool:
    """Whether it is the only slow pair that was measured of a node that is slow with some others only."""
    slow = {
        frozenset(one.nodes) for one in found.results if one.kind == "pair" and one.value < 0.9 * PAIR[one.collective]
    }
    return any(node in site.towards and sum(node in pair for pair in slow) == 1 for node in link.nodes)


def _seen(site: Site, found: Search, node: str) -> bool:
    """Whether a bad node was slow with enough good partners that it must not be called good."""
    if node not in site.bad_nodes:
        return False
    slow = {
        (result.collective, result.partner(node))
        for result in found.results
        if result.kind == "pair" and node in result.nodes and result.value < 0.9 * PAIR[result.collective]
    }
    return len({one for one in slow if one[0] == "alltoall"}) >= MEASURED_TWICE


PAIR = {"all_reduce": 487.0, "alltoall": 79.2}


def _islands_named(site: Site, found: Search) -> list[str]:
    """At least one verdict must say that the cause is between nodes; a named island must lie within a real one."""
    named = [group for group in found.verdict.groups if group.where in ("island", "pairs", "kind", "alike")]
    said = ("with each other", "what lies between")  # of nodes that did not all meet
    words = any(text in one.evidence for one in found.verdict.nodes for text in said)
    wrong = [] if named or words else ["islands: not a word about them"]
    for group in named:
        if group.where == "island" and len({site.islands[node] for node in group.nodes}) > 1:
            wrong.append(f"island {group.nodes} is not one")
    return wrong
