"""What is wrong with a cluster, from what was read of it. Pure: the same findings give the same problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.errors import EXIT_ENVIRONMENT, EXIT_GOOD, EXIT_NO
from slipway.stack_names import ROLLED_BACK
from slipway.stack_repairs import repair
from slipway.status import versions
from slipway.status.fleet import fleet_problems, reservation_problems
from slipway.status.head import HeadNode
from slipway.status.problem import BUSY, DEGRADED, FAILED, LEVELS, MOST_NODES, Problem
from slipway.status.stacks import PARALLELCLUSTER, Stack
from slipway.text import listed

POWERED_DOWN = frozenset("~#%!")  # Slurm's marks of a node that is off, or on its way there or back


@dataclasses.dataclass(frozen=True)
class Findings:
    """All that was read. `notes`: what was not asked.

    `boot`: why nodes did not boot; `logged`: lines of the nodes' logs that report a fault.
    """

    stacks: Sequence[Stack]
    optional: frozenset[str]
    head: HeadNode
    reservations: Sequence[Mapping[str, Any]] = ()
    logged: Sequence[str] = ()
    boot: Sequence[Problem] = ()
    file_systems: Sequence[Mapping[str, Any]] = ()
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
    found += findings.boot
    cluster = findings.stack("cluster")
    if cluster and cluster.is_good:
        found += _head(findings.head)
    node = findings.head.node
    if node:
        found += _node("the head node", node)
        found += fleet_problems(node.get("slurm") or {}, _cluster_name(findings))
        found += _nodes(node)
        found += _services(node)
        found += _acceptance(node.get("acceptance"))
    found += reservation_problems(findings.reservations)
    found += _file_systems(findings.file_systems)
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
            yield Problem(level, stack.name, f"{stack.status}{_first(stack)}{_stuck(stack)}", _stack_hint(stack))
    yield from (Problem(FAILED, "log of the nodes", line) for line in findings.logged)


def _cluster_name(findings: Findings) -> str:
    """ParallelCluster's name of the cluster."""
    return next((stack.name for stack in findings.stacks if stack.part == PARALLELCLUSTER), "NAME")


def _first(stack: Stack) -> str:
    return f"; first failure: {stack.failed.name}: {stack.failed.reason}" if stack.failed else ""


def _stuck(stack: Stack) -> str:
    """What the roll-back could not restore."""
    reasons = listed([f"{step.name}: {step.reason or 'no reason'}" for step in stack.stuck], MOST_NODES)
    return f"; the roll-back stopped at {reasons}" if stack.stuck else ""


def _stack_hint(stack: Stack) -> str:
    """The way out of a failed state; a resource at which a roll-back stopped and that cannot be repaired is skipped."""
    if stack.part == PARALLELCLUSTER:
        return ""
    hint = repair(stack.status, stack.name)
    skipped = " ".join(f"--orphan {step.name}" for step in stack.stuck if step.name != stack.name)
    return hint + (f"; if it cannot be repaired, add {skipped}: it stays as it is (docs/updates.md)" if skipped else "")


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
        action = str(health.get("action") or "")
        brake = f"; {action}" if action.startswith("not drained: ") else ""
        yield Problem(DEGRADED, name, f"health: {'; '.join(map(str, health.get('bad') or ()))}{brake}")


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


def _services(head: Mapping[str, Any]) -> Iterator[Problem]:
    """What the head node sends and asks outside the cluster: accounting's database, Managed Prometheus."""
    if head.get("accounting_error"):
        repair = "slurm.database: host, port, secret, security group, route; slipway logs FILE --group slurm (slurmdbd)"
        yield Problem(DEGRADED, "accounting", str(head["accounting_error"]), repair)
    sent = head.get("remote_write") or {}
    if sent.get("error"):
        yield Problem(DEGRADED, "metrics", str(sent["error"]), "on the head node: systemctl status slipway-prometheus")
    elif sent.get("refused"):
        why = f": {sent['why']}" if sent.get("why") else ""
        lost, counted = sent["refused"], sent.get("sent")
        text = f"Managed Prometheus refused {lost} samples in 15 min, they are lost; {counted} sent{why}"
        repair = "400: a limit of the workspace or its series; 403: the role; 429: its ingestion quota (Service Quotas)"
        yield Problem(DEGRADED, "metrics", text, repair)
    elif sent.get("retried") and sent["retried"] >= max(1, sent.get("sent") or 0):
        why = f": {sent['why']}" if sent.get("why") else ""
        text = f"Managed Prometheus does not take samples: {sent['retried']} were sent again in 15 min{why}"
        yield Problem(DEGRADED, "metrics", text, "a route or VPC endpoint (aps-workspaces) from the head node's subnet")


def _file_systems(file_systems: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """File systems and their associations that are not available, with FSx's own reason."""
    for one in file_systems:
        state, kind = one["state"], one["kind"]
        reason = f": {one['reason']}" if one["reason"] else ""
        if state in ("CREATING", "UPDATING", "PENDING"):
            yield Problem(BUSY, f"{kind} {one['id']}", f"it is {state}{reason}")
        elif state != "AVAILABLE":
            level = FAILED if kind == "file system" else DEGRADED
            yield Problem(level, f"{kind} {one['id']}", f"{one['what']} is {state}{reason}", one["repair"])


def _acceptance(last: Mapping[str, Any] | None) -> Iterator[Problem]:
    if last and last.get("verdict") != "accepted":
        text = f"run {last.get('run_id')}: {last.get('verdict')}: {last.get('summary')}"
        yield Problem(DEGRADED, "acceptance", text, f"on the head node: {last.get('directory')}/report.html")
