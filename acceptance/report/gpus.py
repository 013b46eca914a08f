"""Reading the reports of the GPU suite, which runs without this package and writes JSON.

A run that has the suite's results has them in its directory `gpus`: `add_suite` says of which nodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.jsonable import FormError, finite, form_fault, object_of
from acceptance.report.gpus_history import compared_with_history
from acceptance.report.gpus_model import (
    GPU_VERDICTS,
    CollectiveRow,
    GpuBaseline,
    GpuFigure,
    GpuReport,
    Pair,
    ReportedJob,
    StorageFigure,
    SuiteFailure,
    SuiteReport,
    SuiteTest,
    Watched,
)
from acceptance.report.gpus_storage import compared_with_file_system
from acceptance.runner.files import read_plain, write_whole
from acceptance.scenario.model import FileSystem

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
_PARTS = {
    "ddp_tests": "communication",
    "ddp_train": "DDP training",
    "fsdp_train": "FSDP training",
    "storage": "storage",
}


FOLDER = "gpus"  # in a run directory
GPU_BASELINES = f"{FOLDER}/baselines.json"  # in a run directory: what is normal for each GPU, by the history
SUITE, STORAGE = "suite", "storage"  # names of jobs
_PROGRAMS = {SUITE: "gpu_tests", STORAGE: "storage_tests"}  # that each node of the job runs
_MOST_FILES = 100_000  # of the reports of some thousand nodes
_MOST_SAMPLES = 300  # of one GPU's stress test


def add_suite(
    run: Path,
    job: str,
    nodes: Sequence[str],
    *,
    log: str | None = None,
    repeat: str | None = None,
    ended: str | None = None,
) -> Path:
    """Make the results of a job part of a run's report; return the folder for them: `--report-dir FOLDER/%N`.

    job: SUITE or STORAGE. A node of it that leaves no result is a failure of the run. Call it before the job is
    submitted, and again with `ended`, the reason, if the job did not end well. log: in the run directory; repeat: the
    command that measures just this again. Raises OSError.
    """
    values = {"nodes": list(nodes), "log": log, "repeat": repeat, "ended": ended}
    folder = run / FOLDER / job
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(run / FOLDER / f"{job}.json", json.dumps(values, indent=1) + "\n")
    return folder


def suite_of(run: Path, file_system: FileSystem | None) -> SuiteReport | None:
    """Return the results of a run's jobs of the GPU suite, None where it has none. file_system: of the scenario.

    A file that cannot be read is a failure among the others: the report shows what the other nodes measured.
    """
    jobs = tuple(job for name in _PROGRAMS if (job := _job(run / FOLDER / f"{name}.json", name)) is not None)
    if not jobs:
        return None
    found, faults = _read([run / FOLDER])
    report = compared_with_history(_report(found), _baselines(run / GPU_BASELINES))
    report = compared_with_file_system(report, file_system)
    missing = [test for job in jobs for test in _missing_nodes(job, found)]
    failures = [*report.failures, *(SuiteFailure(fault, SUITE) for fault in faults)]
    failures += [SuiteFailure(f"{test.node}: {test.name}: {test.cause}", name) for name, test in missing]
    return replace(
        report,
        nodes=tuple(sorted({*report.nodes, *(node for job in jobs for node in job.nodes)})),
        tests=(*report.tests, *(test for _, test in missing)),
        failures=tuple(failures),
        verdict="not accepted" if failures else report.verdict,
        jobs=jobs,
    )


def _job(path: Path, name: str) -> ReportedJob | None:
    """Raises InputError where `add_suite` did not write the file."""
    try:
        values = object_of(read_plain(path))
        return ReportedJob(name, tuple(map(str, values["nodes"])), values["log"], values["repeat"], values["ended"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            [f"{path}: is not the record of a job: {form_fault(error)}. Hint: give the directory of a run"]
        ) from None


def _baselines(path: Path) -> list[GpuBaseline]:
    """Raises InputError where the history did not write the file."""
    try:
        return [GpuBaseline(**one) for one in json.loads(read_plain(path))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        fault = (
            f"{path}: does not have the baselines of GPUs: {form_fault(error)}. Hint: remove it to judge without them"
        )
        raise InputError([fault]) from None


def _missing_nodes(job: ReportedJob, found: Sequence[Mapping[str, Any]]) -> list[tuple[str, SuiteTest]]:
    """The nodes of a job without a report of its program."""
    program = _PROGRAMS[job.name]
    measured = {one["node"] for one in found if one.get("program") == program or program in one.get("parts", {})}
    why = f"left no result: {job.ended or 'its program ended before it wrote one'}"
    name = "GPU suite" if job.name == SUITE else "storage"
    return [(job.name, SuiteTest(node, name, "not measured", why)) for node in job.nodes if node not in measured]


def read_suite(directory: Path, *more: Path) -> SuiteReport:
    """Return the report of the suite's JSON files in these directories, in any depth.

    Raises InputError with every file that cannot be read, or if there is no report at all.
    """
    found, faults = _read((directory, *more))
    if not found and not faults:
        faults = [f"{directory}: has no report of the GPU suite. Hint: run `acceptance suite --report-dir {directory}`"]
    if faults:
        raise InputError(faults)
    return _report(found)


def _json_files(directory: Path) -> Iterator[Path]:
    """Every file of JSON in a directory, in any depth. Raises InputError if it has too many files to be one of ours."""
    count = 0
    for folder, folders, names in os.walk(directory):
        count += len(folders) + len(names)
        if count > _MOST_FILES:
            rule = f"is not a run directory: it has more than {_MOST_FILES} files"
            raise InputError([f"{directory}: {rule}. Hint: give the directory of a run or of the GPU suite's reports"])
        yield from (Path(folder, name) for name in names if name.endswith(".json"))


def _read(directories: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """The reports, oldest first, and a fault for each file that is not JSON or that lacks a field.

    Where `run_all_tests.py` wrote, its newest report counts, with the reports of its parts that are in it: an older
    file next to it is of an older run.
    """
    found: dict[Path, list[dict[str, Any]]] = {}
    faults = []
    for path in sorted({path for directory in directories for path in _json_files(directory)}):
        try:
            values = json.loads(read_plain(path))
            if isinstance(values, dict) and values.get("schema") == 1 and "date" in values and "result" in values:
                json.dumps(values, ensure_ascii=False).encode()  # halves of surrogate pairs cannot be written
                _check_form(values)
                _report(_of_one_run([values]))
                found.setdefault(path.parent, []).append(values)
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(
                f"{path}: cannot be read as JSON: {form_fault(error)}. Hint: remove it or run the suite again"
            )
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            what = f"a report of the GPU suite that lacks a field or has a wrong one: {form_fault(error)}"
            faults.append(f"{path}: {what}. Hint: run the suite again, of the same version as this program")
    every = [one for reports in found.values() for one in _of_one_run(reports)]
    return sorted(every, key=lambda one: str(one["date"])), faults


def _check_form(values: Mapping[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError for what would only show next to other reports, or would be left out."""
    if not all(isinstance(values.get(name, ""), str) for name in ("node", "date")):
        raise FormError("node and date must be texts")
    if not all(0 <= gpu["index"] < 1 << 31 for gpu in values.get("gpus", ())):
        raise FormError("the index of a GPU must be a number, 0 or more")
    for check in values.get("checks", ()):
        if check["outcome"] not in _ORDER or not isinstance(check["message"], str):
            raise FormError(f"a check's outcome must be one of {', '.join(_ORDER)}, and its message a text")
    for name, part in values.get("parts", {}).items():
        if part["report"]:
            if "date" not in part["report"]:
                raise FormError(f"the report of {name} has no date")
            _check_form(part["report"])


def _of_one_run(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    whole = [one for one in reports if isinstance(one.get("parts"), dict)]
    if not whole:
        return reports
    last = max(whole, key=lambda one: str(one["date"]))
    parts = [part.get("report") for part in last["parts"].values() if isinstance(part, dict)]
    others = [one for one in reports if "nodes" in one or str(one["date"]) > str(last["date"])]  # fleet.py's, and newer
    return [last, *({"node": last["node"], **one} for one in parts if isinstance(one, dict) and "date" in one), *others]


def _report(found: Sequence[dict[str, Any]]) -> SuiteReport:
    gpus = {one["node"]: one for one in found if one.get("program") == "gpu_tests"}  # the newest of each node
    storage = {one["node"]: one for one in found if one.get("program") == "storage_tests"}
    groups = {(str(one.get("node", "")), _group_name(one)): one for one in found if "world_size" in one}
    whole = {one["node"]: one for one in found if "parts" in one}
    fleet = [one for one in found if "nodes" in one and "checks" in one and "program" not in one][-1:]
    others = [*gpus.values(), *groups.values(), *whole.values(), *fleet]
    checks = [check for one in (*gpus.values(), *fleet) for check in one["checks"]]
    tests = [test for node, one in sorted(gpus.items()) for test in _gpu_tests(node, one)]
    tests += [_group_test(node, name, one) for (node, name), one in sorted(groups.items())]
    tests += [test for node, one in sorted(storage.items()) for test in _storage_tests(node, one)]
    tests += [test for node, one in sorted(whole.items()) for test in _missing_parts(node, one, {*groups})]
    tests += [test for one in fleet for test in _fleet_tests(one)]
    failures = {str(text): STORAGE for one in storage.values() for text in one["failures"]}
    failures = {**{str(text): SUITE for one in others for text in one["failures"]}, **failures}
    measured = any(test.verdict != "not measured" for test in tests)
    return SuiteReport(
        date=max((one["date"] for one in found), default=""),
        nodes=tuple(sorted({*gpus, *storage, *whole})),
        tests=tuple(tests),
        gpus=tuple(gpu for _, one in sorted(gpus.items()) for gpu in _gpus(one, checks)),
        figures=tuple(figure for _, one in sorted(gpus.items()) for figure in _figures(one, checks)),
        peers={node: pairs for node, one in sorted(gpus.items()) if (pairs := _pairs(one, checks))},
        watched=tuple(line for _, one in sorted(gpus.items()) for line in _watched(one)),
        storage=tuple(figure for node, one in sorted(storage.items()) for figure in _storage_figures(node, one)),
        collectives=tuple(row for (node, _), one in sorted(groups.items()) for row in _collectives(node, one)),
        versions=_versions([*groups.values(), *(one["environment"] for one in gpus.values())]),
        failures=tuple(SuiteFailure(what, job) for what, job in failures.items()),
        verdict="not accepted" if failures else "accepted" if measured else "not measured",
    )


def _gpus(report: Mapping[str, Any], checks: list[Mapping[str, Any]]) -> list[GpuReport]:
    """A verdict for each GPU of a node: the worst of the checks that name it."""
    found, measured = [], {one["gpu"] for one in report["readings"]}
    measured |= {int(gpu) for results in report["stages"].values() for gpu in results}
    for gpu in report["gpus"]:
        where = f"{report['node']} gpu {gpu['index']} ({gpu['bus']}"
        named = [check for check in checks if check["outcome"] in ("warn", "fail") and _names(check, where)]
        kinds = [_kind(check) for check in named]
        findings = tuple(dict.fromkeys(str(check["message"]) for check in named))
        verdict = min(kinds, key=GPU_VERDICTS.index, default="good")
        if not named and gpu["index"] not in measured:
            verdict, findings = "not measured", ("left out of --stages, or its program ended before it",)
        texts = (str(gpu["bus"]), str(gpu.get("uuid", "")), str(gpu["name"]), _software(report))
        who = (report["node"], int(gpu["index"]), *texts)
        found.append(GpuReport(*who, verdict, findings))
    return found


def _software(report: Mapping[str, Any]) -> str:
    environment = report["environment"]
    text = f"torch {environment.get('torch')}, CUDA {environment.get('cuda')}"
    return f"{text}, quick" if report.get("quick") else text


def _names(check: Mapping[str, Any], where: str) -> bool:
    """Whether a check accuses this GPU: a finding starts with it; where the screen has no majority, it names all."""
    message = str(check["message"])
    return message.startswith(where) or (check["name"] == "screen" and where in message)


def _kind(check: Mapping[str, Any]) -> str:
    """The verdict of a GPU that a check accuses. Without a kind it is one of an older program."""
    if check["outcome"] == "warn":
        return "warn"
    kind = str(check.get("kind", ""))
    return kind if kind in GPU_VERDICTS else "slow" if "metric" in check else "failed"


def _group_name(report: Mapping[str, Any]) -> str:
    return f"{report['mode'].upper()} training" if "mode" in report else "communication"


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


def _group_test(node: str, name: str, report: Mapping[str, Any]) -> SuiteTest:
    ranks = report["world_size"]
    verdict, cause = ("fail", "; ".join(report["failures"])) if report["failures"] else ("pass", "")
    if verdict == "pass" and ranks < 2:
        verdict, cause = "not measured", "one rank: there is no other to communicate with"
    return SuiteTest(node or f"{ranks} rank{'s' if ranks != 1 else ''}", name, verdict, cause)


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


def _missing_parts(node: str, report: Mapping[str, Any], groups: set[tuple[str, str]]) -> list[SuiteTest]:
    """The parts of `run_all_tests.py` that left no report of their own, and those that were not started."""
    parts = report["parts"]
    missing = [
        SuiteTest(node, _PARTS.get(name, name), "fail", "; ".join(part["failures"]) or "left no report")
        for name, part in parts.items()
        if not part["report"]
    ]
    return missing + [
        SuiteTest(node, _PARTS[name], "not measured", "one GPU or none: there is no other to communicate with")
        for name in ("ddp_tests", "ddp_train", "fsdp_train")
        if name not in parts and (node, _PARTS[name]) not in groups
    ]


def _fleet_tests(report: Mapping[str, Any]) -> list[SuiteTest]:
    """What only the comparison of all nodes shows. The nodes' own failures are in their rows."""
    own = [check for check in report["checks"] if check["name"] != "node" and check["outcome"] in ("warn", "fail")]
    alone = [check for check in report["checks"] if check["name"] == "screen" and check["outcome"] == "no limit"]
    nodes = f"{len(report['nodes'])} nodes"
    passed = [] if own else [SuiteTest(nodes, "fleet", "pass", "")]
    rows = [(f"fleet: {check['name']}", str(check["outcome"]), str(check["message"])) for check in own + alone]
    return passed + [SuiteTest(nodes, *row) for row in rows]


def _figures(report: Mapping[str, Any], checks: list[Mapping[str, Any]]) -> list[GpuFigure]:
    gpus = {gpu["index"]: gpu for gpu in report["gpus"]}
    found = []
    for one in report["readings"]:
        gpu, value = gpus[one["gpu"]], finite(float(one["value"]))
        if value is None:
            continue
        where = f"{report['node']} gpu {one['gpu']} ("
        found.append(
            GpuFigure(
                report["node"],
                one["gpu"],
                str(gpu["bus"]),
                str(gpu.get("uuid", "")),
                str(gpu["name"]),
                str(one["metric"]),
                value,
                str(one["unit"]),
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
        speed = finite(float(one["gb_per_s"]))
        pairs.append(Pair(source, target, max(0.0, speed or 0.0), good and speed is not None))
    return tuple(pairs)


def _watched(report: Mapping[str, Any]) -> list[Watched]:
    lines = []
    for gpu in report["gpus"]:
        mine = [one for one in report.get("samples", []) if one["bus"] == gpu["bus"]]
        step = max(1, -(-len(mine) // _MOST_SAMPLES))
        if mine:
            columns = (
                tuple(_sample(one[name]) for one in mine[::step]) for name in ("sm_mhz", "power_w", "temperature_c")
            )
            seconds = round(step * report.get("sample_s", 1))
            lines.append(Watched(report["node"], gpu["index"], seconds, *columns))
    return lines


def _sample(value: Any) -> float | None:
    return None if value is None else finite(float(value))


def _storage_figures(node: str, report: Mapping[str, Any]) -> list[StorageFigure]:
    found = []
    for directory, result in report["directories"].items():
        rows = [(what, result[key], unit) for key, what, unit in _STORAGE if key in result]
        for kind, one in result.get("fio", {}).items():
            if "error" not in one:
                rows += [(f"fio {kind} 4 KiB", one["iops"], "operations/s")]
        numbers = ((what, finite(float(value)), unit) for what, value, unit in rows)
        found += [
            StorageFigure(node, directory, what, value, unit) for what, value, unit in numbers if value is not None
        ]
    return found


def _collectives(node: str, report: Mapping[str, Any]) -> list[CollectiveRow]:
    rows, ranks = [*report.get("allreduce", []), *report.get("collectives", [])], int(report["world_size"])
    return [
        CollectiveRow(
            node,
            ranks,
            str(one.get("collective", "all_reduce")),
            int(one["bytes"]),
            float(one["busbw_gb_per_s"]),
            bool(one["ok"]),
        )
        for one in rows
    ]


def _versions(sources: list[Mapping[str, Any]]) -> dict[str, str]:
    """The software by name; nodes that differ are listed one after the other."""
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        for name in ("python", "torch", "cuda", "cudnn", "nccl"):
            if source.get(name) is not None:
                found.setdefault(name, {})[str(source[name])] = None
    return {name: ", ".join(versions) for name, versions in sorted(found.items())}
