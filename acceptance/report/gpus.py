"""The reports of the GPU suite as values: what its page, its JUnit file and its metrics show.

The suite's programs run without this package and write JSON. This module reads their files and judges nothing anew:
each verdict is one that a program wrote. A test without a result is 'not measured', never good.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.jsonable import finite

STAGES = ("compute", "memory", "pattern", "peers", "train", "inference", "screen", "stress")
_ORDER = ("pass", "no limit", "warn", "fail")  # of the programs' checks, best first
_BY_METRIC = (  # the stage whose figure a check is about, by the start of the metric's name
    ("gemm", "compute"),
    ("memory", "memory"),
    ("host to device", "memory"),
    ("device to host", "memory"),
    ("peer", "peers"),
    ("resnet50", "inference"),
    ("transformer", "inference"),
    ("stress", "stress"),
)
_STORAGE = (  # key of a directory's result, its name and its unit
    ("write_gb_per_s", "checkpoint write", "GB/s"),
    ("read_gb_per_s", "checkpoint read", "GB/s"),
    ("loader_gb_per_s", "data loader", "GB/s"),
    ("loader_reads_per_s", "data loader", "reads/s"),
    ("create_per_s", "small files created", "files/s"),
    ("stat_per_s", "small files asked for", "files/s"),
    ("remove_per_s", "small files removed", "files/s"),
)
_PARTS = {"ddp_tests": "all-reduce", "ddp_train": "DDP training", "fsdp_train": "FSDP training", "storage": "storage"}


@dataclass(frozen=True)
class SuiteTest:
    """One test on one node. verdict: pass, no limit, warn, fail or 'not measured'; cause: why, empty after a pass."""

    node: str
    name: str
    verdict: str
    cause: str


@dataclass(frozen=True)
class Figure:
    """One figure of one GPU; more is better. outcome: pass, warn or fail."""

    node: str
    gpu: int
    bus: str
    uuid: str
    model: str
    metric: str
    value: float
    unit: str
    outcome: str


@dataclass(frozen=True)
class Pair:
    """A copy from one GPU of a node to another, in GB/s. good: the data were right and no finding names the pair."""

    source: int
    target: int
    gb_per_s: float
    good: bool


@dataclass(frozen=True)
class Watched:
    """What nvidia-smi reported of one GPU in each second of the stress test; None where the GPU has no such figure."""

    node: str
    gpu: int
    sm_mhz: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]


@dataclass(frozen=True)
class StorageFigure:
    """One figure of a directory, measured by one node."""

    node: str
    directory: str
    what: str
    value: float
    unit: str


@dataclass(frozen=True)
class AllReduce:
    """The all-reduce of one size over all GPUs. ok: all sums were right."""

    size_bytes: int
    busbw_gb_per_s: float
    ok: bool


@dataclass(frozen=True)
class SuiteReport:
    """What the suite found. verdict: accepted, not accepted, or 'not measured' where no test ran on a GPU or disk."""

    directory: str
    date: str
    nodes: tuple[str, ...]
    tests: tuple[SuiteTest, ...]
    figures: tuple[Figure, ...]
    peers: Mapping[str, tuple[Pair, ...]]
    watched: tuple[Watched, ...]
    storage: tuple[StorageFigure, ...]
    all_reduce: tuple[AllReduce, ...]
    versions: Mapping[str, str]
    failures: tuple[str, ...]
    verdict: str


def read_suite(directory: Path, *more: Path) -> SuiteReport:
    """Return the report of the suite's JSON files in these directories, in any depth.

    Raises InputError with every file that cannot be read, or if there is no report at all.
    """
    found, faults = _read((directory, *more))
    if not found and not faults:
        faults = [f"{directory}: has no report of the GPU suite. Hint: run `acceptance suite --report-dir {directory}`"]
    if faults:
        raise InputError(faults)
    try:
        return _report(directory, found)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__} {error}"
        fault = f"{directory}: a report of the GPU suite lacks a field or has a wrong one ({what})"
        raise InputError([f"{fault}. Hint: run the suite again, of the same version as this program"]) from None


def _read(directories: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """The reports, oldest first, and a fault for each file that is not JSON.

    Where `run_all_tests.py` wrote, its newest report counts, with the reports of its parts that are in it: a file next
    to it may be of an older run.
    """
    found: dict[Path, list[dict[str, Any]]] = {}
    faults = []
    for path in sorted({path for directory in directories for path in directory.rglob("*.json")}):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: cannot be read as JSON: {error}. Hint: remove it or run the suite again")
            continue
        if isinstance(values, dict) and values.get("schema") == 1 and "date" in values and "result" in values:
            found.setdefault(path.parent, []).append(values)
    every = [one for reports in found.values() for one in _of_one_run(reports)]
    return sorted(every, key=lambda one: str(one["date"])), faults


def _of_one_run(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    whole = [one for one in reports if isinstance(one.get("parts"), dict)]
    if not whole:
        return reports
    last = max(whole, key=lambda one: str(one["date"]))
    parts = [part.get("report") for part in last["parts"].values() if isinstance(part, dict)]
    others = [one for one in reports if "nodes" in one]  # fleet.py's
    return [last, *(one for one in parts if isinstance(one, dict) and "date" in one), *others]


def _report(directory: Path, found: list[dict[str, Any]]) -> SuiteReport:
    gpus = {one["node"]: one for one in found if one.get("program") == "gpu_tests"}  # the newest of each node
    storage = {one["node"]: one for one in found if one.get("program") == "storage_tests"}
    groups = {_group_name(one): one for one in found if "world_size" in one}
    whole = {one["node"]: one for one in found if "parts" in one}
    fleet = [one for one in found if "nodes" in one and "checks" in one and "program" not in one][-1:]
    everyone = [*gpus.values(), *storage.values(), *groups.values(), *whole.values(), *fleet]
    checks = [check for one in (*gpus.values(), *fleet) for check in one["checks"]]
    tests = [test for node, one in sorted(gpus.items()) for test in _gpu_tests(node, one)]
    tests += [_group_test(name, one) for name, one in sorted(groups.items())]
    tests += [test for node, one in sorted(storage.items()) for test in _storage_tests(node, one)]
    tests += [test for node, one in sorted(whole.items()) for test in _missing_parts(node, one, tests)]
    tests += [test for one in fleet for test in _fleet_tests(one)]
    failures = tuple(dict.fromkeys(str(text) for one in everyone for text in one["failures"]))
    measured = any(test.verdict != "not measured" for test in tests)
    return SuiteReport(
        directory=str(directory),
        date=max(one["date"] for one in everyone),
        nodes=tuple(sorted({*gpus, *storage, *whole})),
        tests=tuple(tests),
        figures=tuple(figure for _, one in sorted(gpus.items()) for figure in _figures(one, checks)),
        peers={node: pairs for node, one in sorted(gpus.items()) if (pairs := _pairs(one, checks))},
        watched=tuple(line for _, one in sorted(gpus.items()) for line in _watched(one)),
        storage=tuple(figure for node, one in sorted(storage.items()) for figure in _storage_figures(node, one)),
        all_reduce=_all_reduce(groups.get("all-reduce", {})),
        versions=_versions([*groups.values(), *(one["environment"] for one in gpus.values())]),
        failures=failures,
        verdict="not accepted" if failures else "accepted" if measured else "not measured",
    )


def _group_name(report: Mapping[str, Any]) -> str:
    return f"{report['mode'].upper()} training" if "mode" in report else "all-reduce"


def _stage_of(check: Mapping[str, Any]) -> str:
    """The stage that a check belongs to; for a check of the whole machine the check's own name."""
    metric = str(check.get("metric", ""))
    by_metric = next((stage for start, stage in _BY_METRIC if metric.startswith(start)), None)
    watch = "stress" if check["name"] == "watch" else str(check["name"])
    return by_metric or watch


def _gpu_tests(node: str, report: Mapping[str, Any]) -> list[SuiteTest]:
    by_stage: dict[str, list[Mapping[str, Any]]] = {stage: [] for stage in STAGES}
    for check in report["checks"]:
        by_stage.setdefault(_stage_of(check), []).append(check)
    return [_gpu_test(node, stage, checks, report) for stage, checks in by_stage.items()]


def _gpu_test(node: str, stage: str, checks: list[Mapping[str, Any]], report: Mapping[str, Any]) -> SuiteTest:
    judged = [check for check in checks if check["outcome"] != "no limit"] or checks
    if not judged or (stage == "peers" and len(report["gpus"]) < 2):
        why = "this machine has no GPU" if not report["gpus"] else "left out of --stages, or ended before it"
        if stage == "peers" and len(report["gpus"]) == 1:
            why = "one GPU: there is no other to copy to"
        return SuiteTest(node, stage, "not measured", why)
    outcome = max((str(check["outcome"]) for check in judged), key=_ORDER.index)
    causes = [str(check["message"]) for check in judged if check["outcome"] == outcome and outcome != "pass"]
    return SuiteTest(node, stage, outcome, "; ".join(causes))


def _group_test(name: str, report: Mapping[str, Any]) -> SuiteTest:
    ranks = report["world_size"]
    verdict, cause = ("fail", "; ".join(report["failures"])) if report["failures"] else ("pass", "")
    if verdict == "pass" and ranks < 2:
        verdict, cause = "not measured", "one rank: there is no other to communicate with"
    return SuiteTest(f"{ranks} rank{'s' if ranks != 1 else ''}", name, verdict, cause)


def _storage_tests(node: str, report: Mapping[str, Any]) -> list[SuiteTest]:
    tests = []
    named = {str(check["message"]) for check in report["checks"]}
    for directory in report["directories"]:
        mine = [check for check in report["checks"] if f"{directory}: " in check["message"]]
        named -= {str(check["message"]) for check in mine}
        outcome = max((str(check["outcome"]) for check in mine), key=_ORDER.index, default="pass")
        causes = [str(check["message"]) for check in mine if check["outcome"] == outcome and outcome != "pass"]
        tests.append(SuiteTest(node, f"storage {directory}", outcome, "; ".join(causes)))
    # What names no measured directory: a directory that could not be written, for example.
    rest = [check for check in report["checks"] if str(check["message"]) in named and check["outcome"] != "pass"]
    return tests + [SuiteTest(node, "storage", str(check["outcome"]), str(check["message"])) for check in rest]


def _missing_parts(node: str, report: Mapping[str, Any], tests: list[SuiteTest]) -> list[SuiteTest]:
    """The parts of `run_all_tests.py` that left no report of their own, and those that were not started."""
    parts = report["parts"]
    missing = [
        SuiteTest(node, _PARTS.get(name, name), "fail", "; ".join(part["failures"]) or "left no report")
        for name, part in parts.items()
        if not part["report"]
    ]
    known = {test.name for test in tests}
    return missing + [
        SuiteTest(node, _PARTS[name], "not measured", "one GPU or none: there is no other to communicate with")
        for name in ("ddp_tests", "ddp_train", "fsdp_train")
        if name not in parts and _PARTS[name] not in known
    ]


def _fleet_tests(report: Mapping[str, Any]) -> list[SuiteTest]:
    """What only the comparison of all nodes shows. The nodes' own failures are in their rows."""
    own = [check for check in report["checks"] if check["name"] != "node" and check["outcome"] in ("warn", "fail")]
    nodes = f"{len(report['nodes'])} nodes"
    if not own:
        return [SuiteTest(nodes, "fleet", "pass", "")]
    return [SuiteTest(nodes, f"fleet: {check['name']}", str(check["outcome"]), str(check["message"])) for check in own]


def _figures(report: Mapping[str, Any], checks: list[Mapping[str, Any]]) -> list[Figure]:
    gpus = {gpu["index"]: gpu for gpu in report["gpus"]}
    found = []
    for one in report["readings"]:
        gpu, value = gpus[one["gpu"]], finite(float(one["value"]))
        if value is None:
            continue
        where = f"{report['node']} gpu {one['gpu']} ("
        found.append(
            Figure(
                report["node"],
                one["gpu"],
                gpu["bus"],
                str(gpu.get("uuid", "")),
                gpu["name"],
                one["metric"],
                value,
                one["unit"],
                _outcome(checks, where, one["metric"]),
            )
        )
    return found


def _outcome(checks: list[Mapping[str, Any]], where: str, metric: str) -> str:
    """The worst outcome of the checks that name this GPU and figure. Every finding starts with the GPU it names."""
    named = [
        str(check["outcome"])
        for check in checks
        if check.get("metric") == metric and str(check["message"]).startswith(where) and check["outcome"] != "no limit"
    ]
    return max(named, key=_ORDER.index, default="pass")


def _pairs(report: Mapping[str, Any], checks: list[Mapping[str, Any]]) -> tuple[Pair, ...]:
    pairs = []
    buses = {gpu["index"]: gpu["bus"] for gpu in report["gpus"]}
    for one in report.get("peers", {}).get("pairs", []):
        source, target = one["from"], one["to"]
        where = f"{report['node']} gpu {source} ({buses[source]} to gpu {target} "
        metric = "peer" if one["direct"] else "peer through the host"
        good = not one["wrong"] and _outcome(checks, where, metric) == "pass"
        pairs.append(Pair(source, target, float(one["gb_per_s"]), good))
    return tuple(pairs)


def _watched(report: Mapping[str, Any]) -> list[Watched]:
    lines = []
    for gpu in report["gpus"]:
        mine = [one for one in report.get("samples", []) if one["bus"] == gpu["bus"]]
        if mine:
            columns = (tuple(one[name] for one in mine) for name in ("sm_mhz", "power_w", "temperature_c"))
            lines.append(Watched(report["node"], gpu["index"], *columns))
    return lines


def _storage_figures(node: str, report: Mapping[str, Any]) -> list[StorageFigure]:
    found = []
    for directory, result in report["directories"].items():
        rows = [(what, result[key], unit) for key, what, unit in _STORAGE if key in result]
        for kind, one in result.get("fio", {}).items():
            if "error" not in one:
                rows += [(f"fio {kind} 4 KiB", one["iops"], "operations/s")]
        found += [StorageFigure(node, directory, what, float(value), unit) for what, value, unit in rows]
    return found


def _all_reduce(report: Mapping[str, Any]) -> tuple[AllReduce, ...]:
    rows = report.get("allreduce", [])
    return tuple(AllReduce(int(one["bytes"]), float(one["busbw_gb_per_s"]), bool(one["ok"])) for one in rows)


def _versions(sources: list[Mapping[str, Any]]) -> dict[str, str]:
    """The software by name; nodes that differ are listed one after the other."""
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        for name in ("python", "torch", "cuda", "cudnn", "nccl"):
            if source.get(name) is not None:
                found.setdefault(name, {})[str(source[name])] = None
    return {name: ", ".join(versions) for name, versions in sorted(found.items())}
