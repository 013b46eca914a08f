"""The page of the GPU suite: bars of each figure, the copies between GPUs as a heat map, lines of the stress test."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from acceptance.report.gpus import Figure, Pair, SuiteReport, Watched
from acceptance.report.heatmap import LEGEND, NOTHING, shade
from acceptance.report.page import environment
from acceptance.text import gb_text

_MOST_LINES = 64  # GPUs whose stress test is drawn; those with a finding come first
_BAR, _WIDE, _HIGH = 260, 300, 70  # pixels: the longest bar; a diagram's width and height
_CELL = 44  # pixels of a heat map's cell
_LINES = (("sm_mhz", "clock, MHz", "#0b5cad"), ("power_w", "power, W", "#8a5a00"), ("temperature_c", "°C", "#b3261e"))


def render_suite_page(report: SuiteReport) -> str:
    """Return the page, which needs no script and nothing from a network."""
    shown = _shown(report)
    values = {
        "bars": [_bars(metric, report.figures) for metric in dict.fromkeys(one.metric for one in report.figures)],
        "maps": [_map(node, pairs) for node, pairs in report.peers.items()],
        "lines": [_lines(one) for one in shown],
        "hidden": len(report.watched) - len(shown),
    }
    return environment().get_template("gpus.html.j2").render(r=report, **values)


def _shown(report: SuiteReport) -> list[Watched]:
    named = {(one.node, one.gpu) for one in report.figures if one.outcome != "pass"}
    ranked = sorted(report.watched, key=lambda one: (one.node, one.gpu) not in named)
    return ranked[:_MOST_LINES]


def _bars(metric: str, figures: Sequence[Figure]) -> dict[str, Any]:
    same = [one for one in figures if one.metric == metric]
    top = max(one.value for one in same) or 1.0
    level = median(one.value for one in same)
    rows = [
        {
            "gpu": f"{one.node} gpu {one.gpu}",
            "model": one.model,
            "value": gb_text(one.value),
            "outcome": one.outcome,
            "length": round(max(0.0, one.value) / top * _BAR, 1),
            "color": {"pass": "#0b5cad", "warn": "#c98a00"}.get(one.outcome, "#b3261e"),
        }
        for one in same
    ]
    at = round(level / top * _BAR, 1)
    bad = sum(one.outcome != "pass" for one in same)
    return {"metric": metric, "unit": same[0].unit, "rows": rows, "median": gb_text(level), "at": at, "bad": bad}


def _map(node: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The map in the form that heat.html.j2 draws: rows are sources, columns are targets."""
    gpus = sorted({gpu for pair in pairs for gpu in (pair.source, pair.target)})
    left, best = 60, max(pair.gb_per_s for pair in pairs)
    cells = []
    for pair in pairs:
        share = pair.gb_per_s / best if best else 0.0
        cells.append(
            {
                "x": left + _CELL * gpus.index(pair.target),
                "y": left + _CELL * gpus.index(pair.source),
                "color": shade(share) if pair.gb_per_s else NOTHING[0],
                "ink": "#ffffff" if share < 0.60 else "#1b1f24",
                "text": f"{pair.gb_per_s:.0f}",
                "title": f"gpu {pair.source} to gpu {pair.target}: {gb_text(pair.gb_per_s)} GB/s",
                "bad": not pair.good,
            }
        )
    bad = sum(not pair.good for pair in pairs)
    return {
        "of": "copies between GPUs",
        "collective": node,
        "cell": _CELL,
        "left": left,
        "side": left + _CELL * len(gpus) + 4,
        "names": [f"gpu {gpu}" for gpu in gpus],
        "cells": cells,
        "legend": LEGEND,
        "summary": f"{len(pairs)} copies between {len(gpus)} GPUs, {bad} bad",
    }


def _lines(one: Watched) -> dict[str, Any]:
    diagrams = [_line(getattr(one, field), title, color) for field, title, color in _LINES]
    return {"gpu": f"{one.node} gpu {one.gpu}", "diagrams": [diagram for diagram in diagrams if diagram]}


def _line(values: Sequence[float | None], title: str, color: str) -> dict[str, Any] | None:
    """A line from 0 to its highest value; a second without a figure is a gap. None without any figure."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    top, step = max(known) or 1.0, _WIDE / max(1, len(values) - 1)
    parts: list[list[str]] = [[]]
    for second, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{second * step:.1f},{_HIGH - max(0.0, value) / top * (_HIGH - 4):.1f}")
    text = f"{title}: {min(known):.0f} to {max(known):.0f}, median {median(known):.0f}, {len(values)} samples"
    return {
        "title": text,
        "color": color,
        "parts": [" ".join(points) for points in parts if points],
        "wide": _WIDE,
        "high": _HIGH,
    }
