"""How a rehearsal is asked to stop: `slipway rehearse` closes our standard input, or a SIGTERM arrives."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path


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


def leave_screen() -> None:
    """Print nothing more: the user's command ends, and its terminal or pipe is no longer ours."""
    with Path(os.devnull).open("wb") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(nowhere.fileno(), stream.fileno())
