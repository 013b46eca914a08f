#!/usr/bin/python3
"""Make the directories of the shared file system; it may hold data from before.

Usage: `fsx-layout.py ROOT [PATH ...]`. Existing files and directories keep their content, owner and mode, with one
exception: FSx makes the folder of a data repository association as root:root 0755, so that no user could write to it.
Such a directory of users, and such a PATH below ROOT, gets 1777 once. A symbolic link is followed only to another
directory below ROOT, and no step on the way can be swapped while it runs: each is opened from its parent.
Exit 0; 1 with every conflict at once. Runs on the head node: Python 3.9, standard library, as root.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

# Directories that several users write to are sticky (1777): every user adds files, and only their owner removes them.
# Root's own (0755) hold programs and lists that root runs and reads.
DIRECTORIES = (
    ("config", 0o755),  # first: it has the note of what was opened
    ("containers", 0o1777),  # images (.sqsh); users may add their own
    ("containers/runtime", 0o1777),  # for an enroot.conf of the site, as the two below: ours names local disks
    ("containers/cache", 0o1777),
    ("containers/data", 0o1777),
    ("scripts", 0o755),
    ("logs", 0o755),  # ngc-download.log lies here
    ("logs/container-downloads", 0o1777),
    ("logs/slurm", 0o1777),
    ("logs/training", 0o1777),
    ("nccl", 0o755),
    ("datasets", 0o1777),
    ("checkpoints", 0o1777),
    ("results", 0o1777),
)
OPENED = ".opened"  # in config/: the paths that were opened to all users, a line each
LOCK = Path("/run/slipway/fsx-layout.lock")
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
HINTS = {
    errno.ENOSPC: "it is full: free space or inodes ('lfs df -h', 'lfs df -i'), then run the set-up again",
    errno.EDQUOT: "root's quota is used up: see 'lfs quota', then run the set-up again",
    errno.EROFS: "it is mounted read-only: see 'dmesg | grep -i lustre', then 'sudo mount -o remount,rw'",
}


class Conflict(Exception):
    """Something is in the way; the text is one line for the user."""


def open_below(root: str, path: str) -> int:
    """A handle of the directory `path` below `root`.

    Raises FileNotFoundError if it does not exist, Conflict if a part of it is not a directory or is a link to somewhere
    else, OSError if the file system refuses.
    """
    handle = os.open(root, OPEN)
    try:
        for name in path.split("/"):
            below = _enter(root, handle, name)
            os.close(handle)
            handle = below
    except BaseException:
        os.close(handle)
        raise
    return handle


def _enter(root: str, parent: int, name: str) -> int:
    try:
        return os.open(name, OPEN, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    place = Path(f"/proc/self/fd/{parent}").readlink() / name
    if not stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
        raise Conflict(f"{place} is there, but is no directory")
    target = os.path.realpath(place)
    inside = target.startswith(os.path.realpath(root) + "/")
    if not inside or not Path(target).is_dir():
        raise Conflict(f"{place} is a symbolic link to {target}: followed only to a directory below {root}")
    # The target is entered from the root, without following anything on the way.
    return open_below(root, os.path.relpath(target, os.path.realpath(root)))


def make(root: str, path: str, mode: int) -> bool:
    """Make one directory with its mode; whether it was made. Raises as `open_below`."""
    with contextlib.suppress(FileNotFoundError):
        os.close(open_below(root, path))
        return False
    above, _, name = path.rpartition("/")
    parent = open_below(root, above) if above else os.open(root, OPEN)
    try:
        _make_in(parent, name, mode)
    finally:
        os.close(parent)
    return True


def _make_in(parent: int, name: str, mode: int) -> None:
    """Under another name first, so that a kill never leaves the right name with the wrong mode."""
    fresh = f".{name}.slipway-new"
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(fresh, dir_fd=parent)  # a killed run's
    os.mkdir(fresh, 0o700, dir_fd=parent)
    handle = os.open(fresh, OPEN, dir_fd=parent)
    os.fchmod(handle, mode)
    os.close(handle)
    os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)


def existing(root: str, path: str, mode: int) -> list[str]:
    """Return warnings about an existing directory. Opens a directory of users that FSx has made, once.

    Raises Conflict if a directory of root's can be written by others: root's shells and services run files there.
    """
    handle = open_below(root, path)
    try:
        found = os.fstat(handle)
        place, own = f"{root}/{path}", mode == 0o755
        if own and (found.st_uid != 0 or found.st_mode & 0o022):
            who = f"uid {found.st_uid}, mode {found.st_mode & 0o7777:o}"
            text = f"{place} can be written by others ({who}): root runs and reads files there"
            raise Conflict(f"{text}; look through its files, then: chown root {place}; chmod 755 {place}")
        if not own and (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (0, 0, 0o755):
            return _open_once(root, path, handle)
    finally:
        os.close(handle)
    if not own and found.st_uid == 0 and not found.st_mode & 0o022:
        return [f"only root can write to {place}. Hint: chmod 1777 {place}, if users are to write there"]
    if not own and found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX:
        return [f"{place} is not sticky: users can remove each other's files. Hint: chmod +t {place}"]
    return []


def _open_once(root: str, path: str, handle: int) -> list[str]:
    """Give a directory that FSx made to all users, unless this was done before: then the site has closed it."""
    noted = Path(root, "config", OPENED)
    before = noted.read_text(encoding="utf-8").splitlines() if noted.is_file() else []
    if path in before:
        return []
    if not noted.parent.is_dir():
        return []
    fresh = noted.with_name(f"{OPENED}.new")
    fresh.write_text("".join(f"{one}\n" for one in [*before, path]), encoding="utf-8")
    os.fchmod(handle, 0o1777)
    fresh.replace(noted)
    print(f"slipway: {root}/{path} was root's alone (0755), as FSx makes the folder of an association: now 1777")
    return []


def lay_out(root: str, more: list[str]) -> tuple[list[str], list[str], dict[int, list[str]]]:
    """Make all of them. Returns what is in the way, warnings, and errno -> paths that could not be made."""
    conflicts: list[str] = []
    notes: list[str] = []
    refused: dict[int, list[str]] = {}
    there = ((path, 0o1777) for path in more if path and Path(root, path).is_dir())
    for path, mode in (*DIRECTORIES, *there):
        try:
            if make(root, path, mode):
                print(f"slipway: made {root}/{path}")
            notes += existing(root, path, mode)
        except Conflict as conflict:
            conflicts += [str(conflict)] if str(conflict) not in conflicts else []
        except OSError as error:
            above = path.partition("/")[0]
            if not any(above in paths for paths in refused.values()):  # what lies below says nothing new
                refused.setdefault(error.errno or 0, []).append(path)
    return conflicts, notes, refused


def main(arguments: list[str]) -> int:
    """Make all of them, one run at a time; return the exit code."""
    root = arguments[0]
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        conflicts, notes, refused = lay_out(root, [path.strip("/") for path in arguments[1:]])
    for text in notes:
        print(f"slipway: WARNING {text}")
    hints = ["move it away, or repair it, and run the set-up again"] if conflicts else []
    for number, paths in refused.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        conflicts.append(f"cannot make {root}/{paths[0]}{more}: {os.strerror(number)}")
        hints.append(HINTS.get(number, f"see 'ls -ld {root}/{paths[0]}' and 'dmesg' on this node"))
    for text in conflicts:
        print(f"slipway: {text}")
    if hints:
        print(f"slipway-hint: {'; '.join(hints)}")
    return 1 if conflicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
