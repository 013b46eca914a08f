"""Reports from recorded runs: schema, JUnit, the page, the terminal, and the command line around them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipapp
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import Any

import jsonschema
import pytest
from conftest import HERE, REPOSITORY, make_scenario

from acceptance.cli import main
from acceptance.report import build_report, write_report
from acceptance.report.terminal import table
from acceptance.runner.follow import JobOutcome
from acceptance.runner.record import RunRecord, TestRecord

SCHEMA = json.loads((REPOSITORY / "acceptance/report/report.schema.json").read_text())


def run_directory(root: Path, log: str | None = "90-SYNTH-v2.19-plain.txt", **changes: Any) -> Path:
    """A finished run of two nodes, as the runner leaves it, without its reports."""
    directory = root / "20261127T210000Z-train"
    directory.mkdir()
    scenario = make_scenario(nodes=2, gpus_per_node=8, cluster="ml")
    scenario["tests"][0].update(min_bytes=1 << 30, max_bytes=1 << 32)
    scenario["limits"][0].update(nodes=2, size_bytes=1 << 32, fail_below_gb_per_s=400, warn_below_gb_per_s=450)
    scenario["limits"][0].update(changes.pop("limit", {}))
    (directory / "scenario.json").write_text(json.dumps(scenario))
    if log:
        copy(HERE / "data" / log, directory / "all_reduce.out")
    values = {"job_id": 7, "state": "COMPLETED", "exit_code": 0, "kind": "done", "message": "the job ended well"}
    values.update(changes.pop("outcome", {}))
    outcome = JobOutcome(nodes=["gpu-1", "gpu-2"], seconds=12.5, **values)
    record = RunRecord(directory.name, "2026-11-27T21:00:00Z", "2026-11-27T21:00:20Z", "slurm 22.05.8")
    record.nodes = {name: {"state": "IDLE", "trouble": None, "reason": None} for name in ("gpu-1", "gpu-2")}
    record.tests = [TestRecord("all_reduce", "all_reduce.out", ["sbatch", "a b.sbatch"], outcome)]
    for name, value in changes.items():
        setattr(record, name, value)
    record.write(directory)
    return directory


CASES: dict[str, dict[str, Any]] = {
    "accepted": {},
    "slow": {"limit": {"fail_below_gb_per_s": 470, "warn_below_gb_per_s": None}},
    "killed": {
        "log": "99-SYNTH-killed-mid-row.txt",
        "outcome": {"state": "TIMEOUT", "kind": "hang", "message": "the job reached Slurm's time limit"},
    },
    "cuda": {
        "log": "97-SYNTH-cuda-failure.txt",
        "outcome": {"state": "FAILED", "exit_code": 2, "kind": "failed", "message": "exit code 2"},
    },
    "no log": {"log": None, "outcome": {"state": "NODE_FAIL", "kind": "infrastructure", "message": "a node failed"}},
    "interrupted": {"interrupted": "stopped by SIGTERM", "tests": []},
    "infrastructure": {"infrastructure": "2 nodes are needed, 1 can be used: gpu-2 is down", "tests": []},
}
VERDICTS = {"accepted": "accepted", "interrupted": "error"}


@pytest.mark.parametrize("case", CASES)
def test_every_report_fits_the_schema(case: str, tmp_path: Path) -> None:
    report = write_report(run_directory(tmp_path, **CASES[case]))
    written = json.loads((Path(report["directory"]) / "report.json").read_text())
    jsonschema.validate(written, SCHEMA)
    assert written["verdict"] == VERDICTS.get(case, "not accepted")
    assert bool(written["failures"]) == (case != "accepted")
    suites = ElementTree.parse(Path(report["directory"]) / "junit.xml").getroot()  # noqa: S314 - written just above
    bad = suites.findall(".//failure") + suites.findall(".//error")
    assert bool(bad) == (case != "accepted")
    assert len(table(report).splitlines()) < 60


def test_schema_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    report = build_report(run_directory(tmp_path))
    report["verdict"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)


def test_failure_line_says_measured_expected_limits_log_and_command(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, **CASES["slow"])
    text = table(write_report(directory))
    assert "too slow: busbw=465.9 GB/s, expected >= 470 (fail below 470; " in text
    assert f"log: {directory}/all_reduce.out" in text
    assert "again: sbatch 'a b.sbatch'" in text


def test_killed_run_says_when_and_where(tmp_path: Path) -> None:
    report = build_report(run_directory(tmp_path, **CASES["killed"]))
    whats = [failure["what"] for failure in report["failures"]]
    assert "DUE TO TIME LIMIT" in whats[0]
    assert any("truncated at size 2 GiB" in what for what in whats)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_page_is_self_contained_and_escapes_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "plotly.js"
    library.write_text("window.Plotly = {newPlot: function () {}}; var s = '</script>';")
    monkeypatch.setenv("SLIPWAY_PLOTLY", str(library))
    evil = "</script><img src=x onerror=alert(1)>"
    directory = run_directory(tmp_path, limit={"source": evil, "fail_below_gb_per_s": 470, "warn_below_gb_per_s": None})
    write_report(directory)
    text = (directory / "report.html").read_text()
    parsed = _Page()
    parsed.feed(text)
    names = [tag for tag, _ in parsed.tags]
    assert "img" not in names
    assert names.count("script") == 3
    assert not [a for tag, a in parsed.tags if tag in ("script", "link", "iframe") and ("src" in a or "href" in a)]
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in parsed.tags
    assert '"sizes": [1073741824, 2147483648, 4294967296]' in text


def test_page_without_the_plot_library_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.report.page._plotly", lambda: None)
    directory = run_directory(tmp_path)
    write_report(directory)
    text = (directory / "report.html").read_text()
    assert "The plot library was not found" in text
    assert '<td class="n">465.9</td>' in text


def test_report_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = run_directory(tmp_path, **CASES["slow"])
    assert main(["report", str(directory)]) == 1
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith("[RESULT] FAILURE: all_reduce: bandwidth")
    assert main(["report", str(directory), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "not accepted"
    assert main(["report", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_parse_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = HERE / "data"
    logs = [str(data / "90-SYNTH-v2.19-plain.txt"), str(data / "99-SYNTH-killed-mid-row.txt")]
    assert main(["parse", "--json", logs[0]]) == 0
    one = json.loads(capsys.readouterr().out)
    assert set(one) >= {"file", "tables", "failures", "devices", "network", "versions", "complete"}
    assert one["tables"][0]["rows"][2]["out_of_place"] == {
        "time_us": 17286.0,
        "algbw": 248.47,
        "busbw": 465.87,
        "wrong": 0,
    }
    assert main(["parse", "--json", *logs]) == 1
    assert [json.loads(line)["complete"] for line in capsys.readouterr().out.splitlines()] == [True, False]
    assert main(["parse", *logs]) == 1
    assert "NOT COMPLETE" in capsys.readouterr().out
    assert main(["parse", str(tmp_path / "none")]) == 2


def test_list_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "p5.48xlarge all_reduce" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["limits"]) == 8


def test_disk_full_is_a_line_and_not_a_traceback(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(make_scenario()))
    argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(scenario), "--output", "/proc/nowhere"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stdout.rstrip().splitlines()[-1].startswith("[RESULT] FAILURE: /proc/nowhere: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's Python")
def test_zipapp_runs_with_the_system_python_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    copytree(REPOSITORY / "acceptance", tree / "acceptance", ignore=ignore_patterns("__pycache__"))
    for name in ("jinja2", "markupsafe"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        copytree(Path(spec.origin).parent, tree / name, ignore=ignore_patterns("__pycache__", "*.so"))
    (tree / "acceptance/report/plotly-basic.min.js").write_text("var library = 'in the archive';")
    archive = tmp_path / "acceptance.pyz"
    zipapp.create_archive(tree, archive, main="acceptance.__main__:main")
    directory = run_directory(tmp_path)
    argv = ["/usr/bin/python3", "-I", str(archive), "report", str(directory)]
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in the archive" in (directory / "report.html").read_text()
