"""What a run does with the history: it takes its baselines from it, and adds itself when it has ended.

A fault of the history never costs a run its report: the fault is printed, and the run goes on.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acceptance.cloudai.report import history_parts
from acceptance.errors import AcceptanceError
from acceptance.history.gpus import gpu_baselines, insert_gpus
from acceptance.history.metrics import FILE, write_metrics
from acceptance.history.read import baselines
from acceptance.history.store import insert, reading, setup_text, snapshot, writing
from acceptance.report import Report
from acceptance.report.gpus import GPU_BASELINES
from acceptance.runner.files import write_whole
from acceptance.scenario.load import load_own
from acceptance.scenario.model import Baseline, Scenario
from acceptance.upload import upload_file

HISTORY_FILE = "history.sqlite"
Say = Callable[[str], None]


def known_baselines(path: Path, scenario: Scenario, say: Say) -> tuple[Baseline, ...]:
    """The site's baselines for a scenario; none while there are too few good runs or the history cannot be read."""
    try:
        if not path.exists():
            return ()
        with reading(path) as connection:
            return baselines(connection, scenario)
    except (AcceptanceError, OSError) as error:
        say(f"history not read, so there is no baseline: {error}")
        return ()


def with_baselines(values: dict[str, Any], found: tuple[Baseline, ...]) -> dict[str, Any]:
    """The scenario of a run as its directory keeps it, so that its report can be made again with the same baselines."""
    return {**values, "baselines": [asdict(one) for one in found]}


def keep_gpu_baselines(path: Path, report: Report, say: Say) -> bool:
    """Write what is normal for the GPUs of a run into its directory, once; return whether its report changes.

    So the report can be made again later with the same baselines.
    """
    place = Path(report.directory) / GPU_BASELINES
    if report.gpus is None or place.exists() or not path.exists():
        return False
    try:
        with reading(path) as connection:
            found = gpu_baselines(connection, report)
    except (AcceptanceError, OSError) as error:
        say(f"history not read, so GPUs are not compared with their own: {error}")
        return False
    write_whole(place, json.dumps([asdict(one) for one in found]) + "\n")
    return bool(found)


def put(connection: sqlite3.Connection, parts: list[tuple[Report, str]]) -> None:
    """Put a run in, as the parts that `parts_of` returns; the first part has the GPUs."""
    for part, setup in parts:
        insert(connection, part, setup)
    report, _ = parts[0]
    if report.gpus is not None:
        insert_gpus(connection, report.cluster, report.run_id, report.gpus)


def parts_of(directory: Path, report: Report) -> list[tuple[Report, str]]:
    """Return the runs as which the history keeps a run, each with its setup: one, but for a scenario of CloudAI."""
    if report.scenario is not None:
        return history_parts(directory, report)
    return [(report, setup_text(load_own(directory)))]


def remember(path: Path, report: Report, say: Say) -> None:
    """Put a run that has ended into the history and into the node exporter's metrics."""
    try:
        write_metrics(report)
    except OSError as error:
        say(f"metrics not written: {error.filename or FILE}: {error.strerror}")
    try:
        parts = parts_of(Path(report.directory), report)
        with writing(path) as connection:
            put(connection, parts)
    except AcceptanceError as error:
        say(f"history not written, the report is whole without it: {error}")


def send_history(path: Path, cluster: str, url: str, say: Say) -> None:
    """Copy the history below an S3 address as `history-CLUSTER.sqlite`: a snapshot, so that nothing is half written."""
    try:
        with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
            copy = Path(folder) / f"history-{cluster}.sqlite"
            snapshot(path, copy)
            say(f"uploaded: {upload_file(copy, url)}")
    except (AcceptanceError, OSError) as error:
        say(f"history not uploaded: {error}")
