"""The one screen of `slipway status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.leftovers import Found
from slipway.settings import Settings
from slipway.status import versions
from slipway.status.fleet import BLOCK_TAIL_S
from slipway.status.judge import Findings
from slipway.status.problem import Problem
from slipway.status.stacks import Stack
from slipway.text import duration, listed

WIDTH = 12  # of the left column
MOST_BUSY = 6
MOST_NAMED = 8  # nodes and background work
MOST_PROBLEMS = 20


def lines(
    settings: Settings, word: str, findings: Findings, problems: Sequence[Problem], usd: tuple[float, float] | None
) -> Iterator[str]:
    """The screen, line by line."""
    yield f"{settings.name} in {settings.zone}: {word}"
    if not findings.is_deployed:
        yield row("stacks", "none: it is not deployed")
        return
    yield from _stacks(findings.stacks)
    node = findings.head.node or {}
    yield row("head node", _head(findings))
    if node:
        yield from _fleet(node.get("slurm") or {})
        yield from _setup(node)
        yield from _background(node)
        yield from _health(node)
        yield row("acceptance", _acceptance(node.get("acceptance")))
    for one in findings.reservations:
        yield row("reservation", _reservation(one))
    if usd:
        yield row("cost", f"{_range(usd)} USD a month at list prices (slipway cost)")
    yield from _problems(problems)
    for note in findings.notes:
        yield row("not asked", note)


def left_lines(found: Found | None) -> Iterator[str]:
    """What is left of a cluster without nodes, and what it costs."""
    if found is None:
        return
    for number, thing in enumerate(found.things):
        yield row("" if number else "left", thing.line)
    if found.things:
        total = f"{found.usd_per_month:,.2f} USD a month at list prices, and what is paid by use"
        yield row("", f"together {total}. Hint: slipway teardown FILE prints what can go, and deletes it")
    for text in found.unasked:
        yield row("not asked", f"what is left of it: {text}")


def row(title: str, text: str) -> str:
    """One line with its title in the left column."""
    return f"{title:<{WIDTH}}{text}"


def _stacks(stacks: Sequence[Stack]) -> Iterator[str]:
    there = [stack for stack in stacks if stack.is_there]
    by_status: dict[str, list[str]] = {}
    for stack in there:
        by_status.setdefault(stack.status, []).append(stack.part)
    yield row("stacks", "; ".join(f"{', '.join(parts)} {status}" for status, parts in by_status.items()))
    for stack in there:
        if stack.is_busy:
            yield row("", f"{stack.name}: {stack.status} for {duration(stack.seconds)}{_now(stack)}")


def _now(stack: Stack) -> str:
    steps = [f"{step.name} {duration(step.seconds)}" for step in stack.busy]
    return f"; now: {listed(steps, MOST_BUSY)}" if steps else ""


def _head(findings: Findings) -> str:
    head, node = findings.head, findings.head.node
    if not head.state:
        return head.why_not
    text = f"{head.instance_id} {head.instance_type} {head.state} for {duration(head.seconds)}"
    if node is None:
        return f"{text}; {head.why_not}"
    release = node.get("release") or {}
    steps = node.get("steps") or []
    seconds = sum(float(step.get("seconds") or 0) for step in steps)
    counted = _counts(Counter(str(step.get("status")) for step in steps))
    return f"{text}; release {release.get('in_use')}; steps: {counted or 'none yet'}, {seconds:.1f} s"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _fleet(slurm: Mapping[str, Any]) -> Iterator[str]:
    partitions: dict[str, Counter[str]] = {}
    for node in slurm.get("nodes") or ():
        partitions.setdefault(str(node.get("partition")), Counter())[str(node.get("state"))] += 1
    states_by_partition = [f"{name}: {_counts(states)}" for name, states in partitions.items()]
    off = [f"{name} {word}" for name, word in (slurm.get("partitions") or {}).items() if word != "up"]
    status = [f"{slurm['fleet']}"] if slurm.get("fleet", "RUNNING") not in ("", "RUNNING") else []
    jobs = _counts(slurm.get("jobs") or {})
    yield row("fleet", "; ".join([*status, *states_by_partition, *off, f"jobs: {jobs or 'none'}"]))
    drains = sum((slurm.get("drains") or {}).values())
    if drains:
        yield row("", f"Slipway drained nodes {drains} times in 24 h (evidence: /fsx/logs/slipway/evidence)")
    if slurm.get("updating"):
        yield row(
            "",
            f"{len(slurm['updating'])} nodes wait to take the new release: {', '.join(slurm['updating'][:MOST_NAMED])}",
        )


def _setup(head: Mapping[str, Any]) -> Iterator[str]:
    nodes = head.get("nodes") or []
    if not nodes:
        yield row("nodes", "no compute node has reported yet")
        return
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({str(name): int(count) for name, count in (node.get("steps") or {}).items()})
    slowest = max(nodes, key=lambda node: float(node.get("seconds") or 0))
    took = f"the slowest {slowest.get('host')} in {float(slowest.get('seconds') or 0):.1f} s"
    yield row("nodes", f"{len(nodes)} set up; steps: {_counts(total)}; {took}")
    software = versions.in_use(nodes)
    if software:
        yield row("", software)


def _background(head: Mapping[str, Any]) -> Iterator[str]:
    works = [("", work) for work in head.get("background") or ()]
    for node in head.get("nodes") or ():
        works += [(f" on {node.get('host')}", work) for work in node.get("background") or ()]
    if works:
        yield row("background", "; ".join(_work(where, work) for where, work in works[:MOST_NAMED]))


def _work(where: str, work: Mapping[str, Any]) -> str:
    parts = [f"{work.get('name')}{where} {work.get('state')}"]
    if work.get("percent") is not None and work.get("state") == "running":
        parts.append(f"{work['percent']} %")
    if work.get("detail"):
        parts.append(str(work["detail"]))
    if work.get("eta_s") is not None and work.get("state") == "running":
        parts.append(f"about {duration(float(work['eta_s']))} left")
    return ", ".join(parts)


def _health(head: Mapping[str, Any]) -> Iterator[str]:
    bad = [node for node in head.get("nodes") or () if node.get("health")]
    if head.get("nodes"):
        findings = "; ".join(
            f"{node.get('host')}: {', '.join(node['health'].get('bad') or ())}" for node in bad[:MOST_NAMED]
        )
        yield row("health", findings or "nothing reported when the nodes were set up, or since")


def _acceptance(last: Mapping[str, Any] | None) -> str:
    if not last:
        return "no run with a report on the shared file system"
    return f"{last.get('verdict')} (run {last.get('run_id')}): {last.get('summary')}"


def _reservation(one: Mapping[str, Any]) -> str:
    text = f"{one['id']} {one['state']}, {one['free']} of {one['total']} free"
    left = one["seconds_left"]
    if left is not None and one.get("is_block"):
        return f"{text}, {duration(max(0.0, left - BLOCK_TAIL_S))} until EC2 ends its nodes, {duration(left)} left"
    return f"{text}, {duration(left)} left" if left is not None else f"{text}, no end"


def _range(usd: tuple[float, float]) -> str:
    low, high = (f"{round(one):,}" for one in usd)
    return low if low == high else f"{low} to {high}"


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems[:MOST_PROBLEMS]:
        hint = f". Hint: {problem.hint}" if problem.hint else ""
        yield row(problem.level, f"{problem.where}: {problem.text}{hint}")
    if len(problems) > MOST_PROBLEMS:
        yield row("", f"and {len(problems) - MOST_PROBLEMS} more (--json has all of them)")
