"""A standalone system: the scripts, and the run of the tests one after another on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.cli import main
from tests.cloudai_toml import bash, bash_file, inline

SYSTEM = 'name = "s"\nscheduler = "standalone"\ninstall_path = "install"\noutput_path = "o"\n'
DOCKER = """#!/bin/bash
# Stands in for docker: notes its arguments, and runs what the container would run.
printf '%s\\n' "$@" >"$(dirname "$0")/arguments"
while [[ $1 != -c ]]; do shift; done
exec bash -c "$2"
"""
Write = Callable[..., list[str]]


@pytest.fixture
def files(tmp_path: Path) -> Write:
    def write(*tests: str, head: str = "") -> list[str]:
        (tmp_path / "system.toml").write_text(SYSTEM)
        (tmp_path / "scenario.toml").write_text('name = "n"\n' + head + "".join(tests))
        files = ["--system-config", str(tmp_path / "system.toml"), "--test-scenario", str(tmp_path / "scenario.toml")]
        return [*files, "--output-dir", str(tmp_path / "out")]

    return write


def folder_of(tmp_path: Path) -> Path:
    return next(path for path in (tmp_path / "out").iterdir() if path.is_dir())


def verdicts(folder: Path) -> dict[str, tuple[str, str]]:
    report = json.loads((folder / "report.json").read_text())
    return {test["id"]: (test["verdict"], test["cause"]) for test in report["scenario"]["tests"]}


def test_tests_run_in_order_with_hooks_time_limits_and_a_container(
    files: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "hook/test").mkdir(parents=True)
    (tmp_path / "hook/gate.toml").write_text('name = "gate"\n[[Tests]]\nid = "h"\ntest_name = "gate_test"\n')
    (tmp_path / "hook/test/gate.toml").write_text(bash_file("gate_test", "echo gate"))
    image = inline(
        "box", "SlurmContainer", 'docker_image_url = "reg.example#a/b:1", cmd = "echo in $WHO"',
        "extra_env_vars = {WHO = \"box\"}\nnsys = {nsys_binary = \"env\", task = \"A=1\"}",
    )  # fmt: skip
    options = files(
        bash("second", f"test -e {tmp_path}/first", "dependencies = [{type = 'start_post_comp', id = 'first'}]"),
        bash("first", f"touch {tmp_path}/first"),
        bash("endless", f"sleep 300 & echo $! >{tmp_path}/pid; wait", "time_limit = '1s'"),
        bash("broken", "echo no disk >&2; exit 3"),
        image,
        head='job_status_check = false\npre_test = "gate"\n',
    )
    assert main(["run", *options, "--hook-dir", str(tmp_path / "hook")]) == 1
    folder = folder_of(tmp_path)
    assert verdicts(folder) == {
        "second": ("pass", "the job ended well"),
        "first": ("pass", "the job ended well"),
        "endless": ("fail", "job: the test did not end within its time limit of 1 s; it was ended"),
        "broken": ("fail", "job: the job failed with exit code 3. Its last words: no disk"),
        "box": ("pass", "the job ended well"),
    }
    assert (folder / "box/0/stdout.txt").read_text() == "in box\n"
    assert (folder / "box/0/pre_test/gate_test/stdout.txt").read_text() == "gate\n"
    arguments = (tmp_path / "bin/arguments").read_text().splitlines()
    assert f"{folder}/box/0:/cloudai_run_results" in arguments
    assert arguments[-4:-1] == ["bash", "reg.example/a/b:1", "-c"]
    assert "[RESULT] FAILURE: endless/0: job: the test did not end" in capsys.readouterr().out
    until, left = time.monotonic() + 30, Path("/proc", (tmp_path / "pid").read_text().strip())
    while left.exists():  # until init has taken it
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_first_failure_skips_the_others_and_dry_run_writes_what_run_runs(
    files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = files(bash("a", "exit 1"), bash("b", f"touch {tmp_path}/ran"))
    assert main(["dry-run", *options]) == 0
    folder = folder_of(tmp_path)
    assert f"{folder}: 2 tests, not run. To run: {folder}/run.sh" in capsys.readouterr().out
    done = subprocess.run([folder / "run.sh"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{folder}/a/0 failed: see {folder}/a/0/stderr.txt\n")
    assert main(["generate-report", "--result-dir", str(folder)]) == 1
    assert verdicts(folder)["b"] == ("not run", "job: was not submitted")
    assert main(["run", "--resume", str(folder)]) == 1
    assert verdicts(folder)["b"] == ("skipped", "job: was cancelled because a/0 failed (job_status_check)")
    assert not (tmp_path / "ran").exists()


def test_a_signal_ends_the_test_and_resume_begins_it_anew(
    files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = files(bash("a", "true"), bash("b", f"[[ -e {tmp_path}/go ]] || sleep 300"))

    def interrupt() -> None:
        until = time.monotonic() + 30
        while not list((tmp_path / "out").glob("*/b/0/notes.txt")) and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(["run", *options]) == 130
    thread.join()
    assert "[RESULT] FAILURE: stopped by SIGTERM: the measurement is not finished" in capsys.readouterr().out
    folder = folder_of(tmp_path)
    (tmp_path / "go").touch()
    assert main(["run", "--resume", str(folder)]) == 0
    assert verdicts(folder)["b"] == ("pass", "the job ended well")
    assert capsys.readouterr().out.count("begins") == 1


@pytest.mark.parametrize(("more", "code"), [("", 130), ('time_limit = "1s"', 1)])
def test_a_test_that_run_sh_ended_did_not_pass(more: str, code: int, files: Write, tmp_path: Path) -> None:
    assert main(["dry-run", *files(bash("a", f"echo >{tmp_path}/began; exec sleep 300", more))]) == 0
    folder = folder_of(tmp_path)
    (folder / "a/0/notes.txt").write_text("1 start 1 x\n1 exit 0\n")  # of an earlier start
    with subprocess.Popen([folder / "run.sh"], start_new_session=True, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while not (tmp_path / "began").exists() and time.monotonic() < until:
            time.sleep(0.02)
        if not more:
            os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(30) == code
    assert (folder / "a/0/notes.txt").read_text().count(" start ") == 1
    assert main(["generate-report", "--result-dir", str(folder)]) == 1
    verdict, cause = verdicts(folder)["a"]
    assert (verdict, cause.partition(".")[0]) == ("fail", "job: the job failed with exit code 143")


def test_what_a_test_leaves_running_is_ended(files: Write, tmp_path: Path) -> None:
    """Also what does not obey SIGTERM: the next test has the machine."""
    left = f"trap '' TERM; echo $BASHPID >{tmp_path}/left; while sleep 0.1; do :; done"
    options = files(
        bash("a", f"({left}) </dev/null >/dev/null 2>&1 & while [[ ! -s {tmp_path}/left ]]; do sleep 0.02; done")
    )
    assert main(["run", *options]) == 0
    until = time.monotonic() + 5
    path = Path("/proc", (tmp_path / "left").read_text().strip(), "stat")
    while time.monotonic() < until and path.exists() and path.read_text().split()[2] != "Z":
        time.sleep(0.02)
    assert not path.exists() or path.read_text().split()[2] == "Z"


def test_the_whole_scenario_is_bounded(files: Write, tmp_path: Path) -> None:
    assert main(["run", *files(bash("a", "sleep 300"), head="job_status_check = false\n"), "--timeout", "1s"]) == 1
    words = "job: the test did not end before --timeout (1 s); it was ended"
    assert verdicts(folder_of(tmp_path))["a"] == ("fail", words)


REFUSED = [
    (bash("a", "true", "num_nodes = 2"), "asks for 2 nodes, and a standalone system is this machine alone"),
    (bash("a", "true", "nodes = ['gpu-1']"), "asks for gpu-1, and a standalone system is this machine alone"),
    (bash("a", "true", "nodes = ['p:g:1']"), "asks for p:g:1, and a standalone system is this machine alone"),
    (bash("a", "true", "extra_srun_args = '-x'"), "has extra_srun_args, and nothing is started through srun here"),
    (
        bash("a", "true") + bash("b", "true", "dependencies = [{type = 'end_post_comp', id = 'a'}]"),
        "end_post_comp needs two tests at the same time, and here one runs after another",
    ),
    (
        inline("a", "NeMoLauncher", ""),
        "NeMoLauncher is started through Slurm only",
    ),
    (
        inline("a", "SlurmContainer", 'docker_image_url = "/x.sqsh", cmd = "true"'),
        "docker does not run the file /x.sqsh: name the image's address in a registry",
    ),
]


@pytest.mark.parametrize(("tests", "words"), REFUSED)
def test_what_one_machine_cannot_do(
    tests: str, words: str, files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dry-run", *files(tests)]) == 2
    assert f": {words}. Hint: correct the test\n" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_wait_needs_a_scheduler(files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *files(bash("a", "true")), "--no-wait"]) == 2
    run = folder_of(tmp_path) / "run.sh"
    words = f"--no-wait: needs a scheduler that goes on; the system is standalone. Hint: bash {run} &"
    assert capsys.readouterr().err == f"acceptance: {words}\n"
