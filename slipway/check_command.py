"""`slipway check`: print every fault of settings files, or explain a rule."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipway.errors import EXIT_GOOD, EXIT_USAGE, fault_lines, order
from slipway.settings import Examination, Queue, examine
from slipway.settings.source import STDIN, STDIN_SHOWN
from slipway.text import plural, visible


def check(files: Sequence[Path], *, as_json: bool = False) -> int:
    """Print what is wrong with `files` (`-`: standard input). Return 0 if all are good, else 2."""
    examined = [(STDIN_SHOWN if str(file) == STDIN else str(file), examine(file)) for file in files]
    if as_json:
        results = [_as_dict(name, result) for name, result in examined]
        several = {"valid": all(result["valid"] for result in results), "files": results}
        print(json.dumps(results[0] if len(results) == 1 else several))
    else:
        for name, result in examined:
            _print(name, result)
    return EXIT_USAGE if any(result.faults for _, result in examined) else EXIT_GOOD


def _as_dict(name: str, result: Examination) -> dict[str, Any]:
    faults, warnings = ([fault.as_dict() for fault in kind] for kind in (result.faults, result.warnings))
    return {"file": name, "valid": not result.faults, "faults": faults, "warnings": warnings}


def _print(name: str, result: Examination) -> None:
    faults = sorted((*result.faults, *result.warnings), key=order)
    if faults:
        counts = f"{plural(len(result.faults), 'fault')}, {plural(len(result.warnings), 'warning')}"
        print(*fault_lines(faults), visible(f"{counts} in {name}"), sep="\n", file=sys.stderr)
    settings = result.settings
    if settings:
        nodes = ", ".join(f"{queue.name}: {_count(queue)} x {queue.instance_type}" for queue in settings.queues)
        print(visible(f"{name}: good ({settings.name} in {settings.zone}; {nodes})"))


def _count(queue: Queue) -> str:
    return str(queue.max_count) if queue.min_count == queue.max_count else f"{queue.min_count} to {queue.max_count}"


def explain(name: str, *, as_json: bool = False) -> int:
    """Print why the rule `name` exists; `all` lists every rule. Raises UsageError for an unknown rule."""
    from slipway.explain import explain as rows_of

    rows = rows_of(name)
    if as_json:
        print(json.dumps({"rules": [row.as_dict() for row in rows]}))
    elif name == "all":
        for row in rows:
            print(f"{row.name:32} {row.kind:8} {row.severity}")
    else:
        print(rows[0])
    return EXIT_GOOD
