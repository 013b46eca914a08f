"""The text that nccl-tests prints, of every era, read line by line. See rows.py for the table itself."""

from __future__ import annotations

import re

from acceptance.nccl.model import BadRow, Device, Failure, Log, Table
from acceptance.nccl.network import read_network, read_versions
from acceptance.nccl.rows import Columns, PartialRow, read_columns, read_lead

_MOST = 10_000  # failures and events kept of one log; a job of 1,000 ranks prints a few thousand
_TAG = re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?(?:\[\d{1,7},\d{1,7}\])?<std(?:out|err)>:|\r")
_LABEL = re.compile(r"^ *\d{1,7}:(?= )")
_DEVICE = re.compile(
    r"Rank +(\d{1,7}) +(?:Group +\d+ +)?(?:Pid +\d+ +)?on +(\S{1,253}) +device +(\d{1,4})"
    r" +\[([^\]]{1,32})\] *(.{0,128})"
)
_BOUNDS = re.compile(r"Out of bounds values *: *(\d{1,19}) +(OK|FAILED)")
_AVERAGE = re.compile(r"Avg bus bandwidth *: *(-?\d[\d.]{0,30}(?:e[+-]?\d{1,4})?|-?nan|-?inf)\s*(OK|FAILED)?")
_REDUCED = re.compile(r"Reducing maxBytes to (\d{1,19}) due to memory limitation")
_COLLECTIVE = re.compile(r"\b([a-z][a-z_]{2,30})_perf\b")
_STARTING = re.compile(r"Collective test starting: *([a-z][a-z_]{2,30})_perf")
_FAILURES = (
    ("nccl", re.compile(r"(\S{1,253}): Test NCCL failure (.{1,400})")),
    ("cuda", re.compile(r"(\S{1,253}): Test CUDA failure (.{1,400})")),
    ("timeout", re.compile(r"(\S{1,253}): Test timeout (.{1,400})")),
    ("usage", re.compile(r"()(Invalid number of GPUs: .{1,400})")),
    ("chain", re.compile(r"\.\. (\S{1,253}) pid \d+: (Test failure .{1,400})")),
)
_EVENTS = (
    ("time limit", re.compile(r"ON (\S{1,253}) CANCELLED AT (\S+ DUE TO TIME LIMIT)")),
    ("node failure", re.compile(r"ON (\S{1,253}) CANCELLED AT (\S+ DUE TO NODE FAILURE.{0,200})")),
    ("cancelled", re.compile(r"ON (\S{1,253}) CANCELLED AT (\S{1,40})")),
    ("out of memory", re.compile(r"()((?:[Oo]ut [Oo]f [Mm]emory|oom[-_]kill|OOM Killed).{0,200})")),
    ("exit", re.compile(r"srun: error: (\S{1,253}): (tasks? .{1,200})")),
    ("xid", re.compile(r"()(NVRM: Xid .{1,200})")),
    ("launch", re.compile(r"error: (?:()|(\S+): )(execve\(\): .{1,300})")),
)
_EVENT_MARKS = ("CANCELLED", "emory", "oom", "OOM", "srun: error", "Xid", "execve")


class TextReader:
    """Builds a Log from lines. Call `line` for each, then `end`; neither raises, whatever the line holds."""

    def __init__(self) -> None:
        self.log = Log()
        self._columns = Columns()
        self._table: Table | None = None
        self._row: PartialRow | None = None
        self._collective: str | None = None
        self._reduced: int | None = None

    def line(self, raw: str, ended: bool = True) -> None:
        """Read one line. ended: it had a line end; the last line of a killed job has none."""
        text = _TAG.sub(" ", raw) if "<std" in raw or "\r" in raw else raw
        text = _LABEL.sub("", text)
        if self._read_row(text, ended):
            return
        if "NCCL INFO" in text or "NCCL WARN" in text:
            read_network(text, self.log.network)
            if "ersion" in text or "Initializing" in text:
                read_versions(text, self.log.versions)
            return
        self._read_other(text, ended)

    def end(self) -> Log:
        """Close what is open and give the log."""
        self._close_row()
        return self.log

    def _read_row(self, text: str, ended: bool) -> bool:
        if "NCCL INFO" in text and "  " not in text:  # the bulk of a debug log, passed over cheaply
            return False
        lead = read_lead(text, self._columns)
        if lead is not None:
            self._close_row()
            self._row, position = lead
            self._row.take(text[position:], ended)
        elif self._row is not None and self._row.continues_with(text):
            self._row.take(text, ended)
        else:
            return False
        if self._row.full:
            self._close_row()
        return True

    def _close_row(self) -> None:
        if self._row is None:
            return
        row, self._row = self._row.finish(), None
        table = self._open_table()
        if isinstance(row, BadRow):
            table.bad_rows.append(row)
        else:
            table.rows.append(row)

    def _open_table(self) -> Table:
        """Give the table that rows go to; one without a header begins with its first row."""
        if self._table is None:
            self._table = Table(self._collective, reduced_max_bytes=self._reduced)
            self._reduced = None
            self.log.tables.append(self._table)
        return self._table

    def _read_other(self, text: str, ended: bool) -> None:
        columns = read_columns(text) if "busbw" in text else None
        if columns is not None:
            self._close_row()
            self._columns, self._table = columns, None
            self._open_table()
        elif "Rank" in text and " device " in text:
            self._read_device(text)
        elif " : " in text or "values" in text or "bandwidth" in text:
            self._read_footer(text, ended)
        self._read_words(text)

    def _read_device(self, text: str) -> None:
        found = _DEVICE.search(text)
        if found:
            device = Device(int(found[1]), found[2], int(found[3]), found[4], found[5].strip())
            self.log.devices.append(device)

    def _read_footer(self, text: str, ended: bool) -> None:
        bounds = _BOUNDS.search(text)
        average = _AVERAGE.search(text)
        if average and average.end() == len(text) and not ended:
            average = None  # its last digits may be missing
        if not bounds and not average:
            return
        self._close_row()
        if self._table is None:
            return
        if bounds:
            self._table.out_of_bounds = int(bounds[1])
            self._table.out_of_bounds_ok = bounds[2] == "OK"
        if average:
            self._table.average_busbw = float(average[1])
            self._table.average_ok = None if average[2] is None else average[2] == "OK"
            self._table.closed = True
            self._table = None

    def _read_words(self, text: str) -> None:
        if "_perf" in text:
            starting = _STARTING.search(text)
            named = starting or _COLLECTIVE.search(text)
            if starting or (named and self._table is None):
                self._collective = named[1] if named else None
        if "ersion" in text:
            read_versions(text, self.log.versions)
        if "Reducing maxBytes" in text:
            reduced = _REDUCED.search(text)
            self._reduced = int(reduced[1]) if reduced else None
        if "Test " in text or "Invalid number" in text:
            self._note(_FAILURES, text, self.log.failures)
        elif any(mark in text for mark in _EVENT_MARKS):
            self._note(_EVENTS, text, self.log.events)

    @staticmethod
    def _note(patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str, notes: list[Failure]) -> None:
        for kind, pattern in patterns:
            found = pattern.search(text)
            if found and len(notes) < _MOST:
                groups = found.groups()
                host = next((group for group in groups[:-1] if group), None)
                notes.append(Failure(kind, host, groups[-1].strip()))
                return
