"""The whole of `acceptance run` against a real Slurm on loopback, with a test program instead of nccl-tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import HERE, NODES, REPOSITORY, Finished, LoopbackSlurm, make_scenario

from acceptance.nccl import parse_bytes

pytestmark = pytest.mark.hosts
Accept = Callable[..., Finished]


def verdicts(finished: Finished) -> dict[str, str]:
    return {node["name"]: node["verdict"] for node in finished.report["nodes"]}


def last_line(finished: Finished) -> str:
    return finished.out.rstrip().splitlines()[-1]


def with_test(**changes: Any) -> dict[str, Any]:
    scenario = make_scenario()
    scenario["tests"][0].update(changes)
    return scenario


def test_where_rank_0_of_the_gpu_suite_is(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    """With a host file srun sorts the node list that it sets: its first node is not that of rank 0."""
    slurm.wait_idle()
    hosts = tmp_path / "hosts"
    hosts.write_text("gpu-3\ngpu-1\ngpu-3\n")
    program = "import os; from gpusuite.launch import find_rank; print(find_rank(os.environ).address)"
    nodes = ["--nodes=2", "--nodelist=gpu-[1,3]"]
    for options, more, host in (([], {"SLURM_HOSTFILE": str(hosts)}, "gpu-3"), (nodes, {}, "gpu-1")):
        done = subprocess.run(
            ["srun", "--ntasks=3", *options, sys.executable, "-c", program],
            env={**slurm.env, **more, "PYTHONPATH": str(REPOSITORY)},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.split() == [host] * 3, done.stderr


def test_accepted(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_NCCL": "Using network Socket"}))
    assert done.code == 0, done.out + done.err
    assert last_line(done) == "[RESULT] SUCCESS"
    assert done.report["verdict"] == "accepted"
    assert done.report["tests"][0]["rows"][-1]["measured_busbw_gb_per_s"] == 87.5
    assert set(verdicts(done).values()) == {"good"}
    assert len(done.out.splitlines()) < 60
    for name in ("report.json", "junit.xml", "report.html", "scenario.json", "all_reduce.sbatch", "all_reduce.out"):
        assert (done.directory / name).stat().st_size > 0
    written = (done.directory / "all_reduce.json").read_text()
    assert '"env":[]' in written
    assert "SECRET" not in written
    assert parse_bytes(written.encode()).complete
    assert (done.directory / "all_reduce.nccl").read_text().count("NCCL INFO") == NODES * 2  # each process in its file
    assert "NCCL INFO" not in (done.directory / "all_reduce.out").read_text()
    assert done.report["tests"][0]["network"]["networks"] == ["Socket"]
    left = {path.name for path in done.directory.iterdir() if path.suffix in (".debug",) or ".raw." in path.name}
    assert not left
    suites = ElementTree.parse(done.directory / "junit.xml").getroot()  # noqa: S314 - written by the run above
    assert suites.find(".//failure") is None


def test_script_can_be_submitted_again_by_hand(accept: Accept, slurm: LoopbackSlurm) -> None:
    done = accept(make_scenario())
    command = next(entry["command"] for entry in done.report["commands"] if entry["what"] == "all_reduce")
    (done.directory / "all_reduce.status").unlink()
    slurm.call(*command.replace("--parsable", "--parsable --wait").split())
    assert (done.directory / "all_reduce.status").read_text() == "exit=0\n"


def test_too_slow_names_the_slow_node(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_SLOW": "gpu-3"}))
    assert done.code == 1
    assert verdicts(done) == {"gpu-1": "good", "gpu-2": "good", "gpu-3": "slow", "gpu-4": "good"}
    assert last_line(done).endswith("all_reduce: bandwidth at 16 MiB is 8.75 GB/s, fail below 40")
    assert last_line(done).startswith("[RESULT] FAILURE: gpu-3 (slow): ")
    assert f"log: {done.directory}/all_reduce.out" in done.out


def test_hang_names_the_hanging_node_in_bounded_time(accept: Accept, slurm: LoopbackSlurm) -> None:
    scenario = with_test(timeout_s=3)
    scenario["environment"] = {"TESTPROG_HANG": "gpu-2"}
    scenario["locate"] = {"pair_timeout_s": 8}  # good pairs need a second
    started = time.monotonic()
    done = accept(scenario)
    assert time.monotonic() - started < 170  # the programs hang for ever
    assert done.code == 1
    assert verdicts(done)["gpu-2"] == "failed"
    assert "it hangs (after 3 s)" in last_line(done)
    assert "gpu-2" in last_line(done)
    assert slurm.call("squeue", "-h") == ""


def test_two_slow_nodes_of_four(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_SLOW": "gpu-1 gpu-3"}))
    assert verdicts(done) == {"gpu-1": "slow", "gpu-2": "good", "gpu-3": "slow", "gpu-4": "good"}


def test_wrong_data(accept: Accept) -> None:
    scenario = make_scenario(environment={"TESTPROG_WRONG": "12"}, locate={"enabled": False})
    done = accept(scenario)
    assert done.code == 1
    assert any("data: wrong data" in failure["what"] for failure in done.report["failures"])


def test_truncated_log(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_CUT": "1"}))
    assert done.code == 1
    assert "complete: the table is truncated at size 16 MiB" in last_line(done)
    assert done.report["locate"] is None


def test_too_few_ranks_took_part(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_RANKS": "4"}))
    assert done.code == 1
    assert "ranks: busbw / algbw proves 4 ranks, expected 8" in last_line(done)


def test_no_limit_known_is_not_passed(accept: Accept) -> None:
    done = accept(make_scenario(limits=[], instance_type="g6.48xlarge"))
    assert done.code == 1
    assert "no limit is known for all_reduce on 4 nodes of g6.48xlarge: measured 87.5 GB/s" in last_line(done)
    done = accept(make_scenario(limits=[], instance_type="g6.48xlarge", missing_limit="warn"))
    assert done.code == 0
    assert "no limit is known" in done.directory.joinpath("report.html").read_text()


def test_node_down_is_infrastructure(accept: Accept, slurm: LoopbackSlurm) -> None:
    slurm.wait_idle()
    slurm.call("scontrol", "update", "nodename=gpu-4", "state=drain", "reason=bad fan")
    try:
        done = accept(make_scenario(), wait=False)
    finally:
        slurm.call("scontrol", "update", "nodename=gpu-4", "state=resume")
    assert done.code == 1
    assert verdicts(done)["gpu-4"] == "infrastructure"
    assert "gpu-4 is drained" in last_line(done)
    assert not list(done.directory.glob("*.sbatch"))


def test_program_missing_says_where_it_was_looked_for(accept: Accept, tmp_path: Path) -> None:
    scenario = make_scenario(nccl_tests_paths=[str(tmp_path)])
    scenario["tests"][0]["collective"] = scenario["limits"][0]["collective"] = "all_gather"
    done = accept(scenario)
    assert done.code == 3  # nothing was measured, so nothing is judged
    assert "no all_gather_perf on" in last_line(done)
    assert "/opt/nccl-tests/build" in last_line(done)
    assert "Hint: build nccl-tests there" in last_line(done)


def test_sigterm_cancels_its_own_job_and_no_other(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    slurm.wait_idle()
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(make_scenario(environment={"TESTPROG_HANG": "gpu-1"})))
    argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(scenario), "--output", str(tmp_path / "runs")]
    runner = subprocess.Popen(argv, cwd=REPOSITORY, env=slurm.env, stdout=subprocess.PIPE, text=True)
    other = ""
    try:
        _until(lambda: "acceptance-all_reduce" in slurm.call("squeue", "-h", "-t", "R", "-o", "%j"))
        other = slurm.call("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 300").strip()
        runner.send_signal(signal.SIGTERM)
        out, _ = runner.communicate(timeout=120)
        assert runner.returncode == 130
        assert out.rstrip().splitlines()[-1].startswith("[RESULT] FAILURE: stopped by SIGTERM")
        _until(lambda: "acceptance" not in slurm.call("squeue", "-h", "-o", "%j"))
        assert slurm.call("squeue", "-h", "-o", "%i").split() == [other]
    finally:
        runner.kill()
        runner.wait(60)
        if other:
            slurm.call("scancel", other)


def _until(true: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_job_cancelled_by_someone_else_is_no_verdict(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    slurm.wait_idle()
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(make_scenario(environment={"TESTPROG_HANG": "gpu-1"})))
    argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(scenario), "--output", str(tmp_path / "runs")]
    runner = subprocess.Popen(argv, cwd=REPOSITORY, env=slurm.env, stdout=subprocess.PIPE, text=True)
    try:
        _until(lambda: "acceptance-all_reduce" in slurm.call("squeue", "-h", "-t", "R", "-o", "%j"))
        slurm.call("scancel", *slurm.call("squeue", "-h", "-o", "%i").split())
        out, _ = runner.communicate(timeout=120)
    finally:
        runner.kill()
        runner.wait(60)
    assert runner.returncode == 3
    assert "someone cancelled the job" in out.rstrip().splitlines()[-1]


def test_accepted_but_not_uploaded(accept: Accept, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    aws = tmp_path / "bin/aws"
    aws.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$(dirname "$0")/argv"\necho "AccessDenied" >&2\nexit 1\n')
    aws.chmod(0o755)
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = accept(make_scenario(), "--upload", "s3://results-bucket/acceptance/", env=path)
    assert done.code == 3
    assert last_line(done).startswith("[RESULT] FAILURE: the cluster is accepted (")
    assert "AccessDenied" in last_line(done)
    target = f"s3://results-bucket/acceptance/{done.directory.name}/"
    assert (tmp_path / "bin/argv").read_text().split()[-1] == target


def test_report_can_be_made_again(accept: Accept) -> None:
    done = accept(make_scenario(environment={"TESTPROG_SLOW": "gpu-3"}))
    before = (done.directory / "report.json").read_text()
    for name in ("report.json", "junit.xml", "report.html"):
        (done.directory / name).unlink()
    argv = [sys.executable, "-m", "acceptance", "report", str(done.directory)]
    again = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert (done.directory / "report.json").read_text() == before


def test_slurmctld_away_is_the_environment(tmp_path: Path, slurm: LoopbackSlurm) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(make_scenario()))
    argv = [sys.executable, "-m", "acceptance", "run", "--scenario", str(scenario), "--output", str(tmp_path / "runs")]
    conf = tmp_path / "slurm.conf"
    deaf = f"SlurmctldPort={slurm.port + 1}\nMessageTimeout=2\n"
    conf.write_text(Path(slurm.env["SLURM_CONF"]).read_text().replace(f"SlurmctldPort={slurm.port}\n", deaf))
    env = {**slurm.env, "SLURM_CONF": str(conf)}
    done = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert done.stdout.rstrip().splitlines()[-1].startswith("[RESULT] FAILURE: scontrol: exit 1: ")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs Open MPI's compiler")
def test_a_real_mpi_program_is_measured(accept: Accept, tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    source = HERE / "program/mpi_all_reduce.c"
    subprocess.run(["mpicc", "-O2", "-o", str(build / "all_reduce_perf"), str(source)], check=True, timeout=60)
    scenario = make_scenario(nccl_tests_paths=[str(build)], mpi="pmix")
    # Open MPI leaves loopback out by default, and would look for its peers on this machine's outer address.
    scenario["environment"] = {
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    scenario["limits"][0].update(fail_below_gb_per_s=0.001, warn_below_gb_per_s=None)
    done = accept(scenario)
    assert done.code == 0, done.out + done.err
    ranks = next(check for check in done.report["tests"][0]["checks"] if check["name"] == "ranks")
    assert ranks["outcome"] == "pass"
