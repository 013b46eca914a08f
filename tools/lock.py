"""Compile the requirement files from pyproject.toml (`make lock`); with `--check`, report those that are out of date.

The files contain no address of a package index. `--check` needs no network: the head of each file has a digest of what
it was compiled from and of its own lines.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".venv-test/bin/uv"
PYTHON = "3.11"  # the oldest that the files are for; the same as requires-python


@dataclass(frozen=True)
class Environment:
    """A requirement file: the groups of pyproject.toml in it, and the files whose versions it must share."""

    file: str
    groups: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    project: bool = True


DEPLOY = Environment("requirements.txt", ("build",))
REHEARSAL = Environment("requirements-rehearsal.txt", ("rehearsal",), ("requirements.txt",), project=False)
TEST = Environment("requirements-dev.txt", ("build", "rehearsal", "test"), ("requirements.txt", REHEARSAL.file))
PCLUSTER = Environment("requirements-pcluster.txt", ("pcluster",), project=False)
ENVIRONMENTS = (DEPLOY, REHEARSAL, TEST, PCLUSTER)


def wanted(environment: Environment) -> list[str]:
    """The requirements of pyproject.toml that the file is compiled from."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {**pyproject["dependency-groups"], "build": pyproject["build-system"]["requires"]}
    lines = list(pyproject["project"]["dependencies"]) if environment.project else []
    return [*lines, *(line for group in environment.groups for line in groups[group])]


def digest(environment: Environment, pins: str) -> str:
    """The sha256 of what the file is compiled from and of its pins."""
    return hashlib.sha256("\n".join([*wanted(environment), *environment.constraints, pins]).encode()).hexdigest()


def parts_of(text: str) -> tuple[str, str]:
    """The digest that the head of a compiled file names, and the lines after the head."""
    head = [line for line in text.splitlines() if line.startswith("#")]
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    return head[-1].split()[-1] if head else "", "\n".join(pins)


def stale() -> list[str]:
    """The files that were not compiled from pyproject.toml as it is, or were edited since."""
    texts = {each: (ROOT / each.file).read_text(encoding="utf-8") for each in ENVIRONMENTS}
    found = {each.file: parts_of(text) for each, text in texts.items()}
    return [each.file for each in ENVIRONMENTS if found[each.file][0] != digest(each, found[each.file][1])]


def compile_file(environment: Environment) -> None:
    """Write the file anew. Versions that it has and that still fit stay as they are."""
    file = ROOT / environment.file
    command = [str(UV), "pip", "compile", "-", "--universal", "--python-version", PYTHON, "--output-file", str(file)]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"]
    command += [word for name in environment.constraints for word in ("--constraint", str(ROOT / name))]
    subprocess.run(command, input="\n".join(wanted(environment)), text=True, check=True, cwd=ROOT)
    pins = parts_of(file.read_text(encoding="utf-8"))[1]
    head = f"# Compiled by `make lock` from pyproject.toml; do not edit. sha256 {digest(environment, pins)}\n"
    file.write_text(f"{head}{pins}\n", encoding="utf-8")


def main() -> int:
    """Compile, or check; the exit code is 1 when a file is out of date."""
    if sys.argv[1:] == ["--check"]:
        for name in stale():
            print(f"{name}: not compiled from pyproject.toml as it is. Hint: make lock", file=sys.stderr)
        return 1 if stale() else 0
    for environment in ENVIRONMENTS:
        compile_file(environment)
        print(f"wrote {environment.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
