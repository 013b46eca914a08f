"""Injected breakages (`slipway rehearse FILE --break KIND`): each breaks a real part; none changes a verdict.

slow-node=NAME          that host's link carries SLOW_RATE_MBIT only
bootstrap=head          a step of the head node cannot write: the place is a read-only mount
bootstrap=compute       a step of one compute host refuses a value of the site
hang                    a step of one compute host waits for a shared file system that is not mounted

A dynamic host is broken each time it is started.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from rehearsal.hosts.errors import BreakageError, HostsError
from rehearsal.hosts.fleet import Fleet
from rehearsal.hosts.host import Host

SLOW_RATE_MBIT = 40.0
KINDS = ("slow-node", "bootstrap", "hang")
_ROLES = ("head", "compute")
# Where the head node's first steps, which stop its set-up when they fail, put the users' scripts.
_READ_ONLY_PLACE = "/fsx/scripts"
_LOCK_SCRIPT = 'mkdir -p "$1" && mount -t tmpfs -o ro,size=4k,mode=0755 rehearsal-fault "$1"'
# A value that the compute nodes' step 30-nccl refuses.
_BAD_VALUE_SCRIPT = 'mkdir -p "${1%/*}" && printf "NCCL_ENVIRONMENT=broken\\n" >>"$1"'
_SITE_ENV = "/etc/slipway/site.env"
# The compute nodes' first step waits for the shared file system.
_SHARED_FILES = "/fsx"


@dataclass(frozen=True)
class Breakage:
    """One parsed `--break`: its kind and, where it has one, its target (a node's name or its end, or a role)."""

    kind: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.kind}={self.target}" if self.target else self.kind

    def name_of_host(self, head: str, static: Sequence[str], dynamic: Sequence[str] = ()) -> str:
        """The host that it is for; where none is named, the last static one, else the first dynamic one.

        BreakageError, HostsError: there is no such host.
        """
        if self.kind == "slow-node":
            return match_name([*static, *dynamic], self.target)
        if self.target == "head":
            return head
        if not static and not dynamic:
            raise HostsError("--break is for a compute host, and this cluster has none")
        return static[-1] if static else dynamic[0]

    def inject_into(self, host: Host, fleet: Fleet) -> None:
        """Break it on this host, before its setup runs."""
        if self.kind == "slow-node":
            fleet.throttle(host, SLOW_RATE_MBIT)
        elif self.target == "head":
            _must(host, ["/bin/sh", "-c", _LOCK_SCRIPT, "sh", _READ_ONLY_PLACE])
        elif self.kind == "bootstrap":
            _must(host, ["/bin/sh", "-c", _BAD_VALUE_SCRIPT, "sh", _SITE_ENV])
        else:
            _must(host, ["umount", "--lazy", _SHARED_FILES])


def parse_breakage(text: str) -> Breakage:
    """`slow-node=gpu-3` -> Breakage. BreakageError: no such kind, or a bad target."""
    kind, equals, target = text.partition("=")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BreakageError(f"--break {text}: no such kind.{hint} Known: slow-node=NAME, bootstrap=head|compute, hang")
    if kind == "hang" and equals:
        raise BreakageError(f"--break {text}: hang takes no value")
    if kind == "slow-node" and not target:
        raise BreakageError(f"--break {text}: which node? For example --break slow-node=gpu-3")
    if kind == "bootstrap" and target not in _ROLES:
        raise BreakageError(f"--break {text}: bootstrap takes head or compute, not {target or 'nothing'}")
    return Breakage(kind, target)


def match_name(names: list[str], wanted: str) -> str:
    """The one of this name, or the only one that ends in it after a hyphen. BreakageError: none or several."""
    found = [name for name in names if name == wanted] or [name for name in names if name.endswith(f"-{wanted}")]
    if len(found) == 1:
        return found[0]
    reason = "several nodes are meant" if found else "no such node"
    raise BreakageError(f"--break slow-node={wanted}: {reason}. Nodes: {', '.join(found or names)}")


def _must(host: Host, argv: list[str]) -> None:
    done = host.exec(argv, timeout_s=20)
    if not done.ok:
        raise HostsError(f"{host.name}: the breakage cannot be made: {done.stderr.strip()}")
