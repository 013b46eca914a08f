"""Injected breakages (`slipway rehearse FILE --break KIND`): each breaks a real part; none changes a verdict.

slow-node=NAME          that host's link carries SLOW_RATE_MBIT only
bootstrap=head          a step of the head node cannot write: the place is a read-only mount
bootstrap=compute       a step of one compute host refuses a value of the site
hang                    a step of one compute host waits for a shared file system that is not mounted

A dynamic host is broken each time it is started.
"""

from __future__ import annotations

from rehearsal.hosts.errors import HostsError
from rehearsal.hosts.fleet import Fleet
from rehearsal.hosts.host import Host
from slipway.breakage import Breakage

SLOW_RATE_MBIT = 40.0
# Where the head node's first steps, which stop its set-up when they fail, put the users' scripts.
_READ_ONLY_PLACE = "/fsx/scripts"
_LOCK_SCRIPT = 'mkdir -p "$1" && mount -t tmpfs -o ro,size=4k,mode=0755 rehearsal-fault "$1"'
# A value that the compute nodes' step 30-nccl refuses.
_BAD_VALUE_SCRIPT = 'mkdir -p "${1%/*}" && printf "NCCL_ENVIRONMENT=broken\\n" >>"$1"'
_SITE_ENV = "/etc/slipway/site.env"
# The compute nodes' first step waits for the shared file system.
_SHARED_FILES = "/fsx"


def inject(breakage: Breakage, host: Host, fleet: Fleet) -> None:
    """Break it on this host, before its set-up runs."""
    if breakage.kind == "slow-node":
        fleet.throttle(host, SLOW_RATE_MBIT)
    elif breakage.target == "head":
        _must(host, ["/bin/sh", "-c", _LOCK_SCRIPT, "sh", _READ_ONLY_PLACE])
    elif breakage.kind == "bootstrap":
        _must(host, ["/bin/sh", "-c", _BAD_VALUE_SCRIPT, "sh", _SITE_ENV])
    else:
        _must(host, ["umount", "--lazy", _SHARED_FILES])


def _must(host: Host, argv: list[str]) -> None:
    done = host.exec(argv, timeout_s=20)
    if not done.ok:
        raise HostsError(f"{host.name}: the breakage cannot be made: {done.stderr.strip()}")
