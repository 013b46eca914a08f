"""What to measure next, or the verdict. Pure: it starts nothing, and the same results give the same answer.

The rounds: each node alone; disjoint pairs along the ring of ranks; the ring's other links, where every suspect meets
a node known to be good; then, while something is open, suspects with other good nodes, bad links once more, other
nodes of the switches they cross; at last the fleet without the accused, or, if nothing was found although the fleet
fails, parts of it. Two rounds of ring neighbours measure every link that a ring over all nodes uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from acceptance.locate.blocks import next_blocks
from acceptance.locate.evidence import Evidence, evidence_of
from acceptance.locate.model import Fleet, Launch, Result, Round, Rules, Verdict
from acceptance.locate.round_builder import RoundBuilder, ring
from acceptance.locate.switches import GROUP_PROOFS
from acceptance.locate.verdict import verdict_of

_SURE = 3  # bad results that are asked for where there are nodes and rounds for it: two can be a coincidence


def decide(fleet: Fleet, results: Iterable[Result], rules: Rules) -> Round | Verdict:
    """Return the next round of launches, or the verdict when nothing more can be learned or the bound is reached."""
    evidence = evidence_of(fleet, results, rules)
    if evidence.measured.rounds < rules.max_rounds and len(fleet.nodes) > 1:
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
        if node in measured.alone_bad and len(own) < _SURE:
            plan.add("alone", own[0].collective, node)


def _in_question(evidence: Evidence, collective: str) -> list[str]:
    """The nodes to pair with good ones: suspects and those never paired.

    If a switch seems slow for all its nodes, a few of them represent the others.
    """
    chosen, of_group = [], dict[str, int]()
    for node in evidence.suspects(collective) + evidence.untested(collective):
        group = evidence.measured.group(node)
        if group is not None and evidence.switches.represents(node, collective):
            of_group[group] = of_group.get(group, 0) + 1
            if of_group[group] > GROUP_PROOFS:
                continue
        chosen.append(node)
    return chosen


def _follow_up(evidence: Evidence) -> Round | None:
    plan = RoundBuilder(evidence)
    _alone_again(plan)
    for collective in dict.fromkeys(evidence.measured.rules.pairs):
        for (measured, _), alike in evidence.switches.unmet.items():
            if measured == collective:
                plan.among(collective, alike)
        _second_look(plan, collective)
        if _others_agree(evidence, collective):
            _third_look(plan, collective)
        plan.among(collective, plan.with_good(collective, _in_question(evidence, collective)))
        _third_look(plan, collective)
    for (collective, pair), result in evidence.open_links.items():
        plan.add("pair", collective, *sorted(pair))
        ends = evidence.measured.crossing(result)
        for group in ends or ():
            _probe(plan, collective, group, ends or ())
    _cover_switches(plan)
    # Twice is enough to accuse; a third time where it does not cost the round over the rest of the fleet.
    spare = evidence.measured.rounds + 1 < evidence.measured.rules.max_rounds
    for node, collective in sorted(evidence.accused_by_pairs) if spare else ():
        if len({result.partner(node) for result in evidence.proofs(node, collective)}) < _SURE:
            plan.with_good(collective, [node])
    return Round(tuple(plan.launches), "suspects with other good nodes; bad links again")


def _second_look(plan: RoundBuilder, collective: str) -> None:
    """If every good pair contains the same node, that node may be an outlier that makes the others look slow: measure a
    pair without it. Only needed when no limit for pairs is known.
    """
    pairs, evidence = _good_pairs(plan, collective), plan.evidence
    shared = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    if shared and (collective, 2) not in evidence.measured.rules.limits:
        plan.among(collective, [node for node in plan.ring if node not in shared and {node, *shared} in pairs][:4])


def _third_look(plan: RoundBuilder, collective: str) -> None:
    """If only one pair is good, it may be an outlier that makes the others look slow: repeat it. Only needed when no
    limit for pairs is known.
    """
    measured = plan.evidence.measured
    pairs, met = _good_pairs(plan, collective), measured.met[collective]
    alone = len(pairs) == 1 and len(met) > 1 and len(met[pairs[0]]) == 1
    if alone and (collective, 2) not in measured.rules.limits:
        plan.add("pair", collective, *sorted(pairs[0]))


def _others_agree(evidence: Evidence, collective: str) -> bool:
    """Whether three bad pairs or more, not all of one node, are alike: then a lone good one is likely the mistake."""
    measured = evidence.measured
    bad = [one for some in measured.met[collective].values() for one in some if one.value and not measured.good(one)]
    top = max((result.value for result in bad), default=0.0)
    alike = [frozenset(result.nodes) for result in bad if result.value >= measured.rules.factor * top]
    return len(alike) > 2 and not frozenset.intersection(*alike)


def _good_pairs(plan: RoundBuilder, collective: str) -> list[frozenset[str]]:
    evidence = plan.evidence
    return [pair for pair, some in evidence.measured.met[collective].items() if any(map(evidence.measured.good, some))]


def _probe(plan: RoundBuilder, collective: str, group: str, implicated: tuple[str, ...]) -> None:
    """Measure two more pairs that leave a switch, to others than those that are in doubt with it, if there are any."""
    evidence, measured = plan.evidence, plan.evidence.measured
    if group in evidence.switches.cleared:
        return
    good = [node for node in plan.ring if node in measured.good_in[collective] and plan.free(node)]
    own = [node for node in good if measured.group(node) == group]
    others = [node for node in good if measured.group(node) not in (None, *implicated)]
    others = others or [node for node in good if measured.group(node) not in (None, group)]
    spread = sorted(others, key=lambda node: measured.group(node) not in evidence.switches.cleared)
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
        if group in evidence.switches.left:
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
