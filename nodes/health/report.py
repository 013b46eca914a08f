"""The output of a run: health.json, a Prometheus textfile, one line in the log, and a table for people."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nodes.health.checks import CHECKS, STATUSES, Check
from nodes.health.judge import Result, as_json
from nodes.health.node import Node
from nodes.lib.state import put

LOG_BYTES = 1 << 20  # then it becomes health.log.1, which replaces the one before
SCHEMA = 1
STATUS_VALUE = {"ok": 0, "warn": 1, "fail": 2, "unknown": 3}


def document(node: Node, name: str, results: Sequence[Result], action: str) -> dict[str, Any]:
    """health.json. Times in seconds."""
    return {
        "schema": SCHEMA,
        "node": name,
        "instance_type": node.facts.instance_type,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(node.now)),
        "status": overall(results),
        "seconds": round(sum(result.seconds for result in results), 3),
        "action": action,
        "checks": [as_json(result) for result in results],
    }


def overall(results: Sequence[Result]) -> str:
    """The worst status; a failure outweighs a warning, a warning what could not be seen."""
    return max((result.status for result in results), key=STATUSES.index, default="unknown")


def line(document: dict[str, Any]) -> str:
    """The run in one line of the log."""
    bad = [f"{c['check']}={c['status']} ({c['evidence']})" for c in document["checks"] if c["status"] != "ok"]
    head = f"{document['time']} {document['status']} {document['seconds']} s, {document['action']}"
    return "; ".join([head, *bad])


def textfile(node: Node, document: dict[str, Any]) -> str:
    """The metrics, in Prometheus' text form."""
    gauges: list[tuple[str, str, dict[str, object]]] = [
        (
            "slipway_health_status",
            "Result of a health check: 0 ok, 1 warn, 2 fail, 3 unknown.",
            {f'{{check="{one["check"]}"}}': STATUS_VALUE[one["status"]] for one in document["checks"]},
        ),
        ("slipway_health_run_timestamp_seconds", "When the checks ran last.", {"": round(node.now, 3)}),
        ("slipway_health_run_seconds", "How long the checks took.", {"": document["seconds"]}),
        ("slipway_health_gpus", "GPUs that the driver lists.", {"": len(node.gpus)}),
        ("slipway_health_gpus_expected", "GPUs of the instance type.", {"": node.facts.gpus}),
        ("slipway_health_efa_devices", "EFA devices that the kernel has.", {"": len(node.efa_devices())}),
        ("slipway_health_efa_devices_expected", "EFA devices of the node's queue.", {"": node.facts.efa_devices}),
    ]
    lines = []
    for name, meaning, values in gauges:
        samples = [f"{name}{labels} {value}" for labels, value in values.items() if value is not None]
        if samples:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *samples]
    return "\n".join(lines) + "\n"


def log(path: Path, text: str) -> None:
    """Append one line; the log and its predecessor never grow beyond twice `LOG_BYTES`. Raises OSError."""
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with os.fdopen(handle, "a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")


def write_all(node: Node, document: dict[str, Any]) -> list[str]:
    """Write every file of a run and return what could not be written. A failed write does not prevent the others."""
    places, problems = node.places, []
    files: tuple[tuple[Path, Callable[[Path, str], None], str], ...] = (
        (places.result, put, json.dumps(document, indent=1) + "\n"),
        (places.textfile, put, textfile(node, document)),
        (places.log, log, line(document)),
    )
    for path, write, text in files:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, text)
        except OSError as error:
            problems.append(f"cannot write {path}: {error.strerror}. Hint: df -h {path.parent}")
    return problems


def table(document: dict[str, Any]) -> str:
    """The run for a person at a terminal."""
    rows = [
        f"{one['check']:<12} {one['status']:<8} {one['evidence']} (limit: {one['limit']})" for one in document["checks"]
    ]
    kind = document["instance_type"] or "type not known"
    head = f"{document['node']} ({kind}): {document['status']}, {document['action']}"
    return "\n".join([head, *rows])


def _drains_after(check: Check) -> str:
    if check.only_reports:
        return "never: it only reports"
    if check.heals:
        return "never: it may pass, or nodes share it"
    return f"{check.runs} run{'s' if check.runs > 1 else ''}"


def explain() -> str:
    """The table of checks as Markdown: docs/health.md holds it."""
    rows = ["| check | what | limit | drains after | source |", "|---|---|---|---|---|"]
    for check in CHECKS:
        runs = _drains_after(check)
        rows.append(f"| `{check.name}` | {check.what} | {check.limit} | {runs} | {check.source} |")
    return "\n".join(rows)
