"""What a job's script noted about itself while it ran (notes.txt): when it began, its steps, and how each ended.

So a report needs neither accounting nor a Slurm that still knows the job.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from acceptance.runner.files import open_plain

_SIGTERM = 143
_MOST = 1 << 20  # bytes that are read


@dataclass(frozen=True)
class NotedStep:
    """A step of a job. kind: test, pre_test or post_test; name: of the hook's test. Times are Unix times."""

    kind: str
    name: str
    started: float
    ended: float | None = None
    code: int | None = None


@dataclass(frozen=True)
class Notes:
    """The last start of a job. starts: how often it began (a requeued job begins again); ended, code: of the script."""

    starts: int = 0
    job_id: int | None = None
    nodes: str = ""
    started: float | None = None
    steps: tuple[NotedStep, ...] = field(default=())
    ended: float | None = None
    code: int | None = None

    def step(self, kind: str) -> NotedStep | None:
        """Return the first step of a kind that failed, else its last one, None without one."""
        steps = [one for one in self.steps if one.kind == kind]
        return next((one for one in steps if one.code), steps[-1] if steps else None)


def read_notes(path: Path) -> Notes:
    """Return what a file has; nothing if it does not exist. Lines that a kill cut are left out."""
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            lines = stream.read(_MOST).splitlines()
    except OSError:
        return Notes()
    notes = Notes()
    for line in lines:
        match = re.fullmatch(r"(\d{1,12}) (start|begin|end|exit) (.*)", line)
        if match:
            notes = _with(notes, float(match[1]), match[2], match[3])
    return notes


def _with(notes: Notes, time: float, what: str, text: str) -> Notes:
    first, _, rest = text.partition(" ")
    code = int(first) if first.isdigit() else None
    if what == "start":
        return Notes(notes.starts + 1, code, rest, time)
    if what == "begin":
        return replace(notes, steps=(*notes.steps, NotedStep(first, rest, time)))
    if what == "end" and notes.steps:
        return replace(notes, steps=(*notes.steps[:-1], replace(notes.steps[-1], ended=time, code=code)))
    if what == "exit":
        # A script that SIGTERM ends in a step notes the exit code of the last command before, which is 0.
        cut = notes.steps and notes.steps[-1].ended is None
        return replace(notes, ended=time, code=_SIGTERM if cut and code == 0 else code)
    return notes
