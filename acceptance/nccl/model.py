"""What a log of nccl-tests says, as values. Times in microseconds, bandwidths in GB/s (1e9 bytes), sizes in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


def finite(number: float | None) -> float | None:
    """Give `number` where JSON can hold it, else None (nan and inf have no form in JSON)."""
    return number if number is not None and math.isfinite(number) else None


@dataclass(frozen=True)
class Side:
    """One half of a row, out of place or in place.

    wrong: wrong elements as counted by nccl-tests; None where it did not check (N/A).
    error: the largest difference that nccl-tests before 2.13 printed in the same place; None in newer logs.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None = None
    error: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`; numbers that are not finite become null."""
        cells: dict[str, Any] = {
            "time_us": finite(self.time_us),
            "algbw": finite(self.algbw),
            "busbw": finite(self.busbw),
            "wrong": int(self.wrong) if self.wrong is not None and math.isfinite(self.wrong) else None,
        }
        if self.error is not None:
            cells["error"] = finite(self.error)
        return cells


@dataclass(frozen=True)
class Row:
    """One measured size whose out-of-place side is whole; `in_place` is None where that side is not."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Side
    in_place: Side | None

    @property
    def complete(self) -> bool:
        """Whether both sides are whole."""
        return self.in_place is not None

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        return {
            "size": self.size,
            "count": self.count,
            "type": self.type,
            "redop": self.redop,
            "root": self.root,
            "out_of_place": self.out_of_place.as_json(),
            "in_place": self.in_place.as_json() if self.in_place else None,
            "complete": self.complete,
        }


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: cut short, or cells that contradict each other."""

    size: int
    reason: str


@dataclass
class Table:
    """One sweep. `closed` is true once its footer was seen; `reduced_max_bytes` is set when memory was too small."""

    collective: str | None = None
    rows: list[Row] = field(default_factory=list)
    bad_rows: list[BadRow] = field(default_factory=list)
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    average_busbw: float | None = None
    average_ok: bool | None = None
    reduced_max_bytes: int | None = None
    closed: bool = False

    @property
    def complete(self) -> bool:
        """Whether the footer was printed and every row is whole on both sides."""
        return self.closed and not self.bad_rows and all(row.complete for row in self.rows)

    def row(self, size: int) -> Row | None:
        """Give the row of `size` bytes, the last one where the sweep was repeated."""
        for row in reversed(self.rows):
            if row.size == size:
                return row
        return None

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        bounds = None
        if self.out_of_bounds is not None:
            bounds = {"count": self.out_of_bounds, "ok": self.out_of_bounds_ok}
        return {
            "collective": self.collective,
            "rows": [row.as_json() for row in self.rows],
            "bad_rows": [{"size": bad.size, "reason": bad.reason} for bad in self.bad_rows],
            "out_of_bounds": bounds,
            "average_busbw": finite(self.average_busbw),
            "reduced_max_bytes": self.reduced_max_bytes,
            "complete": self.complete,
        }


@dataclass(frozen=True)
class Device:
    """A rank and the GPU it ran on, from the list that nccl-tests prints first."""

    rank: int
    host: str
    device: int
    bus_id: str
    name: str

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        return {
            "rank": self.rank,
            "host": self.host,
            "device": self.device,
            "bus_id": self.bus_id,
            "name": self.name,
        }


@dataclass(frozen=True)
class Failure:
    """A line with which a program said that it failed. kind: nccl, cuda, timeout, usage, chain, scheduler, other."""

    kind: str
    host: str | None
    message: str

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        return {"kind": self.kind, "host": self.host, "message": self.message}


@dataclass
class HostNetwork:
    """What one host's NCCL log says about its network; empty where it says nothing."""

    provider: str | None = None
    fabric: str | None = None
    nics: int | None = None
    network: str | None = None
    protocol: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        return {
            "provider": self.provider,
            "fabric": self.fabric,
            "nics": self.nics,
            "network": self.network,
            "protocol": self.protocol,
        }


@dataclass
class Network:
    """The network as NCCL reported it, by host, with the red flags of any host.

    ranks, nodes: the largest communicator that NCCL said it made.
    """

    hosts: dict[str, HostNetwork] = field(default_factory=dict)
    red_flags: list[str] = field(default_factory=list)
    ranks: int | None = None
    nodes: int | None = None

    @property
    def seen(self) -> bool:
        """Whether NCCL said anything about the network (it does only with NCCL_DEBUG=INFO)."""
        return bool(self.hosts or self.red_flags)

    def values(self, name: str) -> list[Any]:
        """Give the different values of one attribute over all hosts, sorted."""
        found = {getattr(host, name) for host in self.hosts.values()}
        return sorted(value for value in found if value is not None)

    def as_json(self) -> dict[str, Any]:
        """Give the object of `acceptance parse --json`."""
        return {
            "providers": self.values("provider"),
            "fabrics": self.values("fabric"),
            "nics": self.values("nics"),
            "networks": self.values("network"),
            "protocols": self.values("protocol"),
            "red_flags": self.red_flags,
            "ranks": self.ranks,
            "nodes": self.nodes,
            "hosts": {name: host.as_json() for name, host in sorted(self.hosts.items())},
        }


@dataclass
class Log:
    """Everything that was read from one file.

    failures are what nccl-tests itself said; events are what the launcher or the scheduler said about its end.
    """

    tables: list[Table] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    events: list[Failure] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    versions: dict[str, str] = field(default_factory=dict)
    form: str = "text"

    @property
    def complete(self) -> bool:
        """Whether the log holds at least one table and every table is complete."""
        return bool(self.tables) and all(table.complete for table in self.tables)

    def as_json(self, file: str) -> dict[str, Any]:
        """Give one object of `acceptance parse --json`."""
        return {
            "file": file,
            "tables": [table.as_json() for table in self.tables],
            "failures": [failure.as_json() for failure in self.failures],
            "events": [event.as_json() for event in self.events],
            "devices": [device.as_json() for device in self.devices],
            "network": self.network.as_json(),
            "versions": dict(sorted(self.versions.items())),
            "complete": self.complete,
        }
