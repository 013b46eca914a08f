"""Measuring what the planner asks for: one job holds the nodes, each round's launches are parallel steps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from acceptance.limits import find_limits, judge_log, measured_busbw
from acceptance.locate.model import Launch, Result, Verdict
from acceptance.locate.planner import decide
from acceptance.runner.allocation import IDLE_S, NAME, ROUNDS, STOP, Allocation
from acceptance.runner.files import read_log, write_whole
from acceptance.runner.follow import Follower, meaning
from acceptance.runner.record import LocateRecord
from acceptance.runner.script import KILL_AFTER_S, common_values, job_name, render, slurm_minutes, sweep_arguments
from acceptance.runner.slurm import Node, submit_argv
from acceptance.scenario.model import Scenario, Test

_ROUND_OVERHEAD_S = 20  # seconds to start and end a round's steps
_ROOM_FOR_BOTH = 16  # nodes from which on the bound of rounds leaves room for pairs of two collectives


def locate(
    scenario: Scenario,
    record: LocateRecord,
    nodes: list[Node],
    directory: Path,
    follower: Follower,
    say: Callable[[str], None],
    save: Callable[[], None],
) -> None:
    """Measure rounds until the planner has enough; what was measured goes into `record`, saved after each round."""
    answer = decide(record.fleet(), record.results, record.rules())
    if not isinstance(answer, Verdict):
        allocation = Allocation(directory, job_name(directory, NAME), follower)
        allocation.open(_hold(scenario, record, nodes, directory), save)
        record.trouble = allocation.trouble
        while not isinstance(answer, Verdict) and record.trouble is None:
            number = max((result.round for result in record.results), default=-1) + 1
            parts = ", ".join("+".join(one.nodes) for one in answer.launches)
            say(f"locate round {number + 1}, {answer.why}: {parts}")
            for collective in dict.fromkeys(launch.collective for launch in answer.launches):
                launches = [launch for launch in answer.launches if launch.collective == collective]
                record.results += _measure(scenario, record, nodes, launches, number, directory, allocation)
            save()
            answer = decide(record.fleet(), record.results, record.rules())
        allocation.close()
    record.ended = True
    save()


def _hold(scenario: Scenario, record: LocateRecord, nodes: list[Node], directory: Path) -> Path:
    """Write the script of the job that holds the nodes for as long as the whole search may take."""
    script = directory / f"{NAME}.sbatch"
    round_s = scenario.locate.pair_timeout_s + KILL_AFTER_S + _ROUND_OVERHEAD_S
    values = {
        **common_values(scenario, [node for node in nodes if node.name in record.nodes], record.collective, directory),
        "title": f"{NAME}: holds {len(record.nodes)} nodes for the search of the one to blame",
        "job_name": job_name(directory, NAME),
        "nodes": len(record.nodes),
        "nodelist": ",".join(record.nodes),
        "minutes": slurm_minutes(round_s * record.max_rounds * max(1, len(set(record.collectives))) + IDLE_S),
        "rounds_file": ROUNDS,
        "stop_file": STOP,
        "idle_s": IDLE_S,
    }
    write_whole(script, render("holder.sbatch.j2", values))
    return script


def begin(scenario: Scenario, test: Test, names: list[str], groups: dict[str, str]) -> LocateRecord:
    """What is to be searched, and by which limits. groups: node -> its switch, empty where that is unknown."""
    settings = scenario.locate
    # One GPU by itself exchanges nothing. The least that a node can run alone is the all_reduce of its GPUs.
    alone = "all_reduce" if scenario.gpus_per_node > 1 and test.collective == "all_reduce" else None
    collectives = _collectives(scenario, test, len(names), alone)
    sizes = {one: _size(scenario, test, one) for one in dict.fromkeys([test.collective, *collectives])}
    wanted = [(test.collective, len(names)), *((one, 2) for one in collectives)]
    wanted += [(alone, 1)] if alone else []
    limits = [(one, count, _limit(scenario, one, count, sizes[one])) for one, count in wanted]
    known = {(one, count): below for one, count, below in limits if below is not None}
    if settings.pair_limit_gb_per_s is not None:
        known[test.collective, 2] = settings.pair_limit_gb_per_s
    return LocateRecord(
        test=test.name,
        collective=test.collective,
        size_bytes=sizes[test.collective],
        nodes=names,
        pair_limit=known.get((test.collective, 2)),
        factor=settings.factor,
        max_rounds=settings.max_rounds,
        alone=alone,
        collectives=list(collectives),
        sizes=sizes,
        limits=[(one, count, below) for (one, count), below in known.items()],
        relative=settings.pair_limit_gb_per_s is None,
        groups={name: groups[name] for name in names if name in groups},
    )


def _collectives(scenario: Scenario, test: Test, count: int, alone: str | None) -> tuple[str, ...]:
    """The collectives of the pairs: the failed one, and alltoall where the scenario measures it.

    The all_reduce of a pair hides the loss of a quarter of the EFA devices. In a small fleet, whose rounds do not
    suffice for both, alltoall stands for the network and each node's own all_reduce for what is inside it.
    """
    allowed = scenario.locate.collectives or (test.collective, *(one.collective for one in scenario.tests))
    if "alltoall" not in allowed or test.collective == "alltoall" or len(set(allowed)) == 1:
        return allowed[:1]
    return ("alltoall",) if alone and count < _ROOM_FOR_BOTH else (test.collective, "alltoall")


def _size(scenario: Scenario, test: Test, collective: str) -> int:
    """The one size in bytes that is measured: what the scenario says, else the largest judged one, else the largest."""
    if scenario.locate.size_bytes is not None:
        return scenario.locate.size_bytes
    own = next((one for one in (test, *scenario.tests) if one.collective == collective), test)
    limits = find_limits(scenario, collective, scenario.nodes, own.sizes())
    limits = limits or find_limits(scenario, collective, 2, own.sizes())
    return limits[-1].size_bytes if limits else own.max_bytes


def _limit(scenario: Scenario, collective: str, count: int, size: int) -> float | None:
    known = find_limits(scenario, collective, count, [size])
    return known[-1].fail_below_gb_per_s if known else None


def _part_test(scenario: Scenario, record: LocateRecord, collective: str) -> Test:
    """The one-size test that a part of the fleet runs."""
    settings, size = scenario.locate, record.sizes[collective]
    return Test(
        name="part",
        collective=collective,
        min_bytes=size,
        max_bytes=size,
        step_factor=2,
        iterations=settings.iterations,
        warmup_iterations=settings.warmup_iterations,
        timeout_s=settings.pair_timeout_s,
    )


def _measure(
    scenario: Scenario,
    record: LocateRecord,
    nodes: list[Node],
    launches: list[Launch],
    number: int,
    directory: Path,
    allocation: Allocation,
) -> list[Result]:
    collective = launches[0].collective
    name = f"{NAME}-{number + 1}" + (f"-{collective}" if collective != record.collective else "")
    script, status, output = (directory / f"{name}.{end}" for end in ("sbatch", "status", "out"))
    logs = [f"{name}-{index + 1}.out" for index in range(len(launches))]
    test = _part_test(scenario, record, collective)
    values = _values(scenario, test, nodes, launches, logs, name, directory)
    status.unlink(missing_ok=True)
    write_whole(script, render("pairs.sbatch.j2", values))
    record.commands.append(submit_argv(script, directory, output))
    codes = allocation.run(script, status, len(launches), test.timeout_s + KILL_AFTER_S)
    if len(codes) < len(launches):
        said = allocation.trouble or meaning("FAILED", allocation.ended(status), 0)[1]
        record.trouble = f"round {number + 1} gave no result: {said}"
        return []
    results = []
    for index, (launch, log) in enumerate(zip(launches, logs)):
        kind, busbw = _result(scenario, test, launch, directory / log, codes[index])
        results.append(Result(number, launch.kind, collective, launch.nodes, kind, busbw, log))
    return results


def _values(
    scenario: Scenario,
    test: Test,
    nodes: list[Node],
    launches: list[Launch],
    logs: list[str],
    name: str,
    directory: Path,
) -> dict[str, object]:
    names = sorted(node for launch in launches for node in launch.nodes)
    parts = [
        {"nodes": ",".join(launch.nodes), "count": len(launch.nodes), "log": log} for launch, log in zip(launches, logs)
    ]
    return {
        **common_values(scenario, [node for node in nodes if node.name in names], test.collective, directory),
        "title": f"{name}: {len(parts)} parts at the same time, {test.collective} of {test.min_bytes} bytes",
        "job_name": job_name(directory, name),
        "nodes": len(names),
        "nodelist": ",".join(names),
        "minutes": slurm_minutes(test.timeout_s + KILL_AFTER_S),
        "timeout_s": test.timeout_s,
        "parts": parts,
        "arguments": sweep_arguments(test),
        "status_file": f"{name}.status",
    }


def _result(scenario: Scenario, test: Test, launch: Launch, path: Path, code: int) -> tuple[str, float | None]:
    """What a log and an exit code say: ok, hang, failed or 'wrong data', and the bus bandwidth in GB/s.

    A node alone uses no network, so its log is not asked which one it used.
    """
    if code in (124, 137):
        return "hang", None
    log = read_log(path)
    count = len(launch.nodes)
    row = log.tables[0].row(test.max_bytes) if log.tables else None
    asked = replace(scenario, network=None) if count == 1 else scenario
    checks = judge_log(asked, test, log, count)
    bad = [c.name for c in checks if c.outcome == "fail" and not c.name.startswith("bandwidth")]
    if bad == ["data"]:
        return "wrong data", None
    if code or row is None or bad:
        return "failed", None
    return "ok", measured_busbw(test.collective, count * scenario.gpus_per_node, row)
