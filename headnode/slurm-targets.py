#!/usr/bin/env python3
"""Write Prometheus's file_sd targets from Slurm's list of nodes, once or again and again.

Usage: `slurm-targets.py --output DIR [--every SECONDS]`. Needs `sinfo`. Writes `node.json` (port 9100, the head
node included) and `gpu.json` (port 9400) into DIR, each by one rename and only when it changed. A node that is
powered down, or on its way up or down, is no target; one that is down without having been powered down stays one, so
that an alert can fire. When Slurm does not answer, the files stay as they are: old targets are better than none. Exit
0; 1 when Slurm did not answer; with `--every` it goes on until it is ended. Runs on the head node: Python 3.9,
standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the bundle

from nodes.lib.state import put

SINFO_TIMEOUT_S = 10
NODE_EXPORTER_PORT = 9100
GPU_EXPORTER_PORT = 9400
SLURM_CONF = Path("/opt/slurm/etc/slurm.conf")
# sinfo's marks behind a state: powered off, powering down, power-down queued, powering up. No exporter is (yet) there.
ABSENT_MARKS = ("~", "%", "!", "#")
# States without a mark of their own in which there is no machine.
ABSENT_STATES = frozenset({"powered_down", "powering_down", "powering_up", "power_down", "power_up", "future"})
Group = dict[str, object]


def parse_nodes(listing: str) -> dict[str, dict[str, str]]:
    """Return name -> address, queue and gres of each node with a machine, from `sinfo -o '%N|%o|%R|%T|%G'`.

    Raises ValueError if a line does not have five fields.
    """
    nodes: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5:
            raise ValueError(f"sinfo printed {line!r}, five fields expected")
        name, address, queue, state, gres = fields
        if not state.endswith(ABSENT_MARKS) and state.lower() not in ABSENT_STATES:
            # A node of several queues appears once for each: the first one names it.
            nodes.setdefault(name, {"address": address or name, "queue": queue, "gres": gres})
    return nodes


def ask_slurm() -> str:
    """Return sinfo's list, one line for each node and queue.

    Raises OSError or subprocess.SubprocessError if sinfo is absent, fails, or does not answer in time.
    """
    environment = dict(os.environ)
    environment["PATH"] = "/opt/slurm/bin:/usr/local/bin:" + environment.get("PATH", "/usr/bin:/bin")
    if SLURM_CONF.exists():
        environment.setdefault("SLURM_CONF", str(SLURM_CONF))
    command = ["sinfo", "--all", "--noheader", "--Node", "--format=%N|%o|%R|%T|%G"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SINFO_TIMEOUT_S, check=True)
    return done.stdout


def groups(nodes: dict[str, dict[str, str]], port: int) -> list[Group]:
    """Return file_sd's groups, one a node, in the order of their names."""
    return [
        {"targets": [f"{node['address']}:{port}"], "labels": {"node": name, "queue": node["queue"]}}
        for name, node in sorted(nodes.items())
    ]


def write(path: Path, content: list[Group]) -> None:
    """Put the JSON in place whole; a file that holds it already is left alone."""
    text = json.dumps(content, indent=2) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    put(path, text)


def refresh(output: Path) -> str:
    """Ask Slurm once and write both files; return what went wrong, or an empty text."""
    try:
        nodes = parse_nodes(ask_slurm())
        head: list[Group] = [
            {"targets": [f"127.0.0.1:{NODE_EXPORTER_PORT}"], "labels": {"node": os.uname().nodename, "queue": "head"}}
        ]
        write(output / "node.json", head + groups(nodes, NODE_EXPORTER_PORT))
        with_gpus = {name: node for name, node in nodes.items() if "gpu" in node["gres"]}
        write(output / "gpu.json", groups(with_gpus, GPU_EXPORTER_PORT))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"slurm-targets.py: {error}. Hint: run 'sinfo' on this node; the old targets stay"
    return ""


def main(arguments: list[str]) -> int:
    """Refresh once, or for ever; return the exit code."""
    parser = argparse.ArgumentParser(description="Write Prometheus targets from Slurm's list of nodes.")
    parser.add_argument("--output", type=Path, required=True, help="directory of node.json and gpu.json")
    parser.add_argument("--every", type=float, help="seconds between two refreshes; without it there is one")
    options = parser.parse_args(arguments)
    last = ""
    while True:
        fault = refresh(options.output)
        if fault and fault != last:  # print each fault once, not every few seconds
            print(fault, file=sys.stderr, flush=True)
        last = fault
        if options.every is None:
            return 1 if fault else 0
        time.sleep(options.every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
