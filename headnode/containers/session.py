"""`python3 session.py END_S COMMAND ...`: runs a command, and leaves no process of this session behind.

It is the leader of its session. GNU parallel, which enroot works with, gives each of its jobs a process group of its
own, and enroot's import runs in a subshell: neither the group nor the death of the first process reaches all of them.
So every process of the session is ended when the command has ended, when this program gets SIGTERM, and when its
parent dies, since the kernel sends SIGTERM then (tools.run). The token that an ended enroot leaves is removed. The exit
code is the command's; 128 and the signal's number if a signal ended it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.05


def fields(process: str) -> list[str]:
    """Return a process's fields of /proc/PID/stat from the state on (state, parent, group, session ...)."""
    return Path("/proc", process, "stat").read_text(errors="replace").rpartition(")")[2].split()


def members(session: int) -> Iterator[int]:
    """Yield the living processes of a session."""
    for entry in os.scandir("/proc"):
        # A process may end between two looks.
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, _, _, number = fields(entry.name)[:4]
                if int(number) == session and state not in "ZX":
                    yield int(entry.name)


def end_others(patience_s: float) -> None:
    """End every other process of this session: SIGTERM, and after `patience_s` seconds SIGKILL."""
    leader, start, number = os.getpid(), time.monotonic(), signal.SIGTERM
    asked: set[int] = set()
    while others := [process for process in members(leader) if process != leader]:
        late = time.monotonic() - start
        if late > 2 * patience_s:
            return  # a process that waits for a disk that does not answer cannot be ended
        if late > patience_s:
            number, asked = signal.SIGKILL, set()
        for process in set(others) - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        asked.update(others)
        time.sleep(POLL_S)


def forget_token(command: int) -> None:
    """Remove enroot's file ENROOT_CACHE_PATH/.tokens.UID/REGISTRY.PID of an ended command."""
    with contextlib.suppress(KeyError, OSError):
        for token in Path(os.environ["ENROOT_CACHE_PATH"]).glob(f".tokens.*/*.{command}"):
            token.unlink()


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code."""

    def ended(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, ended)
    child = None
    try:
        child = subprocess.Popen(arguments[1:])
        code = child.wait()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        end_others(float(arguments[0]))
        if child is not None:
            forget_token(child.pid)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
