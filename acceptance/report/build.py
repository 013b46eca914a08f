"""Making the report of a run from its files alone: scenario.json, run.json and the raw logs.

So a report can be made again at any time, and it contains nothing from anywhere else.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from acceptance import __version__
from acceptance.limits import ACCEPTED, baseline_limit, baselines_of, fine_busbw, measured_busbw, references, worst
from acceptance.locate import Evidence, Result, Verdict, evidence_of, verdict_of
from acceptance.nccl import Log, Row, merged
from acceptance.report.gpus import STORAGE, SUITE, read_suite, suite_of
from acceptance.report.gpus_model import BAD_GPUS, SuiteReport
from acceptance.report.model import (
    BAD_VERDICTS,
    Command,
    Job,
    LaunchReport,
    LocateReport,
    MeasuredRow,
    NodeReport,
    Problem,
    Report,
    SiteBaseline,
    TestReport,
)
from acceptance.report.result_line import summary_of
from acceptance.runner.judged import NOT_MEASURED, JudgedLog, judge_test
from acceptance.runner.record import LocateRecord, RunRecord, TestRecord, read_record
from acceptance.scenario.load import load_own
from acceptance.scenario.model import Scenario, Test
from acceptance.text import named, printable

_MOST_CAUSES, _MOST_EVENTS = 20, 20  # of one test
_MOST_GPUS = 4  # named in the evidence of one node
_POWERED_DOWN = re.compile(r"POWER(?:ED|ING)?_DOWN")  # in the state of a node that Slurm starts on demand


def build_report(directory: Path, judged: Mapping[str, JudgedLog] | None = None) -> Report:
    """Return the report of a run directory. Raises InputError if it is not one.

    judged: logs of tests, by name, that the run itself has read and judged; the others are read here.
    """
    scenario, record = load_own(directory), read_record(directory)
    records = {test.name: test for test in record.tests} if record.purpose == "accept" else {}
    judged = dict(judged or {})
    for test in scenario.tests:
        if test.name in records and test.name not in judged:
            judged[test.name] = judge_test(scenario, test, records[test.name], directory)
    wanted = scenario.tests if record.purpose == "accept" else ()
    tests = tuple(measured_report(scenario, test, records.get(test.name), judged.get(test.name)) for test in wanted)
    search = record.locate
    evidence = evidence_of(search.fleet(), search.results, search.rules()) if search else None
    found = verdict_of(evidence) if evidence else None
    nodes = _nodes(record, tests, found)
    report = Report(
        run_id=record.run_id,
        purpose=record.purpose,
        directory=str(directory),
        started=record.started,
        finished=record.finished,
        cluster=scenario.cluster,
        partition=scenario.partition,
        instance_type=scenario.instance_type,
        nodes_expected=scenario.nodes,
        gpus_per_node=scenario.gpus_per_node,
        tests=tests,
        nodes=nodes,
        locate=_locate(search, evidence, found) if search and evidence and found else None,
        versions=_versions(record, judged),
        commands=_commands(directory, record),
        verdict=_verdict(record, tests, found),
        failures=(*_failures(record, tests, nodes), *_joint_failures(record, found)),
    )
    return with_suite(replace(report, summary=summary_of(report)), suite_of(directory, scenario.file_system))


def with_suite(report: Report, suite: SuiteReport | None) -> Report:
    """Return the report with the results of the GPU suite: nodes with a bad GPU are bad, and its failures count."""
    if suite is None:
        return report
    jobs = {job.name: job for job in suite.jobs}
    problems = []
    for failure in suite.failures:
        job = jobs.get(failure.job)
        name = "GPU suite" if failure.job == SUITE else STORAGE
        problems.append(Problem(failure.what, job.log if job else None, job.repeat if job else None, name))
    known = {node.name for node in report.nodes}
    others = [_alone(name, suite) for name in suite.nodes if name not in known]
    verdict = report.verdict
    if verdict == "accepted" and suite.verdict != "accepted":
        verdict = "not accepted"
        problems = problems or [Problem("the GPU suite measured nothing: no node has a GPU")]
    result = replace(
        report,
        gpus=suite,
        nodes=(*(_node_with_gpus(node, suite) for node in report.nodes), *others),
        failures=(*report.failures, *problems),
        versions={**suite.versions, **report.versions},
        verdict=verdict,
    )
    return replace(result, summary=summary_of(result))


def _node_with_gpus(node: NodeReport, suite: SuiteReport) -> NodeReport:
    """The verdict of a node whose GPUs were measured: a bad GPU makes it bad, good ones do not make it good."""
    bad = [gpu for gpu in suite.gpus if gpu.node == node.name and gpu.verdict in BAD_GPUS]
    if not bad or node.verdict in BAD_VERDICTS:
        return node
    verdict = "slow" if all(gpu.verdict == "slow" for gpu in bad) else "failed"
    return replace(node, verdict=verdict, evidence="; ".join(gpu.findings[0] for gpu in bad[:_MOST_GPUS]))


def suite_report(directory: Path, *more: Path) -> Report:
    """Return the report of the GPU suite's JSON in these directories, without a run. Raises InputError."""
    suite = read_suite(directory, *more)
    models = sorted({gpu.model for gpu in suite.gpus})
    per_node = Counter(gpu.node for gpu in suite.gpus)
    command = ["acceptance", "report", str(directory)]
    report = Report(
        run_id=f"{suite.date.replace('-', '').replace(':', '')}-{directory.name}",
        purpose="gpus",
        directory=str(directory),
        started=suite.date,
        finished=suite.date,
        cluster=printable(named(suite.nodes, 3, "more node")),
        partition="",
        instance_type=printable(", ".join(models)) or "no GPU",
        nodes_expected=max(1, len(suite.nodes)),
        gpus_per_node=max([1, *per_node.values()]),
        tests=(),
        nodes=(),
        locate=None,
        versions={"acceptance": __version__},
        commands=(Command("this report", shlex.join(command)),),
        verdict="error" if suite.verdict == "not measured" else suite.verdict,
        failures=(),
    )
    return with_suite(report, suite)


def _alone(name: str, suite: SuiteReport) -> NodeReport:
    """The verdict of a node that only the suite measured."""
    good = NodeReport(name, None, "good", "passed the GPU suite", None)
    bad = _node_with_gpus(good, suite)
    tests = [test for test in suite.tests if test.node == name]
    failed = [f"{test.name}: {test.cause}" for test in tests if test.verdict == "fail"]
    if bad is not good or not failed:
        measured = any(test.verdict != "not measured" for test in tests)
        return bad if measured else replace(good, verdict="not measured", evidence="the suite measured nothing on it")
    return replace(good, verdict="failed", evidence=failed[0])


def measured_report(scenario: Scenario, test: Test, record: TestRecord | None, judged: JudgedLog | None) -> TestReport:
    """Return what the report has of one test."""
    log = judged.log if judged else Log()
    ranks = scenario.nodes * scenario.gpus_per_node
    others = references(scenario, test.collective, scenario.nodes)
    checks = judged.checks if judged else ()
    return TestReport(
        name=test.name,
        collective=test.collective,
        verdict=worst([check.outcome for check in checks]) if judged else "not run",
        checks=checks or NOT_MEASURED,
        rows=tuple(_row(test, ranks, row) for table in log.tables[:1] for row in table.rows if row.size > 0),
        baseline=_baseline(scenario, test),
        references=tuple(one for one in others if one.size_bytes in test.sizes()),
        job=_job(record),
        log=record.log if record else None,
        repeat=shlex.join(record.command) if record else None,
        network=log.network,
        causes=tuple(log.causes[:_MOST_CAUSES]),
        events=tuple(merged(log.failures + log.events)[:_MOST_EVENTS]),
    )


def _baseline(scenario: Scenario, test: Test) -> tuple[SiteBaseline, ...]:
    """What this site's good runs reached at the sizes of the sweep."""
    known = sorted(baselines_of(scenario, test.collective, scenario.nodes).items())
    bounds = [(baseline, baseline_limit(baseline)) for size, baseline in known if size in test.sizes()]
    return tuple(SiteBaseline(one, limit.fail_below_gb_per_s, limit.warn_below_gb_per_s) for one, limit in bounds)


def _row(test: Test, ranks: int, row: Row) -> MeasuredRow:
    in_place = fine_busbw(test.collective, ranks, row.size, row.in_place) if row.in_place else None
    return MeasuredRow(row, measured_busbw(test.collective, ranks, row), in_place)


def _job(record: TestRecord | None) -> Job | None:
    outcome = record.outcome if record else None
    if outcome is None:
        return None
    return Job(outcome.job_id, outcome.state, outcome.exit_code, outcome.nodes, outcome.seconds, outcome.kind)


def _nodes(record: RunRecord, tests: tuple[TestReport, ...], found: Verdict | None) -> tuple[NodeReport, ...]:
    """A verdict for each node: Slurm's state first, then the pairs, then the run over all nodes."""
    paired = {verdict.node: verdict for verdict in found.nodes} if found else {}
    used = {node: test for test in tests if test.job for node in test.job.nodes}
    failed = {node for test in tests if test.job and test.verdict == "fail" for node in test.job.nodes}
    nodes = []
    for name in sorted({*record.nodes, *used}, key=_natural):
        known = record.nodes.get(name, {})
        state = known.get("state")
        verdict, evidence, best = "suspect", "took part in no finished measurement", None
        if known.get("trouble"):
            reason = f": {known['reason']}" if known.get("reason") else ""
            verdict, evidence = "infrastructure", f"{known['trouble']} in Slurm{reason}"
        elif name in paired:
            verdict, evidence, best = paired[name].verdict, paired[name].evidence, paired[name].best
        elif name in failed:
            evidence = "took part in a measurement that failed"
        elif name in used:
            verdict, evidence = "good", f"took part in {used[name].name} over all nodes"
        elif _POWERED_DOWN.search(state or ""):
            verdict, evidence = "not measured", "dynamic and powered down: no job needed it"
        nodes.append(NodeReport(name, state, verdict, evidence, best))
    return tuple(nodes)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts gpu-2 before gpu-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _locate(record: LocateRecord, evidence: Evidence, found: Verdict) -> LocateReport:
    launches = [_launch(evidence, result) for result in record.results]
    own = [result for result in record.results if (result.kind, result.collective) == ("pair", record.collective)]
    return LocateReport(
        test=record.test,
        collective=record.collective,
        size_bytes=record.size_bytes,
        topology=record.topology,
        pair_limit_gb_per_s=record.pair_limit,
        slow_below_gb_per_s=evidence.measured.bound(own[0]) if own else None,
        factor=record.factor,
        trouble=record.trouble,
        pairs=tuple(launch for launch in launches if launch.kind == "pair"),
        others=tuple(launch for launch in launches if launch.kind != "pair"),
        links=found.links,
        groups=found.groups,
        rest=found.rest,
    )


def _launch(evidence: Evidence, result: Result) -> LaunchReport:
    return LaunchReport(
        round=result.round + 1,
        collective=result.collective,
        nodes=result.nodes,
        outcome=result.outcome,
        busbw_gb_per_s=result.busbw,
        good=evidence.measured.good(result),
        bad_below_gb_per_s=evidence.measured.bound(result),
        log=result.log,
        kind=result.kind,
    )


def _versions(record: RunRecord, judged: Mapping[str, JudgedLog]) -> dict[str, str]:
    versions = {"acceptance": __version__}
    if record.slurm:
        versions["slurm"] = record.slurm.replace("slurm ", "")
    for one in judged.values():
        versions.update(one.log.versions)
    return dict(sorted(versions.items()))


def _commands(directory: Path, record: RunRecord) -> tuple[Command, ...]:
    whole = ["acceptance", "run", "--scenario", str(directory / "scenario.json"), "--output", str(directory.parent)]
    commands = [("the whole run", whole), *((test.name, test.command) for test in record.tests)]
    if record.locate:
        commands += [(f"round {number} of pairs", command) for number, command in enumerate(record.locate.commands, 1)]
    commands.append(("this report", ["acceptance", "report", str(directory)]))
    return tuple(Command(what, shlex.join(command)) for what, command in commands)


def _verdict(record: RunRecord, tests: tuple[TestReport, ...], found: Verdict | None) -> str:
    """accepted, not accepted, or error where the environment prevented an answer."""
    lost = any(test.job and test.job.kind == "lost" for test in tests)
    if record.interrupted or record.trouble or lost or record.finished is None:
        return "error"
    if record.infrastructure:
        return "not accepted"
    if record.purpose == "accept":
        return "accepted" if all(test.verdict in ACCEPTED for test in tests) else "not accepted"
    if record.locate is None or record.locate.trouble or found is None:
        return "error"
    # A search alone accepts its nodes if each is good, and nothing between them is bad.
    good = all(node.verdict == "good" for node in found.nodes)
    return "accepted" if good and not found.links and not found.groups else "not accepted"


def _failures(record: RunRecord, tests: tuple[TestReport, ...], nodes: tuple[NodeReport, ...]) -> list[Problem]:
    failures = [Problem(problem) for problem in (record.interrupted, record.trouble, record.infrastructure) if problem]
    prevented = record.infrastructure or record.trouble
    for test in tests:
        for check in test.checks:
            if check.outcome in ("fail", "unjudged") and not (prevented and test.job is None):
                what = f"{test.name}: {check.name}: {check.message}"
                failures.append(Problem(what, test.log, test.repeat, test.name))
    for node in nodes:
        if node.verdict in BAD_VERDICTS and not (record.infrastructure and node.verdict == "infrastructure"):
            what = f"node {node.name}: {node.verdict}: {node.evidence}"
            failures.append(_located(record.locate, what, {node.name}))
    return failures


def _joint_failures(record: RunRecord, found: Verdict | None) -> list[Problem]:
    """One entry for each link or set of nodes that is bad although its nodes are good."""
    failures = []
    for link in found.links if found else ():
        what = f"link {' - '.join(link.nodes)}: {link.verdict}: {link.evidence}"
        failures.append(_located(record.locate, what, set(link.nodes)))
    for group in found.groups if found else ():
        failures.append(Problem(f"{group.name}: {group.verdict}: {group.evidence}"))
    return failures


def _located(record: LocateRecord | None, what: str, nodes: set[str]) -> Problem:
    """A problem that the search found, with the log of the last launch of just these nodes, and its round's command."""
    results = record.results if record else []
    logs = [one.log for one in results if nodes <= set(one.nodes) and len(one.nodes) < 3]
    if record is None or not logs:
        return Problem(what)
    script = logs[-1].rsplit("-", 1)[0]  # locate-2-7.out is the seventh launch of locate-2.sbatch
    again = [shlex.join(command) for command in record.commands if Path(command[-1]).stem == script]
    return Problem(what, logs[-1], again[-1] if again else None)
