"""Following one job from its submission to its end, with every wait bounded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acceptance.errors import EnvironmentFault
from acceptance.runner.script import KILL_AFTER_S, slurm_minutes
from acceptance.runner.slurm import JobInfo, Slurm
from acceptance.runner.stop import Stop

_PATIENCE_S = 120  # seconds that slurmctld may be away (it restarts in a few) before a job counts as lost
_SLACK_S = 180  # seconds that Slurm may take to end a job that reached its limit
_POLL_S = (0.3, 2.0)  # first and longest time between two questions
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
    """How a job ended. kind: done, hang, failed, infrastructure or lost; message says it in words."""

    job_id: int
    state: str
    exit_code: int | None
    nodes: list[str]
    seconds: float
    kind: str
    message: str


class Follower:
    """Submits jobs and follows them; remembers which ids are still running, so that it can cancel just these."""

    def __init__(self, slurm: Slurm, stop: Stop, queue_timeout_s: int, say: Callable[[str], None]) -> None:
        self._slurm, self._stop, self._queue_timeout_s, self._say = slurm, stop, queue_timeout_s, say
        self._running: set[int] = set()

    def run(self, script: Path, output: Path, status: Path, timeout_s: int) -> JobOutcome:
        """Submit `script` and wait for its end. timeout_s: the script's own bound, in seconds."""
        self._stop.check()
        job_id = self._slurm.submit(script, script.parent, output)
        self._running.add(job_id)
        self._say(f"{script.stem}: job {job_id} submitted")
        started = time.monotonic()
        info, trouble = self._wait(job_id, timeout_s)
        if trouble:
            self._slurm.cancel(job_id)
        self._running.discard(job_id)
        outcome = self._outcome(job_id, info, trouble, _status_code(status), time.monotonic() - started)
        self._say(f"{script.stem}: job {job_id} {outcome.state} after {outcome.seconds:.0f} s")
        return outcome

    def cancel_all(self) -> list[int]:
        """Cancel the jobs that this run started and that have not ended; give their ids. Never raises."""
        cancelled = []
        for job_id in sorted(self._running):
            try:
                self._slurm.cancel(job_id)
            except EnvironmentFault as fault:
                self._say(f"job {job_id} could not be cancelled: {fault}")
            else:
                cancelled.append(job_id)
        self._running.clear()
        return cancelled

    def _wait(self, job_id: int, timeout_s: int) -> tuple[JobInfo | None, str]:
        """Wait for the end. Give the last state and, if a bound was exceeded, what did (the job then still runs)."""
        queued_until = time.monotonic() + self._queue_timeout_s
        run_until: float | None = None
        last, delay = None, _POLL_S[0]
        while True:
            self._stop.sleep(delay)
            delay = min(delay * 1.3, _POLL_S[1])
            info = self._ask(job_id)
            if info is None or info.final:
                return info or last, ""
            last, now = info, time.monotonic()
            if info.state not in ("PENDING", "CONFIGURING") and run_until is None:
                run_until = now + max(slurm_minutes(timeout_s) * 60, timeout_s + KILL_AFTER_S) + _SLACK_S
            if run_until is None and now > queued_until:
                return info, f"waited {self._queue_timeout_s} s in the queue (Slurm's reason: {info.reason})"
            if run_until is not None and now > run_until:
                return info, f"did not end within {timeout_s} s and Slurm did not end it"

    def _ask(self, job_id: int) -> JobInfo | None:
        """Ask for the job's state; outlive a slurmctld that is away for a while."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._slurm.job(job_id)
            except EnvironmentFault:
                if time.monotonic() > until:
                    raise
                self._stop.sleep(2.0)

    def _outcome(
        self, job_id: int, info: JobInfo | None, trouble: str, written: int | None, seconds: float
    ) -> JobOutcome:
        state = info.state if info else "UNKNOWN"
        nodes = self._slurm.expand(info.nodes) if info else []
        code = info.exit_code if info and info.final else written
        if written is not None and (info is None or not info.final):
            state = "COMPLETED" if written == 0 else "FAILED"
        kind, message = _meaning(state, code, info.signal if info else 0)
        if trouble:
            queued = trouble.startswith("waited")
            kind, message = ("infrastructure" if queued else "hang"), f"the job {trouble}; it was cancelled"
        return JobOutcome(job_id, state, code, nodes, round(seconds, 1), kind, message)


# Exit codes of the job script (head.sbatch.j2) that say: nothing was measured, so nothing can be judged.
_NOTHING_RAN = {
    127: "nccl-tests were not found on the compute nodes (the log lists where). Hint: build them, for example with "
    "/fsx/nccl/install-nccl-shared.sh, or name their directory in the scenario's nccl_tests_paths",
    126: "nccl-tests lack libraries on the compute nodes (the log names them). Hint: rebuild them, or set "
    "LD_LIBRARY_PATH in the scenario's environment",
}


def _meaning(state: str, code: int | None, signal: int) -> tuple[str, str]:
    if state == "COMPLETED":
        return "done", "the job ended well"
    if state == "FAILED" and code in (124, 137):
        return "hang", "the measurement did not end in its time: it hangs"
    if state == "FAILED" and code in _NOTHING_RAN:
        return "lost", _NOTHING_RAN[code]
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
    """The exit code that the script itself wrote, for a job that Slurm has forgotten; None if it wrote none."""
    try:
        found = re.match(r"exit=(\d{1,3})\n", status.read_text("utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None
