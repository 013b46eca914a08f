"""`acceptance gpu|ddp|storage|suite|fleet`: the programs of the GPU suite, which run without this package."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from acceptance.errors import EXIT_GOOD, EXIT_NO, AcceptanceError, ExternalError
from acceptance.history.metrics import write_metrics
from acceptance.report import suite_report, write_files

# Command -> program and what it does.
PROGRAMS = {
    "gpu": ("gpu_tests.py", "test every GPU of this machine: right, fast, steady"),
    "ddp": ("ddp_tests.py", "test the communication of all GPUs, and training with DDP and FSDP"),
    "storage": ("storage_tests.py", "test storage: a checkpoint with checksums, small files, random reads"),
    "suite": ("run_all_tests.py", "all of these on this machine"),
    "fleet": ("fleet.py", "judge the reports of many nodes together"),
}
_WITH_PAGE = ("suite", "fleet")  # with --report-dir
_PACKAGES = Path(__file__).resolve().parents[1]  # in a zipapp: the archive itself, which has none of these
_PLACES = (_PACKAGES / "gpusuite", _PACKAGES / "slipway/files/gpusuite", Path("/opt/slipway/current/gpusuite"))


def add_suite_commands(commands: Any) -> None:
    """Add the commands to the help of `acceptance`; `run_program` runs them before the parser is asked."""
    for name, (_, text) in PROGRAMS.items():
        commands.add_parser(name, help=f"{text} (needs torch)" if name in ("gpu", "ddp", "suite") else text)


def run_program(name: str, arguments: list[str]) -> NoReturn:
    """Become the program, with the `python3` of PATH: the one whose environment has torch.

    With --report-dir, `suite` and `fleet` run it instead, and write the report and metrics when it has ended.

    Raises ExternalError if the programs or python3 are missing.
    """
    program = next((place / PROGRAMS[name][0] for place in _PLACES if place.is_dir()), None)
    if program is None:
        places = ", ".join(map(str, _PLACES))
        raise ExternalError(f"the GPU suite is not installed; looked in: {places}. Hint: run it on a node")
    python = shutil.which("python3")
    if python is None:
        raise ExternalError("python3: is not on this machine's PATH. Hint: activate an environment that has torch")
    command = [python, str(program), *arguments]
    directories = _report_directories(name, arguments) if name in _WITH_PAGE else []
    if not directories:
        os.execv(python, command)  # noqa: S606  (the user's own arguments)
    code = _run(command)
    if code in (EXIT_GOOD, EXIT_NO) and directories[0].is_dir():  # without a GPU nothing is measured or written
        write_suite_report(directories)
    raise SystemExit(code)


def _report_directories(name: str, arguments: list[str]) -> list[Path]:
    """The directory that the program writes to, then the one that `fleet.py` reads; empty without --report-dir."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--report-dir")
    for flag in ("--report-name", "--expect-nodes"):  # of fleet.py, so that their values are not taken for DIR
        parser.add_argument(flag)
    known, rest = parser.parse_known_args(arguments)
    if known.report_dir is None:
        return []
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()  # as the programs replace it
    read = [Path(one) for one in rest if not one.startswith("-")] if name == "fleet" else []
    return [Path(known.report_dir.replace("%N", node)), *read]


def _run(command: list[str]) -> int:
    """Run the program and return its exit code. A signal that ends this program is passed on to it."""
    process = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: process.send_signal(received))
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the program too
            continue
        return code if code >= 0 else 128 - code


def write_suite_report(directories: list[Path]) -> None:
    """Write the report next to the program's JSON, and the node exporter's metrics.

    A fault here is printed and changes no exit code: the program's own report and verdict are whole without it.
    """
    try:
        report = suite_report(*directories)
        write_files(report)
        print(f"[REPORT] {directories[0] / 'report.html'}", flush=True)
        write_metrics(report)
    except AcceptanceError as error:
        print(f"acceptance: report not written: {error}", file=sys.stderr)
    except OSError as error:
        place = error.filename or directories[0]
        print(f"acceptance: report or metrics not written: {place}: {error.strerror or error}", file=sys.stderr)
