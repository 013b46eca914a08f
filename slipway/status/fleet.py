"""What is wrong with the fleet: partitions, nodes without a machine, replacements, reservations. Pure.

Reasons and states are those of ParallelCluster (aws-parallelcluster-node, src/slurm_plugin: clustermgtd.py,
slurm_resources.py, instance_manager.py, read 2026-11-28) and of Slurm 22.05 to 25.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.status.problem import BUSY, DEGRADED, FAILED, MOST_NODES, Problem
from slipway.text import duration

NOT_WORKING = ("down", "drained", "draining", "fail", "failing", "error", "inval", "unknown")  # states of Slurm
NOT_THERE = frozenset("~%!")  # Slurm's marks of a node that is powered down, or on its way there
BOOT_S = 2100.0  # after so long ParallelCluster gives a node up that is not up (ResumeTimeout)
REPLACED = "Static node maintenance"
MOST_LAUNCHES = 3  # of one node in 24 hours: its first start, and two replacements
NO_CAPACITY = re.compile(r"Insufficient|MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow|ReservationCapacityExceeded")
CODE = re.compile(r"\(Code:([^)]*)\)")
STATIC = re.compile(r".+-st-.+-[0-9]+")
BLOCK_TAIL_S = 1800.0  # EC2 ends a block's instances so long before its end
BLOCK_NOTICE_S = 2400.0  # and how long before that `slipway status` says so
EVIDENCE = "/fsx/logs/slipway/evidence"

NODE_LOGS = "slipway logs FILE --group system --node NODE; slipway logs FILE --group slurm"
REASONS = (
    ("ResumeTimeout reached", "its machine did not join Slurm in time", NODE_LOGS),
    ("Scheduler health check failed", "ParallelCluster gave it up", NODE_LOGS),
    ("Not responding", "its slurmd does not answer", NODE_LOGS),
)
# Status of the fleet (ComputeFleetStatus) -> level and text.
FLEET = {
    "PROTECTED": (FAILED, "ParallelCluster's protected mode: nodes failed to start again and again, none is started"),
    "STOPPED": (FAILED, "the fleet was stopped: no job starts"),
    "STOP_REQUESTED": (BUSY, "the fleet is being stopped"),
    "STOPPING": (BUSY, "the fleet is being stopped"),
    "START_REQUESTED": (BUSY, "the fleet is being started"),
    "STARTING": (BUSY, "the fleet is being started"),
}


def fleet_problems(slurm: Mapping[str, Any], cluster: str) -> Iterator[Problem]:
    """What Slurm and ParallelCluster say of the fleet; `cluster` is ParallelCluster's name of it."""
    if slurm.get("error"):
        yield Problem(FAILED, "Slurm", str(slurm["error"]), "on the head node: systemctl status slurmctld")
    yield from _partitions(slurm, cluster)
    bad = [problem for node in slurm.get("nodes") or () if (problem := _node(node, slurm))]
    yield from bad[:MOST_NODES]
    if len(bad) > MOST_NODES:
        level = DEGRADED if any(problem.level == DEGRADED for problem in bad[MOST_NODES:]) else BUSY
        yield Problem(level, "Slurm", f"{len(bad) - MOST_NODES} more nodes are out of service")
    yield from _replacements(slurm)


def _partitions(slurm: Mapping[str, Any], cluster: str) -> Iterator[Problem]:
    fleet = str(slurm.get("fleet") or "")
    start = f"pcluster update-compute-fleet --cluster-name {cluster} --status START_REQUESTED"
    if fleet == "PROTECTED":
        start = f"find the cause ({NODE_LOGS}), repair it, then {start}"
    if fleet in FLEET:
        level, text = FLEET[fleet]
        yield Problem(level, "the fleet", f"{fleet}: {text}", start if level == FAILED else "")
    for name, available in (slurm.get("partitions") or {}).items():
        if available.startswith("inact"):
            mode = " (ParallelCluster's protected mode)" if fleet == "PROTECTED" else ""
            text = f"it is INACTIVE{mode}: Slurm refuses its jobs and starts no node"
            yield Problem(FAILED, f"partition {name}", text, start)
        elif available != "up":
            repair = f"on the head node: scontrol update partitionname={name} state=up"
            yield Problem(DEGRADED, f"partition {name}", f"it is {available}: its jobs wait", repair)


def _node(node: Mapping[str, Any], slurm: Mapping[str, Any]) -> Problem | None:
    """What is wrong with one node; None when nothing is, or when its partition or fleet is off as a whole."""
    word, reason = str(node.get("state")), str(node.get("reason") or "")
    plain = word.rstrip("*$@^!-+~#%")
    name = str(node.get("name"))
    off = bool(set(word) & NOT_THERE)
    if plain in NOT_WORKING and "#" not in word:
        level, text, hint = _reason(reason, node.get("reason_age_s"))
        return Problem(level, name, f"{word} in Slurm{text}", hint.replace("NODE", name))
    if word.endswith("*"):
        return Problem(DEGRADED, name, f"{word} in Slurm: its slurmd does not answer", NODE_LOGS.replace("NODE", name))
    if off and plain in ("idle", "mixed", "allocated") and STATIC.fullmatch(name) and _runs(node, slurm):
        return _without_machine(name, word, slurm.get("up_s"))
    return None


def _runs(node: Mapping[str, Any], slurm: Mapping[str, Any]) -> bool:
    """Whether ParallelCluster is to keep machines of the node's partition."""
    available = (slurm.get("partitions") or {}).get(node.get("partition"), "up")
    return available == "up" and slurm.get("fleet", "") in ("", "RUNNING")


def _without_machine(name: str, word: str, up_s: float | None) -> Problem:
    """A static node that is powered down. Its state has no time: the head node's uptime bounds it."""
    if up_s is not None and up_s < BOOT_S:
        return Problem(
            BUSY, name, f"{word} in Slurm: it has no machine yet, {duration(up_s)} after the head node's start"
        )
    text = f"{word} in Slurm: a static node without a machine, and ParallelCluster has not launched one"
    return Problem(DEGRADED, name, text, "slipway logs FILE --group slurm (clustermgtd)")


def _reason(reason: str, age_s: float | None) -> tuple[str, str, str]:
    """Level, text and repair of a reason in Slurm."""
    code = CODE.match(reason)
    if code:
        why = "EC2 has no capacity" if NO_CAPACITY.search(code[1]) else "EC2 launched no machine"
        repair = "slipway preflight FILE says whether the reservation and the quota hold; ParallelCluster tries again"
        return DEGRADED, f": {why}: {reason}", repair
    if reason.startswith(REPLACED):
        since = f" for {duration(age_s)}" if age_s is not None else ""
        text = f": ParallelCluster replaces its machine{since}: {reason}"
        if age_s is not None and age_s <= BOOT_S:
            return BUSY, text, ""
        return DEGRADED, text, f"{NODE_LOGS}; evidence of its fault: {EVIDENCE}/NODE"
    for start, why, repair in REASONS:
        if start in reason:
            return DEGRADED, f": {why}: {reason}", repair
    return DEGRADED, f": {reason}" if reason else "", ""


def _replacements(slurm: Mapping[str, Any]) -> Iterator[Problem]:
    """Nodes whose machine is replaced again and again: the replacement does not help."""
    drains, launches = slurm.get("drains") or {}, slurm.get("launches") or {}
    again = {name: count for name, count in launches.items() if count >= MOST_LAUNCHES}
    for name, count in sorted(again.items(), key=lambda item: -item[1])[:MOST_NODES]:
        own = f", {drains[name]} of them after Slipway drained it" if drains.get(name) else ""
        text = f"ParallelCluster launched its machine {count} times in 24 h{own}: replacing it does not help"
        yield Problem(DEGRADED, name, text, f"{NODE_LOGS}; evidence: {EVIDENCE}/NODE".replace("NODE", name))
    if len(again) > MOST_NODES:
        yield Problem(DEGRADED, "Slurm", f"{len(again) - MOST_NODES} more nodes are replaced again and again")


def reservation_problems(reservations: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """What is wrong with the reservations, or will be soon."""
    for one in reservations:
        where = f"reservation {one['id']}"
        if one["state"] not in ("active", "scheduled", "pending", "payment-pending"):
            repair = "reserve anew, write the new id into the settings, and deploy"
            yield Problem(FAILED, where, f"it is {one['state']}: its nodes are gone or will not come again", repair)
        elif one.get("is_block") and one["state"] == "active" and one.get("seconds_left") is not None:
            yield from _block(where, one["seconds_left"] - BLOCK_TAIL_S)


def _block(where: str, usable_s: float) -> Iterator[Problem]:
    """`usable_s`: until EC2 begins to end the block's instances."""
    if usable_s <= 0:
        text = "the last 30 minutes of the block have begun: EC2 ends its instances now, jobs on them fail"
        yield Problem(FAILED, where, text, "save what is on /scratch; extend the block next time before its end")
    elif usable_s <= BLOCK_NOTICE_S:
        text = f"EC2 ends the block's instances in {duration(usable_s)}, 30 min before its end"
        yield Problem(DEGRADED, where, text, "let jobs write a checkpoint to /fsx; start no job that takes longer")
