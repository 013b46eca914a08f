"""The dialect of the guide of 2024: its fields in head's spelling, each change with a note.

Head refuses these fields; here they are read with a warning, and `acceptance convert` writes what this module returns.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acceptance.cloudai.remarks import NO_VALUE, Spot
from acceptance.cloudai.templates import NCCL_IMAGE_2024
from acceptance.cloudai.toml_file import Key

_WORKER = {
    "prefill": ("python3 -m dynamo.vllm --is-prefill-worker", "VllmWorker.*has.been.initialized"),
    "decode": ("python3 -m dynamo.vllm", "VllmWorker.*has.been.initialized"),
}
_WORKLOAD_KEYS = ("name", "cmd", "report_name", "report-name", "repo", "args", "extra_args", "extra-args", "script")


@dataclass(frozen=True)
class Note:
    """One old field: its path in the file, its value, what it was, and its spelling of today."""

    path: Key
    value: Any
    rule: str
    today: str


Renamed = Callable[[Key, Key], None]  # a path of today, and the path in the file


def modernise(
    kind: str, data: dict[str, Any], renamed: Renamed, image: str = NCCL_IMAGE_2024
) -> tuple[Any, list[Note]]:
    """Return a file's data in head's spelling, and what was changed. kind: system, test or scenario.

    image: of NcclTest, whose tests named none in 2024.
    """
    data = copy.deepcopy(data)
    notes: list[Note] = []
    if kind == "system":
        _system(data, notes, renamed)
    elif kind == "test":
        _test(data, (), notes, image)
    elif isinstance(data.get("Tests"), list):
        for index, run in enumerate(data["Tests"]):
            if isinstance(run, dict):
                _run(run, ("Tests", index), notes, image)
    return data, notes


def warn(notes: list[Note], spot: Spot) -> None:
    """Make each note a warning."""
    for note in notes:
        spot.at(*note.path).warn(note.value, note.rule, note.today)


def _system(data: dict[str, Any], notes: list[Note], renamed: Renamed) -> None:
    partitions = data.get("partitions")
    if isinstance(partitions, dict) and all(isinstance(one, dict) for one in partitions.values()):
        rule = "is a table of tables, the form of 2024"
        notes.append(Note(("partitions",), list(partitions), rule, "write each as [[partitions]] with its name"))
        data["partitions"] = _as_list(partitions, ("partitions",), renamed)
    for index, partition in enumerate(data["partitions"] if isinstance(data.get("partitions"), list) else ()):
        if not isinstance(partition, dict):
            continue
        path = ("partitions", index)
        if "nodes" in partition:
            rule = "is a field of 2024: Slurm itself knows the nodes of a partition"
            notes.append(Note((*path, "nodes"), partition.pop("nodes"), rule, "remove it, or name nodes as a group"))
        groups = partition.get("groups")
        if isinstance(groups, dict) and all(isinstance(one, dict) for one in groups.values()):
            rule = "is a table of tables, the form of 2024"
            notes.append(
                Note((*path, "groups"), list(groups), rule, "write each as [[partitions.groups]] with its name")
            )
            partition["groups"] = _as_list(groups, (*path, "groups"), renamed)


def _as_list(tables: dict[str, Any], path: Key, renamed: Renamed) -> list[dict[str, Any]]:
    for index, name in enumerate(tables):
        renamed((*path, index), (*path, name))
    return [{"name": name, **entry} for name, entry in tables.items()]


def _test(test: dict[str, Any], path: Key, notes: list[Note], image: str) -> None:
    options = test.get("extra_cmd_args")
    if isinstance(options, str):
        changed = _as_options(options)
        if changed is not None:
            lines = ", ".join(f'"{name}" = "{value}"' for name, value in changed.items())
            rule = "is a text, the form of 2024"
            notes.append(Note((*path, "extra_cmd_args"), options, rule, f"write [extra_cmd_args] {lines}"))
            test["extra_cmd_args"] = changed
    arguments = test.get("cmd_args")
    if not isinstance(arguments, dict):
        return
    template = test.get("test_template_name")
    if template == "NcclTest" and "docker_image_url" not in arguments:
        rule = "has no docker_image_url, which NcclTest needs since 2025"
        hint = f'write docker_image_url = "{image}", the image of 2024, or another one'
        notes.append(Note((*path, "cmd_args"), NO_VALUE, rule, hint))
        test["cmd_args"] = {"docker_image_url": image, **arguments}
    if template == "AIDynamo":
        _dynamo(arguments, (*path, "cmd_args"), notes)


def _as_options(text: str) -> dict[str, str] | None:
    """Return `--a 1 --b` as a table; None if the text is no list of options."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    options: dict[str, str] = {}
    last = None
    for word in words:
        if word.startswith("-"):
            last, _, value = word.partition("=")
            options[last] = value
        elif last is None or options[last]:
            return None
        else:
            options[last] = word
    return options


def _dynamo(arguments: dict[str, Any], path: Key, notes: list[Note]) -> None:
    dynamo = arguments.get("dynamo")
    if isinstance(dynamo, dict):
        for role, (command, ready) in _WORKER.items():
            old = f"num_{role}_nodes"
            if old in dynamo:
                rule = "is a field of 2024"
                hint = f"write [cmd_args.dynamo.{role}_worker] num_nodes = {dynamo[old]}"
                notes.append(Note((*path, "dynamo", old), dynamo[old], rule, hint))
                worker = dynamo.setdefault(f"{role}_worker", {"cmd": command, "worker_initialized_regex": ready})
                worker["num_nodes"] = dynamo.pop(old)
    workload = arguments.get("genai_perf")
    if not isinstance(workload, dict):
        return
    for name in [name for name in workload if name not in _WORKLOAD_KEYS]:
        value = workload.pop(name)
        moved = {"served_model_name": "model", "endpoint": "endpoint"}.get(name)
        if moved and isinstance(dynamo, dict):
            dynamo.setdefault(moved, value)
            today = f"write [cmd_args.dynamo] {moved} = {value!r}"
        else:
            workload.setdefault("args", {})[name.replace("_", "-")] = value
            today = f"write [cmd_args.genai_perf.args] {name.replace('_', '-')} = {value!r}"
        notes.append(Note((*path, "genai_perf", name), value, "is at a place of 2024", today))


def _run(run: dict[str, Any], path: Key, notes: list[Note], image: str) -> None:
    if "templat_test" in run and "test_name" not in run:
        value = run.pop("templat_test")
        run["test_name"] = value
        notes.append(Note((*path, "templat_test"), value, "is the guide's old name", "write test_name"))
    for index, dependency in enumerate(run["dependencies"] if isinstance(run.get("dependencies"), list) else ()):
        for name in ("time", "delay"):
            if isinstance(dependency, dict) and name in dependency:
                rule = "is a field of 2024; a dependency has no delay"
                value = dependency.pop(name)
                notes.append(Note((*path, "dependencies", index, name), value, rule, "remove it"))
    if run.get("test_template_name"):
        _test(run, path, notes, image)
