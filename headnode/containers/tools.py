"""The commands that make an image file: enroot (.sqsh, for pyxis) and apptainer (.sif)."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headnode.containers import session
from headnode.containers.credentials import Credential
from headnode.containers.images import Image
from headnode.containers.places import Workshop

CONNECTIONS = 16  # to registries at a time, over all imports: ours; enroot takes 10 for one
END_S = 5.0
POLL_S = 0.2
STALL_BYTES = 1 << 20
VERSION_S = 10.0
# An image of squashfs begins with this; 40 bytes on is how many bytes it has (Linux, fs/squashfs/squashfs_fs.h).
SQUASHFS_MAGIC = b"hsqs"
SQUASHFS_SIZE = slice(40, 48)
# 2.5 times smaller than without compression, and not slower to start from (pyxis wiki, Setup).
COMPRESSED = "-comp zstd -Xcompression-level 3 -b 1M"


class ToolFault(Exception):
    """A command that was ended by us: one line for the user. `final`: another try changes nothing."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Limits:
    """Longest time of one try, of no data moving, and pause before a second try, in seconds; imports at a time.

    `compressed`: images of enroot are compressed, whatever enroot.conf says.
    """

    total_s: float
    stall_s: float
    pause_s: float
    at_once: int
    compressed: bool = False


def missing(suffix: str) -> str:
    """Return the command that images of this kind need, when it is not installed."""
    command = {"sqsh": "enroot", "sif": "apptainer"}[suffix]
    return "" if shutil.which(command) else command


def command(suffix: str, image: Image, output: Path) -> list[str]:
    """The argument vector that imports an image to a file that is not there yet."""
    if suffix == "sqsh":
        return ["enroot", "import", "--output", str(output), image.enroot_uri]
    return ["apptainer", "build", str(output), image.apptainer_uri]


@functools.lru_cache
def enroot_version() -> tuple[int, int]:
    """Return the first two numbers of enroot's version, such as (3, 4); very high ones where it prints none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(["enroot", "version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
        if match := re.match(r"v?(\d+)\.(\d+)", done.stdout):
            return int(match[1]), int(match[2])
    return sys.maxsize, 0


def whole(image: Path) -> bool:
    """Return whether a file is an image of squashfs and has all its bytes, which `unsquashfs -s` does not look at."""
    with image.open("rb") as file:
        head = file.read(SQUASHFS_SIZE.stop)
    size = int.from_bytes(head[SQUASHFS_SIZE], "little")
    return head.startswith(SQUASHFS_MAGIC) and len(head) == SQUASHFS_SIZE.stop and size <= image.stat().st_size


def environment(shop: Workshop, temporary: Path, credential: Credential | None, limits: Limits) -> dict[str, str]:
    """Return the environment of the commands: local directories, retries, share of processors, keys."""
    processors = max(1, len(os.sched_getaffinity(0)) // limits.at_once)
    made = {
        "TMPDIR": str(temporary),
        "ENROOT_TEMP_PATH": str(temporary),
        "ENROOT_CACHE_PATH": str(shop.layers),
        "ENROOT_DATA_PATH": str(temporary / "data"),
        "ENROOT_RUNTIME_PATH": str(temporary / "run"),
        "ENROOT_CONFIG_PATH": str(temporary / "config"),
        "ENROOT_TRANSFER_RETRIES": "5",
        "ENROOT_MAX_PROCESSORS": str(processors),
        "ENROOT_MAX_CONNECTIONS": str(max(2, CONNECTIONS // limits.at_once)),
        "APPTAINER_TMPDIR": str(temporary),
        "APPTAINER_CACHEDIR": str(temporary / "cache"),
    }
    if limits.compressed:
        made["ENROOT_SQUASH_OPTIONS"] = COMPRESSED
    if credential is not None:
        made["APPTAINER_DOCKER_USERNAME"] = credential.user
        made["APPTAINER_DOCKER_PASSWORD"] = os.environ[credential.variable]
    return {**os.environ, **made}


def run(argv: list[str], env: Mapping[str, str], log: int, limits: Limits, ended: Callable[[], bool]) -> int:
    """Run a command to its end in its own session; return its exit code. No process of the session is left then.

    Raises ToolFault if it took too long, moved no data for too long, or `ended` returned true.
    """
    # The kernel sends the session's leader SIGTERM when this process ends, even by SIGKILL.
    leader = [sys.executable, "-I", "-B", session.__file__, str(END_S)]
    argv = ["setpriv", "--pdeathsig", "TERM", "--", *leader, *argv]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)
    try:
        return _watch(child, limits, ended)
    finally:
        _end(child)


def _watch(child: subprocess.Popen[bytes], limits: Limits, ended: Callable[[], bool]) -> int:
    traffic = _Traffic(child.pid)
    started = moved = time.monotonic()
    mark = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(POLL_S)
        now = time.monotonic()
        if ended():
            raise ToolFault("stopped", final=True)
        if now - started > limits.total_s:
            raise ToolFault(f"took more than {limits.total_s:.0f} s")
        if traffic.total() >= mark + STALL_BYTES:
            mark, moved = traffic.total(), now
        elif now - moved > limits.stall_s:
            raise ToolFault(
                f"no data moved for {limits.stall_s:.0f} s: the registry or the network path to it is stuck"
            )


def _end(child: subprocess.Popen[bytes]) -> None:
    """Have the leader end its session, unless it has; it takes twice `END_S` at most."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(3 * END_S)
    child.kill()
    child.wait()


class _Traffic:
    """Bytes read and written by the processes of one session since the start, as far as samples see them."""

    def __init__(self, leader: int) -> None:
        self._session = leader
        self._seen: dict[str, int] = {}
        self._sum = 0
        self._next = 0.0

    def total(self) -> int:
        """Look again, at most once a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 1.0
            for process, count in self._counters().items():
                self._sum += max(0, count - self._seen.get(process, 0))
                self._seen[process] = count
        return self._sum

    def _counters(self) -> dict[str, int]:
        found = {}
        for process in session.members(self._session):
            with contextlib.suppress(OSError, ValueError, IndexError):
                counters = Path(f"/proc/{process}/io").read_text().split()
                found[str(process)] = int(counters[1]) + int(counters[3])
        return found
