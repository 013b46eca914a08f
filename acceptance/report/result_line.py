"""The text after `[RESULT] SUCCESS` or `[RESULT] FAILURE`: what, where."""

from __future__ import annotations

from acceptance.report.model import BAD_VERDICTS, Report, TestReport
from acceptance.text import gb_text, named, plural, size_text


def summary_of(report: Report) -> str:
    """Return the text."""
    if report.verdict == "accepted":
        figures = [_figure(test) for test in report.tests]
        if report.scenario:
            figures = [f"{plural(len(report.scenario.tests), 'test')} of the scenario {report.scenario.name} passed"]
        gpus = [f"GPU suite passed on {plural(len(report.gpus.nodes), 'node')}"] if report.gpus else []
        return ", ".join(filter(None, [*figures, *gpus]))
    first = _first_failure(report)
    bad = report.nodes_that_are(*BAD_VERDICTS)
    blamed = [f"{node.name} ({node.verdict})" for node in bad if node.name not in first]
    if blamed:
        return f"{named(blamed, 8, 'more node')}: {first}"
    links = report.locate.links if report.locate else ()
    joint = [f"{one.verdict} link {' - '.join(one.nodes)}" for one in links if " - ".join(one.nodes) not in first]
    joint += [one.name for one in (report.locate.groups if report.locate else ()) if one.name not in first]
    if joint:
        return f"{first}; {', '.join(joint[:8])}"
    suspects = [node.name for node in report.nodes_that_are("suspect")]
    if report.locate and suspects:
        return f"{first}; suspect: {', '.join(suspects[:8])}"
    if report.locate and not links and not bad:
        return f"{first}; no single node is to blame: every node is good in pairs"
    return first


def _first_failure(report: Report) -> str:
    """The first thing that is wrong: measured and limit where there is a figure, else the failure's own words."""
    for test in report.tests:
        failed = next((check for check in test.checks if check.outcome == "fail"), None)
        if failed and failed.limit:
            measured, limit = gb_text(failed.measured_gb_per_s), gb_text(failed.limit.fail_below_gb_per_s)
            return f"{test.name}: {failed.name} is {measured} GB/s, fail below {limit}"
    return report.failures[0].what if report.failures else "the run has no result"


def _figure(test: TestReport) -> str:
    measured = [check for check in test.checks if check.measured_gb_per_s is not None]
    if not measured:
        return test.name
    last = measured[-1]
    size = f" at {size_text(last.limit.size_bytes)}" if last.limit else ""
    return f"{test.name} {gb_text(last.measured_gb_per_s)} GB/s{size}"
