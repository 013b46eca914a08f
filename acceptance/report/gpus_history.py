"""Comparing each GPU with its own history: a GPU that became slower than it was is a finding. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from acceptance.limits import spread
from acceptance.report.gpus_model import (
    BAD_GPUS,
    GpuBaseline,
    GpuFigure,
    GpuReport,
    SuiteFailure,
    SuiteReport,
    SuiteTest,
)
from acceptance.text import gb_text, plural

# In deviations, as the site's baseline of bus bandwidths; a deviation is 1 % at least. Healthy GPUs of one model differ
# by 8 % (SC22, arXiv 2208.11035): less than 10 % below the own history does not fail a run.
_WARN_SIGMAS, _FAIL_SIGMAS, _LEAST_FAIL = 3.0, 6.0, 0.10
NAME = "own history"


@dataclass(frozen=True)
class _Finding:
    figure: GpuFigure
    outcome: str
    message: str


def compared_with_history(report: SuiteReport, baselines: Sequence[GpuBaseline]) -> SuiteReport:
    """Return the report with the findings of GPUs that are slower than their own good runs with the same software."""
    known = {(one.name, one.metric, one.software): one for one in baselines}
    if not known:
        return report
    gpus = {(gpu.node, gpu.gpu): gpu for gpu in report.gpus}
    found = []
    for figure in report.figures:
        gpu = gpus[figure.node, figure.gpu]
        baseline = known.get((gpu.name, figure.metric, gpu.software))
        finding = _finding(figure, gpu, baseline) if baseline else None
        found += [finding] if finding else []
    of_gpu: dict[tuple[str, int], list[_Finding]] = defaultdict(list)
    for finding in found:
        of_gpu[finding.figure.node, finding.figure.gpu].append(finding)
    outcomes = {(one.figure.node, one.figure.gpu, one.figure.metric): one.outcome for one in found}
    failures = [SuiteFailure(one.message, "suite") for one in found if one.outcome == "fail"]
    compared = {gpu.node for gpu in report.gpus if any(key[0] == gpu.name for key in known)}
    return replace(
        report,
        gpus=tuple(_judged(gpu, of_gpu[gpu.node, gpu.gpu]) for gpu in report.gpus),
        figures=tuple(_with_outcome(one, outcomes.get((one.node, one.gpu, one.metric))) for one in report.figures),
        tests=(*report.tests, *(_test(node, found) for node in sorted(compared))),
        failures=(*report.failures, *failures),
        verdict="not accepted" if failures else report.verdict,
    )


def _finding(figure: GpuFigure, gpu: GpuReport, baseline: GpuBaseline) -> _Finding | None:
    deviation = spread(baseline.median, baseline.mad)
    loss = baseline.median - figure.value
    if loss <= _WARN_SIGMAS * deviation:
        return None
    failed = loss > _FAIL_SIGMAS * deviation and loss > _LEAST_FAIL * baseline.median
    runs = f"{plural(baseline.runs, 'good run')} since {baseline.since[:10]}"
    moved = "" if baseline.last == f"{gpu.node} gpu {gpu.gpu}" else f", last as {baseline.last}"
    speed = f"{gb_text(figure.value)} {figure.unit}, {loss / baseline.median:.0%} below its own history"
    message = f"{gpu.where}: {figure.metric} {speed}: median {gb_text(baseline.median)} of {runs}{moved}"
    return _Finding(figure, "fail" if failed else "warn", message)


def _judged(gpu: GpuReport, found: Sequence[_Finding]) -> GpuReport:
    if not found:
        return gpu
    verdict = gpu.verdict
    if verdict not in BAD_GPUS:
        verdict = "slow" if any(one.outcome == "fail" for one in found) else "warn"
    return replace(gpu, verdict=verdict, findings=(*gpu.findings, *(one.message for one in found)))


def _with_outcome(figure: GpuFigure, outcome: str | None) -> GpuFigure:
    return figure if outcome is None or figure.outcome == "fail" else replace(figure, outcome=outcome)


def _test(node: str, found: Sequence[_Finding]) -> SuiteTest:
    mine = [one for one in found if one.figure.node == node]
    verdict = min((one.outcome for one in mine), default="pass")  # fail before warn
    return SuiteTest(node, NAME, verdict, "; ".join(one.message for one in mine if one.outcome == verdict))
