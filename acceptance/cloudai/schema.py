"""The fields of CloudAI's files in head's spelling, with their defaults: systems, tests, scenarios and their parts.

Source: src/cloudai/models and src/cloudai/systems of github.com/NVIDIA/cloudai at 5b5c0f72.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from acceptance.cloudai import forms
from acceptance.cloudai.hostlist import name_form, node_form
from acceptance.cloudai.remarks import Spot
from acceptance.cloudai.time_limit import time_limit_form
from acceptance.scenario.runs import DEPENDENCY_KINDS

_LONGEST_NAME = 200  # bytes: a folder's name has 255, and the scenario's has the time in it too
_IN_FOLDER = (
    *("run.sh", "submit.sh", "end-jobs.sh", "metadata.sh", "plan.tsv", "plan.json", "jobs.tsv", "jobs.part.tsv"),
    *("jobs-cancelled.tsv", "ended", "released", "run.json", "cluster.json", "report.json", "report.html", "junit.xml"),
    *("summary.md", "--all"),
)


def name_fault(name: str) -> str | None:
    """Return why a name cannot be a part of a path and of a job's name; None if it can."""
    if not re.fullmatch(r"""(?![.]{1,2}$)[^/ "\\$][^/"\\$]{0,199}""", name) or not name.isprintable():
        return "must be 1 to 200 characters on one line, without '/', '$', quotes and backslashes"
    return f"is longer than {_LONGEST_NAME} bytes" if len(name.encode()) > _LONGEST_NAME else None


def plain_name(value: Any, spot: Spot) -> Any:
    """The form of names that become a part of a path."""
    value = forms.without_placeholder(forms.text(value, spot), spot)
    fault = None if value is forms.INVALID else name_fault(value)
    if fault:
        spot.error(value, fault, "correct the name")
        return forms.INVALID
    return value


def _run_id(value: Any, spot: Spot) -> Any:
    value = plain_name(value, spot)
    if value in _IN_FOLDER:
        spot.error(value, "is a name that the scenario's folder needs itself", "give the test another id")
        return forms.INVALID
    return value


VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
REPORTS = (
    "per_test",
    "status",
    "tarball",
    "dse",
    "nccl_comparison",
    "osu_bench_comparison",
    "nixl_ep_comparison",
    "ai_dynamo_comparison",
    "vllm_comparison",
    "sglang_comparison",
    "nixl_bench_summary",
    "moe_benchmark_throughput",
)
_REPORT = forms.table({"enable": forms.Key(forms.boolean), "group_by": forms.Key(forms.listing(forms.text))})
_REPORT_TABLE = forms.table({name: forms.Key(_REPORT) for name in REPORTS})


def _one_of_nodes(value: Any, spot: Spot) -> Any:
    if not isinstance(value, str):
        return forms.listing(name_form)(value, spot)
    name = name_form(value, spot)
    return [] if name is forms.INVALID else [name]


def _mount(value: Any, spot: Spot) -> Any:
    value = forms.line(value, spot)
    if value is not forms.INVALID and ("," in value or not value.split(":")[0]):
        spot.error(value, "must be SOURCE:TARGET[:OPTIONS] without a comma", 'write "/data:/data"')
        return forms.INVALID
    return value


def _literal(value: Any, spot: Spot) -> Any:
    values = [value] if isinstance(value, str) else value
    paths = forms.listing(forms.line)(values, spot)
    for index, path in enumerate(paths if paths is not forms.INVALID else ()):
        if not re.fullmatch(r"cmd_args([.][^.\s]+)+", path.strip()):
            spot.at(index).error(path, "must be a path below cmd_args", 'write "cmd_args.NAME"')
    return forms.INVALID if paths is forms.INVALID else [path.strip() for path in paths]


def _srun_text(value: Any, spot: Spot) -> Any:
    value = forms.line(value, spot)
    try:
        shlex.split(value if value is not forms.INVALID else "")
    except ValueError:
        spot.error(value, "has a quote that does not end, or a backslash as its last character", "close the quote")
        return forms.INVALID
    return value


_BATCH_ARGUMENT = forms.matching(r"-[^\n]+", "must be one option of sbatch on one line", 'write "--option=value"')
_GROUP = {"name": forms.Key(plain_name, True), "nodes": forms.Key(_one_of_nodes, True)}
_PARTITION = {"name": forms.Key(plain_name, True), "groups": forms.Key(forms.listing(forms.table(_GROUP)), default=[])}
_DATA_REPOSITORY = {"endpoint": forms.Key(forms.line, True), "verify_certs": forms.Key(forms.boolean, default=True)}

_NAMESPACE = forms.matching(
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "must be 1 to 63 small letters, digits and '-'", 'write "default"'
)
_EVERY_SYSTEM = {
    "name": forms.Key(forms.line, True),
    "scheduler": forms.Key(forms.choice("slurm", "standalone", "kubernetes", "runai", "lsf"), True),
    "install_path": forms.Key(forms.path, True),
    "output_path": forms.Key(forms.path, True),
    "hf_home_path": forms.Key(forms.path),
    "global_env_vars": forms.Key(forms.mapping(forms.text, VARIABLE), default={}),
}
SYSTEMS: dict[str, dict[str, forms.Key]] = {
    "slurm": {
        **_EVERY_SYSTEM,
        "default_partition": forms.Key(plain_name, True),
        "partitions": forms.Key(forms.listing(forms.table(_PARTITION)), True),
        "account": forms.Key(forms.line),
        "distribution": forms.Key(forms.line),
        "mpi": forms.Key(forms.line, default="pmix"),
        "gpus_per_node": forms.Key(forms.whole(1, 1024)),
        "ntasks_per_node": forms.Key(forms.whole(1, 4096)),
        "cache_docker_images_locally": forms.Key(forms.boolean, default=False),
        "monitor_interval": forms.Key(forms.whole(1), default=60),
        "extra_srun_args": forms.Key(_srun_text),
        "extra_sbatch_args": forms.Key(forms.listing(_BATCH_ARGUMENT), default=[]),
        "extra_transient_status_errors": forms.Key(forms.listing(forms.line), default=[]),
        "status_retry_pause_seconds": forms.Key(forms.whole(0), default=10),
        "container_mount_home": forms.Key(forms.boolean, default=False),
        "data_repository": forms.Key(forms.table(_DATA_REPOSITORY)),
        "reports": forms.Key(_REPORT_TABLE, default={}),
    },
    "standalone": {**_EVERY_SYSTEM, "monitor_interval": forms.Key(forms.whole(1), default=1)},
    "kubernetes": {
        **_EVERY_SYSTEM,
        "kube_config_path": forms.Key(forms.text, True),
        "default_namespace": forms.Key(_NAMESPACE, True),
        "gpus_per_node": forms.Key(forms.whole(1, 1024), default=1),
        "use_host_network": forms.Key(forms.boolean, default=False),
        "monitor_interval": forms.Key(forms.whole(1), default=1),
    },
    "runai": {
        **_EVERY_SYSTEM,
        **{name: forms.Key(forms.line, True) for name in ("base_url", "user_email", "app_id", "app_secret")},
        **{name: forms.Key(forms.line, True) for name in ("project_id", "cluster_id")},
        "monitor_interval": forms.Key(forms.whole(1), default=60),
        "nodes": forms.Key(forms.listing(forms.anything), default=[]),
    },
    "lsf": {
        **_EVERY_SYSTEM,
        "queues": forms.Key(forms.listing(forms.table(_PARTITION)), default=[]),
        **{name: forms.Key(forms.line) for name in ("account", "project_name", "default_queue", "app", "os_version")},
        "monitor_interval": forms.Key(forms.whole(1), default=60),
    },
}

NSYS = {
    "enable": forms.Key(forms.boolean, default=True),
    "nsys_binary": forms.Key(forms.line, default="nsys"),
    "task": forms.Key(forms.line, default="profile"),
    "output": forms.Key(forms.line),
    "sample": forms.Key(forms.line),
    "trace": forms.Key(forms.line),
    "force_overwrite": forms.Key(forms.boolean),
    "capture_range": forms.Key(forms.line),
    "capture_range_end": forms.Key(forms.line),
    "cuda_graph_trace": forms.Key(forms.line),
    "gpu_metrics_devices": forms.Key(forms.line),
    "extra_args": forms.Key(forms.listing(forms.line), default=[]),
}
GIT_REPOSITORY = {
    "url": forms.Key(forms.line, True),
    "commit": forms.Key(forms.line, True),
    "init_submodules": forms.Key(forms.boolean, default=False),
    "installed_path": forms.Key(forms.line),
    "mount_as": forms.Key(forms.line),
}
_PREDICTOR = {
    "git_repo": forms.Key(forms.table(GIT_REPOSITORY), True),
    "project_subpath": forms.Key(forms.line),
    "dependencies_from_pyproject": forms.Key(forms.boolean),
    "bin_name": forms.Key(forms.line),
}
_TRAINING_REPORT = {
    "exclude_start_steps": forms.Key(forms.whole(0), default=5),
    "exclude_post_profiling_steps": forms.Key(forms.whole(0), default=2),
}
_REWARDS = {
    "constraint_failure": forms.Key(forms.number, default=-1.0),
    "metric_failure": forms.Key(forms.number, default=-1.0),
}
_AGENT_CONFIG = {
    "random_seed": forms.Key(forms.whole(0), default=42),
    "start_action": forms.Key(forms.choice("random", "first"), default="random"),
    "rewards": forms.Key(forms.table(_REWARDS)),
}
_ENV_PARAM = {"weights": forms.Key(forms.listing(forms.number)), "encoding": forms.Key(forms.anything)}
_VARIABLES = forms.mapping(forms.swept(forms.text), VARIABLE)
OPTIONS = forms.mapping(forms.text)

# Fields that a test and a run of it in a scenario share.
SHARED = {
    "dse_excluded_args": forms.Key(_literal),
    "extra_env_vars": forms.Key(_VARIABLES),
    "extra_container_mounts": forms.Key(forms.listing(_mount)),
    "git_repos": forms.Key(forms.listing(forms.table(GIT_REPOSITORY))),
    "nsys": forms.Key(forms.table(NSYS)),
    "agent": forms.Key(forms.line),
    "agent_steps": forms.Key(forms.whole(1)),
    "agent_metrics": forms.Key(forms.listing(forms.line)),
    "agent_reward_function": forms.Key(forms.line),
    "agent_config": forms.Key(forms.table(_AGENT_CONFIG, others="free")),
}
# cmd_args is read apart, by the template's own schema.
TEST = {
    "name": forms.Key(forms.line, True),
    "description": forms.Key(forms.text, True),
    "test_template_name": forms.Key(forms.line, True),
    "cmd_args": forms.Key(forms.anything, True),
    "extra_cmd_args": forms.Key(OPTIONS),
    **SHARED,
    "predictor": forms.Key(forms.table(_PREDICTOR)),
    "training_report": forms.Key(forms.table(_TRAINING_REPORT)),
    "env_params": forms.Key(forms.mapping(forms.table(_ENV_PARAM))),
}
_DEPENDENCY = {"type": forms.Key(forms.choice(*DEPENDENCY_KINDS), True), "id": forms.Key(forms.line, True)}
RUN = {
    "id": forms.Key(_run_id, True),
    "test_name": forms.Key(forms.line),
    "num_nodes": forms.Key(forms.swept(forms.whole(1, 100_000))),
    "nodes": forms.Key(forms.listing(node_form), default=[]),
    "exclude_nodes": forms.Key(forms.listing(name_form), default=[]),
    "weight": forms.Key(forms.whole(0), default=0),
    "iterations": forms.Key(forms.whole(1, 10_000), default=1),
    "sol": forms.Key(forms.number),
    "ideal_perf": forms.Key(forms.number, default=1.0),
    "time_limit": forms.Key(time_limit_form),
    "dependencies": forms.Key(forms.listing(forms.table(_DEPENDENCY)), default=[]),
    "extra_srun_args": forms.Key(_srun_text),
    "name": forms.Key(forms.line),
    "description": forms.Key(forms.text),
    "test_template_name": forms.Key(forms.line),
    "cmd_args": forms.Key(forms.anything),
    **SHARED,
}
SCENARIO = {
    "name": forms.Key(plain_name, True),
    "sol_path": forms.Key(forms.line),
    "job_status_check": forms.Key(forms.boolean, default=True),
    "Tests": forms.Key(forms.listing(forms.anything, least=1), True),
    "pre_test": forms.Key(forms.line),
    "post_test": forms.Key(forms.line),
    "reports": forms.Key(_REPORT_TABLE, default={}),
}
