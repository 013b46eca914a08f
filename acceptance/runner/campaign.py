"""One run from the scenario to the record: check the nodes, measure each test, look for the node to blame."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from acceptance.errors import ExternalError, Interrupted
from acceptance.limits import measured_busbw
from acceptance.options import resolved
from acceptance.report.gpus import add_suite
from acceptance.runner.allocation import NAME
from acceptance.runner.files import open_plain, write_whole
from acceptance.runner.follow import Follower, JobOutcome
from acceptance.runner.gpus import container_seconds, image_values
from acceptance.runner.judged import CAUSE, JudgedLog, judge_test
from acceptance.runner.record import LocateRecord, RunRecord, TestRecord
from acceptance.runner.script import FINDER, common_values, job_name, render, slurm_minutes, source, sweep_arguments
from acceptance.runner.search import Search, begin
from acceptance.runner.slurm import Node, Slurm, submit_argv
from acceptance.runner.stop import Stop
from acceptance.runner.suite import SuiteJob, suite_jobs, why_ended
from acceptance.scenario.model import Scenario, Test
from acceptance.text import plural, size_text


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_run_directory(output: Path, partition: str) -> Path:
    """Make a new directory below `output`; its name is the run's id. Raises ExternalError."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    try:
        output.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            directory = output / (f"{stamp}-{partition}" + (f"-{number}" if number > 1 else ""))
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            return resolved(directory)
    except OSError as error:
        hint = "Hint: is the shared file system mounted, writable and not full?"
        raise ExternalError(f"{output}: {error.strerror or error}. {hint}") from None
    raise ExternalError(f"{output}: a thousand runs began in one second. Hint: try again")


class Campaign:
    """Runs a scenario; everything that happens goes into `record` and to run.json at once.

    record: that of a run that was interrupted, to go on with it; None begins a new one.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        stop: Stop,
        say: Callable[[str], None],
        record: RunRecord | None = None,
    ) -> None:
        self.scenario, self.directory, self._stop, self._say = scenario, directory, stop, say
        self._resumed = record is not None
        self.record = record or RunRecord(run_id=directory.name, started=now())
        self.record.interrupted = self.record.finished = self.record.infrastructure = None
        self.record.trouble = None
        self.slurm = Slurm()
        self.judged: dict[str, JudgedLog] = {}  # by test; for the report, so that no log is read twice
        self._follower = Follower(self.slurm, stop, scenario.queue_timeout_s, say)

    def run(self) -> RunRecord:
        """Measure. Raises ExternalError or Interrupted after cancelling the jobs that still run."""
        return self._whole(self._measure_all)

    def locate(self, test: Test, names: Sequence[str]) -> RunRecord:
        """Only look for the node to blame, among these nodes or, if none is named, all that can be used."""
        self.record.purpose = "locate"
        return self._whole(lambda: self._locate_only(test, names))

    def _whole(self, work: Callable[[], None]) -> RunRecord:
        try:
            with alone_in(self.directory):
                write_whole(self.directory / FINDER, source(FINDER))
                if self._resumed:
                    self._cancel_left_behind()
                work()
        except Interrupted as stopped:
            self.record.interrupted = str(stopped)
            raise
        except ExternalError as trouble:
            self.record.trouble = " ".join(str(trouble).split())
            raise
        finally:
            cancelled = self._follower.cancel_all()
            if cancelled:
                self._say(f"cancelled: {', '.join(map(str, cancelled))}")
            self.record.finished = now()
            self._save()
        return self.record

    def _cancel_left_behind(self) -> None:
        """End the job that held the nodes for a search of a runner that was killed."""
        job_id = self._follower.ask_name(job_name(self.directory, NAME))
        info = self._follower.ask(job_id) if job_id else None
        if job_id and info is not None and not info.final:
            self.slurm.cancel(job_id)
            self._say(f"{NAME}: job {job_id} of the interrupted run cancelled")

    def _measure_all(self) -> None:
        nodes = self._usable_nodes(self.scenario.nodes)
        if self.record.infrastructure is None:
            for test in self.scenario.tests:
                self._measure(test, nodes)
            for job in suite_jobs(self.scenario):
                self._run_suite(job, nodes)

    def _run_suite(self, job: SuiteJob, nodes: list[Node]) -> None:
        """Run a job of the GPU suite; its results are in its own files, which the report reads."""
        log_path = self.directory / f"{job.name}.out"
        script = log_path.with_suffix(".sbatch")
        repeat = shlex.join(submit_argv(script, self.directory, log_path))
        names = [node.name for node in nodes][: self.scenario.nodes]

        def write(_status: Path) -> None:
            self._wait_for_image(job)
            add_suite(self.directory, job.part, names, log=log_path.name, repeat=repeat)
            values = common_values(self.scenario, nodes, "", self.directory)
            own = job.values(self.scenario, self.directory, job_name(self.directory, job.name))
            write_whole(script, render("suite.sbatch.j2", {**values, **own}))
            self._say(f"{job.name}: on {plural(self.scenario.nodes, 'node')}")

        record = next((one for one in self.record.tests if one.name == job.name), None)
        if record is None or record.outcome is None or record.outcome.kind in ("infrastructure", "lost"):
            record = self._follow(job.name, log_path, record, job.timeout_s, write)
        ended = why_ended(record.outcome, log_path)
        names = record.outcome.nodes if record.outcome and record.outcome.nodes else names
        add_suite(self.directory, job.part, names, log=log_path.name, repeat=repeat, ended=ended)

    def _wait_for_image(self, job: SuiteJob) -> None:
        """Wait a bounded while for an image that the head node is importing; the job reports its absence."""
        wait_s = self.scenario.suite.image_wait_s if self.scenario.suite else 0
        until = time.monotonic() + wait_s
        if job.image and not Path(job.image).exists():
            self._say(f"{job.name}: waiting for {job.image}, {wait_s} s at most")
            while not Path(job.image).exists() and time.monotonic() < until:
                self._stop.sleep(2.0)

    def _locate_only(self, test: Test, names: Sequence[str]) -> None:
        if self.record.locate is not None and self.record.locate.done:
            return
        nodes = self._usable_nodes(len(names) or 2, names)
        if self.record.infrastructure is None:
            chosen = [node.name for node in nodes if not names or node.name in names]
            if self.record.locate is None:
                self.record.locate = begin(self.scenario, test, chosen, self.slurm.groups())
                self.record.locate.full_scale_failed = False
            self._search(self.record.locate, nodes)

    def _save(self) -> None:
        try:
            self.record.write(self.directory)
        except OSError as error:
            raise ExternalError(f"{self.directory}: {error.strerror}. Hint: is the file system full?") from None

    def _usable_nodes(self, wanted: int, names: Sequence[str] = ()) -> list[Node]:
        """Wait a bounded while for enough nodes; note in the record what is wrong with the others.

        wanted: how many; names: which ones, any of the partition if empty.
        """
        self.record.slurm = self.slurm.version()
        until = time.monotonic() + self.scenario.node_wait_s
        while True:
            nodes = [one for one in self.slurm.nodes(self.scenario.partition) if not names or one.name in names]
            usable = [node for node in nodes if node.trouble is None]
            if len(usable) >= wanted or time.monotonic() > until:
                break
            self._stop.sleep(2.0)
        self._note(nodes)
        if len(usable) < wanted:
            troubled = [f"{node.name} is {node.trouble}" for node in nodes if node.trouble]
            self.record.infrastructure = (
                f"{plural(wanted, 'node')} of partition {self.scenario.partition} are needed,"
                f" {len(usable)} can be used" + (f": {', '.join(troubled)}" if troubled else "")
            )
        self._save()
        return usable

    def _measure(self, test: Test, nodes: list[Node]) -> None:
        log_path = self.directory / f"{test.name}.out"
        record = next((one for one in self.record.tests if one.name == test.name), None)
        if record is None or record.outcome is None or record.outcome.kind in ("infrastructure", "lost"):
            bound = test.timeout_s + container_seconds(self.scenario, test)
            record = self._follow(test.name, log_path, record, bound, partial(self._write_script, test, nodes))
        outcome = record.outcome
        self.judged[test.name] = judge_test(self.scenario, test, record, self.directory)
        if outcome is None or not self._worth_locating(test, outcome):
            return
        if self.record.locate is None:
            names = outcome.nodes or [node.name for node in nodes][: self.scenario.nodes]
            self._say(f"{test.name}: looking for the node to blame in pairs")
            self.record.locate = begin(self.scenario, test, names, self.slurm.groups())
            self.record.locate.full_scale_busbw = self._reached(test, self.record.locate.size_bytes)
        if self.record.locate.test == test.name:
            self._search(self.record.locate, nodes)

    def _reached(self, test: Test, size: int) -> float | None:
        """What the run over all nodes reached at one size, None where it gave no figure."""
        tables = self.judged[test.name].log.tables
        row = tables[0].row(size) if tables else None
        if row is None:
            return None
        return measured_busbw(test.collective, self.scenario.nodes * self.scenario.gpus_per_node, row)

    def _follow(
        self, what: str, log_path: Path, record: TestRecord | None, timeout_s: int, write: Callable[[Path], None]
    ) -> TestRecord:
        """Follow a job to its end: that of an interrupted run if there is one, else a new one.

        timeout_s: the script's own bound. write: writes the script; it gets the file that the script ends with.
        """
        script, status = (self.directory / f"{what}.{end}" for end in ("sbatch", "status"))
        name = job_name(self.directory, what)
        job_id = None
        if record is None:
            record = TestRecord(what, log_path.name, submit_argv(script, self.directory, log_path))
            self.record.tests.append(record)
        elif record.outcome is None:
            job_id = record.job_id or self._follower.ask_name(name)
            self._say(f"{what}: going on with job {job_id}" if job_id else f"{what}: measured anew")
        if job_id is None:
            status.unlink(missing_ok=True)
            write(status)
            self._save()
            job_id = self._follower.submit(script, log_path, name)
        record.job_id, record.outcome = self._follower.adopt(job_id), None
        self._save()
        record.outcome = self._follower.follow(job_id, what, status, timeout_s)
        if record.outcome.kind == "infrastructure":
            self._note(self.slurm.nodes(self.scenario.partition))  # one of them may have died meanwhile: say which
        self._save()
        return record

    def _note(self, nodes: list[Node]) -> None:
        self.record.nodes = {
            node.name: {"state": node.state, "trouble": node.trouble, "reason": node.reason} for node in nodes
        }

    def _write_script(self, test: Test, nodes: list[Node], status: Path) -> None:
        values = common_values(self.scenario, nodes, test.collective, self.directory)
        write_whole(status.with_suffix(".sbatch"), render("sweep.sbatch.j2", {**values, **self._sweep_values(test)}))
        self._say(f"{test.name}: {test.collective} on {plural(self.scenario.nodes, 'node')}")

    def _sweep_values(self, test: Test) -> dict[str, object]:
        sweep = f"{size_text(test.min_bytes)} to {size_text(test.max_bytes)}"
        return {
            "title": f"{test.name}: {test.collective} of nccl-tests, {sweep}",
            "job_name": job_name(self.directory, test.name),
            "nodes": self.scenario.nodes,
            "nodelist": "",
            "minutes": slurm_minutes(test.timeout_s + container_seconds(self.scenario, test)),
            "timeout_s": test.timeout_s,
            **image_values(self.scenario, test, self.directory),
            "arguments": sweep_arguments(test),
            "status_file": f"{test.name}.status",
        }

    def _worth_locating(self, test: Test, outcome: JobOutcome) -> bool:
        if not self.scenario.locate.enabled or self.scenario.nodes < 2:
            return False
        if outcome.kind != "done":
            return outcome.kind in ("hang", "failed")
        checks = self.judged[test.name].checks
        bad = [check.name for check in checks if check.outcome == "fail" and not check.name.startswith(CAUSE)]
        return bool(bad) and all(name == "data" or name.startswith("bandwidth") for name in bad)

    def _search(self, record: LocateRecord, nodes: list[Node]) -> None:
        if record.done:
            return
        record.trouble = None
        known = [node for node in nodes if node.name in record.nodes]
        Search(self.scenario, record, known, self.directory, self._follower, self._say, self._save).run()


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep a second runner out of the directory while this one works in it. Raises ExternalError."""
    with os.fdopen(open_plain(directory / ".lock", os.O_WRONLY | os.O_CREAT), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExternalError(f"{directory}: another runner works in it. Hint: wait for its end") from None
        except OSError:  # a file system without locks: nothing to hold on to
            pass
        yield
