"""The report for a terminal: plain text, short enough for a tool that keeps only the first few thousand characters."""

from __future__ import annotations

from acceptance.limits.check import ORDER
from acceptance.report.gpus_model import GPU_VERDICTS, SuiteReport
from acceptance.report.model import NODE_VERDICTS, NodeReport, Report, ScenarioTest, TestReport
from acceptance.text import gb_text, grid, plural, printable, size_text

_MOST_NODES = 16
_MOST_FAILURES = 8
_MOST_TESTS = 12
_MOST_SCENARIO_TESTS = 40
_MOST_GPUS = 16
_MOST_SUITE_TESTS = 8
_ALWAYS = ("software", "sizes")  # checks whose message is printed whatever their outcome is
_NO_NUMBERS: tuple[float | None, ...] = (None, None, None)
_WIDEST = 300  # characters of a failure's line


def table(report: Report) -> str:
    """Return the text; at most 80 lines."""
    lines = [f"acceptance of {report.cluster}: {report.size}", ""]
    if report.scenario:
        rows = [(one.id, one.verdict, _short(one.cause)) for one in report.scenario.tests[:_MOST_SCENARIO_TESTS]]
        lines += [f"scenario {report.scenario.name}", "", *grid([("TEST", "VERDICT", "CAUSE"), *rows])]
        left = len(report.scenario.tests) - len(rows)
        lines += [f"and {plural(left, 'more test')} in the report"] if left else []
        lines += [*(_best(one) for one in report.scenario.tests if one.sweep and one.sweep.best), ""]
    elif report.tests:
        heads = ("TEST", "VERDICT", "SIZE", "GB/S", "FAIL BELOW", "WARN BELOW", "BASIS")
        lines += [*grid([heads, *judged_lines(report.tests)]), *map(_short, remarks(report.tests)), ""]
    lines += [*_gpu_suite(report.gpus), ""] if report.gpus else []
    lines += [*grid([("NODE", "VERDICT", "EVIDENCE"), *_nodes(report.nodes)])]
    if report.failures:
        lines.append("")
    shown = set()
    for failure in report.failures[:_MOST_FAILURES]:
        lines.append(_short(failure.what))
        where = (failure.log, failure.repeat)
        if where not in shown:  # several failures of one test have one log
            lines += [f"    log: {report.directory}/{failure.log}"] if failure.log else []
            lines += [f"    again: {failure.repeat}"] if failure.repeat else []
        shown.add(where)
    if len(report.failures) > _MOST_FAILURES:
        lines.append(f"and {len(report.failures) - _MOST_FAILURES} more in the report")
    lines += ["", f"report: {report.directory}/report.html"]
    return "\n".join(lines)


def _gpu_suite(gpus: SuiteReport) -> list[str]:
    """The GPUs, those with a finding first, then the tests that did not pass."""
    nodes, count = plural(len(gpus.nodes), "node"), plural(len(gpus.gpus), "GPU")
    lines = [f"GPU suite: {gpus.verdict}, {count} of {nodes}", ""]
    if gpus.gpus:
        rows = gpu_rows(gpus)
        lines += grid([("GPU", "VERDICT", "FINDING"), *((printable(a), b, _short(c)) for a, b, c in rows)])
    known = {finding for one in gpus.gpus for finding in one.findings}  # these tests have nothing to add
    tests = [one for one in gpus.tests if one.verdict not in ("pass", "no limit")]
    tests = [one for one in tests if not known.issuperset(one.cause.split("; "))]
    if tests:
        shown = [(printable(one.node), printable(one.name), one.verdict, _short(one.cause)) for one in tests]
        lines += ["", *grid([("NODE", "TEST", "VERDICT", "CAUSE"), *shown[:_MOST_SUITE_TESTS]])]
        left = len(shown) - _MOST_SUITE_TESTS
        lines += [f"and {plural(left, 'more test')} in the report"] if left > 0 else []
    return lines


def gpu_rows(gpus: SuiteReport) -> list[tuple[str, str, str]]:
    """GPU, verdict and findings, the worst first; the rest is counted by verdict."""
    ranked = sorted(gpus.gpus, key=lambda one: GPU_VERDICTS.index(one.verdict))
    rows = [
        (one.where, one.verdict, "; ".join(finding.removeprefix(f"{one.where}: ") for finding in one.findings))
        for one in ranked[:_MOST_GPUS]
    ]
    rest = ranked[_MOST_GPUS:]
    if rest:
        rows.append((plural(len(rest), "more GPU"), ", ".join(dict.fromkeys(one.verdict for one in rest)), ""))
    return rows


def _best(test: ScenarioTest) -> str:
    """The best point of a sweep in one line."""
    sweep = test.sweep
    point = next((one for one in sweep.points if one.job == sweep.best), None) if sweep else None
    if sweep is None or point is None:
        return ""
    values = ", ".join(f"{name}={value}" for name, value in point.values.items())
    return _short(f"{test.id}: best of {len(sweep.points)} points: {values}: {gb_text(point.value)} {sweep.unit}")


def judged_lines(tests: tuple[TestReport, ...]) -> list[tuple[str, ...]]:
    """Test, verdict, size, GB/s, bounds, basis: of the worst judged size of each test, the largest among equals."""
    rows = []
    for test in tests[:_MOST_TESTS]:
        judged = [check for check in test.checks if check.limit]
        size, numbers, basis = "-", _NO_NUMBERS, "-"
        if judged:
            worst = max(ORDER.index(check.outcome) for check in judged)
            check = [check for check in judged if ORDER.index(check.outcome) == worst][-1]
            if check.limit:
                limit = check.limit
                size, basis = size_text(limit.size_bytes), limit.basis
                numbers = (check.measured_gb_per_s, limit.fail_below_gb_per_s, limit.warn_below_gb_per_s)
        elif test.rows:
            size, numbers = size_text(test.rows[-1].size), (test.rows[-1].measured_busbw_gb_per_s, None, None)
        rows.append((test.name, test.verdict, size, *map(gb_text, numbers), basis))
    return rows


def remarks(tests: tuple[TestReport, ...]) -> list[str]:
    """Why each test that is accepted has a verdict other than pass, bad software and left out sizes: one line each."""
    return [
        f"{test.name}: {check.message}"
        for test in tests[:_MOST_TESTS]
        for check in test.checks
        if check.name in _ALWAYS or (check.outcome in ("warn", "no limit") and check.outcome == test.verdict)
    ]


def _nodes(nodes: tuple[NodeReport, ...]) -> list[tuple[str, ...]]:
    ranked = sorted(nodes, key=lambda node: NODE_VERDICTS.index(node.verdict))
    rows: list[tuple[str, ...]]
    rows = [(printable(node.name), node.verdict, _short(node.evidence)) for node in ranked[:_MOST_NODES]]
    if len(ranked) > _MOST_NODES:
        rest = ranked[_MOST_NODES:]
        rows.append((plural(len(rest), "more node"), ", ".join(sorted({node.verdict for node in rest})), ""))
    return rows


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
