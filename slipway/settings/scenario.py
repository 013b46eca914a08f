"""The CloudAI scenario that `acceptance.scenario` names: read, checked, and the files of it that go to the cluster.

The same code reads it as for `acceptance verify-configs`, which is imported only where the settings name a scenario.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.settings.model import FSX_MOUNT, Settings

if TYPE_CHECKING:
    from acceptance.cloudai.load import Tree
    from acceptance.cloudai.remarks import Remark as Line
    from acceptance.scenario.runs import TestScenario

Remark = tuple[str, str]
"""What is wrong, with file and line, and the repair."""


@dataclasses.dataclass(frozen=True)
class UserScenario:
    """A scenario of this machine. files: their content by name, in the folders `test_scenario`, `test` and `hook`.

    scenario: None if there are errors. Files are named in remarks as they are reached from the settings file.
    """

    file: str
    files: Mapping[str, bytes]
    errors: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()
    scenario: TestScenario | None = None

    @property
    def sha256(self) -> str:
        """Of all files with their names."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


def on_cluster(settings: Settings) -> bool:
    """Whether the scenario is a file of the cluster, which nothing here can read."""
    return os.path.normpath(settings.acceptance.scenario).startswith(f"{FSX_MOUNT}/")


def read_user_scenario(settings: Settings) -> UserScenario | None:
    """Read the scenario that the settings name, with its tests and hooks. None without one on this machine."""
    path = settings.scenario_file
    if path is None or on_cluster(settings):
        return None
    from acceptance.cloudai.load import Tree, folders_of, load_tree
    from acceptance.errors import InputError

    tests, hooks = folders_of(path)
    try:
        tree = load_tree([path], tests if tests.is_dir() else None, hooks, default_hooks=False)
    except InputError as error:
        tree = Tree()
        for fault in error.faults:
            tree.remarks.add_unreadable(fault)
    errors = _shown(tree.relevant(tree.remarks.errors, path), settings)
    if tree.kinds.get(path, "scenario") != "scenario":
        errors += ((f"{_from(settings, path)}: is a {tree.kinds[path]}", "name a file with [[Tests]]"),)
    for used in map(Path, sorted(tree.used)):
        if not used.name.isprintable():  # such as one that is not UTF-8
            errors += ((f"{_from(settings, used.parent)}/{used.name!r}: no archive can hold this name", "rename it"),)
    return UserScenario(
        path.name,
        _files(tree, path, hooks),
        errors,
        _shown(tree.relevant(tree.remarks.warnings, path), settings),
        None if errors else tree.scenarios[0][1],
    )


def _shown(lines: Iterable[Line], settings: Settings) -> tuple[Remark, ...]:
    """Each remark as text and hint, with its file as it is reached from the settings file."""
    here = ((dataclasses.replace(line, file=_from(settings, Path(line.file)), warning=False)) for line in lines)
    return tuple((line.text().removesuffix(f". Hint: {line.hint}"), line.hint) for line in here)


def _from(settings: Settings, path: Path) -> str:
    return str(path) if Path(settings.acceptance.scenario).is_absolute() else os.path.relpath(path, settings.folder)


def _files(tree: Tree, path: Path, hooks: Path | None) -> dict[str, bytes]:
    """The files that the scenario needs, in CloudAI's layout."""
    files = {}
    for used in map(Path, sorted(tree.used)):
        if used == path:
            folder = "test_scenario"
        elif hooks and used.is_relative_to(hooks):
            folder = f"hook/{used.parent.relative_to(hooks)}".removesuffix("/.")
        else:
            folder = "test"
        files[f"{folder}/{used.name}"] = tree.files[used].text.encode()  # not read again: what was checked travels
    return files
