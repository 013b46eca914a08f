"""`acceptance run` of CloudAI's scenarios on a real Slurm: few scenarios, each of which checks many things at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
from acceptance_runs import HERE, REPOSITORY, LoopbackSlurm

from acceptance.cli import main
from tests.cloudai_toml import SRUN, bash, bash_file, inline

pytestmark = pytest.mark.hosts

SYSTEM = """name = "loop"
scheduler = "slurm"
install_path = "install"
output_path = "results"
default_partition = "train"
mpi = "none"
ntasks_per_node = 2
extra_sbatch_args = ["--no-requeue"]
[[partitions]]
name = "train"
  [[partitions.groups]]
  name = "rack"
  nodes = ["gpu-[3-4]"]
"""
# A stand-in on the nodes with the long options of NcclTest.
PROGRAM = """#!/bin/bash
arguments=()
while (($#)); do
  case $1 in
    --minbytes) arguments+=(-b "$2") ;;
    --maxbytes) arguments+=(-e "$2") ;;
    --stepfactor) arguments+=(-f "$2") ;;
  esac
  shift 2
done
exec PROGRAM "${arguments[@]}"
"""
NCCL = """
[[Tests]]
id = "{id}"
name = "{id}"
description = "d"
test_template_name = "NcclTest"
{more}
  [Tests.cmd_args]
  docker_image_url = "a/b:1"
  subtest_name = "all_reduce_perf_mpi"
  minbytes = "1048576"
  maxbytes = {most}
  stepfactor = 2
"""


Files = Callable[..., list[str]]
Capture: TypeAlias = pytest.CaptureFixture[str]


def nccl(name: str, more: str = "", most: str = '"4194304"') -> str:
    return NCCL.format(id=name, more=more, most=most)


def needs(**kinds: str) -> str:
    tables = [f"{{type = '{kind}', id = '{other}'}}" for kind, other in kinds.items()]
    return f"dependencies = [{', '.join(tables)}]"


def writer(slurm: LoopbackSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Return what writes system and scenario and returns the options that name them. sbatch: further options of it."""
    slurm.wait_idle()
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("srun", SRUN),
        ("all_reduce_perf_mpi", PROGRAM.replace("PROGRAM", str(HERE / "program/all_reduce_perf"))),
    ):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])

    def write(*tests: str, head: str = "", sbatch: str = "") -> list[str]:
        (tmp_path / "system.toml").write_text(SYSTEM.replace('"--no-requeue"', f'"--no-requeue"{sbatch}'))
        (tmp_path / "scenario.toml").write_text(f'name = "loop"\n{head}' + "".join(tests))
        paths = ["--system-config", str(tmp_path / "system.toml"), "--test-scenario", str(tmp_path / "scenario.toml")]
        return [*paths, "--output-dir", str(tmp_path / "out"), "--history", str(tmp_path / "history.sqlite")]

    return write


@pytest.fixture
def files(slurm: LoopbackSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Write system and scenario of the loopback Slurm; return the options that name them."""
    return writer(slurm, tmp_path, monkeypatch)


@pytest.fixture
def accounted_files(accounted: LoopbackSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The same for the Slurm with slurmdbd."""
    return writer(accounted, tmp_path, monkeypatch)


def report_of(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    folder = next(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    report = json.loads((folder / "report.json").read_text())
    jsonschema.validate(report, json.loads((REPOSITORY / "acceptance/report/report.schema.json").read_text()))
    return report, folder


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {test["id"]: test["verdict"] for test in report["scenario"]["tests"]}


def test_dependencies_sweep_group_and_time_out(files: Files, tmp_path: Path, capfd: Capture) -> None:
    soon = "scontrol update jobid=$SLURM_JOB_ID endtime=now+1; sleep 300"
    options = files(
        nccl("ring", "num_nodes = 2\niterations = 2"),
        bash("noise", "sleep 300", needs(start_post_init="ring", end_post_comp="ring")),
        bash("broken", "echo no such disk >&2; exit 3", "nodes = ['gpu-4']"),
        bash("endless", soon, "nodes = ['gpu-4']\ntime_limit = '1m'"),
        nccl("grid", f"num_nodes = 2\n{needs(start_post_comp='ring')}", '["1048576", "4194304"]'),
        head="job_status_check = false\n",
    )
    code = main(["run", *options])
    out = capfd.readouterr().out
    report, folder = report_of(tmp_path)
    assert code == 1, out
    assert verdicts(report) == {
        "ring": "no limit",
        "noise": "pass",
        "broken": "fail",
        "endless": "fail",
        "grid": "no limit",
    }
    causes = {test["id"]: test["cause"] for test in report["scenario"]["tests"]}
    assert causes["noise"] == "was ended when ring/1 ended, as end_post_comp asks"
    assert causes["broken"] == "job: the job failed with exit code 3. Its last words: no such disk"
    assert "Slurm's time limit ended the job" in causes["endless"]
    jobs = {job["name"]: job for job in report["scenario"]["jobs"]}
    assert (
        jobs["ring/0"]["ended"] <= jobs["ring/1"]["started"] <= jobs["ring/1"]["ended"] <= jobs["grid/0/1"]["started"]
    )
    assert (jobs["noise/0"]["state"], jobs["endless/0"]["state"]) == ("CANCELLED", "TIMEOUT")
    assert jobs["ring/0"]["nodes"] == ["gpu-1", "gpu-2"]
    sweep = next(test["sweep"] for test in report["scenario"]["tests"] if test["id"] == "grid")
    assert [point["values"] for point in sweep["points"]] == [{"maxbytes": "1048576"}, {"maxbytes": "4194304"}]
    assert (sweep["best"], sweep["unit"]) == ("grid/0/1", "GB/s")
    assert out.splitlines()[-1].startswith("[RESULT] FAILURE: broken/0: job: the job failed with exit code 3")
    node = tomllib.loads((folder / "ring/0/metadata/node-gpu-2.toml").read_text())
    assert node["slurm"]["node_list"] == "gpu-[1-2]"
    job = tomllib.loads((folder / "broken/0/slurm-job.toml").read_text())
    assert (job["state"], job["exit_code"]) == ("FAILED", "3")
    assert [step["name"] for step in job["job_steps"]] == ["test"]
    suites = ElementTree.parse(folder / "junit.xml").getroot()  # noqa: S314 - written by the run above
    assert next(case.get("name") for case in suites.iterfind(".//testcase[failure]")) == "broken/0: job"
    assert main(["history", "--history", str(tmp_path / "history.sqlite")]) == 0
    assert f"{folder.name}/ring" in capfd.readouterr().out


def test_groups_take_the_nodes_that_are_free(
    files: Files, slurm: LoopbackSlurm, tmp_path: Path, capfd: Capture
) -> None:
    """gpu-3 is drained, so that max_avail of the group gpu-[3-4] is gpu-4 alone, and so is one node of it."""
    options = files(
        bash("all", "srun hostname", "nodes = ['train:rack:max_avail']"),
        bash("one", "hostname", f"nodes = ['train:rack:1']\n{needs(start_post_comp='all')}"),
    )
    slurm.call("scontrol", "update", "nodename=gpu-3", "state=drain", "reason=test")
    try:
        assert main(["run", *options]) == 0
        assert main(["run", *files(bash("two", "true", "nodes = ['train:rack:2']"))]) == 2
    finally:
        slurm.call("scontrol", "update", "nodename=gpu-3", "state=resume")
    assert "asks for 2 nodes of the group rack, which has 1 left" in capfd.readouterr().err
    report, _ = report_of(tmp_path)
    assert {job["test"]: job["nodes"] for job in report["scenario"]["jobs"]} == {"all": ["gpu-4"], "one": ["gpu-4"]}


def test_a_failed_gate_skips_the_test_and_ends_the_scenario(files: Files, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "hook/test").mkdir(parents=True)
    for name, cmd in (("gate", "echo bad cable >&2; exit 4"), ("tidy", "true")):
        (tmp_path / f"hook/{name}.toml").write_text(
            f'name = "{name}"\n[[Tests]]\nid = "h"\ntest_name = "{name}_test"\n'
        )
        (tmp_path / f"hook/test/{name}.toml").write_text(bash_file(f"{name}_test", cmd))
    options = files(
        bash("first", "touch ran"),
        bash("second", "true", needs(start_post_comp="first")),
        head='pre_test = "gate"\npost_test = "tidy"\n',
    )
    assert main(["run", *options, "--hook-dir", str(tmp_path / "hook")]) == 1
    report, folder = report_of(tmp_path)
    first, second = report["tests"]
    assert [(check["name"], check["outcome"]) for check in first["checks"]] == [
        ("pre_test gate_test", "fail"),
        ("test", "skipped"),
        ("post_test tidy_test", "skipped"),
    ]
    assert first["checks"][0]["message"] == "failed, so that the test did not run. Its last words: bad cable"
    assert second["checks"][0]["message"] == "was cancelled because first/0 failed (job_status_check)"
    suites = ElementTree.parse(folder / "junit.xml").getroot()  # noqa: S314 - written by the run above
    assert len(suites.findall(".//skipped")) == 4
    before = (folder / "report.json").read_text()
    assert main(["generate-report", "--result-dir", str(folder)]) == 1
    assert (folder / "report.json").read_text() == before


def test_a_lost_node_and_a_killed_watcher(files: Files, slurm: LoopbackSlurm, tmp_path: Path, capfd: Capture) -> None:
    options = files(
        bash("long", f"echo $PPID $$ >{tmp_path}/pids; sleep 300 & wait", "nodes = ['gpu-4']"),
        bash("noise", "sleep 300", needs(end_post_comp="long")),
        bash("short", "true"),
        head="job_status_check = false\n",
    )
    watcher = subprocess.Popen(
        [sys.executable, "-m", "acceptance", "run", *options], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 120
        assert watcher.stdout
        while "noise/0: job" not in (line := watcher.stdout.readline()):
            assert time.monotonic() < until, line
        # A loaded machine starts its steps late, and the file is empty for a moment.
        while not (tmp_path / "pids").exists() or "\n" not in (tmp_path / "pids").read_text():
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        watcher.send_signal(signal.SIGKILL)
        watcher.communicate()
    slurm.kill("slurmd-gpu-4")  # else it would end the script, which would end the other job
    slurm.call("scontrol", "update", "nodename=gpu-4", "state=down", "reason=lost")
    for pid in (tmp_path / "pids").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    try:
        folder = next(path for path in (tmp_path / "out").iterdir())
        assert main(["run", "--resume", str(folder)]) == 1
    finally:
        slurm.start_node(4)
        slurm.call("scontrol", "update", "nodename=gpu-4", "state=idle")
    out = capfd.readouterr().out
    report, _ = report_of(tmp_path)
    assert verdicts(report) == {"long": "fail", "noise": "pass", "short": "pass"}
    assert "long/0: its script could not end other jobs; ending noise" in out
    assert "job: a node of the job failed" in report["scenario"]["tests"][0]["cause"]
    assert {node["name"]: node["verdict"] for node in report["nodes"]}["gpu-4"] == "infrastructure"


def watched(options: list[str], line: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A started `acceptance run`, after it printed a line with this text."""
    argv = [sys.executable, "-m", "acceptance", "run", *options]
    watcher = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    until, lines = time.monotonic() + 120, [""]
    while line not in lines[-1]:
        assert watcher.stdout
        lines.append(watcher.stdout.readline())
        assert lines[-1], lines
        assert time.monotonic() < until, lines
    return watcher, lines


# As on a slow machine: it returns when Slurm had the time to begin what waited for the end of the cancelled job.
SCANCEL = """#!/bin/bash
PATH=${PATH#*:}
scancel "$@"
code=$?
for ((i = 0; i < 100; i++)); do
  [[ -n $(squeue --noheader --jobs="${*// /,}" 2>/dev/null) ]] || break
  sleep 0.1
done
sleep 1
exit "$code"
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_jobs_of_the_scenario_and_no_other(
    number: signal.Signals, files: Files, slurm: LoopbackSlurm, tmp_path: Path, capfd: Capture
) -> None:
    other = slurm.call("sbatch", "--parsable", "--output=/dev/null", "--nodelist=gpu-4", "--wrap=sleep 300").strip()
    options = files(bash("long", "sleep 300"), bash("after", "true", needs(start_post_comp="long")))
    (tmp_path / "bin/scancel").write_text(SCANCEL)
    (tmp_path / "bin/scancel").chmod(0o755)
    watcher, lines = watched(options, "long/0: job")
    try:
        watcher.send_signal(number)
        out, _ = watcher.communicate(timeout=120)
        left = slurm.call("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%i").split()
    finally:
        slurm.call("scancel", other)
    queue = slurm.call("squeue", "--states=all", "--sort=-i", "--format=%i %j %T %r %S %e %N").splitlines()
    seen = "\n".join([*lines, out, *queue[:4]])
    assert watcher.returncode == 130, seen
    stopped = f"stopped by {number.name}: the measurement is not finished"
    assert f"s  {stopped}: cancelling 2 jobs\n" in out, seen
    assert out.splitlines()[-1] == f"[RESULT] FAILURE: {stopped}", seen
    assert left == [other], seen
    report, folder = report_of(tmp_path)
    assert report["verdict"] == "error", seen
    assert not (folder / "after/0/notes.txt").exists(), f"it began when long was cancelled\n{seen}"
    code = main(["run", "--resume", str(folder)])  # the jobs were cancelled; nothing is submitted again
    seen += capfd.readouterr().out
    assert code == 3, seen
    report, _ = report_of(tmp_path)
    # The script of `long` notes that `after` ends with it (job_status_check), or is killed before it can.
    assert verdicts(report) in ({"long": "fail", "after": "fail"}, {"long": "fail", "after": "skipped"}), seen
    assert "someone cancelled the job" in report["scenario"]["tests"][0]["cause"], seen


def test_submitted_without_waiting_then_reported_resumed_and_timed_out(
    files: Files, slurm: LoopbackSlurm, tmp_path: Path, capfd: Capture
) -> None:
    options = files(
        bash("quick", "exit 4", "nodes = ['gpu-4']"),
        bash("long", "sleep 300", "nodes = ['gpu-3']"),
        bash("never", "true", needs(start_post_comp="long")),
        bash("after", "true", needs(start_post_comp="long")),
        head="job_status_check = false\n",
    )
    assert main(["run", *options, "--no-wait"]) == 0
    folder = next(path for path in (tmp_path / "out").iterdir())
    assert f"submitted; to watch and report: acceptance run --resume {folder}" in capfd.readouterr().out
    ids = {line.split("\t")[0]: line.split("\t")[3] for line in (folder / "jobs.tsv").read_text().splitlines()}
    until = time.monotonic() + 60
    while "FAILED" not in slurm.call("scontrol", "show", "job", ids["quick"]):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert main(["generate-report", "--result-dir", str(folder)]) == 1
    report, _ = report_of(tmp_path)
    assert report["scenario"]["tests"][1]["cause"].endswith("has not ended, as far as is known")
    slurm.call("scontrol", "update", f"jobid={ids['never']}", f"dependency=afterok:{ids['quick']}")
    while "DependencyNeverSatisfied" not in slurm.call("scontrol", "show", "job", ids["never"]):
        assert time.monotonic() < until
        time.sleep(0.2)
    (tmp_path / "bin/scancel").write_text(SCANCEL)
    (tmp_path / "bin/scancel").chmod(0o755)
    assert main(["run", "--resume", str(folder), "--timeout", "2s"]) == 1
    out = capfd.readouterr().out
    assert "--timeout: 2 s are over; cancelling 2 jobs\n" in out
    assert not (folder / "after/0/notes.txt").exists(), f"it began when long was cancelled\n{out}"
    report, _ = report_of(tmp_path)
    tests = {test["id"]: (test["verdict"], test["cause"]) for test in report["scenario"]["tests"]}
    assert tests["quick"] == ("fail", "job: the job failed with exit code 4")
    assert tests["long"] == ("fail", "job: the job did not end before --timeout (2 s); it was cancelled")
    assert tests["after"] == ("fail", f"{tests['long'][1]}; it ended before the test began")
    words = (
        "the job waited for long/0, and can never begin (Slurm's reason: DependencyNeverSatisfied); it was cancelled"
    )
    assert tests["never"] == ("skipped", f"job: {words}")
    assert slurm.call("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


# ------------------------------------------------------------------------------------------------------ many tests


CHAINS = 16


def chain(number: int, folder: Path) -> list[str]:
    """Six tests that hang together: each notes in the folder that it ran, and looks for those that it waited for."""
    own = [f"{name}{number}" for name in "abcdef"]
    a, b, c, d, e, f = own

    def cmd(name: str, *others: str) -> str:
        looks = "".join(f"[[ -e {folder}/{other} ]] || exit 9; " for other in others)
        return f"{looks}touch {folder}/{name}"

    return [
        bash(a, cmd(a)),
        bash(b, cmd(b, a), needs(start_post_comp=a)),
        bash(c, cmd(c), needs(start_post_init=b)),
        # Two of one type, and one of another type: all three hold.
        bash(d, cmd(d, a, b), needs_all(("start_post_comp", a), ("start_post_comp", b), ("start_post_init", c))),
        inline(e, "Sleep", "seconds = 0", needs(start_post_comp=d)),
        bash(f, f"[[ -e {folder}/{d} ]] || exit 9; exit 3" if number == 0 else cmd(f, d), needs(start_post_comp=e)),
    ]


def needs_all(*dependencies: tuple[str, str]) -> str:
    return f"dependencies = [{', '.join(f'{{type = {kind!r}, id = {other!r}}}' for kind, other in dependencies)}]"


@pytest.mark.slow
def test_a_hundred_tests_with_mixed_dependencies(files: Files, tmp_path: Path, capfd: Capture) -> None:
    tests = [test for number in range(CHAINS) for test in chain(number, tmp_path)]
    for number in range(4):  # they would sleep on: the last test of another chain ends them
        tests.append(bash(f"z{number}", "sleep 600", needs(start_post_init="a0", end_post_comp=f"f{number + 1}")))
    options = files(*tests, head="job_status_check = false\n", sbatch=', "--mem=100"')
    # Where each rank runs is another test's: a hundred times it would be more than half of the processor time.
    srun = SRUN.replace("arguments=()", "[[ $* != *mapping-stdout.txt* ]] || exit 0\narguments=()", 1)
    (tmp_path / "bin/srun").write_text(srun)
    assert main(["run", *options]) == 1  # f0 fails, and no other test hangs on it
    capfd.readouterr()
    report, _ = report_of(tmp_path)
    assert len(report["scenario"]["tests"]) == 100
    assert {name: verdict for name, verdict in verdicts(report).items() if verdict != "pass"} == {"f0": "fail"}
    causes = {test["id"]: test["cause"] for test in report["scenario"]["tests"]}
    assert causes["f0"] == "job: the job failed with exit code 3"
    assert causes["z2"] == "was ended when f3/0 ended, as end_post_comp asks"
    jobs = {job["test"]: job for job in report["scenario"]["jobs"]}
    for number in range(CHAINS):
        a, b, c, d, e, f = (jobs[f"{name}{number}"] for name in "abcdef")
        assert b["started"] <= c["started"] <= d["started"]
        for before, after in ((a, b), (a, d), (b, d), (d, e), (e, f)):
            assert before["ended"] <= after["started"], (number, before, after)


# --------------------------------------------------------------------------------------------------- with slurmdbd

ENDS = {
    "good": ("COMPLETED", "pass", "the job ended well"),
    "bad": ("FAILED", "fail", "job: the job failed with exit code 3"),
    "killed": ("CANCELLED", "fail", "job: someone cancelled the job"),
    "endless": ("TIMEOUT", "fail", "Slurm's time limit ended the job"),
    "lost": ("NODE_FAIL", "fail", "a node of the job failed"),
    "weak": ("PREEMPTED", "fail", "another job with a higher priority took the nodes"),
    "late": ("DEADLINE", "fail", "job: the job reached its deadline"),
}


@pytest.mark.slow
def test_each_end_that_slurmdbd_knows_is_read_through_sacct(
    accounted_files: Files, accounted: LoopbackSlurm, tmp_path: Path, capfd: Capture
) -> None:
    """OUT_OF_MEMORY, BOOT_FAIL and REVOKED need what a loopback Slurm has not: test_cloudai_states has these ends."""
    call = accounted.call
    options = accounted_files(
        bash("good", "true"),
        bash("bad", "exit 3"),
        bash("killed", "sleep 600", "nodes = ['gpu-1']"),
        bash("endless", "sleep 600", "nodes = ['gpu-2']\ntime_limit = '1m'"),
        bash("lost", "sleep 600", "nodes = ['gpu-4']"),
        bash("weak", "sleep 600", "nodes = ['gpu-3']"),
        bash("late", "true", "nodes = ['gpu-1']\ntime_limit = '1m'"),  # behind killed
        head="job_status_check = false\n",
    )
    assert main(["run", *options, "--no-wait"]) == 0
    folder = next(path for path in (tmp_path / "out").iterdir())
    ids = {line.split("\t")[0]: line.split("\t")[3] for line in (folder / "jobs.tsv").read_text().splitlines()}
    until = time.monotonic() + 120
    for name in ("killed", "endless", "lost", "weak"):  # until their scripts run
        while not (folder / name / "0/notes.txt").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
    call("scontrol", "update", f"jobid={ids['late']}", "deadline=now+1")
    call("scontrol", "update", f"jobid={ids['endless']}", "endtime=now+1")
    time.sleep(2.5)  # the deadline is over before the job can begin
    call("scancel", ids["killed"])
    urgent = ("--partition=urgent", "--nodelist=gpu-3", "--exclusive", "--output=/dev/null", "--wrap=true")
    call("sbatch", *urgent)
    call("scontrol", "update", "nodename=gpu-4", "state=down", "reason=lost")
    try:
        while call("squeue", "--noheader", "--states=all"):  # slurmctld has forgotten them all
            assert time.monotonic() < until, call("squeue", "--states=all")
            time.sleep(0.5)
    finally:
        call("scontrol", "update", "nodename=gpu-4", "state=idle")
    assert main(["run", "--resume", str(folder)]) == 1
    capfd.readouterr()
    report, _ = report_of(tmp_path)
    states = {job["test"]: job["state"] for job in report["scenario"]["jobs"]}
    assert {name: (states[name], verdict) for name, verdict in verdicts(report).items()} == {
        name: (state, verdict) for name, (state, verdict, _) in ENDS.items()
    }
    for test in report["scenario"]["tests"]:
        assert ENDS[test["id"]][2] in test["cause"]


# Stands in for the environment of NeMo's launcher: it submits a job that logs as NeMo does, and prints its id.
NEMO = r"""#!/bin/bash
for argument; do
  [[ $argument != base_results_dir=* ]] || results=${argument#*=}
  [[ $argument != training.trainer.num_nodes=* ]] || nodes=${argument#*=}
  [[ $argument != cluster.partition=* ]] || partition=${argument#*=}
done
mkdir -p "$results/run"
log=$results/run/log-nemo_%j.out
sbatch --nodes="$nodes" --partition="$partition" --output="$log" --wrap='echo "train_step_timing in s: [2.0, 4.0]"' CHANGE
"""


def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str = "") -> None:
    monkeypatch.chdir(tmp_path)
    repository = tmp_path / "install/NeMo-Framework-Launcher__599ecfcbbd64fd2de02f2cc093b1610d73854022"
    python = Path(f"{repository}-venv/bin/python")
    repository.mkdir(parents=True)
    python.parent.mkdir(parents=True)
    python.write_text(NEMO.replace("CHANGE", change))
    python.chmod(0o755)


MEGATRON = inline("megatron", "NeMoLauncher", "", "num_nodes = 2")


def test_nemos_launcher_submits_a_job_that_is_followed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    launcher(tmp_path, monkeypatch)
    assert main(["run", *files(MEGATRON)]) == 0, capfd.readouterr()
    report, folder = report_of(tmp_path)
    (test,) = report["scenario"]["tests"]
    assert test["verdict"] == "pass"
    assert list(folder.glob("megatron/0/run/log-nemo_*.out"))
    assert "step time, mean" in json.dumps(report)


def test_a_launcher_that_submits_nothing_is_named(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    launcher(tmp_path, monkeypatch, ">/dev/null")
    assert main(["run", *files(MEGATRON)]) == 3
    said = capfd.readouterr()
    assert "generated_command.sh: printed no job id. Hint: read stdout.txt next to it" in said.out + said.err
