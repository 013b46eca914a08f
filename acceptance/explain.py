"""`acceptance explain LOG...`: the known causes that a log of any program names, with the repair."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from acceptance.causes import Finding
from acceptance.errors import EXIT_GOOD, EXIT_NO, InputError
from acceptance.jsonable import jsonable
from acceptance.nccl import parse_file
from acceptance.options import path_of
from acceptance.text import plural


def add_explain_command(commands: Any) -> None:
    """Add the command to the parser of `acceptance`."""
    explain = commands.add_parser("explain", help="name the causes of a failure that a log of any program contains")
    log = "the output of a job, a debug log of NCCL, a log of Slurm or the kernel; - is standard input"
    explain.add_argument("logs", nargs="+", type=path_of, metavar="LOG", help=log)
    explain.add_argument("--json", action="store_true", help="print one JSON object a file")
    explain.set_defaults(do=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    """Print the causes of each log; return 1 if a log has a cause that is not only a note."""
    read: list[tuple[Path, list[Finding]]] = []
    faults = []
    for path in arguments.logs:
        try:
            log = parse_file(path)
        except OSError as error:
            faults.append(f"{path}: {error.strerror}. Hint: give the path of a log")
            continue
        read.append((path, log.causes))
    for path, causes in read:
        values = {"file": str(path), "causes": jsonable(causes)}
        print(json.dumps(values, allow_nan=False) if arguments.json else _text(path, causes))
    if faults:
        raise InputError(faults)
    return EXIT_NO if any(not one.note for _, causes in read for one in causes) else EXIT_GOOD


def _text(path: Path, causes: list[Finding]) -> str:
    if not causes:
        return (
            f"{path}: no known cause and no warning of NCCL. Hint: run with NCCL_DEBUG=INFO; docs/causes.md lists all"
        )
    lines = [f"{path}: {plural(len(causes), 'cause')}"]
    for one in causes:
        kind = " (a note, no failure)" if one.note else " (follows from another failure)" if one.weak else ""
        lines += [f"  {one.id}{kind}: {one.what}", f"    log:    {one.line}"]
        lines += [f"    repair: {one.repair}", f"    source: {one.source}"] if one.repair else []
    return "\n".join(lines)
