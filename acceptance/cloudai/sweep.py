"""Sweeps: each list of a test's arguments, variables or numbers of nodes is a dimension, and all points are run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from acceptance.scenario.runs import TestRun

NODES = "NUM_NODES"
_VARIABLE = "extra_env_vars."


def dimensions(run: TestRun) -> dict[str, list[Any]]:
    """Return the lists of a sweep by name, in CloudAI's order: arguments, variables, nodes. The last is the fastest."""
    lists = {
        path: value
        for path, value in _flat(run.test.arguments)
        if isinstance(value, list) and not _literal(path, run.test.literal)
    }
    for name, value in run.test.environment.items():
        if isinstance(value, list):
            lists[_VARIABLE + name] = value
    if run.counts_swept:
        lists[NODES] = list(run.counts)
    return lists


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _literal(path: str, literal: tuple[str, ...]) -> bool:
    return any(f"cmd_args.{path}" == one or f"cmd_args.{path}".startswith(f"{one}.") for one in literal)


def point_count(run: TestRun) -> int:
    """Return the number of points without making them: a file of a few lines can ask for millions."""
    return math.prod(map(len, dimensions(run).values()))


def points(run: TestRun) -> list[tuple[dict[str, Any], TestRun]]:
    """Return each point of a sweep with its values; a run without lists has one point without values."""
    lists = dimensions(run)
    result = []
    for values in itertools.product(*lists.values()):
        point = dict(zip(lists, values))
        result.append((point, _at(run, point)))
    return result


def _at(run: TestRun, point: Mapping[str, Any]) -> TestRun:
    arguments, environment, counts = run.test.arguments, dict(run.test.environment), run.counts
    for name, value in point.items():
        if name == NODES:
            counts = (value,)
        elif name.startswith(_VARIABLE):
            environment[name[len(_VARIABLE) :]] = value
        else:
            arguments = _changed(arguments, name.split("."), value)
    test = replace(run.test, arguments=arguments, environment=environment)
    return replace(run, test=test, counts=counts, counts_swept=False)


def _changed(table: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """Return a copy with one value changed. A key may contain dots itself, as those of tables with free keys do."""
    for length in range(1, len(path) + 1):
        name = ".".join(path[:length])
        if name in table:
            rest = path[length:]
            return {**table, name: _changed(table[name], rest, value) if rest else value}
    raise KeyError(".".join(path))
