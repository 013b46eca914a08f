"""What AIDynamo runs: CloudAI's own script ai_dynamo.sh, one task a node, with the roles of the nodes as options.

Source: as in template_commands.py, workloads/ai_dynamo.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from acceptance.cloudai.nemo import repository_name
from acceptance.cloudai.shell import has_command, lines, word
from acceptance.cloudai.template_commands import INSTALLED, RESULTS, Command, CommandError, Job, image_of
from acceptance.cloudai.toml_text import toml_text

HUGGING_FACE = f"{INSTALLED}/huggingface"
REPOSITORY = {
    "url": "https://github.com/ai-dynamo/dynamo.git",
    "commit": "f7e468c7e8ff0d1426db987564e60572167e8464",
}
_ROLES = ("prefill", "decode")
NODE_LIST = "DYNAMO_NODELIST"  # without it ai_dynamo.sh ends at once


def role_nodes(arguments: Mapping[str, Any]) -> int:
    """Return how many nodes the roles need together."""
    dynamo = arguments["dynamo"]
    return sum(int(dynamo[f"{role}_worker"]["num_nodes"]) for role in _ROLES)


def ai_dynamo(job: Job) -> Command:
    """One srun with one task a node; the script chooses each node's role."""
    arguments, system = job.test.arguments, job.system
    if arguments["dynamo"]["dcgm_exporter"]["enabled"]:
        raise CommandError("cmd_args.dynamo.dcgm_exporter is not started here; the nodes have an exporter of their own")
    nodes = job.nodes
    options = [f"--nodes={nodes.count}", f"--ntasks={nodes.count}", "--ntasks-per-node=1"]
    options += [f"--output={job.directory}/node-%n-stdout.txt", f"--error={job.directory}/node-%n-stderr.txt"]
    storage = arguments.get("storage_cache_dir")
    home = system.get("hf_home_path") or f"{system['install_path']}/huggingface"
    mounts = [f"{home}:{HUGGING_FACE}"] + ([f"{storage}:{storage}"] if storage else [])
    environment, files = {}, {}
    apart = nodes.count > role_nodes(arguments)  # as in the guide of 2024: the first node has the frontend alone
    given = job.variables.get(NODE_LIST, "")
    if not given or has_command(given):  # CloudAI's own tests have a command there that lists the job's nodes
        environment[NODE_LIST] = f"${NODE_LIST}"  # that of the job, below
    if arguments.get("lmcache") is not None:
        files["lmcache-config.yaml"] = json.dumps(arguments["lmcache"], indent=2) + "\n"  # JSON is YAML
        environment["LMCACHE_CONFIG_FILE"] = f"{RESULTS}/lmcache-config.yaml"
    if arguments.get("hicache") is not None:
        files["hicache-config.toml"] = toml_text(arguments["hicache"])
        environment["HICACHE_CONFIG_FILE"] = f"{RESULTS}/hicache-config.toml"
    if "aiperf.sh" in arguments["workloads"]:
        files["aiperf.sh"] = _phases(arguments)
    parts = _options(job)
    if apart or not int(arguments["dynamo"]["decode_worker"]["num_nodes"]):  # else the script takes decode's first node
        parts.append('--dynamo-frontend-node "$SLURM_JOB_MASTER_NODE"')
    text = lines([f"bash {INSTALLED}/ai_dynamo.sh", *parts], "    ")
    return Command(
        text,
        image_of(job, arguments["docker_image_url"]),
        options=tuple(options),
        mounts=tuple(mounts),
        environment=environment,
        before=(_listed(apart, nodes.count), f"export {NODE_LIST}", *_startup(job)),
        files=files,
    )


def _listed(apart: bool, count: int) -> str:
    """Return the line of the job that lists the nodes of the roles: a container has no scontrol.

    count: a hook takes the first nodes of its job.
    """
    first = 2 if apart else 1
    return f'{NODE_LIST}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n {first},{count}p | paste -sd ,)'


def _options(job: Job) -> list[str]:
    arguments, other = job.test.arguments, job.test.other
    dynamo = arguments["dynamo"]
    parts = [
        '--user "$USER"',
        f"--install-dir {INSTALLED}",
        f"--results-dir {RESULTS}",
        f"--dynamo-repo {INSTALLED}/{repository_name(other.get('repo', REPOSITORY))}",
        f"--hf-home {HUGGING_FACE}",
        f"--workloads {word(arguments['workloads'].replace(' ', ''))}",
        f"--failure-marker {RESULTS}/{other.get('failure_marker', 'failure-marker.txt')}",
        f"--success-marker {RESULTS}/{other.get('success_marker', 'success-marker.txt')}",
    ]
    if arguments.get("storage_cache_dir"):
        parts.append(f"--storage-cache-dir {word(arguments['storage_cache_dir'])}")
    if arguments.get("lmcache_controller"):
        parts.append(f"--lmcache-controller-cmd {word(arguments['lmcache_controller']['cmd'])}")
    apart = ("prefill_worker", "decode_worker", "dcgm_exporter")
    parts += _named("--dynamo-", {name: value for name, value in dynamo.items() if name not in apart})
    for role in _ROLES:
        parts += _worker(role, dynamo)
    parts += _nested("--genai_perf-", {"name": "genai_perf", "cmd": "genai-perf profile", **arguments["genai_perf"]})
    if "aiperf.sh" in arguments["workloads"]:
        parts += ["--aiperf-name aiperf", f"--aiperf-script {RESULTS}/aiperf.sh"]
    if arguments.get("aiperf_accuracy"):
        parts += _nested("--aiperf_accuracy-", arguments["aiperf_accuracy"])
    return parts


def _worker(role: str, dynamo: Mapping[str, Any]) -> list[str]:
    worker = dynamo[f"{role}_worker"]
    names = ("model",) if dynamo["backend"] == "vllm" else ("model_path", "served_model_name")
    given = {**worker, "args": {**dict.fromkeys(names, dynamo["model"]), **worker["args"]}}
    nodes = given.pop("nodes", None)
    parts = _nested(f"--{role}-", given)
    return parts + ([f"--{role}-node-list {word(nodes)}"] if nodes else [])


def _nested(prefix: str, table: Mapping[str, Any]) -> list[str]:
    own = {name: value for name, value in table.items() if name != "args"}
    return _named(prefix, own) + _named(f"{prefix}args-", table.get("args", {}))


def _named(prefix: str, table: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, value in table.items():
        if isinstance(value, dict) and "url" in value and "commit" in value:
            value = f"{INSTALLED}/{repository_name(value)}"
        if value is not None:
            parts.append(f"{prefix}{name.replace('_', '-')} {word(value)}")
    return parts


def _startup(job: Job) -> list[str]:
    """The command that runs once on each node before the servers, if there is one."""
    command = job.test.arguments.get("startup_cmd")
    if not command:
        return []
    url, count = job.test.arguments.get("startup_cmd_docker_image"), job.nodes.count
    parts = ["srun --export=ALL", f"--nodes={count} --ntasks={count} --ntasks-per-node=1"]
    if url:
        parts.append(word(f"--container-image={image_of(job, url)}"))
        parts.append(word(f"--container-mounts={job.directory}:{RESULTS}"))
    parts.append(word(f"--output={job.directory}/startup-node-%n-stdout.txt"))
    parts.append(word(f"--error={job.directory}/startup-node-%n-stderr.txt"))
    return [lines([*parts, f"bash -lc {shlex.quote(command)} || exit 1"])]


def _phases(arguments: Mapping[str, Any]) -> str:
    """Return the script that runs aiperf once for each phase and keeps each report."""
    base = {"cmd": "aiperf profile", "artifact_dir_name": "aiperf_artifacts", **arguments["aiperf"]}
    phases = arguments.get("aiperf_phases") or [{"name": "aiperf", "args": {}}]
    script = ["#!/bin/bash", "# Runs aiperf against the frontend, once for each phase.", "set -uo pipefail"]
    script.append(': "${FRONTEND_URL:?is not set}"')
    if base.get("setup_cmd"):
        script.append(f"bash -lc {shlex.quote(base['setup_cmd'])} || exit 1")
    for number, phase in enumerate(phases):
        merged = {**base, **{name: value for name, value in phase.items() if name != "args"}}
        merged["args"] = {**base.get("args", {}), **phase.get("args", {})}
        script += _phase(merged, phase, arguments["dynamo"]["model"], single=len(phases) == 1)
        if number + 1 < len(phases) and merged.get("between_phase_cmd"):
            script.append(f"bash -lc {shlex.quote(merged['between_phase_cmd'])}")
    return "\n".join(script) + "\n"


def _phase(merged: Mapping[str, Any], phase: Mapping[str, Any], model: str, single: bool) -> list[str]:
    name = phase["name"]
    folder = merged["artifact_dir_name"]
    artifacts = f"{RESULTS}/{folder}" if single or "artifact_dir_name" in phase else f"{RESULTS}/{folder}/{name}"
    report = merged.get("report_name", "aiperf_report.csv")
    report = report if single or "report_name" in phase else f"aiperf_{name}_report.csv"
    values = {"model": model, "endpoint-type": "chat", "streaming": True, **merged["args"]}
    url = values.pop("url", None)
    if "server-metrics" not in values and "no-server-metrics" not in values:
        values["no-server-metrics"] = True
    parts = [" ".join(map(shlex.quote, shlex.split(merged["cmd"])))]
    parts.append(f"--url {word(url)}" if url else '--url "$FRONTEND_URL"')
    for key, value in values.items():
        if key == "server-metrics" and value == "auto":
            parts.append('--server-metrics "$AIPERF_SERVER_METRICS_URLS"')
        elif value is True or value not in (None, False):
            parts.append(f"--{key}" if value is True else f"--{key} {word(value)}")
    parts += [word(f"--artifact-dir={artifacts}"), *([merged["extra_args"]] if merged.get("extra_args") else [])]
    log = "" if single else f" >{word(f'{RESULTS}/aiperf_{name}.log')} 2>&1"
    go_on = "true" if merged.get("continue_on_phase_failure") else 'exit "$code"'
    return [
        "",
        f"# phase: {name}",
        f"rm -rf {word(artifacts)} && mkdir -p {word(artifacts)}",
        "code=0",
        f"{lines(parts, '    ')}{log} || code=$?",
        "if ((code != 0)); then",
        f"  echo {word(f'aiperf failed in the phase {name}')} >&2",
        f"  {go_on}",
        "else",
        f"  cp {word(artifacts)}/profile_export_aiperf.csv {word(f'{RESULTS}/{report}')}",
        *([] if single else [f"  cp {word(f'{RESULTS}/{report}')} {RESULTS}/aiperf_report.csv"]),
        "fi",
    ]


def dynamo_skips(test_arguments: Mapping[str, Any], constraints: Mapping[str, Any], gpus: int | None) -> str | None:
    """Return why a point of a sweep cannot run on nodes of `gpus` GPUs; None if it can."""
    sizes = {}
    for role in _ROLES:
        values = test_arguments["dynamo"][f"{role}_worker"]["args"]
        sizes[role] = (values["tensor_parallel_size"], values["pipeline_parallel_size"])
    if constraints.get("prefill_tp_le_decode_tp", True) and sizes["prefill"][0] > sizes["decode"][0]:
        return f"prefill's tensor_parallel_size {sizes['prefill'][0]} is above decode's {sizes['decode'][0]}"
    if gpus and constraints.get("tp_times_pp_le_gpus_per_node", True):
        for role, (tensor, pipeline) in sizes.items():
            if tensor * pipeline > gpus:
                return f"{role} needs {tensor * pipeline} GPUs of a node, which has {gpus}"
    return None
