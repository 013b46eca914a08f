"""What ParallelCluster's daemon clustermgtd does for Slurm, done by the engine: its commands, log and protected mode.

Compared with aws-parallelcluster-node, src/slurm_plugin/clustermgtd.py (develop, 2024-10-14): a queue with
`protected_failure_count` failed set-ups gets an INACTIVE partition, and the fleet's status becomes PROTECTED.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from typing import Protocol

from rehearsal.engine.configuration import Node
from rehearsal.engine.instances import Instance
from rehearsal.engine.progress import Progress
from rehearsal.hosts import Fleet, Host, HostsError
from rehearsal.hosts.image import FLEET_STATUS

PROTECTED_FAILURES = 3
"""Failed set-ups of a queue after which it is switched off; ParallelCluster's protected_failure_count is 10."""
LOG = "/var/log/parallelcluster/clustermgtd"
SLURM_TRIES_S = 30.0  # slurmctld may be starting anew
SLURM_PAUSE_S = 1.0
SCONTROL_TIMEOUT_S = 20.0
_APPEND = 'mkdir -p "${1%/*}" && cat >>"$1"'


class Cluster(Protocol):
    """What a node needs from its cluster."""

    def launch(self, node: Node) -> Instance:
        """Start an instance for a node. Raises LaunchFailed if EC2 has none."""

    def terminate(self, instance: Instance) -> None:
        """End an instance."""

    def set_up(self, host: Host, node: Node) -> None:
        """Make a compute node of a booted host by the queue's custom actions. Raises HostsError."""

    def keep_log(self, host: Host) -> None:
        """Save the logs of a host that is about to end."""


class Clustermgtd:
    """The daemon of one cluster. `failures` has a line for each node whose set-up failed."""

    def __init__(self, fleet: Fleet, progress: Progress) -> None:
        self._fleet = fleet
        self._progress = progress
        self._failed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.stopping = False
        self.failures: list[str] = []

    def update(self, *update: str) -> None:
        """`scontrol update` on the head node, again for a while where slurmctld does not answer."""
        until = time.monotonic() + SLURM_TRIES_S
        with contextlib.suppress(HostsError):  # the head node ended
            while not self.stopping:
                done = self._fleet.head.exec(["scontrol", "update", *update], timeout_s=SCONTROL_TIMEOUT_S)
                if done.ok:
                    return
                if time.monotonic() > until:
                    self._progress.say(f"scontrol update {' '.join(update)}: {done.stderr.strip()}", "red")
                    return
                time.sleep(SLURM_PAUSE_S)

    def count_failure(self, queue: str, reason: str) -> None:
        """Count a failed set-up of a node of `queue`; after several the queue is switched off."""
        with self._lock:
            if reason not in self.failures:
                self.failures.append(reason)
            self._failed[queue] += 1
            if self._failed[queue] != PROTECTED_FAILURES:
                return
        self._progress.say(f"queue {queue}: {PROTECTED_FAILURES} nodes failed, its partition is INACTIVE", "red")
        self.update(f"partitionname={queue}", "state=inactive")
        status = {
            "lastStatusUpdatedTime": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            "status": "PROTECTED",
        }
        self._write(FLEET_STATUS, f"{json.dumps(status)}\n", 'cat >"$1"')

    def log(self, text: str) -> None:
        """Append a line to the daemon's log on the head node, in the form of its logging configuration."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S,000", time.gmtime())
        self._write(LOG, f"{stamp} - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - {text}\n", _APPEND)

    def _write(self, path: str, text: str, script: str) -> None:
        with contextlib.suppress(HostsError):
            command = ["/bin/sh", "-c", script, "sh", path]
            self._fleet.head.exec(command, timeout_s=SCONTROL_TIMEOUT_S, stdin=text.encode())
