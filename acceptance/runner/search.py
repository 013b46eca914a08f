"""Measuring what the planner asks for: one job holds the nodes, each round's launches are parallel steps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acceptance.limits import find_limits, judge_log, measured_busbw
from acceptance.locate.model import Launch, Result, Verdict
from acceptance.locate.planner import decide
from acceptance.runner.allocation import IDLE_S, NAME, ROUNDS, STOP, Allocation
from acceptance.runner.files import read_log, write_whole
from acceptance.runner.follow import NOTHING_RAN, Follower, nccl_meaning
from acceptance.runner.record import LocateRecord
from acceptance.runner.script import (
    KILL_AFTER_S,
    TIMED_OUT,
    common_values,
    job_name,
    render,
    slurm_minutes,
    sweep_arguments,
)
from acceptance.runner.slurm import Node, submit_argv
from acceptance.scenario.model import ROUND_OVERHEAD_S, Scenario, Test

_ROOM_FOR_BOTH = 16  # nodes from which on the bound of rounds leaves room for pairs of two collectives


@dataclass(frozen=True)
class Search:
    """A search: what it measures goes into `record`, which `save` writes after each round."""

    scenario: Scenario
    record: LocateRecord
    nodes: list[Node]
    directory: Path
    follower: Follower
    say: Callable[[str], None]
    save: Callable[[], None]

    def run(self) -> None:
        """Measure rounds until the planner has enough."""
        record = self.record
        answer = decide(record.fleet(), record.results, record.rules())
        if not isinstance(answer, Verdict):
            allocation = Allocation(self.directory, job_name(self.directory, NAME), self.follower)
            allocation.open(self._write_holder(), self.save)
            record.trouble = allocation.trouble
            while not isinstance(answer, Verdict) and record.trouble is None:
                number = max((result.round for result in record.results), default=-1) + 1
                parts = ", ".join("+".join(launch.nodes) for launch in answer.launches)
                self.say(f"locate round {number + 1}, {answer.why}: {parts}")
                for collective in dict.fromkeys(launch.collective for launch in answer.launches):
                    launches = [launch for launch in answer.launches if launch.collective == collective]
                    record.results += self._measure(launches, number, allocation)
                self.save()
                answer = decide(record.fleet(), record.results, record.rules())
            allocation.close()
        record.ended = True
        self.save()

    def _common(self, names: list[str], collective: str, name: str) -> dict[str, Any]:
        nodes = [node for node in self.nodes if node.name in names]
        return {
            **common_values(self.scenario, nodes, collective, self.directory),
            "job_name": job_name(self.directory, name),
            "nodes": len(names),
            "nodelist": ",".join(names),
        }

    def _write_holder(self) -> Path:
        """Write the script of the job that holds the nodes for as long as the whole search may take."""
        record, script = self.record, self.directory / f"{NAME}.sbatch"
        round_s = self.scenario.locate.pair_timeout_s + KILL_AFTER_S + ROUND_OVERHEAD_S
        values = {
            **self._common(record.nodes, record.collective, NAME),
            "title": f"{NAME}: holds {len(record.nodes)} nodes for the search of the one to blame",
            "minutes": slurm_minutes(round_s * record.max_rounds * max(1, len(set(record.collectives))) + IDLE_S),
            "rounds_file": ROUNDS,
            "stop_file": STOP,
            "idle_s": IDLE_S,
        }
        write_whole(script, render("holder.sbatch.j2", values))
        return script

    def _measure(self, launches: list[Launch], number: int, allocation: Allocation) -> list[Result]:
        """Run one round's launches of one collective, all at the same time."""
        collective = launches[0].collective
        name = f"{NAME}-{number + 1}" + (f"-{collective}" if collective != self.record.collective else "")
        script, status, output = (self.directory / f"{name}.{end}" for end in ("sbatch", "status", "out"))
        logs = [f"{name}-{index + 1}.out" for index in range(len(launches))]
        test = self._test(collective)
        status.unlink(missing_ok=True)
        write_whole(script, render("pairs.sbatch.j2", self._values(test, launches, logs, name)))
        self.record.commands.append(submit_argv(script, self.directory, output))
        codes = allocation.run(script, status, len(launches), test.timeout_s + KILL_AFTER_S)
        if len(codes) < len(launches):
            reason = allocation.trouble or nccl_meaning("FAILED", allocation.ended(status), 0)[1]
            self.record.trouble = f"round {number + 1} gave no result: {reason}"
            return []
        results, reasons = [], set[str]()
        for index, (launch, log) in enumerate(zip(launches, logs)):
            result, repair = _result(self.scenario, test, launch, self.directory / log, codes[index], number)
            results.append(result)
            reasons.add(f"{result.reason}. Hint: {repair}" if repair else result.reason)
        self.record.trouble = self.record.trouble or common_trouble([*self.record.results, *results], reasons)
        return results

    def _test(self, collective: str) -> Test:
        """The one-size test that a part of the fleet runs."""
        settings, size = self.scenario.locate, self.record.sizes[collective]
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

    def _values(self, test: Test, launches: list[Launch], logs: list[str], name: str) -> dict[str, Any]:
        parts = [
            {"nodes": ",".join(launch.nodes), "count": len(launch.nodes), "log": log}
            for launch, log in zip(launches, logs)
        ]
        names = sorted(node for launch in launches for node in launch.nodes)
        return {
            **self._common(names, test.collective, name),
            "title": f"{name}: {len(parts)} parts at the same time, {test.collective} of {test.min_bytes} bytes",
            "minutes": slurm_minutes(test.timeout_s + KILL_AFTER_S),
            "timeout_s": test.timeout_s,
            "parts": parts,
            "arguments": sweep_arguments(test),
            "status_file": f"{name}.status",
        }


def begin(scenario: Scenario, test: Test, names: list[str], groups: dict[str, str]) -> LocateRecord:
    """Return the record of a new search, with its limits. groups: node -> its switch, empty where that is unknown."""
    settings = scenario.locate
    # A node with one GPU exchanges nothing alone; other nodes run the all_reduce of their GPUs.
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
    suffice for both, alltoall measures the network, and the all_reduce of each node alone what is inside it.
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


def common_trouble(results: list[Result], reasons: set[str]) -> str | None:
    """Why no launch of the search can run, None if one did, or if the launches of this round failed differently.

    reasons: of the launches of this round, each in words, empty where the log names none.
    """
    if len(results) < 2 or len(reasons) > 1 or any(result.outcome != "failed" for result in results):
        return None
    reason = next(iter(reasons), "")
    return f"every launch failed for the same reason: {reason}" if reason else None


def _result(scenario: Scenario, test: Test, launch: Launch, path: Path, code: int, number: int) -> tuple[Result, str]:
    """The result of a launch by its log and exit code, and the repair of the cause that its log names, if any.

    A node alone uses no network, so its log is not checked for it.
    """

    def result(outcome: str, busbw: float | None = None, reason: str = "") -> Result:
        return Result(number, launch.kind, test.collective, launch.nodes, outcome, busbw, path.name, reason)

    log = read_log(path)
    cause = next((one for one in log.causes if not one.weak and not one.note), None)
    reason, repair = (cause.cause, cause.repair) if cause else ("", "")
    if code in TIMED_OUT:
        return result("hang", reason=reason), repair
    count = len(launch.nodes)
    row = log.tables[0].row(test.max_bytes) if log.tables else None
    asked = replace(scenario, network=None) if count == 1 else scenario
    checks = judge_log(asked, test, log, count)
    bad = [c.name for c in checks if c.outcome == "fail" and not c.name.startswith("bandwidth")]
    if bad == ["data"]:
        return result("wrong data"), ""
    if code in NOTHING_RAN:
        reason, _, repair = NOTHING_RAN[code].partition(". Hint: ")
        return result("failed", reason=reason), repair
    if code or row is None or bad:
        return result("failed", reason=reason), repair
    return result("ok", measured_busbw(test.collective, count * scenario.gpus_per_node, row)), ""
