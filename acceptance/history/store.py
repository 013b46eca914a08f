"""The history's file: SQLite, one file, its schema and how a run gets into it.

The journal is SQLite's default one (DELETE), not a write-ahead log: the file is next to the runs on the shared file
system, and a write-ahead log needs memory that all its users share, which hosts of a cluster do not. Writers wait for
each other, for `BUSY_S` at most. A report never depends on this file: it can be made again from the run directories.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from acceptance.errors import ExternalError, InputError
from acceptance.jsonable import finite
from acceptance.limits import worst
from acceptance.report.model import Report, TestReport
from acceptance.scenario.model import Scenario

WORK_S = 60.0  # seconds that one opening may compute; 10,000 runs take less than one
BUSY_S = 10.0  # seconds that a writer waits for another one
MIGRATIONS = (
    # 0 -> 1
    """
    CREATE TABLE runs (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, directory TEXT NOT NULL, started TEXT NOT NULL, finished TEXT,
        partition TEXT NOT NULL, instance_type TEXT NOT NULL, nodes INTEGER NOT NULL, gpus_per_node INTEGER NOT NULL,
        setup TEXT NOT NULL, versions TEXT NOT NULL, verdict TEXT NOT NULL, summary TEXT NOT NULL,
        PRIMARY KEY (cluster, run_id));
    CREATE TABLE measures (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, test TEXT NOT NULL, collective TEXT NOT NULL,
        size_bytes INTEGER NOT NULL, busbw_gb_per_s REAL NOT NULL, outcome TEXT NOT NULL, sound INTEGER NOT NULL,
        warned INTEGER NOT NULL,
        PRIMARY KEY (cluster, run_id, test, size_bytes));
    CREATE TABLE nodes (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, name TEXT NOT NULL, verdict TEXT NOT NULL,
        evidence TEXT NOT NULL, best_gb_per_s REAL,
        PRIMARY KEY (cluster, run_id, name));
    CREATE INDEX runs_by_kind ON runs (instance_type, gpus_per_node, nodes, started);
    """,
    # 1 -> 2: name: the GPU's UUID, else its node and index
    """
    CREATE TABLE gpu_figures (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, gpu INTEGER NOT NULL,
        metric TEXT NOT NULL, unit TEXT NOT NULL, software TEXT NOT NULL, value REAL NOT NULL, outcome TEXT NOT NULL,
        PRIMARY KEY (cluster, run_id, name, metric)) WITHOUT ROWID
    """,
)
_TABLES = ("runs", "measures", "nodes", "gpu_figures")


class HistoryError(ExternalError):
    """The history cannot be read or written. `corrupt`: what the file holds is no (whole) database."""

    def __init__(self, path: Path, error: Exception) -> None:
        message = " ".join(str(error).split())
        self.corrupt = isinstance(error, sqlite3.DatabaseError) and any(
            words in message for words in ("not a database", "malformed")
        )
        super().__init__(f"{path}: {message}. Hint: {_hint(message, self.corrupt)}")


def _hint(message: str, corrupt: bool) -> str:
    if corrupt:
        return "`acceptance history --rebuild` puts it aside and makes it again from the run directories"
    if "locked" in message:
        return f"another run held it for {BUSY_S:g} s; `acceptance history --rebuild` adds what is missing"
    if "interrupted" in message:
        return f"reading it takes more than {WORK_S:g} s: is it one of ours? Move it away, or give another --history"
    if "full" in message:
        return "free some space, then `acceptance history --rebuild` adds what is missing"
    if "locking protocol" in message or "disk I/O error" in message:
        return "is the file system mounted with locks (Lustre: flock)? Give --history a local file otherwise"
    return "may this user write there? `acceptance history --rebuild` adds what is missing"


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a history that is there. Raises InputError if it does not exist, HistoryError if it cannot be read."""
    if not path.is_file():
        hint = "Hint: give --output or --history; `acceptance history --rebuild` makes it from the run directories"
        raise InputError([f"{path}: there is no history. {hint}"])
    with _connected(path, "rw") as connection:
        yield connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open or make a history and hold it in one transaction, which ends with the block. Raises HistoryError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(path, error) from None
    with _connected(path, "rwc") as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    try:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            # Another user may have made the file, and its schema: a view or trigger in it must neither act nor hang.
            end = time.monotonic() + WORK_S
            connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            connection.execute("PRAGMA trusted_schema = OFF")
            _migrate(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise HistoryError(path, error) from None


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to the newest version; two processes at once are one after the other."""
    if _version(connection) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        for number in range(_version(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    if _version(connection) > len(MIGRATIONS):
        known = f"it has schema {_version(connection)}, this program knows {len(MIGRATIONS)}"
        raise ExternalError(f"{path}: was written by a newer acceptance ({known}). Hint: use that one")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def snapshot(path: Path, copy: Path) -> None:
    """Copy the history as it is between two transactions. Raises InputError, HistoryError."""
    with reading(path) as connection, closing(sqlite3.connect(copy)) as target:
        connection.backup(target)


def setup_text(scenario: Scenario) -> str:
    """What changes figures without changing the hardware, as JSON; '{}' where the scenario says nothing of it."""
    setup: dict[str, Any] = {}
    if scenario.container is not None:
        setup["container"] = scenario.container.image
    if scenario.environment:
        setup["environment"] = dict(scenario.environment)
    return json.dumps(setup, sort_keys=True)


def insert(connection: sqlite3.Connection, report: Report, setup: str) -> None:
    """Put one run in, and replace what was recorded of it before. setup: as `setup_text` returns it."""
    key = (report.cluster, report.run_id)
    for name in _TABLES:
        connection.execute(f"DELETE FROM {name} WHERE cluster = ? AND run_id = ?", key)  # noqa: S608 - names above
    facts = ("directory", "started", "finished", "partition", "instance_type", "nodes_expected", "gpus_per_node")
    texts = (setup, json.dumps(dict(report.versions), sort_keys=True))
    values = (*key, *(getattr(report, name) for name in facts), *texts, report.verdict, report.summary)
    connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - only marks
    for test in report.tests:
        connection.executemany(
            "INSERT OR REPLACE INTO measures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _measures(key, test)
        )
    nodes = [(*key, n.name, n.verdict, n.evidence, n.best) for n in report.nodes]
    connection.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", nodes)


def _measures(key: tuple[str, str], test: TestReport) -> list[tuple[Any, ...]]:
    """The rows of a test, each with how its size was judged.

    sound: nothing but the speed was found wrong; warned: some size was slower than it should be.
    """
    outcomes: dict[int, list[str]] = {}
    for check in test.checks:
        if check.limit:
            outcomes.setdefault(check.limit.size_bytes, []).append(check.outcome)
    sound = not any(check.outcome == "fail" and not check.name.startswith("bandwidth") for check in test.checks)
    warned = any(outcome != "pass" for of_size in outcomes.values() for outcome in of_size)
    judged = {size: worst(of_size) for size, of_size in outcomes.items()}
    return [
        (*key, test.name, test.collective, row.size, value, judged.get(row.size, "unjudged"), int(sound), int(warned))
        for row in test.rows
        if (value := finite(row.measured_busbw_gb_per_s)) is not None
    ]
