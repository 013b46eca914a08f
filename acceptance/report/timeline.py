"""The pictures of a scenario's page: positions for its dependency graph and for the Gantt of its jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from acceptance.report.model import JobReport, ScenarioReport, ScenarioTest

_BOX = 150, 34  # pixels of a test in the graph
_GAP = 56, 14  # between columns and rows
_LONGEST = 20  # characters of an id in a box
_ROW, _LEFT, _WIDTH = 22, 170, 760  # of the Gantt: height of a row, room for names, room for times
MOST = 200  # rows of the Gantt


def graph(scenario: ScenarioReport) -> dict[str, Any] | None:
    """Return boxes and lines of the dependency graph, None without one. A test is right of its dependencies."""
    if not any(test.dependencies for test in scenario.tests):
        return None
    columns = _columns(scenario.tests)
    rows: dict[int, int] = {}
    boxes: dict[str, dict[str, Any]] = {}
    for test in scenario.tests:
        column = columns[test.id]
        row = rows.get(column, 0)
        rows[column] = row + 1
        name = test.id if len(test.id) <= _LONGEST else test.id[: _LONGEST - 1] + "…"
        x, y = 4 + column * (_BOX[0] + _GAP[0]), 4 + row * (_BOX[1] + _GAP[1])
        boxes[test.id] = {"x": x, "y": y, "name": name, "verdict": test.verdict, "title": f"{test.id}: {test.verdict}"}
    lines = [
        {
            "x1": boxes[other]["x"] + _BOX[0],
            "y1": boxes[other]["y"] + _BOX[1] / 2,
            "x2": boxes[test.id]["x"],
            "y2": boxes[test.id]["y"] + _BOX[1] / 2,
            "kind": kind,
            "title": f"{test.id}: {kind} {other}",
        }
        for test in scenario.tests
        for kind, other in test.dependencies
        if other in boxes
    ]
    width = 8 + (max(columns.values()) + 1) * (_BOX[0] + _GAP[0]) - _GAP[0]
    height = 8 + max(rows.values()) * (_BOX[1] + _GAP[1]) - _GAP[1]
    return {"boxes": list(boxes.values()), "lines": lines, "width": width, "height": height, "box": _BOX}


def _columns(tests: Sequence[ScenarioTest]) -> dict[str, int]:
    """The longest way to each test. Its dependencies have no circle; as many rounds as tests are enough."""
    columns = {test.id: 0 for test in tests}
    for _ in tests:
        before = dict(columns)
        for test in tests:
            others = [columns[other] + 1 for _, other in test.dependencies if other in columns]
            columns[test.id] = min(max([0, *others]), len(tests) - 1)
        if columns == before:
            break
    return columns


def gantt(scenario: ScenarioReport) -> dict[str, Any] | None:
    """Return the bars of the jobs that ran, in their order, with the nodes; None if none ran."""
    ran = sorted((job for job in scenario.jobs if job.started and job.ended), key=lambda job: job.started or "")
    if not ran:
        return None
    first, last = min(_unix(job.started) for job in ran), max(_unix(job.ended) for job in ran)
    scale = _WIDTH / max(1.0, last - first)
    bars = [_bar(job, row, first, scale) for row, job in enumerate(ran[:MOST])]
    return {
        "bars": bars,
        "row": _ROW,
        "left": _LEFT,
        "width": _LEFT + _WIDTH + 8,
        "height": len(bars) * _ROW + 24,
        "seconds": f"{last - first:.0f}",
        "hidden": len(ran) - len(bars),
    }


def _bar(job: JobReport, row: int, first: float, scale: float) -> dict[str, Any]:
    start, end = _unix(job.started), _unix(job.ended)
    name = job.name if len(job.name) <= _LONGEST else "…" + job.name[1 - _LONGEST :]
    when = f"{end - start:.0f} s from second {start - first:.0f} on {', '.join(job.nodes)}"
    return {
        "x": _LEFT + (start - first) * scale,
        "y": row * _ROW + 3,
        "width": max(2.0, (end - start) * scale),
        "name": name,
        "verdict": job.verdict,
        "title": f"{job.name}: {job.verdict}, {job.state}, {when}",
    }


def _unix(text: str | None) -> float:
    return datetime.strptime(text or "1970-01-01T00:00:00Z", "%Y-%m-%dT%H:%M:%S%z").timestamp()
