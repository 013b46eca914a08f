"""The verdicts on nodes, links and switches, each with the measurements that show it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from acceptance.locate.blocks import smallest_bad
from acceptance.locate.common import islands_of
from acceptance.locate.evidence import Evidence
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
    for found in evidence.common.values():
        if node in found.erratic:
            return _erratic(evidence, node, found.erratic[node], best)
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


def _erratic(evidence: Evidence, node: str, bad: list[Result], best: float | None) -> NodeVerdict:
    measured = evidence.measured
    met = measured.pairs[bad[0].collective][node]
    fine = ", ".join(dict.fromkeys(result.partner(node) for result in met if measured.good(result)))
    shown = ", ".join(words_of(evidence, result, node) for result in bad[:_NAMED])
    words = f"bad in {len(bad)} of {len(met)} pairs with good nodes ({shown}), good with {fine or 'none'}: at times or "
    return NodeVerdict(
        node, "suspect", words + "towards some nodes only, so that it may be the node or what lies between", best
    )


def _not_accused(evidence: Evidence, node: str, top: Result | None, can_differ: bool) -> NodeVerdict:
    measured = evidence.measured
    best = top.value or None if top else None
    if top is None:
        alone = f"; alone: {words_of(evidence, measured.alone[node][-1])}" if node in measured.alone else ""
        return NodeVerdict(node, "suspect", f"no pair of this node was measured{alone}", None)
    for collective, own in measured.pairs.items():
        if node in own and node not in measured.good_in[collective] and node not in evidence.excused[collective]:
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
    why = evidence.doubts.get((node, collective), "no partner known to be good: too little to accuse it")
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
    for (collective, pair), results in evidence.open_links.items():
        first, second = sorted(pair, key=evidence.measured.fleet.nodes.index)
        runs = "once" if len(results) == 1 else f"{len(results)} times; that it is the link alone was not shown"
        words = f"{collective} {words_of(evidence, results[0])}, measured {runs}; both are good with others"
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
    return (*found, *_sets(evidence), *_common(evidence))


def _common(evidence: Evidence) -> list[GroupVerdict]:
    """What several nodes have in common: islands, a kind, or a cause that is common to all."""
    whole = _all_alike(evidence)
    return [whole] if whole else [*_islands(evidence), *_kinds(evidence)]


def _all_alike(evidence: Evidence) -> GroupVerdict | None:
    """The verdict where no node differs from the others, although something is wrong."""
    measured = evidence.measured
    nodes = measured.fleet.nodes
    alone = [result for some in measured.alone.values() for result in some]
    pairs = [result for result in measured.results if result.kind == "pair"]
    if len(alone) > 1 and not any(map(measured.good, alone)):
        words = (
            f"every node alone is bad ({words_of(evidence, alone[0])}): the program, the image, the driver or the limit"
        )
        return GroupVerdict((), nodes, "alone", _kind(alone), words)
    if len(pairs) > 1 and not any(map(measured.good, pairs)):
        good = "every node alone is good and " if alone and all(map(measured.good, alone)) else ""
        words = (
            f"{good}every pair is bad ({words_of(evidence, pairs[0])}): what all pairs share, as the security group, "
        )
        return GroupVerdict((), nodes, "pairs", _kind(pairs), words + "the network plugin, a switch, the instance type")
    if measured.fleet.failed and pairs and not evidence.any_blame() and not _distinguishable(evidence):
        words = "all nodes alike, and no limit for a pair is known: nothing differs, so that the cause is common to all"
        return GroupVerdict((), nodes, "alike", "suspect", words)
    return None


def _islands(evidence: Evidence) -> Iterator[GroupVerdict]:
    for collective, found in evidence.common.items():
        if found.split:
            across = [one for some in found.across.values() for one in some]
            for nodes in islands_of(evidence.measured, collective, found)[:_NAMED]:
                words = "good with each other, bad with those of the other groups: "
                inside = set(nodes)
                words += f"{_list(evidence, [one for one in across if not inside.isdisjoint(one.nodes)])}; "
                words += "the switches, security groups or placement between the groups, no node"
                yield GroupVerdict((), nodes, "island", _kind(across), words)


def _kinds(evidence: Evidence) -> Iterator[GroupVerdict]:
    for collective, court in evidence.courts.items():
        kind = set(court.kind)
        nodes = [node for node in evidence.measured.fleet.nodes if node in kind]
        if nodes:
            proofs = [one for node in nodes for one in evidence.proofs(node, collective)]
            words = (
                f"{len(nodes)} of {len(evidence.measured.fleet.nodes)} nodes are bad alike: {_list(evidence, proofs)}; "
            )
            yield GroupVerdict(
                (), tuple(nodes), "kind", _kind(proofs), words + "what they share, as generation, driver or switch"
            )


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
        cause = f" ({result.reason})" if result.reason else ""
        return (f"{partner} " if partner else "").lstrip() + OUTCOMES.get(result.outcome, result.outcome) + cause
    bound = measured.bound(result)
    relation = ">=" if measured.good(result) else "<"
    return f"busbw={result.value:.4g} GB/s{partner} ({relation} {bound:.4g})"
