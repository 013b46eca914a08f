"""The history for a terminal."""

from __future__ import annotations

from typing import Any

from acceptance.history.gpus import GpuTrend
from acceptance.history.read import baseline_of
from acceptance.history.significance import ALPHA, TREND_RUNS
from acceptance.history.trend import BUSBW_DROP, Difference, Step, Trend
from acceptance.text import gb_text, grid, plural, printable, size_text

_MOST_LINES = 20


def history_text(
    runs: list[dict[str, Any]], shown: list[Trend], gpus: list[GpuTrend], nodes: list[dict[str, Any]]
) -> str:
    """Return the runs, the trend of each kind of measurement and of each GPU, and the nodes that were bad."""
    lines = grid([("RUN", "STARTED", "CLUSTER", "NODES", "VERDICT", "SUMMARY"), *map(_run, runs[:_MOST_LINES])])
    lines += ["", *grid([("SERIES", "RUNS", "LAST, GB/S", "BASELINE", "CHANGE", "P", "VERDICT"), *map(_trend, shown)])]
    lines += [f"    {_kind(trend)}: {_degradation(trend)}" for trend in shown if trend.step.verdict == "degraded"]
    lines += _gpus(gpus) if gpus else []
    lines += [
        "",
        f"change: of the last {TREND_RUNS} runs, split where the later ones are lowest, those against the earlier",
    ]
    lines += [
        f"(medians). Degraded: at least {BUSBW_DROP * 100:.0f} % lower (GPUs: 3 %), and p <= {ALPHA:g} (exact rank"
    ]
    lines += ["test, corrected for all points and series)."]
    every = [*(trend.step for trend in shown), *(trend.step for trend in gpus)]
    waiting = [one.runs_needed for one in every if one.verdict == "too few runs"]
    if waiting:
        lines.append(f"{max(waiting)} sound runs of a series are needed to distinguish a degradation from chance.")
    if nodes:
        rows = [(printable(n["name"]), n["verdict"], str(n["times"]), n["last"]) for n in nodes[:_MOST_LINES]]
        lines += ["", *grid([("NODE", "WAS", "TIMES", "LAST"), *rows])]
    return "\n".join(lines)


def comparison_text(first: str, second: str, differences: list[Difference]) -> str:
    """Return two runs side by side."""
    rows = [
        (
            one.collective,
            size_text(one.size_bytes),
            gb_text(one.first),
            gb_text(one.second),
            f"{one.change:+.1%}",
            gb_text(one.noise),
            one.verdict,
        )
        for one in differences
    ]
    heads = ("COLLECTIVE", "SIZE", "FIRST", "SECOND", "CHANGE", "NOISE", "VERDICT")
    lines = [f"first: {first}", f"second: {second}", "bus bandwidths in GB/s", "", *grid([heads, *rows]), ""]
    lines.append("noise: what two single runs may differ by, 3 standard deviations of their difference.")
    if not all(one.known for one in differences):
        lines.append("Where this site has fewer than three good runs, 1 % is taken for one deviation.")
    return "\n".join(lines)


def _run(run: dict[str, Any]) -> tuple[str, ...]:
    nodes = f"{run['nodes']} x {run['instance_type']}"
    return run["run_id"], run["started"], run["cluster"], nodes, run["verdict"], printable(run["summary"])[:100]


def _trend(trend: Trend) -> tuple[str, ...]:
    baseline = baseline_of(trend.kind, trend.points)
    level = baseline.median_gb_per_s if baseline else None
    last = gb_text(trend.points[-1].gb_per_s)
    return _kind(trend), str(len(trend.points)), last, gb_text(level), *_step(trend.step)


def _step(step: Step) -> tuple[str, str, str]:
    change = "-" if step.change is None else f"{step.change:+.1%}"
    return change, "-" if step.p is None else f"{step.p:.2g}", step.verdict


def _gpus(gpus: list[GpuTrend]) -> list[str]:
    """The figures of GPUs that lost most, by UUID and where each GPU was last."""
    heads = ("GPU", "LAST IN", "FIGURE", "RUNS", "LAST", "CHANGE", "P", "VERDICT")
    lines = ["", *grid([heads, *map(_gpu_trend, gpus[:_MOST_LINES])])]
    left = len(gpus) - _MOST_LINES
    lines += [f"and {plural(left, 'more figure')} of GPUs with a smaller loss, in --json"] if left > 0 else []
    return lines + [f"    {_gpu_degradation(trend)}" for trend in gpus if trend.step.verdict == "degraded"]


def _gpu_trend(trend: GpuTrend) -> tuple[str, ...]:
    last = trend.points[-1]
    where = f"{printable(last.node)} gpu {last.gpu}"
    value = f"{gb_text(last.value)} {trend.kind.unit}"
    figure = printable(trend.kind.metric)
    return printable(trend.kind.name), where, figure, str(len(trend.points)), value, *_step(trend.step)


def _gpu_degradation(trend: GpuTrend) -> str:
    since, last, step = trend.points[-(trend.step.later_runs or 1)], trend.points[-1], trend.step
    figures = f"{gb_text(step.later)} {trend.kind.unit}, before {gb_text(step.earlier)}"
    where = f"{printable(last.node)} gpu {last.gpu}, {printable(trend.kind.name)}"
    return f"{printable(trend.kind.metric)} of {where}: degraded since run {since.run_id} ({since.started}): {figures}"


def _kind(trend: Trend) -> str:
    kind = trend.kind
    other = f", {printable(kind.setup)}" if kind.setup != "{}" else ""
    where = f"{plural(kind.nodes, 'node')} {kind.instance_type}"
    return f"{kind.collective} {size_text(kind.size_bytes)}, {where}{other}"


def _degradation(trend: Trend) -> str:
    since = trend.points[-(trend.step.later_runs or 1)]
    figures = f"{gb_text(trend.step.later)} GB/s, before {gb_text(trend.step.earlier)}"
    return f"degraded since run {since.run_id} ({since.started}): {figures}"
