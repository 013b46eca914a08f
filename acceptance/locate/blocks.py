"""Narrowing down a fleet that fails as a whole although every pair is good. Pure.

Up to eight parts at the same time, whole switches where they are known; then the parts of a bad part; at last each half
of a bad couple with a good neighbour. Three rounds and about 20 launches for 64 switches.
"""

from __future__ import annotations

from acceptance.locate.evidence import Evidence
from acceptance.locate.model import Launch

_PARTS = 8  # launches of a round at most

Unit = tuple[str, ...]


def next_blocks(evidence: Evidence, ring: list[str]) -> tuple[Launch, ...]:
    """The parts to measure next; empty when the smallest is found or all parts are good."""
    full = evidence.measured.fleet.full_scale
    if full is None:
        return ()
    blamed = evidence.blamed()
    units = _units(evidence, [node for node in ring if node not in blamed])
    if len(units) < 3:
        return ()
    measured = [result for result in evidence.measured.results if result.kind == "block"]
    done = {result.node_set for result in measured}
    if not measured and len(units) > 3:
        return _launches(full.collective, _split(units))
    bad = smallest_bad(evidence)
    inner = [unit for unit in units if set(unit) <= set(bad[0])] if bad else units
    if len(inner) == 3:
        couples = _launches(full.collective, [inner[:2], inner[1:], inner[::2]])
        return tuple(one for one in couples if frozenset(one.nodes) not in done)[:1]
    if not bad:
        return ()
    fine = {node for result in measured if evidence.measured.good(result) for node in result.nodes}
    others = [unit for unit in units if unit not in inner and fine.issuperset(unit)]
    parts = _split(inner) if len(inner) > 2 else []
    if len(inner) == 2:
        parts = [[unit, other] for unit, other in zip(inner, others)]
    if len(parts) == 1 and len(others) >= len(parts[0]):
        parts.append(others[: len(parts[0])])  # something of this size to compare it with
    return tuple(launch for launch in _launches(full.collective, parts) if frozenset(launch.nodes) not in done)


def smallest_bad(evidence: Evidence) -> list[tuple[str, ...]]:
    """What the bad parts have in common, one entry a fault, smallest first."""
    measured = evidence.measured
    bad = [result for result in measured.results if result.kind == "block" and not measured.good(result)]
    found: list[tuple[str, ...]] = []
    for result in sorted(bad, key=lambda one: len(one.nodes)):
        for index, candidate in enumerate(found):
            common = tuple(node for node in candidate if node in result.nodes)
            if common:
                found[index] = common
                break
        else:
            found.append(result.nodes)
    return sorted(found, key=len)


def _units(evidence: Evidence, nodes: list[str]) -> list[Unit]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(evidence.measured.group(node) or node, []).append(node)
    if len(groups) > 2:
        return [tuple(group) for group in groups.values()]
    return [(node,) for node in nodes]


def _split(units: list[Unit]) -> list[list[Unit]]:
    """At most eight parts of at least two units each, as equal as can be."""
    count = max(1, min(_PARTS, len(units) // 2))
    ends = [round(index * len(units) / count) for index in range(count + 1)]
    return [units[ends[index] : ends[index + 1]] for index in range(count)]


def _launches(collective: str, parts: list[list[Unit]]) -> tuple[Launch, ...]:
    nodes = [tuple(node for unit in part for node in unit) for part in parts]
    return tuple(Launch("block", collective, part) for part in nodes if len(part) > 1)
