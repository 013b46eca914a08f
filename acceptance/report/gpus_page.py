"""The page's section of the GPU suite: bars of figures, copies between GPUs as a heat map, lines of the stress test."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from acceptance.report.gpus_model import BAD_GPUS, GPU_VERDICTS, GpuFigure, Pair, SuiteReport, Watched
from acceptance.report.heatmap import LEGEND, NOTHING, shade
from acceptance.text import gb_text

_MOST_LINES = 32  # GPUs whose stress test is drawn; those with a finding come first
_MOST_ROWS = 64  # GPUs of a table; those with a finding come first
_MOST_MAPS = 16  # nodes whose copies are drawn; those with a bad one come first
_CLASSES = {**dict.fromkeys(BAD_GPUS, "fail"), "warn": "warn", "not measured": "suspect", "good": "good"}
_BAR, _WIDE, _HIGH = 260, 300, 70  # pixels: the longest bar; a diagram's width and height
_CELL = 44  # pixels of a heat map's cell
_LINES = (("sm_mhz", "clock, MHz", "#0b5cad"), ("power_w", "power, W", "#8a5a00"), ("temperature_c", "°C", "#b3261e"))


def gpus_values(report: SuiteReport) -> dict[str, Any]:
    """Return what gpus.html.j2 draws. It needs no script and nothing from a network."""
    named = {(one.node, one.gpu) for one in report.gpus if one.findings}
    watched = sorted(report.watched, key=lambda one: (one.node, one.gpu) not in named)[:_MOST_LINES]
    peers = sorted(report.peers.items(), key=lambda one: all(pair.good for pair in one[1]))[:_MOST_MAPS]
    return {
        "gpus": sorted(report.gpus, key=lambda one: GPU_VERDICTS.index(one.verdict))[:_MOST_ROWS],
        "bad": sum(bool(one.findings) for one in report.gpus),
        "classes": _CLASSES,
        "bars": [_bars(metric, report.figures) for metric in dict.fromkeys(one.metric for one in report.figures)],
        "maps": [_map(node, pairs) for node, pairs in peers],
        "lines": [_lines(one) for one in watched],
        "hidden": len(report.watched) - len(watched),
    }


def _bars(metric: str, figures: Sequence[GpuFigure]) -> dict[str, Any]:
    same = [one for one in figures if one.metric == metric]
    shown = sorted(same, key=lambda one: one.outcome == "pass")[:_MOST_ROWS] if len(same) > _MOST_ROWS else same
    top = max(one.value for one in same) or 1.0
    level = median(one.value for one in same)
    rows = [
        {
            "gpu": f"{one.node} gpu {one.gpu}",
            "value": gb_text(one.value),
            "outcome": one.outcome,
            "length": round(max(0.0, one.value) / top * _BAR, 1),
            "color": {"pass": "#0b5cad", "warn": "#c98a00"}.get(one.outcome, "#b3261e"),
        }
        for one in shown
    ]
    at = round(level / top * _BAR, 1)
    bad = sum(one.outcome != "pass" for one in same)
    values = {"metric": metric, "unit": same[0].unit, "rows": rows, "count": len(same)}
    return {**values, "median": gb_text(level), "at": at, "bad": bad}


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
    every = f", one every {one.seconds} s" if one.seconds > 1 else ""
    diagrams = [_line(getattr(one, field), title, color, every) for field, title, color in _LINES]
    return {"gpu": f"{one.node} gpu {one.gpu}", "diagrams": [diagram for diagram in diagrams if diagram]}


def _line(values: Sequence[float | None], title: str, color: str, every: str) -> dict[str, Any] | None:
    """A line from 0 to its highest value; a sample without a figure is a gap. None without any figure."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    top, step = max(known) or 1.0, _WIDE / max(1, len(values) - 1)
    parts: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{number * step:.1f},{_HIGH - max(0.0, value) / top * (_HIGH - 4):.1f}")
    text = f"{title}: {min(known):.0f} to {max(known):.0f}, median {median(known):.0f}, {len(values)} samples{every}"
    return {
        "title": text,
        "color": color,
        "parts": [" ".join(points) for points in parts if points],
        "wide": _WIDE,
        "high": _HIGH,
    }
