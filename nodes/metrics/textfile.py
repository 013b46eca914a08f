"""Shared by the collectors: metrics as text for the node exporter's textfile collector, and reading in bounded time.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from nodes.lib.state import put

DIRECTORY = Path("/var/lib/node-exporter/textfile")
LOCKS = Path("/run/slipway")
UP = ("slipway_collector_up", "gauge", "1 when this collector's last run gave a whole answer in time, else 0.")
DURATION = ("slipway_collector_duration_seconds", "gauge", "Wall-clock seconds of this collector's last run.")
MAX_BYTES = 4 * 1024 * 1024
Family = tuple[str, str, str]  # name, type, help


class CollectorError(Exception):
    """A collector without an answer; the text is one line for the journal."""


class Page:
    """Metrics of one file, grouped by family as Prometheus' text form wants them."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[Family, list[str]]] = {}

    def add(self, family: Family, value: float, **labels: str) -> None:
        """Add one sample; labels with characters that the text form knows are escaped."""
        name = family[0]
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        number = str(int(value)) if float(value).is_integer() else repr(float(value))
        line = f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"
        self._families.setdefault(name, (family, []))[1].append(line)

    def text(self) -> str:
        """Return the page: HELP and TYPE once a family, then its samples."""
        lines: list[str] = []
        for (name, kind, meaning), samples in self._families.values():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples]
        return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def publish(path: Path, text: str) -> None:
    """Put the text in place by one rename; without text the file goes, so that no old sample is taken for a new one."""
    if not text:
        path.unlink(missing_ok=True)
        return
    put(path, text)


def within(seconds: float, lock: Path, work: Callable[[], str]) -> str:
    """Return the result of `work`, which runs in its own process.

    A read of a file system whose server is gone can hang where not even SIGKILL reaches it. The child keeps the lock
    for as long as it exists, so at most one such process exists, and this one continues. Raises CollectorError if there
    is no answer in time, if `work` fails, or if the child of an earlier run still hangs.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CollectorError("the reader of an earlier run still hangs") from error
        end, begin = os.pipe()
        child = os.fork()
        if child == 0:
            os.set_inheritable(held.fileno(), True)  # what the child starts (close_fds=False) holds the lock as well
            _answer(begin, work)
        os.close(begin)
    # This process's lock went with the file; the child's copy holds it on.
    try:
        return _receive(end, child, seconds)
    finally:
        os.close(end)


def _answer(begin: int, work: Callable[[], str]) -> None:
    """The child: write b"+" and the text, or b"-" and the error, and end without any clean-up of the parent's."""
    try:
        reply = b"+" + work().encode()
    except Exception as error:  # the parent reports it, whatever it is
        reply = b"-" + f"{type(error).__name__}: {error}".encode()
    with contextlib.suppress(OSError), os.fdopen(begin, "wb") as out:
        out.write(reply)
    os._exit(0)


def _receive(end: int, child: int, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    reply = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([end], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            time.sleep(0.05)  # time to end; a process that hangs in the kernel does not end, and is not waited for
            os.waitpid(child, os.WNOHANG)
            raise CollectorError(f"no answer within {seconds:g} s")
        part = os.read(end, 65536)
        if not part or len(reply) > MAX_BYTES:
            break
        reply += part
    os.waitpid(child, 0)
    if not reply.startswith(b"+"):
        raise CollectorError(reply[1:].decode("utf-8", "replace") or "the reader ended without an answer")
    return reply[1:].decode("utf-8", "replace")
