"""Drain the node in Slurm when it is broken. Jobs are never touched: a drained node finishes its running jobs.

A node without a fault never asks Slurm. A node is not drained twice, nor over another program's reason. If an operator
resumes a drained node, the same finding does not drain it again until it gets worse or the node boots. When many nodes
are drained already, a common cause is likelier than many broken nodes: then the finding is reported, not drained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nodes.health.ask import Asker
from nodes.health.judge import Failure

LIMIT_S = 10.0
MARK = "slipway: "
REASON_LIMIT = 200  # characters
MOST_DRAINED = 0.25  # of the cluster's nodes (at least one): ours
OUT_OF_SERVICE = ("drain", "down", "fail", "maint", "error")
HEALED_RUNS = 3


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


def act(asker: Asker, name: str, found: Sequence[Failure], state: dict[str, Any], drain: bool, resume: bool) -> str:
    """Do what the findings ask for; returns it in words. `state`: `drained` and `seen` hold keys of findings."""
    keys = [failure.key for failure in found]
    state["seen"] = [key for key in state.get("seen", []) if key in keys]
    due = [failure for failure in found if failure.row >= failure.needed and failure.key not in state["seen"]]
    state["healed"] = 0 if found else state.get("healed", 0) + 1
    if not due and not (resume and not found and state.get("drained")):
        return "nothing to do" if not found else "not yet" if len(state["seen"]) < len(found) else "seen by an operator"
    listed = nodes(asker)
    if listed is None:
        return "Slurm does not answer"
    if name not in listed:
        return f"Slurm does not know {name}"
    if not due:
        return _resume(asker, name, listed[name], state)
    return _drain(asker, name, due, listed, state, drain)


def _drain(
    asker: Asker, name: str, due: Sequence[Failure], listed: dict[str, Row], state: dict[str, Any], allowed: bool
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
    if not allowed:
        return f"would drain ({reason(due)}); HEALTH_DRAIN is off"
    ours = sum(one.ours for one in listed.values())
    if ours >= max(1, int(len(listed) * MOST_DRAINED)) and len(listed) > 1:
        return f"not drained: {ours} of {len(listed)} nodes are drained by Slipway already, which looks like one cause"
    command = ["scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason(due)}"]
    answer = asker.ask(command, LIMIT_S)
    if not answer.ok:
        return f"scontrol did not drain: {answer.problem or answer.out.strip()[:160]}"
    state["drained"] = [failure.key for failure in due]
    state["drained_heals"] = all(failure.heals for failure in due)
    return f"drained: {reason(due)}"


def _resume(asker: Asker, name: str, row: Row, state: dict[str, Any]) -> str:
    """Only what this boot drained, for causes that pass by themselves, and only with HEALTH_RESUME."""
    if not row.ours:
        state["drained"] = []
        return "nothing to do"
    if not state.get("drained_heals"):
        return f"stays drained for an operator ({row.reason})"
    if state["healed"] < HEALED_RUNS:
        return f"good again for {state['healed']} of {HEALED_RUNS} runs"
    answer = asker.ask(["scontrol", "update", f"nodename={name}", "state=resume"], LIMIT_S)
    if not answer.ok:
        return f"scontrol did not resume: {answer.problem or answer.out.strip()[:160]}"
    state["drained"] = []
    return "resumed: what it was drained for has passed"
