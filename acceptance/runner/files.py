"""Files of a run directory: none is seen half written, and what others put in a file's place is not followed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from acceptance.nccl import Log, parse_stream

MOST = 256 << 20  # bytes of one file; run.json of 1,000 nodes has some hundred thousand


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of a run directory; others may have put a link or a pipe in its place: never followed or waited for.

    Raises OSError if it does not exist or is not a plain file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "is not a plain file", str(path))
    return descriptor


def read_plain(path: Path) -> str:
    """The text of a file of a run directory. Raises OSError, and ValueError where it is no text or too large."""
    with os.fdopen(open_plain(path), "r", encoding="utf-8") as stream:
        text = stream.read(MOST + 1)
    if len(text) > MOST:
        raise ValueError(f"is larger than {MOST} bytes")
    return text


def read_log(path: Path) -> Log:
    """Read a log of the run directory; a job that never started has none."""
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as stream:
            return parse_stream(stream)
    except OSError:
        return Log()


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: under another name in the same directory, then renamed."""
    part = path.with_name(f".{path.name}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    with os.fdopen(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "w", encoding="utf-8"
    ) as stream:
        stream.write(text)
    part.replace(path)
