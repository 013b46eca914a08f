"""The command ``slipway-health``.

Exit 0: nothing failed. 1: something failed. 2: wrong use. 3: something could not be seen, or not be written.
Without ``--record`` it looks and tells, and changes nothing; ``--record`` is for the timer.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from health import judge, report, slurm
from health.ask import Asker
from health.facts import Facts, Places, facts, settings, slurm_name
from health.node import Node

BUDGET_S = 45.0  # of the 58 s that the unit has
LOOK_S = 30.0  # of them for looking: what is left is for Slurm
GOOD, FAILED, UNSEEN = 0, 1, 3


def main(arguments: list[str], places: Places | None = None) -> int:
    """Run once; return the exit code."""
    options = _parser().parse_args(arguments)
    places = places or Places()
    if options.explain:
        print(report.explain())
        return GOOD
    if options.facts:
        print(json.dumps(_facts(facts(places))))
        return GOOD
    if not options.record:
        return _look(places, as_json=options.json)
    places.state.mkdir(parents=True, exist_ok=True)
    # Who can open it, even only to read it, can hold it, and no run would judge the node: root alone may.
    with os.fdopen(os.open(places.state / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        if not _locked(lock):
            print("slipway-health: another run is under way", file=sys.stderr)
            return GOOD
        return _record(places, as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slipway-health", description="Judge this compute node.")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument("--record", action="store_true", help="count, write the files, drain if needed: for the timer")
    parser.add_argument("--facts", action="store_true", help="what the node's instance type has, as JSON")
    parser.add_argument("--explain", action="store_true", help="the table of checks, as Markdown")
    return parser


def _facts(known: Facts) -> dict[str, Any]:
    return {**dataclasses.asdict(known), "nvswitch": known.nvswitch}


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _node(places: Places, state: dict[str, Any]) -> Node:
    asker = Asker(LOOK_S, state.setdefault("stuck", {}))
    return Node(places, facts(places), settings(places), asker, state, time.time())


def _look(places: Places, *, as_json: bool) -> int:
    node = _node(places, load_state(places.state / "state.json"))
    results = judge.run(node)
    told = report.document(node, slurm_name(places), results, "only looked")
    print(json.dumps(told, indent=1) if as_json else report.table(told))
    return exit_code(results)


def _record(places: Places, *, as_json: bool) -> int:
    """Judge, drain, write: in this order, because a full disk must not keep a broken node in service."""
    state = load_state(places.state / "state.json")
    node, name = _node(places, state), slurm_name(places)
    results = judge.run(node)
    found = judge.faults(results, state.setdefault("rows", {}))
    wanted = node.settings
    action = slurm.act(Asker(BUDGET_S - LOOK_S, state["stuck"]), name, found, state, wanted.drain, wanted.resume)
    told = report.document(node, name, results, action)
    problems = report.write_all(node, told)
    try:
        report.save(places.state / "state.json", json.dumps(state) + "\n")
    except OSError as error:
        problems.append(f"cannot write {places.state}: {error.strerror}. Hint: df -h /run")
    print(json.dumps(told, indent=1) if as_json else report.line(told))
    for problem in problems:
        print(f"slipway-health: {problem}", file=sys.stderr)
    return UNSEEN if problems and exit_code(results) == GOOD else exit_code(results)


def exit_code(results: list[judge.Result]) -> int:
    """0, 1 when something failed, 3 when something could not be seen."""
    statuses = {result.status for result in results}
    statuses |= {one.status for result in results for one in result.findings}
    return FAILED if "fail" in statuses else UNSEEN if "unknown" in statuses else GOOD


def load_state(path: Path) -> dict[str, Any]:
    """What runs of this boot remember (/run is empty after a boot); empty when there is none or it is broken."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
