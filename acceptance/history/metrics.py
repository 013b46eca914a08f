"""The last run as metrics for Prometheus, through the textfile collector of the node exporter."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from acceptance.report import Report
from acceptance.report.gpus_model import BAD_GPUS, SuiteReport
from acceptance.report.model import BAD_VERDICTS, NODE_VERDICTS, TestReport

TEXTFILE_DIRECTORY = Path("/var/lib/node-exporter/textfile")
FILE = "slipway_acceptance.prom"
SUITE_FILE = "slipway_gpu_suite.prom"
_Samples = dict[str, list[tuple[dict[str, str], float]]]
_HELP = {
    "accepted": "Whether the last acceptance run accepted the cluster (1) or not (0).",
    "finished_timestamp_seconds": "When the last acceptance run ended, Unix time.",
    "nodes": "Nodes of the last acceptance run by verdict.",
    "node_bad": "A node that the last acceptance run found slow, failed or out of order.",
    "bus_bandwidth_bytes_per_second": "Out-of-place bus bandwidth as nccl-tests defines it, at a judged size.",
    "fail_below_bytes_per_second": "The highest bus bandwidth below which the run fails at this size.",
    "baseline_bytes_per_second": "Median bus bandwidth of this site's good runs at this size.",
}
_SUITE_HELP = {
    "accepted": "Whether the last run of the GPU suite accepted its GPUs (1) or not (0).",
    "finished_timestamp_seconds": "When the last run of the GPU suite ended, Unix time.",
    "test": "Whether a test of the last run of the GPU suite was good (1), or failed or was not measured (0).",
    "gpu_bad": "A GPU of the last run of the GPU suite that computed wrong, failed, was slow or drooped.",
    "figure": "A figure of one GPU in the last run of the GPU suite, in the unit of its label.",
}


def write_metrics(report: Report) -> bool:
    """Write the metrics of a report; False where no node exporter's directory is. Raises OSError.

    Those of the GPU suite have their own file: results of the suite without a run keep the last run's metrics.
    """
    if not TEXTFILE_DIRECTORY.is_dir():
        return False
    if report.purpose != "gpus":
        _write(FILE, render_metrics(report))
    if report.gpus is not None:
        _write(SUITE_FILE, render_suite_metrics(report.gpus))
    return True


def _write(name: str, text: str) -> None:
    """Replace a file in one step."""
    part = TEXTFILE_DIRECTORY / f".{name}.{os.getpid()}"  # the collector reads *.prom only
    try:
        part.write_text(text, "utf-8")
        part.chmod(0o644)
        part.replace(TEXTFILE_DIRECTORY / name)
    finally:
        if part.exists():
            part.unlink()


def render_metrics(report: Report) -> str:
    """Return the text. A run without an answer (verdict error) counts as not accepted."""
    samples: _Samples = {name: [] for name in _HELP}
    run = {"partition": report.partition}
    samples["accepted"].append((run, float(report.verdict == "accepted")))
    if report.finished:
        samples["finished_timestamp_seconds"].append((run, _unix(report.finished)))
    for verdict in NODE_VERDICTS:
        count = len(report.nodes_that_are(verdict))
        samples["nodes"].append(({**run, "verdict": verdict}, count))
    for node in report.nodes_that_are(*BAD_VERDICTS):
        samples["node_bad"].append(({**run, "node": node.name, "verdict": node.verdict}, 1))
    for test in report.tests:
        _bandwidths(samples, run, test)
    return _text("slipway_acceptance", _HELP, {"cluster": report.cluster}, samples)


def render_suite_metrics(report: SuiteReport) -> str:
    """Return the text of the GPU suite's metrics. A run that measured nothing counts as not accepted."""
    samples: _Samples = {name: [] for name in _SUITE_HELP}
    samples["accepted"].append(({}, float(report.verdict == "accepted")))
    if report.date:
        samples["finished_timestamp_seconds"].append(({}, _unix(report.date)))
    for test in report.tests:
        labels = {"node": test.node, "test": test.name, "verdict": test.verdict}
        samples["test"].append((labels, float(test.verdict in ("pass", "warn", "no limit"))))
    for gpu in report.gpus:
        if gpu.verdict in BAD_GPUS:
            labels = {"node": gpu.node, "gpu": str(gpu.gpu), "uuid": gpu.uuid, "verdict": gpu.verdict}
            samples["gpu_bad"].append((labels, 1))
    for one in report.figures:
        labels = {"node": one.node, "gpu": str(one.gpu), "uuid": one.uuid, "metric": one.metric, "unit": one.unit}
        samples["figure"].append((labels, one.value))
    return _text("slipway_gpu_suite", _SUITE_HELP, {}, samples)


def _text(prefix: str, helps: Mapping[str, str], common: dict[str, str], samples: _Samples) -> str:
    lines = []
    for name, values in samples.items():
        full = f"{prefix}_{name}"
        lines += [f"# HELP {full} {helps[name]}", f"# TYPE {full} gauge"] if values else []
        lines += [f"{full}{{{_labels({**common, **labels})}}} {value:.10g}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _bandwidths(samples: _Samples, run: dict[str, str], test: TestReport) -> None:
    bounds: dict[int, list[float]] = {}
    for check in test.checks:
        if check.limit:
            bounds.setdefault(check.limit.size_bytes, []).append(check.limit.fail_below_gb_per_s)
    levels = {site.baseline.size_bytes: site.baseline.median_gb_per_s for site in test.baseline}
    top = max((row.size for row in test.rows), default=None)
    for row in test.rows:
        size, value = row.size, row.measured_busbw_gb_per_s
        if value is None or not math.isfinite(value) or (size not in bounds and size != top):
            continue
        labels = {**run, "test": test.name, "collective": test.collective, "size_bytes": str(size)}
        samples["bus_bandwidth_bytes_per_second"].append((labels, value * 1e9))
        if size in bounds:
            samples["fail_below_bytes_per_second"].append((labels, max(bounds[size]) * 1e9))
        if size in levels:
            samples["baseline_bytes_per_second"].append((labels, levels[size] * 1e9))


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unix(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
