"""tools/lock.py: the requirement files are those of pyproject.toml, and a change of either is noticed without network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("requirements.txt", "requirements-rehearsal.txt", "requirements-dev.txt", "requirements-pcluster.txt")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "tools/lock.py", *FILES):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def check(folder: Path) -> tuple[int, list[str]]:
    """The exit code of `tools/lock.py --check`, and the files that it names."""
    command = [sys.executable, str(folder / "tools/lock.py"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, [line.split(":")[0] for line in ended.stderr.splitlines()]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_files_of_the_repository_are_compiled_from_pyproject(copy: Path) -> None:
    assert check(copy) == (0, [])


def test_a_dependency_of_the_project_is_in_the_files_that_have_the_project(copy: Path) -> None:
    edit(copy / "pyproject.toml", '  "rich==', '  "sphinx",\n  "rich==')
    assert check(copy) == (1, ["requirements.txt", "requirements-dev.txt"])


def test_a_dependency_of_a_group_is_in_the_files_of_the_group(copy: Path) -> None:
    edit(copy / "pyproject.toml", '  "cfn-lint==', '  "sphinx",\n  "cfn-lint==')
    assert check(copy) == (1, ["requirements-rehearsal.txt", "requirements-dev.txt"])


def test_an_edited_file_is_noticed(copy: Path) -> None:
    edit(copy / "requirements-pcluster.txt", "boto3==", "boto3==9")
    assert check(copy) == (1, ["requirements-pcluster.txt"])


def test_a_package_has_one_version_in_the_environments_of_slipway() -> None:
    versions: dict[str, set[str]] = {}
    for name in FILES[:3]:
        for package, version in re.findall(r"^([^#\s=]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE):
            versions.setdefault(package, set()).add(version)
    assert len(versions) > 80
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_an_index(name: str) -> None:
    assert re.findall(r"://|^--", (ROOT / name).read_text("utf-8"), re.MULTILINE) == []
