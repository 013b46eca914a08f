"""The process that outlives `slipway rehearse --keep`: it starts the rehearsal, keeps its cluster, and ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from slipway import kept
from slipway.errors import EXIT_ENVIRONMENT

ENGINE_LOG = "engine.log"  # in the work folder: what the engine prints before it has the user's screen


class Keeper:
    """Waits for the verdict in the user's terminal, then without it for the end of the cluster.

    `notice` is where the first process of the command waits for the exit code; `hand_back` gives the output to the
    user who called sudo.
    """

    def __init__(self, register: IO[str], name: str, notice: int) -> None:
        self._register = register
        self._name = name
        self._notice = notice
        self._front = os.getppid()
        self._until = 0.0

    def start(self, command: list[str], work: Path, env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
        """Start the engine and send it this process's standard output and error.

        They are sent, not inherited: the engine can drop what it was sent, while its parent `unshare` would hold what
        it inherited until the cluster's end, and with it the pipe of `slipway rehearse --keep | tee`.
        """
        ours, theirs = socket.socketpair()
        with theirs, (work / ENGINE_LOG).open("wb") as log:
            process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=log, stderr=log, env=env, cwd=cwd, start_new_session=True
            )
        socket.send_fds(ours, [b"s"], [1, 2])
        process.stdin = os.fdopen(ours.detach(), "wb", buffering=0)
        return process

    def look(self, engine: int, work: Path, hand_back: Callable[[], None]) -> None:
        """Keep the cluster as soon as the engine offers it. Raises KeyboardInterrupt when it is time to end."""
        offer = work / kept.HOSTS_FILE
        if self._until:
            if time.time() > self._until:
                raise KeyboardInterrupt
        elif offer.exists():
            self._until = json.loads(offer.read_text(encoding="utf-8"))["until"]
            kept.register(self._register, kept.Kept(self._name, os.getpid(), engine, self._until, str(work)))
            hand_back()
            self._leave_terminal(int(json.loads(offer.read_text(encoding="utf-8"))["exit_code"]))
        elif os.getppid() != self._front:  # the command was killed
            raise KeyboardInterrupt

    def _leave_terminal(self, code: int) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.close(nowhere)
        os.write(self._notice, str(code).encode())
        os.close(self._notice)


def in_background(name: str, run: Callable[[Keeper], int]) -> int:
    """Call `run` in a child process; return its exit code, or that of the verdict once the cluster is kept."""
    waiting, notice = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # a Ctrl-C or a closed terminal reaches the child through the process in front only
        os.close(waiting)
        with kept.reserved(name) as register:
            return run(Keeper(register, name, notice))
    os.close(notice)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: _pass_on(child, number))
    code = os.read(waiting, 8)
    if code:
        return int(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else EXIT_ENVIRONMENT


def _pass_on(child: int, number: int) -> None:
    os.kill(child, number)
