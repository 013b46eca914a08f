"""The report of a scenario's folder, from its files alone: the same report as that of an acceptance.json."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from acceptance import __version__
from acceptance.cloudai.judge import UNKNOWN, Judge, ranks_of
from acceptance.cloudai.notes import read_notes
from acceptance.cloudai.script import NOTES
from acceptance.cloudai.stored import StoredJob, StoredPlan, StoredTest, read_plan
from acceptance.cloudai.toml_text import toml_text
from acceptance.limits import ACCEPTED, worst
from acceptance.report import Report, with_suite, write_files
from acceptance.report.gpus import suite_of
from acceptance.report.model import (
    Command,
    JobReport,
    NodeReport,
    Problem,
    ScenarioReport,
    ScenarioTest,
    StepReport,
    SweepPoint,
    SweepReport,
    TestReport,
)
from acceptance.report.result_line import summary_of
from acceptance.runner.files import read_plain, write_whole
from acceptance.runner.record import RunRecord, TestRecord, read_record
from acceptance.scenario.load import check_scenario
from acceptance.scenario.model import Scenario

CLUSTER = "cluster.json"  # the cluster's acceptance.json as it was at the start: instance type, network, limits
_BAD = ("fail", "unjudged")


def write_scenario_report(folder: Path) -> Report:
    """Write the files of a report, and slurm-job.toml of each job. Raises InputError, OSError."""
    report = scenario_report(folder)
    write_files(report)
    plan, record = read_plan(folder), read_record(folder)
    records = {one.name: one for one in record.tests}
    for job in plan.jobs:
        write_whole(folder / job.path / "slurm-job.toml", _slurm_job(folder, job, records.get(job.path)))
    return report


def scenario_report(folder: Path) -> Report:
    """Return the report of a scenario's folder. Raises InputError if it is not one."""
    plan, record = read_plan(folder), read_record(folder)
    facts = _facts(folder, plan)
    records = {one.name: one for one in record.tests}
    ids = {one.job_id: one.name for one in record.tests if one.job_id is not None}
    judge = Judge(folder, plan, facts, ids)
    tests = tuple(judge.report(job, records.get(job.path)) for job in plan.jobs)
    by_name = {test.name: test for test in tests}
    scenario = ScenarioReport(
        plan.scenario,
        tuple(_scenario_test(one, plan, by_name) for one in plan.tests),
        tuple(_job_report(folder, job, records.get(job.path), by_name[job.path]) for job in plan.jobs),
        plan.skipped,
    )
    nodes = _nodes(tests)
    report = Report(
        run_id=record.run_id,
        purpose="scenario",
        directory=str(folder),
        started=record.started,
        finished=record.finished,
        cluster=facts.cluster,
        partition=plan.partition,
        instance_type=facts.instance_type,
        nodes_expected=max(1, len(nodes), *(job.nodes for job in plan.jobs)),
        gpus_per_node=facts.gpus_per_node,
        tests=tests,
        nodes=nodes,
        locate=None,
        versions=_versions(record),
        commands=_commands(folder, record),
        verdict=_verdict(record, tests),
        failures=tuple(_failures(record, tests)),
        scenario=scenario,
    )
    return with_suite(replace(report, summary=summary_of(report)), suite_of(folder, facts.file_system))


def history_parts(folder: Path, report: Report) -> list[tuple[Report, str]]:
    """Return a scenario as runs of the history, each with its setup: the whole, then each NcclTest by nodes and setup.

    So its figures are compared with those of the same nodes, GPUs, image and variables only.
    """
    plan = read_plan(folder)
    groups: dict[tuple[str, int, int, str], list[TestReport]] = {}
    for job, test in zip(plan.jobs, report.tests):
        if test.rows:
            what = {"container": job.arguments.get("docker_image_url"), "environment": dict(job.environment)}
            key = (job.test, *ranks_of(job), json.dumps(what, sort_keys=True))
            groups.setdefault(key, []).append(test)
    parts = [(replace(report, tests=()), "{}")]
    for number, ((name, nodes, ranks, setup), tests) in enumerate(groups.items(), 1):
        good = all(test.verdict in ACCEPTED for test in tests)
        part = replace(
            report,
            run_id=f"{report.run_id}/{name}" + (f"/{number}" if len(groups) > 1 else ""),
            tests=tuple(tests),
            nodes=(),
            gpus=None,
            nodes_expected=nodes,
            gpus_per_node=ranks,
            verdict="accepted" if good else "not accepted",
            scenario=None,
        )
        parts.append((replace(part, summary=summary_of(part) if good else report.summary), setup))
    return parts


def _facts(folder: Path, plan: StoredPlan) -> Scenario:
    """What is known of the cluster. Without its acceptance.json no limit applies: nothing is known of the nodes."""
    try:
        return check_scenario(json.loads(read_plain(folder / CLUSTER)), str(folder / CLUSTER))
    except (OSError, ValueError):
        return Scenario(plan.system, plan.partition, UNKNOWN, 1, plan.gpus_per_node, None, ())


def _scenario_test(test: StoredTest, plan: StoredPlan, reports: dict[str, TestReport]) -> ScenarioTest:
    jobs = [job for job in plan.jobs if job.test == test.id]
    own = [reports[job.path] for job in jobs]
    outcomes = [worst([check.outcome for check in one.checks]) for one in own]
    verdict = worst(outcomes)
    bad = next((one for one, outcome in zip(own, outcomes) if outcome == verdict), None)
    check = next((check for check in bad.checks if check.outcome == verdict), None) if bad else None
    cause = f"{check.name}: {check.message}" if check and verdict != "pass" else check.message if check else ""
    if bad and verdict != "pass" and len(jobs) > 1:
        cause = f"{bad.name}: {cause}"
    if verdict == "fail" and all(one.verdict == "not run" for one in own):
        verdict = "not run"
    return ScenarioTest(
        test.id,
        test.test,
        test.template,
        test.description,
        test.dependencies,
        verdict,
        cause,
        _sweep(jobs, own),
    )


def _sweep(jobs: Sequence[StoredJob], reports: Sequence[TestReport]) -> SweepReport | None:
    """The points of a sweep, compared by the bus bandwidth at the largest size, or by the first figure."""
    if not any(job.point for job in jobs):
        return None
    measured = [_figure(one) for one in reports]
    known = [one for one in measured if one is not None]
    name, unit, higher = known[0][:3] if known else ("", "", False)
    values = [one[3] if one is not None and one[0] == name else None for one in measured]
    points = tuple(
        SweepPoint(job.path, job.point, report.verdict, value) for job, report, value in zip(jobs, reports, values)
    )
    good = [one for one in points if one.value is not None and one.verdict in ACCEPTED]
    best = (max if higher else min)(good, key=lambda one: one.value or 0.0).job if good else None
    return SweepReport(name, unit, higher, points, best)


def _figure(report: TestReport) -> tuple[str, str, bool, float] | None:
    if report.rows:
        value = max(report.rows, key=lambda row: row.size).measured_busbw_gb_per_s
        return None if value is None else ("bus bandwidth at the largest size", "GB/s", True, value)
    if report.figures:
        first = report.figures[0]
        return first.name, first.unit, first.higher, first.value
    return None


def _job_report(folder: Path, job: StoredJob, record: TestRecord | None, report: TestReport) -> JobReport:
    outcome = record.outcome if record else None
    notes = read_notes(folder / job.path / NOTES)
    return JobReport(
        name=job.path,
        test=job.test,
        job_id=record.job_id if record else None,
        state=outcome.state if outcome else "UNKNOWN",
        verdict=report.verdict,
        nodes=tuple(outcome.nodes if outcome else ()),
        started=_iso(outcome.started if outcome else notes.started),
        ended=_iso(outcome.ended if outcome else notes.ended),
        steps=tuple(
            StepReport(step.kind, step.name, _iso(step.started) or "", _iso(step.ended), step.code)
            for step in notes.steps
        ),
    )


def _iso(unix: float | None) -> str | None:
    return None if unix is None else datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _nodes(tests: Sequence[TestReport]) -> tuple[NodeReport, ...]:
    """A node is good if a test that measured something passed on it; a failed test proves nothing about one node."""
    passed = [test for test in tests if test.job and test.verdict in ACCEPTED]
    good = {node: test.name for test in passed if test.rows or test.figures for node in _of(test)}
    unmeasured = {node: test.name for test in passed for node in _of(test)}
    used = {node: test.name for test in tests if test.job for node in test.job.nodes}
    lost = {
        node: f"{test.name}: {test.job.state}"
        for test in tests
        if test.job and test.job.state in ("NODE_FAIL", "BOOT_FAIL") and len(test.job.nodes) == 1
        for node in test.job.nodes
    }
    result = []
    for node in sorted(used):
        if node in lost:
            result.append(NodeReport(node, None, "infrastructure", lost[node], None))
        elif node in good:
            result.append(NodeReport(node, None, "good", f"{good[node]} passed on it", None))
        elif node in unmeasured:
            text = f"{unmeasured[node]} passed on it, and measured nothing"
            result.append(NodeReport(node, None, "not measured", text, None))
        else:
            result.append(NodeReport(node, None, "suspect", f"took part in {used[node]} only, which failed", None))
    return tuple(result)


def _of(test: TestReport) -> list[str]:
    return list(test.job.nodes) if test.job else []


def _versions(record: RunRecord) -> dict[str, str]:
    slurm = {"slurm": record.slurm.replace("slurm ", "")} if record.slurm else {}
    return {"acceptance": __version__, **slurm}


def _commands(folder: Path, record: RunRecord) -> tuple[Command, ...]:
    commands = [(one.name, one.command) for one in record.tests]
    commands.append(("this report", ["acceptance", "generate-report", "--result-dir", str(folder)]))
    return tuple(Command(what, shlex.join(command)) for what, command in commands)


def _verdict(record: RunRecord, tests: Sequence[TestReport]) -> str:
    """A failed test decides; without one a job that is lost or has not ended leaves the answer open."""
    lost = [test for test in tests if test.job is not None and test.job.kind == "lost" and test.verdict == "fail"]
    failed = [test for test in tests if test.verdict in _BAD and test not in lost]
    if record.interrupted or record.trouble:
        return "error"
    if failed:
        return "not accepted"
    return "accepted" if all(test.verdict in ACCEPTED for test in tests) else "error"


def _failures(record: RunRecord, tests: Sequence[TestReport]) -> list[Problem]:
    failures = [Problem(one) for one in (record.interrupted, record.trouble) if one]
    for test in tests:
        for check in test.checks:
            if check.outcome in _BAD and not (record.trouble and test.job is None):
                failures.append(
                    Problem(f"{test.name}: {check.name}: {check.message}", test.log, test.repeat, test.name)
                )
    return failures


def _slurm_job(folder: Path, job: StoredJob, record: TestRecord | None) -> str:
    """slurm-job.toml: the job as it ended, with CloudAI's keys; its steps are those that the script noted."""
    outcome = record.outcome if record else None
    notes = read_notes(folder / job.path / NOTES)
    return toml_text(
        {
            "job_id": record.job_id if record and record.job_id else 0,
            "name": job.path,
            "state": outcome.state if outcome else "UNKNOWN",
            "start_time": _iso(outcome.started if outcome else notes.started) or "",
            "end_time": _iso(outcome.ended if outcome else notes.ended) or "",
            "elapsed_time_sec": int(outcome.seconds) if outcome else 0,
            "exit_code": str(outcome.exit_code) if outcome and outcome.exit_code is not None else "",
            "srun_cmd": job.command,
            "test_cmd": job.command,
            "is_single_sbatch": False,
            "job_root": str(folder / job.path),
            "job_steps": [
                {
                    "name": f"{step.kind} {step.name}".strip(),
                    "start_time": _iso(step.started) or "",
                    "end_time": _iso(step.ended) or "",
                    "exit_code": "" if step.code is None else str(step.code),
                }
                for step in notes.steps
            ],
        }
    )
