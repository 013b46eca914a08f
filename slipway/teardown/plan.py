"""What a teardown deletes, in which order, and what stays, with the reason. Pure: no call to AWS."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from slipway.leftovers import (
    ADDRESS,
    BACKUP,
    BUCKET,
    FILE_SYSTEM,
    GROUP,
    INSTANCE,
    LOG_GROUP,
    NAT_GATEWAY,
    PARAMETER,
    SNAPSHOT,
    VOLUME,
    WORKSPACE,
    Leftover,
)
from slipway.stack_names import stack_names
from slipway.teardown.stacks import PARALLELCLUSTER, LiveStack

STACK = "stack"
CONTENT = {
    "acceptance": "the run's state",
    "cluster": "head node, compute nodes and their disks",
    PARALLELCLUSTER: "head node, compute nodes and their disks",
    "observability": "dashboards, alarms, budget",
    "storage": "nothing that holds data",
    "network": "VPC, subnets, NAT gateway and address, or the nodes' security group",
}
PAID_BY_STACK = (NAT_GATEWAY, ADDRESS)  # they go with the network stack


@dataclasses.dataclass(frozen=True)
class Step:
    """One deletion: `kind` is "stack" or a kind of leftover, `id` its name in AWS, `text` what that means."""

    kind: str
    id: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Stay:
    """What stays: `text` names it with its reason, `usd_per_month` is its known price."""

    text: str
    usd_per_month: float = 0.0
    is_untouched: bool = False  # not this cluster's, or not for certain


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps in their order, what stays, and `refused`: why nothing may be done at all."""

    steps: tuple[Step, ...]
    stays: tuple[Stay, ...]
    refused: str = ""

    @property
    def usd_per_month(self) -> float:
        """The known price of what stays."""
        return sum(stay.usd_per_month for stay in self.stays if not stay.is_untouched)


def make_plan(
    name: str,
    stacks: Mapping[str, LiveStack],
    things: Sequence[Leftover],
    *,
    delete_data: bool,
    is_cluster_proved: bool = False,
) -> Plan:
    """Return the plan for the cluster `name` with these `stacks` and `things`; `is_cluster_proved`: see `Found`."""
    ours = {part: stack for part, stack in stacks.items() if not stack.foreign}
    if PARALLELCLUSTER not in ours and not is_cluster_proved:
        things = [_with_doubt(thing, name) for thing in things]
    certain = [thing for thing in things if thing.is_ours]
    kept = {} if delete_data else _kept_stacks(name, ours, certain)
    steps = tuple(_steps(name, ours, certain, kept, delete_data))
    gone = {step.id for step in steps}
    stays = tuple(_stays(name, stacks, things, kept, gone))
    return Plan(steps, stays, _refused(stacks))


def _with_doubt(thing: Leftover, name: str) -> Leftover:
    """What a stack `NAME` made is certain only if that stack is proved to be ours: `pcluster` may reuse a name."""
    return thing if thing.stack != name else dataclasses.replace(thing, is_ours=False)


def _refused(stacks: Mapping[str, LiveStack]) -> str:
    """Why deleting the stack `NAME-cluster` would delete a cluster `NAME` that is not this one's."""
    cluster, inner = stacks.get("cluster"), stacks.get(PARALLELCLUSTER)
    if cluster and not cluster.foreign and cluster.has_cluster and inner and inner.foreign:
        return (
            f"the cluster {inner.name} is not this one's: {inner.foreign}. Deleting the stack {cluster.name} would "
            "delete it too, because ParallelCluster deletes a cluster by its name. Nothing was deleted. Hint: ask the "
            f"owner of {inner.name}; if it may go: pcluster delete-cluster --cluster-name {inner.name}, then teardown"
        )
    return ""


def _kept_stacks(name: str, ours: Mapping[str, LiveStack], certain: Sequence[Leftover]) -> dict[str, str]:
    """Return the parts that stay for their data, with the reason."""
    names = stack_names(name)
    kept: dict[str, str] = {}
    for part in ("storage", "observability"):
        # A log group alone is retained by its stack, and stays without it.
        held = [t for t in certain if t.stack == names[part] and t.is_data and t.kind != LOG_GROUP]
        if part in ours and held:
            kept[part] = f"it holds {', '.join(f'{thing.kind} {thing.id}' for thing in held)}"
    systems = [thing.id for thing in certain if thing.kind == FILE_SYSTEM]
    if "network" in ours and systems:
        kept["network"] = f"the file system {', '.join(systems)} is in its subnet"
    return kept


def _steps(
    name: str,
    ours: Mapping[str, LiveStack],
    certain: Sequence[Leftover],
    kept: Mapping[str, str],
    delete_data: bool,
) -> Iterator[Step]:
    """The nodes first: they use everything else. The VPC last: it holds everything else."""
    yield from _stack_steps(ours, ("acceptance", "cluster"))
    if "cluster" not in ours:
        yield from _stack_steps(ours, (PARALLELCLUSTER,))
    parts = [part for part in ("storage", "observability", "network") if part not in kept]
    yield from _stack_steps(ours, [part for part in parts if part == "storage"])
    if delete_data:  # after the stack, which deletes the associations and the bucket's policy, and retains these
        for kind in (FILE_SYSTEM, BACKUP, VOLUME, SNAPSHOT, BUCKET):
            yield from _thing_steps(certain, kind)
    if "storage" in parts and not _file_systems_stay(certain, delete_data):
        group_stacks = {stack_names(name)["storage"]} | ({name} if "cluster" not in ours else set())
        groups = [thing for thing in certain if thing.stack in group_stacks]
        yield from _thing_steps(groups, GROUP)
    yield from _stack_steps(ours, [part for part in parts if part == "observability"])
    if delete_data:  # after the stack, which holds the workspace
        if "observability" not in ours:
            yield from _thing_steps(certain, WORKSPACE)
        yield from _thing_steps(certain, LOG_GROUP)
    if "cluster" not in ours:
        yield from _thing_steps(certain, PARAMETER)
    if not _file_systems_stay(certain, delete_data):
        yield from _stack_steps(ours, [part for part in parts if part == "network"])


def _file_systems_stay(certain: Sequence[Leftover], delete_data: bool) -> bool:
    return not delete_data and any(thing.kind == FILE_SYSTEM for thing in certain)


def _stack_steps(ours: Mapping[str, LiveStack], parts: Sequence[str]) -> Iterator[Step]:
    for part in parts:
        if part in ours:
            yield Step(STACK, ours[part].name, f"{ours[part].status}: {CONTENT[part]}")


def _thing_steps(things: Sequence[Leftover], kind: str) -> Iterator[Step]:
    for thing in things:
        if thing.kind == kind:
            yield Step(kind, thing.id, thing.text)


def _stays(
    name: str,
    stacks: Mapping[str, LiveStack],
    things: Sequence[Leftover],
    kept: Mapping[str, str],
    gone: set[str],
) -> Iterator[Stay]:
    for part, stack in stacks.items():
        if stack.foreign:
            yield Stay(f"stack {stack.name} ({stack.status}): not this cluster's: {stack.foreign}", is_untouched=True)
        elif part in kept:
            yield Stay(f"stack {stack.name} ({stack.status}): {kept[part]}")
    network = stack_names(name)["network"]
    for thing in things:
        goes_with_stack = thing.kind in (*PAID_BY_STACK, GROUP, WORKSPACE, PARAMETER) and (
            thing.stack in gone or (thing.kind in PAID_BY_STACK and network in gone)
        )
        if thing.id in gone or goes_with_stack or (thing.kind == INSTANCE and name in _clusters(gone, name)):
            continue
        yield Stay(thing.line, thing.usd_per_month or 0.0, is_untouched=not thing.is_ours)


def _clusters(gone: set[str], name: str) -> set[str]:
    """The cluster's name, if its nodes end with a stack that goes."""
    return {name} if gone & {name, stack_names(name)["cluster"]} else set()
