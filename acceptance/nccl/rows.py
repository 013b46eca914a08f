"""The rows of an nccl-tests table, as they are printed: in three pieces, with anything in between.

The lead (size, count, type, operation, root) is found by the name of the data type, wherever it is in the line.
The cells of the two sides follow it, on the same line or, when something was printed in between, on a later one.
A cell at the very end of the input may be cut short; it counts as whole only if nothing could have followed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from sys import intern

from acceptance.nccl.across import rounding
from acceptance.nccl.model import BadRow, IterationTimes, Row, Side

TYPES = (
    "float8e4m3|float8e5m2|float|double|half|bfloat16|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2"
    "|int8|uint8|int32|uint32|int64|uint64|char|uchar|int"
)
LEAD = re.compile(rf"(?<![\w.+-])(\d{{1,19}})\s+(\d{{1,19}})\s+({TYPES})(?=\s|$)")
_LAST_IN_LEAD = re.compile(LEAD.pattern[: -len(r"(?=\s|$)")] + r"(?=[A-Za-z\[])")  # text of others right behind it
_REDOP = re.compile(r"\s+(sum|prod|max|min|avg|mulsum|none)(?![\w.])")
_LAST_REDOP = re.compile(r"\s+(sum|prod|max|min|avg|mulsum|none)(?=[A-Za-z\[])")
_ROOT = re.compile(r"\s+(-?\d{1,9})(?=\s|$|[A-Za-z\[])")
_CELL = re.compile(r"\s+(-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,4})?|-?nan|-?inf|N/A)(?=\s|$)")
_ERROR = re.compile(r"\d(?:\.\d+)?e[+-]\d{2,3}|N/A|-?nan|-?inf")  # how a difference was printed before 2.13
_WRONG = re.compile(r"\d{1,19}|\d(?:\.\d+)?e\+\d{2,3}|N/A")  # and how a count is
# Spaces that alltoall printed in place of the operation before 2.13; before an operation there are fewer.
_BLANK_REDOP = 8
PIECE = 4  # cells that nccl-tests prints at once
_BLANK_SIDE = re.compile(r" {28,}(?=\S)")  # what it prints for a side that it did not measure (trace replay)
_TYPE_BYTES = {"char": 1, "uchar": 1, "int": 4, "half": 2, "bfloat16": 2, "float": 4, "double": 8}
_LAST_CELL = re.compile(r"\s+(\d{1,15}(?:\.\d{1,15})?(?:e[+-]\d{2,3})?|N/A)(?=[A-Za-z\[])(?!e[+-]\d)")


@dataclass(frozen=True)
class Columns:
    """What a table's header promises.

    redop, root: whether the lead has these cells (None: no header was seen, take them from the row).
    side: cells of one side. time_scale: factor from the printed time to microseconds. wrong: last cell's meaning.
    checked_time: false where the time is the CPU's (`-C 1`) and has no fixed relation to the bandwidth.
    only: 'in place' or 'out of place' where the table has this side alone, as rccl-tests can print it.
    """

    redop: bool | None = None
    root: bool | None = None
    side: int = 4
    time_scale: float = 1.0
    wrong: str = "wrong"
    checked_time: bool = True
    only: str | None = None


def read_columns(line: str, only: str | None = None) -> Columns | None:
    """Return the columns if `line` is a table's header, else None.

    only: the side that the line above names, where it names one alone.
    """
    words = line.replace("#", " ", 1).split()
    starts = [i for i, word in enumerate(words) if word in ("time", "cputime")]
    if len(starts) not in (1, 2) or "algbw" not in words or "busbw" not in words:
        return None
    lead, first = words[: starts[0]], words[starts[0] : starts[1] if len(starts) == 2 else None]
    if "type" not in lead or len(first) < 4:
        return None
    return Columns(
        redop="redop" in lead or "op" in lead,
        root="root" in lead,
        side=len(first),
        time_scale=1000.0 if "bytes" in lead else 1.0,
        wrong="wrong" if first[3].lstrip("#") == "wrong" else "error",
        checked_time=words[starts[0]] == "time",
        only=None if len(starts) == 2 else only or "one place",
    )


@dataclass
class PartialRow:
    """A row being read; `cells` grows as pieces arrive.

    settled: whether the last cell is known to be whole (something that cannot belong to it came after it).
    blank: the out-of-place side was printed as blanks; the cells are those of the in-place side.
    wide: the lead has the gaps that nccl-tests prints: then cells without them were cut, or are other text.
    """

    size: int
    count: int
    type: str
    columns: Columns
    redop: str | None = None
    root: int | None = None
    cells: list[str] = field(default_factory=list)
    settled: bool = True
    lead_whole: bool = True
    blank: bool = False
    wide: bool = False

    @property
    def wanted(self) -> int:
        """How many cells the row has when it is whole."""
        return self.columns.side if self.blank or self.columns.only else 2 * self.columns.side

    @property
    def full(self) -> bool:
        """Whether the row has all its cells."""
        return len(self.cells) >= self.wanted

    def take(self, text: str, ended: bool) -> None:
        """Add the cells at the start of `text`; `ended`: the line had its line end."""
        position = 0
        self.blank = self.blank or (not self.cells and _BLANK_SIDE.match(text) is not None)
        while len(self.cells) < self.wanted:
            cell = _CELL.match(text, position)
            if cell is None or (self.wide and _is_cut(cell)):
                self._take_glued(text, position)
                return
            self.cells.append(cell.group(1))
            position = cell.end()
            self.settled = position < len(text) or cell.group(1) in ("0", "N/A")
        self.settled = self.settled or ended

    def _take_glued(self, text: str, position: int) -> None:
        """Take the last cell of a piece where another program's text begins right behind it."""
        if (len(self.cells) + 1) % PIECE:
            return
        cell = _LAST_CELL.match(text, position)
        if cell and not (self.wide and _is_cut(cell)):
            self.cells.append(cell.group(1))
            self.settled = cell.group(1) in ("0", "N/A")

    def continues_with(self, text: str) -> bool:
        """Whether `text` begins with exactly the piece or pieces that this row still lacks."""
        missing = self.wanted - len(self.cells)
        if missing <= 0 or missing % PIECE or not text[:1].isspace():
            return False
        cells, position = _count_cells(text, 0)
        if cells % PIECE == PIECE - 1 and _LAST_CELL.match(text, position):
            cells += 1
        return 0 < cells <= missing and cells % PIECE == 0

    def finish(self) -> Row | BadRow:
        """Return the row, or why it cannot be used."""
        side = self.columns.side
        whole = len(self.cells) - (0 if self.settled else 1)
        fault = self._fault(whole)
        if fault:
            return BadRow(self.size, fault)
        first = self._side(self.cells[:side])
        second = self._side(self.cells[side:]) if whole >= 2 * side else None
        if first is None or (second is None and whole >= 2 * side):
            return BadRow(self.size, "its time, size and bandwidth contradict each other")
        if not first.measured:
            return BadRow(self.size, "its time or bandwidth is not a number")
        if second is not None and not second.measured:
            second = None
        return Row(self.size, self.count, intern(self.type), self.redop, self.root, first, second)

    def _fault(self, whole: int) -> str | None:
        if not self.lead_whole:
            return "its operation or root is missing"
        if self.blank:
            return "its out-of-place side is blank: only in place was measured"
        if self.columns.only not in (None, "out of place"):
            return f"only {self.columns.only} was measured: there is no out-of-place bandwidth"
        if whole < self.columns.side:
            return f"cut after {len(self.cells)} of {self.wanted} cells"
        unit = self.count * element_bytes(self.type)
        if unit and (self.size < unit or self.size % unit):
            return "its size and count contradict each other"
        return None

    def _side(self, cells: list[str]) -> Side | None:
        if "N/A" in cells[:3]:
            return None
        time_us = float(cells[0]) * self.columns.time_scale
        algbw, busbw = float(cells[1]), float(cells[2])
        last = None if cells[3] == "N/A" else float(cells[3])
        if not (self._digits_whole(cells) and self._consistent(cells[0], time_us, algbw)):
            return None
        if busbw > 2.002 * algbw + 0.0151:  # no collective has a factor above 2; both numbers are rounded
            return None
        iterations = None
        if len(cells) == 2 * PIECE and "N/A" not in cells:
            iterations = IterationTimes(*map(float, cells[PIECE:]))
        if not (_WRONG if self.columns.wrong == "wrong" else _ERROR).fullmatch(cells[3]):
            return None
        if self.columns.wrong == "wrong":
            return Side(time_us, algbw, busbw, wrong=last, iterations=iterations)
        return Side(time_us, algbw, busbw, error=last, iterations=iterations)

    def _digits_whole(self, cells: list[str]) -> bool:
        """Whether no cell lost its last digits: how many decimals are printed follows from the number's size."""
        bandwidths = ((1_000.0, 2), (10_000.0, 1))
        return _has_decimals(cells[0], ((10_000.0, 1),)) and all(_has_decimals(cell, bandwidths) for cell in cells[1:3])

    def _consistent(self, printed: str, time_us: float, algbw: float) -> bool:
        """Compare size / time with the algorithm bandwidth, within the precision of the printed digits.

        Hypercube's bandwidth leaves out a rank's own share, (n-1)/n: rows without an operation may be up to half lower.
        """
        if not self.columns.checked_time or not (0 <= time_us < float("inf")) or not (0 <= algbw < float("inf")):
            return True
        decimals = len(printed.partition(".")[2]) if "e" not in printed else 0
        slack = 0.5 * 10.0**-decimals * self.columns.time_scale
        if "e" in printed:
            slack = time_us
        low = self.size / max(time_us + slack, 1e-9) / 1e3
        high = self.size / max(time_us - slack, 1e-9) / 1e3
        if self.redop is None:
            low /= 2
        slack = rounding(algbw)
        return bool(low - slack <= algbw <= high + slack)


def element_bytes(name: str) -> int:
    """Bytes of one element of a data type as nccl-tests names it."""
    if name in _TYPE_BYTES:
        return _TYPE_BYTES[name]
    return int(name.lstrip("uint")) // 8 if "int" in name else 1


def _is_cut(cell: re.Match[str]) -> bool:
    """Whether a cell is narrower than nccl-tests prints any: two spaces, and five characters, flush right."""
    text = cell.group()
    return "\t" not in text and (len(text) < 7 or cell.start(1) - cell.start() < 2)


def _has_decimals(cell: str, rules: tuple[tuple[float, int], ...]) -> bool:
    """Whether `cell` has as many decimals as the first rule (below, at least) that fits asks for."""
    if "e" in cell or "n" in cell:
        return True
    number, decimals = abs(float(cell)), len(cell.partition(".")[2])
    return decimals >= next((least for below, least in rules if number < below), 0)


def read_lead(text: str, columns: Columns) -> tuple[PartialRow, int] | None:
    """Find the lead of a row in `text`; return the row without cells and the position behind the lead."""
    lead = LEAD.search(text)
    if lead is None and not columns.redop and columns.root is False:
        lead = _LAST_IN_LEAD.search(text)
    if lead is None:
        return None
    row = PartialRow(int(lead.group(1)), int(lead.group(2)), lead.group(3), columns, wide="  " in lead.group())
    position = lead.end()
    redop = _REDOP.match(text, position)
    if redop is None and columns.redop and columns.root is False:
        redop = _LAST_REDOP.match(text, position)
    if redop:
        row.redop, position = redop.group(1), redop.end()
    has_root = columns.root
    if has_root is None:
        has_root = _root_by_count(text, position)
    if has_root:
        root = _ROOT.match(text, position)
        row.lead_whole = root is not None
        if root:
            row.root, position = int(root.group(1)), root.end()
    elif columns.redop and not redop and not text[position:].strip():
        row.lead_whole = len(text) - position >= _BLANK_REDOP
    return row, position


def _count_cells(text: str, position: int) -> tuple[int, int]:
    """Count the cells from `position` on; return the count and where they end."""
    cells = 0
    while True:
        cell = _CELL.match(text, position)
        if cell is None:
            return cells, position
        cells += 1
        position = cell.end()


def _root_by_count(text: str, position: int) -> bool:
    """Without a header: an odd number of cells behind the operation means that the first one is the root."""
    cells, _ = _count_cells(text, position)
    return cells % 2 == 1 or cells == 0
