"""The history of each GPU: by UUID, compared with what is normal for it, bounded, and made again from the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import run_directory
from suite_reports import recorded, write_reports

from acceptance.cli import main
from acceptance.errors import InputError
from acceptance.history import keep_gpu_baselines, metrics, remember
from acceptance.history.gpus import gpu_series, insert_gpus
from acceptance.history.significance import TREND_RUNS
from acceptance.history.store import insert, reading, writing
from acceptance.report import Report, build_report, write_report
from acceptance.report.gpus import GPU_BASELINES, SUITE, add_suite

METRIC = "gemm bf16 8192"
NORMAL = next(one["value"] for one in recorded()["readings"] if one["metric"] == METRIC)
BUS = recorded()["gpus"][0]["bus"]


@pytest.fixture(autouse=True)
def no_node_exporter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", tmp_path / "no node exporter")


def measured(root: Path, day: int, scale: float = 1.0, node: str = "gpu-1", **environment: str) -> Path:
    """A run of this day in which one GPU, which is in `node`, has `scale` of its bf16 speed."""
    times = {"run_id": f"202611{day:02d}T060000Z-train", "started": f"2026-11-{day:02d}T06:00:00Z"}
    directory = run_directory(root, **times)
    report = {**recorded(), "node": node, "environment": {**recorded()["environment"], **environment}}
    for one in report["readings"]:
        one["value"] *= scale if one["metric"] == METRIC else 1 + day / 1000
    write_reports(add_suite(directory, SUITE, [node]) / node, gpus=report)
    return directory


def ended(root: Path, day: int, *arguments: Any, **more: Any) -> Report:
    """The report of such a run as `acceptance run` concludes it."""
    said: list[str] = []
    history = root / "history.sqlite"
    directory = measured(root, day, *arguments, **more)
    report = write_report(directory)
    if keep_gpu_baselines(history, report, said.append):
        report = write_report(directory)
    remember(history, report, said.append)
    assert said == []
    return report


def test_a_gpu_that_moved_is_compared_with_its_own_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day, scale in ((1, 1.0), (2, 1.002), (3, 0.998)):
        assert ended(tmp_path, day, scale).verdict == "accepted"
    report = ended(tmp_path, 4, 0.88, "gpu-2")
    where = f"gpu-2 gpu 0 ({BUS})"
    history = f"median {NORMAL:.4g} of 3 good runs since 2026-11-01, last as gpu-1 gpu 0"
    words = f"{where}: {METRIC} {0.88 * NORMAL:.4g} TFLOP/s, 12% below its own history: {history}"
    assert [one.what for one in report.failures] == [words]
    gpu = report.gpus.gpus[0]
    assert (report.verdict, gpu.verdict, gpu.findings) == ("not accepted", "slow", (words,))
    assert {one.metric for one in report.gpus.figures if one.outcome == "fail"} == {METRIC}
    assert [(one.node, one.verdict) for one in report.gpus.tests if one.name == "own history"] == [("gpu-2", "fail")]
    assert [(one.name, one.verdict) for one in report.nodes][1] == ("gpu-2", "slow")
    # The report is the same when it is made again, also after the history has changed.
    assert build_report(Path(report.directory)).failures == report.failures
    # What was slow is no part of what is normal: the next run is compared with the good ones.
    assert ended(tmp_path, 5, 0.94, "gpu-2").gpus.gpus[0].verdict == "warn"
    assert main(["history", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert f"gpu-2 gpu 0  {METRIC}" in text
    assert "sound runs of a series are needed" in text
    place = Path(report.directory) / GPU_BASELINES
    place.write_text('[{"name": 1}]')
    with pytest.raises(
        InputError,
        match=r"baselines.json: does not have the baselines of GPUs: a value has another form. Hint: remove it",
    ):
        build_report(Path(report.directory))


def test_other_software_is_not_compared(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        ended(tmp_path, day)
    report = ended(tmp_path, 4, 0.88, torch="2.13.0")
    assert report.gpus.gpus[0].verdict == "good"
    assert not (Path(report.directory) / GPU_BASELINES).read_text().count("2.13.0")


def test_rebuild_has_the_gpus_too(tmp_path: Path) -> None:
    ended(tmp_path, 1)
    history = tmp_path / "history.sqlite"
    with reading(history) as connection:
        before = gpu_series(connection, "ml")
    history.unlink()
    assert main(["history", "--rebuild", "--output", str(tmp_path)]) == 0
    with reading(history) as connection:
        assert gpu_series(connection, "ml") == before
    assert len(before) == len(recorded()["readings"])
    assert {kind.name for kind in before} == {recorded()["gpus"][0]["uuid"]}


def test_degradation_and_bounded_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = build_report(measured(tmp_path, 1))
    assert report.gpus is not None
    one = next(figure for figure in report.gpus.figures if figure.metric == METRIC)
    history = tmp_path / "history.sqlite"
    with writing(history) as connection:
        for number in range(TREND_RUNS + 6):
            value = NORMAL * (1 + number / 1e7) * (0.95 if number >= TREND_RUNS else 1)
            started = f"2026-12-{number + 1:02d}T06:00:00Z"
            run = replace(report, run_id=f"run-{number:02d}", started=started)
            insert(connection, run, "{}")
            suite = replace(report.gpus, figures=(replace(one, value=value),))
            insert_gpus(connection, "ml", run.run_id, suite)
    with reading(history) as connection:
        (points,) = gpu_series(connection, "ml").values()
    assert [point.run_id for point in points] == [f"run-{number:02d}" for number in range(6, TREND_RUNS + 6)]
    assert main(["history", "--output", str(tmp_path)]) == 1
    where = f"gpu-1 gpu 0, {recorded()['gpus'][0]['uuid']}"
    words = f"    {METRIC} of {where}: degraded since run run-24 (2026-12-25T06:00:00Z): "
    assert f"{words}{0.95 * NORMAL:.4g} TFLOP/s, before {NORMAL:.4g}" in capsys.readouterr().out
    assert main(["history", "--output", str(tmp_path), "--json"]) == 1
    (series,) = json.loads(capsys.readouterr().out)["gpus"]
    assert (series["verdict"], series["points"][0]["node"]) == ("degraded", "gpu-1")
