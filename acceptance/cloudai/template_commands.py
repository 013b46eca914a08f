"""What the job of each template runs.

Source: the command_gen_strategy modules of github.com/NVIDIA/cloudai at 5b5c0f72, src/cloudai/workloads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.cloudai.hostlist import Nodes
from acceptance.cloudai.shell import word, words
from acceptance.cloudai.templates import TEMPLATES
from acceptance.scenario.runs import TestDefinition

INSTALLED, RESULTS = "/cloudai_install", "/cloudai_run_results"  # where these folders are mounted in a container


class CommandError(Exception):
    """No command can be generated for these arguments."""


@dataclass(frozen=True)
class Job:
    """One job's facts for its command. system: the values of the system's file, with absolute paths."""

    test: TestDefinition
    system: Mapping[str, Any]
    nodes: Nodes
    directory: Path

    @property
    def variables(self) -> dict[str, str]:
        """The variables of system and test; the test's win."""
        return {**self.system["global_env_vars"], **self.test.environment}


@dataclass(frozen=True)
class Command:
    """The main step of a job. text: what the shell of each task runs, without nsys.

    image: None runs it on the host. in_script: it runs in the batch script itself, without srun. options: further
    ones of srun. mpi: None takes the system's; alone: one task without MPI. before: lines of the script before the
    step. files: written next to the script. container: the option that names the container, where it is not the image.
    """

    text: str
    image: str | None = None
    in_script: bool = False
    options: tuple[str, ...] = ()
    mpi: str | None = None
    alone: bool = False
    mounts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    container: str | None = None
    by_launcher: bool = False  # the text is a program of the head node that submits a job itself


def option_words(test: TestDefinition) -> list[str]:
    """Return `extra_cmd_args` as words: an empty value is a flag."""
    separate = "own" in test.other or TEMPLATES[test.template].separate_values
    result: list[str] = []
    for name, value in test.options.items():
        result += [name] if value == "" else [name, value] if separate else [f"{name}={value}"]
    return result


def image_of(job: Job, url: str) -> str:
    """Return an image for pyxis: a file, the cached file in install_path, or enroot's form of the address.

    enroot before 4.0 takes the first part of an address for the registry only if `#` follows it.
    """
    if url.startswith(("/", ".")):
        return url
    if job.system["cache_docker_images_locally"]:
        return f"{job.system['install_path']}/{cached_name(url)}"
    return re.sub(r"^([^/#]+[.:][^/#]*|localhost)/", r"\1#", url)


def cached_name(url: str) -> str:
    """Return the file name of a cached image, as CloudAI builds it: nvcr.io_nvidia__pytorch__24.02-py3.sqsh."""
    name = url.split("://", 1)[-1]
    match = re.fullmatch(r"(.*):([^/:]*)", name)
    name, tag = (match[1], match[2]) if match else (name, "notag")
    *folders, last = name.split("/")
    return "_".join(folders).replace("#", "_") + f"__{last}__{tag}.sqsh" if folders else f"{last}__{tag}.sqsh"


def shared_name(url: str) -> str:
    """Return the file name that the head node's importer gives an image (headnode/containers/images.py, `Image`)."""
    return re.sub("[:@]", "-", re.sub("[/#]", "_", url.split("://", 1)[-1])) + ".sqsh"


def _nccl(job: Job) -> Command:
    arguments, program = job.test.arguments, job.test.arguments["subtest_name"]
    # A program without `_mpi` in its name runs in one process; one that is named by its path is built as the image is.
    alone = not program.endswith("_mpi") and not program.startswith("/")
    skipped = {"docker_image_url", "subtest_name", "use_deepep_matrix", "alltoallv_matrix_container_path", "min_busbw"}
    parts = [program]
    if program == "alltoallv_perf_mpi":
        parts = ["/opt/nccl-tests/build/alltoallv_perf"]
    for name, value in arguments.items():
        if name in skipped or value is None:
            continue
        option = "-g" if name == "ngpus" and alone else f"--{name}" if len(name) > 1 else f"-{name}"
        parts += [option, str(int(value) if isinstance(value, bool) else value)]
    parts += option_words(job.test)
    return Command(words(parts), image_of(job, arguments["docker_image_url"]), alone=alone)


def _container(job: Job) -> Command:
    arguments = job.test.arguments
    text = " ".join([arguments["cmd"], *map(word, option_words(job.test))])
    options = tuple(job.test.other.get("extra_srun_args", ()))
    return Command(text, image_of(job, arguments["docker_image_url"]), options=options)


def _bash(job: Job) -> Command:
    return Command(job.test.arguments["cmd"], in_script=True)


def _sleep(job: Job) -> Command:
    return Command(f"sleep {job.test.arguments['seconds']}")


def _ucc(job: Job) -> Command:
    arguments = job.test.arguments
    parts = ["/opt/hpcx/ucc/bin/ucc_perftest", "-c", arguments["collective"], "-b", arguments["b"]]
    parts += ["-e", arguments["e"]]
    parts += ["--gen", arguments["gen"]] if arguments.get("gen") else []
    parts += ["-m", "cuda", "-F", *option_words(job.test)]
    return Command(words(parts), image_of(job, arguments["docker_image_url"]))


def _chakra(job: Job) -> Command:
    arguments = job.test.arguments
    known = ("docker_image_url", "mpi", "trace_type", "trace_path", "num_replays")
    path = arguments.get("trace_path")
    if not path:
        raise CommandError("cmd_args.trace_path is missing: the folder of the traces")
    parts = ["comm_replay", "--trace-type", arguments["trace_type"], "--trace-path", path]
    parts += ["--num-replays", arguments["num_replays"]]
    for name, value in arguments.items():
        if name not in known:
            parts += [f"--{name.replace('_', '-')}", value]
    image = image_of(job, arguments["docker_image_url"])
    return Command(words([*parts, *option_words(job.test)]), image, mounts=(f"{path}:{path}",))


SIMPLE: dict[str, Callable[[Job], Command]] = {
    "NcclTest": _nccl,
    "SlurmContainer": _container,
    "BashCmd": _bash,
    "Sleep": _sleep,
    "UCCTest": _ucc,
    "ChakraReplay": _chakra,
}
