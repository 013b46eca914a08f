"""The verdicts on nodes, links and switches, each with the measurements that show it. Pure."""

from __future__ import annotations

from acceptance.locate.blocks import smallest_bad
from acceptance.locate.evidence import Evidence
from acceptance.locate.measurements import CONFIRMATIONS
from acceptance.locate.model import OUTCOMES, GroupVerdict, LinkVerdict, NodeVerdict, Result, Verdict

_NAMED = 6  # measurements shown as evidence at most


def verdict_of(evidence: Evidence) -> Verdict:
    """What the results so far say."""
    rest = evidence.rest()
    said = "not measured" if rest is None else "explained" if evidence.rest_passed(rest) else "unexplained"
    can_differ = not evidence.measured.fleet.failed or _distinguishable(evidence)
    nodes = tuple(_node(evidence, node, can_differ) for node in evidence.measured.fleet.nodes)
    return Verdict(nodes, _links(evidence), _groups(evidence), said)


def _node(evidence: Evidence, node: str, can_differ: bool) -> NodeVerdict:
    measured = evidence.measured
    pairs = [result for own in measured.pairs.values() for result in own.get(node, [])]
    top = max(pairs, key=lambda result: result.value, default=None)
    best = top.value or None if top else None
    if node in measured.accused_alone:
        own = measured.alone[node]
        words = ", ".join(words_of(evidence, result) for result in own)
        return NodeVerdict(node, _kind(own), f"alone: {words}", best)
    for collective in measured.pairs:
        if (node, collective) in evidence.accused_by_pairs:
            return _accused(evidence, node, collective)
    if measured.group(node) in evidence.switches.inside:
        words = f"slow like every node of {measured.group(node)}: the switch, not the node"
        return NodeVerdict(node, "infrastructure", words, best)
    return _not_accused(evidence, node, top, can_differ)


def _accused(evidence: Evidence, node: str, collective: str) -> NodeVerdict:
    own = evidence.measured.pairs[collective][node]
    top = max(own, key=lambda result: result.value)
    partners = ", ".join(sorted({result.partner(node) for result in evidence.proofs(node, collective)}))
    words = f"best pair {words_of(evidence, top, node)}; every pair with a good node ({partners}) is bad"
    return NodeVerdict(node, _kind(own), words, top.value or None)


def _not_accused(evidence: Evidence, node: str, top: Result | None, can_differ: bool) -> NodeVerdict:
    measured = evidence.measured
    best = top.value or None if top else None
    if top is None:
        alone = f"; alone: {words_of(evidence, measured.alone[node][-1])}" if node in measured.alone else ""
        return NodeVerdict(node, "suspect", f"no pair of this node was measured{alone}", None)
    for collective, own in measured.pairs.items():
        if node in own and node not in measured.good_in[collective]:
            return _suspect(evidence, node, collective)
    words = words_of(evidence, top, node)
    if not can_differ:
        return NodeVerdict(
            node, "suspect", f"does not differ from the others: {words}, and no limit for a pair is known", best
        )
    failed = [result for result in measured.alone.get(node, []) if not measured.good(result)]
    if failed and len(failed) == len(measured.alone[node]):
        return NodeVerdict(node, "suspect", f"alone: {words_of(evidence, failed[0])}, like most nodes", best)
    note = f"; alone: {words_of(evidence, failed[0])}, but not when repeated" if failed else ""
    return NodeVerdict(node, "good", words + note, best)


def _suspect(evidence: Evidence, node: str, collective: str) -> NodeVerdict:
    own = evidence.measured.pairs[collective][node]
    top = max(own, key=lambda result: result.value)
    count = len({result.partner(node) for result in evidence.proofs(node, collective)})
    why = f"only {count} of its pairs had a partner known to be good: too little to accuse it"
    if count >= CONFIRMATIONS:
        why = "only one pair at all is fast, and it was not repeated: too little to accuse it"
    return NodeVerdict(node, "suspect", f"best pair {words_of(evidence, top, node)}; {why}", top.value or None)


def _distinguishable(evidence: Evidence) -> bool:
    """Whether nodes can be distinguished: a limit for pairs is known, or some results are bad."""
    measured = evidence.measured
    known = all((collective, 2) in measured.rules.limits for collective in measured.pairs)
    return known or any(not measured.good(r) for r in measured.results if r.kind in ("alone", "pair"))


def _links(evidence: Evidence) -> tuple[LinkVerdict, ...]:
    links = []
    for (collective, pair), results in evidence.links.items():
        first, second = sorted(pair, key=evidence.measured.fleet.nodes.index)
        measured = ", ".join(words_of(evidence, result) for result in results)
        else_good = "; ".join(f"{node} reaches {_elsewhere(evidence, node, collective)}" for node in (first, second))
        links.append(LinkVerdict((first, second), _kind(results), f"{collective} {measured}; {else_good}"))
    for (collective, pair), result in evidence.open_links.items():
        first, second = sorted(pair, key=evidence.measured.fleet.nodes.index)
        words = f"{collective} {words_of(evidence, result)}, measured once; both are good with others"
        links.append(LinkVerdict((first, second), "suspect", words))
    return tuple(links)


def _elsewhere(evidence: Evidence, node: str, collective: str) -> str:
    top = max(evidence.measured.pairs[collective][node], key=lambda result: result.value)
    return f"{top.value:.4g} with {top.partner(node)}"


def _groups(evidence: Evidence) -> tuple[GroupVerdict, ...]:
    found = []
    for group, results in evidence.switches.inside.items():
        words = f"none of its nodes is good with any other, all alike: {_list(evidence, results)}"
        found.append(_group(evidence, (group,), "inside", results, words))
    for group, results in evidence.switches.uplinks.items():
        words = f"its nodes are good with each other and bad with those of others: {_list(evidence, results)}"
        found.append(_group(evidence, (group,), "uplink", results, words))
    for pair, results in evidence.switches.paths.items():
        words = f"bad between the two, whichever nodes: {_list(evidence, results)}"
        found.append(_group(evidence, tuple(sorted(pair)), "path", results, words))
    return (*found, *_sets(evidence))


def _group(evidence: Evidence, groups: tuple[str, ...], where: str, results: list[Result], words: str) -> GroupVerdict:
    measured = evidence.measured
    nodes = tuple(node for node in measured.fleet.nodes if measured.group(node) in groups)
    return GroupVerdict(groups, nodes, where, _kind(results), words)


def _sets(evidence: Evidence) -> list[GroupVerdict]:
    measured = evidence.measured
    found = []
    blocks = [result for result in measured.results if result.kind == "block"]
    for nodes in smallest_bad(evidence):
        bad = [r for r in blocks if not measured.good(r) and set(nodes) <= set(r.nodes)]
        inside = dict.fromkeys(measured.group(node) for node in nodes)
        groups = tuple(group for group in inside if group is not None)
        words = "every pair is good, and each part of the fleet with all of these nodes is bad: "
        words += ", ".join(f"{len(r.nodes)} nodes {words_of(evidence, r)}" for r in bad[:_NAMED])
        found.append(GroupVerdict(groups, nodes, "set", _kind(bad), words))
    return found


def _kind(results: list[Result]) -> str:
    return "slow" if any(result.value > 0 for result in results) else "failed"


def _list(evidence: Evidence, results: list[Result]) -> str:
    shown = [f"{'+'.join(result.nodes)} {words_of(evidence, result)}" for result in results[:_NAMED]]
    more = len(results) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def words_of(evidence: Evidence, result: Result, node: str | None = None) -> str:
    """A result in few words: the figure and its bound, or how it ended."""
    measured = evidence.measured
    partner = f" with {result.partner(node)}" if node is not None else ""
    if result.outcome != "ok":
        return (f"{partner} " if partner else "").lstrip() + OUTCOMES.get(result.outcome, result.outcome)
    bound = measured.bound(result)
    relation = ">=" if measured.good(result) else "<"
    return f"busbw={result.value:.4g} GB/s{partner} ({relation} {bound:.4g})"
