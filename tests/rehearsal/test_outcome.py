"""What a rehearsal prints at its end, and what the engine knows of it, without a rehearsal."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rehearsal.engine import cdk, cpu, main
from rehearsal.engine.clustermgtd import PROTECTED_FAILURES
from rehearsal.engine.dynamic import NO_CAPACITY_PAUSE_S
from rehearsal.engine.local_cluster import STEP_TIMEOUT_S
from rehearsal.engine.outcome import Outcome, first_line, left_out, print_result
from rehearsal.engine.progress import Progress
from rehearsal.engine.run import POLL_INTERVAL_S
from rehearsal.engine.scale import site_values
from rehearsal.engine.specification import Specification
from rehearsal.engine.static import LOOP_S
from rehearsal.hosts.slurm import POWER
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]


def last_line(outcome: Outcome) -> str:
    console = Console(file=io.StringIO(), width=60)
    print_result(console, outcome)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no such node", "no such node"),
        (
            "head: slurmctld did not start (exit 1):\n\n  munge: status=200/CHDIR\nmore",
            "head: slurmctld did not start (exit 1): munge: status=200/CHDIR",
        ),
        ("nothing follows:", "nothing follows"),
        ("", "no reason was given"),
    ],
)
def test_a_result_never_ends_in_a_colon(text: str, line: str) -> None:
    assert first_line(text) == line


def test_the_result_of_a_slow_machine_accuses_no_node() -> None:
    outcome = Outcome(Path("/r"), faults=["demo-acceptance/Run: train-st-gpu-1 is suspect"])
    assert (last_line(outcome), outcome.exit_code) == (f"[RESULT] FAILURE: {outcome.faults[0]}", 1)
    outcome.starvation = cpu.starvation(0.31)
    assert last_line(outcome).startswith("[RESULT] FAILURE: this machine gave the rehearsal 0.3 CPUs, and it needs 2")
    assert outcome.exit_code == 3
    outcome.interrupted = True
    assert (last_line(outcome), outcome.exit_code) == ("[RESULT] FAILURE: interrupted", 130)


@pytest.mark.parametrize(
    ("fault", "on_purpose", "user_scenario", "kept"),
    [
        ("demo-acceptance/Run: disk/0: job: the job failed with exit code 3", False, True, True),
        ("demo-acceptance/Run: train-st-gpu-1 is suspect", False, False, False),
        ("gpu-1: not up after 300 s", False, True, False),
        ("gpu-1: not up after 300 s", True, False, True),
    ],
)
def test_a_slow_machine_hides_no_failure_of_a_user_s_own_test(
    fault: str, on_purpose: bool, user_scenario: bool, kept: bool
) -> None:
    assert cpu.keeps_its_name([fault], on_purpose, user_scenario) is kept


def test_a_fault_names_the_local_report() -> None:
    outcome = Outcome(
        Path("/r"), faults=["gpu-1 is slow; report: s3://demo-results/acceptance/r1/report.html", "s3://b/x"]
    )
    outcome.name_local_results()
    assert last_line(outcome) == "[RESULT] FAILURE: gpu-1 is slow; report: /r/acceptance/r1/report.html"
    assert outcome.faults[1] == "s3://b/x"


def test_nodes_that_are_not_rehearsed_are_reported() -> None:
    queue = load_settings(ROOT / "clusters/rehearsal.yaml").queues[0]
    queues = [
        queue.model_copy(update={"name": name, "max_count": count}) for name, count in (("big", 16), ("small", 8))
    ]
    nodes = "queue big: 8 of 16 nodes are rehearsed (--max-hosts 8)"
    assert left_out(queues, 8, "all-reduce") == [nodes]
    suite = "acceptance.scenario = full: the network is measured; the GPU suite and the storage test need real nodes"
    assert left_out(queues, 8, "full") == [suite, nodes]
    assert site_values(4)["suite"] is None


def test_cpus_are_counted_and_enough_of_them_is_no_starvation() -> None:
    assert 0.0 < cpu.available_cpus() <= cpu.WANTED_CPUS + 0.1
    assert cpu.starvation(cpu.LEAST_CPUS) == ""


@pytest.mark.parametrize(
    ("tail", "cause"),
    [
        (
            ["OSError: [Errno 30] Read-only file system: '/c/.cache'", "app.py: Subprocess exited with error 1"],
            "OSError: [Errno 30] Read-only file system: '/c/.cache'",
        ),
        (["Error: EACCES: permission denied, mkdir '/c'", "", "done"], "Error: EACCES: permission denied, mkdir '/c'"),
        (["app.py: Subprocess exited with error 1"], "app.py: Subprocess exited with error 1"),
        ([], "it printed nothing"),
    ],
)
def test_the_cause_of_a_failed_deployment_is_the_error_and_not_the_last_line(tail: list[str], cause: str) -> None:
    assert cdk._cause(tail) == cause


def test_a_silenced_progress_prints_nothing_more() -> None:
    file = io.StringIO()
    progress = Progress(Console(file=file))
    progress.update("host", "gpu-1", "running", "step 10")
    progress.silence()
    progress.update("host", "gpu-1", "failed", "a custom action failed (exit 137)")
    assert "step 10" in file.getvalue()
    assert "137" not in file.getvalue()


class Refused(io.StringIO):
    """A standard output that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


class SilentEngine:
    """An engine whose rehearsal is two lines of progress and a result."""

    def __init__(self, spec: Specification, code: int, console: Console) -> None:
        self._spec, self._code, self._console, self._progress = spec, code, console, Progress(console)

    def run(self) -> int:
        for step in ("step 10", "step 11"):
            self._progress.update("host", "gpu-1", "running", step)
        if self._spec.as_json:
            print("{}", flush=True)
        print_result(self._console, Outcome(Path("/r")))
        return self._code


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("code", "after_pipe", "after_full"), [(0, 141, 3), (1, 141, 3), (130, 130, 130)])
@pytest.mark.parametrize("full", [False, True])
def test_an_output_that_cannot_be_written_ends_nothing_and_is_the_exit_code(
    as_json: bool,
    code: int,
    after_pipe: int,
    after_full: int,
    full: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`| head` and `>/dev/full`: a thread that ended would leave its stack waiting; an interruption keeps its code."""
    spec = Specification(Path(), Path(), True, (), 0, 1, tmp_path, as_json, tmp_path, 0.0)
    monkeypatch.setattr(Specification, "from_json", lambda _: spec)
    monkeypatch.setattr(main, "load_settings", lambda _: None)
    monkeypatch.setattr(main.Lifeline, "watch", lambda _: None)
    monkeypatch.setattr(main, "Engine", lambda spec, _, __, console: SilentEngine(spec, code, console))
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Refused(errno.ENOSPC if full else errno.EPIPE))
    monkeypatch.setattr(sys, "stderr", errors)
    assert main.main("") == (after_full if full else after_pipe)
    assert ("cannot write: No space left on device\n" in errors.getvalue()) == (full and code != 130)


def test_every_stand_in_has_its_row_in_the_documentation() -> None:
    """The recipe "add a stand-in": the file, a row that names it and what it was compared with, a test."""
    root = Path(__file__).resolve().parents[2]
    rows = [line for line in (root / "docs/rehearsal.md").read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    standins = [path.name for path in (root / "rehearsal/standins").iterdir() if path.name[:2] != "__"]
    assert len(standins) > 5
    for name in standins:
        cells = [row.split("|")[1:-1] for row in rows if f"`{name}`" in row]
        assert cells, f"{name} has no row in docs/rehearsal.md"
        assert all(len(row) == 3 and row[0].strip() and row[2].strip() for row in cells), f"{name}: compared with what?"


def test_the_page_has_the_rehearsals_own_numbers() -> None:
    """The table `Other numbers than on AWS` of docs/rehearsal.md, row by row."""
    page = (ROOT / "docs/rehearsal.md").read_text(encoding="utf-8")
    table = page.split("### Other numbers than on AWS")[1].split("\n\n")[1]
    here = {line.split(" | ")[0][2:]: line.split(" | ")[2][:-2] for line in table.splitlines()[2:]}
    seconds = {
        "longest time of a node's step": STEP_TIMEOUT_S,
        "pause between two questions for the verdict": POLL_INTERVAL_S,
        "a node that is not up is given up after (ResumeTimeout)": POWER.resume_timeout_s,
        "a node that ended can start again after (SuspendTimeout)": POWER.suspend_timeout_s,
        "Slurm looks for work at most every (power_save_min_interval)": POWER.min_interval_s,
        "a node that got no instance is asked for again after (insufficient_capacity_timeout)": NO_CAPACITY_PAUSE_S,
        "clustermgtd looks at the nodes every (loop_time)": LOOP_S,
    }
    assert {what: here[what] for what in seconds} == {what: f"{number:g} s" for what, number in seconds.items()}
    failures = "failed set-ups until the queue's partition is INACTIVE (protected_failure_count)"
    assert here[failures] == str(PROTECTED_FAILURES)
