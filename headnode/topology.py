#!/usr/bin/python3
"""Ask EC2 where the cluster's nodes are in the network, and keep the answer for acceptance.

Usage: `topology.py`. Writes FILE: node -> its private address, instance and network nodes, from the top to the lowest
(EC2's DescribeInstanceTopology). EC2 is asked only when Slurm's addresses of the nodes differ from those of the file: a
running instance keeps its place, a replaced one has another address. A node without a machine has none (NodeAddr is
then the node's own name, slurm_commands.py of aws-parallelcluster-node) and is not in the file; a node whose type EC2
has no topology for has no network nodes. Where EC2 refuses, the nodes that stayed keep their entries.
Slurm itself is left as it is: docs/locate.md says why.
Exit 0; 1 with a message when EC2 or Slurm does not answer. Python 3.9, standard library.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the bundle

from nodes.lib import env, state
from nodes.lib.command import Run, reason, run

FILE = Path("/var/lib/slipway/topology.json")
LOG = "journalctl -u slipway-topology"
AT_ONCE = 100  # instance ids that DescribeInstanceTopology takes in one request

Entry = dict[str, Any]


def addresses(listing: str) -> dict[str, str]:
    """Return node -> private address of each node with a machine, from `sinfo --format=%N|%o`."""
    lines = (line.strip().partition("|") for line in listing.splitlines())
    return {node: address for node, _, address in lines if _is_address(address)}


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def entries(text: str) -> dict[str, Entry]:
    """Return the nodes of the file's text; none of a text that is not such a file."""
    try:
        nodes = json.loads(text)["nodes"]
        return {node: entry for node, entry in nodes.items() if isinstance(entry["network_nodes"], list)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def still(known: Mapping[str, Entry], wanted: Mapping[str, str]) -> dict[str, Entry]:
    """Return the entries whose node still has the same address."""
    return {node: entry for node, entry in known.items() if entry.get("address") == wanted.get(node)}


def ask(wanted: Mapping[str, str], cluster: str, region: str, run: Run) -> dict[str, Entry]:
    """Return the entry of each node whose instance runs. Raises what `run` raises, ValueError for another answer."""
    running = _running(cluster, region, run)
    instances = {node: running[address] for node, address in wanted.items() if address in running}
    network = _network_nodes(sorted(set(instances.values())), region, run)
    return {
        node: {"address": wanted[node], "instance": instance, "network_nodes": network.get(instance, [])}
        for node, instance in sorted(instances.items())
    }


def _running(cluster: str, region: str, run: Run) -> dict[str, str]:
    """Private address -> id of the cluster's running instances."""
    tag = f"Name=tag:parallelcluster:cluster-name,Values={cluster}"
    only = ["--filters", tag, "Name=instance-state-name,Values=running"]
    columns = ["--query", "Reservations[].Instances[].[PrivateIpAddress,InstanceId]"]
    return {str(address): str(one) for address, one in _aws(run, region, "describe-instances", *only, *columns) or ()}


def _network_nodes(ids: list[str], region: str, run: Run) -> dict[str, list[str]]:
    """Instance -> its network nodes. The AWS CLI reads all pages of an answer."""
    found: dict[str, list[str]] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        columns = ["--query", "Instances[].[InstanceId,NetworkNodes]"]
        answer = _aws(run, region, "describe-instance-topology", "--instance-ids", *some, *columns)
        found.update({str(one): [str(node) for node in nodes or ()] for one, nodes in answer or ()})
    return found


def _aws(run: Run, region: str, *command: str) -> Any:
    return json.loads(run("aws", "ec2", command[0], "--region", region, "--output", "json", *command[1:]))


def summary(known: Mapping[str, Entry], wanted: Iterable[str]) -> str:
    """Return one line: how many nodes have a place, and below how many of the lowest network nodes."""
    lowest = [entry["network_nodes"][-1] for entry in known.values() if entry["network_nodes"]]
    if not lowest:
        return "EC2 has no network topology of the nodes that run" if known else "no node has a machine that runs"
    return f"EC2: {len(lowest)} of {len(set(wanted))} nodes below {len(set(lowest))} network nodes"


def refresh(path: Path, cluster: str, region: str, run: Run) -> tuple[str, bool]:
    """Bring the file up to date; return one line about it, and whether EC2 answered. Raises what `run` raises."""
    wanted = addresses(run("sinfo", "--all", "--noheader", "--Node", "--format=%N|%o"))
    before = entries(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = still(before, wanted)
    after, refused = kept, ""
    if kept.keys() != wanted.keys():
        try:
            after = ask(wanted, cluster, region, run)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            refused = f"; EC2 does not answer: {reason(error)}"
    if after != before or not path.exists():
        state.put(path, json.dumps({"schema": 1, "source": "ec2:DescribeInstanceTopology", "nodes": after}) + "\n")
    return summary(after, wanted) + refused, not refused


def main() -> int:
    """Do all of it once; return the exit code."""
    values = env.read(env.NODE_ENV)
    try:
        line, good = refresh(FILE, values.get("CLUSTER_NAME", ""), values.get("REGION", ""), run)
    except (OSError, subprocess.SubprocessError) as error:
        line, good = f"the network nodes are not asked for: {reason(error)}", False
    if state.read("topology").get("detail") != line:
        print(f"slipway: topology: {line}")
        if not good:
            print("slipway-hint: on the head node, as root: aws ec2 describe-instance-topology; sinfo")
        state.background("topology", "done", line, LOG)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
