"""Where an import works: the user's directory on a local disk, locks, and the note next to an image.

Below `containers/` of the shared file system an image NAME.sqsh has `.NAME.sqsh.info` (what it is) and
`.NAME.sqsh.lock` (held during an import). The lock's file stays: removing it would let two processes in.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

HELD_S = 2.0
NOTE_BYTES = 1 << 16
MEMORY = Path("/dev/shm")  # noqa: S108
LOCAL_DISKS = ("/scratch", "/local_scratch", "/var/tmp", "/tmp")  # noqa: S108  (the instance's NVMe first)


class Lock:
    """An advisory lock on a file that any user of the directory may hold; it ends with the process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool = False) -> bool:
        """Take it if it is free; with `shared`, also while others share it."""
        if self._descriptor is None:
            self._descriptor = self._open()
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        # First without O_CREAT: in a sticky directory the kernel forbids that flag on another user's file.
        with contextlib.suppress(FileNotFoundError):
            return open_plain(self._file)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        return open_plain(self._file)


# ------------------------------------------------------ files in directories that every user may write to


def open_plain(file: Path) -> int:
    """Open a plain file to read.

    In a directory that every user may write to, a link or a pipe may be in its place: it is neither followed nor waited
    for. Raises OSError if the file does not exist or is not a plain file.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a plain file", str(file))
    return descriptor


def create(file: Path, flags: int = os.O_WRONLY) -> int:
    """Open a new, empty, world-readable file in the place of an existing one; no link is followed.

    Raises OSError if another user's file is in the way, or the file system refuses.
    """
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.fchmod(descriptor, 0o644)
    return descriptor


def owner(file: Path) -> str:
    """The name of a file's user, or the number where it has none; empty for root and ourselves."""
    number = file.lstat().st_uid
    if number in (0, os.getuid()):
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"{number}"


def private(directory: Path) -> bool:
    """Make a directory where every user may make one; return whether it is one, and this user's alone."""
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700)
    with contextlib.suppress(OSError):
        found = directory.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return False


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a lock that every process releases at once.

    Raises TimeoutError if another process holds it for more than `HELD_S` seconds, OSError if it cannot be opened.
    """
    lock, end = Lock(file), time.monotonic() + HELD_S
    while not lock.acquire():
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, f"another process holds it for more than {HELD_S:.0f} s", str(file))
        time.sleep(0.05)
    try:
        yield
    finally:
        lock.release()


class Workshop:
    """This user's directory on a local disk: layers (kept for the next run) and temporary files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layers = root / "layers"
        self.tokens = self.layers / f".tokens.{os.getuid()}"
        self._lock = Lock(root / "lock")
        for directory in (self.layers, root / "slots", root / "tmp"):
            directory.mkdir(mode=0o700, exist_ok=True)
        # If no other run of this user is active, existing temporary files are left over from killed runs.
        if self._lock.acquire():
            for left in (root / "tmp").iterdir():
                shutil.rmtree(left, ignore_errors=True)
            for left in self.layers.glob("*.??????????"):
                left.unlink(missing_ok=True)
        self._lock.acquire(shared=True)
        self._tokens_in_memory()
        self.forget_tokens()

    def _tokens_in_memory(self) -> None:
        """Keep enroot's tokens off the disk.

        enroot writes what it got for the key, or the key itself, to .tokens.UID/REGISTRY.PID among the layers, and a
        killed enroot leaves it there (3.4 to 4.1, src/docker.sh).
        """
        memory = MEMORY / f"{self.root.name}-tokens"
        usable = private(memory)
        if not self.tokens.is_symlink():
            shutil.rmtree(self.tokens, ignore_errors=True)
        elif not usable:
            self.tokens.unlink(missing_ok=True)
        if usable:
            with contextlib.suppress(FileExistsError):
                self.tokens.symlink_to(memory)

    def forget_tokens(self) -> None:
        """Remove the tokens of imports that have ended."""
        with contextlib.suppress(FileNotFoundError):
            for token in self.tokens.iterdir():
                if not Path("/proc", token.name.rpartition(".")[2]).is_dir():
                    token.unlink(missing_ok=True)

    @classmethod
    def find(cls, shared: Path) -> Workshop:
        """Make it on the first local disk that can be written to and is not the shared file system.

        Raises OSError if there is no such disk.
        """
        for disk in map(Path, LOCAL_DISKS):
            if disk.is_dir() and os.access(disk, os.W_OK | os.X_OK) and disk.stat().st_dev != shared.stat().st_dev:
                root = disk / f"slipway-containers-{os.getuid()}"
                if private(root):
                    return cls(root)
        raise OSError(f"no local disk can be written to: none of {', '.join(LOCAL_DISKS)}")

    def slots(self, count: int) -> list[Lock]:
        """One lock for each import that may run at a time, over all runs of this user on this node."""
        return [Lock(self.root / "slots" / str(number)) for number in range(count)]

    @contextlib.contextmanager
    def temporary(self, name: str) -> Iterator[Path]:
        """A directory for one import."""
        place = self.root / "tmp" / f"{name}.{os.getpid()}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def prune(self, limit: int) -> None:
        """Remove the layers that were fetched longest ago until the rest take at most `limit` bytes.

        Not while another run of this user imports: it may be about to unpack them.
        """
        self._lock.release()
        if not self._lock.acquire():
            return
        files = [(file.stat(), file) for file in self.layers.iterdir() if file.is_file()]
        used = sum(found.st_size for found, _ in files)
        for found, file in sorted(files, key=lambda one: one[0].st_mtime):
            if used <= limit:
                return
            used -= found.st_size
            file.unlink()

    def fetched(self, layers: Mapping[str, int]) -> int:
        """Bytes of these layers that are here, whole or in part (enroot writes a part as DIGEST.xxxxxxxxxx)."""
        total = 0
        for file in os.scandir(self.layers):
            digest, _, part = file.name.partition(".")
            if digest in layers:
                with contextlib.suppress(FileNotFoundError):
                    total += min(layers[digest], file.stat().st_size) if part else layers[digest]
        return min(total, sum(layers.values()))


def free_bytes(place: Path) -> int:
    """Bytes that this user may still write there."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def amount(count: int) -> str:
    """A number of bytes for people: MB below 1 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


# ------------------------------------------------------------------------------------------- what is known of an image


def write_info(image: Path, info: Path, facts: Mapping[str, str]) -> None:
    """Note what a file is, bound to the very file by its size and time, before it gets its name."""
    found = image.stat()
    bound = {**facts, "size": str(found.st_size), "mtime": str(found.st_mtime_ns)}
    fresh = info.with_name(f"{info.name}.{os.getpid()}")
    with os.fdopen(create(fresh), "w", encoding="utf-8") as note:
        note.write("".join(f"{key}={value}\n" for key, value in bound.items()))
    try:
        fresh.rename(info)
    except OSError:
        fresh.unlink()
        raise


def read_info(image: Path, info: Path) -> dict[str, str]:
    """Return what is known of an image; empty when it is not the file that the note was written for."""
    try:
        with os.fdopen(open_plain(info), "r", encoding="utf-8", errors="replace") as note:
            lines = note.read(NOTE_BYTES).splitlines()
        found = image.stat()
    except OSError:
        return {}
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    same = (facts.get("size"), facts.get("mtime")) == (str(found.st_size), str(found.st_mtime_ns))
    return facts if same else {}
