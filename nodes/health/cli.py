"""The command `slipway-health`.

Exit 0: nothing failed. 1: a check failed. 2: wrong use. 3: a check could not see its subject, or a
file was not written.
Without `--record` it only prints what it sees and changes nothing; `--record` is for the timer.
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

from nodes.health import evidence, judge, report, slurm
from nodes.health.ask import Asker
from nodes.health.facts import Facts, Places, facts, settings, slurm_name
from nodes.health.node import Node
from nodes.lib.state import put

BUDGET_S = 50.0  # of the 85 s that the unit has; evidence of a node to drain has its own 25 s
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
    # Only root may open the lock: a process that can open the file can hold the lock, and no run would judge the node.
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
    document = report.document(node, slurm_name(places), results, "only looked")
    print(json.dumps(document, indent=1) if as_json else report.table(document))
    return exit_code(results)


def _record(places: Places, *, as_json: bool) -> int:
    """Judge, drain, write, in this order: a full disk must not keep a broken node in service."""
    state = load_state(places.state / "state.json")
    node, name = _node(places, state), slurm_name(places)
    results = judge.run(node)
    found = judge.failures(results, state.setdefault("rows", {}))

    def save(reason: str) -> str:
        return evidence.save(node, name, report.document(node, name, results, "about to be drained"), reason)

    asker = Asker(BUDGET_S - LOOK_S + evidence.TIME_S, state["stuck"])
    action = slurm.act(asker, name, found, state, node.settings, node.now, save)
    document = report.document(node, name, results, action)
    problems = report.write_all(node, document)
    try:
        put(places.state / "state.json", json.dumps(state) + "\n")
    except OSError as error:
        problems.append(f"cannot write {places.state}: {error.strerror}. Hint: df -h /run")
    print(json.dumps(document, indent=1) if as_json else report.line(document))
    for problem in problems:
        print(f"slipway-health: {problem}", file=sys.stderr)
    return UNSEEN if problems and exit_code(results) == GOOD else exit_code(results)


def exit_code(results: list[judge.Result]) -> int:
    """Return 0, 1 when a check failed, 3 when a check could not see its subject."""
    statuses = {result.status for result in results}
    statuses |= {one.status for result in results for one in result.findings}
    return FAILED if "fail" in statuses else UNSEEN if "unknown" in statuses else GOOD


def load_state(path: Path) -> dict[str, Any]:
    """Return what earlier runs of this boot kept (/run is empty after a boot); empty when there is no valid file."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
