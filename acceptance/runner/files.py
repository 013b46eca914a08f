"""Files of a run directory: none is seen half written, and what others put in a file's place is not followed."""

from __future__ import annotations

import errno
import glob
import io
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from acceptance.errors import InputError
from acceptance.jsonable import FormError
from acceptance.nccl import Log, parse_stream
from acceptance.options import resolved

_MOST_DEBUG_FILES = 20_000  # one a process
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
        raise FormError(f"is larger than {MOST} bytes")
    return text


def read_log(path: Path) -> Log:
    """Read a log of the run directory with what belongs to it; a job that never started has none.

    Next to NAME.out are NAME.nccl, what NCCL wrote for debugging (NAME.debug has a file of each process while the job
    runs, and if it was killed), and NAME.json, the table as nccl-tests wrote it.
    """
    with ExitStack() as stack:
        streams = [_open_log(stack, path), _open_debug(stack, path)]
        log = parse_stream(*[stream for stream in streams if stream is not None] or [io.BytesIO()])
        table = _open_log(stack, path.with_suffix(".json"))
        if table is not None:
            _take_table(log, parse_stream(table))
    return log


def _open_log(stack: ExitStack, path: Path) -> BinaryIO | io.RawIOBase | None:
    try:
        return stack.enter_context(os.fdopen(open_plain(path), "rb", buffering=0))
    except OSError:
        return None


def _open_debug(stack: ExitStack, path: Path) -> BinaryIO | io.RawIOBase | None:
    """Open what NCCL wrote for debugging; the files of a job that was killed are joined here."""
    whole, folder = path.with_suffix(".nccl"), path.with_suffix(".debug")
    if whole.exists() or folder.is_symlink() or not folder.is_dir():
        return _open_log(stack, whole)
    joined: BinaryIO = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    with suppress(OSError):
        for file in sorted(folder.iterdir())[:_MOST_DEBUG_FILES]:
            with ExitStack() as one:
                stream = _open_log(one, file)
                if stream is not None:
                    shutil.copyfileobj(stream, joined)
                    joined.write(b"\n")  # behind a line that the kill cut
    joined.seek(0)
    return joined


def _take_table(log: Log, written: Log) -> None:
    """Put the table that nccl-tests wrote as JSON in the place of the printed one: no other text can be in it.

    Not where several were printed: then the processes never met, and each wrote a file.
    """
    if len(log.tables) > 1 or not written.complete:
        return
    table = written.tables[0]
    if log.tables:
        table.collective = log.tables[0].collective or table.collective
        table.reduced_max_bytes = log.tables[0].reduced_max_bytes
    log.tables = [table]
    log.devices = log.devices or written.devices


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step: under another name in the same directory, then renamed."""
    part = path.with_name(f".{path.name}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
    part.replace(path)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Make a folder in one step: what the caller writes into another one next to it is renamed at the end.

    An empty folder is replaced. Raises InputError if the folder has files then. After an error nothing remains; what a
    killed process left is removed by the next one.
    """
    folder = resolved(folder)
    made = [one for one in (folder.parent, *folder.parent.parents) if not one.exists()]
    part = hidden_name(folder.parent)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(folder.parent)
        part.mkdir()
        yield part
        part.replace(folder)
    except OSError as error:
        # A write to a full disk names no file; an error in the other folder names a place that will not exist.
        error.filename = str(error.filename or folder).replace(str(part), str(folder))
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) and error.filename2 == str(folder):
            raise InputError([f"{folder}: exists and is not an empty folder. Hint: give another folder"]) from None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):  # those that have the folder stay
            for one in made:
                one.rmdir()


def remove_folder(folder: Path) -> None:
    """Remove a folder so that a killed process leaves nothing half removed under its name. Raises OSError."""
    remove_dead(folder.parent)
    part = hidden_name(folder.parent)
    folder.rename(part)
    shutil.rmtree(part)


def hidden_name(parent: Path) -> Path:
    """Return a name in `parent` that no other process uses; it says which process on which host does."""
    return parent / f".{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.part"


def remove_dead(parent: Path) -> None:
    """Remove the unfinished folders of this user whose process on this host was killed."""
    for part in parent.glob(f".{glob.escape(socket.gethostname())}-*-*.part"):
        with suppress(OSError, ValueError):
            owner, process = part.lstat().st_uid, int(part.name.rsplit("-", 2)[1])
            if owner == os.geteuid() and not Path("/proc", str(process)).exists():
                shutil.rmtree(part, ignore_errors=True)
