"""Clusters that `slipway rehearse --keep` left running: their names, a shell in them, and their end.

Each has a file `NAME.json` in FOLDER, which is locked while its keeper, a process of `slipway rehearse`, lives. A file
without a lock is what a killed keeper left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from slipway.errors import EXIT_GOOD, EnvironmentFault, SlipwayError, UsageError
from slipway.machine import search_path
from slipway.text import visible

FOLDER = Path("/run/slipway/kept")
HOSTS_FILE = "hosts.json"
"""In the work folder of a rehearsal: the engine keeps the cluster, and writes how each running host is entered."""
DEFAULT_HOURS = 2.0
END_LIMIT_S = 90.0
GONE_LIMIT_S = 2.0
SIGNAL_CODE = 128  # and the number of the signal, as shells count a command that a signal ended
POLL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Kept:
    """A kept cluster. `keeper` and `engine` are process ids of this machine, `until` is in seconds since 1970."""

    name: str
    keeper: int
    engine: int
    until: float
    work: str


def local_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as a person on this machine writes it."""
    return f"{datetime.datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M %Z}"


# ---- the register ----


@contextlib.contextmanager
def reserved(name: str) -> Iterator[IO[str]]:
    """Hold the name of a cluster: its file, locked and empty. Raises UsageError if a cluster of this name is kept."""
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = FOLDER / f"{name}.json"
    while True:
        with path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(_taken(name, path)) from None
            if not _is_at(file, path):
                continue  # a keeper that ended removed the file before this process had its lock
            file.truncate(0)
            try:
                yield file
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def register(file: IO[str], kept: Kept) -> None:
    """Write what is kept into the file of its name."""
    file.write(json.dumps(dataclasses.asdict(kept)))
    file.flush()


def _taken(name: str, path: Path) -> str:
    kept = _read(path)
    if kept:
        return f"a cluster {name} is kept until {local_time(kept.until)}. Hint: slipway rehearse --end {name}"
    return f"a cluster {name} is being rehearsed with --keep. Hint: wait for its verdict, or end that command"


def _read(path: Path) -> Kept | None:
    """Return what a locked file says; None while the cluster is not there yet. A file without a lock is removed."""
    try:
        with path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read()
                return Kept(**json.loads(text)) if text else None
            if _is_at(file, path):
                path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    return None


def _all_kept() -> dict[str, Kept]:
    try:
        entries = {path.stem: _read(path) for path in sorted(FOLDER.glob("*.json"))}
    except PermissionError:
        raise EnvironmentFault(f"{FOLDER}: only root may enter a kept cluster. Hint: sudo slipway ...") from None
    return {name: kept for name, kept in entries.items() if kept}


def _find(name: str | None) -> Kept:
    """Return the kept cluster of this name, or the only one. Raises UsageError."""
    if os.geteuid() != 0:
        raise EnvironmentFault("a kept cluster needs root, as its rehearsal did. Hint: run it with sudo")
    kept = _all_kept()
    names = ", ".join(kept)
    if not kept:
        raise UsageError("no cluster is kept on this machine. Hint: slipway rehearse FILE --keep")
    if name is None and len(kept) > 1:
        raise UsageError(f"several clusters are kept: {names}. Hint: --cluster {min(kept)}")
    if name is not None and name not in kept:
        raise UsageError(f"no cluster {visible(name)} is kept. Hint: kept on this machine: {names}")
    return kept[name] if name is not None else next(iter(kept.values()))


# ---- commands ----


def end(name: str, *, as_json: bool = False) -> int:
    """End a kept cluster and wait until nothing of it is left. Raises UsageError, or SlipwayError if it goes on."""
    kept = _find(name)
    with contextlib.suppress(ProcessLookupError):
        os.kill(kept.keeper, signal.SIGTERM)
    deadline = time.monotonic() + END_LIMIT_S
    while _read(FOLDER / f"{name}.json"):
        if time.monotonic() > deadline:
            raise SlipwayError(
                f"{name}: process {kept.keeper} has not ended it in {END_LIMIT_S:.0f} s. Hint: kill -9 {kept.keeper}"
            )
        time.sleep(POLL_S)
    print(json.dumps({"ended": name}) if as_json else f"ended: {name}")
    print("[RESULT] SUCCESS", file=sys.stderr if as_json else sys.stdout)
    return EXIT_GOOD


def shell(node: str | None = None, command: Sequence[str] = (), *, cluster: str | None = None) -> int:
    """Run a shell, or a command, as the cluster's user on a node of a kept cluster; returns its exit code.

    Raises UsageError if no cluster is kept, or if no such node runs, and EnvironmentFault if the cluster ends.
    """
    kept = _find(cluster)
    try:
        hosts = json.loads((Path(kept.work) / HOSTS_FILE).read_text(encoding="utf-8"))
        name = _node(node or hosts["head"], list(hosts["enter"]), kept.name)
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        login = login_command(hosts["user"], command, has_terminal=has_terminal)
        code = enter(kept.engine, [*hosts["enter"][name], *login])
    except (FileNotFoundError, IndexError):  # its work folder or its processes are gone
        code = -signal.SIGKILL
    if code != EXIT_GOOD and _has_ended(kept, wait=code < 0):
        raise EnvironmentFault(f"the cluster {kept.name} has ended")
    return code if code >= 0 else SIGNAL_CODE - code


def _has_ended(kept: Kept, *, wait: bool) -> bool:
    """Whether the cluster ends or has ended; `wait`: its processes may be about to."""
    deadline = time.monotonic() + (GONE_LIMIT_S if wait else 0.0)
    while True:
        if not ((Path(kept.work) / HOSTS_FILE).exists() and Path(f"/proc/{kept.engine}").exists()):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)


def _node(wanted: str, names: list[str], cluster: str) -> str:
    """Return the name of the node that is called `wanted`, or the only one whose name ends so."""
    fitting = [name for name in names if name == wanted] or [name for name in names if name.endswith(f"-{wanted}")]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{wanted}: several nodes of {cluster} end so: {', '.join(fitting)}. Hint: the whole name")
    raise UsageError(
        f"{visible(wanted)}: no such node runs in {cluster}. Hint: running: {', '.join(names)}; "
        "a node that starts for jobs runs while a job needs it"
    )


def login_command(user: str, command: Sequence[str] = (), *, has_terminal: bool = True) -> list[str]:
    """Return the command line of a login shell, which runs `command` if it has words.

    `script` gives it a terminal of its host, which job control and `sudo` need.
    """
    login = ["su", "-", user, *(["-c", shlex.join(command)] if command else [])]
    return ["script", "--quiet", "--return", "--command", shlex.join(login), "/dev/null"] if has_terminal else login


def enter(engine: int, command: Sequence[str]) -> int:
    """Run a command in the namespaces of `engine`, a process `unshare`, and return its exit code."""
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text(encoding="ascii").split()
    into = ["nsenter", "--target", children[0], "--mount", "--pid", "--net", "--ipc", "--uts", "--"]
    # Ctrl-C belongs to what runs in the shell. Not SIG_IGN: the shell's programs would inherit that.
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    environment: dict[str, Any] = {"PATH": search_path(), "TERM": os.environ.get("TERM", "")}
    try:
        return subprocess.run([*into, *command], env=environment, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, previous)
