"""The report as a short text in Markdown, for a ticket, a chat or a merge request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from acceptance.report.model import Report
from acceptance.report.terminal import gpu_rows, judged_lines, remarks
from acceptance.text import printable

_MOST = 10  # failures, and nodes that are not good
_LONGEST = 500  # characters of a failure
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&]|^[#+=-]|^\d+[.)](?=\s)")


def render_summary(report: Report) -> str:
    """Return the text."""
    lines = [f"# Acceptance of {plain(report.cluster)}: {report.verdict}", ""]
    lines += [plain(report.summary), ""] if report.summary else []
    size = report.size + (f", partition {report.partition}" if report.partition else "")
    when = f"{report.started} to {report.finished or '?'}"
    lines += [f"{plain(size)}; run {code(report.run_id)}, {when}.", ""]
    if report.tests:
        heads = ("Test", "Verdict", "Size", "GB/s", "Fail below", "Warn below", "Basis")
        lines += _table(heads, judged_lines(report.tests))
        notes = [f"- {plain(remark[:_LONGEST])}" for remark in remarks(report.tests)]
        lines += ["", *notes] if notes else []
    if report.gpus and report.gpus.gpus:
        lines += [
            "",
            f"GPU suite: {report.gpus.verdict}.",
            "",
            *_table(("GPU", "Verdict", "Finding"), gpu_rows(report.gpus)),
        ]
    others = [node for node in report.nodes if node.verdict != "good"]
    counts = Counter(node.verdict for node in others)
    words = [f"{len(report.nodes) - len(others)} good", *(f"{n} {verdict}" for verdict, n in sorted(counts.items()))]
    lines += ["", f"Nodes: {', '.join(words)}" + (":" if others else "."), ""]
    if others:
        rows: list[tuple[str, ...]] = [(n.name, n.verdict, n.evidence) for n in others[:_MOST]]
        lines += [*_table(("Node", "Verdict", "Evidence"), rows), *_more(others), ""]
    if report.failures:
        lines += ["## What is wrong", ""]
        for failure in report.failures[:_MOST]:
            lines.append(f"- {plain(failure.what[:_LONGEST])}")
            lines += [f"  - log: {code(report.directory + '/' + failure.log)}"] if failure.log else []
            lines += [f"  - again: {code(failure.repeat)}"] if failure.repeat else []
        lines += [*_more(report.failures), ""]
    versions = ", ".join(f"{name.replace('_', ' ')} {version}" for name, version in report.versions.items())
    lines += [f"Versions: {plain(versions)}. Everything: {code(report.directory + '/report.html')}", ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", printable(text))


def code(text: str) -> str:
    """Text as code, whatever backquotes are in it."""
    text = printable(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(plain(cell[:_LONGEST]) for cell in row)} |" for row in rows]


def _more(things: Sequence[object]) -> list[str]:
    return ["", f"and {len(things) - _MOST} more in the report"] if len(things) > _MOST else []
