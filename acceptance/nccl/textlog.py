"""The text that nccl-tests prints, of every era, read line by line. See rows.py for the table itself."""

from __future__ import annotations

import re

from acceptance.causes import CauseReader
from acceptance.nccl.across import sizes_by_step, take_out_lost_digits
from acceptance.nccl.model import Device, Failure, Log, Table, count_sizes
from acceptance.nccl.network import NetworkReader, read_versions
from acceptance.nccl.rows import Columns, PartialRow, read_columns, read_lead
from acceptance.nccl.sieve import hides_a_failure, quick_lines, thorough_lines

_MOST = 10_000  # failures and events kept of one log; a job of 1,000 ranks prints a few thousand
_LONGEST_LINE = 1 << 16  # bytes of a line that are read; nothing of interest follows them
_MOST_DEVICES = 100_000
_TAG = re.compile(r"<std(?:out|err)>:")  # mpirun --tag-output and --timestamp-output, anywhere in a line
_TAG_HEAD = re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?(?:\[\d{1,7},\d{1,7}\])?$")
_LONGEST_TAG_HEAD = 42  # characters: a date and a pair of numbers
_LABEL = re.compile(  # srun -l; kubectl logs --prefix and --timestamps; the name of a pod or container
    r"^(?: *\d{1,7}:(?= )|\[pod/[^\]]{1,300}\] "
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
    r"|[A-Za-z][\w.-]{0,253}(?:: | +\| )(?=[ #]))"
)
_DEVICE = re.compile(
    r"Rank +(\d{1,7}) +(?:Group +\d+ +)?(?:Pid +\d+ +)?on +(\S{1,253}) +device +(\d{1,4})"
    r" +\[([^\]]{1,32})\] *(.{0,128})"
)
_BOUNDS = re.compile(r"Out of bounds values *: *(\d{1,19}) +(OK|FAILED)")
_AVERAGE = re.compile(
    r"Avg bus bandwidth *: *(-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,4})?|-?nan|-?inf)(?![\w.])\s*(OK|FAILED)?"
)
_REDUCED = re.compile(r"Reducing maxBytes to (\d{1,19}) due to memory limitation")
_COLLECTIVE = re.compile(  # the programs of nccl-tests and rccl-tests: libfabric has an ofi_hook_perf
    r"\b(all_gather|all_reduce|alltoallv?|all_to_allv?|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)"
    r"_perf\b"
)
_SWEEP = re.compile(r"minBytes (\d{1,19}) maxBytes (\d{1,19}) step: (\d{1,19})\((factor|bytes)\)")
_STARTING = re.compile(r"Collective test starting: *([a-z][a-z_]{2,30})_perf")
_FAILURES = (
    ("nccl", re.compile(r"(?P<host>\S{1,253}): Test NCCL failure (?P<message>.{1,400})")),
    ("cuda", re.compile(r"(?P<host>\S{1,253}): Test CUDA failure (?P<message>.{1,400})")),
    ("timeout", re.compile(r"(?P<host>\S{1,253}): Test timeout (?P<message>.{1,400})")),
    ("usage", re.compile(r"(?P<message>Invalid number of GPUs: .{1,400})")),
    ("chain", re.compile(r"\.\. (?P<host>\S{1,253}) pid \d+: (?P<message>Test failure .{1,400})")),
    ("other", re.compile(r"# error: (?P<message>\S.{0,400})")),
)
_FAILURE_MARKS = ("Test ", "Invalid number", "# error: ")
_CANCELLED = r"ON (?P<host>\S{1,253}) CANCELLED AT \S{1,40}"
_EVENTS = (
    ("node failure", re.compile(r"(?P<message>Node failure on (?P<host>\S{1,253}))")),
    # The host of this line is a survivor that reports it; the failed node is in srun's own line, if at all.
    ("node failure", re.compile(r"(?P<message>\S+ \S+ ON \S{1,253} CANCELLED AT \S+ DUE TO NODE FAILURE.{0,200})")),
    ("time limit", re.compile(_CANCELLED + r" (?P<message>DUE TO TIME LIMIT)")),
    ("preemption", re.compile(_CANCELLED + r" (?P<message>DUE TO PREEMPTION)")),
    ("cancelled", re.compile(_CANCELLED + r"(?: (?P<message>D[Uu][Ee] .{1,200}?))?(?: ?\*\*\*|$)")),
    ("out of memory", re.compile(r"(?P<message>(?:[Oo]ut [Oo]f [Mm]emory|oom[-_]kill|OOM Killed).{0,200})")),
    ("exit", re.compile(r"srun: error: (?P<host>\S{1,253}): (?P<message>tasks? .{1,200})")),
    ("xid", re.compile(r"(?P<message>NVRM: Xid .{1,200})")),
    ("launch", re.compile(r"error: (?:(?P<host>\S+): )?(?P<message>execve\(\): .{1,300})")),
    ("launch", re.compile(r"error: (?P<message>(?:Unable to create step|Task launch for|Application launch).{1,300})")),
    ("launch", re.compile(r"(?P<message>error while loading shared libraries: .{1,200})")),
    ("launch", re.compile(r"error: +(?P<message>mpi/pmix\S*: .{1,300})")),
    (
        "crash",
        re.compile(r"(?P<message>process rank \d+ with PID \d+ on node (?P<host>\S+) exited on signal .{1,100})"),
    ),
)
_EVENT_MARKS = (
    *("CANCELLED", "emory", "oom", "OOM", "rror: ", "Xid", "loading shared", "exited on signal", "Node failure on"),
)
_EXIT_CODE = re.compile(r"exit code (\d{1,3})")
_NO_GPUDIRECT = re.compile(rb"via NET/(?!Socket)[A-Za-z][\w ]*/\d+(?:\(\d+\))?(?=\s|\Z)")
_MOST_CHANNEL_BLOCKS = 8  # blocks with channels that are searched for those without GPUDirect: each host is alike


def _without_prefixes(text: str) -> str:
    """Take out what launchers put before a line, or into it where a program printed the line in pieces."""
    if "\r" in text:
        text = text.replace("\r", " ")
    if "<std" in text:
        pieces = _TAG.split(text)
        text = " ".join([_without_tag_head(piece) for piece in pieces[:-1]] + pieces[-1:])
    label = _LABEL.match(text)
    return text[label.end() :] if label else text


def _without_tag_head(text: str) -> str:
    head = _TAG_HEAD.search(text, max(0, len(text) - _LONGEST_TAG_HEAD))
    return text[: head.start()] if head else text


def _only_side(text: str) -> str | None:
    """The one side that a line of headings names; None if it names both."""
    sides = [name for name, mark in (("out of place", "out-of-place"), ("in place", "in-place")) if mark in text]
    return sides[0] if len(sides) == 1 else None


class TextReader:
    """Builds a Log from blocks of lines. Call `block` for each, then `end`; neither raises, whatever they hold.

    network: reads what NCCL itself says.
    doubtful: an unknown line was between NCCL's lines, perhaps the end of a line that a pipe's buffer cut.
    """

    def __init__(self) -> None:
        self.log = Log()
        self.causes = CauseReader()
        self.network = NetworkReader(self.log.network, self.log.versions, self.causes)
        self._channel_blocks = 0
        self._columns = Columns()
        self._only: str | None = None
        self._table: Table | None = None
        self._row: PartialRow | None = None
        self._collective: str | None = None
        self._reduced: int | None = None
        self._sweep: tuple[int, int, int, bool] | None = None
        self._first_rank_listed = False
        self._talks = False
        self._after_comment = False
        self._devices: dict[tuple[str, ...], Device] = {}
        self.doubtful = False

    def block(self, block: bytes, ended: bool, thorough: bool) -> None:
        """Read a block of lines; ended: its last line had its line end. thorough: see sieve.py."""
        self._read_channels(block)
        if not ended:
            self._bytes(block[1:], ended)
        elif thorough or hides_a_failure(block):
            self.network.block(block)
            self._talks = self._talks or b"NCCL INFO" in block
            for line in thorough_lines(block):
                self._bytes(line, ended)
        else:
            for host, size, message, line in quick_lines(block):
                if host:
                    self.network.message(host, size, message)
                    self._talks = True
                else:
                    self._bytes(line, ended)

    def _read_channels(self, block: bytes) -> None:
        """Note channels that run over a network card without GPUDirect RDMA."""
        if self._channel_blocks >= _MOST_CHANNEL_BLOCKS or b"via NET/" not in block:
            return
        self._channel_blocks += 1
        found = _NO_GPUDIRECT.search(block)
        if found:
            start = block.rfind(b"\n", 0, found.start()) + 1
            self.causes.line(block[start : found.end()][-_LONGEST_LINE:].decode("utf-8", "replace"))

    def _bytes(self, line: bytes, ended: bool) -> None:
        text = _without_prefixes(line[:_LONGEST_LINE].decode("utf-8", "replace"))
        is_row = self._line(text, ended and len(line) <= _LONGEST_LINE)
        first = text[1:2] if text[:1] == " " else text[:1]  # a tag was replaced by a space
        is_known = is_row or first in ("#", " ") or "NCCL" in text or (not first and self._after_comment)
        self.doubtful = self.doubtful or (self._talks and not is_known)
        self._after_comment = first == "#"

    def _line(self, text: str, ended: bool) -> bool:
        """Read one line; return whether it belongs to a row. ended: it had a line end, unlike a killed job's last."""
        if text.startswith("#  Rank") and "Test " not in text and "error: " not in text:
            self._read_device(text)
            return False
        is_row = self._read_row(text, ended)
        if "of-place" in text or "in-place" in text:
            self._only = _only_side(text)
        if "busbw" in text and not is_row:
            self._read_header(text)
        if ended and ("NCCL INFO" in text or "NCCL WARN" in text):
            self.network.line(text)
        elif not is_row or ":" in text:  # with other text behind it
            self.causes.line(text)
        if "values" in text or "bandwidth" in text:
            self._read_footer(text, ended)
        self._read_words(text)
        return is_row

    def end(self) -> Log:
        """Close what is open and give the log."""
        self._close_row()
        self._close_table()
        exits: dict[str, set[int]] = {}
        for event in self.log.events:
            code = _EXIT_CODE.search(event.message) if event.kind == "exit" and event.host else None
            if code and event.host:
                exits.setdefault(event.host, set()).add(int(code[1]))
        self.log.causes = self.causes.end(exits, self.network.end())
        return self.log

    def _read_row(self, text: str, ended: bool) -> bool:
        if "  " not in text and "NCCL INFO" in text:  # a table's pieces are never without two spaces
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
        if self._row is not None:
            row, self._row = self._row.finish(), None
            self.log.keep(self._open_table(), row)

    def _open_table(self) -> Table:
        """Return the table that rows go to; one without a header begins with its first row."""
        if self._table is None:
            self._table = Table(self._collective, reduced_max_bytes=self._reduced)
            self._reduced = None
            self.log.begin(self._table)
        return self._table

    def _close_table(self) -> None:
        """Let go of the table; by now its sweep is known, with what memory took from it."""
        table, self._table = self._table, None
        if table is None:
            return
        if table.headed and self._sweep is None:
            sizes = {row.size for row in table.rows} | {bad.size for bad in table.bad_rows}
            table.sizes = sizes_by_step(sorted(sizes - {0}))
        take_out_lost_digits(table)
        if table.headed and self._sweep is not None:
            least, most, step, is_factor = self._sweep
            table.sizes = count_sizes(least, min(most, table.reduced_max_bytes or most), step, is_factor)

    def _read_header(self, text: str) -> None:
        columns = read_columns(text, self._only)
        if columns is None:
            return
        self._close_row()
        if self._table is not None:
            self._warn_of_two()
            self._close_table()
        self._columns = columns
        self._open_table().headed = True

    def _read_device(self, text: str) -> None:
        found = _DEVICE.search(text)
        if found is None or len(self.log.devices) >= _MOST_DEVICES:
            return
        device = self._devices.get(found.groups())  # tests on the same nodes list the same devices again
        if device is None:
            device = Device(int(found[1]), found[2], int(found[3]), found[4], found[5].strip())
            self._devices[found.groups()] = device
        self.log.devices.append(device)
        if device.rank == 0:
            if self._first_rank_listed:
                self._warn_of_two()
            self._first_rank_listed = True

    def _warn_of_two(self) -> None:
        self.log.warn(
            "a second program began before the first one's table ended: either the processes never met"
            " (nccl-tests built without MPI), or a run was cut and another one follows it"
        )

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
            self._close_table()
            self._first_rank_listed = False

    def _read_words(self, text: str) -> None:
        if "Rank" in text and " device " in text:
            self._read_device(text)
        if "_perf" in text:
            self._read_collective(text)
        if "minBytes" in text:
            sweep = _SWEEP.search(text)
            self._sweep = (int(sweep[1]), int(sweep[2]), int(sweep[3]), sweep[4] == "factor") if sweep else None
        if "ersion" in text:
            read_versions(text, self.log.versions)
        if "Reducing maxBytes" in text:
            reduced = _REDUCED.search(text)
            self._reduced = int(reduced[1]) if reduced else None
        if any(mark in text for mark in _FAILURE_MARKS):
            self._note(_FAILURES, text, self.log.failures)
        if any(mark in text for mark in _EVENT_MARKS):
            self._note(_EVENTS, text, self.log.events)

    def _read_collective(self, text: str) -> None:
        starting = _STARTING.search(text)
        named = starting or _COLLECTIVE.search(text)
        if starting or (named and self._table is None):
            self._collective = named[1] if named else None

    @staticmethod
    def _note(patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str, notes: list[Failure]) -> None:
        for kind, pattern in patterns:
            found = pattern.search(text)
            if found and len(notes) < _MOST:
                groups = found.groupdict()
                message = (groups["message"] or "no reason given").strip(" *")
                notes.append(Failure(kind, groups.get("host"), message))
                return
