"""Reports from recorded runs: schema, JUnit, the page, the terminal, and the command line around them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipapp
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import jsonschema
import pytest
from acceptance_runs import HERE, REPOSITORY, make_scenario
from recorded import located, run_directory

from acceptance.cli import main
from acceptance.limits import known_limits
from acceptance.report import build_report, write_report
from acceptance.report.heatmap import heat_maps
from acceptance.report.summary import code, plain
from acceptance.report.terminal import table

SCHEMA = jsonschema.Draft202012Validator(json.loads((REPOSITORY / "acceptance/report/report.schema.json").read_text()))


BASELINES = [
    {"collective": "all_reduce", "nodes": 2, "size_bytes": size, "median_gb_per_s": level, "mad_gb_per_s": 0.4}
    | {"runs": 4, "since": "2026-11-01T00:00:00Z", "until": "2026-11-20T00:00:00Z"}
    for size, level in ((1 << 30, 437.0), (1 << 32, 466.0))
]
NAMES = [f"gpu-st-p5-{number}" for number in range(1, 9)]
CASES: dict[str, dict[str, Any]] = {
    "accepted": {},
    "accepted by a baseline": {"scenario": {"baselines": BASELINES}},
    "slow against a baseline": {"scenario": {"baselines": [{**BASELINES[1], "median_gb_per_s": 500}]}},
    "located": {
        "limit": {"fail_below_gb_per_s": 470, "warn_below_gb_per_s": None},
        "locate": located(NAMES, slow=NAMES[2], hanging=NAMES[5]),
        "nodes": {name: {"state": "IDLE", "trouble": None, "reason": None} for name in NAMES},
    },
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
VERDICTS = {"accepted": "accepted", "accepted by a baseline": "accepted", "interrupted": "error"}


@pytest.mark.parametrize("case", CASES)
def test_every_report_fits_the_schema(case: str, tmp_path: Path) -> None:
    report = write_report(run_directory(tmp_path, **CASES[case]))
    written = json.loads((Path(report.directory) / "report.json").read_text())
    SCHEMA.validate(written)
    assert written["verdict"] == VERDICTS.get(case, "not accepted")
    accepted = written["verdict"] == "accepted"
    assert bool(written["failures"]) != accepted
    suites = ElementTree.parse(Path(report.directory) / "junit.xml").getroot()  # noqa: S314 - written just above
    bad = suites.findall(".//failure") + suites.findall(".//error")
    assert bool(bad) != accepted
    assert len(table(report).splitlines()) < 60
    summary = (Path(report.directory) / "summary.md").read_text()
    assert summary.startswith(f"# Acceptance of ml: {written['verdict']}\n")
    assert ("## What is wrong" in summary) != accepted


def test_schema_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    report = build_report(run_directory(tmp_path)).as_json()
    SCHEMA.validate(report)
    report["verdict"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(report)


def test_failure_line_says_measured_expected_limits_log_and_command(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, **CASES["slow"])
    text = table(write_report(directory))
    assert "too slow: busbw=465.9 GB/s, expected >= 470 (fail below 470; " in text
    assert f"log: {directory}/all_reduce.out" in text
    assert "again: sbatch 'a b.sbatch'" in text


def test_every_failure_has_its_log_and_the_command_that_repeats_it(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, **CASES["located"])
    report = write_report(directory)
    text = table(report)
    assert f"    log: {directory}/locate-4-3.out\n    again: sbatch --parsable /runs/locate-4.sbatch" in text
    for problem in report.failures:
        assert problem.log is not None
        assert (problem.repeat or "").startswith("sbatch ")
    suites = ElementTree.parse(directory / "junit.xml").getroot()  # noqa: S314 - written just above
    failure = next(one for one in suites.iter("failure") if "too slow" in one.get("message", ""))
    assert f"log: {directory}/all_reduce.out\nagain: sbatch 'a b.sbatch'" in (failure.text or "")


def test_a_report_tells_baseline_and_what_others_measured(tmp_path: Path) -> None:
    (test,) = build_report(run_directory(tmp_path, **CASES["accepted by a baseline"])).as_json()["tests"]
    assert [(one["size_bytes"], one["median_gb_per_s"]) for one in test["baseline"]] == [(1 << 30, 437), (1 << 32, 466)]
    assert test["baseline"][1]["fail_below_gb_per_s"] == pytest.approx(466 * 0.94)
    assert [(one["size_bytes"], one["gb_per_s"]) for one in test["references"]] == [
        (1 << 30, 435.14),
        (1 << 32, 465.81),
    ]
    assert [check["name"] for check in test["checks"]][-1] == "bandwidth against the baseline at 4 GiB"


def test_the_same_report_again_from_the_same_files(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, **CASES["located"])
    write_report(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    write_report(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    evil = "x | y </td><script>alert(1)</script> `rm -rf` [a](http://b) \x1b[31m"
    nodes = {evil: {"state": "DOWN", "trouble": "down", "reason": "\x07`# *bold*"}}
    directory = run_directory(tmp_path, nodes=nodes, infrastructure=f"1 node: {evil}", tests=[])
    report = write_report(directory)
    assert "\x1b" not in table(report)
    summary = (directory / "summary.md").read_text()
    assert "\x1b" not in summary
    assert "\x07" not in summary
    row = next(line for line in summary.splitlines() if "infrastructure" in line and line.startswith("|"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 4  # no cell more
    assert "\\<script\\>" in row
    assert "\\`rm -rf\\` \\[a\\](http" in row
    page = (directory / "report.html").read_text()
    assert "<script>alert" not in page
    ElementTree.parse(directory / "junit.xml")  # noqa: S314 - written just above


@pytest.mark.parametrize(
    ("text", "shown"), [("plain", "`plain`"), ("a`b", "``a`b``"), ("`x``", "``` `x`` ```"), ("a\nb", "`a b`")]
)
def test_code_in_markdown(text: str, shown: str) -> None:
    assert code(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("# a", "\\# a"), ("1. a", "1\\. a"), ("465.9 GB/s", "465.9 GB/s"), ("- a-b", "\\- a-b"), ("a_b", "a\\_b")],
)
def test_words_in_markdown(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_heat_map_of_a_large_fleet_shows_the_bad_pairs_first(tmp_path: Path) -> None:
    names = [f"gpu-{number}" for number in range(1, 201)]
    nodes = {name: {"state": "IDLE", "trouble": None, "reason": None} for name in names}
    locate = located(names, slow="gpu-150", hanging="gpu-199")
    report = build_report(run_directory(tmp_path, locate=locate, nodes=nodes))
    (one,) = heat_maps(report)
    assert len(one["names"]) == 48
    assert one["hidden"] == 152
    assert {"gpu-150", "gpu-199", "gpu-149", "gpu-50"} <= set(one["names"])
    assert one["names"] == sorted(one["names"], key=lambda name: int(name[4:]))  # as Slurm lists them
    assert one["summary"] == "300 pairs of 200 nodes, 6 results bad"
    bad = [cell for cell in one["cells"] if cell["bad"]]
    assert len(bad) == 12  # each on both sides of the diagonal
    assert {cell["text"] for cell in bad} == {"", "✕"}
    assert {cell["title"].split(": ", 1)[1] for cell in bad if cell["text"]} == {
        "round 2: hang",
        "round 3: hang",
        "round 4: hang",
    }


def test_killed_run_says_when_and_where(tmp_path: Path) -> None:
    report = build_report(run_directory(tmp_path, **CASES["killed"]))
    whats = [problem.what for problem in report.failures]
    assert "DUE TO TIME LIMIT" in whats[0]
    assert any("truncated at size 2 GiB" in what for what in whats)


def test_dynamic_nodes_that_no_job_needed_do_not_count_against_the_cluster(tmp_path: Path) -> None:
    states = {"gpu-1": "IDLE+CLOUD", "gpu-2": "IDLE+CLOUD", "gpu-dy-3": "IDLE+CLOUD+POWERED_DOWN", "gpu-st-4": "IDLE"}
    nodes = {name: {"state": state, "trouble": None, "reason": None} for name, state in states.items()}
    directory = run_directory(tmp_path, nodes=nodes)
    report = write_report(directory)
    SCHEMA.validate(report.as_json())
    assert [node.verdict for node in report.nodes] == ["good", "good", "not measured", "suspect"]
    assert "gpu-dy-3  not measured  dynamic and powered down: no job needed it" in table(report)
    assert "Nodes: 2 good, 1 not measured, 1 suspect:" in (directory / "summary.md").read_text()
    assert '<td class="not measured">not measured</td>' in (directory / "report.html").read_text()
    suites = ElementTree.parse(directory / "junit.xml").getroot()  # noqa: S314 - written just above
    skipped = {case.get("name"): case.find("skipped") for case in suites.iter("testcase")}
    assert [name for name, found in skipped.items() if found is not None] == ["gpu-dy-3", "gpu-st-4"]


def test_the_terminal_says_why_an_accepted_test_did_not_pass(tmp_path: Path) -> None:
    slower = run_directory(tmp_path / "slower", limit={"warn_below_gb_per_s": 470})
    text = table(write_report(slower))
    assert "all_reduce: slower than it should be: busbw=465.9 GB/s, expected >= 470 (fail below 400, " in text
    unknown = {"limits": [], "instance_type": "g6.12xlarge", "missing_limit": "warn"}
    report = write_report(run_directory(tmp_path / "unknown", scenario=unknown))
    SCHEMA.validate(report.as_json())
    assert (report.verdict, report.tests[0].verdict) == ("accepted", "no limit")
    assert "all_reduce: no limit is known for all_reduce on 2 nodes of g6.12xlarge: measured 465.9" in table(report)


def test_parse_says_that_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "README.md"
    other.write_text("# A cluster\n")
    assert main(["parse", str(other)]) == 1
    assert "no nccl-tests table in this file. Hint: " in capsys.readouterr().out


def test_interrupted_and_broken_pipe_have_their_own_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("acceptance.list_command._list_tests", interrupted)
    monkeypatch.setattr("acceptance.list_command.load_scenario", lambda path: path)
    assert main(["list", "--scenario", "x"]) == 130
    argv = [sys.executable, "-m", "acceptance", "list", "--json"]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE) as done:
        assert done.stdout is not None
        done.stdout.close()
        assert done.wait(60) == 141


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
    loaded = [a.get("src") or a.get("href") for tag, a in parsed.tags if tag in ("script", "link", "iframe", "img")]
    assert set(loaded) == {None, "data:,"}  # an icon of its own, so that no browser asks for one
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
    assert len(json.loads(capsys.readouterr().out)["limits"]) == len(known_limits())


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
    for name in ("jinja2", "markupsafe", "tomli"):
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
    argv = ["/usr/bin/python3", "-I", str(archive), "history", "--output", str(tmp_path)]
    for options, words in (["--rebuild"], "history.sqlite: 1 run of "), ([], directory.name):
        done = subprocess.run([*argv, *options], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert words in done.stdout


MEMLOCK = """\
# Collective test starting: all_reduce_perf
gpu-1:9:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)

gpu-1:9:99 [0] x:520 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: -12, Error: No memory
gpu-1: Test NCCL failure common.cu:1012 'unhandled system error / '
srun: error: gpu-1: tasks 0-7: Exited with exit code 3
"""
FAILED = {"state": "FAILED", "exit_code": 3, "kind": "failed", "message": "the job failed with exit code 3"}


def test_the_headline_names_the_cause_and_not_the_exit_code(tmp_path: Path) -> None:
    report = write_report(run_directory(tmp_path, text=MEMLOCK, outcome=FAILED))
    assert report.summary.startswith("all_reduce: cause memory-registration: gpu-1: registering memory")
    assert [one.id for one in report.tests[0].causes] == ["memory-registration"]
    names = [check.name for check in report.tests[0].checks]
    assert names[:3] == ["cause memory-registration", "job", "nccl-tests"]
    for name in ("junit.xml", "report.html", "summary.md"):
        assert "RC: -12" in (tmp_path / report.run_id / name).read_text().replace("\\", ""), name


def test_the_headline_names_wrong_data_although_the_job_failed(tmp_path: Path) -> None:
    text = (HERE / "data/cases/01-wrong-but-footer-FAILED.txt").read_text()
    outcome = {**FAILED, "exit_code": 7, "message": "the job failed with exit code 7"}
    report = build_report(run_directory(tmp_path, text=text, outcome=outcome))
    assert report.summary.startswith("all_reduce: data: wrong data at 2 GiB (37 values out of place), 4 GiB")


def test_the_headline_names_the_node_that_failed(tmp_path: Path) -> None:
    text = (HERE / "data/cases/80-slurm-node-failure-real-order.txt").read_text()
    outcome = {"state": "NODE_FAIL", "kind": "infrastructure", "message": "a node of the job failed"}
    report = build_report(run_directory(tmp_path, text=text, outcome=outcome))
    assert report.summary.startswith("all_reduce: cause node-failure: Slurm lost the node gpu-st-p5-2")


def test_the_plugin_of_a_failed_job_is_named(tmp_path: Path) -> None:
    text = MEMLOCK.replace(
        "Selected provider is efa, fabric is efa (found 32 nics)", "No eligible providers were found"
    )
    text = text.replace(
        "NET/OFI Unable to register memory (type = 1) for device 0.", "Failed to initialize any NET plugin"
    )
    text += (HERE / "data/90-SYNTH-v2.19-plain.txt").read_text()[:2500]
    directory = run_directory(tmp_path, text=text, outcome=FAILED, scenario={"network": {"provider": "efa"}})
    checks = {check.name: check.message for check in build_report(directory).tests[0].checks}
    assert "the network plugin found no usable provider" in checks["cause no-provider"]
    assert checks["network"].startswith("wrong transport: gpu-1: the network plugin found no usable provider")


def test_the_runners_own_time_out_is_not_a_reason(tmp_path: Path) -> None:
    text = "srun: error: gpu-1: task 0: Killed\n[2026-11-28T10:25:27.039] error: *** STEP 3.0 ON gpu-1 CANCELLED AT"
    text += " 2026-11-28T10:25:27 DUE to SIGNAL Killed ***\n"
    outcome = {"state": "FAILED", "exit_code": 124, "kind": "hang", "message": "it hangs"}
    report = build_report(run_directory(tmp_path, text=text, outcome=outcome))
    assert next(check.message for check in report.tests[0].checks if check.name == "job") == "it hangs (after 60 s)"
    outcome = {"state": "CANCELLED", "exit_code": 0, "kind": "lost", "message": "someone cancelled the job"}
    text = text.replace("srun: error: gpu-1: task 0: Killed\n", "")
    report = build_report(run_directory(tmp_path, run_id="2", text=text, outcome=outcome))
    assert report.summary == "all_reduce: job: someone cancelled the job; gpu-1: DUE to SIGNAL Killed"


def test_what_slurm_refused_is_an_error_of_the_run(tmp_path: Path) -> None:
    refused = "sbatch: Requested node configuration is not available: no nodes have what it asks for"
    report = write_report(run_directory(tmp_path, trouble=refused, tests=[]))
    assert (report.verdict, report.summary) == ("error", refused)
    assert report.failures[0].what == refused
    assert not [failure for failure in report.failures if "was not measured" in failure.what]
    assert refused in (tmp_path / report.run_id / "junit.xml").read_text()


@pytest.mark.parametrize("command", ["run", "locate"])
def test_a_machine_that_is_no_head_node_says_where_to_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("acceptance.preparation.SCENARIO_FILE", tmp_path / "acceptance.json")
    assert main([command, "--scenario", str(tmp_path / "acceptance.json")]) == 2
    rule = "does not exist: this machine is not the head node of a cluster, where Slipway puts it"
    hint = "Hint: run it on the head node, or name a file with --scenario FILE"
    assert f"{tmp_path}/acceptance.json: {rule}. {hint}" in capsys.readouterr().err
