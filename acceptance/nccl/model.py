"""What a log of nccl-tests says, as values. Times in microseconds, bandwidths in GB/s (1e9 bytes), sizes in bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from acceptance.causes import Finding
from acceptance.jsonable import finite, jsonable
from acceptance.text import gb_text, named, plural, size_text

MOST_ROWS = 100_000  # rows kept of one log, some 60 MB; a sweep has 10 to 60
MOST_TABLES = 10_000


def count_sizes(least: int, most: int, step: int, is_factor: bool) -> int | None:
    """How many sizes a sweep from `least` to `most` bytes has, at least one; None where that has no end or no sense."""
    if step < 1 or least > most or (is_factor and (least < 1 or step < 2)):
        return None
    if not is_factor:
        return (most - least) // step + 1
    count = 0
    while least <= most:
        least, count = least * step, count + 1
    return count


class IterationTimes(NamedTuple):
    """Times of the single iterations of one side in microseconds (`-I 1`); cv_percent: deviation / mean."""

    min_us: float
    max_us: float
    p99_us: float
    cv_percent: float


class Side(NamedTuple):
    """One half of a row, out of place or in place. Time and bandwidths are finite and not negative.

    wrong: wrong elements as counted by nccl-tests; None where it did not check (N/A).
    error: the largest difference that nccl-tests before 2.13 printed in the same place; None in newer logs.
    iterations: only with `-I 1`.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None = None
    error: float | None = None
    iterations: IterationTimes | None = None

    @property
    def measured(self) -> bool:
        """Whether time and bandwidths are numbers that a measurement can give (nan, inf and -1 are not)."""
        return all(0 <= number < math.inf for number in (self.time_us, self.algbw, self.busbw))

    @property
    def wrong_elements(self) -> int | None:
        """The number of wrong elements, None where nccl-tests did not check or printed no number."""
        return int(self.wrong) if self.wrong is not None and math.isfinite(self.wrong) else None

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance parse --json`, without the cells that the log does not have."""
        cells = {**self._asdict(), "wrong": self.wrong_elements}
        rare = [name for name in ("error", "iterations") if cells[name] is None]
        return {name: jsonable(value) for name, value in cells.items() if name not in rare}


@dataclass(frozen=True)
class Row:
    """One measured size whose out-of-place side is whole; `in_place` is None where that side is not."""

    __slots__ = ("count", "in_place", "out_of_place", "redop", "root", "size", "type")

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
        """Return the object of `acceptance parse --json`."""
        names = ("size", "count", "type", "redop", "root", "out_of_place", "in_place", "complete")
        return {name: jsonable(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: cut short, cells that contradict each other, or numbers that are none (nan, inf)."""

    size: int
    reason: str


@dataclass
class Table:
    """One sweep. `closed` is true once its footer was seen; `reduced_max_bytes` is set when memory was too small.

    headed: whether its header was seen; without it, its first rows may be missing.
    sizes: how many sizes the program said it would measure, None where it did not say.
    """

    collective: str | None = None
    rows: list[Row] = field(default_factory=list)
    bad_rows: list[BadRow] = field(default_factory=list)
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    average_busbw: float | None = None
    average_ok: bool | None = None
    reduced_max_bytes: int | None = None
    headed: bool = False
    sizes: int | None = None
    closed: bool = False

    @property
    def missing_rows(self) -> int:
        """How many of the announced sizes the log has no row for."""
        return max(0, (self.sizes or 0) - len(self.rows) - len(self.bad_rows))

    @property
    def faults(self) -> list[str]:
        """Why the table is not complete; empty if it is."""
        faults = []
        if not self.headed:
            faults.append("its header is missing: its first rows may be too")
        cut = [bad.size for bad in self.bad_rows] + [row.size for row in self.rows if not row.complete]
        if cut:
            faults.append(f"rows without both sides whole: {len(cut)}, the first at size {cut[0]}")
        if self.missing_rows:
            faults.append(f"rows missing: {self.missing_rows} of {self.sizes}")
        if not self.rows and not cut:
            faults.append("it has no row")
        if not self.closed:
            faults.append("its last lines are missing")
        elif self.out_of_bounds is None:
            faults.append("its count of wrong values is missing")
        elif finite(self.average_busbw) is None:
            faults.append("its average bus bandwidth is not a number")
        return faults

    @property
    def wrong_data(self) -> str | None:
        """Where nccl-tests counted wrong values, and how many; None if every checked value is right."""
        wrong = [f"{size_text(row.size)} ({_wrong_values(row)})" for row in self.rows if _wrong_values(row)]
        if not wrong and not self.out_of_bounds and self.out_of_bounds_ok is not False:
            return None
        where = f" at {named(wrong, 4, 'more size')}" if wrong else ""
        count = f": {plural(self.out_of_bounds, 'value')} out of bounds" if self.out_of_bounds else ""
        return f"wrong data{where}{count}"

    @property
    def refused(self) -> list[str]:
        """What nccl-tests itself refused: wrong data, and an average below NCCL_TESTS_MIN_BW."""
        refused = [self.wrong_data] if self.wrong_data else []
        if self.average_ok is False:
            refused.append(f"nccl-tests refused its average bus bandwidth, {gb_text(self.average_busbw)} GB/s: FAILED")
        return refused

    @property
    def complete(self) -> bool:
        """Whether header, footer and every announced row are there, each row whole on both sides with real numbers."""
        return not self.faults

    def row(self, size: int) -> Row | None:
        """Return the row of `size` bytes, the last one where the sweep was repeated."""
        return next((row for row in reversed(self.rows) if row.size == size), None)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance parse --json`."""
        names = ("collective", "rows", "bad_rows", "out_of_bounds", "average_busbw", "average_ok", "reduced_max_bytes")
        table = {name: jsonable(getattr(self, name)) for name in (*names, "faults", "complete")}
        if self.out_of_bounds is not None:
            table["out_of_bounds"] = {"count": self.out_of_bounds, "ok": self.out_of_bounds_ok}
        return table


def _wrong_values(row: Row) -> str:
    """'37 values out of place, 4 in place'; empty if none was wrong."""
    sides = [(row.out_of_place, "out of place"), (row.in_place, "in place")]
    counts = [f"{side.wrong:g} {{}}{place}" for side, place in sides if side and side.wrong]
    return ", ".join(text.format("" if index else "values ") for index, text in enumerate(counts))


@dataclass(frozen=True)
class Device:
    """A rank and the GPU it ran on, from the list that nccl-tests prints first."""

    __slots__ = ("bus_id", "device", "host", "name", "rank")

    rank: int
    host: str
    device: int
    bus_id: str
    name: str


@dataclass(frozen=True)
class Failure:
    """A line with which a program reported that it failed; count: how often, where equal ones are merged.

    kind: of nccl-tests nccl, cuda, timeout, usage, chain, other; of launchers and Slurm node failure, time limit,
    preemption, cancelled, out of memory, exit, xid, launch, crash.
    """

    kind: str
    host: str | None
    message: str
    count: int = 1

    @property
    def text(self) -> str:
        """The failure in one line, without its kind."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.host + ': ' if self.host else ''}{self.message}{times}"


def merged(failures: Iterable[Failure]) -> list[Failure]:
    """Return each different failure once, with its count; the call chains of nccl-tests only if nothing else is there.

    Where srun names the node that failed, the survivors' report of it adds nothing.
    """
    counts = Counter(failures)
    has_name = any(one.kind == "node failure" and one.host for one in counts)
    found = [replace(one, count=count) for one, count in counts.items()]
    found = [one for one in found if not (has_name and one.kind == "node failure" and not one.host)]
    return [one for one in found if one.kind != "chain"] or found


@dataclass
class HostNetwork:
    """What one host's NCCL log says about its network; empty where it says nothing."""

    provider: str | None = None
    fabric: str | None = None
    nics: int | None = None
    network: str | None = None
    protocol: str | None = None


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
        """Return the different values of one attribute over all hosts, sorted."""
        found = {getattr(host, name) for host in self.hosts.values()}
        return sorted(value for value in found if value is not None)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `acceptance parse --json`."""
        return {
            **{f"{name}s": self.values(name) for name in ("provider", "fabric")},
            "nics": self.values("nics"),
            **{f"{name}s": self.values(name) for name in ("network", "protocol")},
            **{name: getattr(self, name) for name in ("red_flags", "ranks", "nodes")},
            "hosts": jsonable(dict(sorted(self.hosts.items()))),
        }


@dataclass
class Log:
    """Everything that was read from one file.

    failures are what nccl-tests itself said; events are what the launcher or the scheduler said about its end;
    causes are the reasons that its lines name;
    warnings are what this reader says about the log. environment: from a `-J` file, without secrets.
    """

    tables: list[Table] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    events: list[Failure] = field(default_factory=list)
    causes: list[Finding] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    full: bool = False
    _kept: int = field(default=0, repr=False)
    form: str = "text"

    @property
    def complete(self) -> bool:
        """Whether the log holds at least one table, every table is complete, and nothing was left out."""
        return bool(self.tables) and not self.full and all(table.complete for table in self.tables)

    @property
    def refused(self) -> list[str]:
        """What nccl-tests itself refused in any table."""
        return [reason for table in self.tables for reason in table.refused]

    @property
    def good(self) -> bool:
        """Whether the log is complete, and no failure and no wrong value is in it."""
        return self.complete and not self.failures and not self.refused

    def warn(self, text: str) -> None:
        """Note `text` once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def begin(self, table: Table) -> None:
        """Add a table, as long as the log has fewer than are kept."""
        if len(self.tables) < MOST_TABLES:
            self.tables.append(table)
        else:
            self.full = True
            self.warn(f"more than {MOST_TABLES} tables: the rest was not kept")

    def keep(self, table: Table, row: Row | BadRow) -> None:
        """Add a row to `table`, as long as the log has fewer rows than are kept (memory has a bound)."""
        if self._kept >= MOST_ROWS:
            self.full = True
            self.warn(f"more than {MOST_ROWS} rows: the rest was not kept")
        elif isinstance(row, BadRow):
            table.bad_rows.append(row)
            self._kept += 1
        else:
            table.rows.append(row)
            self._kept += 1

    def as_json(self, file: str) -> dict[str, Any]:
        """Return one object of `acceptance parse --json`."""
        names = ("tables", "failures", "events", "causes", "devices", "network", "versions", "environment", "warnings")
        values = {name: jsonable(getattr(self, name)) for name in names}
        for name in ("versions", "environment"):
            values[name] = dict(sorted(values[name].items()))
        return {"file": file, **values, "complete": self.complete}
