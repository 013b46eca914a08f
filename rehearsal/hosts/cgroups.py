"""An own control group for every host, in every hierarchy of this machine.

The systemd of each host manages the control group it was started in. Without own groups, the systemds of all
hosts (and this machine's) would share one tree and end each other's services. Made for unified (v2), hybrid and v1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rehearsal.hosts.errors import MachineUnfit
from slipway.work_folder import GROUP_PREFIX

# A fleet that boots right now has empty groups too: only older ones are leftovers of runs that died.
LEFTOVER_AGE_S = 60.0
_SWEEP_DEPTH = 6
# cpuset (v1) takes no process before its CPUs are set, and systemd does not use it.
_UNUSED_CONTROLLERS = frozenset({"cpuset"})


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its root, this process's own group in it, its v1 controllers (empty: unified)."""

    root: Path
    own: Path
    controllers: frozenset[str]

    @property
    def unified(self) -> bool:
        """True for the v2 hierarchy."""
        return not self.controllers


def hierarchies(mountinfo: str | None = None, self_cgroup: str | None = None) -> list[Hierarchy]:
    """Every hierarchy mounted on this machine. MachineUnfit: none is, or it is read-only."""
    mountinfo = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    self_cgroup = Path("/proc/self/cgroup").read_text() if self_cgroup is None else self_cgroup
    own = _own_paths(self_cgroup)
    found: dict[frozenset[str], Hierarchy] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _source, options) = left.split(), right.split(maxsplit=2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset() if kind == "cgroup2" else _controllers(options)
        if controllers not in own or controllers & _UNUSED_CONTROLLERS:
            continue
        inside = os.path.relpath(own[controllers], fields[3])
        found[controllers] = Hierarchy(Path(fields[4]), Path(os.path.normpath(f"{fields[4]}/{inside}")), controllers)
    if not found:
        raise MachineUnfit("no control groups are mounted below /sys/fs/cgroup, and systemd in a host needs them")
    return list(found.values())


def _controllers(options: str) -> frozenset[str]:
    """The controllers among a v1 mount's super options (`rw,name=systemd`, `rw,cpu,cpuacct`)."""
    plain = {"rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "favordynmods", "nsdelegate"}
    return frozenset(
        option for option in options.split(",") if option not in plain and not option.startswith("release_agent=")
    )


def _own_paths(self_cgroup: str) -> dict[frozenset[str], str]:
    paths = {}
    for line in self_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths[frozenset(controllers.split(",")) if controllers else frozenset()] = path
    return paths


class Groups:
    """The control groups of one fleet: one a host and hierarchy, and one a running command."""

    def __init__(self, run_id: str) -> None:
        self.name = GROUP_PREFIX + run_id
        self._hierarchies = hierarchies()

    def make(self, host: str) -> list[Path]:
        """Make the groups of a host and return their directories."""
        made = []
        for hierarchy in self._hierarchies:
            directory = hierarchy.own / self.name / host
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise MachineUnfit(
                    f"{directory}: cannot make a control group ({error.strerror}). Hint: run as root on a "
                    "machine or container where /sys/fs/cgroup is writable"
                ) from error
            made.append(directory)
        return made

    def make_for_command(self, name: str) -> Path:
        """A group that holds one command and all it starts, so that a timeout can end the whole of it."""
        hierarchy = self._tracking()
        directory = hierarchy.own / self.name / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def remove(self, *, within_s: float = 5.0) -> None:
        """Remove every group of the fleet, ending what still runs in it."""
        self._remove([hierarchy.own / self.name for hierarchy in self._hierarchies], within_s)

    def remove_host(self, host: str, *, within_s: float = 5.0) -> None:
        """Remove the groups of one host and of the commands on it, ending what still runs in them."""
        fleets = [hierarchy.own / self.name for hierarchy in self._hierarchies]
        commands = [group for fleet in fleets for group in fleet.glob(f"{host}.*")]
        self._remove([*(fleet / host for fleet in fleets), *commands], within_s)

    @staticmethod
    def _remove(tops: Iterable[Path], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for top in tops:
            while not remove_tree(top) and time.monotonic() < deadline:
                kill(top)
                time.sleep(0.02)

    def _tracking(self) -> Hierarchy:
        """The hierarchy to follow processes with: the unified one, else systemd's."""
        return next(
            (h for h in self._hierarchies if h.unified),
            next((h for h in self._hierarchies if "name=systemd" in h.controllers), self._hierarchies[0]),
        )


def kill(top: Path, *, spare: int = 0) -> int:
    """Send SIGKILL to every process in a group and below but `spare`; returns to how many."""
    signalled = 0
    for directory in (*_below(top), top):
        with contextlib.suppress(OSError):
            for pid in map(int, (directory / "cgroup.procs").read_text().split()):
                if pid not in (0, spare):  # 0: a process of another PID namespace
                    signalled += 1
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    return signalled


def remove_tree(top: Path) -> bool:
    """Remove an empty group and the groups below it. False: a process is in one of them."""
    for directory in (*_below(top), top):
        with contextlib.suppress(FileNotFoundError):
            try:
                directory.rmdir()
            except OSError:
                return False
    return True


def _below(top: Path) -> Iterator[Path]:
    """The groups below `top`, the deepest first."""
    for current, names, _ in os.walk(top, topdown=False):
        for name in names:
            yield Path(current) / name


def sweep(trees: Iterable[Hierarchy] | None = None, older_than_s: float = LEFTOVER_AGE_S) -> list[Path]:
    """Remove the empty groups that killed runs left behind and return them; a running fleet's are never touched."""
    removed = []
    for hierarchy in hierarchies() if trees is None else trees:
        for top in _leftovers(hierarchy.root, older_than_s):
            if not _populated(top) and remove_tree(top):
                removed.append(top)
    return removed


def _leftovers(root: Path, older_than_s: float) -> list[Path]:
    found: list[Path] = []
    limit = time.time() - older_than_s
    for current, names, _ in os.walk(root):
        path = Path(current)
        if len(path.relative_to(root).parts) >= _SWEEP_DEPTH:
            names.clear()
        for name in [name for name in names if name.startswith(GROUP_PREFIX)]:
            names.remove(name)
            with contextlib.suppress(OSError):
                if (path / name).stat().st_mtime < limit:
                    found.append(path / name)
    return found


def _populated(top: Path) -> bool:
    for directory in (*_below(top), top):
        with contextlib.suppress(OSError):
            if (directory / "cgroup.procs").read_text().strip():
                return True
    return False
