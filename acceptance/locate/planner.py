"""What to measure next, or the verdict. Pure: it starts nothing, and the same results give the same answer.

The rounds: each node alone; disjoint pairs along the ring of ranks; the ring's other links, where every suspect meets
a node known to be good; then, while something is open, suspects with other good nodes, bad links once more, other
nodes of the switches they cross; at last the fleet without the accused, or, if nothing was found although the fleet
fails, parts of it. Two rounds of ring neighbours measure every link that a ring over all nodes uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from acceptance.locate.blocks import next_blocks
from acceptance.locate.evidence import Evidence, ends_are_good, evidence_of
from acceptance.locate.measurements import CONFIRMATIONS, SURE
from acceptance.locate.model import Fleet, Launch, Result, Round, Rules, Verdict
from acceptance.locate.round_builder import RoundBuilder, ring
from acceptance.locate.switches import GROUP_PROOFS
from acceptance.locate.verdict import verdict_of

_MOST_OF_KIND = 8  # nodes that are slow alike of which each is measured further
_MANY_BAD = 0.2  # share of bad pairs from which on the ring's other links are measured too


def decide(fleet: Fleet, results: Iterable[Result], rules: Rules) -> Round | Verdict:
    """Return the next round of launches, or the verdict when nothing more can be learned or the bound is reached."""
    evidence = evidence_of(fleet, results, rules)
    if evidence.measured.rounds < rules.max_rounds and len(fleet.nodes) > 1 and not evidence.measured.nothing_runs:
        for stage in _STAGES:
            found = stage(evidence)
            if found is not None and found.launches:
                return found
    return verdict_of(evidence)


def _alone(evidence: Evidence) -> Round | None:
    measured = evidence.measured
    collective = measured.rules.alone
    if collective is None or measured.alone:
        return None
    launches = tuple(Launch("alone", collective, (node,)) for node in measured.fleet.nodes)
    return Round(launches, "each node alone: its GPUs and what joins them")


def _sweeps(evidence: Evidence) -> int:
    return len({result.round for result in evidence.measured.results if result.kind == "pair"})


def _first_pairs(evidence: Evidence) -> Round | None:
    if _sweeps(evidence) > 0:
        return None
    plan, collective = RoundBuilder(evidence), evidence.measured.rules.pairs[0]
    _alone_again(plan)
    left = _along_ring(plan, collective, 0)
    plan.among(collective, left)
    return Round(tuple(plan.launches), "neighbours in pairs")


def _second_pairs(evidence: Evidence) -> Round | None:
    measured = evidence.measured
    if _sweeps(evidence) != 1:
        return None
    collectives = measured.rules.pairs
    collective = collectives[1 % len(collectives)]
    plan = RoundBuilder(evidence)
    _alone_again(plan)
    if collective == collectives[0]:
        plan.with_good(collective, _in_question(evidence, collective))
    left = _along_ring(plan, collective, 1)
    plan.among(collective, [node for node in left if node not in measured.good_in[collective]])
    return Round(tuple(plan.launches), "the other neighbours; each suspect with a node known to be good")


def _along_ring(plan: RoundBuilder, collective: str, start: int) -> list[str]:
    """Pair every second link of the ring, beginning at `start`; return the nodes that are left."""
    nodes = plan.ring
    usable = [node not in plan.evidence.measured.alone_bad and node not in plan.evidence.accused for node in nodes]
    for index in range(start, len(nodes) - 1 + start, 2):
        following = (index + 1) % len(nodes)
        if index < len(nodes) and usable[index] and usable[following] and index != following:
            plan.new_pair(collective, nodes[index], nodes[following])
    return [node for node, fit in zip(nodes, usable) if fit and plan.free(node)]


def _alone_again(plan: RoundBuilder) -> None:
    """Repeat what failed alone: instead of a pair, in which it would only cast doubt on its partner."""
    measured = plan.evidence.measured
    for node in measured.fleet.nodes:
        own = measured.alone.get(node, [])
        if node in measured.alone_bad and node not in measured.accused_alone:
            plan.add("alone", own[0].collective, node)


def _in_question(evidence: Evidence, collective: str) -> list[str]:
    """The nodes to pair with good ones: suspects and those never paired, those with the fewest bad runs first.

    If a switch seems slow for all its nodes, a few of them represent the others; so of many nodes that are slow alike.
    """
    chosen, of_group = [], dict[str, int]()
    kind = set(evidence.courts[collective].kind[_MOST_OF_KIND:])
    last = evidence.measured.rules.pairs[-1]
    for node in evidence.untested(collective) + evidence.suspects(collective):
        # What is bad in the last collective is pursued there: no bad network is hidden from an alltoall.
        if node in kind or (collective != last and node not in evidence.measured.good_in[last]):
            continue
        group = evidence.measured.group(node)
        if group is not None and evidence.switches.represents(node, collective):
            of_group[group] = of_group.get(group, 0) + 1
            if of_group[group] > GROUP_PROOFS:
                continue
        chosen.append(node)
    runs = {node: len(evidence.proofs(node, collective)) for node in chosen}
    return sorted((node for node in chosen if runs[node] <= SURE + 1), key=lambda node: runs[node])


def _follow_up(evidence: Evidence) -> Round | None:
    plan = RoundBuilder(evidence)
    _alone_again(plan)
    for collective in dict.fromkeys(reversed(evidence.measured.rules.pairs)):
        for (measured, _), alike in evidence.switches.unmet.items():
            if measured == collective:
                plan.among(collective, alike)
        _second_look(plan, collective)
        if any(len(one.proofs) >= CONFIRMATIONS for one in evidence.courts[collective].peers):
            _third_look(plan, collective)
        _with_each_other(plan, collective)
        plan.among(collective, plan.with_good(collective, _in_question(evidence, collective)))
        _third_look(plan, collective)
        _links_again(plan, collective)
        _other_neighbours(plan, collective)
        if collective == evidence.measured.rules.pairs[-1]:
            _cover_switches(plan)
        if len(plan.ring) == CONFIRMATIONS and not evidence.measured.good_in[collective]:
            plan.add("pair", collective, *plan.ring)
    return Round(tuple(plan.launches), "suspects with other good nodes and with each other; bad links again")


def _with_each_other(plan: RoundBuilder, collective: str) -> None:
    """Pair nodes that would be accused with those with which they may be good: on an island they are fast so."""
    evidence = plan.evidence
    court = evidence.courts[collective]
    kind = set(court.kind[2 * _MOST_OF_KIND :])
    for one in court.peers:
        if not court.seems_bad(one) or one.node in kind or not plan.free(one.node):
            continue
        untried = evidence.common[collective].untried({result.partner(one.node) for result in one.proofs})
        others = chain(untried, (node for node, _ in court.unmet(one, plan.used)))
        next((other for other in others if other not in plan.used and plan.new_pair(collective, one.node, other)), None)


def _other_neighbours(plan: RoundBuilder, collective: str) -> None:
    """Measure the ring's other links in this collective too where no topology is known and many pairs are bad.

    With both halves of the ring measured, islands of nodes can be named.
    """
    measured = plan.evidence.measured
    if measured.fleet.groups:
        return
    results = [one for some in measured.met[collective].values() for one in some]
    bad = sum(not measured.good(result) for result in results)
    if len(results) < 3 or bad < _MANY_BAD * len(results):
        return
    for start in (0, 1):
        nodes = plan.ring
        for index in range(start, len(nodes) - 1 + start, 2):
            first, second = nodes[index % len(nodes)], nodes[(index + 1) % len(nodes)]
            if not {first, second} & measured.alone_bad:
                plan.new_pair(collective, first, second)


def _links_again(plan: RoundBuilder, collective: str) -> None:
    """Repeat bad pairs of good nodes; then each end with a node that is good with the other end; then once more."""
    evidence = plan.evidence
    measured = evidence.measured
    for (measured_in, pair), some in evidence.open_links.items():
        if measured_in != collective:
            continue
        repeated = len(some) >= CONFIRMATIONS
        ends_good = repeated and ends_are_good(measured, collective, pair, evidence.common[collective])
        if not repeated or (ends_good and len(some) < SURE):
            plan.add("pair", collective, *sorted(pair))
        ends = measured.crossing(some[0])
        for group in ends or ():
            _probe(plan, collective, group, ends or ())
        if repeated and not ends_good:
            first, second = sorted(pair)
            _third(plan, collective, first, second)
            _third(plan, collective, second, first)


def _third(plan: RoundBuilder, collective: str, node: str, other: str) -> None:
    """Pair one end of a bad link with a good partner of the other end, below the same switch if there is one."""
    measured = plan.evidence.measured
    near = [one.partner(other) for one in measured.pairs[collective][other] if measured.good(one)]
    if any(one != node and plan.new_pair(collective, node, one) for one in near):
        return
    good = [one for one in plan.ring if one in measured.good_in[collective] and one not in (node, other)]
    good.sort(key=lambda one: measured.group(one) != measured.group(other))
    next((one for one in good[:8] if plan.new_pair(collective, node, one)), None)


def _second_look(plan: RoundBuilder, collective: str) -> None:
    """If every good pair contains the same node, that node may be an outlier that makes the others look slow: measure a
    pair without it. Only needed when no limit for pairs is known.
    """
    pairs, evidence = _good_pairs(plan, collective), plan.evidence
    shared = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    if shared and (collective, 2) not in evidence.measured.rules.limits:
        plan.among(collective, [node for node in plan.ring if node not in shared and {node, *shared} in pairs][:4])


def _third_look(plan: RoundBuilder, collective: str) -> None:
    """Repeat a pair that is faster than all others, or the only good one: it may be an outlier that makes the others
    look slow. Only needed when no limit for pairs is known.
    """
    measured = plan.evidence.measured
    pairs, met = _good_pairs(plan, collective), measured.met[collective]
    if (collective, 2) in measured.rules.limits or len(met) < 2:
        return
    odd = [bound.odd for kind, bound in measured.bounds.items() if kind[:2] == ("pair", collective) and bound.odd]
    for pair in odd or (pairs if len(pairs) == 1 else []):
        if len(met[pair]) == 1:
            plan.add("pair", collective, *sorted(pair))


def _good_pairs(plan: RoundBuilder, collective: str) -> list[frozenset[str]]:
    evidence = plan.evidence
    return [pair for pair, top in evidence.measured.tops[collective].items() if evidence.measured.good(top)]


def _probe(plan: RoundBuilder, collective: str, group: str, implicated: tuple[str, ...]) -> None:
    """Measure two more pairs that leave a switch, to others than those that are in doubt with it, if there are any."""
    evidence, measured = plan.evidence, plan.evidence.measured
    cleared = evidence.switches.cleared
    if (collective, group) in cleared:
        return
    good = [node for node in plan.ring if node in measured.good_in[collective] and plan.free(node)]
    own = [node for node in good if measured.group(node) == group]
    others = [node for node in good if measured.group(node) not in (None, *implicated)]
    others = others or [node for node in good if measured.group(node) not in (None, group)]
    spread = sorted(others, key=lambda node: (collective, measured.group(node)) not in cleared)
    for node in own[1:3] if len(own) > 2 else own[:2]:
        next((other for other in spread if plan.new_pair(collective, node, other)), None)


def _cover_switches(plan: RoundBuilder) -> None:
    """Let a good node of each switch that no pair of good nodes left so far meet one of another switch.

    The ring leaves every switch; but where suspects took its nodes for their own questions a link can be left out.
    """
    evidence, measured = plan.evidence, plan.evidence.measured
    collective = measured.rules.pairs[-1]
    good = [node for node in plan.ring if node in measured.good_in[collective]]
    for group in dict.fromkeys(measured.fleet.groups.values()):
        if (collective, group) in evidence.switches.left:
            continue
        own = [node for node in good if measured.group(node) == group and plan.free(node)]
        others = [node for node in good if measured.group(node) not in (group, None) and plan.free(node)]
        next(((a, b) for a in own[:2] for b in others if plan.new_pair(collective, a, b)), None)


def _rest(evidence: Evidence) -> Round | None:
    measured = evidence.measured
    full = measured.fleet.full_scale
    if full is None or not full.failed or evidence.rest() is not None or not evidence.any_blame():
        return None
    blamed = evidence.blamed()
    nodes = tuple(node for node in measured.fleet.nodes if node not in blamed)
    if len(nodes) < 2 or len(nodes) == len(measured.fleet.nodes):
        return None
    return Round((Launch("rest", full.collective, nodes),), "all nodes but the accused")


def _unexplained(evidence: Evidence) -> bool:
    """Whether the fleet fails, and nothing that was found is the reason."""
    rest = evidence.rest()
    explained = evidence.any_blame() if rest is None else evidence.rest_passed(rest)
    return evidence.measured.fleet.failed and not explained


def _closing_link(evidence: Evidence) -> Round | None:
    """Measure the link that closes the ring: with an odd number of nodes two rounds leave it out."""
    measured = evidence.measured
    if not _unexplained(evidence):
        return None
    plan, collective = RoundBuilder(evidence), measured.rules.pairs[-1]
    ends = plan.ring[-1], plan.ring[0]
    if len(plan.ring) % 2 and measured.good_in[collective].issuperset(ends):
        plan.new_pair(collective, *ends)
    return Round(tuple(plan.launches), "the last link of the ring")


def _blocks(evidence: Evidence) -> Round | None:
    """Look at parts of a fleet that fails as a whole although every pair is good."""
    measured = evidence.measured
    if not _unexplained(evidence):
        return None
    open_nodes = any(evidence.suspects(collective) for collective in measured.pairs)
    launches = () if open_nodes else next_blocks(evidence, ring(measured.fleet))
    return Round(launches, "parts of the fleet")


_STAGES: tuple[Callable[[Evidence], Round | None], ...] = (
    _alone,
    _first_pairs,
    _second_pairs,
    _follow_up,
    _rest,
    _closing_link,
    _blocks,
)
