"""`slipway check`: print every fault of settings files, or explain a rule."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipway.command_line import SHOWN_FAULTS
from slipway.errors import EXIT_GOOD, EXIT_USAGE, Fault, SettingsError
from slipway.settings import Examination, Queue, examine, examine_source
from slipway.settings.source import parse_source
from slipway.text import plural, visible

STANDARD_INPUT = "-"


def check(files: Sequence[Path], *, as_json: bool = False) -> int:
    """Print what is wrong with `files` (`-`: standard input). Return 0 if all are good, else 2."""
    examined = {str(file): _examine(file) for file in files}
    if as_json:
        results = [_as_dict(name, result) for name, result in examined.items()]
        several = {"valid": all(result["valid"] for result in results), "files": results}
        print(json.dumps(results[0] if len(results) == 1 else several))
    else:
        for name, result in examined.items():
            _print(name, result)
    return EXIT_USAGE if any(result.faults for result in examined.values()) else EXIT_GOOD


def _examine(file: Path) -> Examination:
    if str(file) != STANDARD_INPUT:
        return examine(file)
    try:
        return examine_source(parse_source(STANDARD_INPUT, sys.stdin.buffer.read().decode("utf-8")))
    except UnicodeDecodeError:
        return Examination(None, (Fault(STANDARD_INPUT, 0, "", None, "is not UTF-8 text", "save it as UTF-8"),), ())
    except SettingsError as error:
        return Examination(None, error.faults, ())


def _as_dict(name: str, result: Examination) -> dict[str, Any]:
    faults, warnings = ([fault.as_dict() for fault in kind] for kind in (result.faults, result.warnings))
    return {"file": name, "valid": not result.faults, "faults": faults, "warnings": warnings}


def _print(name: str, result: Examination) -> None:
    lines = sorted((*result.faults, *result.warnings), key=lambda fault: (fault.line, fault.path))
    for fault in lines[:SHOWN_FAULTS]:
        print(visible(str(fault)), file=sys.stderr)
    if lines:
        counts = f"{plural(len(result.faults), 'fault')}, {plural(len(result.warnings), 'warning')}"
        print(visible(f"{counts} in {name}"), file=sys.stderr)
    settings = result.settings
    if settings:
        nodes = ", ".join(f"{queue.name}: {_count(queue)} x {queue.instance_type}" for queue in settings.queues)
        print(visible(f"{name}: good ({settings.name} in {settings.zone}; {nodes})"))


def _count(queue: Queue) -> str:
    return str(queue.max_count) if queue.min_count == queue.max_count else f"{queue.min_count} to {queue.max_count}"


def explain(name: str, *, as_json: bool = False) -> int:
    """Print why the rule `name` exists; `all` lists every rule. Raises UsageError for an unknown rule."""
    from slipway.settings.rules.explain import explain as rows_of

    rows = rows_of(name)
    if as_json:
        print(json.dumps({"rules": [row.as_dict() for row in rows]}))
    elif name == "all":
        for row in rows:
            print(f"{row.name:32} {row.kind:8} {row.severity}")
    else:
        print(rows[0])
    return EXIT_GOOD
