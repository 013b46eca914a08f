"""A Kubernetes or Run:ai system: the specifications of jobs, compared with the API's own schemas where they are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.cli import main
from acceptance.cloudai import manifests

BASE = 'name = "s"\ninstall_path = "i"\noutput_path = "o"\n[global_env_vars]\nNCCL_DEBUG = "INFO"\n'
KUBERNETES = 'scheduler = "kubernetes"\nkube_config_path = "/k/c"\ndefault_namespace = "ml"\ngpus_per_node = 8\n'
RUNAI = """scheduler = "runai"
base_url = "https://r.example/"
user_email = "a@example.com"
app_id = "app"
app_secret = "the-secret"
project_id = "p"
cluster_id = "c"
"""
RING = """
[[Tests]]
id = "Ring.1"
name = "r"
description = "d"
test_template_name = "NcclTest"
num_nodes = 2
time_limit = "20m"
extra_container_mounts = ["/data:/data:ro"]
[Tests.cmd_args]
docker_image_url = "nvcr.io#nvidia/pytorch:25.06-py3"
maxbytes = ["1G", "2G"]
[Tests.extra_env_vars]
WORDS = "a b"
"""
BOX = """
[[Tests]]
id = "box"
name = "b"
description = "d"
test_template_name = "SlurmContainer"
cmd_args = {docker_image_url = "ubuntu:22.04", cmd = "nvidia-smi"}
iterations = 2
dependencies = [{type = "start_post_comp", id = "Ring.1"}]
"""
SLEEP = '\n[[Tests]]\nid = "nap"\nname = "n"\ndescription = "d"\ntest_template_name = "Sleep"\ncmd_args = {}\n'
Write = Callable[..., list[str]]


@pytest.fixture
def files(tmp_path: Path) -> Write:
    def write(system: str, tests: str, head: str = "") -> list[str]:
        (tmp_path / "system.toml").write_text(system + BASE)
        (tmp_path / "scenario.toml").write_text(f'name = "n"\n{head}{tests}')
        files = ["--system-config", str(tmp_path / "system.toml"), "--test-scenario", str(tmp_path / "scenario.toml")]
        return [*files, "--output-dir", str(tmp_path / "out")]

    return write


def written(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    (folder,) = (tmp_path / "out").iterdir()
    return folder, {
        str(path.parent.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json")
    }


def check_schema(body: dict[str, Any]) -> None:
    """An MPIJob is no part of Kubernetes' API: its pods are checked."""
    validate = pytest.importorskip("kubernetes_validate").validate
    if body["kind"] != "MPIJob":
        validate(body, "1.34", strict=True)
        return
    for replica in body["spec"]["mpiReplicaSpecs"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": body["metadata"], "spec": replica["template"]["spec"]}
        validate(pod, "1.34", strict=True)


@pytest.mark.parametrize("network", ["", "use_host_network = true\n"])
def test_kubernetes(network: str, files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dry-run", *files(KUBERNETES + network, RING + BOX + SLEEP)]) == 0
    folder, bodies = written(tmp_path)
    assert set(bodies) == {"Ring.1/0/1", "Ring.1/0/2", "box/0", "box/1", "nap/0"}
    for body in bodies.values():
        check_schema(body)
    ring = bodies["Ring.1/0/1"]
    assert (ring["kind"], ring["metadata"]) == ("MPIJob", {"name": "ring-1-0-1", "namespace": "ml"})
    assert ring["spec"]["runPolicy"]["activeDeadlineSeconds"] == 1200
    launcher, worker = (
        ring["spec"]["mpiReplicaSpecs"][name]["template"]["spec"]["containers"][0] for name in ("Launcher", "Worker")
    )
    port = "-p 2222 " if network else ""
    start = f"mpirun -np 16 -bind-to none -mca plm_rsh_args '{port}-o StrictHostKeyChecking=no"
    assert launcher["args"][0].startswith(start)
    assert "-x NCCL_DEBUG -x WORDS all_reduce_perf_mpi --nthreads 1" in launcher["args"][0]
    assert "--maxbytes 1G" in launcher["args"][0]
    assert launcher["image"] == "nvcr.io/nvidia/pytorch:25.06-py3"
    assert {"name": "WORDS", "value": "a b"} in launcher["env"]
    assert worker["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert {"name": "mount-0", "mountPath": "/data", "readOnly": True} in worker["volumeMounts"]
    assert ("command" in worker) == bool(network)
    assert bodies["nap/0"]["spec"]["template"]["spec"]["containers"][0]["args"] == ["sleep 5"]
    apply = f"kubectl --kubeconfig /k/c apply --filename {folder}"
    wait = "kubectl --kubeconfig /k/c wait --for condition="
    commands = [
        f"{apply}/Ring.1/0/1/deployment.json",
        f"{wait}Succeeded mpijob/ring-1-0-1 --namespace ml --timeout 24h",
        f"{apply}/Ring.1/0/2/deployment.json",
        f"{wait}Succeeded mpijob/ring-1-0-2 --namespace ml --timeout 24h",
        f"{apply}/box/0/deployment.json",
        f"{wait}complete job/box-0 --namespace ml --timeout 24h",
        f"{apply}/box/1/deployment.json",
        f"{apply}/nap/0/deployment.json",
    ]
    assert (folder / "submit.txt").read_text().splitlines() == commands
    head = f"{folder}: specifications, not submitted. To submit (submit.txt):"
    assert capsys.readouterr().out.splitlines() == [head, *commands]


def test_runai_without_its_secret(files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The body is that of CloudAI's RunAITraining (runai_training.py) and TrainingCreateRequest of Run:ai's API."""
    assert main(["dry-run", *files(RUNAI, BOX.split("iterations")[0] + SLEEP)]) == 0
    folder, bodies = written(tmp_path)
    assert bodies["box/0"] == {
        "name": "box-0",
        "useGivenNameAsPrefix": False,
        "projectId": "p",
        "clusterId": "c",
        "spec": {
            "command": "/bin/bash",
            "args": "-c nvidia-smi",
            "image": "ubuntu:22.04",
            "environmentVariables": [{"name": "NCCL_DEBUG", "value": "INFO"}],
            "parallelism": 1,
            "completions": 1,
            "compute": {"gpuDevicesRequest": 8},
        },
    }
    assert "compute" not in bodies["nap/0"]["spec"]
    out = capsys.readouterr().out
    assert "https://r.example/api/v1/workloads/trainings" in out
    assert 'Bearer $TOKEN"' in out
    assert not [path for path in folder.rglob("*") if path.is_file() and "the-secret" in path.read_text()]
    assert "the-secret" not in out


@pytest.mark.parametrize("system", [KUBERNETES, RUNAI])
def test_run_does_not_pretend(system: str, files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *files(system, SLEEP)]) == 2
    err = capsys.readouterr().err
    assert "its jobs are not submitted from here. Hint: acceptance dry-run with the same files writes their spec" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (
            SLEEP.replace("Sleep", "BashCmd").replace("{}", '{cmd = "x"}'),
            "BashCmd has no form here; it can be NcclTest",
        ),
        (SLEEP + 'nodes = ["gpu-1"]\n', "names nodes, which this scheduler chooses; num_nodes says how many"),
        (RING + BOX.replace("start_post_comp", "end_post_comp"), "end_post_comp has no form here; it can be start_"),
        (SLEEP + 'extra_srun_args = "-x"\n', "has extra_srun_args or nsys, which have no form here"),
        (SLEEP.replace("{}", '{docker_image_url = "/a.sqsh"}'), "the file /a.sqsh is no image for this scheduler"),
        (
            SLEEP.replace("nap", "a.b") + SLEEP.replace("nap", "a-b"),
            "a-b/0 and a.b/0 are both named a-b-0 in the cluster; rename a test",
        ),
    ],
)
def test_what_has_no_form(
    tests: str, words: str, files: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dry-run", *files(KUBERNETES, tests)]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_namespace_that_is_none(files: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dry-run", *files(KUBERNETES.replace('"ml"', '"ml; x"'), SLEEP)]) == 2
    assert (
        "default_namespace = \"ml; x\": must be 1 to 63 small letters, digits and '-'. Hint" in capsys.readouterr().err
    )


def test_names_in_the_cluster() -> None:
    names = {
        path: manifests._name(path) for path in ("1st/0", "2/0", "Ä/0", "A b_c/0/12", "x" * 90 + "/0", "9" * 90 + "/0")
    }
    assert list(names.values())[:4] == ["job-1st-0", "job-2-0", "job-0", "a-b-c-0-12"]
    assert all(re.fullmatch("[a-z]([a-z0-9-]{0,50}[a-z0-9])?", name) for name in names.values())
