"""`acceptance history`: trend, comparison, rebuilding."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.history.gpus import GpuTrend, gpu_series, gpu_trends
from acceptance.history.read import Kind, Point, bad_nodes, runs, series
from acceptance.history.rebuild import rebuild
from acceptance.history.recording import HISTORY_FILE
from acceptance.history.store import reading
from acceptance.history.terminal import comparison_text, history_text
from acceptance.history.trend import compare, trends
from acceptance.options import filled, path_of
from acceptance.text import plural


def add_history_command(commands: Any, output: Path) -> None:
    """Add the command to the parser of `acceptance`. output: where the deployment's acceptance puts its runs."""
    history = commands.add_parser("history", help="what earlier runs measured: trend, comparison of two, degradation")
    where = f"the directory that runs are made in (default: {output})"
    history.add_argument("--output", type=path_of, default=output, metavar="DIR", help=where)
    history.add_argument("--history", type=path_of, metavar="FILE", help=f"the history (default: DIR/{HISTORY_FILE})")
    history.add_argument("--cluster", type=filled, metavar="NAME", help="of this cluster only")
    history.add_argument("--compare", nargs=2, metavar=("RUN", "RUN"), help="compare two runs by their ids")
    history.add_argument("--last", type=int, default=20, metavar="N", help="list the last N runs (default: 20)")
    history.add_argument("--rebuild", action="store_true", help="add the runs of DIR; a broken file is put aside first")
    history.add_argument("--json", action="store_true", help="print JSON")
    history.set_defaults(do=history_command)


def history_command(arguments: argparse.Namespace) -> int:
    """Return 0, or 1 where a series is degraded or the second of two runs is slower."""
    path = arguments.history or arguments.output / HISTORY_FILE
    if arguments.last < 1:
        raise InputError([f"--last = {arguments.last}: must be at least 1. Hint: leave it out for the last 20 runs"])
    if arguments.rebuild:
        count = rebuild(path, arguments.output, lambda text: print(text, file=sys.stderr))
        print(f"{path}: {plural(count, 'run')} of {arguments.output}")
        return 0
    with reading(path) as connection:
        found = series(connection, arguments.cluster)
        if arguments.compare:
            every = [run["run_id"] for run in runs(connection, arguments.cluster, -1)]
            return _compare(arguments, found, every)
        listed = runs(connection, arguments.cluster, arguments.last)
        gpus = gpu_trends(gpu_series(connection, arguments.cluster))
        return _trend(arguments, listed, found, gpus, bad_nodes(connection, arguments.cluster))


def _compare(arguments: argparse.Namespace, found: dict[Kind, list[Point]], every: list[str]) -> int:
    first, second = arguments.compare
    faults = [_unknown(one, every) for one in (first, second) if one not in every]
    if faults:
        raise InputError(faults)
    differences = compare(found, first, second)
    if not differences:
        fault = f"--compare {first} {second}: have no sound measurement in common. Hint: compare runs of one scenario"
        raise InputError([fault])
    if arguments.json:
        values = {"first": first, "second": second, "differences": [one.as_json() for one in differences]}
        print(json.dumps(values, indent=1))
    else:
        print(comparison_text(first, second, differences))
    return int(any(one.verdict == "slower" for one in differences))


def _unknown(run_id: str, every: list[str]) -> str:
    near = difflib.get_close_matches(run_id, every, 1)
    hint = f"did you mean {near[0]}?" if near else "`acceptance history` lists them"
    return f"--compare {run_id}: is not a run of the history. Hint: {hint}"


def _trend(
    arguments: argparse.Namespace,
    listed: list[dict[str, Any]],
    found: dict[Kind, list[Point]],
    gpus: list[GpuTrend],
    nodes: list[dict[str, Any]],
) -> int:
    judged = trends(found)
    if arguments.json:
        values = {"schema_version": 1, "runs": listed, "series": [one.as_json() for one in judged], "bad_nodes": nodes}
        values["gpus"] = [one.as_json() for one in gpus]
        print(json.dumps(values, indent=1))
    else:
        print(history_text(listed, judged, gpus, nodes))
    return int(any(one.verdict == "degraded" for one in [*(one.step for one in judged), *(one.step for one in gpus)]))
