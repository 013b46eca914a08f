"""Finding the limits that a measurement is compared with: the scenario's first, then the data file's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from acceptance.limits.interpolate import limit_at
from acceptance.scenario.model import Limit, Scenario


@dataclass(frozen=True)
class Reference:
    """What others measured on a healthy cluster, in GB/s at one size. To compare with: it is not a limit."""

    instance_type: str
    collective: str
    nodes: int
    size_bytes: int
    gb_per_s: float
    source: str
    date: str
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object of report.json."""
        return {name: getattr(self, name) for name in ("size_bytes", "gb_per_s", "source", "date", "note")}


@dataclass(frozen=True)
class NetworkCards:
    """The network of an instance type. gb_per_s: a GPU's share of it; from_size_bytes: least size it is judged at."""

    gpus: int
    gb_per_s: float
    protocol: str | None
    from_size_bytes: int
    date: str


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("acceptance.limits").joinpath("limits.json").read_text("utf-8"))
    return data


@lru_cache(maxsize=1)
def known_limits() -> tuple[Limit, ...]:
    """The limits of the data file limits.json."""
    return tuple(
        Limit(
            collective=entry["collective"],
            nodes_min=entry["nodes"][0],
            nodes_max=entry["nodes"][1],
            size_bytes=entry["size_bytes"],
            fail_below_gb_per_s=float(entry["fail_below_gb_per_s"]),
            warn_below_gb_per_s=entry["warn_below_gb_per_s"],
            source=entry["source"],
            date=entry["date"],
            instance_type=entry["instance_type"],
        )
        for entry in _data()["limits"]
    )


@lru_cache(maxsize=1)
def measured_by_others() -> tuple[Reference, ...]:
    """The figures of healthy clusters in limits.json."""
    return tuple(Reference(**entry) for entry in _data()["measured"])


def network_cards(instance_type: str) -> NetworkCards | None:
    """The network of an instance type, None where it is not known."""
    network = _data()["network"]
    entry = network["instance_types"].get(instance_type)
    if entry is None:
        return None
    share = entry["network_gbit_per_s"] / 8 / entry["gpus"]
    return NetworkCards(entry["gpus"], share, entry["protocol"], entry["from_size_bytes"], network["date"])


def find_limits(scenario: Scenario, collective: str, nodes: int, sizes: list[int]) -> list[Limit]:
    """Return the limits for this collective, node count and these sizes, smallest size first; none if none is known.

    Limits of the scenario replace those of the data file, they are not mixed. Interpolated ones are given only where
    no size has an exact one.
    """
    for limits in (scenario.limits, known_limits()):
        of_type = [limit for limit in limits if limit.instance_type in (None, scenario.instance_type)]
        fitting = [limit for limit in of_type if limit.collective == collective]
        found = [limit for limit in (limit_at(fitting, nodes, size) for size in sizes) if limit is not None]
        chosen = [limit for limit in found if limit.note is None] or found
        if chosen:
            return sorted(chosen, key=lambda limit: limit.size_bytes)
    return []
