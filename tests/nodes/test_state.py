"""nodes/lib/state.py: the states of steps and background work as JSON files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodes.lib import state

from .conftest import ROOT

PROGRAM = ROOT / "nodes/lib/state.py"
ENDED = "".join(f"{text}\0" for text in ("compute/10-x", "ok", "0", "0.1", "/l", "")).encode()
STRANGE = 'a"b\\c\td\ne\x1b ü'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "STATE", tmp_path)
    monkeypatch.setattr(state, "SETUP_LOG", tmp_path / "log/setup.log")
    return tmp_path


def load(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def test_steps_are_recorded_as_they_end(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = ["compute/10-fsx", "failed", "124", "90.1", "/l", STRANGE, "compute/11-x", "ok", "0", "0.1", "/m", ""]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("".join(f"{text}\0" for text in ended).encode())))
    assert state.main(["steps"]) == 0
    assert capsys.readouterr().out == "ok\nok\n"
    assert load(place / "steps/11-x.json")["hint"] == ""
    found = load(place / "steps/10-fsx.json")
    assert found.pop("finished").endswith("Z")
    assert found == {
        "step": "compute/10-fsx",
        "status": "failed",
        "exit": 124,
        "seconds": 90.1,
        "log": "/l",
        "hint": 'a"b\\c d e  ü',
    }


def test_a_change_of_state_is_a_line_of_the_setup_log(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.background("nccl", "running", "one", "/l", percent=5, eta_s=60)
    state.background("nccl", "running", "two", "/l")
    state.background("nccl", "done", "three", "/l")
    lines = ["slipway: background nccl running: one", "slipway: background nccl done: three"]
    assert capsys.readouterr().out.splitlines() == lines
    log = (place / "log/setup.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in log] == lines
    found = load(place / "background/nccl.json")
    assert (found["detail"], found["percent"], found["hint"]) == ("three", None, "")


def test_one_text_of_a_state(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.background("nccl", "failed", STRANGE, "/l")
    capsys.readouterr()
    for name, key in (("nccl", "detail"), ("nccl", "no such"), ("absent", "state")):
        assert state.main(["field", name, key]) == 0
    assert capsys.readouterr().out == 'a"b\\c d e  ü\n\n\n'


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "\xff"])
def test_a_damaged_state_counts_as_none(place: Path, text: str) -> None:
    (place / "background").mkdir()
    (place / "background/nccl.json").write_bytes(text.encode("latin-1"))
    assert state.read("nccl") == {}
    state.background("nccl", "waiting", "queued", "/l")
    assert state.read("nccl")["state"] == "waiting"


@pytest.mark.parametrize(
    ("before", "result", "after"),
    [
        ("running", "timeout", "failed"),
        ("waiting", "signal", "failed"),
        ("running", "success", "running"),
        ("done", "exit-code", "done"),
        ("failed", "exit-code", "failed"),
    ],
)
def test_a_killed_work_does_not_stay_under_way(
    place: Path, monkeypatch: pytest.MonkeyPatch, before: str, result: str, after: str
) -> None:
    state.background("nccl", before, "building", "/l")
    monkeypatch.setenv("SERVICE_RESULT", result)
    assert state.main(["ended", "nccl"]) == 0
    found = state.read("nccl")
    assert found["state"] == after
    if before != after:
        assert found["detail"] == f"ended ({result}) while: building"
        assert "sudo systemctl restart slipway-nccl" in found["hint"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getppid()):
        (tmp_path / f".x.json.slipway-new.{pid}").touch()
    state.put(tmp_path / "x.json", "{}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", f".x.json.slipway-new.{os.getppid()}"}


def test_everybody_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from nodes.lib import state; from pathlib import Path; "
    code += f"state.STATE = state.SETUP_LOG = Path({str(tmp_path / 'new')!r}); "
    code += "sys.exit(state.main(['steps']))"
    subprocess.run([sys.executable, "-B", "-c", code], input=ENDED, umask=0o077, check=True, timeout=30)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "new", tmp_path / "new/steps/10-x.json")]
    assert modes == [0o755, 0o644]


def test_a_place_that_cannot_be_written_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "steps").touch()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ENDED)))
    assert state.main(["steps"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"slipway: cannot write {place}/steps")
    assert "\nslipway-hint: " in error


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", str(PROGRAM), "field", "absent", "state"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"
