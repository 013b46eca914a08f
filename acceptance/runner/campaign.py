"""One run from the scenario to the record: check the nodes, measure each test, look for the node to blame."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from acceptance.errors import EnvironmentFault, Interrupted
from acceptance.limits import judge_log, worst
from acceptance.locate.pairs import locate
from acceptance.nccl import Log, parse_file
from acceptance.runner.follow import Follower, JobOutcome
from acceptance.runner.record import RunRecord, TestRecord, write_whole
from acceptance.runner.script import common_values, render, slurm_minutes
from acceptance.runner.slurm import Node, Slurm, submit_argv
from acceptance.runner.stop import Stop
from acceptance.scenario.model import Scenario, Test
from acceptance.units import plural, size_text


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_run_directory(output: Path, partition: str) -> Path:
    """Make a directory of its own below `output`; its name is the run's id. Raises EnvironmentFault."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    try:
        output.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            directory = output / (f"{stamp}-{partition}" + (f"-{number}" if number > 1 else ""))
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            return directory.resolve()
    except OSError as error:
        hint = "Hint: is the shared file system mounted, writable and not full?"
        raise EnvironmentFault(f"{output}: {error.strerror or error}. {hint}") from None
    raise EnvironmentFault(f"{output}: a thousand runs began in one second. Hint: try again")


class Campaign:
    """Runs a scenario; everything that happens goes into `record` and to run.json at once."""

    def __init__(self, scenario: Scenario, directory: Path, stop: Stop, say: Callable[[str], None]) -> None:
        self.scenario, self.directory, self._stop, self._say = scenario, directory, stop, say
        self.record = RunRecord(run_id=directory.name, started=now())
        self._slurm = Slurm()
        self._follower = Follower(self._slurm, stop, scenario.queue_timeout_s, say)

    def run(self) -> RunRecord:
        """Measure. Raises EnvironmentFault or Interrupted after cancelling the jobs that still run."""
        try:
            nodes = self._usable_nodes()
            if self.record.infrastructure is None:
                for test in self.scenario.tests:
                    self._measure(test, nodes)
        except Interrupted as stopped:
            self.record.interrupted = str(stopped)
            raise
        finally:
            cancelled = self._follower.cancel_all()
            if cancelled:
                self._say(f"cancelled: {', '.join(map(str, cancelled))}")
            self.record.finished = now()
            self._save()
        return self.record

    def _save(self) -> None:
        try:
            self.record.write(self.directory)
        except OSError as error:
            raise EnvironmentFault(f"{self.directory}: {error.strerror}. Hint: is the file system full?") from None

    def _usable_nodes(self) -> list[Node]:
        """Wait a bounded while for enough nodes; note in the record what is wrong with the others."""
        self.record.slurm = self._slurm.version()
        until = time.monotonic() + self.scenario.node_wait_s
        while True:
            nodes = self._slurm.nodes(self.scenario.partition)
            usable = [node for node in nodes if node.trouble is None]
            if len(usable) >= self.scenario.nodes or time.monotonic() > until:
                break
            self._stop.sleep(2.0)
        self.record.nodes = {
            node.name: {"state": node.state, "trouble": node.trouble, "reason": node.reason} for node in nodes
        }
        if len(usable) < self.scenario.nodes:
            troubled = [f"{node.name} is {node.trouble}" for node in nodes if node.trouble]
            self.record.infrastructure = (
                f"{plural(self.scenario.nodes, 'node')} of partition {self.scenario.partition} are needed,"
                f" {len(usable)} can be used" + (f": {', '.join(troubled)}" if troubled else "")
            )
        self._save()
        return usable

    def _measure(self, test: Test, nodes: list[Node]) -> None:
        script = self.directory / f"{test.name}.sbatch"
        log_path = self.directory / f"{test.name}.out"
        record = TestRecord(test.name, log_path.name, submit_argv(script, self.directory, log_path))
        self.record.tests.append(record)
        values = common_values(self.scenario, nodes, test.collective)
        write_whole(script, render("sweep.sbatch.j2", {**values, **self._sweep_values(test)}))
        self._say(f"{test.name}: {test.collective} on {plural(self.scenario.nodes, 'node')}")
        status = self.directory / f"{test.name}.status"
        record.outcome = self._follower.run(script, log_path, status, test.timeout_s)
        self._save()
        if self._worth_locating(test, record.outcome, log_path):
            self._locate(test, record.outcome, nodes)

    def _sweep_values(self, test: Test) -> dict[str, object]:
        arguments = ["-b", test.min_bytes, "-e", test.max_bytes, "-f", test.step_factor, "-g", 1]
        arguments += ["-n", test.iterations, "-w", test.warmup_iterations, "-c", 1]
        sweep = f"{size_text(test.min_bytes)} to {size_text(test.max_bytes)}"
        return {
            "title": f"{test.name}: {test.collective} of nccl-tests, {sweep}",
            "job_name": f"acceptance-{test.name}",
            "nodes": self.scenario.nodes,
            "nodelist": "",
            "minutes": slurm_minutes(test.timeout_s),
            "timeout_s": test.timeout_s,
            "arguments": shlex.join(map(str, arguments)),
            "status_file": f"{test.name}.status",
        }

    def _worth_locating(self, test: Test, outcome: JobOutcome, log_path: Path) -> bool:
        if not self.scenario.locate.enabled or self.record.locate or self.scenario.nodes < 2:
            return False
        if outcome.kind == "failed" and outcome.exit_code == 127:
            return False
        if outcome.kind != "done":
            return outcome.kind in ("hang", "failed")
        checks = judge_log(self.scenario, test, read_log(log_path), self.scenario.nodes)
        bad = [check for check in checks if check.outcome == "fail"]
        return worst([check.outcome for check in checks]) == "fail" and all(
            check.name == "data" or check.name.startswith("bandwidth") for check in bad
        )

    def _locate(self, test: Test, outcome: JobOutcome, nodes: list[Node]) -> None:
        names = outcome.nodes or [node.name for node in nodes][: self.scenario.nodes]
        self._say(f"{test.name}: looking for the node to blame in pairs")
        known = [node for node in nodes if node.name in names]
        locate(self.scenario, test, known, self.directory, self._follower, self.record, self._say, self._save)


def read_log(path: Path) -> Log:
    """Read a log of the run directory; a job that never started has none."""
    try:
        return parse_file(path)
    except OSError:
        return Log()
