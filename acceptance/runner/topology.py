"""The network nodes of EC2 below which the nodes are, from the file that the head node keeps (headnode/topology.py)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

FILE = Path("/var/lib/slipway/topology.json")
NETWORK_NODE = "nn-"  # a network node's id begins so
_OF_A_SWITCH = 3  # nodes from which on the locator can accuse a switch (GROUP_PROOFS of acceptance/locate)


def leaves(addresses: Mapping[str, str], path: Path = FILE) -> dict[str, str]:
    """Return node -> network node. addresses: Slurm's address of each node; an entry with another one is out of date.

    The lowest level is taken at which at least half of the nodes are three or more below one network node: of a switch
    with fewer nodes the locator could not say whether it or its nodes are bad. Nodes below smaller ones are left out.
    """
    paths = _paths(addresses, path)
    for level in range(1, max(map(len, paths.values()), default=0) + 1):
        groups = {node: nodes[-level] for node, nodes in paths.items() if len(nodes) >= level}
        counts = Counter(groups.values())
        large = {node: group for node, group in groups.items() if counts[group] >= _OF_A_SWITCH}
        if 2 * len(large) >= len(paths):
            return large
    return {}


def _paths(addresses: Mapping[str, str], path: Path) -> dict[str, list[str]]:
    """Node -> its network nodes from the top to the lowest; empty without a file, or where it is another program's."""
    try:
        nodes = json.loads(path.read_text(encoding="utf-8"))["nodes"]
        return {
            node: [str(one) for one in entry["network_nodes"]]
            for node, entry in nodes.items()
            if entry["network_nodes"] and entry["address"] == addresses.get(node)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
