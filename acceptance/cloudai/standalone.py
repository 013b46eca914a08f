"""A system without a scheduler: its tests run one after another on this machine, each as a plain script of bash.

An image runs with docker. What needs several nodes, or tests that run at the same time, is refused.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from acceptance.cloudai.notes import read_notes
from acceptance.cloudai.script import LAUNCHER, NOTES, VARIABLES, Step, mounts_of, nsys_of
from acceptance.cloudai.shell import word, words
from acceptance.cloudai.stored import StoredJob, read_plan
from acceptance.cloudai.template_commands import CommandError
from acceptance.errors import ExternalError, InputError, Interrupted
from acceptance.runner.campaign import alone_in, now
from acceptance.runner.follow import JobOutcome, meaning
from acceptance.runner.record import FILE, RunRecord, TestRecord, read_record
from acceptance.runner.stop import Stop
from acceptance.scenario.runs import TestRun

# The values of a Slurm system that the commands of all templates read.
NO_SLURM = {
    "default_partition": "-",
    "mpi": "none",
    "cache_docker_images_locally": False,
    "container_mount_home": False,
    "extra_sbatch_args": [],
}
_TEMPLATES = ("NcclTest", "SlurmContainer", "BashCmd", "Sleep", "UCCTest", "ChakraReplay")
_DOCKER = "docker run --rm --init --gpus all --ipc host --network host --ulimit memlock=-1"
_POLL_S = 0.1
_END_S = 10  # seconds that a test has to end itself


def refuse(run: TestRun) -> None:
    """Raise CommandError for what one machine without a scheduler cannot do."""
    nodes = max(run.counts, default=1)
    fault = ""
    if run.test.template not in _TEMPLATES and "own" not in run.test.other:
        fault = f"{run.test.template} is started through Slurm only"
    elif run.nodes or run.exclude_nodes or nodes > 1:
        which = f"{nodes} nodes" if nodes > 1 else " ".join((*run.nodes, *run.exclude_nodes))
        fault = f"asks for {which}, and a standalone system is this machine alone"
    elif run.srun_arguments or run.test.other.get("extra_srun_args"):
        fault = "has extra_srun_args, and nothing is started through srun here"
    kinds = [one.kind for one in run.dependencies if one.kind != "start_post_comp"]
    if kinds and not fault:
        fault = f"{kinds[0]} needs two tests at the same time, and here one runs after another"
    if fault:
        raise CommandError(fault)


def on_this_machine(step: Step) -> Step:
    """Return a step whose command runs in the script itself, an image with docker."""
    command, job = step.command, step.job
    if not command.image:
        return replace(step, command=replace(command, in_script=True))
    image = command.image.split("://", 1)[-1].replace("#", "/")
    if image.startswith(("/", ".")):
        raise CommandError(f"docker does not run the file {image}: name the image's address in a registry")
    nsys = nsys_of(job.test)
    inner = f"source {word(job.directory / VARIABLES)}; {f'{nsys} ' if nsys else ''}{command.text}"
    volumes = " ".join(f"--volume {word(mount)}" for mount in mounts_of(step))
    text = f"{_DOCKER} {volumes} --entrypoint bash {words([image])} -c {shlex.quote(inner)}"
    job = replace(job, test=replace(job.test, nsys=None))
    return replace(step, job=job, command=replace(command, text=text, image=None, in_script=True))


class StandaloneRun:
    """Runs the tests of a folder one after another; everything that happens goes into run.json at once."""

    def __init__(self, folder: Path, stop: Stop, say: Callable[[str], None]) -> None:
        self.folder, self.plan, self._stop, self._say = folder, read_plan(folder), stop, say
        fresh = RunRecord(folder.name, now(), purpose="scenario")
        self.record = read_record(folder) if (folder / FILE).exists() else fresh

    def run(self, timeout_s: int, wait: bool) -> None:
        """Run what has not ended. Raises InputError without `wait`, ExternalError, Interrupted.

        timeout_s: bound of the whole; the tests that are left fail then.
        """
        if not wait:
            rule = "needs a scheduler that goes on; the system is standalone"
            raise InputError([f"--no-wait: {rule}. Hint: bash {shlex.quote(str(self.folder / 'run.sh'))} &"])
        self.record.interrupted = self.record.finished = self.record.trouble = None
        until = time.monotonic() + timeout_s
        with alone_in(self.folder):
            try:
                for job in self.plan.jobs:
                    self._run(job, until, timeout_s)
            except Interrupted as stopped:
                self.record.interrupted = str(stopped)
                raise
            finally:
                self.record.finished = now()
                self._save()

    def refresh(self) -> None:
        """Take from the scripts' notes which tests ended, also those that run.sh started."""
        for job in self.plan.jobs:
            notes = read_notes(self.folder / job.path / NOTES)
            record = self._record(job)
            if record.outcome is None and notes.started is not None:
                record.job_id = job.number
                if notes.code is not None:
                    state = "COMPLETED" if notes.code == 0 else "FAILED"
                    ended = notes.ended or notes.started
                    record.outcome = _outcome(job, state, notes.code, notes.started, ended)
        self.record.finished = self.record.finished or now()
        self._save()

    def _record(self, job: StoredJob) -> TestRecord:
        known = next((one for one in self.record.tests if one.name == job.path), None)
        if known is None:
            script = str(self.folder / job.path / LAUNCHER)
            known = TestRecord(job.path, f"{job.path}/stdout.txt", ["bash", script])
            self.record.tests.append(known)
        return known

    def _run(self, job: StoredJob, until: float, timeout_s: int) -> None:
        record = self._record(job)
        if record.outcome is not None:
            return
        record.job_id = job.number
        culprit = self._culprit() if job.ends_all else None
        if culprit:
            (self.folder / "ended").mkdir(exist_ok=True)
            (self.folder / "ended" / str(job.number)).write_text(f"job_status_check {culprit}\n", encoding="utf-8")
            record.outcome = JobOutcome(job.number, "CANCELLED", None, [], 0, "lost", "was not started")
        else:
            self._say(f"{job.path}: begins")
            self._save()
            record.outcome = self._start(job, until, timeout_s)
            self._say(f"{job.path}: {record.outcome.state} after {record.outcome.seconds:.0f} s")
        self._save()

    def _culprit(self) -> int | None:
        """The number of the first test that failed."""
        ended = [one for one in self.record.tests if one.outcome and one.outcome.kind in ("failed", "hang")]
        return ended[0].job_id if ended else None

    def _start(self, job: StoredJob, until: float, timeout_s: int) -> JobOutcome:
        self._stop.check()
        folder, started = self.folder / job.path, time.time()
        (folder / NOTES).unlink(missing_ok=True)  # of a run that was killed: this test begins anew
        begun, limit = time.monotonic(), job.time_limit_s
        bound = min(until, begun + limit) if limit else until
        with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
            argv = ["bash", str(folder / LAUNCHER)]
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
            try:
                while process.poll() is None and time.monotonic() < bound:
                    self._stop.sleep(_POLL_S)
                over = process.poll() is None
            finally:
                _end(process)
        if over:
            own = limit and bound == begun + limit
            why = f"within its time limit of {limit} s" if own else f"before --timeout ({timeout_s} s)"
            outcome = _outcome(job, "TIMEOUT", None, started, time.time())
            return replace(outcome, message=f"the test did not end {why}; it was ended")
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return _outcome(job, "COMPLETED" if code == 0 else "FAILED", code, started, time.time())

    def _save(self) -> None:
        try:
            self.record.write(self.folder)
        except OSError as error:
            raise ExternalError(f"{self.folder}: {error.strerror}. Hint: is the file system full?") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a test: SIGTERM to its whole session, after its end or some seconds SIGKILL to the rest."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(job: StoredJob, state: str, code: int | None, started: float, ended: float) -> JobOutcome:
    kind, message = meaning(state, code, 0)
    seconds = round(ended - started, 1)
    return JobOutcome(job.number, state, code, [socket.gethostname()], seconds, kind, message, started, ended)
