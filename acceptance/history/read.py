"""What is asked of the history: the runs, the values of each kind of measurement, the good ones behind a baseline."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acceptance.history.store import setup_text
from acceptance.limits import BASELINE_RUNS, GOOD_RUNS, middle
from acceptance.scenario.model import Baseline, Scenario


@dataclass(frozen=True)
class Point:
    """One run's bus bandwidth in GB/s; good: accepted, and no size of its sweep warned about."""

    run_id: str
    started: str
    gb_per_s: float
    outcome: str
    good: bool


@dataclass(frozen=True)
class Kind:
    """What has to be the same for two values to be comparable. setup: its container and variables, as JSON."""

    instance_type: str
    gpus_per_node: int
    nodes: int
    setup: str
    collective: str
    size_bytes: int


_POINTS = """
    SELECT r.instance_type, r.gpus_per_node, r.nodes, r.setup, m.collective, m.size_bytes, r.run_id, r.started,
           m.busbw_gb_per_s, m.outcome, m.warned, r.verdict
    FROM measures m JOIN runs r ON r.cluster = m.cluster AND r.run_id = m.run_id
    WHERE m.sound AND (? IS NULL OR r.cluster = ?)
    ORDER BY r.started, r.run_id, m.test
"""


def series(connection: sqlite3.Connection, cluster: str | None = None) -> dict[Kind, list[Point]]:
    """The sound values of every kind, oldest first; of one cluster where it is named."""
    found: dict[Kind, list[Point]] = defaultdict(list)
    for row in connection.execute(_POINTS, (cluster, cluster)):
        good = row["verdict"] == "accepted" and not row["warned"]
        point = Point(row["run_id"], row["started"], row["busbw_gb_per_s"], row["outcome"], good)
        found[Kind(*tuple(row)[:6])].append(point)
    return dict(found)


def baselines(connection: sqlite3.Connection, scenario: Scenario) -> tuple[Baseline, ...]:
    """The baselines that the good runs of a scenario's kind make, where there are enough of them."""
    wanted = (scenario.instance_type, scenario.gpus_per_node, scenario.nodes, setup_text(scenario))
    found = []
    for kind, points in series(connection).items():
        if (kind.instance_type, kind.gpus_per_node, kind.nodes, kind.setup) == wanted:
            one = baseline_of(kind, points)
            if one is not None:
                found.append(one)
    return tuple(sorted(found, key=lambda one: (one.collective, one.size_bytes)))


def baseline_of(kind: Kind, points: Sequence[Point]) -> Baseline | None:
    """Median and MAD of the last good runs; None while there are fewer than three."""
    good = [point for point in points if point.good][-BASELINE_RUNS:]
    if len({point.run_id for point in good}) < GOOD_RUNS:
        return None
    level, mad = middle([point.gb_per_s for point in good])
    since, until = good[0].started, good[-1].started
    return Baseline(kind.collective, kind.nodes, kind.size_bytes, level, mad, len(good), since, until)


def runs(connection: sqlite3.Connection, cluster: str | None, most: int) -> list[dict[str, Any]]:
    """The last runs, newest first."""
    text = "SELECT * FROM runs WHERE ? IS NULL OR cluster = ? ORDER BY started DESC, run_id DESC LIMIT ?"
    found = connection.execute(text, (cluster, cluster, most))
    return [{**dict(row), "versions": json.loads(row["versions"])} for row in found]


def bad_nodes(connection: sqlite3.Connection, cluster: str | None) -> list[dict[str, Any]]:
    """The nodes that were slow, failed or out of order, how often, and when last."""
    text = """
        SELECT n.name, n.verdict, COUNT(*) AS times, MAX(r.started) AS last
        FROM nodes n JOIN runs r ON r.cluster = n.cluster AND r.run_id = n.run_id
        WHERE n.verdict IN ('slow', 'failed', 'infrastructure') AND (? IS NULL OR n.cluster = ?)
        GROUP BY n.name, n.verdict ORDER BY times DESC, last DESC, n.name
    """
    return [dict(row) for row in connection.execute(text, (cluster, cluster))]
