"""The general scenario: test runs with templates, dependencies and hooks, as CloudAI's files describe them.

`acceptance.json` is one form of it: `as_test_scenario` gives its sweeps as runs of the template NcclTest, and
`as_sweep` gives the sweep that such a run measures, in the form that the runner and the report know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acceptance.scenario.model import COLLECTIVES, Scenario, Test

NCCL_TEMPLATE = "NcclTest"
DEPENDENCY_KINDS = ("start_post_comp", "start_post_init", "end_post_comp")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class TestDefinition:
    """What a test runs. arguments: `cmd_args` with the template's defaults, in the order of a sweep's dimensions.

    environment: values may be lists, which are sweeps. options: `extra_cmd_args`, an empty value is a flag. literal:
    paths such as `cmd_args.x` whose lists are no sweeps. other: fields that only CloudAI's agents and reports read.
    """

    __test__ = False
    name: str
    description: str
    template: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    repositories: tuple[Mapping[str, Any], ...] = ()
    nsys: Mapping[str, Any] | None = None
    literal: tuple[str, ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dependency:
    """`kind` is one of DEPENDENCY_KINDS, `id` the other test run."""

    kind: str
    id: str


@dataclass(frozen=True)
class TestRun:
    """One entry of a scenario. counts: numbers of nodes; more than one is a sweep; empty: not given.

    nodes: names, ranges and groups as written; they win over counts. time_limit_s: of the test without its hooks.
    """

    __test__ = False
    id: str
    test: TestDefinition
    counts: tuple[int, ...] = ()
    counts_swept: bool = False
    nodes: tuple[str, ...] = ()
    exclude_nodes: tuple[str, ...] = ()
    iterations: int = 1
    time_limit_s: int | None = None
    dependencies: tuple[Dependency, ...] = ()
    srun_arguments: str = ""
    sol: float | None = None
    ideal_perf: float = 1.0
    weight: int = 0


@dataclass(frozen=True)
class TestScenario:
    """Runs in the order of the file. job_status_check: the first failed job ends all others."""

    __test__ = False
    name: str
    runs: tuple[TestRun, ...]
    job_status_check: bool = True
    pre_test: TestScenario | None = None
    post_test: TestScenario | None = None
    reports: Mapping[str, Any] = field(default_factory=dict)


def as_test_scenario(scenario: Scenario) -> TestScenario:
    """Return what an `acceptance.json` measures as a general scenario. Its tests run one after another."""
    runs: list[TestRun] = []
    for test in scenario.tests:
        arguments = {
            "subtest_name": f"{test.collective}_perf_mpi",
            "ngpus": 1,
            "minbytes": str(test.min_bytes),
            "maxbytes": str(test.max_bytes),
            "stepfactor": test.step_factor,
            "iters": test.iterations,
            "warmup_iters": test.warmup_iterations,
            "check": 1,
        }
        if scenario.container:
            arguments["docker_image_url"] = scenario.container.image
        mounts = scenario.container.mounts if scenario.container else ()
        definition = TestDefinition(
            test.name, test.collective, NCCL_TEMPLATE, arguments, dict(scenario.environment), mounts=mounts
        )
        before = (Dependency("start_post_comp", runs[-1].id),) if runs else ()
        runs.append(TestRun(test.name, definition, (scenario.nodes,), time_limit_s=test.timeout_s, dependencies=before))
    return TestScenario(scenario.cluster, tuple(runs), job_status_check=False)


def as_sweep(run: TestRun, default_timeout_s: int = 3600) -> Test:
    """Return the sweep of a run of NcclTest. Raises ValueError if its collective is not judged."""
    arguments = run.test.arguments
    collective = re.sub(r"_perf(_mpi)?$", "", str(arguments.get("subtest_name", "")).rsplit("/", 1)[-1])
    factor = run.test.options.get("--stepfactor") or run.test.options.get("-f") or arguments.get("stepfactor")
    if run.test.template != NCCL_TEMPLATE or collective not in COLLECTIVES:
        raise ValueError(f"{run.id}: is not a collective of nccl-tests that is judged")
    step = run.test.options.get("--stepbytes") or run.test.options.get("-i") or arguments.get("stepbytes") or "1M"
    return Test(
        name=run.id,
        collective=collective,
        min_bytes=bytes_of(str(arguments["minbytes"])),
        max_bytes=bytes_of(str(arguments["maxbytes"])),
        step_factor=int(factor or 1),
        iterations=int(arguments["iters"]),
        warmup_iterations=int(arguments["warmup_iters"]),
        timeout_s=run.time_limit_s or default_timeout_s,
        step_bytes=0 if factor else bytes_of(str(step)),
    )


def bytes_of(text: str) -> int:
    """Return a size of nccl-tests in bytes: `32M` is 32 * 2**20. Raises ValueError."""
    match = re.fullmatch(r"(\d+)([BKMGT]?)", text.strip().upper())
    if match is None:
        raise ValueError(f"{text!r}: is not a size such as 128, 8M or 16G")
    return int(match[1]) * _UNITS[match[2]]
