"""The engine's start and end: no traceback and no error without its text reaches the screen."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from rehearsal.engine.lifeline import Interrupted, Lifeline, Screen, code_of_screen, take_screen
from rehearsal.engine.outcome import first_line
from rehearsal.engine.run import Engine
from rehearsal.engine.specification import Specification
from rehearsal.hosts import HostsError
from slipway.breakage import parse_breakage
from slipway.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_USAGE, SlipwayError
from slipway.settings import load_settings
from slipway.work_folder import END_FILE

FULL_BYTES = 1_000_000


def main(specification: str) -> int:
    """Run the rehearsal that the JSON text asks for; returns the exit code."""
    spec = Specification.from_json(specification)
    if spec.keep_hours:
        take_screen()
    out: Any = Screen(sys.stdout)
    err: Any = Screen(sys.stderr)
    sys.stdout, sys.stderr = out, err
    console = Console(highlight=False, file=err if spec.as_json else out)
    logging.raiseExceptions = False  # a log that cannot be written must not fill the screen; a full disk is reported
    lifeline = Lifeline()
    code = code_of_screen(_run(spec, console, lifeline))
    (spec.work / END_FILE).write_text(str(code), encoding="ascii")
    if lifeline.orphaned:
        shutil.rmtree(spec.work, ignore_errors=True)
    return code


def _run(spec: Specification, console: Console, lifeline: Lifeline) -> int:
    try:
        settings = load_settings(spec.settings)
        breakages = tuple(parse_breakage(text) for text in spec.breaks)
        lifeline.watch()
        return Engine(spec, settings, breakages, console).run()
    except SlipwayError as error:
        text, code = str(error), error.exit_code
    except HostsError as error:
        text, code = str(error), EXIT_USAGE
    except Interrupted:
        text, code = "interrupted", EXIT_INTERRUPTED
    except OSError as error:
        text, code = _with_place(error, spec), EXIT_ENVIRONMENT
    return _refuse(spec, console, text, code)


def _refuse(spec: Specification, console: Console, text: str, code: int) -> int:
    """Print what ended the rehearsal before it had a result."""
    if spec.as_json:
        print(json.dumps({"error": {"exit_code": code, "text": text, "faults": []}}), flush=True)
    for line in text.splitlines()[1:]:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"[RESULT] FAILURE: {first_line(text)}", markup=False, soft_wrap=True)
    return code


def _with_place(error: OSError, spec: Specification) -> str:
    """The system's refusal with the place it is about: on a full disk, the folders that we write to."""
    if error.errno != errno.ENOSPC:
        return f"{error.filename or spec.output}: {error.strerror or error}"
    full = [str(folder) for folder in (spec.output, spec.work) if _is_full(folder)]
    return (
        f"{' and '.join(full) or error.filename or spec.output}: {error.strerror}. Hint: make room, or another --output"
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False
