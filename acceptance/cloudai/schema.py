"""The fields of CloudAI's files in head's spelling, with their defaults: systems, tests, scenarios and their parts.

Source: src/cloudai/models and src/cloudai/systems of github.com/NVIDIA/cloudai at 5b5c0f72.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from acceptance.cloudai.forms import (
    INVALID,
    Key,
    anything,
    boolean,
    choice,
    line,
    listing,
    mapping,
    matching,
    number,
    swept,
    table,
    text,
    whole,
)
from acceptance.cloudai.hostlist import name_form, node_form
from acceptance.cloudai.remarks import Spot
from acceptance.cloudai.time_limit import time_limit_form
from acceptance.scenario.runs import DEPENDENCY_KINDS

_LONGEST_NAME = 200  # bytes: a folder's name has 255, and the scenario's has the time in it too
_IN_FOLDER = ("submit.sh", "end-jobs.sh", "plan.tsv", "jobs.tsv", "jobs-cancelled.tsv", "ended", "--all")


def name_fault(name: str) -> str | None:
    """Return why a name cannot be a part of a path and of a job's name; None if it can."""
    if not re.fullmatch(r"""(?![.]{1,2}$)[^/ "\\$][^/"\\$]{0,199}""", name) or not name.isprintable():
        return "must be 1 to 200 characters on one line, without '/', '$', quotes and backslashes"
    return f"is longer than {_LONGEST_NAME} bytes" if len(name.encode()) > _LONGEST_NAME else None


def plain_name(value: Any, spot: Spot) -> Any:
    """The form of names that become a part of a path."""
    value = text(value, spot)
    fault = None if value is INVALID else name_fault(value)
    if fault:
        spot.error(value, fault, "correct the name")
        return INVALID
    return value


def _run_id(value: Any, spot: Spot) -> Any:
    value = plain_name(value, spot)
    if value in _IN_FOLDER:
        spot.error(value, "is a name that the scenario's folder needs itself", "give the test another id")
        return INVALID
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
_REPORT = table({"enable": Key(boolean), "group_by": Key(listing(text))})
_REPORT_TABLE = table({name: Key(_REPORT) for name in REPORTS})


def _one_of_nodes(value: Any, spot: Spot) -> Any:
    if not isinstance(value, str):
        return listing(name_form)(value, spot)
    name = name_form(value, spot)
    return [] if name is INVALID else [name]


def _mount(value: Any, spot: Spot) -> Any:
    value = line(value, spot)
    if value is not INVALID and ("," in value or not value.split(":")[0]):
        spot.error(value, "must be SOURCE:TARGET[:OPTIONS] without a comma", 'write "/data:/data"')
        return INVALID
    return value


def _literal(value: Any, spot: Spot) -> Any:
    values = [value] if isinstance(value, str) else value
    paths = listing(line)(values, spot)
    for index, path in enumerate(paths if paths is not INVALID else ()):
        if not re.fullmatch(r"cmd_args([.][^.\s]+)+", path.strip()):
            spot.at(index).error(path, "must be a path below cmd_args", 'write "cmd_args.NAME"')
    return INVALID if paths is INVALID else [path.strip() for path in paths]


def _srun_text(value: Any, spot: Spot) -> Any:
    value = line(value, spot)
    try:
        shlex.split(value if value is not INVALID else "")
    except ValueError:
        spot.error(value, "has a quote that does not end, or a backslash as its last character", "close the quote")
        return INVALID
    return value


_BATCH_ARGUMENT = matching(r"-[^\n]+", "must be one option of sbatch on one line", 'write "--option=value"')
_GROUP = {"name": Key(plain_name, True), "nodes": Key(_one_of_nodes, True)}
_PARTITION = {"name": Key(plain_name, True), "groups": Key(listing(table(_GROUP)), default=[])}
_DATA_REPOSITORY = {"endpoint": Key(line, True), "verify_certs": Key(boolean, default=True)}

_EVERY_SYSTEM = {
    "name": Key(line, True),
    "scheduler": Key(choice("slurm", "standalone", "kubernetes", "runai", "lsf"), True),
    "install_path": Key(line, True),
    "output_path": Key(line, True),
    "hf_home_path": Key(line),
    "global_env_vars": Key(mapping(text, VARIABLE), default={}),
}
SYSTEMS: dict[str, dict[str, Key]] = {
    "slurm": {
        **_EVERY_SYSTEM,
        "default_partition": Key(plain_name, True),
        "partitions": Key(listing(table(_PARTITION)), True),
        "account": Key(line),
        "distribution": Key(line),
        "mpi": Key(line, default="pmix"),
        "gpus_per_node": Key(whole(1, 1024)),
        "ntasks_per_node": Key(whole(1, 4096)),
        "cache_docker_images_locally": Key(boolean, default=False),
        "monitor_interval": Key(whole(1), default=60),
        "extra_srun_args": Key(_srun_text),
        "extra_sbatch_args": Key(listing(_BATCH_ARGUMENT), default=[]),
        "extra_transient_status_errors": Key(listing(line), default=[]),
        "status_retry_pause_seconds": Key(whole(0), default=10),
        "container_mount_home": Key(boolean, default=False),
        "data_repository": Key(table(_DATA_REPOSITORY)),
        "reports": Key(_REPORT_TABLE, default={}),
    },
    "standalone": {**_EVERY_SYSTEM, "monitor_interval": Key(whole(1), default=1)},
    "kubernetes": {
        **_EVERY_SYSTEM,
        "kube_config_path": Key(text, True),
        "default_namespace": Key(line, True),
        "gpus_per_node": Key(whole(1, 1024), default=1),
        "use_host_network": Key(boolean, default=False),
        "monitor_interval": Key(whole(1), default=1),
    },
    "runai": {
        **_EVERY_SYSTEM,
        **{name: Key(line, True) for name in ("base_url", "user_email", "app_id", "app_secret")},
        **{name: Key(line, True) for name in ("project_id", "cluster_id")},
        "monitor_interval": Key(whole(1), default=60),
        "nodes": Key(listing(anything), default=[]),
    },
    "lsf": {
        **_EVERY_SYSTEM,
        "queues": Key(listing(table(_PARTITION)), default=[]),
        **{name: Key(line) for name in ("account", "project_name", "default_queue", "app", "os_version")},
        "monitor_interval": Key(whole(1), default=60),
    },
}

NSYS = {
    "enable": Key(boolean, default=True),
    "nsys_binary": Key(line, default="nsys"),
    "task": Key(line, default="profile"),
    "output": Key(line),
    "sample": Key(line),
    "trace": Key(line),
    "force_overwrite": Key(boolean),
    "capture_range": Key(line),
    "capture_range_end": Key(line),
    "cuda_graph_trace": Key(line),
    "gpu_metrics_devices": Key(line),
    "extra_args": Key(listing(line), default=[]),
}
GIT_REPOSITORY = {
    "url": Key(line, True),
    "commit": Key(line, True),
    "init_submodules": Key(boolean, default=False),
    "installed_path": Key(line),
    "mount_as": Key(line),
}
_PREDICTOR = {
    "git_repo": Key(table(GIT_REPOSITORY), True),
    "project_subpath": Key(line),
    "dependencies_from_pyproject": Key(boolean),
    "bin_name": Key(line),
}
_TRAINING_REPORT = {
    "exclude_start_steps": Key(whole(0), default=5),
    "exclude_post_profiling_steps": Key(whole(0), default=2),
}
_REWARDS = {"constraint_failure": Key(number, default=-1.0), "metric_failure": Key(number, default=-1.0)}
_AGENT_CONFIG = {
    "random_seed": Key(whole(0), default=42),
    "start_action": Key(choice("random", "first"), default="random"),
    "rewards": Key(table(_REWARDS)),
}
_ENV_PARAM = {"weights": Key(listing(number)), "encoding": Key(anything)}
_VARIABLES = mapping(swept(text), VARIABLE)
OPTIONS = mapping(text)

# Fields that a test and a run of it in a scenario share.
SHARED = {
    "dse_excluded_args": Key(_literal),
    "extra_env_vars": Key(_VARIABLES),
    "extra_container_mounts": Key(listing(_mount)),
    "git_repos": Key(listing(table(GIT_REPOSITORY))),
    "nsys": Key(table(NSYS)),
    "agent": Key(line),
    "agent_steps": Key(whole(1)),
    "agent_metrics": Key(listing(line)),
    "agent_reward_function": Key(line),
    "agent_config": Key(table(_AGENT_CONFIG, others="free")),
}
# cmd_args is read apart, by the template's own schema.
TEST = {
    "name": Key(line, True),
    "description": Key(text, True),
    "test_template_name": Key(line, True),
    "cmd_args": Key(anything, True),
    "extra_cmd_args": Key(OPTIONS),
    **SHARED,
    "predictor": Key(table(_PREDICTOR)),
    "training_report": Key(table(_TRAINING_REPORT)),
    "env_params": Key(mapping(table(_ENV_PARAM))),
}
_DEPENDENCY = {"type": Key(choice(*DEPENDENCY_KINDS), True), "id": Key(line, True)}
RUN = {
    "id": Key(_run_id, True),
    "test_name": Key(line),
    "num_nodes": Key(swept(whole(1, 100_000))),
    "nodes": Key(listing(node_form), default=[]),
    "exclude_nodes": Key(listing(name_form), default=[]),
    "weight": Key(whole(0), default=0),
    "iterations": Key(whole(1, 10_000), default=1),
    "sol": Key(number),
    "ideal_perf": Key(number, default=1.0),
    "time_limit": Key(time_limit_form),
    "dependencies": Key(listing(table(_DEPENDENCY)), default=[]),
    "extra_srun_args": Key(_srun_text),
    "name": Key(line),
    "description": Key(text),
    "test_template_name": Key(line),
    "cmd_args": Key(anything),
    **SHARED,
}
SCENARIO = {
    "name": Key(plain_name, True),
    "sol_path": Key(line),
    "job_status_check": Key(boolean, default=True),
    "Tests": Key(listing(anything, least=1), True),
    "pre_test": Key(line),
    "post_test": Key(line),
    "reports": Key(_REPORT_TABLE, default={}),
}
