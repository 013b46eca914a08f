"""Node expressions: names, Slurm's ranges (`gpu-[01-03,7]`), and groups (`PARTITION:GROUP:N` or `:max_avail`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from acceptance.cloudai.forms import INVALID
from acceptance.cloudai.remarks import Spot
from acceptance.runner.slurm import Node
from acceptance.text import plural

_LARGEST = 100_000  # names of one expression
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER = "[0-9]{1,9}"
_PART = re.compile(rf"(?P<plain>[A-Za-z0-9_.-]+)|\[(?P<range>{_NUMBER}(?:-{_NUMBER})?(?:,{_NUMBER}(?:-{_NUMBER})?)*)\]")
GROUP = re.compile(rf"([^:\s\[\],]+):([^:\s\[\],]+):({_NUMBER}|max_avail)")


class NodesError(Exception):
    """A node expression that cannot be resolved. hint: the repair."""

    def __init__(self, rule: str, hint: str) -> None:
        super().__init__(rule)
        self.rule, self.hint = rule, hint


def expand(expression: str) -> list[str]:
    """Return the names of a host list: `gpu-[08-10]x,b` is gpu-08x, gpu-09x, gpu-10x, b. Raises NodesError."""
    names: list[str] = []
    for item in re.split(r",(?![^\[]*\])", expression.strip()):
        expanded = [""]
        at = 0
        while at < len(item):
            match = _PART.match(item, at)
            if match is None:
                raise NodesError("is not a name of a node, a range of names, or PARTITION:GROUP:N", _HINT)
            # One more than is allowed is enough to know that the range is too large.
            numbers = [match["plain"]] if match["plain"] else list(islice(_numbers(match["range"]), _LARGEST + 1))
            if len(names) + len(expanded) * len(numbers) > _LARGEST:
                raise NodesError(f"names more than {_LARGEST} nodes", "correct the range")
            expanded = [before + number for before in expanded for number in numbers]
            at = match.end()
        if not item:
            raise NodesError("is not a name of a node, a range of names, or PARTITION:GROUP:N", _HINT)
        names += expanded
    return names


_HINT = 'write "gpu-1", "gpu-[01-16]", "PARTITION:GROUP:4" or "PARTITION:GROUP:max_avail"'


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if int(last) < int(first):
            raise NodesError(f"has the range {part}, which ends before it begins", f"write {last}-{first}")
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        for value in range(int(first), int(last) + 1):
            yield str(value).zfill(width)


def node_form(value: Any, spot: Spot) -> Any:
    """The form of one node expression."""
    if not isinstance(value, str):
        spot.error(value, "must be a text", _HINT)
        return INVALID
    group = GROUP.fullmatch(value.strip())
    if group:
        if group[3] == "0":
            spot.error(value, "asks for no node", "write a number from 1, or max_avail")
            return INVALID
        return value.strip()
    try:
        expand(value)
    except NodesError as error:
        spot.error(value, error.rule, error.hint)
        return INVALID
    return value.strip()


def name_form(value: Any, spot: Spot) -> Any:
    """The form of names of nodes, which may be ranges, without groups."""
    if isinstance(value, str) and GROUP.fullmatch(value.strip()):
        spot.error(value, "is a group; only names of nodes can be excluded", 'write "gpu-[01-02]"')
        return INVALID
    return node_form(value, spot)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a job: a number, or names in the order of ranks. exclude: for a number only.

    from_groups: names were chosen from a group without asking Slurm.
    """

    count: int
    names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    from_groups: bool = False


States = Mapping[str, Sequence[Node]]  # partition -> its nodes
Groups = Mapping[str, Mapping[str, Sequence[str]]]  # partition -> group -> names


def choose(
    expressions: Sequence[str], count: int, exclude: Sequence[str], groups: Groups, states: States | None = None
) -> Nodes:
    """Return the nodes of a run. Names win over the count. A group that is named twice gives different nodes.

    states: of a partition's nodes, as Slurm reports them: of a group idle nodes are chosen, then those that will be
    free later; max_avail takes the idle ones. Raises NodesError, also if a group is unknown or too small.
    """
    left_out = {name for expression in exclude for name in expand(expression)}
    if not expressions:
        return Nodes(max(1, count), exclude=tuple(exclude))
    names: list[str] = []
    for expression in expressions:
        match = GROUP.fullmatch(expression)
        if match is None:
            names += [name for name in expand(expression) if name not in left_out and name not in names]
            continue
        free = [name for name in _group(match[1], match[2], groups) if name not in left_out and name not in names]
        if states is not None:
            free = _usable(free, states.get(match[1], ()), only_idle=match[3] == "max_avail")
        if states is not None and not free:
            state = "idle" if match[3] == "max_avail" else "usable"
            rule = f"asks for nodes of the group {match[2]}, of which none is {state} now"
            raise NodesError(rule, f"look at `sinfo -N -p {match[1]}`, and wait for its nodes or resume them")
        wanted = len(free) if match[3] == "max_avail" else int(match[3])
        if wanted > len(free) or not free:
            rule = f"asks for {plural(int(match[3]), 'node')} of the group {match[2]}, which has {len(free)} left"
            raise NodesError(rule, "ask for fewer, or extend the group in the system's file")
        names += free[:wanted]
    if not names:
        raise NodesError("leaves no node: all are excluded", "exclude fewer nodes")
    in_order = states is None and any(GROUP.fullmatch(one) for one in expressions)
    return Nodes(len(names), tuple(names), from_groups=in_order)


def _usable(names: Sequence[str], nodes: Sequence[Node], *, only_idle: bool) -> list[str]:
    """Those of some nodes that are idle, then those that are in use; none that is down, drained or unknown."""
    states = {node.name: node.state for node in nodes if node.trouble is None}
    idle = [name for name in names if "IDLE" in states.get(name, "")]
    return idle if only_idle else idle + [name for name in names if name in states and name not in idle]


def _group(partition: str, group: str, groups: Groups) -> list[str]:
    if partition not in groups:
        raise NodesError(
            f"names the partition {partition}, which the system's file has not",
            f"its partitions: {', '.join(groups) or 'none'}",
        )
    if group not in groups[partition]:
        known = ", ".join(groups[partition]) or "none"
        raise NodesError(f"names the group {group}, which the partition {partition} has not", f"its groups: {known}")
    return [name for expression in groups[partition][group] for name in expand(expression)]
