"""Versions that differ among the compute nodes: a replaced node comes with those of its image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.text import listed

HINT = "jobs over several nodes want the same: replace the older nodes, or put the older versions on the newer ones"
MOST = 3  # nodes that are named for a version


def differing(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each kind of software that compute nodes have in more than one version."""
    names = dict.fromkeys(name for node in nodes for name in node.get("versions") or ())
    for name in names:
        hosts: dict[str, list[str]] = {}
        for node in nodes:
            version = (node.get("versions") or {}).get(name)
            if version:
                hosts.setdefault(str(version), []).append(str(node.get("host")))
        if len(hosts) > 1:
            parts = (f"{version} on {listed(sorted(hosts[version]), most=MOST)}" for version in sorted(hosts))
            yield f"differing versions of {name}: {'; '.join(parts)}"
