"""GpuTest, DdpTest and StorageTest: the programs of the GPU suite as tests of a scenario, and their reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from acceptance.cloudai.shell import words
from acceptance.cloudai.template_commands import Command, CommandError, Job, image_of, option_words
from acceptance.limits import Check
from acceptance.report.model import Figure
from acceptance.runner.files import read_plain
from acceptance.text import plural

PROGRAMS = {"GpuTest": "gpu_tests.py", "DdpTest": "ddp_tests.py", "StorageTest": "storage_tests.py"}
_SUITE = "/opt/slipway/current/gpusuite"
_REPORTS = "reports"  # in the job's folder, with a folder for each node that wrote a report
_STORAGE = {"write_gb_per_s": "write", "read_gb_per_s": "read", "loader_gb_per_s": "data loader"}


def suite_test(job: Job) -> Command:
    """One task a node, but one a GPU for DdpTest."""
    test, nodes, gpus = job.test, job.nodes.count, job.system.get("gpus_per_node")
    options = [f"--nodes={nodes}"]
    parts = ["python3", f"{_SUITE}/{PROGRAMS[test.template]}", "--report-dir", f"{job.directory}/{_REPORTS}/%N"]
    if test.template == "DdpTest":
        if not gpus:
            raise CommandError("DdpTest has one task for each GPU, and the system has no gpus_per_node")
        options += [f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}", "--kill-on-bad-exit=1", "--wait=60"]
        parts += ["--expect-gpus", str(nodes * gpus)]
    else:
        options += [f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpus-per-task=$SLURM_CPUS_ON_NODE"]
        parts += ["--expect-gpus", str(gpus)] if gpus and test.template == "GpuTest" else []
    for name, value in test.arguments.items():
        if name != "docker_image_url" and value is not False:
            parts += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    url, place = test.arguments.get("docker_image_url"), test.arguments.get("directory")
    mounts = [f"{_SUITE}:{_SUITE}", *([f"{place}:{place}"] if place else [])]
    text = words([*parts, *option_words(test)])
    image = image_of(job, url) if url else None
    return Command(text, image, options=tuple(options), mpi="none", mounts=tuple(mounts))


def suite_results(folder: Path) -> tuple[list[Figure], list[Check]]:
    """Return the figures of all nodes' reports, the median of GPUs and the lowest rate of storage, and each failure."""
    reports = list(_reports(folder / _REPORTS))
    if not reports:
        return [], [Check("results", "fail", f"{_REPORTS} has no report: no node reached the end of the program")]
    try:
        figures = list(_figures([one for _, one in reports]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return [], [Check("results", "fail", f"{_REPORTS} has a report that is damaged")]
    failed = [(node, one.get("failures") or [one["result"]]) for node, one in reports if one["result"] != "SUCCESS"]
    bad = [Check("results", "fail", f"{node}: {'; '.join(map(str, reasons))}") for node, reasons in failed]
    return figures, bad or [Check("results", "pass", f"{plural(len(reports), 'report')} with SUCCESS")]


def _reports(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each node with its report; files that are no reports are passed over."""
    for path in sorted(folder.glob("*/*.json")):
        try:
            value = json.loads(read_plain(path))
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and "result" in value:
            yield path.parent.name, value


def _figures(reports: list[Mapping[str, Any]]) -> Iterator[Figure]:
    readings = [one for report in reports for one in report.get("readings", [])]
    for name, unit in dict.fromkeys((one["metric"], one["unit"]) for one in readings):
        yield Figure(name, median(one["value"] for one in readings if one["metric"] == name), unit, higher=True)
    for report in reports:
        # Of each collective the largest size is the last one.
        rows = {row["collective"]: row["busbw_gb_per_s"] for row in report.get("collectives", [])}
        for name, value in rows.items():
            yield Figure(f"bus bandwidth of {name}", value, "GB/s", higher=True)
    places = [one for report in reports for one in report.get("directories", {}).values()]
    for key, name in _STORAGE.items():
        rates = [one[key] for one in places if key in one]
        if rates:
            yield Figure(name, min(rates), "GB/s", higher=True)
