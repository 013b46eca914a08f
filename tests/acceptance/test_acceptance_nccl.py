"""The parser against real logs, against printed tables of every era, and against damage."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import HERE, REPOSITORY

from acceptance.nccl import parse_bytes, parse_file, parse_stream
from acceptance.nccl.environment import HIDDEN

DATA = HERE / "data"
SHARED = REPOSITORY.parent / "shared" / "nccl-logs"
MODERN = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


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


def test_json_left_open() -> None:
    raw = (DATA / "own-h200x4-all_reduce.json").read_text()
    cut = parse_bytes(raw[: raw.index('"size": 1048576')].encode())
    assert [row.size for row in cut.tables[0].rows] == [8 << n for n in range(17)]
    assert not cut.complete
    assert "rows missing: 11 of 28" in cut.tables[0].faults


def test_json_cut_anywhere_is_never_complete() -> None:
    raw = (DATA / "89-SYNTH-J-v3.json").read_bytes()
    assert parse_bytes(raw).complete
    for end in range(len(raw)):
        log = parse_bytes(raw[:end])
        assert not log.complete
        assert all(row.out_of_place.busbw == 436.944593 for table in log.tables for row in table.rows)


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", '"nan"', "null", "-1.0"])
@pytest.mark.parametrize("key", ["alg_bw", "bus_bw", "time"])
@pytest.mark.parametrize("side", ["out_of_place", "in_place"])
def test_json_without_a_real_number_is_not_complete(number: str, key: str, side: str) -> None:
    whole = json.loads((DATA / "own-h200x4-all_reduce.json").read_text())
    whole["results"][3][side][key] = "HERE"
    table = parse_bytes(json.dumps(whole, indent=1).replace('"HERE"', number).encode()).tables[0]
    assert not table.complete
    assert len(table.rows) == (27 if side == "out_of_place" else 28)
    assert all(math.isfinite(row.out_of_place.busbw) for row in table.rows)
    json.dumps(table.as_json(), allow_nan=False)


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "-nan", "-1.00"])
@pytest.mark.parametrize("cell", [" 233.04 ", " 436.94 ", " 232.57 ", " 436.07 "])
def test_text_without_a_real_number_is_not_complete(number: str, cell: str) -> None:
    text = (DATA / "90-SYNTH-v2.19-plain.txt").read_text()
    table = parse_bytes(text.replace(cell, f" {number} ").encode()).tables[0]
    assert not table.complete
    assert 436.94 not in [row.out_of_place.busbw for row in table.rows if row.complete]
    assert "first at size 1073741824" in table.faults[0]


def test_an_average_that_is_no_number_is_not_complete() -> None:
    text = (DATA / "90-SYNTH-v2.19-plain.txt").read_text().replace(": 448.85", ": -nan")
    assert parse_bytes(text.encode()).tables[0].faults == ["its average bus bandwidth is not a number"]


def test_json_with_cpu_time_and_single_iterations() -> None:
    raw = (DATA / "89-SYNTH-J-v3.json").read_text().replace('"time":', '"cpu_time":')
    stats = '"out_of_place_per_iter":{"min_us":1.5,"max_us":9.5,"p99_us":9,"cv_pct":4.25,"times_us":[1.5,9.5]},"actual'
    log = parse_bytes(raw.replace('"actual', stats).encode())
    assert log.complete
    assert log.tables[0].rows[0].out_of_place.iterations == (1.5, 9.5, 9.0, 4.25)


def test_json_of_any_size_is_read_item_by_item() -> None:
    whole = json.loads((DATA / "own-h200x4-all_reduce.json").read_text())
    result = {**whole["results"][0], "out_of_place_per_iter": {"times_us": [25.25] * 50_000}}
    whole["results"], whole["config"]["maximum_bytes"] = [result] * 20, 8 << 19
    assert len(json.dumps(whole)) > 6_000_000
    log = parse_bytes(json.dumps(whole).encode())
    assert log.complete
    assert len(log.tables[0].rows) == 20


def test_secrets_of_the_environment_are_hidden_and_the_rest_is_dropped() -> None:
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PATH", "HF_HOME", "MY_PASSWORD")
    entries = [f"{name}=leak-{name}" for name in names] + ["NCCL_DEBUG=INFO", "SLURM_JOB_ID=17", "no equals sign"]
    entries += ["NCCL_API_KEY=leak", "OMPI_MCA_url=http://me:leak@host/", "FI_X=AKIALEAKLEAKLEAK1"]
    whole = json.loads((DATA / "89-SYNTH-J-v3.json").read_text())
    whole["env"] = [*entries, {"leak": 1}, 7]
    log = parse_bytes(json.dumps(whole).encode())
    assert log.environment["NCCL_DEBUG"] == "INFO"
    assert log.environment["SLURM_JOB_ID"] == "17"
    assert log.environment["NCCL_API_KEY"] == log.environment["FI_X"] == log.environment["OMPI_MCA_url"] == HIDDEN
    assert "leak" not in json.dumps(log.as_json("x")).lower()


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


def test_a_number_that_contradicts_its_row_is_not_reported() -> None:
    text = f"{MODERN}\n 8388608 2097152 float sum -1 63.00 13.16 199.74 0 62.19 134.88 202.32 0\n"
    table = parse_bytes(text.encode()).tables[0]
    assert table.rows == []
    assert "contradict" in table.bad_rows[0].reason


def test_two_processes_that_never_met_are_two_tables() -> None:
    one = (DATA / "90-SYNTH-v2.19-plain.txt").read_bytes()
    after_each_other = parse_bytes(one + one)
    assert len(after_each_other.tables) == 2
    assert after_each_other.complete
    assert after_each_other.warnings == []
    lines = one.splitlines(keepends=True)
    mixed = parse_bytes(b"".join(a + b for a, b in zip(lines, lines)))  # noqa: B905 - the same list twice
    assert not mixed.complete
    assert "never met" in mixed.warnings[0]


def test_rows_that_were_announced_and_are_missing() -> None:
    lines = (DATA / "own-h200x4-all_reduce.txt").read_text().splitlines(keepends=True)
    rows = [line for line in lines if " float " in line]
    lines.remove(rows[5])
    lines.remove(rows[9])
    table = parse_bytes("".join(lines).encode()).tables[0]
    assert table.missing_rows == 2
    assert not table.complete


@pytest.mark.parametrize(
    ("drop", "fault"),
    [
        ("#       size ", "header"),
        ("# Out of bounds", "wrong values"),
        ("# Avg bus", "last lines"),
    ],
)
def test_what_a_complete_table_needs(drop: str, fault: str) -> None:
    text = (DATA / "90-SYNTH-v2.19-plain.txt").read_text()
    cut = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(drop))
    assert fault in parse_bytes(cut.encode()).tables[0].faults[0]


def test_a_side_printed_as_blanks_is_not_taken_for_the_other() -> None:
    lead = "  1048576  262144  float  sum  -1"
    table = parse_bytes(f"{MODERN}\n{lead}{' ' * 32}    35.40   29.62   55.54       0\n".encode()).tables[0]
    assert table.rows == []
    assert "blank" in table.bad_rows[0].reason


def test_times_of_single_iterations() -> None:
    row = parse_file(DATA / "92-SYNTH-per-iter-I1.txt").tables[0].rows[0]
    assert row.out_of_place.iterations == (4515.45, 5989.88, 5989.88, 4.25)


def test_a_size_that_lost_its_first_digits_is_not_reported() -> None:
    text = f"{MODERN}\n 608 2097152 float sum -1 0.01 60.80 60.80 0 0.01 60.80 60.80 0\n"
    assert "size and count" in parse_bytes(text.encode()).tables[0].bad_rows[0].reason


@pytest.mark.parametrize(
    ("line", "kind", "host"),
    [
        ("gpu-7: Test NCCL failure common.cu:1012 'unhandled system error / '", "nccl", "gpu-7"),
        ("gpu-7: Test CUDA failure common.cu:668 'uncorrectable ECC error encountered'", "cuda", "gpu-7"),
        ("gpu-7: Test timeout (30s) common.cu:551", "timeout", "gpu-7"),
        (" .. gpu-7 pid 4000: Test failure common.cu:1455", "chain", "gpu-7"),
        ("Invalid number of GPUs: 5 requested but only 4 were found.", "usage", None),
        ("# error: socketPollConnect failed", "other", None),
    ],
)
@pytest.mark.parametrize("before", ["", "3: ", "[1,3]<stderr>:", "n1:25:66 [0] NCCL INFO Channel 05/0 : 1[1"])
def test_failures_of_nccl_tests(line: str, kind: str, host: str | None, before: str) -> None:
    for log in (parse_bytes(f"{before}{line}\n".encode()), parse_stream(Pipe(f"{before}{line}\n".encode()))):
        assert [failure.kind for failure in log.failures] == [kind]
        assert (log.failures[0].host or "").endswith(host or "")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("srun: error: gpu-2: task 9: Exited with exit code 4", "exit"),
        (
            "slurmstepd: error: *** STEP 17.0 ON gpu-1 CANCELLED AT 2026-11-27T21:00:00 DUE TO TIME LIMIT ***",
            "time limit",
        ),
        (
            "slurmstepd: error: *** JOB 17 ON gpu-1 CANCELLED AT 2026-11-27T21:00:00 DUE TO NODE FAILURE ***",
            "node failure",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.",
            "out of memory",
        ),
        ("[ 1203.1] NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus.", "xid"),
    ],
)
def test_events_of_launcher_and_kernel(line: str, kind: str) -> None:
    for before in ("", "n1:25:66 [0] NCCL INFO Channel 05/0 : 1[1" if "error: " in line else ""):
        assert [event.kind for event in parse_bytes(f"{before}{line}\n".encode()).events] == [kind]


class Pipe(io.RawIOBase):
    """A stream that gives a few bytes at a time and cannot be read again."""

    def __init__(self, data: bytes) -> None:
        self._data, self._random = data, random.Random(len(data))  # noqa: S311 - a seed, so that a failure can be repeated

    def read(self, size: int = -1) -> bytes:
        size = min(size, self._random.randrange(1, 5000))
        piece, self._data = self._data[:size], self._data[size:]
        return piece


@pytest.mark.parametrize("path", sorted(DATA.glob("*-*.*")), ids=lambda path: path.name)
def test_a_pipe_is_read_as_a_file_is(path: Path) -> None:
    raw = path.read_bytes()
    assert parse_stream(Pipe(raw)).as_json("x") == parse_file(path).as_json("x") == parse_bytes(raw).as_json("x")


def test_the_end_of_a_line_is_looked_for_behind_a_cut_one() -> None:
    """A pipe's buffer cut a rank's line; the row of rank 0 follows it, and the rest of the line is on a line of its own."""
    text = (DATA / "own-h200x4-allreduce_info_small.txt").read_text()
    row = next(line for line in text.splitlines(keepends=True) if " 1048576 " in line)
    start, rest = "vm:25436:25470 [1] NCCL INFO Channel 17/0 : 1[1] -> 2[2] vi", "a P2P/direct pointer\n"
    cut = parse_bytes(text.replace(row, start + row + rest).encode())
    assert cut.complete
    assert cut.as_json("x") == parse_bytes(text.encode()).as_json("x")


def test_the_network_is_read_beside_a_failure() -> None:
    """Where there is a failure, or what looks like one, the rest of the block is read as well."""
    text = (DATA / "own-h200x4-allreduce_info_small.txt").read_text()
    whole = parse_bytes(text.encode())
    log = parse_bytes((text + "srun: error: vm: task 1: Exited with exit code 3\n").encode())
    assert log.network == whole.network
    assert log.versions == whole.versions
    assert [event.kind for event in log.events] == ["exit"]


def test_overlong_lines_and_deep_json_are_survived() -> None:
    assert parse_bytes(b"9 " * 3_000_000).tables == []
    assert parse_bytes(b'{"results": ' + b"[" * 200_000).tables[0].rows == []
    assert parse_bytes(b'{"results": [' + b'{"size":' * 100_000).tables[0].rows == []
    assert parse_bytes(b'{"results": [{"size": ' + b"9" * 5_000_000 + b"}").tables[0].rows == []


def test_more_rows_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.nccl.model.MOST_ROWS", 1000)
    row = " 8 2 float sum -1  25.40 0.00 0.00 0  25.40 0.00 0.00 0\n"
    text = f"{MODERN}\n{row * 1010}# Out of bounds values : 0 OK\n# Avg bus bandwidth : 0.1 \n"
    log = parse_bytes(text.encode())
    assert len(log.tables[0].rows) == 1000
    assert not log.complete
    assert "rest was not kept" in log.warnings[0]


def run_parse(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "acceptance", "parse", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, input=stdin, capture_output=True, check=False)


def test_command() -> None:
    good, cut = DATA / "90-SYNTH-v2.19-plain.txt", DATA / "99-SYNTH-killed-mid-row.txt"
    both = run_parse(str(good), str(cut), "--json")
    assert both.returncode == 1
    objects = [json.loads(line) for line in both.stdout.splitlines()]
    assert [(one["file"], one["complete"]) for one in objects] == [(str(good), True), (str(cut), False)]
    assert run_parse(str(good)).returncode == 0
    text = run_parse(str(cut))
    assert text.returncode == 1
    assert b"cut after 2 of 8 cells" in text.stdout
    assert b"DUE TO TIME LIMIT" in text.stdout
    piped = run_parse("-", "--json", stdin=good.read_bytes())
    assert {**json.loads(piped.stdout), "file": str(good)} == objects[0]
    missing = run_parse("/no/such/file", str(good))
    assert missing.returncode == 2
    assert b"/no/such/file" in missing.stderr
    assert b"complete" in missing.stdout
