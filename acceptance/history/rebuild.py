"""Making the history again, or completing it, from the run directories that are still there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from acceptance.cloudai.report import scenario_report
from acceptance.cloudai.stored import is_scenario_folder
from acceptance.errors import InputError
from acceptance.history.recording import parts_of, put
from acceptance.history.store import HistoryError, reading, writing
from acceptance.options import resolved
from acceptance.report import build_report


def rebuild(path: Path, output: Path, say: Callable[[str], None]) -> int:
    """Put every run below `output` into the history; what is no database is put aside first. Return the number of runs.

    Runs whose directories are gone stay as they are. Raises ExternalError, InputError.
    """
    try:
        directories = sorted(one for one in output.iterdir() if (one / "run.json").is_file())
    except OSError as error:
        raise InputError([f"{output}: {error.strerror}. Hint: give the directory that holds the runs"]) from None
    found = []
    for directory in directories:
        try:
            own = scenario_report if is_scenario_folder(directory) else build_report
            report = own(resolved(directory))
            parts = parts_of(directory, report)
        except InputError as error:
            say(f"left out: {error.faults[0]}")
            continue
        if report.purpose != "locate":
            found.append(parts)
    _put_aside(path, say)
    with writing(path) as connection:
        for parts in found:
            put(connection, parts)
    return len(found)


def _put_aside(path: Path, say: Callable[[str], None]) -> None:
    if not path.exists():
        return
    try:
        with reading(path) as connection:
            found = connection.execute("PRAGMA quick_check").fetchone()[0]
            if found == "ok":
                return
    except HistoryError as fault:
        if not fault.corrupt:
            raise
    aside = f".corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path.rename(path.with_name(path.name + aside))
    say(f"{path}: is not a whole database; it is now {path.name}{aside}")
