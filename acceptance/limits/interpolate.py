"""Finding a limit between known ones: linear in log(size) and log(nodes), never beyond the outermost. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from acceptance.scenario.model import Limit
from acceptance.text import size_text

MOST_APART_SIZES = 8  # factor between two sizes that may be interpolated between
MOST_APART_NODES = 4  # the same for numbers of nodes
NETWORK_BOUND_FROM = {"all_reduce": 4}
"""Nodes from which on the network binds a collective (others: 2). One and two nodes of an all_reduce are bound by
NVLink: nothing lies between such a figure and one of the network's."""


def limit_at(limits: Iterable[Limit], nodes: int, size: int) -> Limit | None:
    """Return the limit for `nodes` and `size` bytes, exact or interpolated (its `note` says so), or None.

    limits: all of one collective and instance type.
    """
    limits = list(limits)
    here = _at_size([limit for limit in limits if limit.nodes_min <= nodes <= limit.nodes_max], size)
    if here is not None:
        return here
    below = _nearest(limits, nodes, size, -1)
    above = _nearest(limits, nodes, size, 1)
    if below is None or above is None:
        return None
    (few, low), (many, high) = below, above
    if many > MOST_APART_NODES * few or few < NETWORK_BOUND_FROM.get(low.collective, 2):
        return None
    note = f"interpolated between {few} and {many} nodes"
    return replace(_between(low, high, _share(few, nodes, many), note), nodes_min=nodes, nodes_max=nodes)


def _at_size(limits: list[Limit], size: int) -> Limit | None:
    for limit in limits:
        if limit.size_bytes == size:
            return limit
    below = max((limit for limit in limits if limit.size_bytes < size), key=lambda one: one.size_bytes, default=None)
    above = min((limit for limit in limits if limit.size_bytes > size), key=lambda one: one.size_bytes, default=None)
    if below is None or above is None or above.size_bytes > MOST_APART_SIZES * below.size_bytes:
        return None
    note = f"interpolated between {size_text(below.size_bytes)} and {size_text(above.size_bytes)}"
    return replace(_between(below, above, _share(below.size_bytes, size, above.size_bytes), note), size_bytes=size)


def _nearest(limits: list[Limit], nodes: int, size: int, side: int) -> tuple[int, Limit] | None:
    """The nearest number of nodes on one side (-1 fewer, 1 more) that has a limit at this size, and that limit."""
    counts = {end for limit in limits for end in (limit.nodes_min, limit.nodes_max) if (end - nodes) * side > 0}
    for count in sorted(counts, key=lambda one: abs(one - nodes)):
        found = _at_size([limit for limit in limits if limit.nodes_min <= count <= limit.nodes_max], size)
        if found is not None:
            return count, found
    return None


def _share(low: int, value: int, high: int) -> float:
    return math.log(value / low) / math.log(high / low)


def _between(low: Limit, high: Limit, share: float, note: str) -> Limit:
    """The limit at `share` of the way from `low` to `high`; a bound that one of them lacks is left out."""
    warn = None
    if low.warn_below_gb_per_s is not None and high.warn_below_gb_per_s is not None:
        warn = round(low.warn_below_gb_per_s + share * (high.warn_below_gb_per_s - low.warn_below_gb_per_s), 4)
    return replace(
        low,
        fail_below_gb_per_s=round(
            low.fail_below_gb_per_s + share * (high.fail_below_gb_per_s - low.fail_below_gb_per_s), 4
        ),
        warn_below_gb_per_s=warn,
        source="; ".join(dict.fromkeys([low.source, high.source])),
        date=min(low.date, high.date),
        note=", ".join(dict.fromkeys(part for part in (low.note, high.note, note) if part)),
    )
