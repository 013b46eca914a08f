"""Runs a node's custom actions as ParallelCluster does: from S3, as root, with their arguments, in bounded time.

All scripts are fetched before the first one runs, and each is started by the kernel, with no shell in between.
Source: aws-parallelcluster-cookbook, custom_action_executor.py.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rehearsal.hosts.errors import HostsError, NodeFailed
from rehearsal.hosts.host import Host

# ParallelCluster's bootstrap timeout: a node that is not done by then fails the creation of the cluster.
BOOTSTRAP_TIMEOUT_S = 2100.0
_TAIL_LINES = 20
_DIRECTORY = "/opt/parallelcluster/custom-actions"
_STARTS = (b"#!", b"\x7fELF")  # of what the kernel can run
_FAULT = re.compile(r"slipway: FAULT .*?\bstep=(?P<step>\S+)")


@dataclass(frozen=True)
class CustomAction:
    """One script of `CustomActions.OnNodeConfigured`: its s3:// address and its arguments."""

    script: str
    args: tuple[str, ...] = ()


def custom_actions(configuration: Mapping[str, Any], event: str = "OnNodeConfigured") -> list[CustomAction]:
    """The actions of a node's `CustomActions`, in order: one Script or a Sequence. HostsError: it has neither."""
    given = configuration.get(event)
    if not given:
        return []
    entries = given.get("Sequence", [given])
    actions = []
    for position, entry in enumerate(entries):
        script = entry.get("Script") if isinstance(entry, Mapping) else None
        if not script:
            raise HostsError(f"CustomActions.{event}[{position}] = {entry!r}: its Script is missing")
        actions.append(CustomAction(str(script), tuple(str(argument) for argument in entry.get("Args") or ())))
    return actions


def run_custom_actions(
    host: Host,
    configuration: Mapping[str, Any],
    s3: Any,
    on_line: Callable[[str], None],
    *,
    event: str = "OnNodeConfigured",
    timeout_s: float = BOOTSTRAP_TIMEOUT_S,
) -> None:
    """Fetch and run each action of one node for an event; every line it prints goes to `on_line`.

    configuration: the node's `CustomActions` of the cluster configuration; s3: a boto3 S3 client; timeout_s: for all
    actions together. NodeFailed: one could not be fetched, exited with another code than 0, or ran out of time.
    """
    deadline = time.monotonic() + min(timeout_s, BOOTSTRAP_TIMEOUT_S)
    actions = custom_actions(configuration, event)
    scripts = [fetch_script(host.name, action.script, s3) for action in actions]
    for position, (action, script) in enumerate(zip(actions, scripts, strict=True)):
        if not script.startswith(_STARTS):
            reason = "the kernel cannot run it (Exec format error): its first line is not #!INTERPRETER"
            raise NodeFailed(host.name, action.script, 1, None, [], reason)
        path = f"{_DIRECTORY}/{event}-{position}.sh"
        host.put(path, script, 0o700)
        _run(host, action, path, on_line, deadline - time.monotonic())


def fetch_script(host: str, address: str, s3: Any) -> bytes:
    """The script behind an s3:// address. Raises NodeFailed if it does not exist or is not in S3."""
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc or len(parts.path) < 2:
        raise NodeFailed(host, address, 1, None, [], "the script's address is not s3://BUCKET/KEY")
    try:
        body: bytes = s3.get_object(Bucket=parts.netloc, Key=parts.path[1:])["Body"].read()
    except Exception as error:
        raise NodeFailed(host, address, 1, None, [str(error)], "the script cannot be fetched") from error
    return body


def _environment(action: CustomAction) -> dict[str, str]:
    """What scripts of ParallelCluster 2 look at; the second is a bash array."""
    arguments = " ".join(f'"{argument}"' for argument in action.args)
    return {"cfn_postinstall": f'"{action.script}"', "cfn_postinstall_args": f"({arguments})"}


def _run(host: Host, action: CustomAction, path: str, on_line: Callable[[str], None], timeout_s: float) -> None:
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    step: list[str] = []

    def take(line: str) -> None:
        line = line.rstrip("\r")
        tail.append(line)
        if (fault := _FAULT.search(line)) is not None:
            step.append(fault["step"])
        on_line(line)

    done = host.stream([path, *action.args], take, env=_environment(action), timeout_s=max(timeout_s, 0.1))
    if done.ok:
        return
    reason = f"not done after {timeout_s:.0f} s" if done.timed_out else "a custom action failed"
    raise NodeFailed(host.name, action.script, done.rc, step[0] if step else None, list(tail), reason)
