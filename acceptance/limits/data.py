"""The data file limits.json: limits, figures that others measured, and the networks of the instance types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from acceptance.scenario.model import Limit


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
    """The network and the NVLink of an instance type.

    gb_per_s: a GPU's share of the network. nvlink_gb_per_s: what a GPU sends over NVLink; None without NVLink.
    from_size_bytes: the least size at which the share that a collective used is judged; None: it is not judged.
    """

    gpus: int
    cards: int
    gb_per_s: float
    nvlink_gb_per_s: float | None
    protocol: str | None
    from_size_bytes: int | None
    date: str


@dataclass(frozen=True)
class Shares:
    """The shares of the rates that are expected where there is no limit, and the least size that they hold for."""

    network_share: float
    gpu_share: float
    warn_factor: float | None
    from_size_bytes: int


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("acceptance.limits").joinpath("limits.json").read_text("utf-8"))
    return data


def _source(name: str) -> str:
    """A source as text: repository and file with commit and date, or a page with its date."""
    source = _data()["sources"][name]
    commit = f" at {source['commit']}" if source["commit"] else ""
    return f"{source['where']}{commit}, {source['date']}"


@lru_cache(maxsize=1)
def known_limits() -> tuple[Limit, ...]:
    """The limits of the data file."""
    return tuple(
        Limit(
            collective=entry["collective"],
            nodes_min=entry["nodes"][0],
            nodes_max=entry["nodes"][1],
            size_bytes=entry["size_bytes"],
            fail_below_gb_per_s=float(entry["fail_below_gb_per_s"]),
            warn_below_gb_per_s=entry["warn_below_gb_per_s"],
            source=f"{entry['how']} ({_source(entry['source'])})",
            date=_data()["date"],
            instance_type=entry["instance_type"],
            basis=entry["basis"],
        )
        for entry in _data()["limits"]
    )


@lru_cache(maxsize=1)
def measured_by_others() -> tuple[Reference, ...]:
    """The figures of healthy clusters in the data file."""
    return tuple(
        Reference(**{**entry, "source": _source(entry["source"])}, date=_data()["date"])
        for entry in _data()["measured"]
    )


def network_cards(instance_type: str) -> NetworkCards | None:
    """The network and the NVLink of an instance type, None where they are not known."""
    entry = _data()["network"]["instance_types"].get(instance_type)
    if entry is None:
        return None
    nvlink = entry["nvlink_gb_per_s"]
    return NetworkCards(
        gpus=entry["gpus"],
        cards=entry["cards"],
        gb_per_s=entry["network_gbit_per_s"] / 8 / entry["gpus"],
        nvlink_gb_per_s=nvlink / 2 if nvlink else None,
        protocol=entry["protocol"],
        from_size_bytes=entry["from_size_bytes"],
        date=_data()["date"],
    )


def expected_shares(nvlink: bool) -> Shares:
    """The shares for instance types with or without NVLink."""
    return Shares(**_data()["derived"]["nvlink" if nvlink else "pcie"])


def pcie_gb_per_s() -> float:
    """What a GPU without NVLink sends to its neighbour at most."""
    return float(_data()["derived"]["pcie_gb_per_s"])
