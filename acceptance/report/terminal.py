"""The report for a terminal: plain text, short enough for a tool that keeps only the first few thousand characters."""

from __future__ import annotations

from typing import Any

from acceptance.limits.check import ORDER
from acceptance.text import gb_text, grid, plural, printable, size_text

_MOST_NODES = 16
_MOST_FAILURES = 8
_WIDEST = 300  # characters of a failure's line


def table(report: dict[str, Any]) -> str:
    """Give the text; at most 75 lines."""
    lines = [f"acceptance of {report['cluster']}: {report['nodes_expected']} x {report['instance_type']}", ""]
    if report["tests"]:
        heads = ("TEST", "VERDICT", "SIZE", "GB/S", "FAIL BELOW", "WARN BELOW")
        lines += [*grid([heads, *judged_lines(report["tests"])]), ""]
    lines += [*grid([("NODE", "VERDICT", "EVIDENCE"), *_nodes(report["nodes"])])]
    if report["failures"]:
        lines.append("")
    told = set()
    for failure in report["failures"][:_MOST_FAILURES]:
        lines.append(_short(failure["what"]))
        where = (failure["log"], failure["repeat"])
        if where not in told:  # several failures of one test have one log
            lines += [f"    log: {report['directory']}/{failure['log']}"] if failure["log"] else []
            lines += [f"    again: {failure['repeat']}"] if failure["repeat"] else []
        told.add(where)
    if len(report["failures"]) > _MOST_FAILURES:
        lines.append(f"and {len(report['failures']) - _MOST_FAILURES} more in the report")
    lines += ["", f"report: {report['directory']}/report.html"]
    return "\n".join(lines)


def judged_lines(tests: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Test, verdict, size, GB/s and the two bounds: of the worst judged size of each test, the largest among equals."""
    rows = []
    for test in tests[:12]:
        judged = [check for check in test["checks"] if check["limit"]]
        worst = max((ORDER.index(check["outcome"]) for check in judged), default=0)
        for check in [check for check in judged if ORDER.index(check["outcome"]) == worst][-1:]:
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
        rows.append((printable(node["name"]), node["verdict"], _short(node["evidence"])))
    if len(ranked) > _MOST_NODES:
        rest = ranked[_MOST_NODES:]
        rows.append((plural(len(rest), "more node"), ", ".join(sorted({node["verdict"] for node in rest})), ""))
    return rows


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
