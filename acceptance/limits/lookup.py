"""Finding the limits that a measurement is held against: the scenario's first, then the data file's."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files

from acceptance.scenario.model import Limit, Scenario


@lru_cache(maxsize=1)
def known_limits() -> tuple[Limit, ...]:
    """The limits of the data file limits.json."""
    data = json.loads(files("acceptance.limits").joinpath("limits.json").read_text("utf-8"))
    return tuple(
        Limit(
            collective=entry["collective"],
            nodes_min=entry["nodes"][0],
            nodes_max=entry["nodes"][1],
            size_bytes=entry["size_bytes"],
            fail_below_gb_per_s=float(entry["fail_below_gb_per_s"]),
            warn_below_gb_per_s=entry["warn_below_gb_per_s"],
            source=entry["source"],
            date=entry["date"],
            instance_type=entry["instance_type"],
        )
        for entry in data["limits"]
    )


def find_limits(scenario: Scenario, collective: str, nodes: int, sizes: list[int]) -> list[Limit]:
    """Give the limits for this collective, node count and these sizes, smallest size first; none if none is known.

    Limits of the scenario replace those of the data file, they are not mixed.
    """
    own = [limit for limit in scenario.limits if _fits(limit, collective, nodes, sizes)]
    if not own:
        known = (limit for limit in known_limits() if limit.instance_type == scenario.instance_type)
        own = [limit for limit in known if _fits(limit, collective, nodes, sizes)]
    return sorted(own, key=lambda limit: limit.size_bytes)


def _fits(limit: Limit, collective: str, nodes: int, sizes: list[int]) -> bool:
    return limit.collective == collective and limit.nodes_min <= nodes <= limit.nodes_max and limit.size_bytes in sizes
