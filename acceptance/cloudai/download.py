"""`acceptance download`: weights and datasets, each by a job of Slurm that runs the package `fetch` on a node."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from acceptance.cloudai.fetch.place import COMPLETE, complete
from acceptance.cloudai.load import System
from acceptance.cloudai.shell import batch_value
from acceptance.errors import EXIT_ENVIRONMENT, EXIT_GOOD, ExternalError, InputError
from acceptance.options import filled, path_of
from acceptance.programs import call
from acceptance.runner.files import write_whole
from acceptance.text import printable

SCRIPT, SPEC, PROGRAM, LOG = "download.sh", "download.json", "fetch.pyz", "download.log"
# The variables of huggingface_hub and of the NGC CLI that name another host; their defaults.
HOSTS = {
    "HF_ENDPOINT": "https://huggingface.co",
    "NGC_CLI_API_URL": "https://api.ngc.nvidia.com",
    "NGC_CLI_AUTH_URL": "https://authn.nvidia.com",
}
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_FORMS = {
    "hf": re.compile(
        rf"hf://((?P<kind>datasets)/|(?!datasets/))(?P<repository>{_NAME}/{_NAME})(@(?P<revision>{_NAME}(/{_NAME})*))?"
    ),
    "ngc": re.compile(rf"ngc://(?P<repository>{_NAME}/({_NAME}/)?{_NAME}):(?P<revision>{_NAME})"),
}
_RULE = "must be hf://ORG/MODEL, hf://datasets/ORG/NAME (each with @REVISION) or ngc://ORG/TEAM/MODEL:VERSION"
_SECRET = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+")
_SUBMIT_S = 120


def add_download_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `acceptance download`."""
    system = "the system's file (default: $CLOUDAI_SYSTEM_CONFIG)"
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help=f"what to download: {_RULE[8:]}")
    parser.add_argument("--system-config", type=path_of, metavar="FILE", help=system)
    include = "only files whose path in the source matches, such as 'train/0*.zst' (may be repeated)"
    parser.add_argument("--include", type=filled, action="append", default=[], metavar="PATTERN", help=include)
    folder = "plain files into this folder (default: hf: the cache below hf_home_path; ngc: install_path)"
    parser.add_argument("--local-dir", type=path_of, metavar="DIR", help=folder)
    held = "the secret of Secrets Manager with the token (default: what huggingface-cli login, ngc config set left)"
    parser.add_argument("--secret", metavar="ARN", help=held)
    parser.add_argument("--partition", metavar="NAME", help="where the jobs run (default: that of the system)")
    parser.add_argument("--wait", action="store_true", help="wait until the jobs have ended")
    parser.add_argument("--dry-run", action="store_true", help="print the scripts; write and submit nothing")


def download(arguments: argparse.Namespace, system: System) -> int:
    """Submit a job for each source that is not complete. Raises InputError and ExternalError."""
    specs = _specs(arguments, system)
    waiting = []
    for spec in specs:
        where = (
            Path(system.values["install_path"]).absolute()
            / ".slipway/downloads"
            / _name_of(spec, "source", "folder", "include")
        )
        script = _script(spec, where, arguments.partition, system.values)
        if complete(spec):
            print(f"{spec['source']}: is complete: {spec['folder']}")
        elif arguments.dry_run:
            print(f"# {where / SCRIPT}\n{script}", end="")
        else:
            new, before = not where.exists(), len(_lines(where / LOG))
            try:
                job = _submit(spec, where, script, arguments.wait)
            except ExternalError:
                _forget(where, new)
                raise
            if job:
                waiting.append((spec, where, before, new, job))
    code = EXIT_GOOD
    for spec, where, before, new, job in waiting:
        if not _ended_well(spec, where, before, job):
            code = EXIT_ENVIRONMENT
            _forget(where, new and not (where / LOG).exists())
    return code


def _specs(arguments: argparse.Namespace, system: System) -> list[dict[str, Any]]:
    sources = arguments.sources
    wrong = [one for one in sources if not any(form.fullmatch(one) for form in _FORMS.values())]
    faults = [f"{one if one.isprintable() else repr(one)}: {_RULE}. Hint: correct it" for one in wrong]
    twice = [one for one in dict.fromkeys(sources) if sources.count(one) > 1 and one not in wrong]
    faults += [f"{one}: is given twice. Hint: leave one out" for one in twice]
    if arguments.secret is not None and not _SECRET.fullmatch(arguments.secret):
        rule = "must be the ARN of a secret, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME; never the token"
        faults.append(f"--secret: {rule}")  # not repeated: it may be the token
    if arguments.local_dir and len(arguments.sources) > 1:
        faults.append("--local-dir: is for one SOURCE. Hint: run the command for each")
    if system.scheduler != "slurm":
        faults.append(f'scheduler = "{system.scheduler}": downloads are jobs of Slurm. Hint: name a system of Slurm')
    if arguments.partition is not None and not re.fullmatch(rf"{_NAME}(,{_NAME})*", arguments.partition):
        faults.append(f"--partition: {arguments.partition!r}: must be the name of a partition. Hint: sinfo shows them")
    for name, default in HOSTS.items():
        value = os.environ.get(name) or default
        if not re.fullmatch(r"https?://[^\s@]+", value):
            faults.append(f"{name}: must be an address of http or https without a user. Hint: correct the variable")
    if faults:
        raise InputError(faults)
    return [_spec(source, arguments, system) for source in sources]


def _spec(source: str, arguments: argparse.Namespace, system: System) -> dict[str, Any]:
    """Return what the package `fetch` reads: data, of which nothing becomes shell."""
    hub = _FORMS["hf"].fullmatch(source)
    match = hub or _FORMS["ngc"].fullmatch(source)
    if match is None:
        raise ValueError(source)
    kind = ("datasets" if hub["kind"] else "models") if hub else "ngc"
    repository, revision = match["repository"], match["revision"] or "main"
    install = Path(system.values["install_path"]).absolute()
    home = Path(system.values.get("hf_home_path") or install / "huggingface").absolute()
    cached = home / "hub" / "--".join((kind, *repository.split("/")))
    model = install / f"{repository.rsplit('/', 1)[-1]}_v{revision}"
    hosts = {name: os.environ.get(name) or default for name, default in HOSTS.items()}
    return {
        "source": source,
        "kind": kind,
        "repository": repository,
        "revision": revision,
        "include": arguments.include,
        "folder": str(arguments.local_dir.absolute() if arguments.local_dir else cached if hub else model),
        "plain": bool(arguments.local_dir) or not hub,
        "secret": arguments.secret or "",
        "endpoint": hosts["HF_ENDPOINT" if hub else "NGC_CLI_API_URL"],
        "login": hosts["NGC_CLI_AUTH_URL"],
    }


def _name_of(spec: Mapping[str, Any], *keys: str) -> str:
    """Return a name with a part that follows from these values: no two downloads share their files by it."""
    part = hashlib.sha256(json.dumps([spec[key] for key in keys]).encode()).hexdigest()[:8]
    return f"{'--'.join((spec['kind'], *spec['repository'].split('/')))}-{part}"


def _script(spec: Mapping[str, Any], where: Path, partition: str | None, system: Mapping[str, Any]) -> str:
    options = {
        "job-name": f"download-{_name_of(spec, 'folder')}",  # singleton: one at a time writes into a folder
        "output": str(where / LOG).replace("%", "%%"),
        "partition": partition or system["default_partition"],
        **({"account": system["account"]} if system.get("account") else {}),
        "nodes": "1",
        "ntasks": "1",
        "open-mode": "append",
        "export": "NONE",
        "dependency": "singleton",
    }
    lines = [f"#SBATCH --{name}={batch_value(value)}" for name, value in options.items()]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {one}" for one in system["extra_sbatch_args"])]
    head = ["#!/bin/bash", f"# Downloads {spec['source']}. Safe to run again: it goes on where it ended.", *lines]
    return "\n".join(
        [
            *head,
            "",
            shlex.join(["exec", "/usr/bin/python3", "-I", "-X", "utf8", str(where / PROGRAM), str(where / SPEC)]),
            "",
        ]
    )


def program() -> bytes:
    """Return the package `fetch` as one file that `python3 -I` runs: nodes need no other part of this program."""
    start = "import sys\nfrom acceptance.cloudai.fetch.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", start)
        for name in ("acceptance", "acceptance.cloudai"):
            archive.writestr(f"{name.replace('.', '/')}/__init__.py", "")
        for file in files("acceptance.cloudai.fetch").iterdir():
            if file.name.endswith(".py"):
                archive.writestr(f"acceptance/cloudai/fetch/{file.name}", file.read_bytes())
    return packed.getvalue()


def _submit(spec: Mapping[str, Any], where: Path, script: str, wait: bool) -> subprocess.Popen[str] | None:
    """Write the job's files and submit it. With `wait` the process of sbatch is returned, which ends with the job."""
    where.mkdir(0o755, parents=True, exist_ok=True)
    state = where.lstat()
    if state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        rule = "is another user's, or others may write into it: the program in it would run as you"
        raise InputError([f"{where}: {rule}. Hint: remove it, or give another install_path"])
    write_whole(where / PROGRAM, program())
    write_whole(where / SPEC, json.dumps(spec, indent=1) + "\n")
    write_whole(where / SCRIPT, script)
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/opt/slurm/bin"}
    argv = ["sbatch", "--parsable", *(["--wait"] if wait else []), str(where / SCRIPT)]
    if wait:
        print(f"{spec['source']}: submitted, waiting: tail -f {where / LOG}", flush=True)
        try:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, text=True
            )
        except FileNotFoundError:
            raise ExternalError("sbatch: is not on this machine's PATH. Hint: run it on the head node") from None
    missing = ". Hint: run it on the head node"
    job = call(argv, _SUBMIT_S, missing, "Hint: sinfo shows the partitions", environment, "sbatch").partition(";")[0]
    print(f"{spec['source']}: submitted: job {job.strip()}, tail -f {where / LOG}", flush=True)
    return None


def _forget(where: Path, new: bool) -> None:
    """Remove the files of a job that did not begin. An older job may still need those of a folder that is not new."""
    if new:
        shutil.rmtree(where, ignore_errors=True)


def _lines(log: Path) -> list[str]:
    return log.read_text("utf-8", "replace").splitlines() if log.is_file() else []


def _ended_well(spec: Mapping[str, Any], where: Path, before: int, job: subprocess.Popen[str]) -> bool:
    """Wait for a job and print its last words. before: how many lines the log had, those of earlier jobs."""
    code = job.wait()
    said = _lines(where / LOG)[before:]
    well = code == 0 and complete(spec) is not None
    last = printable(said[-1]) if said else f"{spec['source']}: sbatch ended with {code}, nothing in {where / LOG}"
    print(last, flush=True)
    if not well and said:
        print(f"{spec['source']}: not complete: no {COMPLETE} in {spec['folder']}; {where / LOG} says why", flush=True)
    return well
