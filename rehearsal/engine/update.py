"""An update of a cluster, as far as the rehearsal takes one: ParallelCluster's own classes judge it.

`pcluster update-cluster` compares the current configuration with the wanted one, key by key, each under its
update policy; then it updates the head node and runs `OnNodeUpdated` there. Here the same classes compare, in
ParallelCluster's environment. Changes that give the hosts another shape (queues, mounts, Slurm) are not rehearsed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rehearsal.cloud_errors import ResourceFailed
from rehearsal.hosts import Host
from rehearsal.hosts.actions import run_custom_actions

COMPARE_TIMEOUT_S = 120
SUCCEEDED = "SUCCEEDED"
# Changes that need nothing on the local hosts but the run of OnNodeUpdated.
REHEARSED = ("HeadNode.CustomActions.OnNodeUpdated", "Tags", "Monitoring", "HeadNode.Iam", "HeadNode.Ssh")

# Reads [name, old, new, whether compute nodes run], prints {name: [[path, key, verdict, reason], ...]}.
COMPARE = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from pcluster.config.config_patch import ConfigPatch

class Cluster:
    name = stack_name = "cluster"
    def __init__(self, running): self.running = running
    def has_running_capacity(self, *_, **__): return self.running
    def has_running_login_nodes(self, *_, **__): return False

def rows(old, new, running):
    try:
        found = ConfigPatch(Cluster(running), old, new).check()[1][1:]
    except AttributeError as error:  # another MountDir while nodes run: ParallelCluster 3.16.1 breaks off
        return [["", "", "FAILED", str(error)]]
    return [[".".join(row[0]), row[1], row[4], row[5]] for row in found]

json.dump({name: rows(old, new, running) for name, old, new, running in json.load(sys.stdin)}, sys.stdout)
"""


class Change(NamedTuple):
    """One changed key of a configuration, and what ParallelCluster says of it."""

    path: str
    key: str
    verdict: str
    reason: str

    @property
    def is_allowed(self) -> bool:
        """Whether a running cluster takes it."""
        return self.verdict == SUCCEEDED

    @property
    def name(self) -> str:
        """`HeadNode.CustomActions.OnNodeUpdated.Args`."""
        return f"{self.path}.{self.key}" if self.path else self.key


class Pair(NamedTuple):
    """Two configurations to compare; `running`: whether compute nodes run."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    running: bool = True


def compare(pairs: Mapping[str, Pair], python: Path) -> dict[str, list[Change]]:
    """What changed in each pair, judged by the ParallelCluster of `python`'s environment.

    Raises RuntimeError when ParallelCluster cannot judge.
    """
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [str(python), "-c", COMPARE],
        input=json.dumps([[name, *pair] for name, pair in pairs.items()]),
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMPARE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"ParallelCluster could not compare two configurations: {done.stderr.strip()[-500:]}")
    return {name: [Change(*row) for row in rows] for name, rows in json.loads(done.stdout).items()}


def update(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    head: Host | None,
    s3: Any,
    on_line: Callable[[str], None],
    *,
    python: Path,
    timeout_s: float,
) -> Sequence[Change]:
    """Take the update from `old` to `new`: judge it, then run OnNodeUpdated on the head node (None: no host).

    Returns the changes; there may be none, as when CloudFormation takes an update back that was never made. Raises
    ResourceFailed for what ParallelCluster refuses or the rehearsal does not take, HostsError when the action fails.
    """
    changes = compare({"update": Pair(old, new)}, python)["update"]
    refused = [f"{change.name}: {change.reason}" for change in changes if not change.is_allowed]
    if refused:
        raise ResourceFailed(f"ParallelCluster refuses the update: {'; '.join(refused)}")
    beyond = sorted({change.name for change in changes if not change.name.startswith(REHEARSED)})
    if beyond:
        raise ResourceFailed(f"the rehearsal takes no update of {', '.join(beyond)}: run it anew to see the change")
    if changes and head is not None:
        actions = new["HeadNode"].get("CustomActions", {})
        run_custom_actions(head, actions, s3, on_line, event="OnNodeUpdated", timeout_s=timeout_s)
    return changes
