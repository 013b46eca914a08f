"""The causes that a log names: every row of the table, and logs of which only the cause is of use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from acceptance_runs import HERE

from acceptance.causes import Cause, Finding, cause_of, known_causes
from acceptance.cli import main
from acceptance.nccl import parse_bytes, parse_file
from acceptance.runner.files import read_log

CASES = HERE / "data/cases"
ROWS = known_causes()


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_row_reads_its_example(row: Cause) -> None:
    found = cause_of(row.example)
    assert found is not None
    assert found[0].id == row.id, "a row above it takes its example"
    log = parse_bytes(b"\n" + row.example.encode() + b"\n")
    assert [finding.id for finding in log.causes] == [row.id]
    text = log.causes[0].text
    assert "{" not in text
    assert "?" not in text
    assert row.source
    assert not set(row.implied_by) - {one.id for one in ROWS}


# A release, tag or commit, a page with the date at which it was read, or a file of this repository.
DATED = re.compile(r"\bv?\d+\.\d+|\bslurm-\d+-\d+-\d+|\b[0-9a-f]{12}\b|\(read \d{4}-\d\d(?:-\d\d)?\)|^acceptance/")


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_source_has_a_version_or_a_date(row: Cause) -> None:
    undated = [source for source in row.source.split("; ") if not DATED.search(source)]
    assert undated == [], "name the tag or commit, or write (read YYYY-MM-DD)"


@pytest.mark.parametrize("source", ["SchedMD/slurm, src/api/step_launch.c", "NVIDIA, Xid Errors, https://x.example/"])
def test_source_without_a_version_is_refused(source: str) -> None:
    assert not DATED.search(source)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("slurmstepd: error: pyxis: container exited too soon", "container exited too soon"),
        (
            "slurmstepd: error: pyxis: --container-mounts: source path does not exist: /none",
            "path does not exist: /none",
        ),
        ('slurmstepd: error: pyxis: error: a container with name "pyxis_kept" does not exist', "does not exist"),
    ],
)
def test_container_that_does_not_start(line: str, reason: str) -> None:
    (finding,) = parse_bytes(f"{line}\n".encode()).causes
    assert finding.id == "container-start"
    assert reason in finding.cause


def test_an_image_that_squashfuse_cannot_mount() -> None:
    lines = ("container start failed with error code: 1", "    [ERROR] Failed to mount: /fsx/containers/a.sqsh")
    (finding,) = parse_bytes("".join(f"slurmstepd: error: pyxis: {line}\n" for line in lines).encode()).causes
    assert finding.cause == "squashfuse or fuse-overlayfs cannot mount the image /fsx/containers/a.sqsh"


def test_the_table_is_large_and_its_rows_differ() -> None:
    assert len(ROWS) >= 30
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert all(mark for row in ROWS for mark in row.marks)


# File of data/cases, exit code of `acceptance parse`, what its text has, and what it must not have.
PARSED = [
    ("01-wrong-but-footer-FAILED", 1, ["WRONG DATA", "2 GiB (37 values out of place)", "4 GiB (1e+06"], ["complete,"]),
    ("05-efa-memlock", 1, ["cause: gpu-st-p5-1: registering memory", "RC: -12", "locked-memory limit"], []),
    ("10-efa-cq-error", 1, ["cause: gpu-st-p5-2: over EFA an unresponsive receiver (13)", "security group"], []),
    ("11-segv-openmpi", 1, ["cause: rank 9 on gpu-st-p5-2 ended by signal 11"], []),
    ("13-pmix-slurm", 1, ["cause: a PMIx collective", "killed afterwards are not to blame"], ["cause: c110-013"]),
    (
        "14-slurm-node-fail",
        1,
        ["cause: Slurm lost the node gpu-st-p5-2", "node failure: gpu-st-p5-2"],
        ["lure: gpu-st-p5-1"],
    ),
    ("15-slurm-node-failure-srun-only", 1, ["cause: Slurm lost the node gpu-st-p5-2"], []),
    (
        "19-slurm-unable-create-step",
        1,
        ["no table", "job 77: Requested node configuration is not available"],
        ["0 dev"],
    ),
    ("21-missing-so", 1, ["no table", "gpu-st-p5-1: the library libnccl.so.2 was not found (4 times)", "LD_LIBR"], []),
    ("28-ansi-all-lines", 0, ["complete, 16 devices", "all_reduce: 3 rows"], ["\x1b"]),
    ("43-json-lines-docker", 0, ["complete, 16 devices", "all_reduce: 3 rows"], []),
    ("53-rccl-inplace-only", 1, ["only in place was measured: there is no out-of-place bandwidth"], ["peak"]),
    (
        "76-failure-then-50-chain-then-nodefail",
        1,
        ["cause: gpu-st-p5-2: a GPU reports an uncorrectable ECC error", "(8 times)", "a node of the job failed"],
        ["chain:"],
    ),
    ("80-slurm-node-failure-real-order", 1, ["cause: Slurm lost the node gpu-st-p5-2"], ["a node of the job failed"]),
    (
        "85-efa-getinfo-empty",
        0,
        ["complete", "EFA gave no interface to libfabric", "did not start", "network: Socket"],
        [],
    ),
    ("86-imex-mnnvl", 1, ["NVLS or IMEX", "error 800, operation not permitted", "NCCL_NVLS_ENABLE=0"], []),
    ("87-last-error", 1, ["cause: gpu-1: /dev/shm is full"], []),
    ("88-duplicate-gpu", 1, ["cause: gpu-1: ranks 0 and 1 share one GPU"], []),
    ("90-nccl-version-mismatch", 1, ["NCCL 2.27.7 and 2.26.5 meet: rank 8"], []),
    ("93-wrong-sci", 1, ["WRONG DATA", "wrong data at 1 GiB"], ["1 values"]),
    ("a0-libfabric-hook-name", 0, ["unnamed collective: 3 rows"], ["ofi_hook"]),
]


@pytest.mark.parametrize(("name", "code", "has", "has_not"), PARSED, ids=[case[0] for case in PARSED])
def test_cases(name: str, code: int, has: list[str], has_not: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", str(CASES / f"{name}.txt")]) == code
    text = capsys.readouterr().out
    assert [words for words in has if words not in text] == []
    assert [words for words in has_not if words in text] == []


def test_every_case_is_tested() -> None:
    assert {path.stem for path in CASES.glob("*.txt")} == {case[0] for case in PARSED}


# Recorded with nccl-tests 2.17.6, NCCL 2.27.7, aws-ofi-nccl 1.17.2 and Slurm 25.11.7: file, whether it is good, causes.
REAL = [
    ("out-2.17.6.json", True, []),
    ("no-interface-mpi-info.txt", False, ["no-interface"]),
    ("info-ofi-p5-no-efa.txt", False, ["no-provider"]),
    ("info-default-fallback.txt", True, ["no-provider"]),
    ("too-many-mpi.txt", False, ["no-gpu"]),
    ("no-net.txt", False, ["plugin-failed"]),
    ("min-bw.txt", False, []),
    ("srun-none.txt", False, ["mpi-without-pmi"]),
    ("segfault-in-plugin.out", False, ["crash-srun", "crash-library", "nccl-warning"]),
    ("hang-ended-by-timeout.out", False, []),
    ("rank-killed.out", False, ["no-provider"]),
]


@pytest.mark.parametrize(("name", "good", "ids"), REAL, ids=[case[0] for case in REAL])
def test_real_outputs(name: str, good: bool, ids: list[str]) -> None:
    log = parse_file(HERE / "data/real" / name)
    assert log.good == good
    assert [one.id for one in log.causes if not one.note] == ids


def test_every_real_output_is_tested() -> None:
    assert {path.name for path in (HERE / "data/real").iterdir()} == {case[0] for case in REAL}


def findings(*lines: str) -> list[Finding]:
    return parse_bytes("".join(f"{line}\n" for line in lines).encode()).causes


def test_the_first_unknown_warning_of_each_host_is_kept() -> None:
    told = [
        f"{host}:1:2 [0] x.cc:1 NCCL WARN {text}"
        for host, text in (("n1", "first"), ("n1", "second"), ("n2", "first"), ("n3", "third"))
    ]
    found = findings(*told)
    assert [one.what for one in found] == ["n1, n2: NCCL warned: first (2 times)", "n3: NCCL warned: third"]


def test_a_plugin_that_chose_a_provider_after_all_is_no_cause() -> None:
    none, chosen = "NET/OFI No eligible providers were found", "NET/OFI Selected provider is efa, fabric is efa"
    head = "n1:1:2 [0] NCCL INFO "
    log = parse_bytes(f"{head}{none}\n{head}{chosen} (found 32 nics)\n".encode())
    assert log.causes == []
    assert log.network.red_flags == []
    log = parse_bytes(f"{head}{none}\n{head.replace('n1', 'n2')}{chosen} (found 32 nics)\n".encode())
    assert [one.id for one in log.causes] == ["no-provider"]
    assert "n1: the network plugin found no usable provider" in log.network.red_flags[0]


def test_channels_without_gpudirect() -> None:
    line = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0"
    assert [(one.id, one.hosts, one.note) for one in findings(line)] == [("no-gpudirect", ("n1",), True)]
    assert findings(f"{line}/GDRDMA") == findings(line.replace("AWS Libfabric", "Socket")) == []


def test_a_root_comes_before_what_follows_from_it() -> None:
    victim = "n1: Test NCCL failure common.cu:401 'remote process exited or there was a network error / '"
    root = "n2:1:2 [0] NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: -12, Error: x"
    assert [one.id for one in findings(victim, root)] == ["memory-registration", "peer-gone"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read(encoding: str) -> None:
    text = (HERE / "data/90-SYNTH-v2.19-plain.txt").read_text()
    log = parse_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert log.complete
    assert len(log.tables[0].rows) == 3


def container_lines(text: str, form: str) -> str:
    lines = text.splitlines(keepends=True)
    if form == "message":
        return "".join(json.dumps({"ts": 1, "message": line.rstrip("\n")}) + "\n" for line in lines)
    if form == "cri":
        return "".join(f"2026-11-27T21:00:00.123456789Z stdout F {line}" for line in lines)
    parts = [part for line in lines for part in ((line[:40], line[40:]) if len(line) > 80 else (line,)) if part]
    return "".join(json.dumps({"log": part, "stream": "stdout"}) + "\n" for part in parts)


@pytest.mark.parametrize("form", ["message", "cri", "cut by Docker"])
def test_lines_of_container_engines(form: str) -> None:
    text = container_lines((HERE / "data/90-SYNTH-v2.19-plain.txt").read_text(), form)
    log = parse_bytes(text.encode())
    assert log.complete
    assert len(log.tables[0].rows) == 3


def test_a_row_that_lost_a_digit_is_found_by_the_others() -> None:
    text = (HERE / "data/90-SYNTH-v2.19-plain.txt").read_text()
    table = parse_bytes(text.replace("  465.87  ", "  65.87   ").encode()).tables[0]
    assert [row.size >> 30 for row in table.rows] == [1, 2]
    assert "a digit is missing" in table.bad_rows[0].reason
    table = parse_bytes(text.replace("  464.94  ", "  64.94   ").encode()).tables[0]
    assert [row.complete for row in table.rows] == [True, True, False]


def sweep(sizes: list[int]) -> bytes:
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    rows = []
    for size in sizes:
        side = f"  {size / 1e5:8.2f}  {100:6.2f}  {187.5:6.2f}       0"
        rows.append(f"{size:12d}  {size // 4:12d}     float     sum      -1{side}{side}\n")
    return (head + "".join(rows) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 187.5\n").encode()


@pytest.mark.parametrize(
    ("sizes", "missing"),
    [
        ([1 << n for n in range(20, 30)], 0),
        ([1 << n for n in range(20, 30) if n not in (23, 27)], 2),
        ([8 << 20, 16 << 20, 24 << 20, 32 << 20], 0),
        ([8 << 20, 16 << 20, 32 << 20, 40 << 20], 1),
        ([1000, 7000, 7776, 90000], 0),  # no step: nothing is known
    ],
)
def test_missing_rows_are_noticed_by_the_step(sizes: list[int], missing: int) -> None:
    table = parse_bytes(sweep(sizes)).tables[0]
    assert table.missing_rows == missing
    assert table.complete == (missing == 0)


def test_an_average_that_nccl_tests_refused_is_not_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", str(HERE / "data/95-SYNTH-MIN_BW-FAILED.txt")]) == 1
    assert "REFUSED by nccl-tests" in capsys.readouterr().out


def test_a_table_of_one_side_alone() -> None:
    text = (CASES / "53-rccl-inplace-only.txt").read_text().replace("in-place  ", "out-of-place")
    table = parse_bytes(text.encode()).tables[0]
    assert [row.out_of_place.busbw for row in table.rows] == [154.63, 242.64]
    assert not table.complete


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[2026-11-28T10:25:27.039] error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-28T10:25:27 DUE to SIGNAL Killed ***", "DUE to SIGNAL Killed"),
        ("slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-28T10:25:27 DUE TO TASK FAILURE ***", "DUE TO TASK FAILURE"),
        ("slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-28T10:25:27 ***", "no reason given"),
    ],
)  # fmt: skip
def test_why_slurm_cancelled_a_step(line: str, message: str) -> None:
    assert [(one.kind, one.host, one.message) for one in parse_bytes(f"{line}\n".encode()).events] == [
        ("cancelled", "n1", message)
    ]


def test_real_outputs_without_a_fault_name_no_cause() -> None:
    paths = sorted(Path(HERE / "data").glob("own-*.txt"))
    assert len(paths) > 1
    for path in paths:
        assert [one.id for one in parse_file(path).causes if not one.note and "too_many" not in path.stem] == [], (
            path.name
        )


@pytest.mark.parametrize(("name", "code", "words"), [
    ("05-efa-memlock", 1, "memory-registration: gpu-st-p5-1: registering memory"),
    ("a0-libfabric-hook-name", 0, "no known cause"),
])  # fmt: skip
def test_explain(name: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(CASES / f"{name}.txt")]) == code
    assert words in capsys.readouterr().out
    assert main(["explain", "--json", str(CASES / f"{name}.txt")]) == code
    assert len(json.loads(capsys.readouterr().out)["causes"]) == code


def test_explain_of_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "/nowhere.log", str(CASES / "05-efa-memlock.txt")]) == 2
    out = capsys.readouterr()
    assert "memory-registration" in out.out
    assert "/nowhere.log: No such file" in out.err


def test_json_of_the_releases_with_the_other_spelling() -> None:
    text = (HERE / "data/own-h200x4-all_reduce.json").read_text()
    old = text.replace("average_bus_bandwidth", "average_bus_bandwidith").replace('"bandwidth"', '"bandwidith"')
    assert old != text
    log = parse_bytes(old.encode())
    assert log.complete
    assert log.tables[0].average_busbw == pytest.approx(98.433779)


def test_a_log_is_read_with_what_nccl_and_nccl_tests_wrote_next_to_it(tmp_path: Path) -> None:
    out = tmp_path / "a.out"
    text = (HERE / "data/own-h200x4-all_reduce-with-J.txt").read_text()
    out.write_text(text.replace("    float  ", "    flo\nother text at ", 3))  # rows that another process cut
    assert not read_log(out).complete
    (tmp_path / "a.json").write_text((HERE / "data/own-h200x4-all_reduce.json").read_text())
    whole = read_log(out)
    assert whole.complete
    assert len(whole.tables[0].rows) == 28
    assert len(whole.devices) == 4
    (tmp_path / "a.debug").mkdir()  # of a job that was killed before it joined them
    for host in ("n1", "n2"):
        (tmp_path / f"a.debug/{host}.7").write_text(f"{host}:7:7 [0] NCCL INFO Using network Socket")
    assert sorted(read_log(out).network.hosts) == ["n1", "n2"]
    (tmp_path / "a.nccl").write_text(
        "n3:7:7 [0] x.cc:1 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on x\n"
    )
    joined = read_log(out)
    assert [one.id for one in joined.causes] == ["duplicate-gpu"]
    assert not joined.network.hosts
    cut = (HERE / "data/own-h200x4-all_reduce.json").read_text()
    (tmp_path / "a.json").write_text(cut[: len(cut) // 2])
    assert not read_log(out).complete
