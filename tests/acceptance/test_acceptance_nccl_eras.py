"""Tables printed in each era's format with figures made up for the test, whole and damaged: read, and compared with it."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, field

import pytest
from acceptance_runs import HERE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance.nccl import Log, Row, parse_bytes, parse_stream

DATA = HERE / "data"
FIXED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Era:
    """How a time printed its rows: header, lead, one side in its pieces, and the unit of its times."""

    header: str
    lead: str
    side: tuple[str, ...]
    last: tuple[str, ...]
    milliseconds: bool = False
    tail: str = ""


MODERN = "#       size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
LEAD = "{size:12d}  {count:12d}  {type:>8s}  {redop:>6s}  {root:>6s}"
NEW_SIDE = "  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>6s}"
ERAS = {
    "2017": Era(
        "      bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res",
        "{size:12d}  {count:12d}  {type:>6s}  {redop:>6s}",
        ("  {time:>7s}  {algbw:>5s}  {busbw:>5s}  {last:>7s}",),
        ("0e+00", "2e-07", "\tN/A"),
        milliseconds=True,
    ),
    "2019": Era(
        "#       size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error",
        "{size:12d}  {count:12d}  {type:>6s}  {redop:>6s}",
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("5e-07", "0e+00", "N/A"),
    ),
    "2019 broadcast": Era(
        "#       size  count  type  root  time  algbw  busbw  error  time  algbw  busbw  error",
        "{size:12d}  {count:12d}  {type:>6s}  {root:>6s}",
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("5e-07", "N/A"),
    ),
    "2019 reduce": Era(
        "#       size  count  type  redop  root  time  algbw  busbw  error  time  algbw  busbw  error",
        "{size:12d}  {count:12d}  {type:>6s}  {redop:>6s}  {root:>6s}",
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("5e-07", "N/A"),
    ),
    "2019 all_gather": Era(
        "#       size  count  type  time  algbw  busbw  error  time  algbw  busbw  error",
        "{size:12d}  {count:12d}  {type:>6s}",
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("0e+00", "N/A"),
    ),
    "2019 alltoall": Era(
        "#       size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error",
        "{size:12d}  {count:12d}  {type:>6s}        ",
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("0e+00", "N/A"),
    ),
    "2022": Era(
        MODERN,
        LEAD,
        ("  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {last:>5s}",),
        ("0", "N/A", "1.34218e+08", "12"),
    ),
    "2026": Era(MODERN, LEAD, (NEW_SIDE,), ("0", "N/A", "7", "12")),
    "2026 -S": Era(MODERN + "  timestamp", LEAD, (NEW_SIDE,), ("0", "7"), tail="  2026-11-27 20:59:29"),
    "2026 -I": Era(
        MODERN.replace("#wrong", "#wrong  i_min  i_max  i_p99  i_cv%"),
        LEAD,
        (NEW_SIDE, "  {time:>7s}  {time:>7s}  {time:>7s}  {busbw:>7s}"),
        ("0", "7"),
    ),
}


def shown_time(time_us: float, era: Era) -> str:
    """A time as nccl-tests prints it: fewer decimals for longer times, milliseconds in 2017."""
    if era.milliseconds:
        return f"{time_us / 1e3:.3f}"
    if era.header.startswith(MODERN[:40]) and "{last:>6s}" in era.side[0]:  # 2.17 and newer
        return f"{time_us:.2f}" if time_us < 9_999.99 else f"{time_us:.1f}" if time_us < 99_999.9 else f"{time_us:.0f}"
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.1f}" if time_us < 10_000 else f"{time_us:.0f}"


@dataclass
class Printed:
    """A table: the pieces that were printed, in order, and the rows that a reader has to find."""

    era: Era
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)
    rows: dict[int, list[object]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.head + self.body + self.foot)


@st.composite
def tables(draw: st.DrawFn, names: tuple[str, ...] = tuple(ERAS), most: int = 4) -> Printed:
    """A table of consecutive sizes in one era's format."""
    era = ERAS[draw(st.sampled_from(names))]
    printed = Printed(era)
    first, count = draw(st.integers(3, 30)), draw(st.integers(1, most))
    redop, kind = draw(st.sampled_from(("sum", "max", "none"))), draw(st.sampled_from(("float", "bfloat16", "half")))
    root, factor = draw(st.sampled_from(("-1", "0", "7"))), draw(st.sampled_from((1.0, 1.75, 1.875)))
    for size in (1 << exponent for exponent in range(first, first + count)):
        elements = size // (4 if kind == "float" else 2)
        lead = era.lead.format(size=size, count=elements, type=kind, redop=redop, root=root)
        sides: list[object] = []
        pieces = [lead]
        for _ in range(2):
            time = shown_time(draw(st.floats(20, 150_000)), era)
            algbw = size / (float(time) * (1e3 if era.milliseconds else 1)) / 1e3
            last = draw(st.sampled_from(era.last))
            cells = {"time": time, "algbw": f"{algbw:.2f}", "busbw": f"{algbw * factor:.2f}", "last": last}
            pieces += [piece.format(**cells) for piece in era.side]
            sides.append((float(f"{algbw:.2f}"), float(f"{algbw * factor:.2f}"), last.strip()))
        printed.body += [*pieces[:-1], pieces[-1] + era.tail + "\n"]
        printed.rows[size] = [elements, kind, *sides]
    sweep = f"minBytes {1 << first} maxBytes {1 << (first + count - 1)} step: 2(factor)"
    printed.head = [f"# nThread 1 nGpus 1 {sweep} warmup iters: 5 iters: 20\n", era.header + "\n"]
    printed.foot = ["# Out of bounds values : 12 FAILED\n", "# Avg bus bandwidth    : 122.499 \n"]
    return printed


def agrees(row: Row, wanted: list[object]) -> bool:
    """Whether every number that a row reports is one that was printed for its size."""
    if [row.count, row.type] != wanted[:2]:
        return False
    for side, printed in zip((row.out_of_place, row.in_place), wanted[2:]):  # noqa: B905 - two and two
        if side is not None:
            assert isinstance(printed, tuple)
            shown = side.wrong if side.wrong is not None else side.error
            last = None if printed[2] == "N/A" else float(printed[2])
            if (side.algbw, side.busbw, shown) != (*printed[:2], last):
                return False
    return True


def holds(log: Log, printed: Printed) -> int:
    """Check every row that a log reports against what was printed; give how many it reports."""
    rows = [row for table in log.tables for row in table.rows]
    for row in rows:
        assert row.size in printed.rows
        assert agrees(row, printed.rows[row.size])
    return len(rows)


@FIXED
@given(tables())
def test_every_era_is_read_whole(printed: Printed) -> None:
    log = parse_bytes(printed.text.encode())
    assert holds(log, printed) == len(printed.rows)
    assert log.complete
    assert log.tables[0].average_busbw == 122.499
    assert log.tables[0].out_of_bounds == 12


@pytest.mark.parametrize("name", ERAS)
def test_cut_at_every_byte(name: str) -> None:
    @settings(FIXED, max_examples=5)
    @given(tables(names=(name,), most=2))
    def check(printed: Printed) -> None:
        text = printed.text.encode()
        for end in range(len(text)):
            log = parse_bytes(text[:end])
            holds(log, printed)
            assert not log.complete or text[end:].strip() == b""
            for table in log.tables:
                assert table.average_busbw in (None, 122.499)
                assert table.out_of_bounds in (None, 12)

    check()


@pytest.mark.parametrize("name", ["own-h200x4-allreduce_info_small.txt", "99-SYNTH-killed-mid-row.txt"])
def test_a_real_log_cut_at_every_byte(name: str) -> None:
    raw = (DATA / name).read_bytes()
    whole = {row.size: row for row in parse_bytes(raw).tables[0].rows}
    start = raw.index(b"redop")
    for end in range(start, len(raw) - 1, 1 if len(raw) < 5000 else 7):
        log = parse_bytes(raw[:end])
        for row in (row for table in log.tables for row in table.rows):
            assert row.out_of_place == whole[row.size].out_of_place
            assert row.in_place in (None, whole[row.size].in_place)
        assert not log.complete or end > raw.index(b"# Avg bus bandwidth") + 28


PREFIXES = (
    "0: ",
    " 12: ",
    "[1,0]<stdout>:",
    "Thu Jul 18 15:41:05 2024<stdout>:",
    "Thu Jul  4 15:41:05 2024[1,0]<stdout>:",
    "    ",
    "worker-0: ",
    "worker-0  | ",
    "[pod/nccl-worker-0/main] ",
    "2026-11-27T20:59:29.123456789Z ",
)
INFO = ("n1:25:66 [0] NCCL INFO Channel 00/24 :    0   1   2   3\n", "n1:25:66 [1] NCCL INFO Using network Socket\n")


@FIXED
@given(tables(), st.sampled_from(PREFIXES), st.booleans(), st.integers(0, 2**16 - 1))
def test_prefixes(printed: Printed, prefix: str, talks: bool, where: int) -> None:
    """Before each line; and before the second piece of a row, which other text came before."""
    pieces = printed.head + printed.body + printed.foot
    text, at_start = "", True
    for index, piece in enumerate(pieces):
        text += (prefix if at_start else "") + piece
        at_start = piece.endswith("\n")
        if talks and (at_start or where >> index % 16 & 1):
            text += ("" if at_start else "\n") + prefix + INFO[index % 2]
            at_start = True
    log = parse_bytes(text.encode())
    assert holds(log, printed) == len(printed.rows)
    assert log.complete
    assert not talks or log.network.hosts["n1"].network == "Socket"


@FIXED
@given(tables(), st.integers(0, 2**16 - 1))
def test_a_tag_in_the_middle_of_a_row(printed: Printed, where: int) -> None:
    """mpirun --tag-output puts its tag before each piece that a program prints."""
    text = ""
    for index, piece in enumerate(printed.head + printed.body + printed.foot):
        text += ("[1,0]<stdout>:" if text[-1:] in ("", "\n") or where >> index % 16 & 1 else "") + piece
    log = parse_bytes(text.encode())
    assert holds(log, printed) == len(printed.rows)
    assert log.complete


GLUED = ("n1:25:66 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n", "[1,3]<stderr>:some other rank says this\n", "warning\n")


@FIXED
@given(tables(), st.sampled_from(GLUED), st.integers(0, 2**12 - 1))
def test_text_of_others_between_the_pieces(printed: Printed, glued: str, where: int) -> None:
    text = "".join(printed.head)
    for index, piece in enumerate(printed.body):
        text += piece + (glued if where >> index % 12 & 1 and not piece.endswith("\n") else "")
    log = parse_bytes((text + "".join(printed.foot)).encode())
    assert holds(log, printed) == len(printed.rows)
    assert log.complete


def mixed(chance: random.Random, streams: list[bytes], least: int) -> bytes:
    """What arrives where processes write through pipes: pieces of at least `least` bytes, cut anywhere."""
    waiting, out = list(streams), b""
    while waiting:
        at = chance.randrange(len(waiting))
        length = chance.randrange(least, least * 8)
        out += waiting[at][:length]
        waiting[at] = waiting[at][length:]
        waiting = [stream for stream in waiting if stream]
    return out


OTHERS = (
    b"".join(b"n%d:25:66 [1] NCCL INFO Channel %02d/0 : 1[1] -> 2[2] via P2P/CUMEM\n" % (i % 3, i) for i in range(30)),
    b"n2: Test NCCL failure common.cu:961 'unhandled system error / '\n .. n2 pid 914454: Test failure common.cu:844\n"
    * 3,
    b"n3:2:6 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)\n" * 8,
    b"12 34 56.78\n\n0\n   7   8   9.00   0\n" * 8,
)


@settings(FIXED, max_examples=250)
@given(tables(), st.integers(0, 2**32), st.sampled_from((1, 3, 40)))
def test_ranks_that_write_over_each_other(printed: Printed, seed: int, least: int) -> None:
    """Rank 0's table and what the others say, mixed byte by byte: what is called complete is the table as printed."""
    chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
    streams = [printed.text.encode(), *chance.sample(OTHERS, chance.randrange(1, 4))]
    log = parse_bytes(mixed(chance, streams, least))
    for table in log.tables:
        for row in table.rows:
            assert not (table.complete and row.complete) or agrees(row, printed.rows[row.size])
    if log.complete and log.tables[0].sizes is not None:  # else the line that announces them was hit
        assert holds(log, printed) == len(printed.rows)


@settings(FIXED, max_examples=150)
@given(tables(), tables(), st.integers(0, 2**32), st.sampled_from((1, 8, 100)))
def test_two_tables_over_each_other(one: Printed, two: Printed, seed: int, least: int) -> None:
    """Two processes that never met: complete is only what one of them printed."""
    chance = random.Random(seed)  # noqa: S311 - as above
    log = parse_bytes(mixed(chance, [one.text.encode(), two.text.encode()], least))
    for table in log.tables:
        for row in table.rows if table.complete else []:
            assert any(row.size in p.rows and agrees(row, p.rows[row.size]) for p in (one, two))


class Pipe(io.BytesIO):
    """A stream that cannot be read again: it is read thoroughly at once."""

    def seekable(self) -> bool:
        return False


@settings(FIXED, max_examples=150)
@given(tables(), st.integers(0, 2**32), st.sampled_from((1, 60, 4096)), st.sampled_from(("", "3: ", "[1,3]<stdout>:")))
def test_reading_quickly_finds_what_reading_thoroughly_finds(
    printed: Printed, seed: int, least: int, prefix: str
) -> None:
    chance = random.Random(seed)  # noqa: S311 - as above
    info = (DATA / "own-h200x4-allreduce_info_small.txt").read_text().splitlines(keepends=True)[9:100]
    talk = "".join(prefix + line for line in info).encode()
    data = mixed(chance, [printed.text.encode(), talk, talk], least)
    assert parse_bytes(data).as_json("x") == parse_stream(Pipe(data)).as_json("x")


def small_logs() -> list[bytes]:
    """Short logs of every form, most lines of the samples left out: damage has to hit something that matters."""
    samples = []
    for path in sorted(DATA.glob("*-*.*")):
        raw = path.read_bytes()
        if path.suffix == ".json":
            samples += [raw[:1800], raw[-900:]] if len(raw) > 4000 else [raw]
            continue
        lines = raw.splitlines(keepends=True)
        telling = [line for line in lines if line.startswith((b"#  Rank  0", b"#       size", b"# Out", b"# Avg"))]
        rows = [line for line in lines if b" float " in line or b" bfloat16 " in line][-2:]
        rest = [
            line for line in lines if b"ailure" in line or b"error" in line or b"network" in line or b"nRanks" in line
        ]
        samples.append(b"".join(telling[:2] + rows + telling[2:] + rest[:3]))
    return samples


JUNK = (
    b"\0",
    b"9" * 50,
    b"\n",
    b"nan",
    b"[[[[",
    b"\xff\xfe",
    b"1e999 ",
    b"-",
    b" ",
    b"\r",
    b"<stdout>:",
    b'"',
    b"{",
    b"inf",
)


def damaged(chance: random.Random, sample: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(chance.randrange(1, 12)):
        position, action = chance.randrange(len(data) + 1), chance.randrange(4)
        if action == 0:
            data[position : position + 1] = bytes([chance.randrange(256)])
        elif action == 1:
            del data[position : position + chance.randrange(40)]
        elif action == 2:
            data[position:position] = chance.choice(JUNK)
        else:
            other = chance.randrange(len(data) + 1)
            data[position:position] = data[other : other + chance.randrange(80)]
    return bytes(data)


@pytest.mark.slow
def test_damaged_logs() -> None:
    """Nothing raises, the result has a form in JSON and a bound, and what is complete has real numbers."""
    chance, samples = random.Random(20261127), small_logs()  # noqa: S311 - as above
    complete = 0
    for index in range(8_000):
        log = parse_bytes(damaged(chance, samples[index % len(samples)]))
        complete += log.complete
        if index % 10 == 0:
            json.dumps(log.as_json("x"), allow_nan=False)
        for table in log.tables:
            for row in table.rows:
                assert row.out_of_place.measured
                assert row.in_place is None or row.in_place.measured
    assert 80 < complete < 7_200  # damage matters, and not all of it
