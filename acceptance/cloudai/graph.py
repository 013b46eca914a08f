"""The dependencies of a scenario: what each needs, cycles, and an order in which jobs can be submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acceptance.cloudai.remarks import Spot
from acceptance.scenario.runs import TestRun


def check_dependencies(runs: Sequence[Any], spot: Spot) -> None:
    """Refuse ids that are used twice, and dependencies on itself, on an unknown id, given twice, or in a circle.

    runs: the tables of the file.
    """
    tables = [(index, run) for index, run in enumerate(runs) if isinstance(run, dict)]
    ids: dict[str, int] = {}
    needs: dict[str, list[str]] = {}
    for index, run in tables:
        name = str(run.get("id"))
        if "id" in run and name in ids:
            rule = f"is already the id of Tests[{ids[name]}]"
            spot.at("Tests", index, "id").error(run["id"], rule, "give each test its own id")
        ids.setdefault(name, index)
    for index, run in tables:
        written = run.get("dependencies")
        seen: set[tuple[str, str]] = set()
        for number, one in enumerate(written if isinstance(written, list) else ()):
            if not isinstance(one, dict) or not isinstance(one.get("id"), str):
                continue
            there = spot.at("Tests", index, "dependencies", number, "id")
            other, key = one["id"], (str(one.get("type")), one["id"])
            if other == run.get("id"):
                there.error(other, "is the test's own id", "name another test, or remove the dependency")
            elif other not in ids:
                hint = spot.remarks.did_you_mean(other, ids, "correct it")
                there.error(other, "is not the id of a test of this scenario", hint)
            elif key in seen:
                there.error(other, f"is given twice with the type {key[0]}", "remove one")
            else:
                needs.setdefault(str(run.get("id")), []).append(other)
            seen.add(key)
    circle = _circle(needs)
    if circle:
        left_out = [f"{len(circle) - 10} others"] if len(circle) > 10 else []
        names = " -> ".join([*circle[:10], *left_out, circle[0]])
        index = ids[circle[0]]
        spot.at("Tests", index, "dependencies").error(
            [circle[1 % len(circle)]], f"is part of a circle of dependencies: {names}", "remove one of them"
        )


def _circle(needs: dict[str, list[str]]) -> list[str]:
    """Return the ids of one circle, empty if no circle exists. Without recursion: a chain may have 1,000 tests."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        on_path: set[str] = set()
        work = [(start, iter(needs.get(start, ())))]
        while work:
            name, rest = work[-1]
            if name not in on_path:
                path.append(name)
                on_path.add(name)
            after = next(rest, None)
            if after is None:
                work.pop()
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif after in on_path:
                return path[path.index(after) :]
            elif after not in done:
                work.append((after, iter(needs.get(after, ()))))
    return []


def submission_order(runs: Sequence[TestRun]) -> list[TestRun]:
    """Return the runs so that each comes after those whose job ids it needs; else in the order of the file."""
    by_id = {run.id: run for run in runs}
    order: dict[str, TestRun] = {}
    for first in runs:
        work = [first]
        while work:
            run = work[-1]
            waiting = [by_id[one.id] for one in run.dependencies if one.kind != "end_post_comp" and one.id not in order]
            if waiting:
                work.append(waiting[0])
            else:
                order[run.id] = work.pop()
    return list(order.values())
