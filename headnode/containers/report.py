"""Progress of an import: lines, the user's table, and the state of the background work."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from headnode.containers import places
from headnode.containers.importing import Job
from headnode.containers.places import Workshop
from nodes.lib import state

NAME = "containers"


def say(text: str) -> None:
    """One line, on the screen and in the log."""
    print(f"slipway: {text}", flush=True)


class Report:
    """Reports how far the jobs are. shown: in the user's table and the state of the background work."""

    def __init__(
        self, jobs: Sequence[Job], logs: Path, log: str, shop: Workshop, again: str, *, shown: bool = True
    ) -> None:
        self._jobs, self._logs, self._log, self._shop, self._again = jobs, logs, log, shop, again
        self._started = time.monotonic()
        self._shown = self._with_table = shown

    def update(self, *, line: bool) -> None:
        """Write table and state; with `line` also a line of progress."""
        self._table()
        ready = sum(job.state == "ready" for job in self._jobs)
        detail, percent, eta_s = self._progress(ready)
        if line:
            say(f"{state.now()} {detail}")
        self._background("running", detail, percent=percent, eta_s=eta_s)

    def end(self, *, stopped: bool) -> None:
        """Write the last state."""
        self._table()
        failed = [job for job in self._jobs if job.state != "ready"]
        detail = f"{len(self._jobs) - len(failed)} of {len(self._jobs)} images are there"
        if stopped:
            self._background("failed", f"stopped: {detail}", f"to go on: {self._again}")
        elif failed:
            first = failed[0]
            self._background("failed", f"{detail}; {first.name}: {first.detail}", f"repair, then: {self._again}")
        else:
            self._background("done", detail, percent=100, eta_s=0)

    def _progress(self, ready: int) -> tuple[str, int, int | None]:
        """Text, percent of the bytes of the layers, and seconds left (None while unknown)."""
        total = there = new = 0
        for job in self._jobs:
            if job.manifest is None or not job.wanted or job.state == "failed":
                continue
            here = job.manifest.size if job.state == "ready" else self._shop.fetched(job.manifest.layers)
            total, there, new = total + job.manifest.size, there + here, new + max(0, here - job.here_before)
        text = f"{ready} of {len(self._jobs)} images are there"
        if not total:
            return text, 0, None
        rate = new / max(0.001, time.monotonic() - self._started)
        eta_s = int((total - there) / rate) if rate > 0 and total > there else None
        text += f"; {places.amount(there)} of {places.amount(total)} of layers fetched, {rate / 1e6:.1f} MB/s"
        text += f", about {eta_s} s left for the rest" if eta_s is not None else ""
        return text + (", unpacking and packing" if there >= total else ""), 100 * there // total, eta_s

    def _table(self) -> None:
        """Write one line a file, with its time. Each user has a table; list-containers.sh shows the newest."""
        table = self._logs / ("status.tsv" if os.getuid() == 0 else f"status.{os.getuid()}.tsv")
        if not self._with_table:
            return
        try:
            with places.held(self._logs / f".{table.stem}.lock"):
                self._write_table(table)
        except TimeoutError as error:
            self._with_table = False
            say(f"WARNING {table.name} is not written: {error.filename} {error.strerror}")
        except OSError:
            pass  # a disk that is full: the images matter more than the table

    def _write_table(self, table: Path) -> None:
        rows: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            whose = table.lstat()
            if whose.st_uid == os.getuid() and stat.S_ISREG(whose.st_mode):
                with os.fdopen(places.open_plain(table), "r", encoding="utf-8", errors="replace") as old:
                    rows = {line.split("\t", 1)[0]: line for line in old.read().splitlines()}
        rows.update({job.name: _row(job) for job in self._jobs if job.state != "waiting"})
        fresh = table.with_name(f".{table.name}.new")
        with os.fdopen(places.create(fresh), "w", encoding="utf-8") as new:
            new.write("".join(f"{rows[name]}\n" for name in sorted(rows)))
        fresh.replace(table)

    def _background(
        self, what: str, detail: str, hint: str = "", percent: int | None = None, eta_s: int | None = None
    ) -> None:
        """Record the state that `slipway status` and CloudWatch read: only root keeps one."""
        if os.getuid() == 0 and self._shown:
            with contextlib.suppress(OSError):  # a disk that is full: the images matter more than their state
                state.background(NAME, what, detail, self._log, hint, percent, eta_s)


def _row(job: Job) -> str:
    detail = job.detail if job.state == "failed" else job.image.line
    return f"{job.name}\t{job.state}\t{' '.join(detail.split())}\t{state.now()}"
