"""plan.json of a scenario's folder: what was planned, so that watching and reporting need no file but the folder's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.jsonable import FormError, form_fault, object_of
from acceptance.runner.files import read_plain

FILE = "plan.json"
JOBS = "jobs.tsv"
NEVER = "DependencyNeverSatisfied"  # Slurm's reason of a job that waits for what cannot happen any more


@dataclass(frozen=True)
class StoredTest:
    """A test of the scenario. dependencies: pairs of kind and the other test's id.

    own: command, success and figures of an own template.
    """

    __test__ = False
    id: str
    test: str
    template: str
    description: str
    dependencies: tuple[tuple[str, str], ...]
    own: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StoredJob:
    """One job. path: its folder, from the scenario's; needs: as in plan.tsv; nodes: how many; names: which, if named.

    tasks: of a node; arguments, options, environment: of the test at this point of a sweep, which point has.
    """

    number: int
    test: str
    path: str
    iteration: int
    step: int
    nodes: int
    names: tuple[str, ...]
    tasks: int
    needs: str
    ends: tuple[str, ...]
    ends_all: bool
    by_launcher: bool
    time_limit_s: int | None
    command: str
    arguments: Mapping[str, Any]
    options: Mapping[str, str]
    environment: Mapping[str, Any]
    point: Mapping[str, Any]
    post_tests: tuple[str, ...]


@dataclass(frozen=True)
class StoredPlan:
    """The whole scenario. skipped: points of sweeps that cannot run, with the reason. scheduler: slurm, standalone."""

    scenario: str
    system: str
    partition: str
    gpus_per_node: int
    tests: tuple[StoredTest, ...]
    jobs: tuple[StoredJob, ...]
    skipped: tuple[str, ...]
    scheduler: str = "slurm"
    data_repository: Mapping[str, Any] | None = None  # endpoint, verify_certs

    def text(self) -> str:
        """Return the file's text."""
        return json.dumps(self, indent=1, default=_plain) + "\n"

    def test(self, job: StoredJob) -> StoredTest:
        """Return the test of a job."""
        return next(one for one in self.tests if one.id == job.test)


def _plain(value: Any) -> Any:
    """Return what JSON has no form for: the parts of the plan as tables, dates of TOML as texts."""
    return vars(value) if is_dataclass(value) else str(value)


def is_scenario_folder(folder: Path) -> bool:
    """Return whether `dry-run` or `run` wrote this folder for a scenario of CloudAI."""
    return (folder / FILE).is_file()


def read_plan(folder: Path) -> StoredPlan:
    """Return the plan of a scenario's folder. Raises InputError if it is not one."""
    path = folder / FILE
    try:
        value = object_of(read_plain(path))
        tests = tuple(
            StoredTest(**{**one, "dependencies": tuple((kind, other) for kind, other in one["dependencies"])})
            for one in value["tests"]
        )
        lists = ("names", "ends", "post_tests")
        jobs = tuple(StoredJob(**{**one, **{name: tuple(one[name]) for name in lists}}) for one in value["jobs"])
        if any(job.path.startswith("/") or ".." in job.path.split("/") for job in jobs):
            raise FormError("a job's folder is elsewhere")
        return StoredPlan(**{**value, "tests": tests, "jobs": jobs, "skipped": tuple(value["skipped"])})
    except OSError as error:
        raise InputError([f"{path}: {error.strerror}. Hint: give the folder that run or dry-run wrote"]) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fault = f"{path}: is not a plan: {form_fault(error)}. Hint: give the folder that run or dry-run wrote"
        raise InputError([fault]) from None


def read_ids(folder: Path) -> dict[tuple[str, int, int], int]:
    """Return the ids of the submitted jobs by test, iteration and step; none before all are submitted."""
    try:
        lines = read_plain(folder / JOBS).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        rule = error.strerror if isinstance(error, OSError) else "is not UTF-8, or too large"
        raise InputError([f"{folder / JOBS}: {rule}. Hint: is it the file that submit.sh wrote?"]) from None
    rows = [line.split("\t") for line in lines]
    return {
        (row[0], int(row[1]), int(row[2])): int(row[3])
        for row in rows
        if len(row) == 4 and all(one.isdecimal() for one in row[1:])
    }
