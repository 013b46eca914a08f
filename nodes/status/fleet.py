"""The fleet as the head node sees it: Slurm's nodes and partitions, ParallelCluster's status of it, its launches.

Reads only, in bounded time. Sources: `sinfo`; get-compute-fleet-status.sh and the log of clustermgtd, which
ParallelCluster puts on its head node (aws-parallelcluster-cookbook, aws-parallelcluster-node, read 2026-11-28).
"""

from __future__ import annotations

import ast
import datetime
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FLEET_STATUS = "/usr/local/bin/get-compute-fleet-status.sh"
CLUSTERMGTD_LOG = Path("/var/log/parallelcluster/clustermgtd")
UPTIME = Path("/proc/uptime")
LOG_BYTES = 8 << 20  # clustermgtd writes about 2 KiB a minute: 24 hours are 3 MiB
DAY_S = 86_400.0
TEXT = 300  # characters of a reason
# "2026-11-28 16:00:00,123 - [...] - INFO - Found the following unhealthy static nodes: (x1) ['a(10.0.0.1)']"
UNHEALTHY = re.compile(r"^(\S+ \S+),\d+ .*Found the following unhealthy static nodes: \(x\d+\) (\[.*\])$")
DRAINS = re.compile(r"slipway-drains=([0-9,]+)")

Ask = Callable[..., Iterable[str]]
"""Runs a command and returns its lines; raises OSError or SubprocessError."""


def nodes_and_partitions(ask: Ask, now: float) -> dict[str, Any]:
    """Each node with state, reason and the reason's age in seconds; each partition's availability."""
    nodes: dict[str, dict[str, Any]] = {}
    partitions: dict[str, str] = {}
    for line in ask("sinfo", "--noheader", "--Node", "--format=%N|%P|%T|%a|%H|%E"):
        name, partition, state, available, since, reason = (*line.split("|", 5), "", "", "", "", "")[:6]
        partition = partition.rstrip("*")
        partitions[partition] = available
        nodes.setdefault(name, {"name": name, "partition": partition, "state": state})
        if reason not in ("", "none"):
            nodes[name] |= {"reason": reason[:TEXT], "reason_age_s": _age(since, now)}
    return {"nodes": list(nodes.values()), "partitions": partitions}


def _age(since: str, now: float) -> float | None:
    """Seconds since a time that sinfo prints in the machine's own time zone."""
    try:
        return round(now - datetime.datetime.fromisoformat(since).timestamp())
    except ValueError:
        return None


def drains(ask: Ask, now: float) -> dict[str, int]:
    """How often Slipway's health checks drained each node in the last 24 hours, from the nodes' comments."""
    counts: Counter[str] = Counter()
    seen = set()
    for line in ask("sinfo", "--noheader", "--Node", "--Format=NodeList:256,Comment:1024"):
        name, _, comment = line.strip().partition(" ")
        match = DRAINS.search(comment)
        if match and name not in seen:
            seen.add(name)  # a node is listed once for each of its partitions
            counts[name] = sum(now - float(word) <= DAY_S for word in match[1].split(",") if word)
    return {name: count for name, count in counts.items() if count}


def status(ask: Ask) -> str:
    """ParallelCluster's status of the fleet (RUNNING, PROTECTED, STOPPED ...); empty when it does not say."""
    try:
        return str(json.loads("\n".join(ask(FLEET_STATUS)))["status"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return ""


def launches(now: float) -> dict[str, int]:
    """How often ParallelCluster launched the machine of each static node in the last 24 hours, by clustermgtd's log."""
    counts: Counter[str] = Counter()
    try:
        with CLUSTERMGTD_LOG.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LOG_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return {}
    for match in map(UNHEALTHY.match, text.splitlines()):
        if match and _is_recent(match[1], now):
            counts.update(_names(match[2]))
    return dict(counts)


def _is_recent(stamp: str, now: float) -> bool:
    try:
        written = datetime.datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").timestamp()
    except ValueError:
        return False
    return now - written <= DAY_S


def _names(listed: str) -> list[str]:
    """The names in `['train-st-p5-1(10.0.0.5)', ...]`."""
    try:
        return [str(one).partition("(")[0] for one in ast.literal_eval(listed)]
    except (ValueError, SyntaxError):
        return []


def uptime() -> float | None:
    """Seconds since this machine booted."""
    try:
        return float(UPTIME.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def read(ask: Ask) -> dict[str, Any]:
    """Everything of the above. Raises OSError or SubprocessError when Slurm does not answer."""
    now = time.time()
    return {
        **nodes_and_partitions(ask, now),
        "drains": drains(ask, now),
        "launches": launches(now),
        "fleet": status(ask),
        "up_s": uptime(),
    }
