#!/usr/bin/env python3
"""Write Prometheus's file_sd targets from Slurm's list of nodes.

Needs ``sinfo``. Writes ``node.json`` (port 9100, the head node included) and ``gpu.json`` (port 9400) into the output
directory, each by one rename and only when it changed. Exit 0; 1 when Slurm did not answer: the files then stay as
they are, since old targets are better than none. Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

SINFO_TIMEOUT_S = 10
NODE_EXPORTER_PORT = 9100
GPU_EXPORTER_PORT = 9400
SLURM_CONF = Path("/opt/slurm/etc/slurm.conf")
# sinfo's marks behind a state: powered off, powering down, powering up. Such a node has no exporter (yet).
ABSENT_MARKS = ("~", "%", "#")
Group = dict[str, object]


def parse_nodes(listing: str) -> dict[str, dict[str, str]]:
    """Return name -> address, queue and gres of each node that is up, from ``sinfo -o '%N|%o|%R|%T|%G'``.

    Raises:
        ValueError: a line that has not five fields.
    """
    nodes: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5:
            raise ValueError(f"sinfo printed {line!r}, five fields expected")
        name, address, queue, state, gres = fields
        if not state.endswith(ABSENT_MARKS):
            # A node of several queues appears once for each: the first one names it.
            nodes.setdefault(name, {"address": address or name, "queue": queue, "gres": gres})
    return nodes


def ask_slurm() -> str:
    """Return sinfo's list, one line for each node and queue.

    Raises:
        OSError, subprocess.SubprocessError: sinfo is absent, failed, or did not answer in time.
    """
    environment = dict(os.environ)
    environment["PATH"] = "/opt/slurm/bin:/usr/local/bin:" + environment.get("PATH", "/usr/bin:/bin")
    if SLURM_CONF.exists():
        environment.setdefault("SLURM_CONF", str(SLURM_CONF))
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%o|%R|%T|%G"]
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
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)


def main(arguments: list[str]) -> int:
    """Ask Slurm once and write both files; return the exit code."""
    parser = argparse.ArgumentParser(description="Write Prometheus targets from Slurm's list of nodes.")
    parser.add_argument("--output", type=Path, required=True, help="directory of node.json and gpu.json")
    output: Path = parser.parse_args(arguments).output
    try:
        nodes = parse_nodes(ask_slurm())
        head: list[Group] = [
            {"targets": [f"127.0.0.1:{NODE_EXPORTER_PORT}"], "labels": {"node": os.uname().nodename, "queue": "head"}}
        ]
        write(output / "node.json", head + groups(nodes, NODE_EXPORTER_PORT))
        with_gpus = {name: node for name, node in nodes.items() if "gpu" in node["gres"]}
        write(output / "gpu.json", groups(with_gpus, GPU_EXPORTER_PORT))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"slurm-targets.py: {error}. Hint: run 'sinfo' on this node; the old targets stay", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
