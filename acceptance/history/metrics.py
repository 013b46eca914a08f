"""The last run as metrics for Prometheus, through the textfile collector of the node exporter."""

from __future__ import annotations

import math
import os
from datetime import datetime, timezone
from pathlib import Path

from acceptance.report import Report
from acceptance.report.model import BAD_VERDICTS, NODE_VERDICTS, TestReport

TEXTFILE_DIRECTORY = Path("/var/lib/node-exporter/textfile")
FILE = "slipway_acceptance.prom"
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


def write_metrics(report: Report) -> bool:
    """Replace the file in one step; False where no node exporter's directory is. Raises OSError."""
    if not TEXTFILE_DIRECTORY.is_dir():
        return False
    part = TEXTFILE_DIRECTORY / f".{FILE}.{os.getpid()}"  # the collector reads *.prom only
    try:
        part.write_text(render_metrics(report), "utf-8")
        part.chmod(0o644)
        part.replace(TEXTFILE_DIRECTORY / FILE)
    finally:
        if part.exists():
            part.unlink()
    return True


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
    lines = []
    for name, values in samples.items():
        full = f"slipway_acceptance_{name}"
        lines += [f"# HELP {full} {_HELP[name]}", f"# TYPE {full} gauge"] if values else []
        for labels, value in values:
            lines.append(f"{full}{{{_labels({'cluster': report.cluster, **labels})}}} {value:.10g}")
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
