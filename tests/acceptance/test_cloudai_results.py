"""What a scenario's folder leaves is parsed, and drawn: without Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.cloudai.hostlist import NodesError, choose
from acceptance.cloudai.notes import read_notes
from acceptance.cloudai.results import results_of, table_figures
from acceptance.report.model import JobReport, ScenarioReport, ScenarioTest, SweepPoint, SweepReport
from acceptance.report.page import render_scenario
from acceptance.report.timeline import gantt, graph
from acceptance.runner.slurm import Node, _node

STEP = "Training epoch 0, iteration {n}/9 | lr: 1.9e-06 | global_step: {n} | train_step_timing in s: {t}\n"
PAX = "I0508 15:25:28.482553 140737334253888 programs.py:379] [PAX STATUS]: train_step() took {t} seconds.\n"
E2E = "I0508 15:26:28.482553 1407 programs.py:1] E2E time: Elapsed time for train 90.1 s\n"
# Both tables that genai-perf writes; a number of four digits is quoted and has a comma.
CSV = """Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),"2,210.50",301.20,"4,120.75","4,099.60","3,905.00","3,700.10","2,450.00",512.25,333.10
Inter Token Latency (ms),18.40,16.10,24.90,23.75,22.00,21.10,19.30,18.20,17.00

Metric,Value
Output Token Throughput (per sec),410.80
Request Count (count),64.00
"""
GOOD = [
    ("NeMoLauncher", {"run/log-a.out": "train_step_timing in s: [2.0, 4.0]\n"}, "step time, mean", 3.0),
    ("NeMoLauncher", {"run/log-a.out": "global_step=9, train_step_timing in s=3.130]\n"}, "step time, mean", 3.13),
    (
        "NeMoRun",
        {
            "stdout.txt": STEP.format(n=0, t=7.1) + STEP.format(n=1, t=2.5) + STEP.format(n=2, t=1.5),
            "stderr.txt": "`Trainer.fit` stopped: `max_steps=3` reached.\n",
        },
        "step time, mean",
        2.0,
    ),
    (
        "JaxToolboxGrok",
        {"error-1-0-0.txt": "".join(PAX.format(t=t) for t in [99.0] * 10 + [3.0, 5.0]) + E2E},
        "step time, mean",
        4.0,
    ),
    (
        "AIDynamo",
        {"genai_perf_report.csv": CSV, "success-marker.txt": ""},
        "genai_perf: Time To First Token, avg",
        2210.5,
    ),
    (
        "UCCTest",
        {"stdout.txt": "Collective: alltoall\n 2 8 5.1 4.9 5.9 0.01 0.01 0.01\n 4 1024 9 8 9.5 1.5 1.6 1.4\n"},
        "bandwidth at 1024 bytes, average",
        1.5,
    ),
    ("ChakraReplay", {"stdout.txt": "Replayed 12 all_reduce calls\n"}, "replayed all_reduce", 12.0),
]
BAD = [
    ("NeMoLauncher", {}, "run/log-*.out has no step times"),
    ("NeMoRun", {"stdout.txt": STEP.format(n=0, t=7.1)}, "stderr.txt does not say that max_steps was reached"),
    (
        "JaxToolboxGPT",
        {"error-1-0-0.txt": "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"},
        "this process did not reach its end: a node has no GPU that CUDA can use",
    ),
    ("AIDynamo", {"genai_perf_report.csv": CSV, "failure-marker.txt": ""}, "failure-marker.txt exists"),
    ("AIDynamo", {"success-marker.txt": ""}, "has no table of genai-perf or aiperf"),
    ("UCCTest", {"stdout.txt": "1 2 3\n"}, "stdout.txt has no row of ucc_perftest"),
    ("ChakraReplay", {}, "stdout.txt has no"),
]


def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("template", "files", "name", "value"), GOOD)
def test_the_figures_of_a_template(
    template: str, files: dict[str, str], name: str, value: float, tmp_path: Path
) -> None:
    figures, checks = results_of(template, folder(tmp_path, files))
    assert (figures[0].name, figures[0].value) == (name, pytest.approx(value))
    assert {check.outcome for check in checks} == {"pass"}


@pytest.mark.parametrize(("template", "files", "words"), BAD)
def test_a_job_that_ended_well_without_its_result(
    template: str, files: dict[str, str], words: str, tmp_path: Path
) -> None:
    _, checks = results_of(template, folder(tmp_path, files))
    assert any(check.outcome == "fail" and words in check.message for check in checks), checks


def test_both_tables_of_a_csv_are_read(tmp_path: Path) -> None:
    figures = table_figures(folder(tmp_path, {"a.csv": CSV}) / "a.csv")
    assert [(one.name, one.value, one.unit, one.higher) for one in figures] == [
        ("Time To First Token, avg", 2210.5, "ms", False),
        ("Time To First Token, p99", 4099.6, "ms", False),
        ("Time To First Token, p50", 512.25, "ms", False),
        ("Inter Token Latency, avg", 18.4, "ms", False),
        ("Inter Token Latency, p99", 23.75, "ms", False),
        ("Inter Token Latency, p50", 18.2, "ms", False),
        ("Output Token Throughput", 410.8, "1/s", True),
    ]


def test_the_notes_of_a_requeued_job_that_was_killed(tmp_path: Path) -> None:
    text = "10 start 7 gpu-1\n11 begin test\n20 start 7 gpu-[2-3]\n21 begin pre_test a gate\n25 end 3\n25 ex"
    notes = read_notes(folder(tmp_path, {"notes.txt": text}) / "notes.txt")
    assert (notes.starts, notes.job_id, notes.nodes, notes.started, notes.code) == (2, 7, "gpu-[2-3]", 20.0, None)
    step = notes.step("pre_test")
    assert step is not None
    assert (step.name, step.ended, step.code) == ("a gate", 25.0, 3)
    assert notes.step("test") is None


def scenario() -> ScenarioReport:
    sweep = SweepReport(
        "step time",
        "s",
        False,
        (SweepPoint("b/0/1", {"<x>": 1}, "pass", 2.0), SweepPoint("b/0/2", {"<x>": 2}, "pass", 1.0)),
        "b/0/2",
    )
    tests = (
        ScenarioTest("a", "a", "BashCmd", "", (), "pass", "", None),
        ScenarioTest("b", "b", "NeMoRun", "", (("start_post_comp", "a"),), "pass", "", sweep),
        ScenarioTest("c", "c", "Sleep", "", (("end_post_comp", "b"), ("start_post_init", "a")), "fail", "<why>", None),
    )
    times = [("a/0", "00", "10"), ("b/0/1", "10", "20"), ("b/0/2", "20", "50")]
    jobs = tuple(
        JobReport(
            name,
            name[0],
            1,
            "COMPLETED",
            "pass",
            ("gpu-1",),
            f"2026-11-29T05:00:{start}Z",
            f"2026-11-29T05:00:{end}Z",
            (),
        )
        for name, start, end in times
    )
    waiting = JobReport("c/0", "c", 2, "CANCELLED", "fail", (), None, None, ())
    return ScenarioReport("night", tests, (*jobs, waiting), ())


def test_a_test_is_drawn_right_of_those_it_waits_for() -> None:
    drawn = graph(scenario())
    assert drawn is not None
    a, b, c = (box["x"] for box in drawn["boxes"])
    assert a < b < c
    assert [(line["kind"], line["x1"] < line["x2"]) for line in drawn["lines"]] == [
        ("start_post_comp", True),
        ("end_post_comp", True),
        ("start_post_init", True),
    ]


def test_bars_have_the_length_of_their_jobs() -> None:
    drawn = gantt(scenario())
    assert drawn is not None
    assert [bar["title"].split(":")[0] for bar in drawn["bars"]] == ["a/0", "b/0/1", "b/0/2"]
    first, second, third = drawn["bars"]
    assert first["width"] * 3 == pytest.approx(third["width"])
    assert second["x"] == pytest.approx(first["x"] + first["width"])


def test_the_page_names_the_best_point_and_escapes_text() -> None:
    page = render_scenario(scenario())
    assert "Best point by step time: b/0/2." in page
    assert "&lt;why&gt;" in page
    assert "<why>" not in page
    assert page.count("<svg role=") == 2


GROUPS = {"train": {"rack": ["gpu-[1-5]"]}}
STATES = ("IDLE+CLOUD+POWERED_DOWN", "ALLOCATED", "IDLE", "IDLE+DRAIN")


def nodes(*states: str) -> dict[str, list[Node]]:
    """Nodes gpu-1 and so on in these states."""
    lines = [f"NodeName=gpu-{number} State={state}" for number, state in enumerate(states, 1)]
    return {"train": [_node(line) for line in lines]}


def test_of_a_group_idle_nodes_are_chosen_first_and_no_drained_one() -> None:
    assert choose(["train:rack:max_avail"], 1, (), GROUPS, nodes(*STATES)).names == ("gpu-1", "gpu-3")
    assert choose(["train:rack:3"], 1, (), GROUPS, nodes(*STATES)).names == ("gpu-1", "gpu-3", "gpu-2")
    assert not choose(["train:rack:3"], 1, (), GROUPS, nodes(*STATES)).from_groups
    with pytest.raises(NodesError, match="asks for 4 nodes of the group rack, which has 3 left"):
        choose(["train:rack:4"], 1, (), GROUPS, nodes(*STATES))
    with pytest.raises(NodesError, match="of which none is idle now"):
        choose(["train:rack:max_avail"], 1, (), GROUPS, nodes("ALLOCATED", "IDLE+DRAIN"))
