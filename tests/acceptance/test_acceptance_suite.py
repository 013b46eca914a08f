"""The report of the GPU suite: what its JSON says, as page, JUnit and metrics. Without torch and GPUs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from suite_reports import ALL_REDUCE, SLOW, STORAGE, of_eight, recorded, whole, write_reports

from acceptance.cli import main
from acceptance.errors import InputError
from acceptance.history import metrics
from acceptance.report.gpus import STAGES, read_suite
from acceptance.report.gpus_page import render_suite_page
from acceptance.report.junit import render_suite_junit


def part(report: Any, *failures: str) -> dict[str, Any]:
    return {"rc": int(bool(failures)), "took_s": 1.0, "failures": list(failures), "report": report}


def verdicts(directory: Path) -> dict[str, str]:
    return {test.name: test.verdict for test in read_suite(directory).tests}


def test_eight_gpus_with_a_slow_one_and_a_slow_link(tmp_path: Path) -> None:
    directory = write_reports(tmp_path, gpus=of_eight(), ddp=ALL_REDUCE, storage=STORAGE)
    report = read_suite(directory)
    assert (report.verdict, report.nodes, report.failures[0]) == ("not accepted", ("gpu-7",), SLOW)
    found = {test.name: test.verdict for test in report.tests}
    assert found == {
        **dict.fromkeys(STAGES, "pass"),
        **{"compute": "fail", "peers": "fail", "all-reduce": "pass", "storage /fsx": "warn"},
    }
    assert [(one.gpu, one.metric, one.outcome) for one in report.figures if one.outcome != "pass"] == [
        (3, "gemm bf16 8192", "fail")
    ]
    assert [(one.source, one.target) for one in report.peers["gpu-7"] if not one.good] == [(5, 6)]
    assert {len(one.power_w) for one in report.watched} == {len(recorded()["samples"])}
    assert [(one.what, one.value) for one in report.storage][-1] == ("fio randread 4 KiB", 4e5)
    assert report.versions["torch"] == "2.11.0+cu130"


def test_the_recorded_h200(tmp_path: Path) -> None:
    report = read_suite(write_reports(tmp_path, gpus=recorded()))
    assert report.verdict == "accepted"
    causes = {test.name: test.cause for test in report.tests if test.verdict == "not measured"}
    assert causes == {"peers": "one GPU: there is no other to copy to"}


def test_what_was_not_run_is_not_good(tmp_path: Path) -> None:
    nothing = {**recorded(), "gpus": [], "stages": {}, "readings": [], "checks": [], "samples": [], "result": "SKIPPED"}
    report = read_suite(write_reports(tmp_path / "none", gpus={**nothing, "peers": {}}))
    assert report.verdict == "not measured"
    assert {test.verdict for test in report.tests} == {"not measured"}
    junit = ElementTree.fromstring(render_suite_junit(report))  # noqa: S314 - our own text
    assert [suite.get("skipped") for suite in junit] == [str(len(STAGES))]
    some = {**recorded(), "checks": [one for one in recorded()["checks"] if one["name"] in ("compute", "memory")]}
    found = verdicts(write_reports(tmp_path / "some", gpus=some))
    assert [name for name, verdict in found.items() if verdict == "pass"] == ["compute", "memory"]


def test_a_part_without_a_report_failed_and_older_files_do_not_count(tmp_path: Path) -> None:
    hangs = "ddp_tests did not end within 600 s: it hangs"
    run = whole(gpu_tests=part(recorded()), ddp_tests=part({}, hangs))
    directory = write_reports(tmp_path, run_all_result=run, old=ALL_REDUCE, older=of_eight())
    report = read_suite(directory)
    assert report.failures == (hangs,)
    rows = {test.name: (test.verdict, test.cause) for test in report.tests}
    assert rows["all-reduce"] == ("fail", hangs)
    assert rows["FSDP training"][0] == "not measured"
    assert len(report.figures) == len(recorded()["readings"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x", "{}", "has no report of the GPU suite. Hint: run `acceptance suite --report-dir "),
        ("x", "{", "x.json: cannot be read as JSON: "),
        ("x", '{"schema": 1, "program": "gpu_tests", "node": "n", "date": "d", "result": "SUCCESS"}', "KeyError"),
        ("x", '{"schema": 1, "parts": {"a": 1}, "node": "n", "date": "d", "result": "s", "failures": []}', "TypeError"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_suite(tmp_path)
    assert message in str(caught.value)


def test_junit_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = read_suite(write_reports(tmp_path / "r", gpus=of_eight(), storage=STORAGE))
    junit = ElementTree.fromstring(render_suite_junit(report))  # noqa: S314 - our own text
    cases = {case.get("name"): case for case in junit.iter("testcase")}
    failure = cases["compute"].find("failure")
    assert failure is not None
    assert SLOW in str(failure.get("message"))
    assert cases["memory"].find("failure") is None
    folder = tmp_path / "textfile"
    folder.mkdir()
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", folder)
    assert metrics.write_suite_metrics(report)
    lines = (folder / "slipway_gpu_suite.prom").read_text().splitlines()
    assert "slipway_gpu_suite_accepted{} 0" in lines
    assert 'slipway_gpu_suite_test{node="gpu-7",test="compute",verdict="fail"} 0' in lines
    line = 'gpu="3",metric="gemm bf16 8192",node="gpu-7",unit="TFLOP/s",uuid="GPU-3"} 397.6'
    assert any(line in one for one in lines)
    assert [path.name for path in folder.iterdir()] == ["slipway_gpu_suite.prom"]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    evil = "</td><img src=x onerror=alert(1)>\x00"
    page = render_suite_page(read_suite(write_reports(tmp_path, gpus={**recorded(), "node": evil, "failures": [evil]})))
    assert "<img" not in page
    assert "&lt;img src=x" in page


PROGRAM = """import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--report-dir") + 1].replace("%N", "gpu-7"))
folder.mkdir(parents=True, exist_ok=True)
(folder / "run_all_result.json").write_text(pathlib.Path(__file__).with_name("report").read_text())
sys.exit(int(pathlib.Path(__file__).with_name("code").read_text()))
"""


@pytest.mark.parametrize(("code", "pages"), [(0, 1), (1, 1), (3, 0)])
def test_acceptance_suite_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, pages: int
) -> None:
    suite = tmp_path / "gpusuite"
    suite.mkdir()
    (suite / "run_all_tests.py").write_text(PROGRAM)
    (suite / "report").write_text(json.dumps(whole(gpu_tests=part(recorded()))))
    (suite / "code").write_text(str(code))
    monkeypatch.setattr("acceptance.suite._PLACES", (suite,))
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", tmp_path / "none")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    with pytest.raises(SystemExit) as ended:
        main(["suite", "--report-dir", f"{tmp_path}/r/%N", "--storage-dir", "/"])
    assert ended.value.code == code
    found = sorted(path.name for path in (tmp_path / "r/gpu-7").iterdir())
    assert found == ["gpu_suite.html", "gpu_suite_junit.xml"] * pages + ["run_all_result.json"]
