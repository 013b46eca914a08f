"""`slipway rehearse FILE --break KIND`, compared with the settings before the engine, which is slow to load."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipway.errors import UsageError
from slipway.settings import Settings
from slipway.text import visible

KINDS = ("slow-node", "bootstrap", "hang")
ENDING = ("bootstrap", "hang")  # nothing is measured then, and no other node is set up after it
_ROLES = ("head", "compute")


@dataclass(frozen=True)
class Breakage:
    """One parsed `--break`: its kind and, where it has one, its target (a node's name or its end, or a role)."""

    kind: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.target}" if self.target else self.kind

    def name_of_host(self, head: str, static: Sequence[str], dynamic: Sequence[str] = ()) -> str:
        """The host that it is for; where none is named, the last static one, else the first dynamic one.

        UsageError: there is no such host.
        """
        if self.kind == "slow-node":
            return match_name([*static, *dynamic], self.target)
        if self.target == "head":
            return head
        if not static and not dynamic:
            raise UsageError(f"--break {self}: is for a compute host, and this cluster has none")
        return static[-1] if static else dynamic[0]


def parse_breakage(text: str) -> Breakage:
    """`slow-node=gpu-3` -> Breakage. UsageError: no such kind, or a bad target."""
    text = visible(text)  # no kind and no node has a character that this changes
    kind, equals, target = text.partition("=")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"--break {text}: no such kind.{hint} Known: slow-node=NAME, bootstrap=head|compute, hang")
    if kind == "hang" and equals:
        raise UsageError(f"--break {text}: hang takes no value")
    if kind == "slow-node" and not target:
        raise UsageError(f"--break {text}: which node? For example --break slow-node=gpu-3")
    if kind == "bootstrap" and target not in _ROLES:
        raise UsageError(f"--break {text}: bootstrap takes head or compute, not {target or 'nothing'}")
    return Breakage(kind, target)


def match_name(names: list[str], wanted: str) -> str:
    """The one of this name, or the only one that ends in it after a hyphen. UsageError: none or several."""
    found = [name for name in names if name == wanted] or [name for name in names if name.endswith(f"-{wanted}")]
    if len(found) == 1:
        return found[0]
    reason = "several nodes are meant" if found else "no such node"
    raise UsageError(f"--break slow-node={wanted}: {reason}. Nodes: {', '.join(found or names)}")


def check_breakages(texts: Sequence[str], settings: Settings, max_hosts: int) -> None:
    """Raise UsageError for a `--break` of no fault or of no rehearsed node, and for two that cannot be combined."""
    nodes = [
        node
        for queue in settings.queues
        for node in node_names(
            queue.name, queue.instance.compute_resource, (queue.min_count, queue.max_count), max_hosts
        )
    ]
    static, dynamic = ([name for name, is_dynamic in nodes if is_dynamic is kind] for kind in (False, True))
    breakages = {parse_breakage(text): None for text in texts}
    for breakage in breakages:
        breakage.name_of_host("head", static, dynamic)
    ending = [breakage for breakage in breakages if breakage.kind in ENDING]
    if ending and len(breakages) > 1:
        given = " ".join(f"--break {breakage}" for breakage in breakages)
        raise UsageError(
            f"{given}: {ending[0]} ends the deployment before another fault is seen. "
            "Hint: one rehearsal for each, or several slow-node"
        )


def node_names(queue: str, resource: str, counts: tuple[int, int], max_hosts: int) -> Iterator[tuple[str, bool]]:
    """Name of each node of a compute resource and whether it is dynamic. `counts`: MinCount, MaxCount."""
    static = min(counts[0], max_hosts)
    dynamic = min(counts[1], max_hosts) - static
    for number in range(1, static + 1):
        yield f"{queue}-st-{resource}-{number}", False
    for number in range(1, dynamic + 1):
        yield f"{queue}-dy-{resource}-{number}", True
