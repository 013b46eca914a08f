"""Following one job from its submission to its end, with every wait bounded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from acceptance.errors import ExternalError
from acceptance.runner.script import KILL_AFTER_S, NOT_FOUND, NOT_IN_CONTAINER, NOT_RUNNABLE, TIMED_OUT, slurm_minutes
from acceptance.runner.slurm import JobInfo, Slurm
from acceptance.runner.stop import Stop

_T = TypeVar("_T")
_PATIENCE_S = 120  # seconds that slurmctld may be down (it restarts in a few) before a job counts as lost
_SLACK_S = 180  # seconds that Slurm may take to end a job that reached its limit
_POLL_S = (0.3, 2.0)  # first and longest time between two questions
_NOT_STARTED = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_MEANINGS = {
    "BOOT_FAIL": "a node of the job did not boot",
    "CANCELLED": "someone cancelled the job",
    "DEADLINE": "the job reached its deadline",
    "NODE_FAIL": "a node of the job failed",
    "OUT_OF_MEMORY": "the job ran out of memory",
    "PREEMPTED": "another job took the nodes away",
    "REVOKED": "the job was revoked",
    "TIMEOUT": "the job reached Slurm's time limit",
}


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended. kind: done, hang, failed, infrastructure or lost; message says it in words.

    started, ended: Unix times, None where they are not known.
    """

    job_id: int
    state: str
    exit_code: int | None
    nodes: list[str]
    seconds: float
    kind: str
    message: str
    started: float | None = None
    ended: float | None = None


class Follower:
    """Submits jobs and follows them; remembers which ids are still running, so that it can cancel just these."""

    def __init__(
        self,
        slurm: Slurm,
        stop: Stop,
        queue_timeout_s: int,
        say: Callable[[str], None],
        meaning: Callable[[str, int | None, int], tuple[str, str]] | None = None,
    ) -> None:
        self.slurm, self.stop, self._queue_timeout_s, self.say = slurm, stop, queue_timeout_s, say
        self._meaning = meaning or nccl_meaning
        self._running: set[int] = set()

    def submit(self, script: Path, output: Path, job_name: str) -> int:
        """Submit `script`; return the job's id.

        If slurmctld is down, wait for it; a job that it already has is not submitted twice.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            self.stop.check()
            try:
                job_id = self.slurm.submit(script, script.parent, output)
            except ExternalError:
                if not self.slurm.controller_is_down() or time.monotonic() > until:
                    raise
                self.stop.sleep(2.0)
                found = self.ask_name(job_name)
                if found is None:
                    continue
                job_id = found
            self.say(f"{script.stem}: job {job_id} submitted")
            return self.adopt(job_id)

    def adopt(self, job_id: int) -> int:
        """Add a job that an earlier run of this program submitted to the jobs of this run."""
        self._running.add(job_id)
        return job_id

    def follow(self, job_id: int, name: str, status: Path, timeout_s: int) -> JobOutcome:
        """Wait for a job's end. timeout_s: the script's own bound, in seconds; status: the file it ends with."""
        started = time.monotonic()
        info, trouble = self._wait(job_id, timeout_s)
        outcome = self.end(job_id, info, trouble, status, time.monotonic() - started)
        self.say(f"{name}: job {job_id} {outcome.state} after {outcome.seconds:.0f} s")
        return outcome

    def end(self, job_id: int, info: JobInfo | None, trouble: str, status: Path, seconds: float) -> JobOutcome:
        """Return how a job ended. It is cancelled first if `trouble` says which bound it exceeded."""
        if trouble:
            self.slurm.cancel(job_id)
        self._running.discard(job_id)
        return self._outcome(job_id, info, trouble, _status_code(status), seconds)

    def wait_started(self, job_id: int) -> tuple[JobInfo | None, str]:
        """Wait, bounded by the scenario's queue_timeout_s, until a job runs or has ended; as `_wait` answers."""
        until, last, delay = time.monotonic() + self._queue_timeout_s, None, _POLL_S[0]
        while True:
            info = self.ask(job_id)
            if info is None or info.final or info.state not in _NOT_STARTED:
                return info or last, ""
            last = info
            if time.monotonic() > until:
                return info, f"waited {self._queue_timeout_s} s in the queue (Slurm's reason: {info.reason})"
            self.stop.sleep(delay)
            delay = min(delay * 1.3, _POLL_S[1])

    def cancel_all(self) -> list[int]:
        """Cancel the jobs that this run started and that have not ended; return their ids. Never raises.

        The last one first: a job that waits for the end of an earlier one would begin when that one is cancelled.
        """
        cancelled = []
        for job_id in sorted(self._running, reverse=True):
            try:
                self.slurm.cancel(job_id)
            except ExternalError as fault:
                self.say(f"job {job_id} could not be cancelled: {fault}")
            else:
                cancelled.append(job_id)
        self._running.clear()
        return sorted(cancelled)

    def _wait(self, job_id: int, timeout_s: int) -> tuple[JobInfo | None, str]:
        """Wait for the end. Give the last state and, if a bound was exceeded, what did (the job then still runs)."""
        last, trouble = self.wait_started(job_id)
        if last is None or last.final or trouble:
            return last, trouble
        bound_s = max(slurm_minutes(timeout_s) * 60, timeout_s + KILL_AFTER_S) + _SLACK_S
        until, delay = time.monotonic() + bound_s, _POLL_S[0]
        while time.monotonic() < until:
            self.stop.sleep(delay)
            delay = min(delay * 1.3, _POLL_S[1])
            info = self.ask(job_id)
            if info is None or info.final:
                return info or last, ""
            last = info
        return last, f"did not end within {timeout_s} s and Slurm did not end it"

    def ask(self, job_id: int) -> JobInfo | None:
        """Ask for the job's state; wait if slurmctld is down for a while."""
        return self._patiently(lambda: self.slurm.job(job_id))

    def ask_all(self) -> dict[int, JobInfo]:
        """Ask for the state of all jobs at once; wait if slurmctld is down for a while."""
        return self._patiently(self.slurm.jobs)

    def ask_name(self, job_name: str) -> int | None:
        """Ask for the id of the job of this name; wait if slurmctld is down for a while."""
        return self._patiently(lambda: self.slurm.find(job_name))

    def _patiently(self, question: Callable[[], _T]) -> _T:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return question()
            except ExternalError:
                if time.monotonic() > until:
                    raise
                self.stop.sleep(2.0)

    def _outcome(
        self, job_id: int, info: JobInfo | None, trouble: str, written: int | None, seconds: float
    ) -> JobOutcome:
        state = info.state if info else "UNKNOWN"
        nodes = self.slurm.expand(info.nodes) if info else []
        code = info.exit_code if info and info.final else written
        if written is not None and (info is None or not info.final):
            state = "COMPLETED" if written == 0 else "FAILED"
        kind, message = self._meaning(state, code, info.signal if info else 0)
        if trouble:
            queued = trouble.startswith("waited")
            kind, message = ("infrastructure" if queued else "hang"), f"the job {trouble}; it was cancelled"
        return JobOutcome(job_id, state, code, nodes, round(seconds, 1), kind, message)


# Nothing was measured, so nothing can be judged.
NOTHING_RAN = {
    NOT_IN_CONTAINER: "nccl-tests ran on the host although a container was asked for (the log names the node)."
    " Hint: switch pyxis on for the compute nodes, or leave the scenario's container out",
    NOT_FOUND: "nccl-tests were not found on the compute nodes (the log lists where). Hint: build them, for example"
    " with /fsx/nccl/install-nccl-shared.sh, or name their directory in the scenario's nccl_tests_paths",
    NOT_RUNNABLE: "nccl-tests cannot be started on the compute nodes: libraries or pyxis are missing (the log names"
    " them). Hint: rebuild nccl-tests, or set LD_LIBRARY_PATH in the scenario's environment",
}


def nccl_meaning(state: str, code: int | None, signal: int) -> tuple[str, str]:
    """The kind of a JobOutcome, and the words for it, by what Slurm says of a job that measures with nccl-tests."""
    if state == "FAILED" and code in TIMED_OUT:
        return "hang", "the measurement did not end in its time: it hangs"
    if state == "FAILED" and code in NOTHING_RAN:
        return "lost", NOTHING_RAN[code]
    return meaning(state, code, signal)


def meaning(state: str, code: int | None, signal: int) -> tuple[str, str]:
    """The kind of a JobOutcome, and the words for it, by what Slurm says of any job."""
    if state == "COMPLETED":
        return "done", "the job ended well"
    if state == "FAILED":
        return "failed", f"the job failed with exit code {code}" + (f", signal {signal}" if signal else "")
    if state == "TIMEOUT":
        return "hang", _MEANINGS[state]
    if state in ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED"):
        return "infrastructure", _MEANINGS[state]
    if state == "OUT_OF_MEMORY":
        return "failed", _MEANINGS[state]
    return "lost", _MEANINGS.get(state, f"Slurm no longer knows the job (last state {state})")


def _status_code(status: Path) -> int | None:
    """The exit code that the script itself wrote, for a job that Slurm has forgotten; None if it wrote none.

    `exit=CODE`, or a line of the notes of a scenario's job: `TIME exit CODE`.
    """
    try:
        found = re.findall(r"^(?:exit=|\d+ exit )(\d{1,3})$", status.read_text("utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(found[-1]) if found else None
