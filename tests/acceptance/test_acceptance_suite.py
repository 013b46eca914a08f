"""The report of the GPU suite: what its JSON says, as page, JUnit and metrics. Without torch and GPUs."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from acceptance_runs import REPOSITORY
from recorded import run_directory
from suite_reports import ALL_REDUCE, RECORDED, SLOW, STORAGE, of_eight, recorded, whole, write_reports

from acceptance.cli import main
from acceptance.errors import InputError
from acceptance.history import metrics
from acceptance.report import build_report, suite_report, table, write_files
from acceptance.report.gpus import STAGES, SUITE, add_suite, read_suite
from acceptance.report.gpus import STORAGE as STORAGE_JOB
from acceptance.report.gpus_model import StorageFigure, SuiteReport
from acceptance.report.gpus_storage import compared_with_file_system
from acceptance.report.junit import render_junit
from acceptance.report.page import render_page
from acceptance.report.summary import render_summary
from acceptance.scenario.model import FileSystem
from gpusuite.ddp_tests import COLLECTIVES

SCHEMA = jsonschema.Draft202012Validator(json.loads((REPOSITORY / "acceptance/report/report.schema.json").read_text()))


def part(report: Any, *failures: str) -> dict[str, Any]:
    return {"rc": int(bool(failures)), "took_s": 1.0, "failures": list(failures), "report": report}


def verdicts(directory: Path) -> dict[str, str]:
    return {test.name: test.verdict for test in read_suite(directory).tests}


def test_eight_gpus_with_a_slow_one_and_a_slow_link(tmp_path: Path) -> None:
    directory = write_reports(tmp_path, gpus=of_eight(), ddp=ALL_REDUCE, storage=STORAGE)
    report = read_suite(directory)
    assert (report.verdict, report.nodes, report.failures[0].what) == ("not accepted", ("gpu-7",), SLOW)
    found = {test.name: test.verdict for test in report.tests}
    assert found == {
        **dict.fromkeys(STAGES, "pass"),
        **{"compute": "fail", "peers": "fail", "communication": "pass", "storage /fsx": "warn"},
    }
    assert [(one.gpu, one.metric, one.outcome) for one in report.figures if one.outcome != "pass"] == [
        (3, "gemm bf16 8192", "fail")
    ]
    assert [(one.source, one.target) for one in report.peers["gpu-7"] if not one.good] == [(5, 6)]
    assert {len(one.power_w) for one in report.watched} == {len(recorded()["samples"])}
    assert [(one.what, one.value) for one in report.storage][-1] == ("fio randread 4 KiB", 4e5)
    assert [(one.collective, one.busbw_gb_per_s) for one in report.collectives] == [
        ("all_reduce", 340.5),
        ("alltoall", 300.5),
    ]
    assert report.versions["torch"] == "2.11.0+cu130"


def test_the_recorded_h200(tmp_path: Path) -> None:
    report = read_suite(write_reports(tmp_path, gpus=recorded()))
    assert report.verdict == "accepted"
    causes = {test.name: test.cause for test in report.tests if test.verdict == "not measured"}
    assert causes == {"peers": "one GPU: there is no other to copy to"}


def test_two_real_gpus(tmp_path: Path) -> None:
    """The whole suite on two H200: every test passed, and the page has each figure."""
    run = json.loads((RECORDED.parent / "h200x2-full.json").read_text())
    report = read_suite(write_reports(tmp_path, run_all_result=run))
    assert (report.verdict, {test.verdict for test in report.tests}) == ("accepted", {"pass"})
    assert {one.collective for one in report.collectives if one.size_bytes == 8 << 30} == set(COLLECTIVES)
    assert [(one.source, one.target) for one in report.peers["vm"]] == [(0, 1), (1, 0)]
    assert [one.gpu for one in report.watched] == [0, 1]
    page = suite_report(tmp_path)
    assert table(page).splitlines()[0] == "acceptance of vm: 1 x NVIDIA H200, 2 GPUs a node"
    assert "\n1 x NVIDIA H200, 2 GPUs a node; run " in render_summary(page)


def test_what_was_not_run_is_not_good(tmp_path: Path) -> None:
    nothing = {**recorded(), "gpus": [], "stages": {}, "readings": [], "checks": [], "samples": [], "result": "SKIPPED"}
    report = read_suite(write_reports(tmp_path / "none", gpus={**nothing, "peers": {}}))
    assert report.verdict == "not measured"
    assert {test.verdict for test in report.tests} == {"not measured"}
    whole_report = suite_report(tmp_path / "none")
    junit = ElementTree.fromstring(render_junit(whole_report))  # noqa: S314 - our own text
    assert junit[0].get("skipped") == str(len(STAGES))
    assert (whole_report.verdict, whole_report.nodes[0].verdict) == ("error", "not measured")
    some = {**recorded(), "checks": [one for one in recorded()["checks"] if one["name"] in ("compute", "memory")]}
    found = verdicts(write_reports(tmp_path / "some", gpus=some))
    assert [name for name, verdict in found.items() if verdict == "pass"] == ["compute", "memory"]


def test_a_part_without_a_report_failed_and_older_files_do_not_count(tmp_path: Path) -> None:
    hangs = "ddp_tests did not end within 600 s: it hangs"
    run = whole(gpu_tests=part(recorded()), ddp_tests=part({}, hangs))
    directory = write_reports(tmp_path, run_all_result=run, old=ALL_REDUCE, older=of_eight())
    report = read_suite(directory)
    assert [one.what for one in report.failures] == [hangs]
    rows = {test.name: (test.verdict, test.cause) for test in report.tests}
    assert rows["communication"] == ("fail", hangs)
    assert rows["FSDP training"][0] == "not measured"
    assert len(report.figures) == len(recorded()["readings"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x", "{}", "has no report of the GPU suite. Hint: run `acceptance suite --report-dir "),
        ("x", "{", "x.json: cannot be read as JSON: "),
        (
            "x",
            '{"schema": 1, "program": "gpu_tests", "node": "n", "date": "d", "result": "SUCCESS"}',
            "wrong one: checks is missing.",
        ),
        (
            "x",
            '{"schema": 1, "parts": {"a": 1}, "node": "n", "date": "d", "result": "s", "failures": []}',
            "wrong one: a value has another form.",
        ),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_suite(tmp_path)
    assert message in str(caught.value)


FIRST = {"readings": ("value",), "gpus": ("index", "name"), "samples": ("power_w",)}


@pytest.mark.parametrize("value", [float("inf"), 10**400, "<b>", {"a": 1}])
@pytest.mark.parametrize(("table_of", "key"), [(name, key) for name, keys in FIRST.items() for key in keys])
def test_a_value_of_another_kind_is_a_fault_or_left_out(value: object, table_of: str, key: str, tmp_path: Path) -> None:
    report = of_eight()
    report[table_of][0][key] = value
    write_reports(tmp_path, gpus=report)
    if key == "index" or (key != "name" and value != float("inf")):
        with pytest.raises(
            InputError, match=r"gpus\.json: a report of the GPU suite that lacks a field or has a wrong"
        ):
            suite_report(tmp_path)
    else:
        write_files(suite_report(tmp_path))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0])
def test_a_bandwidth_that_is_no_number(value: float, tmp_path: Path) -> None:
    report, storage = of_eight(), json.loads(json.dumps(STORAGE))
    report["peers"]["pairs"][0]["gb_per_s"] = value
    storage["directories"]["/fsx"]["write_gb_per_s"] = value
    found = suite_report(write_reports(tmp_path, gpus=report, storage=storage))
    write_files(found)
    assert found.gpus is not None
    assert found.gpus.peers["gpu-7"][0].gb_per_s == 0
    assert (found.gpus.storage[0].what == "checkpoint write") == (value == -1.0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"date": 5}, "node and date must be texts"),
        ({"title": "\ud800"}, "half of a pair of surrogates"),
        ({"gpus": [{"index": 1 << 64}]}, "the index of a GPU must be a number, 0 or more"),
        ({"checks": [{"name": "node", "outcome": "fail"}]}, "message is missing"),
        ({"checks": [{"name": "node", "outcome": "odd", "message": ""}]}, "outcome must be one of pass, no limit,"),
    ],
)
def test_a_report_that_spoils_others_is_a_fault_of_its_file(other: Any, words: str, tmp_path: Path) -> None:
    fleet = {"schema": 1, "date": "2026-11-29", "result": "FAILURE", "nodes": [], "checks": [], "failures": []}
    with pytest.raises(InputError, match=re.escape(words)):
        read_suite(write_reports(tmp_path, gpus=recorded(), fleet={**fleet, **other}))


@pytest.mark.parametrize("report", [5, "text", {"x": 1}])
def test_a_part_whose_report_is_none_is_not_accepted(report: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks a field or has a wrong one"):
        read_suite(write_reports(tmp_path, run_all_result=whole(gpu_tests=part(report))))


def test_junit_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = suite_report(write_reports(tmp_path / "r", gpus=of_eight(), ddp=ALL_REDUCE, storage=STORAGE))
    junit = ElementTree.fromstring(render_junit(report))  # noqa: S314 - our own text
    cases = {case.get("name"): case for case in junit.iter("testcase")}
    for name in ("compute", "gpu 3 (0000:03:00)"):
        failure = cases[name].find("failure")
        assert failure is not None
        assert SLOW in str(failure.get("message"))
    assert [cases[name].find("failure") for name in ("memory", "gpu 2 (0000:02:00)")] == [None, None]
    folder = tmp_path / "textfile"
    folder.mkdir()
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", folder)
    assert metrics.write_metrics(report)
    lines = (folder / "slipway_gpu_suite.prom").read_text().splitlines()
    assert "slipway_gpu_suite_accepted{} 0" in lines
    assert 'slipway_gpu_suite_test{node="gpu-7",test="compute",verdict="fail"} 0' in lines
    assert 'slipway_gpu_suite_gpu_bad{gpu="3",node="gpu-7",uuid="GPU-3",verdict="slow"} 1' in lines
    line = 'gpu="3",metric="gemm bf16 8192",node="gpu-7",unit="TFLOP/s",uuid="GPU-3"} 397.6'
    assert any(line in one for one in lines)
    assert [path.name for path in folder.iterdir()] == ["slipway_gpu_suite.prom"]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    evil = "</td><img src=x onerror=alert(1)>\x00"
    report = suite_report(write_reports(tmp_path, gpus={**recorded(), "node": evil, "failures": [evil]}))
    page = render_page(report)
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert "\x00" not in table(report)


def suite_run(root: Path, **reports: Any) -> Path:
    """A run of gpu-1 and gpu-7 whose network is good, with the results of a job of the suite."""
    directory = run_directory(root)
    folder = add_suite(directory, SUITE, ["gpu-1", "gpu-7"], log="gpu-suite.out", repeat="sbatch gpu-suite.sbatch")
    write_reports(folder / "gpu-1", gpus={**recorded(), "node": "gpu-1"})
    write_reports(folder / "gpu-7", **reports)
    return directory


def test_a_run_has_the_suite_as_a_section(tmp_path: Path) -> None:
    directory = suite_run(tmp_path, gpus=of_eight(), ddp=ALL_REDUCE)
    write_reports(add_suite(directory, STORAGE_JOB, ["gpu-7"]), storage=STORAGE)
    report = build_report(directory)
    SCHEMA.validate(report.as_json())
    assert report.verdict == "not accepted"
    problem = report.failures[0]
    assert (problem.what, problem.log, problem.repeat) == (SLOW, "gpu-suite.out", "sbatch gpu-suite.sbatch")
    assert report.summary.endswith(SLOW)
    text = table(report)
    assert "GPU suite: not accepted, 9 GPUs of 2 nodes" in text
    assert re.search(r"^gpu-7 gpu 3 \(0000:03:00\) +slow +gemm bf16 8192 397.7", text, re.M)
    assert re.search(r"^gpu-1 +peers +not measured +one GPU: there is no other to copy to$", text, re.M)
    assert "| gpu-7 gpu 3 (0000:03:00) | slow | " in render_summary(report)
    write_files(report)
    again = json.loads((directory / "report.json").read_text())
    assert main(["report", str(directory)]) == 1
    assert json.loads((directory / "report.json").read_text()) == again


def test_a_report_of_the_suite_overwrites_no_file_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_reports(tmp_path, gpus=of_eight())
    (directory / "summary.md").write_text("mine")
    assert main(["report", str(directory)]) == 2
    rule = "exists, and no report wrote it: there is no report.json. Hint: move it away"
    assert f"{directory}/summary.md: {rule}" in capsys.readouterr().err
    assert (directory / "summary.md").read_text() == "mine"


def test_a_bad_gpu_makes_its_node_bad(tmp_path: Path) -> None:
    directory = suite_run(tmp_path, gpus=of_eight())
    add_suite(directory, SUITE, ["gpu-1"])
    wrong = "gpu-1 gpu 0 (0000:97:00): corruption screen: 3 repeated products differ from their first result"
    check = {"name": "screen", "outcome": "fail", "message": wrong, "gpu": 0, "kind": "wrong result"}
    bus = recorded()["gpus"][0]["bus"]
    check["message"] = wrong = wrong.replace("0000:97:00", bus)
    bad = {**recorded(), "node": "gpu-1", "checks": [*recorded()["checks"], check], "failures": [wrong]}
    write_reports(directory / "gpus/suite/gpu-1", gpus=bad)
    report = build_report(directory)
    nodes = [(one.name, one.verdict) for one in report.nodes]
    assert nodes == [("gpu-1", "failed"), ("gpu-2", "good"), ("gpu-7", "slow")]
    assert next(one.verdict for one in report.gpus.gpus if one.node == "gpu-1") == "wrong result"
    assert report.summary.startswith("gpu-7 (slow): gpu-1 gpu 0")


def test_a_node_without_results_and_a_broken_file_are_failures_next_to_the_others(tmp_path: Path) -> None:
    directory = suite_run(tmp_path)
    add_suite(directory, SUITE, ["gpu-1", "gpu-7"], ended="the job reached Slurm's time limit")
    (directory / "gpus/suite/gpu-7/x.json").write_text('{"schema": 1, "date": "d", "result": "s", "parts": 3}')
    report = build_report(directory)
    SCHEMA.validate(report.as_json())
    assert report.verdict == "not accepted"
    assert "x.json: a report of the GPU suite that lacks a field" in report.failures[0].what
    missing = "gpu-7: GPU suite: left no result: the job reached Slurm's time limit"
    assert report.failures[1].what == missing
    assert [one.verdict for one in report.gpus.gpus] == ["good"]
    (directory / "gpus/suite.json").write_text("[]")
    with pytest.raises(InputError, match=r"gpus/suite.json: is not the record of a job: .*Hint: give the directory"):
        build_report(directory)


def test_newer_results_next_to_those_of_the_whole_suite_count(tmp_path: Path) -> None:
    later = {**STORAGE, "date": "2027-01-01T00:00:00Z"}
    directory = write_reports(tmp_path, run_all_result=whole(gpu_tests=part(recorded())), storage=later, old=STORAGE)
    assert {one.value for one in read_suite(directory).storage if one.what == "checkpoint write"} == {1.25}


FACTS = {"mount": "/fsx", "write_gb_per_s": 2.4, "read_gb_per_s": 2.4, "burst_gb_per_s": 9.6, "client_gb_per_s": 1.6}
SOURCE = "persistent-2, 9600 GiB, 250 MB/s per TiB"


@pytest.mark.parametrize(
    ("rates", "verdict", "words"),
    [
        ((1.3, 1.2), "pass", "2.5 GB/s by 2 nodes at once, expected 2.4 GB/s (persistent-2"),
        ((1.3, 1.2), "pass", "fail below 1.8, warn below 2.16; up to 9.6 while it has burst credits"),
        ((1.0, 1.1), "warn", "2.1 GB/s by 2 nodes at once, expected 2.4 GB/s"),
        ((0.2, 0.7), "fail", "0.9 GB/s by 2 nodes at once, expected 2.4 GB/s"),
        ((1.5,), "pass", "1.5 GB/s by 1 node, expected 1.6: the nodes are too few for the file system's 2.4 GB/s"),
        ((0.5,), "warn", "one client is counted with 1.6 GB/s, so that 2 would be needed"),
    ],
)
def test_storage_is_compared_with_fsx(rates: tuple[float, ...], verdict: str, words: str) -> None:
    figures = [StorageFigure(f"gpu-{n}", "/fsx/x", "checkpoint write", rate, "GB/s") for n, rate in enumerate(rates)]
    elsewhere = StorageFigure("gpu-1", "/fsx2", "checkpoint write", 0.1, "GB/s")
    suite = replace(_nothing(), storage=(*figures, elsewhere))
    found = compared_with_file_system(suite, FileSystem(**FACTS, source=SOURCE))
    (test,) = found.tests
    assert (test.name, test.verdict) == ("FSx throughput: write", verdict)
    assert words in test.cause
    assert [one.what for one in found.failures] == [test.cause] * (verdict == "fail")
    assert compared_with_file_system(suite, None) == suite


def _nothing() -> SuiteReport:
    empty: dict[str, Any] = dict.fromkeys(
        ("nodes", "tests", "gpus", "figures", "watched", "collectives", "failures"), ()
    )
    return SuiteReport(date="", peers={}, versions={}, verdict="accepted", storage=(), **empty)


def test_a_run_with_slow_storage_is_not_accepted(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, scenario={"file_system": {**FACTS, "source": SOURCE}})
    folder = add_suite(directory, STORAGE_JOB, ["gpu-1", "gpu-2"], log="storage.out")
    for node in ("gpu-1", "gpu-2"):
        results = {"/fsx": {**STORAGE["directories"]["/fsx"], "write_gb_per_s": 0.4}}
        write_reports(folder / node, storage={**STORAGE, "node": node, "directories": results})
    report = build_report(directory)
    assert (report.verdict, report.failures[0].log) == ("not accepted", "storage.out")
    assert report.failures[0].what.startswith("checkpoint write to /fsx: 0.8 GB/s by 2 nodes at once, expected 2.4")
    read = next(test for test in report.gpus.tests if test.name == "FSx throughput: read")
    assert (read.verdict, "the file servers' memory may have answered" in read.cause) == ("pass", True)


def test_an_old_report_still_has_its_schema(tmp_path: Path) -> None:
    old = build_report(run_directory(tmp_path)).as_json()
    SCHEMA.validate(old)
    without = {key: value for key, value in old.items() if key != "gpus"}
    SCHEMA.validate({**without, "schema_version": 2})
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(without)


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
    made = ["junit.xml", "report.html", "report.json", "summary.md"] * pages
    assert found == sorted([*made, "run_all_result.json"])
    if pages:
        assert main(["report", f"{tmp_path}/r/gpu-7"]) == 0
