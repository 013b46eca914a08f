"""`acceptance convert`: a tree in the dialect of 2024 as one in today's, with a line for each change."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acceptance.cloudai import old
from acceptance.cloudai.load import load_tree
from acceptance.cloudai.remarks import dotted
from acceptance.cloudai.time_limit import seconds_of, slurm_time
from acceptance.cloudai.toml_file import TomlFile, read_toml
from acceptance.cloudai.toml_text import toml_text
from acceptance.errors import ExternalError, InputError
from acceptance.options import resolved
from acceptance.runner.files import new_folder, write_whole

_COPY_HINT = "is the file system of the target full or read-only? Only files, folders and links are copied"


def convert(source: Path, target: Path, image: str) -> list[str]:
    """Write the tree `source` in today's dialect to `target`, whole or not at all; return a line for each change.

    Files without a change are copied as they are. Raises InputError, before anything is written, if a file of
    `source` has an error or `target` has files.
    """
    if not source.is_dir():
        raise InputError([f"{source}: is not a folder. Hint: give the folder of CloudAI's files"])
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise InputError([f"{target}: exists and is not an empty folder. Hint: give another folder"])
    if resolved(source) in (resolved(target), *resolved(target).parents):
        raise InputError([f"{target}: is in the folder that is converted. Hint: give a folder outside it"])
    tree = load_tree([source])
    if tree.remarks.errors:
        raise InputError([remark.text() for remark in tree.remarks.errors])
    lines: list[str] = []
    with new_folder(target) as folder:
        try:
            shutil.copytree(source, folder, symlinks=True, dirs_exist_ok=True)
        except shutil.Error as error:
            path, _, reason = error.args[0][0]  # mostly the others have the same
            reason = re.sub(r"^\[Errno \d+\] ([^:]*).*", r"\1", str(reason), flags=re.DOTALL)
            raise ExternalError(f"{target}: {path}: cannot be copied: {reason}. Hint: {_COPY_HINT}") from None
        for path, kind in tree.kinds.items():
            if source in path.parents:
                below = path.relative_to(source)
                lines += _convert_file(read_toml(path), kind, target / below, folder / below, image)
    return lines


def _convert_file(file: TomlFile, kind: str, target: Path, copy: Path, image: str) -> Iterator[str]:
    """Write a file in today's dialect to `copy`, which will be `target`. A link there is replaced, not followed."""
    data, notes = old.modernise(kind, file.data, file.renamed.__setitem__, image)
    changes = [(note.path, f"{note.rule}; {_now(note.today)}") for note in notes]
    changes += list(_plain_values(kind, data))
    if not changes:
        return
    for path, words in changes:
        line, _ = file.place(path)
        yield f"{file.path}:{line}: {dotted(path)} {words}"
    if "#" in file.text:
        yield f"{target}: comments are not kept; they are in {file.path}"
    write_whole(copy, toml_text(data))


def _now(hint: str) -> str:
    return "removed" if hint.startswith("remove it") else f"now: {hint.replace('write ', '', 1)}"


def _plain_values(kind: str, data: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Give booleans, numbers of nodes and time limits their own form, where a text has them or two readings exist."""
    if kind == "system":
        for name in ("cache_docker_images_locally", "container_mount_home"):
            if isinstance(data.get(name), str):
                data[name] = data[name].lower() == "true"
                yield (name,), f"was a text; now: {name} = {str(data[name]).lower()}"
    for index, run in enumerate(data.get("Tests", ()) if kind == "scenario" else ()):
        if isinstance(run.get("num_nodes"), str):
            run["num_nodes"] = int(run["num_nodes"])
            yield ("Tests", index, "num_nodes"), f"was a text; now: num_nodes = {run['num_nodes']}"
        limit = str(run.get("time_limit", ""))
        seconds = seconds_of(limit)
        if seconds and re.fullmatch(r"\d+(:\d+)?|\d+-\d+(:\d+)?", limit.strip()):
            run["time_limit"] = slurm_time(seconds)
            words = f'= "{limit}" has another meaning elsewhere; now: time_limit = "{run["time_limit"]}"'
            yield ("Tests", index, "time_limit"), words
