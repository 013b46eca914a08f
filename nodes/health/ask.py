"""Run one command in bounded time: it answers in time, or it is killed and reported as hanging.

A process in uninterruptible sleep (a hanging driver or file system) survives SIGKILL. It is remembered, and the same
program is not started again while it lives: otherwise one more would hang each minute.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

REAP_S = 1.0
MIN_LEFT_S = 0.2
PATH = "/opt/slurm/bin:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
SLURM_CONF = "/opt/slurm/etc/slurm.conf"
ENDED_BY_SIGNAL = 128

Stuck = dict[str, list[int]]
"""Program -> process id and start time (clock ticks since boot) of its process that could not be ended."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command said. `problem` is empty, or `absent`, `hangs` or `no time left`."""

    rc: int = 0
    out: str = ""
    problem: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True when it ran and ended with 0."""
        return not self.problem and self.rc == 0


class Asker:
    """Asks one after the other until the time of the whole run is over.

    Args:
        budget_s: seconds for all questions together.
        stuck: what earlier runs left hanging; entries are added and removed.
        now: the clock, in seconds.
    """

    def __init__(self, budget_s: float, stuck: Stuck, now: Callable[[], float] = time.monotonic) -> None:
        self._end = now() + budget_s
        self._now = now
        self._stuck = stuck

    def ask(self, argv: Sequence[str], limit_s: float) -> Answer:
        """Run `argv` for at most `limit_s` seconds; standard error is part of `out`. Raises nothing."""
        limit_s = min(limit_s, self._end - self._now())
        program = shutil.which(argv[0], path=PATH)
        if program is None:
            return Answer(problem="absent")
        if self._still_stuck(argv[0]):
            return Answer(problem="hangs")
        if limit_s < MIN_LEFT_S:
            return Answer(problem="no time left")
        return self._run([program, *argv[1:]], argv[0], limit_s)

    def _run(self, argv: Sequence[str], name: str, limit_s: float) -> Answer:
        started = self._now()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return Answer(rc=ENDED_BY_SIGNAL - 2, out=str(error))
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._end_it(process, name)
            return Answer(problem="hangs", seconds=self._now() - started)
        rc = process.returncode if process.returncode >= 0 else ENDED_BY_SIGNAL - process.returncode
        return Answer(rc, out.decode("utf-8", "replace"), "", self._now() - started)

    def _end_it(self, process: subprocess.Popen[bytes], name: str) -> None:
        begun = start_time(process.pid)
        kill_group(process.pid)
        try:
            process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._stuck[name] = [process.pid, begun]
        if process.stdout is not None:
            process.stdout.close()

    def _still_stuck(self, name: str) -> bool:
        pid, begun = self._stuck.get(name, [0, 0])
        if pid and begun and start_time(pid) == begun:
            return True
        self._stuck.pop(name, None)
        return False


def kill_group(pid: int) -> None:
    """Send SIGKILL to everything that the command started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def start_time(pid: int) -> int:
    """Return the start of a process in clock ticks since boot (proc(5), stat, field 22); 0 when it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def _environment() -> dict[str, str]:
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "HOME": "/root"}
    conf = os.environ.get("SLURM_CONF") or (SLURM_CONF if Path(SLURM_CONF).exists() else "")
    if conf:
        environment["SLURM_CONF"] = conf
    return environment
