"""`acceptance parse`: what logs of nccl-tests say, as text or JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from acceptance.errors import EXIT_GOOD, EXIT_INPUT, EXIT_NO
from acceptance.nccl import Log, Table, merged, parse_file
from acceptance.options import path_of
from acceptance.text import complain, gb_text, plural, size_text

_MOST_CAUSES, _MOST_FAILURES = 8, 8  # printed of one log
_LONGEST_LINE = 240  # characters of a log's line that are printed


def add_parse_command(commands: Any) -> None:
    """Add the command to the parser of `acceptance`."""
    parse = commands.add_parser("parse", help="read logs of nccl-tests")
    parse.add_argument(
        "logs", nargs="+", type=path_of, metavar="LOG", help="a log, text or JSON (-J); - is standard input"
    )
    parse.add_argument("--json", action="store_true", help="print one JSON object a file")
    parse.set_defaults(do=_parse)


def _parse(arguments: argparse.Namespace) -> int:
    code = EXIT_GOOD
    for path in arguments.logs:
        try:
            log = parse_file(path)
        except OSError as error:
            complain(f"{path}: {error.strerror}. Hint: give the path of a log")
            code = EXIT_INPUT
            continue
        print(json.dumps(log.as_json(str(path)), allow_nan=False) if arguments.json else _log_text(path, log))
        if code == EXIT_GOOD and not log.good:
            code = EXIT_NO
    return code


def _log_text(path: Path, log: Log) -> str:
    lines = [f"{path}: {_state(log)}, {plural(len(log.devices), 'device')}"]
    if not log.tables:
        lines = [f"{path}: no table"]
        lines.append("  no nccl-tests table in this file. Hint: give the output of a program such as all_reduce_perf")
    lines += [f"  {reason}" for reason in log.refused]
    for finding in log.causes[:_MOST_CAUSES]:
        label = "note" if finding.note or log.good else "cause"
        lines += [f"  {label}: {finding.text}", f"    log: {finding.line[:_LONGEST_LINE]}"]
    if len(log.causes) > _MOST_CAUSES:
        lines.append(f"  and {plural(len(log.causes) - _MOST_CAUSES, 'more cause')} (acceptance explain prints all)")
    for one in log.tables[:20]:
        lines += _table_text(one)
    if len(log.tables) > 20:
        lines.append(f"  and {plural(len(log.tables) - 20, 'more table')} (--json gives all)")
    lines += [f"  {name.replace('_', ' ')} {version}" for name, version in sorted(log.versions.items())]
    for name in ("provider", "nics", "network", "protocol"):
        values = log.network.values(name)
        if values:
            lines.append(f"  {name}: {', '.join(map(str, values))}")
    for flag in log.network.red_flags[:5]:
        lines.append(f"  network: {flag}")
    lines += [f"  warning: {warning}" for warning in log.warnings]
    failures = merged(log.failures + log.events)
    lines += [f"  {failure.kind}: {failure.text}" for failure in failures[:_MOST_FAILURES]]
    if len(failures) > _MOST_FAILURES:
        lines.append(f"  and {plural(len(failures) - _MOST_FAILURES, 'more failure')} (--json gives all)")
    return "\n".join(lines)


def _state(log: Log) -> str:
    if log.refused:
        return "WRONG DATA" if any(table.wrong_data for table in log.tables) else "REFUSED by nccl-tests"
    return "complete" if log.complete else "NOT COMPLETE"


def _table_text(one: Table) -> list[str]:
    top = max(one.rows, key=lambda row: row.out_of_place.busbw, default=None)
    peak = f", peak {gb_text(top.out_of_place.busbw)} GB/s at {size_text(top.size)}" if top else ""
    lines = [f"  {one.collective or 'unnamed collective'}: {plural(len(one.rows), 'row')}{peak}"]
    lines += [f"    {fault}" for fault in one.faults]
    lines += [f"    {size_text(bad.size)}: {bad.reason}" for bad in one.bad_rows[:3]]
    return lines
