"""How a rehearsal is asked to stop, and its output: `slipway rehearse` is at the other end of both.

It closes our standard input, or a SIGTERM arrives.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from slipway.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_PIPE


class Interrupted(BaseException):
    """The user asked to stop, or the process that started us has ended.

    Not an Exception: a library that wraps every Exception into its own would turn it into a failure.
    """


class Lifeline:
    """Watches standard input, a pipe from `slipway rehearse`; from `watch` on the main thread gets Interrupted."""

    def __init__(self) -> None:
        self.orphaned = False
        """The process at the other end ended without a word: nothing but us removes the work folder."""

    def watch(self) -> None:
        """Start to watch."""
        signal.signal(signal.SIGTERM, self._stop)
        threading.Thread(target=self._read, daemon=True, name="lifeline").start()

    def _read(self) -> None:
        words = b""
        while part := os.read(0, 1):
            words += part
        self.orphaned = not words
        os.kill(os.getpid(), signal.SIGTERM)

    def _stop(self, _number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end has begun: a second signal must not cut it short
        raise Interrupted


def take_screen() -> None:
    """Use the standard output and error that `slipway rehearse --keep` sends through our standard input, a socket."""
    with socket.socket(fileno=os.dup(0)) as line:
        _, descriptors, _, _ = socket.recv_fds(line, 1, 2)
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)


class Screen:
    """A text stream that drops what it cannot write, so that the rehearsal can end in order; `lost` is the reason."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write, as the stream does."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, as the stream does."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], object]) -> None:
        if self.lost is None:
            try:
                action()
            except OSError as error:
                self.lost = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def code_of_screen(code: int) -> int:
    """Return `code`, or, where the output could not be written, the exit code of that; a full disk is reported."""
    lost = getattr(sys.stdout, "lost", None)
    if lost is None or lost.errno == errno.EIO or code == EXIT_INTERRUPTED:  # EIO: a closed terminal
        return code
    if isinstance(lost, BrokenPipeError):
        return EXIT_PIPE
    print(f"cannot write: {lost.strerror}", file=sys.stderr)
    return EXIT_ENVIRONMENT


def leave_screen() -> None:
    """Print nothing more: the user's command ends, and its terminal or pipe is no longer ours."""
    with Path(os.devnull).open("wb") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(nowhere.fileno(), stream.fileno())
