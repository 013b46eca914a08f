"""Measuring the planner's pairs: one job a round, its pairs as parallel steps of that job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from acceptance.limits import find_limits, judge_log, measured_busbw
from acceptance.locate.planner import PairResult, Rules, next_round
from acceptance.nccl import Log, parse_file
from acceptance.runner.follow import Follower
from acceptance.runner.record import LocateRecord, RunRecord
from acceptance.runner.script import KILL_AFTER_S, common_values, render, slurm_minutes
from acceptance.runner.slurm import Node, submit_argv
from acceptance.scenario.model import Scenario, Test


def locate(
    scenario: Scenario,
    test: Test,
    nodes: list[Node],
    directory: Path,
    follower: Follower,
    run: RunRecord,
    say: Callable[[str], None],
    save: Callable[[], None],
) -> None:
    """Measure rounds of pairs until the planner has enough; what was measured goes into `run.locate`."""
    record = run.locate = _start(scenario, test, [node.name for node in nodes])
    rules = Rules(record.pair_limit, record.factor, record.max_rounds)
    while True:
        pairs = next_round(record.nodes, record.pairs, rules)
        if not pairs:
            return
        number = max((pair.round for pair in record.pairs), default=-1) + 1
        say(f"locate round {number + 1}: " + ", ".join(f"{a}+{b}" for a, b in pairs))
        measured = _measure_round(scenario, record, nodes, pairs, number, directory, follower)
        record.pairs += measured
        save()
        if record.trouble:
            return


def _start(scenario: Scenario, test: Test, names: list[str]) -> LocateRecord:
    settings = scenario.locate
    limits = find_limits(scenario, test.collective, scenario.nodes, test.sizes())
    size = settings.size_bytes or (limits[-1].size_bytes if limits else test.max_bytes)
    limit = settings.pair_limit_gb_per_s
    if limit is None:
        known = find_limits(scenario, test.collective, 2, [size])
        limit = known[-1].fail_below_gb_per_s if known else None
    return LocateRecord(test.name, test.collective, size, names, limit, settings.factor, settings.max_rounds)


def pair_test(scenario: Scenario, record: LocateRecord) -> Test:
    """The one-size test that a pair runs."""
    settings = scenario.locate
    return Test(
        name="pair",
        collective=record.collective,
        min_bytes=record.size_bytes,
        max_bytes=record.size_bytes,
        step_factor=2,
        iterations=settings.iterations,
        warmup_iterations=settings.warmup_iterations,
        timeout_s=settings.pair_timeout_s,
    )


def _measure_round(
    scenario: Scenario,
    record: LocateRecord,
    nodes: list[Node],
    pairs: list[tuple[str, str]],
    number: int,
    directory: Path,
    follower: Follower,
) -> list[PairResult]:
    name = f"locate-{number + 1}"
    script, status = directory / f"{name}.sbatch", directory / f"{name}.status"
    logs = [f"{name}-{index + 1}.out" for index in range(len(pairs))]
    test = pair_test(scenario, record)
    values = _values(scenario, test, nodes, pairs, logs, name)
    script.write_text(render("pairs.sbatch.j2", values), "utf-8")
    output = directory / f"{name}.out"
    record.commands.append(submit_argv(script, directory, output))
    outcome = follower.run(script, output, status, test.timeout_s + KILL_AFTER_S)
    codes = _codes(status)
    if not codes:
        record.trouble = f"round {number + 1} gave no result: {outcome.message}"
        return []
    results = []
    for index, (pair, log) in enumerate(zip(pairs, logs)):  # noqa: B905 - equal by construction; strict= needs 3.10
        kind, busbw = _result(scenario, test, directory / log, codes.get(index, 1))
        results.append(PairResult(number, pair[0], pair[1], kind, busbw, log))
    return results


def _values(
    scenario: Scenario, test: Test, nodes: list[Node], pairs: list[tuple[str, str]], logs: list[str], name: str
) -> dict[str, object]:
    names = sorted(node for pair in pairs for node in pair)
    arguments = ["-b", test.min_bytes, "-e", test.max_bytes, "-f", 2, "-g", 1]
    arguments += ["-n", test.iterations, "-w", test.warmup_iterations, "-c", 1]
    return {
        **common_values(scenario, [node for node in nodes if node.name in names], test.collective),
        "title": f"{name}: {len(pairs)} pairs of nodes at the same time, {test.collective} of {test.min_bytes} bytes",
        "job_name": f"acceptance-{name}",
        "nodes": len(names),
        "nodelist": ",".join(names),
        "minutes": slurm_minutes(test.timeout_s + KILL_AFTER_S),
        "timeout_s": test.timeout_s,
        "pairs": [{"nodes": f"{a},{b}", "log": log} for (a, b), log in zip(pairs, logs)],  # noqa: B905 - as above
        "arguments": shlex.join(map(str, arguments)),
        "status_file": f"{name}.status",
    }


def _codes(status: Path) -> dict[int, int]:
    try:
        text = status.read_text("utf-8", errors="replace")
    except OSError:
        return {}
    found = re.findall(r"^pair=(\d{1,5}) exit=(\d{1,3})$", text, re.MULTILINE)
    return {int(index): int(code) for index, code in found}


def _result(scenario: Scenario, test: Test, path: Path, code: int) -> tuple[str, float | None]:
    """What a pair's log and exit code say: ok, hang, failed or 'wrong data', and the bus bandwidth in GB/s."""
    if code in (124, 137):
        return "hang", None
    try:
        log = parse_file(path)
    except OSError:
        log = Log()
    row = log.tables[0].row(test.max_bytes) if log.tables else None
    bad = [c.name for c in judge_log(scenario, test, log, 2) if c.outcome == "fail" and not c.name.startswith("bandw")]
    if bad == ["data"]:
        return "wrong data", None
    if code or row is None or bad:
        return "failed", None
    return "ok", measured_busbw(test.collective, 2 * scenario.gpus_per_node, row)
