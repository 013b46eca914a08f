"""What each program prints and writes: lines with a prefix, a JSON file, the result and the exit code.

Exit codes of every program:
  0    good, or skipped: there is no GPU
  1    a test failed, a rank did not arrive, data were wrong, or something was slower than asked for
  2    wrong use
  3    torch, NumPy or a place for temporary files is missing where it is needed, or no report could be written
  130  interrupted (Ctrl-C)
  141  the program that read the output through a pipe has ended
  143  ended by SIGTERM
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpusuite.judgement import Check

EXIT_GOOD, EXIT_FAILURE, EXIT_INPUT, EXIT_ENVIRONMENT = 0, 1, 2, 3
EXIT_INTERRUPTED, EXIT_PIPE, EXIT_ENDED = 130, 141, 143
SUCCESS, FAILURE, SKIPPED = "SUCCESS", "FAILURE", "SKIPPED"


def add_common(parser: argparse.ArgumentParser, report_name: str, *, measures: bool = True) -> None:
    """Add the flags that every program has, and `--quick` but for fleet.py, which measures nothing."""
    if measures:
        parser.add_argument("--quick", action="store_true", help="fewer iterations, steps and sizes")
    parser.add_argument("--verbose", action="store_true", help="print details")
    where = "write the JSON file here; %%N is the node's name"
    parser.add_argument("--report-dir", type=_directory, metavar="DIR", help=where)
    name = f"name of the JSON file (default: {report_name})"
    parser.add_argument("--report-name", type=_file_name, default=report_name, metavar="NAME", help=name)


def _directory(text: str) -> Path:
    return path(text.replace("%N", node_name()))


def _file_name(text: str) -> str:
    if not text.isprintable() or "/" in text or text in ("", ".", ".."):
        rule = "must be the name of a file, without a folder"
        raise argparse.ArgumentTypeError(f"{text!r}: {rule}. Hint: name the folder with --report-dir")
    return text


def filled(text: str) -> str:
    """The type of a flag: a text that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty. Hint: is a variable of the shell not set?")
    return text


def path(text: str) -> Path:
    """The type of a flag: a path. An empty one would mean the current folder."""
    return Path(filled(text))


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return the type of a flag: a whole number from low to high."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,15}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text}: must be a whole number from {low} to {high}. Hint: correct it")
        return int(text)

    return read


def above_zero(text: str) -> float:
    """The type of a flag: a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0. Hint: correct it")
    return number


def run(main: Callable[[], int], *, unwinds: bool = True) -> int:
    """Run a program. What ends it from outside prints no traceback, and its folders and processes end with it.

    unwinds: whether SIGTERM does so too; without, it ends the program at once, also one that waits for NCCL.
    """
    if unwinds:
        signal.signal(signal.SIGTERM, _end)
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()  # else Python does so after this function, and prints what fails then
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return EXIT_PIPE
    except OSError as error:
        place = error.filename or "the file system"
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
            place = "standard output"
        complain(f"{place}: {error.strerror or error}. Hint: is it full, or not writable?")
        return EXIT_ENVIRONMENT


def _drop_output() -> None:
    """What is still in the buffer of standard output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def unfit() -> int:
    """Return exit code 3, and print why, where torch, NumPy or a place for temporary files is missing; else 0."""
    for name in ("torch", "numpy"):
        if importlib.util.find_spec(name) is None:
            complain(f"{sys.executable} has no {name}. Hint: run in an image with torch and NumPy")
            return EXIT_ENVIRONMENT
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # a container whose root is read-only
        complain("no directory for temporary files can be written. Hint: docker run --tmpfs /tmp, or set TMPDIR")
        return EXIT_ENVIRONMENT
    return EXIT_GOOD


def _end(*_: object) -> NoReturn:
    sys.exit(EXIT_ENDED)


def node_name() -> str:
    """The node as Slurm names it, else the host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def say(prefix: str, text: str) -> None:
    """Print a line such as `[ENV] python 3.12.3`."""
    print(f"[{prefix}] {text}", flush=True)


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def print_checks(checks: Sequence[Check], verbose: bool) -> None:
    """Print what failed or warns; with verbose every check."""
    for check in checks:
        if verbose or check.outcome in ("warn", "fail"):
            say("CHECK", f"{check.outcome}: {check.message}")


def failures_of(checks: Sequence[Check]) -> list[str]:
    """The messages of the checks that failed."""
    return [check.message for check in checks if check.outcome == "fail"]


def write(directory: Path | None, name: str, report: Mapping[str, Any]) -> bool:
    """Write a JSON file whole, under its name or with `.json` added. Returns False after a line if it cannot."""
    if directory is None:
        return True
    path = directory / (name if name.endswith(".json") else f"{name}.json")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        complain(f"{path}: {error.strerror}. Hint: give a directory that can be written")
        return False
    say("REPORT", str(path))
    return True


def result(failures: Sequence[str], skipped: str = "") -> int:
    """Print the last line and return the exit code. A skipped test is no failure, and no success either."""
    if failures:
        say("RESULT", f"{FAILURE}: [{'; '.join(failures)}]")
        return EXIT_FAILURE
    say("RESULT", f"{SKIPPED}: {skipped}" if skipped else SUCCESS)
    return EXIT_GOOD


def complain(text: str) -> None:
    """Print a fault of the command line or of the machine."""
    print(f"gpusuite: {text}", file=sys.stderr)
