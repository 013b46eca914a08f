"""One running host: commands, files and its end."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rehearsal.host_spec import Completed, HostSpec
from rehearsal.hosts import cgroups
from rehearsal.hosts.commands import LineCallback, communicate
from rehearsal.hosts.errors import HostsError
from rehearsal.hosts.image import PROFILE_PATH

_BASE_ENV = {"PATH": PROFILE_PATH, "HOME": "/root", "LANG": "C.UTF-8", "USER": "root", "LOGNAME": "root"}
# Put the shell itself into the control groups named first, then become the command.
ENTER_GROUPS = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1/cgroup.procs" || exit 96; shift; n=$((n-1)); done; exec "$@"'
)
_PUT = (
    'umask 022; mkdir -p "$(dirname "$1")" && umask 077'
    ' && cat >"$1.part" && chmod "$2" "$1.part" && mv -f "$1.part" "$1"'
)


def entering(groups: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """The command line that runs argv inside these control groups."""
    return ["/bin/sh", "-c", ENTER_GROUPS, "sh", str(len(groups)), *map(str, groups), *argv]


class Host:
    """A booted host. `leader` is the process id of its systemd, as the engine sees it."""

    def __init__(self, spec: HostSpec, leader: int, groups: cgroups.Groups, boot_s: float) -> None:
        self.spec = spec
        self.name = spec.name
        self.leader = leader
        self.boot_s = boot_s
        self._groups = groups
        self._serial = itertools.count(1)
        self._lock = threading.Lock()

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        stdin: bytes | None = None,
    ) -> Completed:
        """Run argv as root on the host; nothing of this machine's environment reaches it. Out of time: rc 124."""
        return self._run(argv, env, timeout_s, stdin, None)

    def stream(
        self,
        argv: Sequence[str],
        on_line: LineCallback,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        stdin: bytes | None = None,
    ) -> Completed:
        """As exec, both outputs as one, each line reported while the command runs."""
        return self._run(argv, env, timeout_s, stdin, on_line)

    def entrance(self) -> list[str]:
        """What is written before a command line to run it on this host, by a program in the engine's namespaces."""
        return entering([self._groups.make_for_command(f"{self.name}.shell")], self._enter())

    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"]

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file on the host in one step; missing directories are made. HostsError: it could not."""
        if not path.startswith("/"):
            raise ValueError(f"{path}: a path on a host starts with /")
        done = self.exec(["/bin/sh", "-c", _PUT, "sh", path, f"{mode:o}"], timeout_s=20, stdin=data)
        if not done.ok:
            raise HostsError(f"{self.name}:{path}: cannot write: {done.stderr.strip()}")

    def alive(self) -> bool:
        """True while the host's systemd runs."""
        try:
            stat = Path(f"/proc/{self.leader}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in ("Z", "X")

    def _run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        timeout_s: float,
        stdin: bytes | None,
        on_line: LineCallback | None,
    ) -> Completed:
        if not self.alive():
            raise HostsError(f"{self.name}: the host is not running")
        with self._lock:
            group = self._groups.make_for_command(f"{self.name}.command-{next(self._serial)}")
        try:
            return communicate(
                entering([group], [*self._enter(), *argv]),
                env={**_BASE_ENV, **(env or {})},
                timeout_s=timeout_s,
                stdin=stdin,
                on_line=on_line,
                on_timeout=lambda nsenter: _end(group, nsenter),
            )
        finally:
            cgroups.remove_tree(group)  # stays while a daemon of the command lives; the fleet's end removes it


def _end(group: Path, nsenter: int) -> None:
    """End all that a command started, also what left its session; nsenter stays to collect its child."""
    deadline = time.monotonic() + 5
    while cgroups.kill(group, spare=nsenter) and time.monotonic() < deadline:
        time.sleep(0.02)
