"""Kills scripts at their commands, runs them again and compares; runs inside a test host (Python 3.9, stdlib).

Usage: ``sweep.py PLAN``; PLAN is a JSON file of test_kill_sweep.py::plan. For each script, one JSON line on standard
output: how many commands it has, how many kills were made, and the faults.

A script first runs undisturbed, and bash lists each command before it runs it (DEBUG trap). Then, for each chosen command, everything is put back, the script runs until just before that
command, all its processes are killed at once, and it runs again to the end. Two things must hold: after the kill every
file is as before or as at the end, never between; after the second run all is as at the end of an undisturbed one.
Then the script runs once more on its own end, which must change nothing, and, where `at_once` says so, twice at once.
If files differ after all this, the script runs undisturbed again: what differs between the two ends is noise, no fault.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOTS = (
    *("/etc", "/fsx", "/opt/slipway", "/opt/slurm", "/usr/local"),
    *("/var/cache/slipway", "/var/lib/enroot", "/var/lib/prometheus", "/var/lib/slipway"),
)
# What this machine has installed itself, thousands of files: no script writes there.
IMAGE = re.compile(r"/usr/local/(cuda|lib/python3|share/)")
# What a run writes for itself: records, logs, states with the time of day; and what units in the background write.
OWN = re.compile(
    r"/fsx/logs/|/var/lib/slipway/(steps|background)/|/var/lib/slipway/\w+\.json$|/etc/prometheus/targets/"
    r"|/var/lib/slipway/(steps|background)$|/var/lib/prometheus/slipway/|/etc/\.pwd\.lock$|\.lock$"
    r"|/etc/(passwd|group|shadow|gshadow)-$|__pycache__"
)
# Names of files on their way to their place; at the end none may be left.
ON_THE_WAY = re.compile(r"/\.|\.(slipway-)?new$|[+-]$")
COPY_LIMIT_BYTES = 8 << 20  # larger files are programs: none of the scripts changes one in place
RUN_TIMEOUT_S = 120
PIPE_FD = 200
BACKUP = Path("/run/sweep")
LIST = r"""trap 'printf "%s\t%s\t%s\0" "${BASH_SOURCE[0]-}" "$LINENO" "$BASH_COMMAND" >&200' DEBUG"""
KILL = r"""trap '[[ "${BASH_SOURCE[0]-}:$LINENO:$BASH_COMMAND" != "$SWEEP_KILL" ]] || { printf x >&200; kill -KILL 0; }' DEBUG"""

# Commands that change no file: a kill before one is a kill before the next command that may change one.
CHANGES_NOTHING = re.compile(
    r"(?!.*[$`<>]\()(\[|\[\[|\(\(|local|declare|readonly|return|exit|shift|true|:|\w+=[^$`]*$)(\s|$)|\w+=[^$`\s]*$"
)

Facts = tuple[str, int, int, int, str]  # kind, mode, owner, group, content's hash or link's target
State = dict[str, Facts]
Point = tuple[str, str, str]  # file, line, command
_hashes: dict[tuple[int, int, int, int], str] = {}


def content(path: str, found: os.stat_result) -> str:
    """The hash of a file's content, remembered while the file stays the same."""
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    if key not in _hashes:
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        _hashes[key] = digest
        saved = BACKUP / digest
        if found.st_size <= COPY_LIMIT_BYTES and not saved.exists():
            shutil.copyfile(path, saved)
    return _hashes[key]


def facts(path: str, status: os.stat_result) -> Facts:
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    if kind == stat.S_IFREG:
        return ("file", mode, status.st_uid, status.st_gid, content(path, status))
    if kind == stat.S_IFLNK:
        return ("link", 0, status.st_uid, status.st_gid, os.readlink(path))  # noqa: PTH115 (a Path each is slow)
    return ("directory" if kind == stat.S_IFDIR else "other", mode, status.st_uid, status.st_gid, "")


def capture() -> State:
    """Everything below the roots; a path that goes away meanwhile is left out."""
    state: State = {}
    folders = list(ROOTS)
    for folder in folders:  # which grows
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            state[folder] = facts(folder, os.lstat(folder))
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not IMAGE.match(entry.path):
                        folders.append(entry.path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        state[entry.path] = facts(entry.path, entry.stat(follow_symlinks=False))
    return state


def remove(path: str) -> None:
    if Path(path).is_dir() and not Path(path).is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def restore(base: State) -> None:
    """Put every path below the roots back to what it was; systemd reads its files anew where one of them changed."""
    now = capture()
    changed = sorted(path for path in now.keys() | base.keys() if now.get(path) != base.get(path))
    for path in changed:
        if path in now and (path not in base or now[path][0] != base[path][0]):
            remove(path)
    for path in changed:
        if path not in base:
            continue
        kind, mode, owner, group, detail = base[path]
        if kind == "directory":
            Path(path).mkdir(exist_ok=True)
        elif kind == "link":
            remove(path)
            Path(path).symlink_to(detail)
        elif kind == "file":
            shutil.copyfile(BACKUP / detail, path)
        os.chown(path, owner, group, follow_symlinks=False)
        if kind != "link":
            Path(path).chmod(mode)
    if any(path.startswith("/etc/systemd/") for path in changed):
        subprocess.run(["systemctl", "daemon-reload"], check=True)


def units(*states: str) -> set[str]:
    """Slipway's units that are active, becoming so, or in one of `states`."""
    wanted = ",".join(("active", "activating", *states))
    command = ["systemctl", "list-units", "--plain", "--no-legend", f"--state={wanted}", "slipway-*"]
    return {
        line.split()[0]
        for line in subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    }


def restore_units(wanted: set[str]) -> None:
    extra = sorted(units("failed") - wanted)
    if extra:
        subprocess.run(["systemctl", "kill", "--signal=KILL", *extra], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["systemctl", "stop", *extra], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["systemctl", "reset-failed", "slipway-*"], check=False, stderr=subprocess.DEVNULL)


def session(leader: int) -> list[int]:
    """The processes of the session that `leader` began."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(folder.name))
    return found


def start(script: dict[str, Any], env: dict[str, str], output: str, **more: Any) -> subprocess.Popen[bytes]:
    """The script as the leader of a session of its own; what it prints goes to a file of BACKUP."""
    with (BACKUP / output).open("wb") as to:
        return subprocess.Popen(
            script["argv"], env=env, stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True, **more
        )


class Run:
    """One run of a script under a DEBUG trap: whether it ended, its exit code, what the trap wrote, what it printed."""

    def __init__(self, script: dict[str, Any], trap: str = "", kill: str = "") -> None:
        trapped = BACKUP / "env.sh"
        # A bash whose parent closed the pipe has no reader.
        trapped.write_text(f"if {{ : >&200; }} 2>/dev/null; then\nset -o functrace\n{trap}\nfi\n" if trap else "")
        read_end, write_end = os.pipe()
        os.dup2(write_end, PIPE_FD, inheritable=True)
        os.close(write_end)
        env = {**os.environ, "BASH_ENV": str(trapped), "SWEEP_KILL": kill}
        self._process = start(script, env, "output", pass_fds=[PIPE_FD])
        os.close(PIPE_FD)
        self.told = b""
        self.killed = False
        self._follow(read_end, stop_when_told=bool(kill))
        self.code = self._process.wait()
        self._read(read_end)
        os.close(read_end)
        self.output = (BACKUP / "output").read_text(errors="replace")[-1500:]

    def _follow(self, pipe: int, *, stop_when_told: bool) -> None:
        """Until it ended, or the trap said that it is there. A service it left behind may keep the pipe open."""
        os.set_blocking(pipe, False)
        ended = os.pidfd_open(self._process.pid)
        watched = [pipe, ended]
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while ended in watched and time.monotonic() < deadline and not self.killed:
            ready, _, _ = select.select(watched, [], [], 1)
            if pipe in ready and not self._read(pipe):
                watched.remove(pipe)
            if ended in ready:
                watched.remove(ended)
            self.killed = stop_when_told and bool(self.told)
        os.close(ended)
        if self.killed or self._process.poll() is None:
            self._kill_all()

    def _read(self, pipe: int) -> bool:
        """Take all that is there. False: every writer closed it."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(pipe, 1 << 20):
                self.told += chunk
            return False
        return True

    def _kill_all(self) -> None:
        while left := [pid for pid in session(self._process.pid) if _alive(pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
            self._process.poll()


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def points(listing: bytes, names: list[str]) -> list[Point]:
    """Each distinct command of the scripts of these names in a listing, in the order of its first run."""
    seen: dict[Point, None] = {}
    for entry in listing.split(b"\0"):
        cells = entry.decode(errors="replace").split("\t", 2)
        # Several processes write at once: a command over several lines may have become torn.
        if len(cells) == 3 and Path(cells[0]).name in names and cells[1].isdigit():
            seen[cells[0], cells[1], cells[2]] = None
    return list(seen)


def choose(found: list[Point], most: int, seed: int) -> list[Point]:
    """At most `most` of them (0: all), spread over the run, which ones by `seed`."""
    if not most or len(found) <= most:
        return found
    step = len(found) / most
    shift = random.Random(seed).random()  # noqa: S311  (a choice that must repeat)
    return [found[int((number + shift) * step)] for number in range(most)]


def differences(expected: State, found: State) -> list[tuple[str, str]]:
    """The paths that differ, each with how it differs."""
    return [
        (path, f"{path}: {found.get(path, 'is not there')}, undisturbed {expected.get(path, 'is not there')}")
        for path in sorted(expected.keys() | found.keys())
        if expected.get(path) != found.get(path) and not OWN.search(path)
    ]


class Sweep:
    """The sweep of one script from the state that is there now; leaves its end state."""

    def __init__(self, script: dict[str, Any], seen: set[Point], plan: dict[str, Any]) -> None:
        self.script, self.seen, self.plan = script, seen, plan
        self.base, self.base_units = capture(), units()
        self.loose = re.compile(script.get("loose") or "$^")
        self.varies = re.compile(script.get("varies") or "$^")
        self.end: State = {}
        self.faults: list[tuple[str, str]] = []  # the path, empty for a run that failed, and the message

    def run(self) -> dict[str, Any]:
        """Everything of the head of this file; name, commands, kills and faults."""
        first = Run(self.script, LIST)
        self.end = self._capture()
        if first.code != 0:
            return self._result(0, 0, [f"undisturbed it ended with {first.code}: {first.output}"])
        found = points(first.told, self.plan["names"])
        chosen = self._choose(found)
        for point in chosen:
            self._kill_at(point)
        self._judge("run again", Run(self.script))
        if self.script.get("at_once"):
            self._two_at_once()
        noise = self._noise() if any(path for path, _ in self.faults) else set()
        return self._result(len(found), len(chosen), [text for path, text in self.faults if path not in noise])

    def _noise(self) -> set[str]:
        """The paths that differ between the ends of two undisturbed runs."""
        self._back()
        Run(self.script)
        again = self._capture()
        return {path for path in self.end.keys() | again.keys() if self.end.get(path) != again.get(path)}

    def _choose(self, found: list[Point]) -> list[Point]:
        """Of the script and what is its own, and of nodes/lib what no script before has shown."""
        shared = [point for point in found if "/nodes/lib/" in point[0]]
        own = [point for point in found if point not in shared]
        if self.plan["own"]:
            own = [point for point in own if not CHANGES_NOTHING.match(point[2])]
        fresh = [point for point in shared if point not in self.seen]
        self.seen.update(fresh)
        most = self.script.get("most", self.plan["own"]) if self.plan["own"] else 0
        return choose(own, most, self.plan["seed"]) + choose(fresh, self.plan["shared"], self.plan["seed"])

    def _capture(self) -> State:
        """As capture, without the content of what is never the same twice."""
        if not self.script.get("varies"):
            return capture()
        return {path: (*found[:4], "") if self.varies.search(path) else found for path, found in capture().items()}  # type: ignore[return-value,unused-ignore]

    def _result(self, commands: int, kills: int, faults: list[str]) -> dict[str, Any]:
        return {"name": self.script["name"], "commands": commands, "kills": kills, "faults": faults}

    def _back(self) -> None:
        restore_units(self.base_units)
        restore(self.base)

    def _kill_at(self, point: Point) -> None:
        where = f"killed before {':'.join(point)}"
        self._back()
        killed = Run(self.script, KILL, ":".join(point))
        if not killed.killed:
            return  # a command that this run did not come to: a loop or a wait that ended sooner
        self.faults += [(path, f"{where}: half: {fault}") for path, fault in self._halves(self._capture())]
        self._judge(f"{where}: then", Run(self.script))

    def _judge(self, where: str, run: Run) -> None:
        if run.code != 0:
            self.faults.append(("", f"{where} it ended with {run.code}: {run.output}"))
        self.faults += [(path, f"{where} {fault}") for path, fault in differences(self.end, self._capture())]

    def _halves(self, found: State) -> list[tuple[str, str]]:
        """Paths that are neither as before nor as at the end."""
        faults = []
        for path, now in found.items():
            before, end = self.base.get(path), self.end.get(path)
            if now in (before, end):
                continue
            if not any(free.search(path) for free in (ON_THE_WAY, OWN, self.loose, self.varies)):
                faults.append((path, f"{path}: {now}, before {before}, at the end {end}"))
        return faults

    def _two_at_once(self) -> None:
        self._back()
        env = {**os.environ, "BASH_ENV": ""}
        running = [start(self.script, env, f"output-{number}") for number in range(2)]
        for number, process in enumerate(running):
            if (code := process.wait(timeout=RUN_TIMEOUT_S)) != 0:
                output = (BACKUP / f"output-{number}").read_text(errors="replace")[-1500:]
                self.faults.append(("", f"two at once: one ended with {code}: {output}"))
        self.faults += [(path, f"two at once: {fault}") for path, fault in differences(self.end, self._capture())]


def main(file: str) -> None:
    """Sweep the scripts of a plan one after another; `reset` puts the beginning back before a script."""
    plan = json.loads(Path(file).read_text())
    BACKUP.mkdir(exist_ok=True)
    begin, begin_units = capture(), units()
    seen: set[Point] = set()
    for script in plan["scripts"]:
        if script.get("reset"):
            restore_units(begin_units)
            restore(begin)
        if script.get("before"):
            subprocess.run(["bash", "-c", script["before"]], check=True, stdout=subprocess.DEVNULL)
        started = time.monotonic()
        result = Sweep(script, seen, plan).run()
        print(json.dumps({**result, "seconds": round(time.monotonic() - started, 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
