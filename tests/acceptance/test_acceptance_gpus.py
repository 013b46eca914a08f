"""GPUs in a container: the first test's job asks each node in the first image, and the answers are judged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from acceptance_runs import REPOSITORY, LoopbackSlurm, make_scenario
from test_acceptance_runner import command, finished, last_line

from acceptance.runner.gpus import container_seconds, image_values, judge_gpus, judge_image
from acceptance.runner.script import common_values, render
from acceptance.scenario.load import read_scenario
from acceptance.scenario.model import Scenario
from headnode.containers.images import parse
from slipway.bundle import acceptance_basis, acceptance_scenario, gpu_image
from slipway.settings import load_settings

IMAGE = "/fsx/containers/x.sqsh"
EXAMPLE = REPOSITORY / "clusters/p5-reservation.yaml"


def scenario(**changes: object) -> Scenario:
    faults: list[str] = []
    found = read_scenario(make_scenario(nodes=2, gpus_per_node=8, limits=[], gpu_image=IMAGE, **changes), faults)
    assert faults == []
    return found


@pytest.mark.parametrize(
    ("answers", "outcome", "said"),
    [
        ("gpus n1 8\ngpus n2 8\n", "pass", f"2 nodes with 8 GPUs each in {IMAGE}"),
        ("pyxis: importing\ngpus n1 8\ngpus n2 7\n", "fail", f"in {IMAGE} n2 has 7 of 8 GPUs. Hint: see /var/log/"),
        (
            "gpus n1 8\nslurmstepd: error: pyxis: [ERROR] Command not found: nvidia-container-cli, see x\nexit=1\n",
            "fail",
            f"1 of 2 nodes started {IMAGE}: slurmstepd: error: pyxis: [ERROR] Command not found: nvidia-container-cli",
        ),
        ("", "fail", f"0 of 2 nodes started {IMAGE}. Hint: "),
        ("absent\n", "warn", f"{IMAGE} is not imported yet: GPUs in containers were not tried"),
        (None, "fail", f"no node was asked for its GPUs in {IMAGE}"),
    ],
)
def test_answers_of_the_nodes(tmp_path: Path, answers: str | None, outcome: str, said: str) -> None:
    wanted = scenario()
    if answers is not None:
        (tmp_path / "all_reduce.containers").write_text(answers)
    (check,) = judge_gpus(wanted, wanted.tests[0], tmp_path)
    assert (check.name, check.outcome) == ("container", outcome)
    assert check.message.startswith(said)


DATA = Path(__file__).parent / "data"
GOOD = (DATA / "own-h200x4-all_reduce.txt").read_text()
WITH_NETWORK = (DATA / "own-h200x4-allreduce_info_small.txt").read_text()
NO_PROGRAM = (
    "acceptance: no all_reduce_perf in the container on n1; looked in: /usr/local/bin /usr/bin and the PATH"
    "; /fsx/nccl/nccl-tests/all_reduce_perf lacks libcudart.so.13 . Hint: take an image with nccl-tests\nexit=127\n"
)


@pytest.mark.parametrize(
    ("log", "network", "outcome", "said"),
    [
        (GOOD, None, "pass", "GB/s at 8 GiB in"),
        (WITH_NETWORK, {"provider": "efa", "nics": 16}, "fail", "expected efa. Hint: "),
        (GOOD.replace("       0  ", "       7  "), None, "fail", "wrong data"),
        (NO_PROGRAM, None, "warn", "all_reduce_perf lacks libcudart.so.13"),
        (
            "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\nexit=1\n",
            None,
            "warn",
            "MPI type 'pmix'",
        ),
        (
            "slurmstepd: error: pyxis: [ERROR] 98-nvidia.sh exited with return code 1\n",
            None,
            "warn",
            "98-nvidia.sh exited",
        ),
        (GOOD + GOOD, None, "warn", "2 tables in a job that prints one"),
        ("", None, "warn", "the log holds no table"),
        (None, None, None, ""),
    ],
    ids=("good", "sockets", "data", "no-program", "mpi", "hook", "never-met", "empty", "not-started"),
)
def test_nccl_tests_in_the_image(
    tmp_path: Path, log: str | None, network: object, outcome: str | None, said: str
) -> None:
    wanted = read_scenario(make_scenario(nodes=1, gpus_per_node=4, limits=[], gpu_image=IMAGE, network=network), [])
    if log is not None:
        (tmp_path / "all_reduce.container.out").write_text(log)
    checks = judge_image(wanted, wanted.tests[0], tmp_path)
    assert [(check.name, check.outcome) for check in checks] == (
        [("nccl-tests in the container", outcome)] if outcome else []
    )
    assert all(said in check.message and IMAGE in check.message for check in checks)


def test_a_job_gets_the_time_that_the_image_needs(tmp_path: Path) -> None:
    """Else a job whose measurement takes all of its time would be cancelled while it asks in the image."""
    first = make_scenario()["tests"][0]
    wanted = scenario(tests=[first, {**first, "name": "again"}])
    values = image_values(wanted, wanted.tests[0], tmp_path)
    assert container_seconds(wanted, wanted.tests[0]) == values["gpus_timeout_s"] + values["image_timeout_s"] == 600
    assert container_seconds(wanted, wanted.tests[1]) == 0
    assert str(values["image_mount"]).startswith(f"{tmp_path}:{tmp_path}")


def test_only_the_first_tests_job_asks(tmp_path: Path) -> None:
    first = make_scenario()["tests"][0]
    wanted = scenario(tests=[first, {**first, "name": "again"}])
    assert judge_gpus(wanted, wanted.tests[1], tmp_path) == []


@pytest.mark.parametrize("value", ["x.sqsh", "/fsx/$(id).sqsh", 5, "/fsx/x.tar"])
def test_what_is_not_an_image_file_is_refused(value: object) -> None:
    faults: list[str] = []
    read_scenario(make_scenario(gpu_image=value), faults)
    assert any("gpu_image" in fault and "must be the file of an image" in fault for fault in faults)


def test_the_first_image_of_the_settings_is_the_file_that_the_head_node_makes() -> None:
    settings = load_settings(EXAMPLE)
    for line in (*settings.images, "docker://nvcr.io#nvidia/pytorch@sha256:" + "a" * 64, "docker://alpine:3"):
        changed = settings.model_copy(update={"images": (line,)})
        assert gpu_image(changed) == f"/fsx/containers/{parse(line).stem}.sqsh"
    assert settings.images
    assert acceptance_scenario(settings)["gpu_image"] == gpu_image(settings)
    none = settings.model_copy(update={"images": ()})
    assert gpu_image(none) is None
    assert acceptance_basis(none) == acceptance_basis(settings)


@pytest.mark.hosts
def test_job_whose_containers_do_not_start_is_not_accepted(slurm: LoopbackSlurm, tmp_path: Path) -> None:
    """This Slurm has no pyxis: the measurement is good, and the container step fails."""
    image = tmp_path / "x.sqsh"
    for name, accepted in (("absent", True), ("there", False)):
        slurm.wait_idle()
        (tmp_path / "scenario.json").write_text(json.dumps(make_scenario(gpu_image=str(image))))
        words = ["run", "--scenario", str(tmp_path / "scenario.json"), "--output", str(tmp_path / name)]
        done = finished(command(slurm, *words), tmp_path / name)
        report = json.loads((done.directory / "report.json").read_text())
        (check,) = [one for one in report["tests"][0]["checks"] if one["name"] == "container"]
        assert (check["outcome"], done.code) == (("warn", 0) if accepted else ("fail", 1)), last_line(done)
        junit = (done.directory / "junit.xml").read_text()
        assert check["message"][:40] in junit
        image.write_bytes(b"image")


SRUN = """#!/bin/sh
case "$*" in
  *run-nccl-tests.sh*) echo "in the image: $*" ;;
  *nvidia-smi*) echo "gpus n1 8" ;;
  *) exit "$(cat MEASURED)" ;;
esac
"""


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_runs_nccl_tests_in_the_image_after_a_good_measurement(tmp_path: Path, code: int) -> None:
    image = tmp_path / "x.sqsh"
    image.touch()
    (tmp_path / "measured").write_text(str(code))
    for name, text in (
        ("srun", SRUN.replace("MEASURED", str(tmp_path / "measured"))),
        ("all_reduce_perf", "#!/bin/sh\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    faults: list[str] = []
    wanted = read_scenario(make_scenario(gpu_image=str(image), nccl_tests_paths=[str(tmp_path)]), faults)
    assert faults == []
    values = {
        **common_values(wanted, [], "all_reduce", tmp_path),
        **{"title": "t", "job_name": "j", "nodes": 1, "nodelist": "", "minutes": 6, "timeout_s": 30},
        **{"arguments": "-b 8", "status_file": "all_reduce.status"},
        **image_values(wanted, wanted.tests[0], tmp_path),
    }
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n1"}
    argv = ["bash", "-c", render("sweep.sbatch.j2", values)]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "all_reduce.status").read_text() == f"exit={code}\n"
    assert (tmp_path / "all_reduce.containers").read_text() == "gpus n1 8\n"
    log = tmp_path / "all_reduce.container.out"
    assert log.exists() == (code == 0)
    if code == 0:
        text = log.read_text()
        assert f"--container-image={image} --container-mounts={tmp_path}:{tmp_path}" in text
        assert f"{tmp_path}/run-nccl-tests.sh all_reduce_perf" in text
        assert text.rstrip().endswith("-- -b 1073741824 -e 1073741824 -g 1 -c 1")
