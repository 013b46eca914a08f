"""The parser against real logs, against printed tables of every era, and against damage."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, REPOSITORY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance.nccl import Log, parse_bytes, parse_file, parse_stream

DATA = HERE / "data"
SHARED = REPOSITORY.parent / "shared" / "nccl-logs"
FIXED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def expected_of(directory: Path) -> list[Any]:
    table = directory / "EXPECTED.tsv"
    if not table.is_file():
        return []
    with table.open() as stream:
        return [
            pytest.param(directory / row["name"], row, id=row["name"]) for row in csv.DictReader(stream, delimiter="\t")
        ]


@pytest.mark.parametrize(("path", "expected"), expected_of(DATA) + expected_of(SHARED / "public"))
def test_counts_of_every_log(path: Path, expected: dict[str, str]) -> None:
    log = parse_file(path)
    rows = [row for table in log.tables for row in table.rows]
    assert len(log.tables) == int(expected["tables"])
    assert len(rows) == int(expected["rows"])
    assert sum(len(table.bad_rows) for table in log.tables) == int(expected["bad_rows"])
    assert max((row.out_of_place.busbw for row in rows), default=0) == float(expected["peak_oop_busbw"])
    assert len(log.failures) == int(expected["failures"])
    assert len(log.devices) == int(expected["devices"])


@pytest.mark.parametrize("path", sorted(DATA.glob("own-h200x4-*.txt")), ids=lambda path: path.stem)
def test_own_runs(path: Path) -> None:
    log = parse_file(path)
    if path.stem.endswith(("help", "too_many_gpus")):
        assert log.tables == []
        assert not log.complete
        return
    assert log.complete
    collective = log.tables[0].collective or ""
    assert collective in path.stem or path.stem.endswith(("bf16_avg_a3",)) or "allreduce" in path.stem
    assert len(log.devices) == (1 if "single" in path.stem else 4)
    assert log.versions["nccl_tests"] == "2.19.6"


def test_json_and_text_of_one_run_agree() -> None:
    text = parse_file(DATA / "own-h200x4-all_reduce-with-J.txt").tables[0]
    data = parse_file(DATA / "own-h200x4-all_reduce.json").tables[0]
    assert len(text.rows) == len(data.rows)
    for printed, written in zip(text.rows, data.rows):  # noqa: B905 - the line above holds
        assert printed.size == written.size
        assert printed.out_of_place.busbw == pytest.approx(written.out_of_place.busbw, abs=0.0051)
    assert data.average_busbw == pytest.approx(98.433779)


def test_environment_of_the_json_file_is_not_kept() -> None:
    raw = (DATA / "89-SYNTH-J-v3.json").read_bytes()
    assert b"EXAMPLE-leaks-here" in raw
    assert "leaks" not in json.dumps(parse_bytes(raw).as_json("x"))


def test_json_left_open_and_bare_infinity() -> None:
    raw = (DATA / "own-h200x4-all_reduce.json").read_text()
    cut = parse_bytes(raw[: raw.index('"size": 1048576')].encode())
    assert [row.size for row in cut.tables[0].rows] == [8 << n for n in range(17)]
    assert not cut.complete
    bare = parse_bytes(raw.replace('"alg_bw": 0.000309', '"alg_bw": -inf').encode())
    assert bare.complete
    assert bare.as_json("x")["tables"][0]["rows"][0]["out_of_place"]["algbw"] is None


def test_network_of_a_log_over_sockets() -> None:
    network = parse_file(DATA / "own-h200x4-allreduce_info_small.txt").network
    assert network.values("network") == ["Socket"]
    assert network.ranks == 4
    assert any("NCCL chose sockets" in flag for flag in network.red_flags)


@pytest.mark.parametrize(
    ("line", "provider", "nics"),
    [
        ("n1:25:66 [0] NCCL INFO NET/OFI Selected Provider is efa", "efa", None),
        ("n1:25:66 [0] NCCL INFO NET/OFI Selected Provider is efa (found 32 nics)", "efa", 32),
        ("n1:2:6 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)", "efa", 16),
        ("n1:25:66 [0] NCCL INFO NET/OFI Selected provider is tcp, fabric is lo (found 1 nics)", "tcp", 1),
    ],
)
def test_provider_lines_of_every_plugin(line: str, provider: str, nics: int | None) -> None:
    host = parse_bytes(f"[1,0]<stdout>:{line}\n".encode()).network.hosts["n1"]
    assert (host.provider, host.nics) == (provider, nics)


# Tables printed here, in the formats of nccl-tests' own printf calls, with figures made up for the test.


@dataclass(frozen=True)
class Era:
    """How a time printed its rows: header, lead, one side, and the unit of its times."""

    header: str
    lead: str
    side: str
    last: tuple[str, ...]
    scale: float = 1.0
    tail: str = ""


MODERN = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
ERAS = {
    "2017": Era(
        "# bytes N type op time algbw busbw res time algbw busbw res",
        "{size:12d}  {count:12d}  {type:>6s}  {redop:>6s}",
        "  {time:7.3f}  {algbw:5.2f}  {busbw:5.2f}  {last:>7s}",
        ("0e+00", "2e-07", "\tN/A"),
        1e-3,
    ),
    "2019": Era(
        "# size count type redop time algbw busbw error time algbw busbw error",
        "{size:12d}  {count:12d}  {type:>6s}  {redop:>6s}",
        "  {time:7.1f}  {algbw:6.2f}  {busbw:6.2f}  {last:>5s}",
        ("5e-07", "0e+00", "N/A"),
    ),
    "2019 alltoall": Era(
        "# size count type redop time algbw busbw error time algbw busbw error",
        "{size:12d}  {count:12d}  {type:>6s}        ",
        "  {time:7.1f}  {algbw:6.2f}  {busbw:6.2f}  {last:>5s}",
        ("0e+00", "N/A"),
    ),
    "2022": Era(
        MODERN,
        "{size:12d}  {count:12d}  {type:>8s}  {redop:>6s}  {root:6d}",
        "  {time:7.1f}  {algbw:6.2f}  {busbw:6.2f}  {last:>5s}",
        ("0", "N/A", "1.34218e+08", "12"),
    ),
    "2026": Era(
        MODERN,
        "{size:12d}  {count:12d}  {type:>8s}  {redop:>6s}  {root:6d}",
        "  {time:7.2f}  {algbw:6.2f}  {busbw:6.2f}  {last:>6s}",
        ("0", "N/A", "7"),
    ),
    "2026 -S": Era(
        MODERN + " timestamp",
        "{size:12d}  {count:12d}  {type:>8s}  {redop:>6s}  {root:6d}",
        "  {time:7.2f}  {algbw:6.2f}  {busbw:6.2f}  {last:>6s}",
        ("0", "7"),
        tail="  2026-11-27 20:59:29",
    ),
    "2026 -I": Era(
        MODERN.replace("#wrong", "#wrong i_min i_max i_p99 i_cv%"),
        "{size:12d}  {count:12d}  {type:>8s}  {redop:>6s}  {root:6d}",
        "  {time:7.2f}  {algbw:6.2f}  {busbw:6.2f}  {last:>6s}  {time:7.2f}  {time:7.2f}  {time:7.2f}  {busbw:7.2f}",
        ("0", "7"),
    ),
}

Pieces = tuple[str, str, str]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Era, list[Pieces], list[dict[str, Any]]]:
    """An era, the three pieces of each row, and what a reader must make of each row."""
    era = ERAS[draw(st.sampled_from(sorted(ERAS)))]
    pieces, rows = [], []
    for exponent in draw(st.lists(st.integers(3, 34), min_size=1, max_size=4, unique=True)):
        size = 1 << exponent
        redop = draw(st.sampled_from(("sum", "max", "none")))
        kind = draw(st.sampled_from(("float", "bfloat16", "half")))
        values = {"size": size, "count": size // 4, "type": kind, "redop": redop, "root": draw(st.integers(-1, 7))}
        sides, wanted = [], []
        for _ in range(2):
            time_us = draw(st.floats(20, 90_000))
            shown = float(f"{time_us * era.scale:.3f}") / era.scale
            algbw = size / shown / 1e3
            last = draw(st.sampled_from(era.last))
            cells = {"time": time_us * era.scale, "algbw": algbw, "busbw": algbw * 1.875, "last": last}
            sides.append(era.side.format(**cells))
            wanted.append((float(f"{algbw:.2f}"), float(f"{algbw * 1.875:.2f}"), last.strip()))
        pieces.append((era.lead.format(**values), sides[0], sides[1] + era.tail + "\n"))
        rows.append({**values, "sides": wanted})
    return era, pieces, rows


def print_table(era: Era, pieces: list[Pieces]) -> str:
    body = "".join("".join(row) for row in pieces)
    return f"{era.header}\n{body}# Out of bounds values : 12 FAILED\n# Avg bus bandwidth    : 122.499 \n"


def holds(log: Log, rows: list[dict[str, Any]]) -> int:
    """Check that every row the log reports is one that was printed; give how many it reports."""
    wanted = {row["size"]: row for row in rows}
    count = 0
    for table in log.tables:
        for row in table.rows:
            count += 1
            printed = wanted[row.size]
            assert row.count == printed["count"]
            assert row.type == printed["type"]
            for side, (algbw, busbw, last) in zip((row.out_of_place, row.in_place), printed["sides"]):  # noqa: B905
                if side is None:
                    continue
                assert (side.algbw, side.busbw) == (algbw, busbw)
                shown = side.wrong if side.wrong is not None else side.error
                assert shown == (None if last == "N/A" else float(last))
    return count


@FIXED
@given(tables())
def test_every_era_is_read_whole(table: tuple[Era, list[Pieces], list[dict[str, Any]]]) -> None:
    era, pieces, rows = table
    log = parse_bytes(print_table(era, pieces).encode())
    assert holds(log, rows) == len(rows)
    assert log.complete
    assert log.tables[0].average_busbw == 122.499
    assert log.tables[0].out_of_bounds == 12


@settings(FIXED, max_examples=12)
@given(tables())
def test_cut_anywhere_never_gives_a_wrong_number(table: tuple[Era, list[Pieces], list[dict[str, Any]]]) -> None:
    era, pieces, rows = table
    text = print_table(era, pieces).encode()
    for end in range(len(text)):
        log = parse_bytes(text[:end])
        holds(log, rows)
        for one in log.tables:
            assert one.average_busbw in (None, 122.499)
            assert one.out_of_bounds in (None, 12)
            assert not one.complete or len(one.rows) == len(rows)


PREFIXES = ("0: ", " 12: ", "[1,0]<stdout>:", "Thu Jul 18 15:41:05 2024<stdout>:", "    ", "worker-0: ")


@FIXED
@given(tables(), st.sampled_from(PREFIXES))
def test_prefixes_anywhere(table: tuple[Era, list[Pieces], list[dict[str, Any]]], prefix: str) -> None:
    era, pieces, rows = table
    lines = print_table(era, pieces).splitlines(keepends=True)
    log = parse_bytes("".join(prefix + line for line in lines).encode())
    assert holds(log, rows) == len(rows)
    assert log.complete


GLUED = ("n1:25:66 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n", "[1,3]<stderr>:some other rank says this\n", "warning\n")


@FIXED
@given(tables(), st.sampled_from(GLUED), st.integers(0, 2**12 - 1))
def test_text_of_others_between_the_pieces(
    table: tuple[Era, list[Pieces], list[dict[str, Any]]], glued: str, where: int
) -> None:
    era, pieces, rows = table
    body, bit = "", 0
    for lead, first, second in pieces:
        for piece in (lead, first, second):
            body += piece + (glued if where >> bit & 1 and piece is not second else "")
            bit += 1
    log = parse_bytes(f"{era.header}\n{body}# Avg bus bandwidth    : 1 \n".encode())
    assert holds(log, rows) == len(rows)


def test_a_number_that_contradicts_its_row_is_not_reported() -> None:
    text = f"{MODERN}\n 8388608 2097152 float sum -1 63.00 13.16 199.74 0 62.19 134.88 202.32 0\n"
    table = parse_bytes(text.encode()).tables[0]
    assert table.rows == []
    assert "contradict" in table.bad_rows[0].reason


def test_two_processes_that_never_met_are_two_tables() -> None:
    one = (DATA / "90-SYNTH-v2.19-plain.txt").read_bytes()
    assert len(parse_bytes(one + one).tables) == 2


def test_no_damage_raises_and_streams_read_as_memory_does() -> None:
    random_ = random.Random(7)  # noqa: S311 - a seed, so that a failure can be repeated
    samples = [path.read_bytes()[:6000] for path in sorted(DATA.glob("*-*.*"))]
    for _ in range(600):
        data = bytearray(random_.choice(samples))
        for _ in range(random_.randint(1, 30)):
            position = random_.randrange(len(data))
            action = random_.randrange(3)
            if action == 0:
                data[position] = random_.randrange(256)
            elif action == 1:
                del data[position : position + random_.randrange(40)]
                data += b" "
            else:
                data[position:position] = random_.choice((b"\0", b"9" * 50, b"\n", b"nan", b"[[[[", b"\xff", b"1e999 "))
        log = parse_bytes(bytes(data))
        json.dumps(log.as_json("x"), allow_nan=False)
        assert parse_stream(io.BytesIO(bytes(data))).as_json("x") == log.as_json("x")


def test_overlong_lines_and_deep_json_are_survived() -> None:
    assert parse_bytes(b"9 " * 3_000_000).tables == []
    assert parse_bytes(b'{"results": ' + b"[" * 200_000).tables[0].rows == []
    assert parse_bytes(b'{"results": [' + b'{"size":' * 100_000).tables[0].rows == []
