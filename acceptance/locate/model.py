"""The values of the search: fleet, rules, launches, results and verdicts. Bandwidths in GB/s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from acceptance.scenario.model import LocateSettings
from acceptance.text import named

_NODES_NAMED = 16  # of a group, in words; report.json has them all
KINDS = ("alone", "pair", "block", "rest")
Comparable = tuple[str, str, int]
OUTCOMES = {"ok": "measured", "hang": "hung", "failed": "failed", "wrong data": "gave wrong data"}


@dataclass(frozen=True)
class FullScale:
    """What the run over all nodes showed before. busbw: None where it gave none."""

    collective: str
    failed: bool
    busbw: float | None = None


@dataclass(frozen=True)
class Fleet:
    """The nodes in the order of their ranks. groups: node -> the switch it hangs on, empty where that is unknown.

    full_scale: None where all nodes together were not measured.
    """

    nodes: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    full_scale: FullScale | None = None

    @property
    def failed(self) -> bool:
        """Whether the run over all nodes is known to fail."""
        return self.full_scale is not None and self.full_scale.failed


@dataclass(frozen=True)
class Rules:
    """How results are judged and what may be spent.

    limits: (collective, nodes) -> GB/s that healthy nodes reach. factor, max_rounds: as in LocateSettings. relative:
    whether results are compared with each other too, or with the limits alone. alone: the collective that each node
    runs alone, None to leave that round out. pairs: the collectives of the rounds of pairs, in turn; alltoall, as the
    all_reduce of two nodes is bound by NVLink and hides the loss of a quarter of the EFA devices.
    """

    limits: Mapping[tuple[str, int], float] = field(default_factory=dict)
    factor: float = LocateSettings.factor
    relative: bool = True
    max_rounds: int = LocateSettings.max_rounds
    alone: str | None = "all_reduce"
    pairs: tuple[str, ...] = ("alltoall",)


@dataclass(frozen=True)
class Launch:
    """One measurement to start. kind: alone, pair, block (a part of the fleet) or rest (all but the accused)."""

    kind: str
    collective: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A finished launch.

    round: from 0; outcome: a key of OUTCOMES; busbw in GB/s, None unless ok; log: file name; reason: the cause of a
    failure or hang that the log names, empty where it names none.
    """

    round: int
    kind: str
    collective: str
    nodes: tuple[str, ...]
    outcome: str
    busbw: float | None
    log: str = ""
    reason: str = ""

    @cached_property
    def comparable(self) -> Comparable:
        """What results may be compared with each other: same kind, collective and, to a factor of two, size."""
        return self.kind, self.collective, len(self.nodes).bit_length()

    @cached_property
    def value(self) -> float:
        """The bus bandwidth to compare by: 0 where the launch gave none."""
        return self.busbw if self.outcome == "ok" and self.busbw is not None else 0.0

    @cached_property
    def node_set(self) -> frozenset[str]:
        """The nodes, without their order."""
        return frozenset(self.nodes)

    def partner(self, node: str) -> str:
        """The other node of a pair."""
        return self.nodes[1] if node == self.nodes[0] else self.nodes[0]


@dataclass(frozen=True)
class Round:
    """What to measure next: launches that share no node, and why."""

    launches: tuple[Launch, ...]
    why: str


@dataclass(frozen=True)
class NodeVerdict:
    """What is known about a node. verdict: good, slow, failed, suspect or infrastructure (not the node's fault).

    best: its best pair's GB/s, None where no pair gave any.
    """

    node: str
    verdict: str
    evidence: str
    best: float | None


@dataclass(frozen=True)
class LinkVerdict:
    """Two nodes that are good with others and bad with each other. verdict: slow, failed, or suspect if once."""

    nodes: tuple[str, str]
    verdict: str
    evidence: str


@dataclass(frozen=True)
class GroupVerdict:
    """Nodes that are bad together, not one by one. groups: the switches' names, empty for a mere set of nodes.

    where: 'inside' (all traffic of the switch), 'uplink' (what leaves it), 'path' (between two of them), 'set' (the
    smallest part of the fleet that fails as a whole), 'island' (good with each other, bad with all others), 'kind'
    (slow alike: their generation, driver or switch), 'alone' (all nodes are bad alone), 'pairs' (every pair is bad) or
    'alike' (no node differs from the others, and no limit is known).
    """

    groups: tuple[str, ...]
    nodes: tuple[str, ...]
    where: str
    verdict: str
    evidence: str

    @property
    def name(self) -> str:
        """What it is, with the switches or the nodes."""
        whole = f"all {len(self.nodes)} nodes"
        words = {"alone": f"{whole} alone", "pairs": f"all pairs of {whole}", "alike": whole}
        if self.where in words:
            return words[self.where]
        nodes = named(self.nodes, _NODES_NAMED, "more node")
        if self.where in ("island", "kind"):
            return f"{self.where} of {len(self.nodes)} nodes ({nodes})"
        return f"switch or set {', '.join(self.groups) or nodes} ({self.where})"


@dataclass(frozen=True)
class Verdict:
    """The end of the search, or what is known so far.

    rest: 'explained' (without the accused the fleet is fast), 'unexplained', or 'not measured'.
    """

    nodes: tuple[NodeVerdict, ...]
    links: tuple[LinkVerdict, ...]
    groups: tuple[GroupVerdict, ...]
    rest: str
