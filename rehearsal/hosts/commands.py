"""Running commands with a bound, their output read while they run."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from rehearsal.host_spec import Completed
from rehearsal.hosts.errors import HostsError

LineCallback = Callable[[str], None]

TIMEOUT_RC = 124
_CHUNK_BYTES = 65536
# A daemon that a command left behind may keep its output open: wait this long for the rest, then leave it.
_DRAIN_S = 0.3
_POLL_S = 0.05


def run(argv: Sequence[str], *, timeout_s: float = 20, stdin: str = "") -> str:
    """Run a command of this machine and return what it printed. HostsError: it failed or took longer than timeout_s."""
    try:
        done = subprocess.run(list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError as error:
        raise HostsError(f"{argv[0]}: not found on this machine. Hint: run `make setup` as root") from error
    except subprocess.TimeoutExpired as error:
        raise HostsError(f"{' '.join(argv)}: no answer in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).strip() or "(nothing was printed)"
        raise HostsError(f"{' '.join(argv)}: exit {done.returncode}: {detail}")
    return done.stdout


class _Pipe:
    """One output of a running command: its bytes so far, and its lines as they become whole."""

    def __init__(self, stream: IO[bytes], on_line: LineCallback | None) -> None:
        self.fd = stream.fileno()
        self._on_line = on_line
        self._data = bytearray()
        self._reported = 0
        os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """Take what is there. False: the other side closed it."""
        try:
            chunk = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._data += chunk
        self._report(final=not chunk)
        return bool(chunk)

    def finish(self) -> str:
        """The whole text; a last line without a newline is reported too."""
        self._report(final=True)
        return self._data.decode(errors="replace")

    def _report(self, *, final: bool) -> None:
        if self._on_line is None:
            self._reported = len(self._data)
            return
        while (end := self._data.find(b"\n", self._reported)) >= 0:
            self._on_line(self._data[self._reported : end].decode(errors="replace"))
            self._reported = end + 1
        if final and self._reported < len(self._data):
            self._on_line(self._data[self._reported :].decode(errors="replace"))
            self._reported = len(self._data)


def communicate(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    stdin: bytes | None,
    on_line: LineCallback | None,
    on_timeout: Callable[[int], None],
) -> Completed:
    """Run argv with exactly `env`; with `on_line`, both outputs are one and each line is reported while it runs.

    `on_timeout` gets the process id of argv[0] and ends what it started; the answer then has rc 124 and `timed_out`.
    """
    begin = time.monotonic()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd="/",
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if on_line else subprocess.PIPE,
            start_new_session=True,
        )
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    pipes = [_Pipe(stream, on_line) for stream in streams]
    ended = False
    try:
        ended = _follow(process, pipes, begin + timeout_s)
    finally:
        if not ended:
            on_timeout(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DRAIN_S)  # it ends by itself when its child has ended, and takes the child's exit code
            process.kill()
        process.wait()
        texts = [_drained(pipe) for pipe in pipes]
        for stream in streams:
            stream.close()
    rc = _exit_code(process.returncode) if ended else TIMEOUT_RC
    stderr = texts[1] if len(texts) > 1 else ""
    return Completed(rc, texts[0], stderr, timed_out=not ended, seconds=time.monotonic() - begin)


def _exit_code(returncode: int) -> int:
    """As a shell reports it: 128 + the signal's number."""
    return returncode if returncode >= 0 else 128 - returncode


def _follow(process: subprocess.Popen[bytes], pipes: list[_Pipe], deadline: float) -> bool:
    """Read until the command ended (True) or the deadline passed (False)."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe.fd, selectors.EVENT_READ, pipe)
        while process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(min(left, _POLL_S)):
                if not key.data.read():
                    selector.unregister(key.fd)
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
    return True


def _drained(pipe: _Pipe) -> str:
    """What is still in the pipe, waiting at most _DRAIN_S for a writer that stays."""
    deadline = time.monotonic() + _DRAIN_S
    with selectors.DefaultSelector() as selector:
        selector.register(pipe.fd, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            if not pipe.read():
                break
    return pipe.finish()
