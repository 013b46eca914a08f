"""Drain the node in Slurm when it is broken. Jobs are never touched: a drained node finishes its running jobs.

ParallelCluster replaces a drained static node within a minute and writes a reason of its own (clustermgtd.py of
aws-parallelcluster-node: "Static node maintenance ..."), so a drain costs an instance, and the reasons in Slurm do not
show how many nodes Slipway drained. Therefore:
- a fault that may pass or that nodes share (file system, clock) never drains;
- every drain is noted in the node's comment in Slurm (`history`), and two brakes count these notes: a quarter of the
  nodes within some hours looks like one cause, and `health.replacements_per_day` bounds what a day can cost;
- evidence is saved before the drain (`evidence`).

A node without a fault never asks Slurm. A node is not drained twice, nor over another program's reason. If an operator
resumes a drained node, the same finding does not drain it again until it gets worse or the node boots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from nodes.health import history
from nodes.health.ask import Asker
from nodes.health.facts import Settings
from nodes.health.judge import Failure

LIMIT_S = 10.0
MARK = "slipway: "
REASON_LIMIT = 200  # characters
REPLACED = "Static node maintenance"  # clustermgtd's reason for a node that it replaces
MOST_DRAINED = 0.25  # of the cluster's nodes (at least one), within BRAKE_HOURS
BRAKE_HOURS = 6.0
DAY_HOURS = 24.0
OUT_OF_SERVICE = ("drain", "down", "fail", "maint", "error")


@dataclasses.dataclass(frozen=True)
class Row:
    """A node as sinfo lists it."""

    state: str
    reason: str

    @property
    def out_of_service(self) -> bool:
        """True when Slurm starts no job on it."""
        return self.state.lower().startswith(OUT_OF_SERVICE)

    @property
    def ours(self) -> bool:
        """True when this program drained it."""
        return self.out_of_service and self.reason.startswith(MARK)

    @property
    def is_being_replaced(self) -> bool:
        """True when ParallelCluster replaces its instance."""
        return self.out_of_service and self.reason.startswith(REPLACED)


def nodes(asker: Asker) -> dict[str, Row] | None:
    """Every node of the cluster, None when Slurm did not answer."""
    answer = asker.ask(["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"], LIMIT_S)
    if not answer.ok:
        return None
    fields = (line.split("|", 2) for line in answer.out.splitlines())
    return {field[0].strip(): Row(field[1].strip(), field[2].strip()) for field in fields if len(field) == 3}


def reason(due: Sequence[Failure]) -> str:
    """`slipway: gpu 3: 12 uncorrectable ECC errors (limit 0)`, on one line, with how many more there are."""
    first = due[0]
    more = f" (+{len(due) - 1} more)" if len(due) > 1 else ""
    text = f"{first.text} (limit {first.limit})"
    plain = "".join(one if one.isprintable() and one not in "\"'|" else " " for one in text)
    return f"{MARK}{plain[: REASON_LIMIT - len(more)]}{more}"


def act(
    asker: Asker,
    name: str,
    found: Sequence[Failure],
    state: dict[str, Any],
    settings: Settings,
    now: float,
    save: Callable[[str], str],
) -> str:
    """Do what the findings ask for; returns it in words.

    `state`: `drained` and `seen` hold keys of findings. `save` saves evidence for a reason and returns its place.
    """
    keys = [failure.key for failure in found]
    state["seen"] = [key for key in state.get("seen", []) if key in keys]
    drains = [failure for failure in found if not failure.heals]
    due = [failure for failure in drains if failure.row >= failure.needed and failure.key not in state["seen"]]
    if not due:
        if not found:
            state["drained"] = []
            return "nothing to do"
        if not drains:
            return "never drained for what may pass or what nodes share"
        return "not yet" if len(state["seen"]) < len(drains) else "seen by an operator"
    listed = nodes(asker)
    if listed is None:
        return "Slurm does not answer"
    if name not in listed:
        return f"Slurm does not know {name}"
    return _drain(asker, name, due, listed, state, settings, now, save)


def _drain(
    asker: Asker,
    name: str,
    due: Sequence[Failure],
    listed: dict[str, Row],
    state: dict[str, Any],
    settings: Settings,
    now: float,
    save: Callable[[str], str],
) -> str:
    row, keys = listed[name], [failure.key for failure in due]
    if row.out_of_service:
        if row.ours:
            state["drained"] = sorted({*state.get("drained", []), *keys})
            return f"drained already ({row.reason})"
        return f"out of service already: {row.state} ({row.reason})"
    known = set(state.get("drained", []))
    if known:  # drained before, and in service again: an operator resumed it
        state["seen"] = [*state["seen"], *(key for key in keys if key in known)]
        state["drained"] = []
        due = [failure for failure in due if failure.key not in known]
        if not due:
            return "resumed by an operator: not drained again for what is known"
    if not settings.drain:
        return f"would drain ({reason(due)}); HEALTH_DRAIN is off"
    notes = history.read(asker, LIMIT_S)
    if notes is None:
        return "Slurm does not answer"
    brake = _brake(listed, notes, settings, now, planned=1)
    if brake:
        return f"not drained: {brake}"
    refusal = notes.add(asker, name, now, LIMIT_S)
    if refusal:
        return f"not drained: scontrol did not note it in the node's comment: {refusal}"
    # Nodes that note a drain at the same moment see each other's notes now, and none of them goes over the limit.
    noted = history.read(asker, LIMIT_S)
    brake = _brake(listed, noted, settings, now, planned=0) if noted else "Slurm does not answer"
    if brake:
        notes.restore(asker, name, LIMIT_S)
        return f"not drained: {brake}"
    place = save(reason(due))
    answer = asker.ask(["scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason(due)}"], LIMIT_S)
    if not answer.ok:
        notes.restore(asker, name, LIMIT_S)
        return f"scontrol did not drain: {answer.problem or answer.out.strip()[:160]}"
    state["drained"] = [failure.key for failure in due]
    return f"drained: {reason(due)}; evidence: {place}"


def _brake(listed: dict[str, Row], notes: history.Notes, settings: Settings, now: float, *, planned: int) -> str:
    """Why no more nodes may be drained, empty when one may. `planned`: drains that are not noted yet."""
    recent = notes.within(BRAKE_HOURS, now)
    out_now = [name for name, row in listed.items() if row.ours or row.is_being_replaced]
    count = sum(recent.values()) + sum(name not in recent for name in out_now)
    if count + planned > max(1, int(len(listed) * MOST_DRAINED)) and len(listed) > 1:
        return (
            f"{count} of {len(listed)} nodes were drained by Slipway in the last {BRAKE_HOURS:.0f} h or are being "
            "replaced, which looks like one cause"
        )
    today = sum(notes.within(DAY_HOURS, now).values())
    if settings.replaced and today + planned > settings.replacements_per_day:
        return (
            f"{today} drains in the last {DAY_HOURS:.0f} h, health.replacements_per_day is "
            f"{settings.replacements_per_day}"
        )
    return ""
