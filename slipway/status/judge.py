"""What is wrong with a cluster, from what was read of it. Pure: the same findings give the same problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.errors import EXIT_ENVIRONMENT, EXIT_GOOD, EXIT_NO
from slipway.stack_names import ROLLED_BACK
from slipway.status import versions
from slipway.status.head import HeadNode
from slipway.status.stacks import PARALLELCLUSTER, Stack
from slipway.text import listed

LEVELS = FAILED, DEGRADED, BUSY = "failed", "degraded", "busy"  # the worst first
NOT_WORKING = ("down", "drained", "draining", "fail", "failing", "error", "inval", "unknown")  # states of Slurm
POWERED_DOWN = frozenset("~#%!")  # Slurm's marks of a node that is off, or on its way there or back
MOST_NODES = 8  # named one by one; the rest is counted


@dataclasses.dataclass(frozen=True)
class Problem:
    """`level`: failed, degraded, or busy for what is not done yet. `where`: a stack, a node, background work."""

    level: str
    where: str
    text: str
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Findings:
    """All that was read. `logged`: lines of the nodes' logs that report a fault; `notes`: what was not asked."""

    stacks: Sequence[Stack]
    optional: frozenset[str]
    head: HeadNode
    reservations: Sequence[Mapping[str, Any]] = ()
    logged: Sequence[str] = ()
    notes: Sequence[str] = ()

    def stack(self, part: str) -> Stack | None:
        """The stack of one part, if it is there."""
        return next((stack for stack in self.stacks if stack.part == part and stack.is_there), None)

    @property
    def is_deployed(self) -> bool:
        """Whether there is any stack."""
        return any(stack.is_there for stack in self.stacks)


def state(problems: Sequence[Problem], findings: Findings) -> str:
    """In one word: absent, failed, degraded, busy, unknown (the head node was not asked) or good."""
    if not findings.is_deployed:
        return "absent"
    levels = {problem.level for problem in problems}
    found = next((level for level in LEVELS if level in levels), "")
    return found or ("unknown" if findings.head.unasked else "good")


def exit_code(word: str) -> int:
    """0 good; 1 failed, degraded, not deployed, or not done yet; 3 when what matters could not be asked."""
    return {"good": EXIT_GOOD, "unknown": EXIT_ENVIRONMENT}.get(word, EXIT_NO)


def problems(findings: Findings) -> list[Problem]:
    """Everything that is not as it should be, the worst first, and of the same level the stacks."""
    found = list(_stacks(findings))
    cluster = findings.stack("cluster")
    if cluster and cluster.is_good:
        found += _head(findings.head)
    node = findings.head.node
    if node:
        found += _node("the head node", node)
        found += _slurm(node.get("slurm") or {})
        found += _nodes(node)
        found += _acceptance(node.get("acceptance"))
    found += _reservations(findings.reservations)
    return sorted(found, key=lambda problem: LEVELS.index(problem.level))


def _stacks(findings: Findings) -> Iterator[Problem]:
    for stack in findings.stacks:
        if not stack.is_there:
            if findings.is_deployed and stack.part not in findings.optional:
                yield Problem(
                    BUSY if any(other.is_busy for other in findings.stacks) else FAILED,
                    stack.name,
                    "there is no such stack",
                )
        elif stack.is_busy:
            level = FAILED if stack.failed else BUSY
            yield Problem(level, stack.name, f"{stack.status}{_first(stack)}")
        elif not stack.is_good:
            # After the rollback of an update the stack works as before, without the requested change.
            level = DEGRADED if stack.status == ROLLED_BACK else FAILED
            yield Problem(level, stack.name, f"{stack.status}{_first(stack)}", _stack_hint(stack))
    yield from (Problem(FAILED, "log of the nodes", line) for line in findings.logged)


def _first(stack: Stack) -> str:
    return f"; first failure: {stack.failed.name}: {stack.failed.reason}" if stack.failed else ""


def _stack_hint(stack: Stack) -> str:
    if stack.status == "UPDATE_ROLLBACK_FAILED" and stack.part != PARALLELCLUSTER:
        skipped = f" --resources-to-skip {stack.failed.name}" if stack.failed else ""
        return f"aws cloudformation continue-update-rollback --stack-name {stack.name}{skipped}"
    return ""


def _head(head: HeadNode) -> Iterator[Problem]:
    if head.state != "running":
        yield Problem(FAILED, "the head node", head.why_not or f"the instance is {head.state}")
    elif head.node is None and not head.unasked:
        yield Problem(DEGRADED, "the head node", f"does not say how it is: {head.why_not}")


def _node(name: str, node: Mapping[str, Any]) -> Iterator[Problem]:
    """What a node says of itself; the head node in full, the others as it has them."""
    for step in node.get("bad_steps") or node.get("steps") or ():
        if isinstance(step, Mapping) and step.get("status") in ("failed", "reported"):
            level = FAILED if step["status"] == "failed" else DEGRADED
            text = f"step {step.get('step')} failed (exit {step.get('exit')}, log {step.get('log')})"
            yield Problem(level, name, text, str(step.get("hint") or ""))
    release = node.get("release")
    failed = node.get("failed_release") or (release.get("failed") if isinstance(release, Mapping) else None)
    if failed:
        step = failed.get("step") or {}
        text = f"release {failed.get('release')} failed here and is not in use: step {step.get('step', 'unknown')}"
        yield Problem(DEGRADED, name, text, str(step.get("hint") or "mend the cause and deploy again"))
    for work in node.get("background") or ():
        if work.get("state") in ("waiting", "running"):
            yield Problem(BUSY, name, f"background {work.get('name')}: {work.get('detail')}")
        elif work.get("state") == "failed":
            text = f"background {work.get('name')}: {work.get('detail')} (log {work.get('log')})"
            yield Problem(DEGRADED, name, text, str(work.get("hint") or ""))
    health = node.get("health") or {}
    if health.get("status") == "fail":
        yield Problem(DEGRADED, name, f"health: {'; '.join(map(str, health.get('bad') or ()))}")


def _slurm(slurm: Mapping[str, Any]) -> Iterator[Problem]:
    if slurm.get("error"):
        yield Problem(FAILED, "Slurm", str(slurm["error"]), "on the head node: systemctl status slurmctld")
    bad = [node for node in slurm.get("nodes") or () if _is_out(str(node.get("state")))]
    for node in bad[:MOST_NODES]:
        reason = f": {node['reason']}" if node.get("reason") else ""
        yield Problem(DEGRADED, str(node.get("name")), f"{node.get('state')} in Slurm{reason}")
    if len(bad) > MOST_NODES:
        yield Problem(DEGRADED, "Slurm", f"{len(bad) - MOST_NODES} more nodes are out of service")


def _is_out(word: str) -> bool:
    """A node that is powered down (~) or on its way (#, %) does not count as failed."""
    plain = word.rstrip("*$@^!-+")
    return plain in NOT_WORKING or word.endswith("*")


def _nodes(head: Mapping[str, Any]) -> Iterator[Problem]:
    if head.get("fsx_error"):
        yield Problem(DEGRADED, "the shared file system", str(head["fsx_error"]))
    slurm_nodes = (head.get("slurm") or {}).get("nodes") or ()
    known = {str(node.get("name")) for node in slurm_nodes}
    nodes = [node for node in head.get("nodes") or () if not known or str(node.get("host")) in known]
    off = {str(one.get("name")) for one in slurm_nodes if set(str(one.get("state"))) & POWERED_DOWN}
    for node in nodes:
        yield from _node(str(node.get("host")), node)
    wanted = (head.get("release") or {}).get("in_use")
    up = [node for node in nodes if str(node.get("host")) not in off]  # the others take it when they boot
    yield from (Problem(DEGRADED, "compute nodes", line, versions.HINT) for line in versions.differing(up))
    old = sorted(str(node.get("host")) for node in up if wanted and node.get("release") != wanted)
    if old:
        text = f"another release than the head node's {wanted}; each takes it when its jobs have ended"
        yield Problem(BUSY, listed(old, MOST_NODES), text, "on the head node: squeue --name slipway-update")


def _acceptance(last: Mapping[str, Any] | None) -> Iterator[Problem]:
    if last and last.get("verdict") != "accepted":
        text = f"run {last.get('run_id')}: {last.get('verdict')}: {last.get('summary')}"
        yield Problem(DEGRADED, "acceptance", text, f"on the head node: {last.get('directory')}/report.html")


def _reservations(reservations: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    for one in reservations:
        if one["state"] not in ("active", "scheduled", "pending", "payment-pending"):
            yield Problem(FAILED, f"reservation {one['id']}", f"it is {one['state']}")
