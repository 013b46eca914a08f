"""A Kubernetes or Run:ai system: each job of a scenario as the specification that the cluster's API takes.

Nothing is sent from here: `dry-run` writes the files, and the commands that submit them in their order.

Source: kubernetes_json_gen_strategy.py of sleep and nccl_test, runai_json_gen_strategy.py of nccl_test and
runai_rest_client.py of CloudAI. The worker of an MPIJob runs sshd, which the operator starts by default
(kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.cloudai.graph import submission_order
from acceptance.cloudai.hostlist import Nodes
from acceptance.cloudai.load import System
from acceptance.cloudai.standalone import NO_SLURM
from acceptance.cloudai.sweep import points
from acceptance.cloudai.template_commands import SIMPLE, CommandError, Job
from acceptance.errors import InputError
from acceptance.runner.files import new_folder
from acceptance.scenario.runs import TestRun, TestScenario

SCHEDULERS = ("kubernetes", "runai")
FILE, COMMANDS = "deployment.json", "submit.txt"
_TEMPLATES = ("NcclTest", "SlurmContainer", "Sleep")
_LONGEST_NAME = 52  # characters: Kubernetes adds 11 to the name of a pod, and a label has 63
_SSH_PORT = 2222  # of workers in the host's network, where 22 is taken
_RUNAI_GPUS = 8  # of a node: the system's file has no such field, and CloudAI asks for 8
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Manifest:
    """One job. name: in the cluster; path: of its file in the scenario's folder; after: jobs that must end first."""

    name: str
    path: str
    body: Mapping[str, Any]
    after: tuple[str, ...]


def write_manifests(scenario: TestScenario, system: System, output: Path, stamp: str) -> tuple[Path, list[str]]:
    """Write the folder of a scenario; return it and the commands that submit its jobs. Raises InputError."""
    manifests = _manifests(scenario, system)
    folder = (output / f"{scenario.name}_{stamp}").absolute()
    submit = _kubectl if system.scheduler == "kubernetes" else _curl
    commands = list(submit(manifests, system.values, folder))
    with new_folder(folder) as part:
        for one in manifests:
            path = part / one.path
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(one.body, indent=1) + "\n", encoding="utf-8")
        (part / COMMANDS).write_text("".join(f"{line}\n" for line in commands), encoding="utf-8")
    return folder, commands


def _manifests(scenario: TestScenario, system: System) -> list[Manifest]:
    faults: list[str] = []
    if scenario.pre_test or scenario.post_test:
        faults.append(f"{scenario.name}: pre_test and post_test are not run on {system.scheduler}. Hint: remove them")
    body_of = _kubernetes if system.scheduler == "kubernetes" else _runai
    result: list[Manifest] = []
    last: dict[str, str] = {}  # id of a test -> the name of its last job
    names: dict[str, str] = {}  # name of a job -> its path
    for run in submission_order(scenario.runs):
        try:
            _refuse(run)
            for path, one in _jobs(run):
                name = _name(path)
                if names.setdefault(name, path) != path:
                    raise CommandError(f"{path} and {names[name]} are both named {name} in the cluster; rename a test")
                waits = (last[run.id],) if run.id in last else tuple(last[need.id] for need in run.dependencies)
                result.append(Manifest(name, f"{path}/{FILE}", body_of(name, one, system.values), waits))
                last[run.id] = name
        except CommandError as error:
            faults.append(f"{scenario.name}: {run.id}: {error}. Hint: correct the test")
            last.setdefault(run.id, "")
    if faults:
        raise InputError(faults)
    return result


def _refuse(run: TestRun) -> None:
    kinds = [one.kind for one in run.dependencies if one.kind != "start_post_comp"]
    if run.test.template not in _TEMPLATES:
        raise CommandError(f"{run.test.template} has no form here; it can be {', '.join(_TEMPLATES)}")
    if run.nodes or run.exclude_nodes:
        raise CommandError("names nodes, which this scheduler chooses; num_nodes says how many")
    if kinds:
        raise CommandError(f"{kinds[0]} has no form here; it can be start_post_comp")
    if run.srun_arguments or run.test.other.get("extra_srun_args") or run.test.nsys:
        raise CommandError("has extra_srun_args or nsys, which have no form here")


def _jobs(run: TestRun) -> Iterator[tuple[str, TestRun]]:
    """Yield the path and the test of each iteration and point."""
    for iteration in range(run.iterations):
        for step, (point, one) in enumerate(points(run), 1):
            yield f"{run.id}/{iteration}" + (f"/{step}" if point else ""), one


def _name(path: str) -> str:
    """Return a name as Kubernetes takes it: small letters, digits and '-'; the first is a letter.

    An MPIJob's name begins the names of a service, which no digit may begin (DNS-1035 label).
    """
    name = re.sub("[^a-z0-9]+", "-", path.lower()).strip("-")
    if len(name) > _LONGEST_NAME or not name[:1].isalpha():
        name = f"job-{name[-(_LONGEST_NAME - len('job-')) :].strip('-')}"
    return name.strip("-")


def _command(run: TestRun, system: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The words that run, the image, and whether it is one process without MPI."""
    job = Job(run.test, {**NO_SLURM, **system}, Nodes(max(run.counts, default=1)), Path("/results"))
    command = SIMPLE[run.test.template](job)
    image = str(run.test.arguments["docker_image_url"]).split("://", 1)[-1].replace("#", "/")
    if image.startswith(("/", ".")):
        raise CommandError(f"the file {image} is no image for this scheduler: name its address in a registry")
    return command.text, image, command.alone


def _variables(run: TestRun, system: Mapping[str, Any], **more: str) -> list[dict[str, str]]:
    values = {**more, **system["global_env_vars"], **run.test.environment}
    return [{"name": name, "value": str(value)} for name, value in values.items()]


# ------------------------------------------------------------------------------------------------------- Kubernetes


def _kubernetes(name: str, run: TestRun, system: Mapping[str, Any]) -> dict[str, Any]:
    text, image, alone = _command(run, system)
    nodes, gpus = max(run.counts, default=1), str(system["gpus_per_node"])
    resources = {} if run.test.template == "Sleep" else {"limits": {"nvidia.com/gpu": gpus}}
    metadata = {"name": name, "namespace": system["default_namespace"]}
    if run.test.template != "NcclTest" or alone:
        pod = _pod(run, system, {"name": "task", "image": image, "args": [text], "resources": resources})
        spec: dict[str, Any] = {"backoffLimit": 0, "completions": nodes, "parallelism": nodes}
        spec |= {"activeDeadlineSeconds": run.time_limit_s} if run.time_limit_s else {}
        spec["template"] = {"spec": {**pod, "restartPolicy": "Never"}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    port = f"-p {_SSH_PORT} " if system["use_host_network"] else ""
    hosts = f"{port}-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    passed = " ".join(f"-x {one['name']}" for one in _variables(run, system))
    start = f"mpirun -np {nodes * int(gpus)} -bind-to none -mca plm_rsh_args {shlex.quote(hosts)} {passed}".rstrip()
    launcher = _pod(run, system, {"name": "launcher", "image": image, "args": [f"{start} {text}"]}, **_ROOT)
    worker = _pod(run, system, {"name": "worker", "image": image, "resources": resources}, **_ROOT)
    container = worker["containers"][0]
    del container["command"]  # the operator's: sshd
    if port:
        container["command"] = ["/usr/sbin/sshd", "-De", "-p", str(_SSH_PORT)]
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    worker["volumes"] = [*worker.get("volumes", ()), memory]
    container["volumeMounts"] = [
        *container.get("volumeMounts", ()),
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  (NCCL's, in the container)
    ]
    policy: dict[str, Any] = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    policy |= {"activeDeadlineSeconds": run.time_limit_s} if run.time_limit_s else {}
    replicas = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": launcher}},
        "Worker": {"replicas": nodes, "template": {"spec": worker}},
    }
    spec = {"slotsPerWorker": int(gpus), "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def _pod(run: TestRun, system: Mapping[str, Any], container: dict[str, Any], **variables: str) -> dict[str, Any]:
    """The spec of a pod with one container, its variables and its mounts."""
    container = {"command": ["/bin/bash", "-c"], "env": _variables(run, system, **variables), **container}
    pod: dict[str, Any] = {"containers": [container]}
    for number, mount in enumerate(run.test.mounts):
        source, _, target = mount.partition(":")
        target, _, options = target.partition(":")
        entry = {"name": f"mount-{number}", "mountPath": target or source}
        container.setdefault("volumeMounts", []).append(entry | ({"readOnly": True} if options == "ro" else {}))
        pod.setdefault("volumes", []).append({"name": f"mount-{number}", "hostPath": {"path": source}})
    return {**pod, "hostNetwork": True} if system["use_host_network"] else pod


def _kubectl(manifests: Sequence[Manifest], system: Mapping[str, Any], folder: Path) -> Iterator[str]:
    options = f" --kubeconfig {shlex.quote(system['kube_config_path'])}" if system["kube_config_path"] else ""
    kinds = {one.name: str(one.body["kind"]).lower() for one in manifests}
    ended = {"job": "complete", "mpijob": "Succeeded"}
    waited: set[str] = set()
    for one in manifests:
        for name in (name for name in one.after if name not in waited):
            waited.add(name)
            where = f"--namespace {shlex.quote(system['default_namespace'])} --timeout 24h"
            yield f"kubectl{options} wait --for condition={ended[kinds[name]]} {kinds[name]}/{name} {where}"
        yield f"kubectl{options} apply --filename {shlex.quote(str(folder / one.path))}"


# ------------------------------------------------------------------------------------------------------------ Run:ai


def _runai(name: str, run: TestRun, system: Mapping[str, Any]) -> dict[str, Any]:
    text, image, _ = _command(run, system)
    nodes = max(run.counts, default=1)
    spec: dict[str, Any] = {
        "command": "/bin/bash",
        "args": f"-c {shlex.quote(text)}",
        "image": image,
        "environmentVariables": _variables(run, system),
        "parallelism": nodes,
        "completions": nodes,
    }
    if run.test.template != "Sleep":
        spec["compute"] = {"gpuDevicesRequest": _RUNAI_GPUS}
    head = {"name": name, "useGivenNameAsPrefix": False}
    return {**head, "projectId": system["project_id"], "clusterId": system["cluster_id"], "spec": spec}


def _curl(manifests: Sequence[Manifest], system: Mapping[str, Any], folder: Path) -> Iterator[str]:
    url = shlex.quote(f"{system['base_url'].rstrip('/')}/api/v1/workloads/trainings")
    for one in manifests:
        if one.after:
            yield f"# after the end of {', '.join(one.after)}:"
        headers = "--header \"Authorization: Bearer $TOKEN\" --header 'Content-Type: application/json'"
        yield f"curl --fail {headers} --data @{shlex.quote(str(folder / one.path))} {url}"
