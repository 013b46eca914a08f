"""storage_tests.py: with real fio where it is installed, and with its recorded outputs (data/fio-3.33.json)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusuite import reports, storage_tests

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "gpusuite"
FIO = shutil.which("fio")
RECORDED = {one["case"]: one for one in json.loads((HERE / "data/fio-3.33.json").read_text())["cases"]}
needs_fio = pytest.mark.skipif(FIO is None, reason="needs fio: apt-get install fio")


def test_the_space_is_that_of_a_block_for_each_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--directory", str(tmp_path), "--size", "1M", "--threads", "1024"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_tests, "BLOCK", 1 << 40)
        assert storage_tests.main(flags) == 2
    assert f"the test writes {1 << 50}. Hint" in capsys.readouterr().err


def test_storage_measures_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storage_tests, "BLOCK", 1 << 17)
    monkeypatch.setattr(storage_tests, "_READS", (65, 13))
    monkeypatch.setattr(storage_tests, "fio_results", lambda *_: None)
    flags = ["--directory", str(tmp_path), "--size", "1M", "--threads", "2", "--files", "20"]
    assert storage_tests.main([*flags, "--report-dir", str(tmp_path / "out")]) == 0
    (result,) = json.loads((tmp_path / "out/storage_result.json").read_text())["directories"].values()
    assert (result["bytes"], result["wrong_blocks"], result["small_files"]) == (1 << 20, 0, 20)
    assert "fio" not in result
    assert result["loader_reads"] == 2 * 65
    assert storage_tests.main([*flags, "--quick", "--report-dir", str(tmp_path / "out")]) == 0
    (result,) = json.loads((tmp_path / "out/storage_result.json").read_text())["directories"].values()
    assert result["loader_reads"] == 2 * 13
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    assert "[CHECK]" not in capsys.readouterr().out
    for what in ("write", "read"):
        assert storage_tests.main([*flags, f"--least-{what}-gb-per-s", "9999"]) == 1
        last = capsys.readouterr().out.splitlines()[-1]
        assert f"{what} " in last
        assert "GB/s, expected at least 9999" in last
    assert storage_tests.main([*flags, "--verbose", "--least-write-gb-per-s", "1e-5"]) == 0
    out = capsys.readouterr().out
    assert f"[CHECK] pass: {reports.node_name()}: {tmp_path}: 0 blocks read back differently" in out
    assert "GB/s, expected at least 1e-05" in out


def test_storage_finds_a_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_tests, "BLOCK", 1 << 17)
    monkeypatch.setattr(storage_tests, "_READS", (65, 13))
    write = storage_tests._write

    def flips(folder: Path, file: int, blocks: int, content: storage_tests.Content) -> None:
        write(folder, file, blocks, content)
        with (folder / f"part-{file}").open("r+b") as stream:
            stream.seek(50_000)
            byte = stream.read(1)[0]
            stream.seek(50_000)
            stream.write(bytes([byte ^ 4]))

    monkeypatch.setattr(storage_tests, "_write", flips)
    assert storage_tests.checkpoint(tmp_path, 4 << 17, 2, quick=False)["wrong_blocks"] >= 2


@pytest.mark.parametrize(("kind", "iops", "gb_per_s"), [("randwrite", 29696.3, 0.1216), ("randread", 41244.8, 0.1689)])
def test_recorded_results_of_fio(kind: str, iops: float, gb_per_s: float) -> None:
    one = RECORDED[kind]
    found = storage_tests.parse_fio("\n".join(["fio: a warning", *one["stdout"]]), kind)
    assert found == pytest.approx({"iops": iops, "gb_per_s": gb_per_s}, rel=1e-3)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "no space left",
            "fio ended with code 1: io_u error on file /tmp/fio-small/gpusuite: No space left on device: ",
        ),
        ("no direct reads and writes", "code 1: looks like your file system does not support direct=1/buffered=0"),
        ("no such engine", "fio ended with code 1: engine libaio2 not loadable"),
        ("no directory", "fio ended with code 1: /tmp/fio-none is not a directory"),
        ("SIGTERM", "fio ended with code 128: terminating on signal 15"),
        ("SIGKILL", "fio was ended by signal 9"),
    ],
)
def test_recorded_failures_of_fio(case: str, said: str) -> None:
    one = RECORDED[case]
    assert said in storage_tests.fio_error(one["code"], *("\n".join(one[name]) for name in ("stdout", "stderr")))


@pytest.mark.parametrize("text", ["", "no json", "{", '{"jobs": []}', '{"jobs": [{"read": {"iops": null}}]}'])
def test_output_that_is_not_fios(text: str) -> None:
    assert "fio's output cannot be read: " in storage_tests.parse_fio(text, "randread")["error"]


def test_a_truncated_result_of_fio() -> None:
    lines = RECORDED["randread"]["stdout"]
    assert "cannot be read" in storage_tests.parse_fio("\n".join(lines[: len(lines) // 2]), "randread")["error"]


def test_without_fio_and_with_one_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert storage_tests.fio_results(tmp_path, 1 << 20, 1) is None
    (tmp_path / "fio").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "fio").chmod(0o755)
    found = storage_tests.fio_results(tmp_path, 1 << 20, 1)
    assert found == {key: {"error": "fio does not start: Exec format error"} for key in ("randwrite", "randread")}


@needs_fio
def test_real_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(storage_tests, "_READS", (65, 13))
    flags = ["--directory", str(tmp_path), "--size", "8M", "--threads", "1", "--files", "10", "--fio-seconds", "1"]
    assert storage_tests.main([*flags, "--report-dir", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    (result,) = json.loads((tmp_path / "out/storage_result.json").read_text())["directories"].values()
    assert set(result["fio"]) == {"randwrite", "randread"}
    for kind, one in result["fio"].items():
        assert one["iops"] > 0
        assert one["gb_per_s"] == pytest.approx(one["iops"] * 4096 / 1e9, rel=0.05)
        assert f"{tmp_path}: fio {kind} 4 KiB: {one['iops']:.0f} operations a second" in printed
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


ON_FILE_SYSTEMS = """
import subprocess, sys
from pathlib import Path
from gpusuite import storage_tests
place = sys.argv[1]
storage_tests.BLOCK, storage_tests._READS = 1 << 17, (65, 13)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", place], check=True)
storage_tests.main(["--directory", place, "--size", "2M", "--threads", "1", "--files", "10", "--fio-seconds", "1"])
subprocess.run(["mount", "-t", "ramfs", "none", place], check=True)
print(storage_tests.fio_results(Path(place), 1 << 20, 1))
"""


@needs_fio
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts file systems in a namespace of its own")
def test_real_fio_on_a_small_file_system_and_on_one_without_direct_reads(tmp_path: Path) -> None:
    """The checkpoint and fio's file do not fit at the same time; a ramfs refuses O_DIRECT."""
    argv = ["unshare", "--mount", sys.executable, "-c", ON_FILE_SYSTEMS, str(tmp_path)]
    done = subprocess.run(argv, cwd=SUITE.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, write, read, result, direct = done.stdout.splitlines()
    assert "fio randwrite 4 KiB: " in write
    assert "fio randread 4 KiB: " in read
    assert result == "[RESULT] SUCCESS"
    assert direct.count("fio ended with code 1: looks like your file system does not support direct=1") == 2


@needs_fio
def test_real_fio_that_is_killed_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the kernel when memory is short: a process that fio forks would write on for the whole minute."""
    (tmp_path / "bin").mkdir()
    killed = tmp_path / "bin/fio"
    killed.write_text(f'#!/bin/sh\n(sleep 1; kill -9 $$) >/dev/null 2>&1 & exec {FIO} "$@"\n')
    killed.chmod(0o755)
    monkeypatch.setenv("PATH", f"{killed.parent}:{os.environ['PATH']}")
    started = time.monotonic()
    found = storage_tests.fio_results(tmp_path, 1 << 20, 60)
    assert time.monotonic() - started < 60
    assert found == {key: {"error": "fio was ended by signal 9"} for key in ("randwrite", "randread")}
    assert not [words for words in command_lines() if f"--directory={tmp_path}" in words]


def command_lines() -> Iterator[list[str]]:
    """The words of every process."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield place.read_text().split("\0")
