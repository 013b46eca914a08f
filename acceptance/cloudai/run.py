"""Running a scenario's jobs: submit.sh submits them, then they are watched until each has ended.

Slurm itself holds the dependencies, so this program may be killed: `acceptance run --resume FOLDER` goes on from the
ids on disk. It also ends other jobs in the place of a job whose script could not do so (end_post_comp,
job_status_check), as when its node was lost.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from acceptance.cloudai.hostlist import NodesError, expand
from acceptance.cloudai.notes import Notes, read_notes
from acceptance.cloudai.script import LAUNCHER, NOTES, SCRIPT
from acceptance.cloudai.stored import JOBS, NEVER, StoredJob, read_ids, read_plan
from acceptance.errors import ExternalError, Interrupted
from acceptance.programs import call
from acceptance.runner.campaign import alone_in, now
from acceptance.runner.files import write_whole
from acceptance.runner.follow import Follower, JobOutcome, meaning
from acceptance.runner.record import FILE, RunRecord, TestRecord, read_record
from acceptance.runner.slurm import JobInfo, Slurm
from acceptance.runner.stop import Stop
from acceptance.text import plural

RELEASED = "released"
_SUBMIT_S = 120, 10  # seconds that submit.sh may take, and for each job
_LAUNCHER_S = 600  # seconds that NeMo's launcher may take to submit its job
_POLL_S = (0.3, 5.0)  # first and longest time between two questions
_OVERTIME_S = 180  # seconds that Slurm may take to end a job that reached its limit
_STUCK_S = 600  # seconds that a job may wait for something that does not come, such as a node that is down
# Reasons of pending jobs that other jobs' ends do not remove.
_STUCK = (
    *("BadConstraints", "InactiveLimit", "Invalid", "JobHeldAdmin", "JobHoldMaxRequeue", "NodeDown"),
    *("Nodes_required_for_job_are_DOWN", "PartitionDown", "PartitionInactive", "PartitionNodeLimit"),
    *("PartitionTimeLimit", "ReqNodeNotAvail", "Reservation", "launch_failed", "job_requeued_in_held_state"),
)
_HELD = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")  # states in which a job waits for an administrator


class ScenarioRun:
    """Submits and watches the jobs of a scenario's folder; everything that happens goes into run.json at once."""

    def __init__(self, folder: Path, stop: Stop, say: Callable[[str], None], stuck_s: int = _STUCK_S) -> None:
        self.folder, self.plan, self._stop, self._say = folder, read_plan(folder), stop, say
        fresh = RunRecord(folder.name, now(), purpose="scenario")
        self.record = read_record(folder) if (folder / FILE).exists() else fresh
        self._slurm = Slurm()
        self._stuck_s = stuck_s
        self._follower = Follower(self._slurm, stop, stuck_s, say, meaning)
        self._seen: dict[int, str] = {}
        self._stuck: dict[int, float] = {}
        self._forgotten: dict[int, int] = {}

    def run(self, timeout_s: int, wait: bool) -> None:
        """Submit what is not submitted and, if `wait`, watch until all have ended. Raises ExternalError, Interrupted.

        timeout_s: bound of the whole watching; the jobs that are left are cancelled then.
        """
        self.record.interrupted = self.record.finished = self.record.trouble = None
        with alone_in(self.folder):
            try:
                self._submit()
                if wait:
                    self._watch(timeout_s)
            except Interrupted as stopped:
                self.record.interrupted = str(stopped)
                self._cancel_all()
                raise
            except ExternalError as trouble:
                self.record.trouble = " ".join(str(trouble).split())
                raise
            finally:
                self.record.finished = None if not wait else now()
                self._save()

    def refresh(self) -> None:
        """Ask once how each job is, for a report without watching. Without Slurm only the notes of the jobs count."""
        self._adopt()
        try:
            infos = self._slurm.jobs()
        except ExternalError:
            infos = {}
        for job, record in self._running():
            info = infos.get(record.job_id or 0) or self._ask(record)
            if info is None or info.final:
                self._end(job, record, info, "")
        self.record.finished = self.record.finished or now()
        self._save()

    def _ask(self, record: TestRecord) -> JobInfo | None:
        try:
            return self._slurm.job(record.job_id or 0)
        except ExternalError:
            return None

    # ---------------------------------------------------------------------------------------------- submission

    def _submit(self) -> None:
        self.record.slurm = self._slurm.version()
        self._save()
        if not (self.folder / RELEASED).exists():
            began = any((self.folder / name).exists() for name in (JOBS, "jobs.part.tsv"))
            argv = ["bash", str(self.folder / "submit.sh"), *(["--resume"] if began else [])]
            bound = _SUBMIT_S[0] + _SUBMIT_S[1] * len(self.plan.jobs)
            hint = "Hint: correct the files and run it again; `sinfo` shows the partitions"
            said = call(argv, bound, "", hint, self._environment(), what=str(self.folder / "submit.sh"))
            self._say(said.strip().splitlines()[-1])
        self._launch()
        self._adopt()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/opt/slurm/bin"}

    def _launch(self) -> None:
        """Run NeMo's launcher for its jobs; it prints the id of the job that it submits."""
        ids = read_ids(self.folder)
        for job in self.plan.jobs:
            if not job.by_launcher or (job.test, job.iteration, job.step) in ids:
                continue
            script = self.folder / job.path / LAUNCHER
            said = call(["bash", str(script)], _LAUNCHER_S, "", f"Hint: try it: {script}", self._environment())
            write_whole(script.with_name("stdout.txt"), said)
            found = re.search(r"Submitted (?:batch )?job (\d+)|Job nemo\S* submitted with (?:Job )?ID (\d+)", said)
            if found is None:
                raise ExternalError(f"{script}: printed no job id. Hint: read stdout.txt next to it")
            with (self.folder / JOBS).open("a") as stream:
                stream.write(f"{job.test}\t{job.iteration}\t{job.step}\t{found[1] or found[2]}\n")

    def _adopt(self) -> None:
        """Take the ids of jobs.tsv into the record."""
        ids = read_ids(self.folder)
        known = {record.name: record for record in self.record.tests}
        for job in self.plan.jobs:
            job_id = ids.get((job.test, job.iteration, job.step))
            if job.path not in known:
                script = self.folder / job.path / (LAUNCHER if job.by_launcher else SCRIPT)
                command = ["bash", str(script)] if job.by_launcher else ["sbatch", str(script)]
                self.record.tests.append(TestRecord(job.path, f"{job.path}/stdout.txt", command, job_id))
            elif known[job.path].job_id is None:
                known[job.path].job_id = job_id
        for _, record in self._running():
            self._follower.adopt(record.job_id or 0)
        self._save()

    def _running(self) -> list[tuple[StoredJob, TestRecord]]:
        """Return the jobs that were submitted and whose end is not known."""
        records = {record.name: record for record in self.record.tests}
        pairs = [(job, records[job.path]) for job in self.plan.jobs if job.path in records]
        return [(job, record) for job, record in pairs if record.job_id is not None and record.outcome is None]

    # ------------------------------------------------------------------------------------------------- watching

    def _watch(self, timeout_s: int) -> None:
        until, delay = time.monotonic() + timeout_s, _POLL_S[0]
        while self._running():
            infos = self._follower.ask_all()
            before = len(self._running())
            for job, record in self._running():
                self._look(job, record, infos.get(record.job_id or 0))
            left = self._running()
            if len(left) < before:
                self._save()
                delay = _POLL_S[0]
            elif time.monotonic() > until:
                self._give_up(left, timeout_s)
            else:
                self._stop.sleep(delay)
                delay = min(delay * 1.3, _POLL_S[1])

    def _look(self, job: StoredJob, record: TestRecord, info: JobInfo | None) -> None:
        job_id = record.job_id or 0
        if info is None:
            info = self._follower.ask(job_id)  # slurmctld may have forgotten it: the accounting, where there is one
            if info is None:
                self._forgotten[job_id] = self._forgotten.get(job_id, 0) + 1
                if self._forgotten[job_id] > 1:
                    self._end(job, record, None, "")
                return
        if info.final:
            self._end(job, record, info, "")
            return
        if info.state != self._seen.get(job_id):
            self._seen[job_id] = info.state
            if info.state == "RUNNING":
                self._say(f"{job.path}: job {job_id} runs on {info.nodes}")
        trouble = self._trouble(job, job_id, info)
        if trouble:
            self._end(job, record, info, trouble)

    def _trouble(self, job: StoredJob, job_id: int, info: JobInfo) -> str:
        """Return why a job will never end by itself, nothing if it may."""
        overtime = info.limit_s and info.started and time.time() - info.started > info.limit_s + _OVERTIME_S
        if info.state == "RUNNING" and overtime:
            return f"did not end within its limit of {info.limit_s} s and Slurm did not end it"
        if info.state == "PENDING" and info.reason == NEVER:
            numbers = {int(need.partition(":")[2]) for need in job.needs.split(",") if ":" in need}
            others = [one.path for one in self.plan.jobs if one.number in numbers]
            return f"waited for {' and '.join(others) or 'another job'}, and can never begin (Slurm's reason: {NEVER})"
        if info.state not in _HELD and not (info.state == "PENDING" and info.reason.startswith(_STUCK)):
            self._stuck.pop(job_id, None)
            return ""
        if time.monotonic() - self._stuck.setdefault(job_id, time.monotonic()) <= self._stuck_s:
            return ""
        reason = info.state if info.state in _HELD else info.reason
        return f"waited {self._stuck_s} s in the queue (Slurm's reason: {reason})"

    def _end(self, job: StoredJob, record: TestRecord, info: JobInfo | None, trouble: str) -> None:
        """Note how a job ended, and end the jobs that its script would have ended."""
        job_id, path = record.job_id or 0, self.folder / job.path / NOTES
        notes = read_notes(path)
        started, ended = _times(info, notes)
        seconds = max(0.0, ended - started) if started and ended else 0.0
        outcome = self._follower.end(job_id, info, trouble, path, seconds)
        nodes = outcome.nodes or (_names(notes.nodes) if notes.job_id == job_id else [])
        record.outcome = replace(outcome, nodes=nodes, started=started, ended=ended)
        self._say(f"{job.path}: job {job_id} {trouble or outcome.state} after {seconds:.0f} s")
        if notes.code is None or notes.job_id != job_id:
            self._end_others(job, record.outcome)

    def _end_others(self, job: StoredJob, outcome: JobOutcome) -> None:
        ended = (self.folder / "ended" / str(outcome.job_id)).exists()
        names = list(job.ends)
        if job.ends_all and outcome.kind != "done" and not ended:
            names = ["--all"]
        if not names or not self._running():
            return
        self._say(f"{job.path}: its script could not end other jobs; ending {' '.join(names).replace('--all', 'all')}")
        argv = ["bash", str(self.folder / "end-jobs.sh"), *names]
        try:
            call(argv, 60, "", "", {**self._environment(), "SLURM_JOB_ID": str(outcome.job_id)})
        except ExternalError as fault:  # one of them may just have ended
            self._say(f"end-jobs.sh: {fault}")

    def _give_up(self, left: list[tuple[StoredJob, TestRecord]], timeout_s: int) -> None:
        self._say(f"--timeout: {timeout_s} s are over; cancelling {plural(len(left), 'job')}")
        infos = [self._follower.ask(record.job_id or 0) for _, record in left]
        self._follower.cancel_all()  # the last one first, before the end of one is noted
        for (job, record), info in zip(left, infos):
            trouble = "" if info is None or info.final else f"did not end before --timeout ({timeout_s} s)"
            self._end(job, record, info, trouble)

    def _cancel_all(self) -> None:
        left = self._running()
        if left:
            self._say(f"{self.record.interrupted}: cancelling {plural(len(left), 'job')}")
        self._follower.cancel_all()

    def _save(self) -> None:
        try:
            self.record.write(self.folder)
        except OSError as error:
            raise ExternalError(f"{self.folder}: {error.strerror}. Hint: is the file system full?") from None


def _times(info: JobInfo | None, notes: Notes) -> tuple[float | None, float | None]:
    """When a job began and ended: Slurm's times, else those that the script noted. None for both if it never ran."""
    if info is not None and not info.nodes:
        return None, None
    if info is None:
        return notes.started, notes.ended
    return info.started or notes.started, info.ended if info.final else time.time()


def _names(expression: str) -> list[str]:
    try:
        return expand(expression) if expression else []
    except NodesError:
        return []
