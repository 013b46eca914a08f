"""What a node knows of its fault, saved before it is drained: ParallelCluster ends the instance soon after.

Written to LOCAL first, which the CloudWatch agent ships line by line, then copied to
FSX/logs/slipway/evidence/NODE/TIME.log when the shared file system works. Bounded in time and size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from nodes.health.ask import Asker
from nodes.health.node import Node

TIME_S = 25.0  # for all of it
COMMAND_S = 12.0
COPY_S = 10.0
PART_CHARACTERS = 1 << 20  # of one command's output, the last ones
FOLDER = "logs/slipway/evidence"
KEPT = 5  # files of one node on the shared file system
_COPY = """\
set -eu
umask 022
mkdir -p "$1"
cp "$2" "$1/.new.$3"
mv "$1/.new.$3" "$1/$3"
find "$1" -maxdepth 1 -type f -name '*.log' | sort | head -n "-$4" | xargs -r rm -f
"""
COMMANDS = (
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-iso", "--lines=5000"),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "nvlink", "-s"),
    ("nvidia-smi", "nvlink", "-e"),
)


def save(node: Node, name: str, report: dict[str, Any], reason: str) -> str:
    """Save everything; return the file's place, or where it is instead and why."""
    asker = Asker(TIME_S, node.state.setdefault("stuck", {}))
    local = node.places.evidence
    text = "".join(f"==> {title} <==\n{body.rstrip()}\n" for title, body in _parts(node, asker, report, reason))
    try:
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"none ({local}: {error.strerror})"
    return _copied(node, asker, name) or f"{local} (also in CloudWatch), as {node.settings.fsx} does not take it"


def _parts(node: Node, asker: Asker, report: dict[str, Any], reason: str) -> Iterator[tuple[str, str]]:
    yield "drained for", reason
    yield "health report", json.dumps(report, indent=1)
    for command in COMMANDS:
        answer = asker.ask(command, COMMAND_S)
        note = "" if answer.ok else f"({answer.problem or f'exit {answer.rc}'})\n"
        yield " ".join(command), note + answer.out[-PART_CHARACTERS:]
    counters = sorted(map(str, node.places.sysfs.glob("class/infiniband/*/ports/*/hw_counters/*")))
    if counters:
        yield "EFA counters", asker.ask(["grep", "-s", "", "/dev/null", *counters], COMMAND_S).out[-PART_CHARACTERS:]


def _copied(node: Node, asker: Asker, name: str) -> str:
    """The place on the shared file system; empty when it does not take the file in time."""
    root = node.settings.fsx
    options = node.mount_of(root)
    if options is None or "ro" in options.split(","):  # unmounted, the copy would be hidden below the mount point
        return ""
    folder = f"{root}/{FOLDER}/{name}"
    file = time.strftime("%Y-%m-%dT%H-%M-%SZ.log", time.gmtime(node.now))
    answer = asker.ask(["/bin/sh", "-c", _COPY, "sh", folder, str(node.places.evidence), file, str(KEPT)], COPY_S)
    return f"{folder}/{file}" if answer.ok else ""
