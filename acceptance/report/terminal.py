"""The report for a terminal: plain text, short enough for a tool that keeps only the first few thousand characters."""

from __future__ import annotations

from typing import Any

from acceptance.units import gb_text, plural, size_text

_MOST_NODES = 16
_MOST_FAILURES = 8
_WIDEST = 300  # characters of a failure's line


def table(report: dict[str, Any]) -> str:
    """Give the text; at most 50 lines."""
    lines = [f"acceptance of {report['cluster']}: {report['nodes_expected']} x {report['instance_type']}", ""]
    lines += _grid([("TEST", "VERDICT", "SIZE", "GB/S", "FAIL BELOW", "WARN BELOW"), *_tests(report["tests"])])
    lines += ["", *_grid([("NODE", "VERDICT", "EVIDENCE"), *_nodes(report["nodes"])])]
    if report["failures"]:
        lines.append("")
    for failure in report["failures"][:_MOST_FAILURES]:
        lines.append(_short(failure["what"]))
        if failure["log"]:
            lines.append(f"    log: {report['directory']}/{failure['log']}")
        if failure["repeat"] and failure is report["failures"][0]:
            lines.append(f"    again: {failure['repeat']}")
    if len(report["failures"]) > _MOST_FAILURES:
        lines.append(f"and {len(report['failures']) - _MOST_FAILURES} more in the report")
    lines += ["", f"report: {report['directory']}/report.html"]
    return "\n".join(lines)


def _tests(tests: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = []
    for test in tests[:12]:
        judged = [check for check in test["checks"] if check["limit"]]
        for check in judged[-1:]:
            limit = check["limit"]
            numbers = (check["measured_gb_per_s"], limit["fail_below_gb_per_s"], limit["warn_below_gb_per_s"])
            rows.append((test["name"], test["verdict"], size_text(limit["size_bytes"]), *map(gb_text, numbers)))
        if not judged:
            last = test["rows"][-1] if test["rows"] else None
            size, value = (last["size_text"], gb_text(last["measured_busbw_gb_per_s"])) if last else ("-", "-")
            rows.append((test["name"], test["verdict"], size, value, "-", "-"))
    return rows


def _nodes(nodes: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    order = {"failed": 0, "slow": 1, "infrastructure": 2, "suspect": 3, "good": 4}
    ranked = sorted(nodes, key=lambda node: order[node["verdict"]])
    rows: list[tuple[str, ...]] = []
    for node in ranked[:_MOST_NODES]:
        rows.append((node["name"], node["verdict"], _short(node["evidence"])))
    if len(ranked) > _MOST_NODES:
        rest = ranked[_MOST_NODES:]
        rows.append((plural(len(rest), "more node"), ", ".join(sorted({node["verdict"] for node in rest})), ""))
    return rows


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _grid(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[column]) for column, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines
