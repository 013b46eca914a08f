"""Which pairs of nodes to measure next, and what the results say about each node. Pure: it starts nothing.

A pair runs at the speed of its slower node. So a node is good as soon as one of its pairs is good, and it is bad if
even its best pair is not, provided that its partners are known to be good from other pairs.
The rounds: disjoint pairs; shifted disjoint pairs; then every suspect with good nodes that it has not met.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFIRMATIONS = 2  # pairs with known-good partners that it takes to call a node bad
_OPEN_ROUNDS = 4  # rounds of fresh pairs to try while no node stands out
_LOW_WORDS = {"hang": "hung", "failed": "failed", "wrong data": "gave wrong data"}


@dataclass(frozen=True)
class PairResult:
    """One measured pair. outcome: ok, hang, failed or 'wrong data'; busbw in GB/s, None unless ok."""

    round: int
    first: str
    second: str
    outcome: str
    busbw: float | None
    log: str

    @property
    def value(self) -> float:
        """The bus bandwidth to compare by: 0 where the pair gave none."""
        return self.busbw if self.outcome == "ok" and self.busbw is not None else 0.0

    def partner(self, node: str) -> str:
        """The other node of the pair."""
        return self.second if node == self.first else self.first


@dataclass(frozen=True)
class NodeVerdict:
    """What is known about a node. verdict: good, slow, failed or suspect; best: its best pair's GB/s."""

    node: str
    verdict: str
    evidence: str
    best: float | None


@dataclass(frozen=True)
class Rules:
    """pair_limit: GB/s that a good pair reaches, None if unknown; factor: see threshold(); max_rounds: bound."""

    pair_limit: float | None = None
    factor: float = 0.8
    max_rounds: int = 6


def schedule(nodes: list[str], number: int) -> list[tuple[str, str]]:
    """Round `number` (from 0) of disjoint pairs; no pair comes twice in the first n - 1 rounds (n if n is odd).

    The circle method of tournaments: one node stays, the others move on by one place a round.
    """
    ring: list[str | None] = list(nodes)
    if len(ring) % 2:
        ring.append(None)
    if len(ring) < 2:
        return []
    turn = number % (len(ring) - 1)
    moving = ring[1:]
    order = [ring[0], *moving[turn:], *moving[:turn]]
    half = len(order) // 2
    pairs = [(order[i], order[-1 - i]) for i in range(half)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def best_values(nodes: list[str], results: list[PairResult]) -> dict[str, float]:
    """The best value of each node that was measured, GB/s; 0 where none of its pairs gave a result."""
    best: dict[str, float] = {}
    for result in results:
        for node in (result.first, result.second):
            if node in nodes:
                best[node] = max(best.get(node, 0.0), result.value)
    return best


def threshold(nodes: list[str], results: list[PairResult], rules: Rules) -> float:
    """The bus bandwidth in GB/s below which a pair is slow.

    The pair limit where one is known; else factor times the upper quartile of all nodes' best pairs. Not the median: in
    a fleet of four or five, two bad nodes drag the median down through their partners. Healthy pairs differ by 0.6 %
    (alltoall of 8-GPU pairs), so a factor of 0.8 is far from noise.
    """
    if rules.pair_limit is not None:
        return max(rules.pair_limit, 1e-12)
    best = sorted(best_values(nodes, results).values(), reverse=True)
    return max(rules.factor * best[(len(best) - 1) // 4], 1e-12) if best else 1e-12


def good_nodes(nodes: list[str], results: list[PairResult], rules: Rules) -> set[str]:
    """The nodes with a pair that reaches the threshold."""
    bound = threshold(nodes, results, rules)
    return {node for node, value in best_values(nodes, results).items() if value >= bound}


def next_round(nodes: list[str], results: list[PairResult], rules: Rules) -> list[tuple[str, str]]:
    """The pairs to measure next, disjoint; an empty list when nothing more can be learned or the bound is reached."""
    done = max((result.round for result in results), default=-1) + 1
    if done >= rules.max_rounds or len(nodes) < 2:
        return []
    met = {frozenset((result.first, result.second)) for result in results}
    fresh = [pair for pair in schedule(nodes, done) if frozenset(pair) not in met]
    if done < 2:
        return fresh
    good = good_nodes(nodes, results, rules)
    suspects = [node for node in nodes if node not in good]
    if not good or not suspects:
        return fresh if done < _OPEN_ROUNDS else []
    pairs = _confirmations(suspects, [node for node in nodes if node in good], results, met)
    return pairs or _second_opinion(nodes, good, results, rules)


def _confirmations(
    suspects: list[str], good: list[str], results: list[PairResult], met: set[frozenset[str]]
) -> list[tuple[str, str]]:
    """Pair each suspect that needs more evidence with a good node it has not met."""
    free, pairs = list(good), []
    for suspect in suspects:
        if len(_against_good(suspect, set(good), results)) >= CONFIRMATIONS:
            continue
        partner = next((node for node in free if frozenset((suspect, node)) not in met), None)
        if partner is not None:
            free.remove(partner)
            pairs.append((suspect, partner))
    return pairs


def _second_opinion(nodes: list[str], good: set[str], results: list[PairResult], rules: Rules) -> list[tuple[str, str]]:
    """One more pair if all good pairs share a node: what the others are compared with could be that node's slowness.

    With a limit for a pair there is nothing to doubt.
    """
    bound = threshold(nodes, results, rules)
    shared = set(good)
    for result in results:
        if result.value >= bound:
            shared &= {result.first, result.second}
    if rules.pair_limit is not None or len(shared) != 1:
        return []
    met = {frozenset((result.first, result.second)) for result in results}
    others = [node for node in nodes if node in good - shared]
    for index, first in enumerate(others):
        for second in others[index + 1 :]:
            if frozenset((first, second)) not in met:
                return [(first, second)]
    return []


def _against_good(node: str, good: set[str], results: list[PairResult]) -> list[PairResult]:
    return [r for r in results if node in (r.first, r.second) and r.partner(node) in good]


def verdicts(nodes: list[str], results: list[PairResult], rules: Rules) -> list[NodeVerdict]:
    """What the results say about each node, in the order of `nodes`."""
    good = good_nodes(nodes, results, rules)
    bound = threshold(nodes, results, rules)
    best = best_values(nodes, results)
    plain = rules.pair_limit is None and len(good) == len(best)  # nothing to tell one node from another by
    judged = []
    for node in nodes:
        own = [result for result in results if node in (result.first, result.second)]
        top = max(own, key=lambda result: result.value, default=None)
        if top is None:
            judged.append(NodeVerdict(node, "suspect", "no pair of this node was measured", None))
        elif plain:
            words = f"does not stand out: {_pair_words(node, top, bound)}, and no limit for a pair is known"
            judged.append(NodeVerdict(node, "suspect", words, top.value))
        elif node in good:
            judged.append(NodeVerdict(node, "good", _pair_words(node, top, bound), top.value))
        else:
            judged.append(_not_good(node, own, top, good, bound))
    return judged


def _not_good(node: str, own: list[PairResult], top: PairResult, good: set[str], bound: float) -> NodeVerdict:
    proof = _against_good(node, good - {node}, own)
    value = top.value or None
    words = f"best pair {_pair_words(node, top, bound)}"
    if len(proof) < CONFIRMATIONS:
        few = f"{words}; only {len(proof)} of its pairs had a partner known to be good: too little to accuse it"
        return NodeVerdict(node, "suspect", few, value)
    partners = ", ".join(sorted(result.partner(node) for result in proof))
    verdict = "slow" if value is not None else "failed"
    return NodeVerdict(node, verdict, f"{words}; every pair with a good node ({partners}) is bad", value)


def _pair_words(node: str, result: PairResult, bound: float) -> str:
    partner = result.partner(node)
    if result.outcome != "ok":
        return f"with {partner} {_LOW_WORDS.get(result.outcome, result.outcome)}"
    relation = ">=" if result.value >= bound else "<"
    return f"busbw={result.value:.4g} GB/s with {partner} ({relation} {bound:.4g})"
