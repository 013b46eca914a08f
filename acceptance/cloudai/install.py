"""What the tests of a scenario need in `install_path`: images, repositories, environments and CloudAI's own programs.

Each piece is made under another name and renamed, so that a killed `install` leaves nothing half-made under the final
name, the next one goes on, and two at once end the same. `.slipway/PIECE.json` in `install_path` records each piece
before it is made: `uninstall` removes these and no others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceptance.cloudai.dynamo import REPOSITORY as DYNAMO_REPOSITORY
from acceptance.cloudai.nemo import RUN_SCRIPT, repository_name
from acceptance.cloudai.template_commands import cached_name, shared_name
from acceptance.cloudai.templates import LAUNCHER_REPOSITORY
from acceptance.errors import ExternalError, InputError
from acceptance.programs import call
from acceptance.runner.files import hidden_name, new_folder, remove_dead, remove_folder, write_whole
from acceptance.scenario.runs import TestDefinition
from acceptance.text import plural, without_password

IMPORTER = Path("/opt/slipway/current/headnode/user/download-ngc-containers.sh")
SHARED_IMAGES = Path("/fsx/containers")  # images that the cluster's own list imported
RECORDS = ".slipway"
# The version of CloudAI that this package was compared with; its programs of NeMoRun and AIDynamo are taken from it.
CLOUDAI = {"url": "https://github.com/NVIDIA/cloudai.git", "commit": "5b5c0f72"}
_PROGRAMS = {
    "NeMoRun": {RUN_SCRIPT: f"src/cloudai/workloads/nemo_run/{RUN_SCRIPT}"},
    "AIDynamo": {
        name: f"src/cloudai/workloads/ai_dynamo/{name}" for name in ("ai_dynamo.sh", "genai_perf.sh", "aiperf.sh")
    },
}
_WORKLOADS = ("genai_perf", "aiperf", "aiperf_phases")
_LONGEST_NAME = 240  # bytes: a file's name has 255, and the records have an ending
_GIT_S, _PIP_S = 1800, 3600  # longest time of one command of git, and of one of pip
_GIT = ("git", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=300", "-c", "advice.detachedHead=false")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Piece:
    """One thing in `install_path`. kind: image, repository, environment or program; name: its path there.

    source: the image's address, the repository's URL, or the path of the program in the repository. within: the name
    of the repository that an environment or a program is of.
    """

    kind: str
    name: str
    source: str
    commit: str = ""
    submodules: bool = False
    within: str = ""

    def text(self) -> str:
        """Return what a message calls it; no password is in it."""
        return f"{self.kind} {without_password(self.source)}" + (f" at {self.commit}" if self.commit else "")


def pieces_of(tests: Iterable[TestDefinition], system: Mapping[str, Any]) -> list[Piece]:
    """Return what the tests need, each piece once, after those that it is made from. Raises InputError."""
    pieces: dict[str, Piece] = {}
    faults: list[str] = []
    for test in tests:
        for piece in _needs(test, cached=bool(system.get("cache_docker_images_locally"))):
            before = pieces.setdefault(piece.name, piece)
            if before != piece:
                rule = f"{piece.text()} and {before.text()} have one place in install_path: {piece.name}"
                faults.append(f"{test.name}: {rule}. Hint: give one of them another commit, or installed_path")
            if any(len(part.encode()) > _LONGEST_NAME for part in piece.name.split("/")):
                rule = f"its name in install_path would be longer than {_LONGEST_NAME} bytes"
                faults.append(f"{test.name}: {piece.text()}: {rule}. Hint: is the address right?")
            if piece.kind == "repository" and not _usable(piece):
                rule = "must not begin with '-' and must have no empty part, '.' and '..': it names a folder"
                whose = f"commit {piece.commit!r} of {without_password(piece.source)}"
                faults.append(f"{test.name}: {whose}: {rule}. Hint: correct it")
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return list(pieces.values())


def _usable(piece: Piece) -> bool:
    parts = piece.name.split("/") + piece.commit.split("/")
    return not piece.commit.startswith("-") and not {"", ".", ".."} & set(parts)


def _needs(test: TestDefinition, cached: bool) -> Iterator[Piece]:
    for name in ("docker_image_url", "startup_cmd_docker_image") if cached else ():
        url = test.arguments.get(name)
        if isinstance(url, str) and not url.startswith(("/", ".")):
            yield Piece("image", cached_name(url), url)
    for repository in test.repositories:
        if not repository.get("installed_path"):
            yield _repository(repository)
    if test.template == "NeMoLauncher":
        launcher = _repository(test.other.get("launcher_repo") or LAUNCHER_REPOSITORY)
        yield launcher
        yield Piece("environment", f"{launcher.name}-venv", f"of {launcher.name}", within=launcher.name)
    if test.template == "AIDynamo":
        yield _repository(test.other.get("repo") or DYNAMO_REPOSITORY)
        yield from map(_repository, _workload_repositories(test.arguments))
    for name, path in _PROGRAMS.get(test.template, {}).items():
        cloudai = _repository(CLOUDAI)
        yield cloudai
        yield Piece("program", name, path, within=cloudai.name)


def _workload_repositories(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in _WORKLOADS:
        tables = arguments.get(name) or []
        for table in [tables] if isinstance(tables, dict) else tables:
            if table.get("repo"):
                yield table["repo"]


def _repository(repository: Mapping[str, Any]) -> Piece:
    submodules = bool(repository.get("init_submodules"))
    return Piece("repository", repository_name(repository), repository["url"], repository["commit"], submodules)


def not_installed(pieces: Iterable[Piece], folder: Path) -> list[Piece]:
    """Return the pieces that `install_path` has not."""
    return [piece for piece in pieces if not (folder / piece.name).exists()]


def install(pieces: Sequence[Piece], folder: Path, say: Say) -> None:
    """Make the pieces that are missing. Raises ExternalError with every fault, after all pieces were tried."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_dead(folder)
    missing = not_installed(pieces, folder)
    for piece in pieces:
        if piece not in missing:
            say(f"{piece.text()}: is there: {folder / piece.name}")
    faults = _install_images([piece for piece in missing if piece.kind == "image"], folder)
    for piece in missing:
        try:
            if piece.kind != "image":
                _make(piece, folder)
            if (folder / piece.name).exists():
                say(f"{piece.text()}: installed: {folder / piece.name}")
        except InputError:  # another install was faster
            say(f"{piece.text()}: is there: {folder / piece.name}")
        except ExternalError as fault:
            faults.append(f"{piece.text()}: {fault}")
    if faults:
        raise ExternalError("\n".join([*faults, f"{folder}: {plural(len(faults), 'piece')} not installed"]))


def _make(piece: Piece, folder: Path) -> None:
    """Make a piece that is no image."""
    _record(piece, folder)
    try:
        _MAKERS[piece.kind](piece, folder)
    except ExternalError:
        _forget(piece, folder)
        raise
    _record(piece, folder)  # again: another install that failed may have removed it


def _record(piece: Piece, folder: Path, **more: Any) -> None:
    path = _record_of(piece, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {**asdict(piece), "source": without_password(piece.source), **more}
    write_whole(path, json.dumps(values) + "\n")


def _forget(piece: Piece, folder: Path) -> None:
    """Remove the record of a piece that could not be made: what comes to its place later is the user's."""
    with suppress(FileNotFoundError):
        _record_of(piece, folder).unlink()


def _record_of(piece: Piece, folder: Path) -> Path:
    return folder / RECORDS / f"{piece.name}.json"


# ---------------------------------------------------------------------------------------------------------- images


def _install_images(pieces: Sequence[Piece], folder: Path) -> list[str]:
    """Link the images that the cluster has, import the others; return the faults."""
    imported = []
    for piece in pieces:
        name = shared_name(piece.source)
        shared = SHARED_IMAGES / name
        made = not shared.is_file() and not (folder / name).exists()  # not a file that a user put there
        _record(piece, folder, imported=made or _imported(_record_of(piece, folder)))
        if shared.is_file():
            _link(folder / piece.name, str(shared))
        else:
            imported.append(piece)
    if not imported:
        return []
    try:
        _import(imported, folder)
    except ExternalError as fault:
        for piece in imported:
            _forget(piece, folder)
        return [str(fault)]
    faults = []
    for piece in imported:
        name = shared_name(piece.source)
        if (folder / name).is_file():
            _link(folder / piece.name, name)
        else:
            _forget(piece, folder)
            rule = "was not imported; the reason is in the lines of the importer above"
            faults.append(f"{piece.text()}: {rule}. Hint: repair it, and run install again: it goes on")
    return faults


def _import(pieces: Sequence[Piece], folder: Path) -> None:
    """Run the importer once for all images; it prints its progress. Raises ExternalError if it cannot be run."""
    if not IMPORTER.is_file():
        rule = "is not there, and it imports the images"
        raise ExternalError(f"{IMPORTER}: {rule}. Hint: run install on the head node of a cluster of Slipway")
    with tempfile.NamedTemporaryFile("w", prefix="acceptance-images-", suffix=".txt", encoding="utf-8") as images:
        images.writelines(f"docker://{piece.source.split('://', 1)[-1]}\n" for piece in pieces)
        images.flush()
        argv = ["bash", str(IMPORTER), "--format", "enroot", "--into", str(folder), images.name]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        try:
            process.wait()  # the importer bounds each of its tries
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _link(path: Path, target: str) -> None:
    """Make a symbolic link in the place of one that leads nowhere; a file that appeared meanwhile stays."""
    if path.exists():
        return
    part = hidden_name(path.parent)
    part.symlink_to(target)
    part.replace(path)


# ------------------------------------------------------------------------------------- repositories and what is of them


def _clone(piece: Piece, folder: Path) -> None:
    with new_folder(_free(folder / piece.name)) as part:
        _git("clone", "--quiet", "--", piece.source, str(part))
        _git("-C", str(part), "checkout", "--quiet", piece.commit, "--")  # with `--` no file's name is a commit
        if piece.submodules:
            _git("-C", str(part), "submodule", "--quiet", "update", "--init", "--recursive")


def _free(path: Path) -> Path:
    """Return a path whose place is free. Raises ExternalError for a link: what it names is outside install_path."""
    if path.is_symlink() and not path.exists():
        raise ExternalError(f"{path}: is a link to {path.readlink()}, and nothing is there. Hint: remove the link")
    return path


def _git(*arguments: str) -> None:
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    hint = "Hint: try the command by hand; a private repository needs credentials that git finds without a question"
    missing = ". Hint: install git"
    call(
        [*_GIT, *arguments],
        _GIT_S,
        missing,
        hint,
        {**quiet, **os.environ},
        what=without_password(f"git {' '.join(arguments)}"),
    )


def _environment(piece: Piece, folder: Path) -> None:
    """A Python environment with what the repository requires. Only its python is used: pip's scripts name their path.

    Source: slurm_installer.py of CloudAI: requirements.txt, else pyproject.toml.
    """
    repository = folder / piece.within
    if not repository.exists():
        raise ExternalError(f"needs {repository}, which is not installed")
    requirements = repository / "requirements.txt"
    wanted = ["-r", str(requirements)] if requirements.is_file() else [str(repository)]
    with new_folder(_free(folder / piece.name)) as part:
        hint = "Hint: try the command by hand; Debian and Ubuntu need the package python3-venv"
        call([sys.executable, "-m", "venv", str(part)], _PIP_S, "", hint)
        command = [str(part / "bin/python"), "-m", "pip", "install", "--quiet", "--no-input", *wanted]
        call(command, _PIP_S, "", "Hint: does this machine reach its package index?", what=" ".join(command))


def _program(piece: Piece, folder: Path) -> None:
    """A program of CloudAI's repository, as a link: containers see both in the mounted folder."""
    source = folder / piece.within / piece.source
    if not source.is_file():
        raise ExternalError(f"{source}: does not exist. Hint: remove {folder / piece.within}, and run install again")
    _link(folder / piece.name, f"{piece.within}/{piece.source}")


_MAKERS: Mapping[str, Callable[[Piece, Path], None]] = {
    "repository": _clone,
    "environment": _environment,
    "program": _program,
}

# ----------------------------------------------------------------------------------------------------------- uninstall


def uninstall(pieces: Sequence[Piece], folder: Path, say: Say) -> None:
    """Remove the pieces that `install` recorded, the last first. Raises OSError."""
    for piece in reversed(pieces):
        path, record = folder / piece.name, _record_of(piece, folder)
        if not record.is_file():
            state = "is there, but install did not make it: kept" if path.exists() else "is not installed"
            say(f"{piece.text()}: {state}: {path}")
            continue
        with suppress(FileNotFoundError):  # another uninstall was faster
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                path.unlink()
        for name in _files_of_import(piece) if piece.kind == "image" and _imported(record) else ():
            with suppress(FileNotFoundError):
                (folder / name).unlink()
        _forget(piece, folder)
        say(f"{piece.text()}: removed: {path}")


def _imported(record: Path) -> bool:
    try:
        return json.loads(record.read_text("utf-8")).get("imported") is True
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _files_of_import(piece: Piece) -> list[str]:
    """The image, its note and its lock, as the importer names them."""
    name = shared_name(piece.source)
    return [name, f".{name}.info", f".{name}.lock"]
