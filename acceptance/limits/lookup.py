"""Finding the limits that a measurement is compared with: the scenario's, else the data file's, else derived ones."""

from __future__ import annotations

from collections.abc import Sequence

from acceptance.limits.data import known_limits
from acceptance.limits.derived import derived_limit
from acceptance.limits.interpolate import limit_at
from acceptance.scenario.model import Limit, Scenario


def find_limits(scenario: Scenario, collective: str, nodes: int, sizes: Sequence[int]) -> list[Limit]:
    """Return the limits for this collective, node count and these sizes, smallest size first; none if none is known.

    Limits of the scenario replace those of the data file, they are not mixed. Interpolated ones are given only where
    no size has an exact one, and the derived one of the largest size only where there is no other. One GPU exchanges
    nothing: it has no limit.
    """
    if nodes * scenario.gpus_per_node < 2:
        return []
    for limits in (scenario.limits, known_limits()):
        of_type = [limit for limit in limits if limit.instance_type in (None, scenario.instance_type)]
        fitting = [limit for limit in of_type if limit.collective == collective]
        found = [limit for limit in (limit_at(fitting, nodes, size) for size in sizes) if limit is not None]
        chosen = [limit for limit in found if limit.note is None] or found
        if chosen:
            return sorted(chosen, key=lambda limit: limit.size_bytes)
    derived = derived_limit(scenario, collective, nodes, max(sizes)) if sizes else None
    return [derived] if derived else []
