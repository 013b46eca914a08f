"""Making the report of a run from its files alone: scenario.json, run.json and the raw logs.

So a report can be made again at any time, and nothing in it comes from anywhere else.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from acceptance import __version__
from acceptance.limits import Check, fine_busbw, judge_log, measured_busbw, worst
from acceptance.locate import Evidence, GroupVerdict, LinkVerdict, Result, Verdict, verdict_of
from acceptance.nccl import Log, Row
from acceptance.nccl.model import finite
from acceptance.runner.campaign import read_log
from acceptance.runner.follow import JobOutcome
from acceptance.runner.record import LocateRecord, RunRecord, TestRecord, read_record
from acceptance.scenario.load import load_scenario
from acceptance.scenario.model import Limit, Scenario, Test
from acceptance.units import gb_text, plural, size_text

SCHEMA_VERSION = 1
BAD_VERDICTS = ("slow", "failed", "infrastructure")


def build_report(directory: Path) -> dict[str, Any]:
    """Give report.json's object for a run directory. Raises InputError if it is not one."""
    scenario = load_scenario(directory / "scenario.json")
    record = read_record(directory)
    logs = {test.name: read_log(directory / test.log) for test in record.tests}
    tests = [_test(scenario, test, record, logs.get(test.name), directory) for test in scenario.tests]
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
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
    report["failures"] = _failures(record, tests, report["nodes"]) + _joint_failures(report["locate"])
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
        with path.open("r", encoding="utf-8", errors="replace") as stream:
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
    }


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
        paired = {verdict.node: verdict for verdict in _located(record.locate).nodes}
    used = {node: test for test in tests if test["job"] for node in test["job"]["nodes"]}
    failed = {node for test in tests if test["job"] and test["verdict"] == "fail" for node in test["job"]["nodes"]}
    nodes = []
    for name in dict.fromkeys([*record.nodes, *used]):
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


def _located(record: LocateRecord) -> Verdict:
    return verdict_of(Evidence(record.fleet(), record.results, record.rules()))


def _slow_below(record: LocateRecord) -> float | None:
    evidence = Evidence(record.fleet(), record.results, record.rules())
    pairs = [r for r in record.results if r.kind == "pair" and r.collective == record.collective]
    return evidence.bound(pairs[0]) if pairs else None


def _locate(record: LocateRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    found = _located(record)
    return {
        "test": record.test,
        "collective": record.collective,
        "size_bytes": record.size_bytes,
        "pair_limit_gb_per_s": record.pair_limit,
        "slow_below_gb_per_s": _slow_below(record),
        "factor": record.factor,
        "trouble": record.trouble,
        "pairs": [_part(one) for one in record.results if one.kind == "pair"],
        "others": [{**_part(one), "kind": one.kind} for one in record.results if one.kind != "pair"],
        "links": [{"nodes": list(one.nodes), **_said(one)} for one in found.links],
        "groups": [
            {"groups": list(one.groups), "nodes": list(one.nodes), "where": one.where, **_said(one)}
            for one in found.groups
        ],
        "rest": found.rest,
    }


def _part(result: Result) -> dict[str, Any]:
    return {
        "round": result.round + 1,
        "collective": result.collective,
        "nodes": list(result.nodes),
        "outcome": result.outcome,
        "busbw_gb_per_s": result.busbw,
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
    if record.infrastructure or not all(test["verdict"] in ("pass", "warn") for test in tests):
        return "not accepted"
    return "accepted"


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
            failures.append({"what": what, "log": None, "repeat": None, "test": None})
    return failures


def _joint_failures(locate: dict[str, Any] | None) -> list[dict[str, Any]]:
    """One entry a link or set of nodes that is bad although its nodes are good."""
    told = [f"link {' - '.join(link['nodes'])}: {link['verdict']}: {link['evidence']}" for link in _links(locate)]
    for group in locate["groups"] if locate else []:
        name = ", ".join(group["groups"]) or plural(len(group["nodes"]), "node")
        told.append(f"switch or set {name} ({group['where']}): {group['verdict']}: {group['evidence']}")
    return [{"what": what, "log": None, "repeat": None, "test": None} for what in told]


def _links(locate: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list(locate["links"]) if locate else []


def _summary(report: dict[str, Any]) -> str:
    """The text after `[RESULT] SUCCESS` or `[RESULT] FAILURE`: what, where."""
    if report["verdict"] == "accepted":
        figures = [_figure(test) for test in report["tests"]]
        return ", ".join(figure for figure in figures if figure)
    first = _first_failure(report)
    blamed = [n for n in report["nodes"] if n["verdict"] in BAD_VERDICTS and n["name"] not in first]
    if blamed:
        names = ", ".join(f"{node['name']} ({node['verdict']})" for node in blamed[:8])
        more = f" and {plural(len(blamed) - 8, 'more node')}" if len(blamed) > 8 else ""
        return f"{names}{more}: {first}"
    suspects = [n["name"] for n in report["nodes"] if n["verdict"] == "suspect"]
    joint = [f"{link['verdict']} link {' - '.join(link['nodes'])}" for link in _links(report["locate"])]
    if joint:
        return f"{first}; {', '.join(joint[:8])}"
    if report["locate"] and suspects:
        return f"{first}; suspect: {', '.join(suspects[:8])}"
    if report["locate"]:
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
