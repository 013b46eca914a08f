"""The folder of a download: its files and notes; what a killed program left never counts as whole."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.cloudai.fetch.faults import FORM, Fault

COMPLETE = ".slipway-complete.json"  # what was downloaded; written when all of it is there
LOCK = ".slipway-lock"
SOURCE = ".slipway-source"  # what was begun last
PART = ".incomplete"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class File:
    """A file of a source. path: in the source; checksum: `sha256` or `git` (a blob's SHA-1), and hexadecimal digits."""

    path: str
    size: int
    checksum: tuple[str, str] | None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or self.size < 0:
            raise ValueError(self.path)


@dataclass(frozen=True)
class Place:
    """Where the files of a source are: in a plain folder, or as huggingface_hub's cache has them (`plain` false)."""

    folder: Path
    plain: bool
    commit: str

    def final(self, file: File) -> Path:
        """Return the file that has the data."""
        return self.folder / (file.path if self.plain or not file.checksum else f"blobs/{file.checksum[1]}")

    def link(self, file: File) -> None:
        """Put the name of a file of the cache to its data."""
        if self.plain:
            return
        name = self.folder / "snapshots" / self.commit / file.path
        self.make(name.parent)
        target = os.path.relpath(self.final(file), name.parent)
        if not name.is_symlink() or str(name.readlink()) != target:
            part = name.with_name(f"{name.name}{PART}")
            with suppress(FileNotFoundError):
                part.unlink()
            part.symlink_to(target)
            part.replace(name)

    def make(self, folder: Path) -> None:
        """Make a folder of this place. Raises Fault where a link leads to another place."""
        if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.folder)):
            raise Fault(f"{folder}: is outside of {self.folder}, by a link: refused. Hint: remove the link")
        folder.mkdir(parents=True, exist_ok=True)

    def is_there(self, file: File) -> bool:
        """Return whether a file was downloaded. A plain one may be of another version or source: it is compared."""
        final = self.final(file)
        with suppress(OSError):
            same = final.stat().st_size == file.size
            return same and (not self.plain or not file.checksum or digest_of(file, final) == file.checksum[1])
        return False


def plain_file(path: str, flags: int) -> int:
    """Open a file (an `opener`): others may have put a link or a pipe in its place, never followed or waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no plain file", path)
    return descriptor


def digest_of(file: File, path: Path) -> str:
    """Return the checksum of what a path has, of the kind that the source states."""
    git = file.checksum is not None and file.checksum[0] == "git"
    digest = hashlib.sha1(f"blob {file.size}\0".encode()) if git else hashlib.sha256()  # noqa: S324 (git)
    with open(path, "rb", opener=plain_file) as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def part_of(path: Path) -> Path:
    """Return the name under which a file is written before it is whole."""
    return path.with_name(path.name + PART)


def size_of(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def complete(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the note of a download that is whole and whose files are there, None otherwise."""
    folder = Path(spec["folder"])
    try:
        with open(folder / COMPLETE, encoding="utf-8", opener=plain_file) as stream:
            note: dict[str, Any] = json.load(stream)
        same = [note[key] for key in ("source", "include")] == [spec["source"], spec["include"]]
        there = all((folder / path).stat().st_size == size for path, size in note["files"].items())
    except (OSError, RecursionError, *FORM):
        return None
    return note if same and there else None


def write_note(path: Path, text: str) -> None:
    """Write a small file in one step."""
    part = part_of(path)
    with open(part, "w", encoding="utf-8", opener=plain_file) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises Fault if another download has it."""
    with open(folder / LOCK, "a", opener=plain_file) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fault(f"{folder}: another download writes into it. Hint: squeue shows it; wait for it") from None
        except OSError:  # a file system without locks
            print(f"{folder}: this file system has no locks: two downloads at once are not noticed", flush=True)
        yield
