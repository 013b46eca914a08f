"""The heat map of pairs: position and look of each cell. The page's template draws it as SVG."""

from __future__ import annotations

from typing import Any

from acceptance.report.model import LaunchReport, Report
from acceptance.text import gb_text

MOST_NODES = 48  # a side; of larger fleets the nodes of bad pairs come first
_WITH_FIGURES = 16  # up to this many nodes the cells show their figures
_CELL, _SMALL_CELL = 44, 18  # pixels
_LONGEST_NAME = 22  # characters
# Each colour is used from this share of the best pair's bandwidth on. Dark is slow: the steps differ in grey too.
_STEPS = (
    (0.95, "#dcebf7", "95 % of the best and more"),
    (0.85, "#9ec5e8", "85 %"),
    (0.60, "#f6b26b", "60 %"),
    (0.30, "#d9662b", "30 %"),
    (0.00, "#8c2d04", "less"),
)
NOTHING = ("#2b2b2b", "no result: hang, failure or wrong data")
LEGEND = [{"color": color, "text": text} for color, text in (*(step[1:] for step in _STEPS), NOTHING)]


def shade(share: float) -> str:
    """Return the colour of this share of the best bandwidth."""
    return next(color for least, color, _ in _STEPS if share >= least)


def heat_maps(report: Report) -> list[dict[str, Any]]:
    """One map a collective that pairs were measured with."""
    pairs = report.locate.pairs if report.locate else ()
    order = [node.name for node in report.nodes]
    collectives = dict.fromkeys(pair.collective for pair in pairs)
    return [_map(one, [pair for pair in pairs if pair.collective == one], order) for one in collectives]


def _map(collective: str, pairs: list[LaunchReport], order: list[str]) -> dict[str, Any]:
    named = {node for pair in pairs for node in pair.nodes}
    bad = {node for pair in pairs if not pair.good for node in pair.nodes}
    shown = sorted(named, key=lambda node: (node not in bad, _place(node, order)))[:MOST_NODES]
    shown.sort(key=lambda node: _place(node, order))
    cell = _CELL if len(shown) <= _WITH_FIGURES else _SMALL_CELL
    left = 16 + 8 * min(max(map(len, shown)), _LONGEST_NAME)
    best = max((pair.busbw_gb_per_s or 0.0 for pair in pairs), default=0.0)
    places = {node: index for index, node in enumerate(shown)}
    good = sum(pair.good for pair in pairs)
    cells = []
    for nodes, some in _by_pair(pairs).items():
        first, second = nodes
        if first in places and second in places:
            look = _look(some, best, cell == _CELL)
            for row, column in ((first, second), (second, first)):
                x, y = left + cell * places[column], left + cell * places[row]
                cells.append({**look, "x": x, "y": y})
    return {
        "collective": collective,
        "cell": cell,
        "left": left,
        "side": left + cell * len(shown) + 4,
        "names": [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in shown],
        "cells": cells,
        "hidden": len(named) - len(shown),
        "legend": LEGEND,
        "summary": f"{len(_by_pair(pairs))} pairs of {len(named)} nodes, {len(pairs) - good} results bad",
    }


def _place(node: str, order: list[str]) -> tuple[int, str]:
    return (order.index(node) if node in order else len(order)), node


def _by_pair(pairs: list[LaunchReport]) -> dict[tuple[str, str], list[LaunchReport]]:
    found: dict[tuple[str, str], list[LaunchReport]] = {}
    for pair in pairs:
        first, second = sorted(pair.nodes)
        found.setdefault((first, second), []).append(pair)
    return found


def _look(some: list[LaunchReport], best: float, with_figure: bool) -> dict[str, Any]:
    """Colour, text and title of a cell; of a pair measured more than once the lowest counts."""
    lowest = min(some, key=lambda pair: pair.busbw_gb_per_s or 0.0)
    value = lowest.busbw_gb_per_s
    words = ", ".join(f"round {p.round}: {_words(p)}" for p in some)
    share = value / best if value and best else 0.0
    color = NOTHING[0] if not value else shade(share)
    return {
        "color": color,
        "ink": "#ffffff" if not value or share < 0.60 else "#1b1f24",
        "text": (_short(value) if value else "✕") if with_figure or not value else "",
        "title": f"{' + '.join(lowest.nodes)}: {words}",
        "bad": any(not pair.good for pair in some),
    }


def _words(pair: LaunchReport) -> str:
    return f"{gb_text(pair.busbw_gb_per_s)} GB/s" if pair.busbw_gb_per_s is not None else pair.outcome


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
