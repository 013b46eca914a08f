"""The history for a terminal."""

from __future__ import annotations

from typing import Any

from acceptance.history.read import baseline_of
from acceptance.history.significance import ALPHA, MOST_RUNS
from acceptance.history.trend import LEAST_DROP, Difference, Trend
from acceptance.text import gb_text, grid, plural, printable, size_text

_MOST_LINES = 20


def history_text(runs: list[dict[str, Any]], shown: list[Trend], nodes: list[dict[str, Any]]) -> str:
    """Return the runs, the trend of each kind of measurement, and the nodes that were bad."""
    lines = grid([("RUN", "STARTED", "CLUSTER", "NODES", "VERDICT", "SUMMARY"), *map(_run, runs[:_MOST_LINES])])
    lines += ["", *grid([("SERIES", "RUNS", "LAST, GB/S", "BASELINE", "CHANGE", "P", "VERDICT"), *map(_trend, shown)])]
    lines += [f"    {_kind(trend)}: {_degradation(trend)}" for trend in shown if trend.verdict == "degraded"]
    lines += [
        "",
        f"change: of the last {MOST_RUNS} runs, split where the later ones are lowest, those against the earlier",
    ]
    lines += [f"(medians). Degraded: at least {LEAST_DROP * 100:.0f} % lower, and p <= {ALPHA:g} (exact rank test,"]
    lines += ["corrected for all points and series)."]
    waiting = [trend.runs_needed for trend in shown if trend.verdict == "too few runs"]
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
    change = "-" if trend.change is None else f"{trend.change:+.1%}"
    p = "-" if trend.p is None else f"{trend.p:.2g}"
    last = gb_text(trend.points[-1].gb_per_s)
    return _kind(trend), str(len(trend.points)), last, gb_text(level), change, p, trend.verdict


def _kind(trend: Trend) -> str:
    kind = trend.kind
    other = f", {printable(kind.setup)}" if kind.setup != "{}" else ""
    where = f"{plural(kind.nodes, 'node')} {kind.instance_type}"
    return f"{kind.collective} {size_text(kind.size_bytes)}, {where}{other}"


def _degradation(trend: Trend) -> str:
    since = trend.points[-(trend.later_runs or 1)]
    figures = f"{gb_text(trend.later_gb_per_s)} GB/s, before {gb_text(trend.earlier_gb_per_s)}"
    return f"degraded since run {since.run_id} ({since.started}): {figures}"
