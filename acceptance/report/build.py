"""Making the report of a run from its files alone: scenario.json, run.json and the raw logs.

So a report can be made again at any time, and nothing in it comes from anywhere else.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acceptance import __version__
from acceptance.limits import (
    Check,
    baseline_limit,
    baselines_of,
    fine_busbw,
    judge_log,
    measured_busbw,
    references,
    worst,
)
from acceptance.locate import Evidence, GroupVerdict, LinkVerdict, Result, verdict_of
from acceptance.nccl import Log, Row
from acceptance.nccl.model import finite
from acceptance.runner.files import open_plain, read_log
from acceptance.runner.follow import JobOutcome
from acceptance.runner.record import LocateRecord, RunRecord, TestRecord, read_record
from acceptance.scenario.load import load_own
from acceptance.scenario.model import Limit, Scenario, Test
from acceptance.text import gb_text, plural, size_text

SCHEMA_VERSION = 2
BAD_VERDICTS = ("slow", "failed", "infrastructure")


def build_report(directory: Path) -> dict[str, Any]:
    """Give report.json's object for a run directory. Raises InputError if it is not one."""
    scenario = load_own(directory)
    record = read_record(directory)
    logs = {test.name: read_log(directory / test.log) for test in record.tests}
    wanted = scenario.tests if record.purpose == "accept" else ()
    tests = [_test(scenario, test, record, logs.get(test.name), directory) for test in wanted]
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "purpose": record.purpose,
        "directory": str(directory),
        "started": record.started,
        "finished": record.finished,
        "cluster": scenario.cluster,
        "partition": scenario.partition,
        "instance_type": scenario.instance_type,
        "nodes_expected": scenario.nodes,
        "gpus_per_node": scenario.gpus_per_node,
        "tests": tests,
        "nodes": _nodes(record, tests),
        "locate": _locate(record.locate),
        "versions": _versions(record, logs),
        "commands": _commands(directory, record),
    }
    report["verdict"] = _verdict(record, tests)
    report["failures"] = _failures(record, tests, report["nodes"]) + _joint_failures(record, report["locate"])
    report["summary"] = _summary(report)
    return report


def _test(scenario: Scenario, test: Test, record: RunRecord, log: Log | None, directory: Path) -> dict[str, Any]:
    own = next((one for one in record.tests if one.name == test.name), None)
    outcome = own.outcome if own else None
    log = log or Log()
    checks = _checks(scenario, test, outcome, log, directory / own.log if own else None)
    table = log.tables[0] if log.tables else None
    ranks = scenario.nodes * scenario.gpus_per_node
    return {
        "name": test.name,
        "collective": test.collective,
        "verdict": worst([check.outcome for check in checks]) if own else "not run",
        "checks": [_check(check) for check in checks],
        "rows": [_row(test, ranks, row) for row in table.rows if row.size > 0] if table else [],
        "baseline": _baseline(scenario, test),
        "references": _references(scenario, test),
        "job": _job(own, outcome),
        "log": own.log if own else None,
        "repeat": shlex.join(own.command) if own else None,
        "network": log.network.as_json(),
        "events": [event.as_json() for event in (log.failures + log.events)[:20]],
    }


def _checks(scenario: Scenario, test: Test, outcome: JobOutcome | None, log: Log, path: Path | None) -> list[Check]:
    if outcome is None:
        return [Check("job", "fail", "was not measured")]
    if outcome.kind == "done":
        return [Check("job", "pass", outcome.message), *judge_log(scenario, test, log, scenario.nodes)]
    message = outcome.message
    if outcome.kind == "hang":
        message += f" (after {test.timeout_s} s)"
    if outcome.exit_code == 127 and path is not None:
        message = _not_found(path) or message
    if log.events:
        event = log.events[0]
        message += f"; {event.host + ': ' if event.host else ''}{event.message}"
    # A run that did not end well gives no bandwidth: what matters is how it ended and what nccl-tests said.
    said = [c for c in judge_log(scenario, test, log, scenario.nodes) if c.name in ("nccl-tests", "complete", "data")]
    return [Check("job", "fail", message), *(check for check in said if check.outcome == "fail")]


def _not_found(path: Path) -> str | None:
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            for line in stream.read(65_536).splitlines():
                if line.startswith("acceptance: no "):
                    return line[len("acceptance: ") :]
    except OSError:
        pass
    return None


def _check(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "outcome": check.outcome,
        "message": check.message,
        "measured_gb_per_s": finite(check.measured),
        "limit": _limit(check.limit),
    }


def _limit(limit: Limit | None) -> dict[str, Any] | None:
    if limit is None:
        return None
    return {
        "size_bytes": limit.size_bytes,
        "fail_below_gb_per_s": limit.fail_below_gb_per_s,
        "warn_below_gb_per_s": limit.warn_below_gb_per_s,
        "source": limit.source,
        "date": limit.date,
        "note": limit.note,
    }


def _baseline(scenario: Scenario, test: Test) -> list[dict[str, Any]]:
    """What this site's good runs reached at the sizes of the sweep, with the bounds that follow from it."""
    told = []
    for size, one in sorted(baselines_of(scenario, test.collective, scenario.nodes).items()):
        if size in test.sizes():
            bounds = baseline_limit(one)
            entry = {**asdict(one), "fail_below_gb_per_s": bounds.fail_below_gb_per_s}
            told.append({**entry, "warn_below_gb_per_s": bounds.warn_below_gb_per_s})
    return told


def _references(scenario: Scenario, test: Test) -> list[dict[str, Any]]:
    """What others measured at the sizes of the sweep."""
    found = [one for one in references(scenario, test.collective, scenario.nodes) if one.size_bytes in test.sizes()]
    names = ("size_bytes", "gb_per_s", "source", "date", "note")
    return [{name: getattr(one, name) for name in names} for one in found]


def _row(test: Test, ranks: int, row: Row) -> dict[str, Any]:
    return {
        **row.as_json(),
        "size_text": size_text(row.size),
        "measured_busbw_gb_per_s": finite(measured_busbw(test.collective, ranks, row)),
        "in_place_busbw_gb_per_s": finite(fine_busbw(test.collective, ranks, row.size, row.in_place))
        if row.in_place
        else None,
    }


def _job(own: TestRecord | None, outcome: JobOutcome | None) -> dict[str, Any] | None:
    if own is None or outcome is None:
        return None
    return {
        "id": outcome.job_id,
        "state": outcome.state,
        "exit_code": outcome.exit_code,
        "nodes": outcome.nodes,
        "seconds": outcome.seconds,
        "kind": outcome.kind,
    }


def _nodes(record: RunRecord, tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A verdict for each node: what Slurm says first, then what the pairs showed, then the run over all nodes."""
    paired = {}
    if record.locate:
        paired = {verdict.node: verdict for verdict in verdict_of(_evidence(record.locate)).nodes}
    used = {node: test for test in tests if test["job"] for node in test["job"]["nodes"]}
    failed = {node for test in tests if test["job"] and test["verdict"] == "fail" for node in test["job"]["nodes"]}
    nodes = []
    for name in sorted({*record.nodes, *used}, key=_natural):
        known = record.nodes.get(name, {})
        verdict, evidence, best = "suspect", "took part in no finished measurement", None
        if known.get("trouble"):
            reason = f": {known['reason']}" if known.get("reason") else ""
            verdict, evidence = "infrastructure", f"{known['trouble']} in Slurm{reason}"
        elif name in paired:
            verdict, evidence, best = paired[name].verdict, paired[name].evidence, paired[name].best
        elif name in failed:
            evidence = "took part in a measurement that failed"
        elif name in used:
            verdict, evidence = "good", f"took part in {used[name]['name']} over all nodes"
        state = known.get("state")
        nodes.append({"name": name, "state": state, "verdict": verdict, "evidence": evidence, "best": best})
    return nodes


def _natural(name: str) -> list[tuple[int, str]]:
    """gpu-2 before gpu-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _evidence(record: LocateRecord) -> Evidence:
    return Evidence(record.fleet(), record.results, record.rules())


def _locate(record: LocateRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    evidence = _evidence(record)
    found = verdict_of(evidence)
    pairs = [one for one in record.results if one.kind == "pair"]
    own = [one for one in pairs if one.collective == record.collective]
    return {
        "test": record.test,
        "collective": record.collective,
        "size_bytes": record.size_bytes,
        "pair_limit_gb_per_s": record.pair_limit,
        "slow_below_gb_per_s": evidence.bound(own[0]) if own else None,
        "factor": record.factor,
        "trouble": record.trouble,
        "pairs": [_part(evidence, one) for one in pairs],
        "others": [{**_part(evidence, one), "kind": one.kind} for one in record.results if one.kind != "pair"],
        "links": [{"nodes": list(one.nodes), **_said(one)} for one in found.links],
        "groups": [
            {"groups": list(one.groups), "nodes": list(one.nodes), "where": one.where, **_said(one)}
            for one in found.groups
        ],
        "rest": found.rest,
    }


def _part(evidence: Evidence, result: Result) -> dict[str, Any]:
    return {
        "round": result.round + 1,
        "collective": result.collective,
        "nodes": list(result.nodes),
        "outcome": result.outcome,
        "busbw_gb_per_s": result.busbw,
        "good": evidence.good(result),
        "bad_below_gb_per_s": evidence.bound(result),
        "log": result.log,
    }


def _said(verdict: LinkVerdict | GroupVerdict) -> dict[str, str]:
    return {"verdict": verdict.verdict, "evidence": verdict.evidence}


def _versions(record: RunRecord, logs: dict[str, Log]) -> dict[str, str]:
    versions = {"acceptance": __version__}
    if record.slurm:
        versions["slurm"] = record.slurm.replace("slurm ", "")
    for log in logs.values():
        versions.update(log.versions)
    return dict(sorted(versions.items()))


def _commands(directory: Path, record: RunRecord) -> list[dict[str, str]]:
    scenario = directory / "scenario.json"
    again = ["acceptance", "run", "--scenario", str(scenario), "--output", str(directory.parent)]
    commands = [{"what": "the whole run", "command": shlex.join(again)}]
    commands += [{"what": test.name, "command": shlex.join(test.command)} for test in record.tests]
    if record.locate:
        for number, command in enumerate(record.locate.commands, 1):
            commands.append({"what": f"round {number} of pairs", "command": shlex.join(command)})
    commands.append({"what": "this report", "command": shlex.join(["acceptance", "report", str(directory)])})
    return commands


def _verdict(record: RunRecord, tests: list[dict[str, Any]]) -> str:
    """accepted, not accepted, or error where the environment kept the question from being answered."""
    lost = any(test["job"] and test["job"]["kind"] == "lost" for test in tests)
    if record.interrupted or lost or record.finished is None:
        return "error"
    if record.purpose == "locate":
        return _verdict_of_search(record)
    if record.infrastructure or not all(test["verdict"] in ("pass", "warn") for test in tests):
        return "not accepted"
    return "accepted"


def _verdict_of_search(record: RunRecord) -> str:
    """A search by itself accepts the nodes it looked at if every one is good, and nothing between them is bad."""
    if record.infrastructure:
        return "not accepted"
    if record.locate is None or record.locate.trouble:
        return "error"
    found = verdict_of(_evidence(record.locate))
    good = all(node.verdict == "good" for node in found.nodes)
    return "accepted" if good and not found.links and not found.groups else "not accepted"


def _failures(record: RunRecord, tests: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a failure: what, where, the log and how to run just this again."""
    failures = []
    for problem in (record.interrupted, record.infrastructure):
        if problem:
            failures.append({"what": problem, "log": None, "repeat": None, "test": None})
    for test in tests:
        for check in test["checks"]:
            if check["outcome"] in ("fail", "unjudged") and not (record.infrastructure and test["job"] is None):
                what = f"{test['name']}: {check['name']}: {check['message']}"
                failures.append({"what": what, "log": test["log"], "repeat": test["repeat"], "test": test["name"]})
    for node in nodes:
        if node["verdict"] in BAD_VERDICTS and not (record.infrastructure and node["verdict"] == "infrastructure"):
            what = f"node {node['name']}: {node['verdict']}: {node['evidence']}"
            failures.append(_found(record.locate, what, {node["name"]}))
    return failures


def _joint_failures(record: RunRecord, locate: dict[str, Any] | None) -> list[dict[str, Any]]:
    """One entry a link or set of nodes that is bad although its nodes are good."""
    told = []
    for link in _links(locate):
        what = f"link {' - '.join(link['nodes'])}: {link['verdict']}: {link['evidence']}"
        told.append(_found(record.locate, what, set(link["nodes"])))
    for group in locate["groups"] if locate else []:
        name = ", ".join(group["groups"]) or plural(len(group["nodes"]), "node")
        what = f"switch or set {name} ({group['where']}): {group['verdict']}: {group['evidence']}"
        told.append(_found(record.locate, what, set()))
    return told


def _found(record: LocateRecord | None, what: str, nodes: set[str]) -> dict[str, Any]:
    """A failure that the search found: with the log of the last launch of just these nodes, and its round's command."""
    results = record.results if record and nodes else []
    logs = [one.log for one in results if nodes <= set(one.nodes) and len(one.nodes) < 3]
    if record is None or not logs:
        return {"what": what, "log": None, "repeat": None, "test": None}
    script = logs[-1].rsplit("-", 1)[0]  # locate-2-7.out is the seventh launch of locate-2.sbatch
    again = [shlex.join(command) for command in record.commands if Path(command[-1]).stem == script]
    return {"what": what, "log": logs[-1], "repeat": again[-1] if again else None, "test": None}


def _links(locate: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list(locate["links"]) if locate else []


def _summary(report: dict[str, Any]) -> str:
    """The text after `[RESULT] SUCCESS` or `[RESULT] FAILURE`: what, where."""
    if report["verdict"] == "accepted":
        figures = [_figure(test) for test in report["tests"]]
        return ", ".join(figure for figure in figures if figure)
    first = _first_failure(report)
    bad = [n for n in report["nodes"] if n["verdict"] in BAD_VERDICTS]
    blamed = [n for n in bad if n["name"] not in first]
    if blamed:
        names = ", ".join(f"{node['name']} ({node['verdict']})" for node in blamed[:8])
        more = f" and {plural(len(blamed) - 8, 'more node')}" if len(blamed) > 8 else ""
        return f"{names}{more}: {first}"
    suspects = [n["name"] for n in report["nodes"] if n["verdict"] == "suspect"]
    links = [link for link in _links(report["locate"]) if " - ".join(link["nodes"]) not in first]
    joint = [f"{link['verdict']} link {' - '.join(link['nodes'])}" for link in links]
    if joint:
        return f"{first}; {', '.join(joint[:8])}"
    if report["locate"] and suspects:
        return f"{first}; suspect: {', '.join(suspects[:8])}"
    if _links(report["locate"]):
        return str(first)  # the link is what was told first
    if report["locate"] and not bad:
        return f"{first}; no single node is to blame: every node is good in pairs"
    return str(first)


def _first_failure(report: dict[str, Any]) -> str:
    """The first thing that is wrong in few words: measured and limit where there is a figure, else as it was told."""
    for test in report["tests"]:
        for check in test["checks"]:
            if check["outcome"] == "fail" and check["limit"]:
                measured, limit = gb_text(check["measured_gb_per_s"]), gb_text(check["limit"]["fail_below_gb_per_s"])
                return f"{test['name']}: {check['name']} is {measured} GB/s, fail below {limit}"
            if check["outcome"] == "fail":
                break
    return str(report["failures"][0]["what"]) if report["failures"] else "the run has no result"


def _figure(test: dict[str, Any]) -> str:
    measured = [check for check in test["checks"] if check["measured_gb_per_s"] is not None]
    if not measured:
        return str(test["name"])
    last = measured[-1]
    size = f" at {size_text(last['limit']['size_bytes'])}" if last["limit"] else ""
    return f"{test['name']} {gb_text(last['measured_gb_per_s'])} GB/s{size}"
