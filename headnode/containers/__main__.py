"""`python3 -m headnode.containers LIST`: imports every image of a list; see `download-ngc-containers.sh`.

Exit 0 when all are there, 1 when one is not, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headnode.containers import credentials, places
from headnode.containers.images import read_list
from headnode.containers.importing import Importer, Job
from headnode.containers.report import Report, say
from headnode.containers.tools import Limits
from nodes.lib import state

PROCESSORS_EACH = 4  # of an import that has the node to itself; mksquashfs and pigz use what they get
MOST = 8
MOST_AT_ONCE = 32  # as in the settings (slipway/settings.py)
BUSY_POLL_S = 1.0


def default_at_once(processors: int) -> int:
    """Return the default number of imports at a time: 2 to 8."""
    return max(2, min(MOST, processors // PROCESSORS_EACH))


class Pool:
    """Works through the jobs, at most `at_once` at a time; an image that another run imports is waited for last."""

    def __init__(self, importer: Importer, jobs: Sequence[Job]) -> None:
        self._importer = importer
        self._waiting = deque(jobs)
        self._guard = threading.Lock()
        self._busy_since: dict[str, float] = {}
        self._threads = [threading.Thread(target=self._work) for _ in range(min(importer.limits.at_once, len(jobs)))]

    def run(self, report: Report, every_s: float) -> None:
        """Ask the registry for all images, import them, and print the progress every `every_s` seconds."""
        with ThreadPoolExecutor(MOST) as asking:
            list(asking.map(self._survey, list(self._waiting)))
        report.update(line=False)
        for thread in self._threads:
            thread.start()
        next_line = time.monotonic() + every_s
        for thread in self._threads:
            while thread.is_alive():
                thread.join(min(1.0, every_s))
                if time.monotonic() >= next_line:
                    next_line = time.monotonic() + every_s
                    report.update(line=True)

    def _survey(self, job: Job) -> None:
        if not self._importer.stopped.is_set():
            self._importer.survey(job)

    def _work(self) -> None:
        while not self._importer.stopped.is_set():
            with self._guard:
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                last = not self._waiting
            if self._importer.run_if_free(job):
                say(f"{job.name} {job.detail}" + (f" (log: {job.hint})" if job.hint else ""))
                continue
            since = self._busy_since.setdefault(job.name, time.monotonic())
            if time.monotonic() - since > self._importer.limits.total_s:
                what = f"another run holds it for more than {self._importer.limits.total_s:.0f} s: see 'fuser'"
                job.settle("failed", f"{what} of {self._importer.lock_file(job)}")
                say(f"{job.name} {job.detail}")
                continue
            if job.detail == "":
                job.detail = "another run imports it: waiting"
                say(f"{job.name}: another run imports it: waiting")
            with self._guard:
                self._waiting.append(job)
            if last:
                self._importer.stopped.wait(BUSY_POLL_S)


def whole(text: str) -> int:
    """A number of imports. Raises ValueError, which argparse reports."""
    if not 0 <= int(text) <= MOST_AT_ONCE:
        raise ValueError
    return int(text)


def seconds(text: str) -> float:
    """A time of a tenth of a second to a week. Raises ValueError, which argparse reports."""
    if not 0.1 <= float(text) <= 604_800:
        raise ValueError
    return float(text)


def options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; argparse ends the program with 2 for wrong use."""
    parser = argparse.ArgumentParser(
        prog="download-ngc-containers.sh", description="Import the container images of a list."
    )
    parser.add_argument("list", type=Path, help="one image a line: docker://REGISTRY/NAME:TAG")
    parser.add_argument("--refresh", action="store_true", help="import anew what has changed in the registry")
    into = "another directory for the image files (default: containers of the shared file system)"
    parser.add_argument("--into", type=Path, metavar="DIR", help=into)
    parser.add_argument("--fsx", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument(
        "--format", choices=("enroot", "apptainer", "both"), default="enroot", help="kind of image files"
    )
    parser.add_argument(
        "--at-once", type=whole, default=0, metavar="N", help="imports at a time (0: by the processors)"
    )
    parser.add_argument("--timeout", type=seconds, default=7200, metavar="S", help="of one try of one image, seconds")
    parser.add_argument("--stall", type=seconds, default=300, metavar="S", help="end a try that moves no data so long")
    parser.add_argument(
        "--progress", type=seconds, default=10, metavar="S", help="a line of progress every so many seconds"
    )
    parser.add_argument(
        "--pause", type=seconds, default=5, metavar="S", help="seconds before a second try, then longer"
    )
    parser.add_argument("--compressed", action="store_true", help="compress enroot's images")
    parser.add_argument("--ngc-secret", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Import; return the exit code."""
    chosen = options(arguments)
    try:
        images, warnings = read_list(chosen.list)
        shop = places.Workshop.find(chosen.fsx)
    except OSError as error:
        say(f"{error.strerror or error}: {error.filename or chosen.list}. Hint: name a list that can be read")
        return 1
    for warning in warnings:
        say(f"WARNING {warning}")
    suffixes = {"enroot": ("sqsh",), "apptainer": ("sif",), "both": ("sqsh", "sif")}[chosen.format]
    jobs = [Job(image, suffix) for image in images for suffix in suffixes]
    at_once = chosen.at_once or default_at_once(len(os.sched_getaffinity(0)))
    say(f"{state.now()} {len(jobs)} images in {chosen.list}, {at_once} at a time")
    keys, problems = credentials.collect((image.registry for image in images), chosen.ngc_secret)
    for problem in problems:
        say(f"WARNING {problem}")
    logs = chosen.fsx / "logs/container-downloads"
    limits = Limits(chosen.timeout, chosen.stall, chosen.pause, at_once, chosen.compressed)
    importer = Importer(chosen.into or chosen.fsx / "containers", logs, shop, keys, limits, chosen.refresh)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: importer.stopped.set())
    report = Report(jobs, logs, str(chosen.fsx / "logs/ngc-download.log"), shop, again(chosen), shown=not chosen.into)
    Pool(importer, jobs).run(report, chosen.progress)
    return finish(jobs, report, shop, stopped=importer.stopped.is_set())


def again(chosen: argparse.Namespace) -> str:
    """The command that does the same once more."""
    as_root = os.getuid() == 0
    if as_root and not chosen.refresh and not chosen.into and chosen.list == chosen.fsx / "config/containers.txt":
        return "sudo systemctl restart slipway-containers"
    words = ["sudo", "bash"] if as_root else ["bash"]
    words.append(str(chosen.fsx / "scripts/download-ngc-containers.sh"))
    words += ["--refresh"] if chosen.refresh else []
    words += ["--into", str(chosen.into)] if chosen.into else []
    return shlex.join([*words, str(chosen.list.absolute())])


def finish(jobs: Sequence[Job], report: Report, shop: places.Workshop, *, stopped: bool) -> int:
    """Report the result, and keep the layers within a tenth of the disk."""
    report.end(stopped=stopped)
    disk = os.statvfs(shop.root)
    shop.prune(disk.f_blocks * disk.f_frsize // 10)
    ready = sum(job.state == "ready" for job in jobs)
    say(f"{ready} of {len(jobs)} images are there" + (": stopped" if stopped else ""))
    return 0 if ready == len(jobs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
