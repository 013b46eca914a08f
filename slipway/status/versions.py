"""Versions of the compute nodes: which they have, and which differ. A replaced node comes with those of its image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.text import listed

HINT = "jobs over several nodes want the same: replace the older nodes, or put the older versions on the newer ones"
MOST = 3  # nodes that are named for a version


def differing(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each kind of software that compute nodes have in more than one version."""
    for name, hosts in _hosts(nodes).items():
        if len(hosts) > 1:
            parts = (f"{version} on {listed(sorted(hosts[version]), most=MOST)}" for version in sorted(hosts))
            yield f"differing versions of {name}: {'; '.join(parts)}"


def in_use(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return each kind of software with its version, or with the number of its versions; empty when none is known."""
    parts = []
    for name, hosts in _hosts(nodes).items():
        version = next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} versions"
        parts.append(f"{name} {version}")
    return ", ".join(parts)


def _hosts(nodes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return name -> version -> hosts, in the order in which the nodes report the names."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for name, version in (node.get("versions") or {}).items():
            if version:
                found.setdefault(name, {}).setdefault(str(version), []).append(str(node.get("host")))
    return found
