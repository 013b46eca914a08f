"""The comparison of the suite with the bare script: `bench/suite`. Both are run by test_gpusuite_torch.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench.suite.__main__ import BARES, main
from bench.suite.compare import figures_of_suite

RECORDED = json.loads((Path(__file__).parent / "data/h200x2-full.json").read_text())


def write(folder: Path, *changes: dict[tuple[str, str], float]) -> list[str]:
    """Two H200's report, and the same figures for each bare run, but for these; returns the arguments."""
    (folder / "run_all_result.json").write_text(json.dumps(RECORDED))
    parts = {name: part["report"] for name, part in RECORDED["parts"].items()}
    figures = figures_of_suite(parts["gpu_tests"], parts["ddp_tests"])
    for name, change in zip(BARES, changes, strict=True):
        values: dict[str, dict[str, float]] = {"gpu 0": {}, "gpu 1": {}, "all GPUs": {}}
        for (where, metric), value in figures.items():
            if metric != "memory triad":
                values[where][metric] = value * change.get((where, metric), 1.0)
        bare = {"gpus": [values["gpu 0"], values["gpu 1"]], "together": values["all GPUs"]}
        (folder / name).write_text(json.dumps(bare))
    return ["--report-dir", str(folder), "--compare"]


def test_figures_within_three_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = {("gpu 0", "gemm bf16 8192"): 1.025, ("gpu 1", "memory copy"): 0.975}
    assert main(write(tmp_path, some, some)) == 0
    out = capsys.readouterr().out.splitlines()
    assert "ratio 0.9756" in next(line for line in out if line.startswith("gpu 0: gemm bf16 8192: suite "))
    assert sum(line.startswith("all GPUs: all_reduce ") for line in out) == 4
    assert out[-2:] == [
        "not measured by both: memory triad",
        f"{len(out) - 2} figures, 0 of them differ by more than 3%",
    ]


@pytest.mark.parametrize("share", [0.96, 1.04])
def test_a_figure_that_differs(share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearer one of the two bare runs counts; in one place both are far away."""
    once, both = ("gpu 0", "host to device"), ("gpu 1", "gemm fp8 8192")
    assert main(write(tmp_path, {once: share, both: share}, {both: share})) == 1
    out = capsys.readouterr().out.splitlines()
    (bad,) = [line for line in out if line.endswith(f"ratio {1 / share:.4f}: differs by more than 3%")]
    assert bad.startswith("gpu 1: gemm fp8 8192: suite ")
    assert out[-1].endswith("figures, 1 of them differ by more than 3%")


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (None, "No such file or directory"),
        ("pipe", "is not a regular file"),
        ("\udcff", "is not UTF-8"),
        ("{", "is not JSON: Expecting property name"),
        ("[]", "has another form than the suite and the bare script write"),
        ('{"together": {}}', "gpus is missing"),
        ('{"together": {}, "gpus": {"x": 1}}', "has another form than the suite and the bare script write"),
    ],
)
def test_a_file_that_cannot_be_compared(
    broken: str | None, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, path = write(tmp_path, {}, {}), tmp_path / BARES[1]
    path.unlink()
    if broken == "pipe":
        os.mkfifo(path)
    elif broken is not None:
        path.write_text(broken, errors="surrogateescape")
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"bench.suite: {path}: {rule}")
    assert said.endswith(". Hint: measure it, or name another folder with --report-dir\n")
    assert said.count("\n") == 1


def test_nothing_is_made_where_nothing_can_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["--report-dir", str(tmp_path / "new")]) == 3
    assert "torch is missing. Hint: make bench-suite PYTHON=" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert main(["--report-dir", "/dev/null"]) == 2
    assert capsys.readouterr().err.startswith("bench.suite: /dev/null: is not a folder. Hint: ")


def test_nothing_in_common_is_no_success(tmp_path: Path) -> None:
    argv = write(tmp_path, {}, {})
    empty: dict[str, Any] = {"gpus": [], "together": {}}
    (tmp_path / BARES[0]).write_text(json.dumps(empty))
    assert main(argv) == 1
