"""Whether a CloudAI scenario fits the cluster of the settings: its nodes, partitions, containers and times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.settings.model import FSX_MOUNT, Queue, Settings
from slipway.settings.scenario import Remark

if TYPE_CHECKING:
    from acceptance.scenario.runs import TestRun, TestScenario

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)  # of a scenario: it begins the name of the run's directory
PARTITION = re.compile(r"(?:^|\s)(?:--partition(?:=|\s+)|-p\s*)(\S+)")


def cloudai_system(settings: Settings, queue: Queue) -> str:
    """Return the text of CloudAI's system file of the cluster; `queue` is the default partition."""
    from acceptance.cloudai.toml_text import toml_text

    return toml_text(
        {
            "name": settings.name,
            "scheduler": "slurm",
            "install_path": f"{FSX_MOUNT}/cloudai/install",
            "output_path": f"{FSX_MOUNT}/cloudai/results",
            "default_partition": queue.name,
            "mpi": "pmix",
            "gpus_per_node": queue.instance.gpus,
            "ntasks_per_node": queue.instance.gpus,
            "partitions": [{"name": one.name} for one in settings.queues],
        }
    )


def misfits(scenario: TestScenario, settings: Settings, queue: Queue) -> Iterator[Remark]:
    """Yield what no job of `queue`, where the scenario runs, can have: nodes, partitions, containers."""
    found = list(_wrong_runs(scenario, settings, queue))
    yield from found or _wrong_plan(scenario, settings, queue)


def _wrong_runs(scenario: TestScenario, settings: Settings, queue: Queue) -> Iterator[Remark]:
    if not NAME.fullmatch(scenario.name):
        yield f"the scenario's name is {scenario.name!r}", "take letters, digits, '.', '_' and '-'"
    for run in scenario.runs:
        for text, hint in (*_wrong_nodes(run, queue), *_wrong_options(run, settings, queue)):
            yield f"{run.id} {text}", hint


def _wrong_plan(scenario: TestScenario, settings: Settings, queue: Queue) -> Iterator[Remark]:
    """What `acceptance dry-run` refuses: hooks with more nodes than a test, arguments that are not started here."""
    from acceptance.cloudai.load import read_system
    from acceptance.cloudai.plan import make_plan
    from acceptance.cloudai.remarks import Remarks
    from acceptance.cloudai.toml_file import TomlFile
    from acceptance.errors import InputError

    system = read_system(TomlFile(Path("system.toml"), cloudai_system(settings, queue)), Remarks())
    try:
        if system:
            make_plan(scenario, system, Path(FSX_MOUNT), "")
    except InputError as error:
        for fault in error.faults:
            text, _, hint = fault.removeprefix(f"{scenario.name}: ").partition(". Hint: ")
            yield text, hint


def has_pyxis(settings: Settings) -> bool:
    """Whether `srun --container-image` works on the nodes."""
    return settings.containers.pyxis and settings.containers.format != "apptainer"


def _wrong_options(run: TestRun, settings: Settings, queue: Queue) -> Iterator[Remark]:
    for name in PARTITION.findall(run.srun_arguments):
        if name != queue.name:
            text = f"has the partition {name} in extra_srun_args, and its job is in {queue.name}"
            yield text, f"leave it out: {queue.name} is the first queue with GPUs"
    image = run.test.arguments.get("docker_image_url")
    if image and not has_pyxis(settings):
        yield f"runs in the image {image}, and no node has pyxis", "set containers.pyxis: true, format: enroot"


def _wrong_nodes(run: TestRun, queue: Queue) -> Iterator[Remark]:
    from acceptance.cloudai.hostlist import GROUP, expand
    from acceptance.cloudai.plan import node_count

    count = max(run.counts, default=node_count(run))
    if not run.nodes and count > queue.max_count:
        yield f"needs {count} nodes, and queue {queue.name} has {queue.max_count}", f"take {queue.max_count} at most"
    known = {f"{queue.name}-{kind}-{number}" for kind, most in _kinds(queue) for number in range(1, most + 1)}
    for expression in run.nodes:
        if group := GROUP.fullmatch(expression):
            known_as = "the cluster has no groups" if group[1] == queue.name else f"its partition is {queue.name}"
            yield f"asks for {expression}, and {known_as}", f"write num_nodes, {queue.max_count} at most"
        elif unknown := [name for name in expand(expression) if name not in known]:
            there = ", ".join(f"{queue.name}-{kind}-[1-{most}]" for kind, most in _kinds(queue) if most)
            yield f"names {unknown[0]}, which is not a node of queue {queue.name}", f"its nodes are {there}"


def _kinds(queue: Queue) -> tuple[tuple[str, int], ...]:
    """ParallelCluster's words in the names of static and of dynamic nodes, with their number."""
    resource = queue.instance.compute_resource
    return (f"st-{resource}", queue.min_count), (f"dy-{resource}", queue.max_count - queue.min_count)


def longest_s(scenario: TestScenario) -> int:
    """Return the longest time, in seconds, that the time limits allow from the first job to the end of the last."""
    from acceptance.cloudai.graph import submission_order
    from acceptance.cloudai.sweep import point_count

    ends: dict[str, int] = {}
    for run in submission_order(scenario.runs):
        before = [ends[one.id] for one in run.dependencies if one.kind == "start_post_comp"]
        ends[run.id] = max(before, default=0) + (run.time_limit_s or 0) * run.iterations * point_count(run)
    return max(ends.values(), default=0)
