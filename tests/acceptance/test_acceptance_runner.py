"""What happens to a run while it runs: killed and resumed, a restarted slurmctld, a node that dies; and `locate`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import REPOSITORY, Finished, LoopbackSlurm, loopback_slurm, make_programs, make_scenario

pytestmark = pytest.mark.hosts
Run = Callable[..., Finished]
SLOW_3 = 'for node in "${nodes[@]}"; do [[ $node != gpu-3 ]] || algbw=5; done'


def until(true: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def command(slurm: LoopbackSlurm, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "acceptance", *words]
    return subprocess.run(argv, cwd=REPOSITORY, env=slurm.env, capture_output=True, text=True, timeout=240, check=False)


def finished(done: subprocess.CompletedProcess[str], runs: Path) -> Finished:
    directory = max(path for path in runs.iterdir() if path.is_dir())
    report = json.loads((directory / "report.json").read_text())
    return Finished(done.returncode, done.stdout, done.stderr, report, directory)


def last_line(done: Finished) -> str:
    return done.out.rstrip().splitlines()[-1]


@contextmanager
def running(slurm: LoopbackSlurm, scenario: dict[str, Any], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`acceptance run` in the background, ended with the block; its runs are in folder/runs."""
    slurm.wait_idle()
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(path), "--output", str(folder / "runs")]
    runner = subprocess.Popen(argv, cwd=REPOSITORY, env=slurm.env, stdout=subprocess.PIPE, text=True)
    try:
        yield runner
    finally:
        runner.kill()
        runner.communicate(timeout=60)


def jobs(slurm: LoopbackSlurm, state: str = "all") -> dict[str, str]:
    """Job id -> its name."""
    listed = slurm.call("squeue", "--noheader", f"--states={state}", "--format=%A %j").split("\n")
    return dict(line.split(" ", 1) for line in listed if line)


def of_run(slurm: LoopbackSlurm, folder: Path, state: str = "all") -> list[str]:
    """The names of the jobs of the run in folder/runs, without the run's id."""
    runs = [path.name for path in (folder / "runs").glob("*-train*")] if (folder / "runs").exists() else []
    return [name.replace(f"-{runs[0]}", "") for name in jobs(slurm, state).values() if runs and runs[0] in name]


def run_record(folder: Path) -> dict[str, Any]:
    path = next((folder / "runs").glob("*/run.json"), None)
    value: dict[str, Any] = json.loads(path.read_text()) if path else {}
    return value


def resume(slurm: LoopbackSlurm, folder: Path) -> Finished:
    directory = next((folder / "runs").glob("*-train*"))
    return finished(command(slurm, "run", "--resume", str(directory)), folder / "runs")


def gated(folder: Path) -> tuple[dict[str, Any], Path]:
    """A scenario whose programs wait for a file, and the file."""
    go = folder / "go"
    programs = make_programs(folder / "build", f"until [[ -e '{go}' ]]; do sleep 0.5; done")
    return make_scenario(nccl_tests_paths=programs), go


def test_killed_runner_goes_on_with_the_job_it_had(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    scenario, go = gated(tmp_path)
    with running(slurm, scenario, tmp_path) as runner:
        until(lambda: of_run(slurm, tmp_path, "R") and run_record(tmp_path)["tests"][0]["job_id"])
        second = command(slurm, "run", "--resume", str(next((tmp_path / "runs").glob("*-train*"))))
        assert second.returncode == 3
        assert "another runner works in it" in second.stdout
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
    go.touch()
    done = resume(slurm, tmp_path)
    assert (done.code, last_line(done)) == (0, "[RESULT] SUCCESS"), done.out
    assert "going on with job" in done.out
    assert of_run(slurm, tmp_path) == ["acceptance-all_reduce"]
    again = resume(slurm, tmp_path)
    assert (again.code, again.report["tests"]) == (0, done.report["tests"])
    assert of_run(slurm, tmp_path) == ["acceptance-all_reduce"]


def test_killed_before_it_noted_its_job(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    """The moment between sbatch and the note: the job is found by its name."""
    scenario, go = gated(tmp_path)
    with running(slurm, scenario, tmp_path) as runner:
        until(lambda: of_run(slurm, tmp_path, "R") and run_record(tmp_path)["tests"][0]["job_id"])
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
    path = next((tmp_path / "runs").glob("*/run.json"))
    record = json.loads(path.read_text())
    record["tests"][0]["job_id"] = None
    path.write_text(json.dumps(record))
    go.touch()
    done = resume(slurm, tmp_path)
    assert done.code == 0, done.out
    assert of_run(slurm, tmp_path) == ["acceptance-all_reduce"]


def test_killed_in_the_search_goes_on_after_the_last_round(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", SLOW_3))
    with running(slurm, scenario, tmp_path) as runner:
        until(lambda: (run_record(tmp_path).get("locate") or {}).get("results"))
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
    before = run_record(tmp_path)["locate"]["results"]
    done = resume(slurm, tmp_path)
    assert done.code == 1, done.out
    assert {node["name"]: node["verdict"] for node in done.report["nodes"]}["gpu-3"] == "slow"
    assert run_record(tmp_path)["locate"]["results"][: len(before)] == before
    assert of_run(slurm, tmp_path).count("acceptance-all_reduce") == 1
    until(lambda: not of_run(slurm, tmp_path, "R"))


def test_the_search_is_one_job_however_many_rounds_it_takes(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", SLOW_3))
    slurm.wait_idle()
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    words = ["run", "--scenario", str(tmp_path / "scenario.json"), "--output", str(tmp_path / "runs")]
    done = finished(command(slurm, *words), tmp_path / "runs")
    assert sorted(of_run(slurm, tmp_path)) == ["acceptance-all_reduce", "acceptance-locate"]
    assert max(one["round"] for one in run_record(tmp_path)["locate"]["results"]) >= 3
    assert not of_run(slurm, tmp_path, "R")
    assert done.code == 1


def test_slurmctld_that_is_started_anew_is_survived(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    started = tmp_path / "started"
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", f"touch '{started}'\nsleep 3"))
    with running(slurm, scenario, tmp_path) as runner:
        until(started.exists)
        slurm.kill("slurmctld", signal.SIGTERM)
        time.sleep(1)
        slurm.start_controller()
        out, _ = runner.communicate(timeout=120)
    assert runner.returncode == 0, out
    assert out.rstrip().endswith("[RESULT] SUCCESS")


def test_node_that_dies_under_the_job_is_named(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    started = tmp_path / "started"
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", f"touch '{started}'\nsleep 60"))
    try:
        with running(slurm, scenario, tmp_path) as runner:
            until(started.exists)
            until(lambda: slurm.call("squeue", "--steps", "--noheader", "--nodelist=gpu-2", "--format=%i"))
            slurm.kill("slurmd-gpu-2")
            slurm.call("scontrol", "update", "nodename=gpu-2", "state=down", "reason=does not answer")
            out, _ = runner.communicate(timeout=120)
    finally:
        slurm.start_node(2)  # which makes it usable again (ReturnToService=2)
    done = finished(subprocess.CompletedProcess([], runner.returncode, out, ""), tmp_path / "runs")
    assert done.code == 1, out
    assert "a node of the job failed" in out
    node = next(one for one in done.report["nodes"] if one["name"] == "gpu-2")
    assert node["verdict"] == "infrastructure"
    assert node["evidence"].startswith("down")
    assert node["evidence"].endswith("in Slurm: does not answer")
    slurm.wait_idle()


def test_container_without_pyxis_is_said(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    scenario = make_scenario(container={"image": "/fsx/containers/x.sqsh", "mounts": ["/fsx:/fsx"]})
    slurm.wait_idle()
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    words = ["run", "--scenario", str(tmp_path / "scenario.json"), "--output", str(tmp_path / "runs")]
    done = finished(command(slurm, *words), tmp_path / "runs")
    assert done.code == 3
    assert "pyxis" in last_line(done)
    assert "has no --container-image" in (done.directory / "all_reduce.out").read_text()
    script = (done.directory / "all_reduce.sbatch").read_text()
    mounts = f"--container-mounts=/fsx:/fsx,{done.directory}:{done.directory}"
    assert f"--container-image=/fsx/containers/x.sqsh {mounts}\n" in script


FINDER = REPOSITORY / "acceptance/runner/run-nccl-tests.sh"


@pytest.mark.parametrize(
    ("host_root", "directories", "code", "said"),
    [
        ("1:2", ["DIR"], 0, "-b 8"),
        ("1:2", ["/nowhere", "/neither"], 127, "looked in: /nowhere /neither and the PATH"),
        ("same", ["DIR"], 125, "the container option was ignored on"),
    ],
)
def test_program_is_found_inside_a_container(
    tmp_path: Path, host_root: str, directories: list[str], code: int, said: str
) -> None:
    program = tmp_path / "some_perf"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    root = Path("/").stat()
    host_root = f"{root.st_dev}:{root.st_ino}" if host_root == "same" else host_root
    where = [str(tmp_path) if one == "DIR" else one for one in directories]
    argv = ["bash", str(FINDER), "some_perf", host_root, *where, "--", "-b", "8"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert said in done.stdout
    quiet = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "SLURM_PROCID": "1"}
    )
    assert (quiet.returncode, quiet.stdout) == (code, done.stdout if code == 0 else "")


def test_the_program_that_joins_ranks_is_preferred_and_one_without_its_libraries_is_passed_over(tmp_path: Path) -> None:
    """NGC's images have all_reduce_perf and all_reduce_perf_mpi; programs of the host may lack libraries in an image."""
    folders = {name: tmp_path / name for name in ("host", "image", "tools")}
    for folder in folders.values():
        folder.mkdir()
    for path in (folders["host"] / "some_perf", folders["image"] / "some_perf", folders["image"] / "some_perf_mpi"):
        path.write_text(f"#!/bin/sh\necho {path.name}\n")
        path.chmod(0o755)
    ldd = folders["tools"] / "ldd"
    ldd.write_text('#!/bin/sh\ncase $1 in *host*) printf "\\tlibmpi.so.40 => not found\\n" ;; esac\n')
    ldd.chmod(0o755)
    env = {**os.environ, "PATH": f"{folders['tools']}:{os.environ['PATH']}"}

    def run(*places: str) -> str:
        argv = ["bash", str(FINDER), "some_perf", "1:2", *places, "--"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env).stdout

    host, image = str(folders["host"]), str(folders["image"])
    assert run(host, image) == "some_perf_mpi\n"
    assert f"{host}/some_perf lacks libmpi.so.40" in run(host)


# ------------------------------------------------------------------------------------------------- acceptance locate


def search(slurm: LoopbackSlurm, folder: Path, scenario: dict[str, Any], *options: str) -> Finished:
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    words = ["locate", "--scenario", str(path), "--output", str(folder / "runs"), *options]
    done = command(slurm, *words)
    return finished(done, folder / "runs")


def test_locate_of_good_nodes(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    slurm.wait_idle()
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", ""))
    done = search(slurm, tmp_path, scenario, "--collective", "alltoall", "--nodes", "gpu-[1-3]")
    assert (done.code, last_line(done)) == (0, "[RESULT] SUCCESS"), done.out + done.err
    assert (done.report["purpose"], done.report["tests"]) == ("locate", [])
    assert {node["name"]: node["verdict"] for node in done.report["nodes"]} == {f"gpu-{i}": "good" for i in (1, 2, 3)}
    assert {pair["collective"] for pair in done.report["locate"]["pairs"]} == {"alltoall"}


def test_locate_drains_only_when_told_and_never_twice(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    slurm.wait_idle()
    scenario = make_scenario(nccl_tests_paths=make_programs(tmp_path / "build", SLOW_3))
    try:
        done = search(slurm, tmp_path, scenario)
        assert done.code == 1, done.out
        assert last_line(done).startswith("[RESULT] FAILURE: ")
        assert "gpu-3" in last_line(done)
        assert "drain" not in slurm.call("sinfo", "-h", "-N", "-o", "%T")
        resumed = finished(
            command(slurm, "run", "--resume", str(done.directory), "--drain", "--json"), tmp_path / "runs"
        )
        assert json.loads(resumed.out)["nodes"] == done.report["nodes"]
        assert "gpu-3: drained: ParallelCluster replaces its instance once its jobs have ended" in resumed.err
        assert "when it is repaired: scontrol update nodename=gpu-3 state=resume" in resumed.err
        reason = slurm.call("scontrol", "show", "node", "gpu-3")
        assert f"Reason=acceptance {done.directory.name}: slow: " in reason
        assert slurm.call("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split() == ["gpu-3"]
        again = command(slurm, "run", "--resume", str(done.directory), "--drain")
        assert "gpu-3: not drained: it is drained already (acceptance" in again.stdout
    finally:
        slurm.call("scontrol", "update", "nodename=gpu-3", "state=resume")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--nodes", "gpu-1"], 2, "--nodes gpu-1: is one node; a pair needs two"),
        (["--partition", "no such"], 2, 'partition = "no such"'),
        (["--partition", "none"], 3, "partition none: Slurm knows no node of it"),
        (["--nodes", "gpu-[1-2],other-9"], 1, "3 nodes of partition train are needed, 2 can be used"),
    ],
)
def test_locate_refuses(slurm: LoopbackSlurm, tmp_path: Path, options: list[str], code: int, said: str) -> None:
    (tmp_path / "scenario.json").write_text(json.dumps(make_scenario()))
    words = ["locate", "--scenario", str(tmp_path / "scenario.json"), "--output", str(tmp_path / "runs"), *options]
    done = command(slurm, *words)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


TOPOLOGY = "\n".join(
    [
        *(f"SwitchName=leaf{i} Nodes=gpu-[{8 * i - 7}-{8 * i}]" for i in range(1, 9)),
        "SwitchName=spine Switches=leaf[1-8]",
    ]
)
BAD_OF_64 = """
for node in "${nodes[@]}"; do [[ $node != gpu-23 ]] || algbw=20; done
if [[ " ${nodes[*]} " == *" gpu-41 "* && " ${nodes[*]} " == *" gpu-42 "* ]]; then algbw=10; fi
"""


@pytest.mark.slow
def test_one_node_and_one_link_of_64(tmp_path: Path) -> None:
    def topology(cluster: LoopbackSlurm) -> None:
        (cluster.root / "etc/topology.conf").write_text(TOPOLOGY + "\n")

    scenario = make_scenario(nodes=64, gpus_per_node=1, nccl_tests_paths=make_programs(tmp_path / "build", BAD_OF_64))
    scenario["limits"] = []
    scenario["locate"] = {"factor": 0.94, "collectives": ["alltoall"]}
    with loopback_slurm(64, "TopologyPlugin=topology/tree", topology) as slurm:
        done = search(slurm, tmp_path, scenario)
    assert done.code == 1, done.out
    assert {node["name"] for node in done.report["nodes"] if node["verdict"] == "slow"} == {"gpu-23"}
    assert {node["verdict"] for node in done.report["nodes"]} == {"slow", "good"}
    (link,) = done.report["locate"]["links"]
    assert (sorted(link["nodes"]), link["verdict"]) == (["gpu-41", "gpu-42"], "slow")
    record = json.loads((done.directory / "run.json").read_text())["locate"]
    assert record["groups"]["gpu-9"] == "leaf2"
    assert len(record["results"]) <= 2 * 64 + 20 * 2


# --------------------------------------------------------------------------------------------------- with accounting


@pytest.mark.slow
def test_accounting_answers_for_a_job_that_slurm_has_forgotten(accounted: LoopbackSlurm, tmp_path: Path) -> None:
    scenario = make_scenario(nodes=2, nccl_tests_paths=make_programs(tmp_path / "build", "sleep 5"))
    scenario["limits"][0]["nodes"] = 2
    with running(accounted, scenario, tmp_path) as runner:
        until(lambda: of_run(accounted, tmp_path, "R") and run_record(tmp_path)["tests"][0]["job_id"])
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
    job = str(run_record(tmp_path)["tests"][0]["job_id"])
    until(lambda: job not in jobs(accounted))
    status = next((tmp_path / "runs").glob("*/all_reduce.status"))
    assert status.read_text() == "exit=0\n"
    status.unlink()
    done = resume(accounted, tmp_path)
    assert done.code == 0, done.out
    assert f"all_reduce: job {job} COMPLETED" in done.out
