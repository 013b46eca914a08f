"""Writing the job scripts from the templates in this package. Every value is checked first, and quoted."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from acceptance.runner.slurm import Node
from acceptance.scenario.model import Scenario, Test

BUILD_DIRECTORIES = (
    "/opt/nccl-tests/build",
    "/opt/amazon/nccl-tests/build",
    "/opt/nccl-tests",
    "/usr/local/nccl-tests/build",
    "/fsx/nccl/current/nccl-tests",
    "/fsx/nccl/current/nccl-tests/build",
)
FINDER = "run-nccl-tests.sh"  # starts one rank inside a container
_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "^docker,lo,veth"}
# Exit codes of the job script for a measurement that did not start.
NOT_IN_CONTAINER, NOT_RUNNABLE, NOT_FOUND = 125, 126, 127
TIMED_OUT = (124, 137)  # of `timeout`: ended, killed
KILL_AFTER_S = 10  # seconds between asking a hung measurement to end and killing it


def slurm_minutes(seconds: int) -> int:
    """Slurm's own time limit, in minutes, for a job of `seconds`: late enough for the script's bound to come first."""
    return math.ceil(seconds / 60) + 1


def sweep_arguments(test: Test) -> str:
    """The options of nccl-tests for a test's sizes; -g 1: one GPU a rank, -c 1: the data are checked once."""
    arguments = ["-b", test.min_bytes, "-e", test.max_bytes, "-f", test.step_factor, "-g", 1]
    arguments += ["-n", test.iterations, "-w", test.warmup_iterations, "-c", 1]
    return shlex.join(map(str, arguments))


def environment(scenario: Scenario) -> list[tuple[str, str]]:
    """The variables that the measurement runs with; the scenario's own come last and win."""
    return sorted({**_ENVIRONMENT, **dict(scenario.environment)}.items())


def job_name(directory: Path, what: str) -> str:
    """The name of a job of this run; unique, so a resumed run finds the job of a runner that was killed."""
    return f"acceptance-{what}-{directory.name}"


def common_values(scenario: Scenario, nodes: list[Node], collective: str, directory: Path) -> dict[str, Any]:
    """What the templates need. GPUs are asked for only if every node has them as a resource of Slurm's.

    directory: the run's; in a container it is mounted, with the script that finds the program there.
    """
    has_gpus = bool(nodes) and all("gpu" in node.gres for node in nodes)
    return {
        "cluster": scenario.cluster,
        "partition": scenario.partition,
        "ranks_per_node": scenario.gpus_per_node,
        "gres": f"gpu:{scenario.gpus_per_node}" if has_gpus else "",
        "environment": environment(scenario),
        "binary": f"{collective}_perf",
        "directories": list(scenario.nccl_tests_paths) + list(BUILD_DIRECTORIES),
        "mpi": scenario.mpi,
        "container": scenario.container,
        "mounts": ",".join([*scenario.container.mounts, f"{directory}:{directory}"]) if scenario.container else "",
        "finder": str(directory / FINDER),
        "kill_after_s": KILL_AFTER_S,
    }


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill one of the templates of this package; a value that a template lacks is an error."""
    import jinja2  # here, so that bench/locate runs with the standard library alone

    environment = jinja2.Environment(  # noqa: S701 - the output is a shell script: values pass `quote`, not HTML escapes
        loader=jinja2.FunctionLoader(source),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    return environment.get_template(template).render(values)


def source(name: str) -> str:
    """A file of this package."""
    return files("acceptance.runner").joinpath(name).read_text("utf-8")
