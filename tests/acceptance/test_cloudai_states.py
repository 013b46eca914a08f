"""Each end of a scenario's job, from what scontrol and sacct print: without Slurm.

The line is what `scontrol show job --oneliner` of Slurm 22.05 printed, shortened; states and exit codes that a test machine cannot bring about
are those of job_state_string (src/common/slurm_protocol_defs.c) and of the job's end in src/slurmctld/job_mgr.c.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.cloudai import run as module
from acceptance.cloudai.report import scenario_report
from acceptance.cloudai.run import ScenarioRun
from acceptance.cloudai.stored import FILE, StoredJob, StoredPlan, StoredTest
from acceptance.errors import ExternalError
from acceptance.runner import slurm
from acceptance.runner.stop import Stop

LINE = (
    "JobId={id} JobName=a_2026 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901757 Nice=0 Account=(null)"
    " QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=0 Restarts={restarts} BatchFlag=1 Reboot=0"
    " ExitCode={code} RunTime=00:00:05 TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=2026-11-29T10:06:00"
    " StartTime=2026-11-29T10:06:01 EndTime=2026-11-29T10:06:06 Deadline=N/A Partition=train NodeList={nodes}"
    " BatchHost=gpu-1 NumNodes=1 Command=/x"
)
SACCT = "{state}|{code}|gpu-1|2026-11-29T10:06:01|2026-11-29T10:06:06\n"


def job(number: int, needs: str = "-", ends: tuple[str, ...] = (), *, ends_all: bool = False) -> StoredJob:
    name = f"t{number}"
    return StoredJob(
        number, name, f"{name}/0", 0, 0, 1, (), 1, needs, ends, ends_all, False, None, "true", {}, {}, {}, {}, ()
    )


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Path, ScenarioRun, list[str]]]:
    """A folder whose jobs 1, 2 ... were submitted; Slurm's commands answer with the texts given, and are noted."""

    def make(answers: dict[str, str], *jobs: StoredJob) -> tuple[Path, ScenarioRun, list[str]]:
        tests = tuple(StoredTest(one.test, one.test, "BashCmd", "", ()) for one in jobs)
        (tmp_path / FILE).write_text(StoredPlan("s", "sys", "train", 1, tests, jobs, ()).text())
        for one in jobs:
            (tmp_path / one.path).mkdir(parents=True, exist_ok=True)
        (tmp_path / "jobs.tsv").write_text("".join(f"{one.test}\t0\t0\t{one.number}\n" for one in jobs))
        (tmp_path / "released").touch()
        calls: list[str] = []

        def call(_: object, argv: list[str]) -> str:
            calls.append(" ".join(argv))
            if argv[:3] == ["scontrol", "show", "hostnames"]:
                return f"{argv[3]}\n"
            for start, text in answers.items():
                if calls[-1].startswith(start):
                    if text.startswith("error: "):
                        raise ExternalError(text)
                    return text
            return ""

        monkeypatch.setattr(slurm.Slurm, "call", call)
        monkeypatch.setattr(module, "_POLL_S", (0.01, 0.01))
        return tmp_path, ScenarioRun(tmp_path, Stop(), calls.append, stuck_s=0), calls

    return make


def line(number: int, state: str, code: str = "0:0", reason: str = "None", restarts: int = 0, nodes: str = "") -> str:
    return LINE.format(
        id=number, state=state, code=code, reason=reason, restarts=restarts, nodes=nodes or "(null)"
    ) + "\n"  # fmt: skip


ENDS = [
    ("COMPLETED", "0:0", "None", "pass", "the job ended well"),
    ("FAILED", "3:0", "NonZeroExitCode", "fail", "the job failed with exit code 3"),
    ("FAILED", "0:9", "NonZeroExitCode", "fail", "the job failed with exit code 0, signal 9"),
    ("TIMEOUT", "0:0", "TimeLimit", "fail", "the job reached Slurm's time limit"),
    ("CANCELLED", "0:15", "None", "fail", "someone cancelled the job"),
    ("NODE_FAIL", "0:0", "NodeDown", "fail", "a node of the job failed"),
    ("OUT_OF_MEMORY", "0:125", "OutOfMemory", "fail", "the job ran out of memory"),
    ("PREEMPTED", "0:15", "None", "fail", "another job took the nodes away"),
    ("DEADLINE", "0:0", "DeadLine", "fail", "the job reached its deadline"),
    ("BOOT_FAIL", "0:0", "BootFailure", "fail", "a node of the job did not boot"),
    ("REVOKED", "0:0", "None", "fail", "the job was revoked"),
]
CODES = {"COMPLETED": "accepted", "CANCELLED": "error", "DEADLINE": "error", "REVOKED": "error"}


@pytest.mark.parametrize("by", ["scontrol", "sacct"])
@pytest.mark.parametrize(("state", "code", "reason", "verdict", "words"), ENDS)
def test_each_end_is_an_end_and_has_its_words(
    by: str, state: str, code: str, reason: str, verdict: str, words: str,
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:  # fmt: skip
    """sacct answers for a job that slurmctld has forgotten."""
    answers = {"scontrol show jobs": line(1, state, code, reason, nodes="gpu-1")}
    if by == "sacct":
        shown = "CANCELLED by 0" if state == "CANCELLED" else state
        answers = {
            "scontrol show job 1": "error: scontrol: exit 1: slurm_load_jobs error: Invalid job id specified",
            "scontrol show jobs": "No jobs in the system",
            "sacct": SACCT.format(state=shown, code=code),
        }
    folder, run, _ = scenario(answers, job(1))
    (folder / "t1/0/notes.txt").write_text("100 start 1 gpu-1\n101 begin test\n")
    run.run(5, wait=True)
    report = scenario_report(folder)
    assert report.scenario is not None
    (shown_job,) = report.scenario.jobs
    assert (shown_job.state, report.tests[0].verdict) == (state, verdict)
    assert report.tests[0].checks[-1].message == words
    assert report.verdict == CODES.get(state, "not accepted")


def test_a_failed_gpu_suite_names_what_its_report_says(
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:
    answers = {"scontrol show jobs": line(1, "FAILED", "1:0", "NonZeroExitCode", nodes="gpu-1")}
    folder, run, _ = scenario(answers, job(1))
    (folder / FILE).write_text((folder / FILE).read_text().replace("BashCmd", "GpuTest"))
    (folder / "t1/0/notes.txt").write_text("100 start 1 gpu-1\n101 begin test\n")
    (folder / "t1/0/reports/gpu-1").mkdir(parents=True)
    report = {"result": "FAILURE", "failures": ["compute: GPU 3: 1 wrong element"]}
    (folder / "t1/0/reports/gpu-1/gpu_tests_result.json").write_text(json.dumps(report))
    run.run(5, wait=True)
    (shown,) = scenario_report(folder).tests
    assert [check.message for check in shown.checks if check.outcome == "fail"] == [
        "the job failed with exit code 1",
        "gpu-1: compute: GPU 3: 1 wrong element",
    ]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_that_slurmctld_forgot_and_the_accounting_keeps_open(
    state: str, scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]]
) -> None:
    """A runaway job: slurmdbd was away when it ended. Its own notes say how; without notes it is lost."""
    answers = {
        "scontrol show job ": "error: scontrol: exit 1: slurm_load_jobs error: Invalid job id specified",
        "sacct": SACCT.format(state=state, code="0:0"),
    }
    folder, run, _ = scenario(answers, job(1), job(2))
    (folder / "t1/0/notes.txt").write_text("100 start 1 gpu-1\n101 begin test\n102 end 0\n103 exit 0\n")
    run.run(5, wait=True)
    report = scenario_report(folder)
    assert [test.verdict for test in report.tests] == ["pass", "fail"]
    assert report.tests[1].checks[-1].message.startswith("Slurm no longer knows the job (last state UNKNOWN)")
    assert report.verdict == "error"


def test_without_accounting_the_notes_of_the_job_count(
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:
    answers = {
        "scontrol show job ": "error: scontrol: exit 1: slurm_load_jobs error: Invalid job id specified",
        "sacct": "error: sacct: exit 1: Slurm accounting storage is disabled",
    }
    folder, run, _ = scenario(answers, job(1))
    (folder / "t1/0/notes.txt").write_text("100 start 1 gpu-1\n101 begin test\n102 end 3\n103 exit 3\n")
    run.run(5, wait=True)
    report = scenario_report(folder)
    assert report.tests[0].checks[-1].message == "the job failed with exit code 3"


def test_a_dependency_that_cannot_come_true_ends_as_skipped_with_its_cause(
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:
    answers = {
        "scontrol show jobs": line(1, "FAILED", "1:0", nodes="gpu-1")
        + line(2, "PENDING", reason="DependencyNeverSatisfied")
    }
    folder, run, calls = scenario(answers, job(1), job(2, "afterany:1"))
    run.run(5, wait=True)
    assert "scancel 2" in calls
    check = scenario_report(folder).tests[1].checks[-1]
    words = "the job waited for t1/0, and can never begin (Slurm's reason: DependencyNeverSatisfied); it was cancelled"
    assert (check.outcome, check.message) == ("skipped", words)


STUCK = [
    ("REQUEUE_HOLD", "None"),
    ("SPECIAL_EXIT", "None"),
    ("RESV_DEL_HOLD", "None"),
    ("PENDING", "ReqNodeNotAvail,"),
    ("PENDING", "PartitionDown"),
    ("PENDING", "JobHeldAdmin"),
    ("PENDING", "launch_failed_requeued_held"),
    ("PENDING", "BadConstraints"),
]


@pytest.mark.parametrize(("state", "reason"), STUCK)
def test_a_job_that_waits_for_what_does_not_come_is_cancelled(
    state: str, reason: str, scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]]
) -> None:
    folder, run, calls = scenario({"scontrol show jobs": line(1, state, reason=reason)}, job(1))
    run.run(5, wait=True)
    assert "scancel 1" in calls
    why = reason if state == "PENDING" else state
    message = scenario_report(folder).tests[0].checks[-1].message
    assert message.startswith(f"the job waited 0 s in the queue (Slurm's reason: {why}); it was cancelled")


def test_a_requeued_job_is_followed_to_its_second_end_and_the_report_warns(
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:
    answers = {"scontrol show jobs": line(1, "REQUEUED", restarts=1)}
    folder, run, _ = scenario(answers, job(1))
    (folder / "t1/0/notes.txt").write_text(
        "100 start 1 gpu-1\n200 start 1 gpu-2\n201 begin test\n202 end 0\n203 exit 0\n"
    )
    run._stop.sleep = lambda _: answers.update(  # type: ignore[method-assign]
        {"scontrol show jobs": line(1, "COMPLETED", restarts=1, nodes="gpu-2")}
    )
    run.run(5, wait=True)
    checks = [(check.name, check.outcome, check.message) for check in scenario_report(folder).tests[0].checks]
    assert checks[0] == ("requeued", "warn", "began 2 times: Slurm put it back into the queue")
    assert json.loads((folder / "run.json").read_text())["tests"][0]["outcome"]["nodes"] == ["gpu-2"]


def test_a_node_on_which_nothing_was_measured_is_not_good(
    scenario: Callable[..., tuple[Path, ScenarioRun, list[str]]],
) -> None:
    """And the heading counts the nodes that took part, not those of the largest job."""
    answers = {"scontrol show jobs": line(1, "COMPLETED", nodes="gpu-1") + line(2, "COMPLETED", nodes="gpu-2")}
    folder, run, _ = scenario(answers, job(1), job(2))
    run.run(5, wait=True)
    report = scenario_report(folder)
    assert report.nodes_expected == 2
    assert {(node.name, node.verdict, node.evidence) for node in report.nodes} == {
        ("gpu-1", "not measured", "t1/0 passed on it, and measured nothing"),
        ("gpu-2", "not measured", "t2/0 passed on it, and measured nothing"),
    }


def test_the_jobs_that_a_job_ends_are_cancelled_from_the_last_one(tmp_path: Path) -> None:
    """One that waits for the end of another one would begin when that one is cancelled first."""
    script = Path(module.__file__).with_name("end-jobs.sh")
    (tmp_path / "end-jobs.sh").write_bytes(script.read_bytes())
    (tmp_path / "jobs.tsv").write_text("a\t0\t0\t7\nb\t0\t0\t8\na\t1\t0\t9\n")
    (tmp_path / "scancel").write_text(f'#!/bin/bash\necho "$*" >>{tmp_path}/cancelled\n')
    (tmp_path / "scancel").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "8"}
    for words in ("--all", "a", "c"):
        subprocess.run(["bash", str(tmp_path / "end-jobs.sh"), words], env=environment, check=True, timeout=30)
    assert (tmp_path / "cancelled").read_text() == "9 7\n9 7\n"
