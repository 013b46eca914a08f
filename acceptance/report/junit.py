"""The report as JUnit XML: one test case for each check, node, GPU and test of the GPU suite."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from acceptance.report.gpus_model import BAD_GPUS, SuiteReport
from acceptance.report.model import BAD_VERDICTS, Report

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd]")  # characters that XML 1.0 cannot hold


def render_junit(report: Report) -> str:
    """Return the XML text."""
    suites = ElementTree.Element("testsuites", name="acceptance")
    for test in report.tests:
        seconds = test.job.seconds if test.job else 0
        suite = _suite(suites, test.name, report, seconds)
        for check in test.checks:
            case = _case(suite, f"{test.name}: {check.name}", report)
            if check.outcome in ("fail", "unjudged"):
                again = [f"log: {report.directory}/{test.log}"] if test.log else []
                again += [f"again: {test.repeat}"] if test.repeat else []
                _problem(case, "failure", check.outcome, check.message, again)
            elif check.outcome == "skipped":
                ElementTree.SubElement(case, "skipped", message=_clean(check.message))
            else:
                ElementTree.SubElement(case, "system-out").text = _clean(check.message)
    if report.gpus:
        _gpu_suites(suites, report, report.gpus)
    suite = _suite(suites, "nodes", report, 0)
    for node in report.nodes:
        case = _case(suite, node.name, report)
        if node.verdict in BAD_VERDICTS:
            _problem(case, "failure", node.verdict, node.evidence)
        elif node.verdict != "good":
            ElementTree.SubElement(case, "skipped", message=_clean(f"{node.verdict}: {node.evidence}"))
    if report.verdict == "error":
        _problem(_case(_suite(suites, "run", report, 0), "run", report), "error", "error", report.summary)
    for suite in suites:
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite.findall("testcase"))))
    ElementTree.indent(suites, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _gpu_suites(suites: ElementTree.Element, report: Report, gpus: SuiteReport) -> None:
    """The GPU suite: of each node a case a test and a GPU. Not measured is skipped."""
    rows = [(test.node, test.name, test.verdict, test.cause) for test in gpus.tests]
    rows += [(gpu.node, f"gpu {gpu.gpu} ({gpu.bus})", gpu.verdict, "; ".join(gpu.findings)) for gpu in gpus.gpus]
    for node in dict.fromkeys(row[0] for row in rows):
        suite = _suite(suites, f"gpu suite {node}", report, 0)
        for _, name, verdict, cause in (row for row in rows if row[0] == node):
            case = _case(suite, name, report)
            if verdict in ("fail", *BAD_GPUS):
                _problem(case, "failure", verdict, cause)
            elif verdict == "not measured":
                ElementTree.SubElement(case, "skipped", message=_clean(f"not measured: {cause}"))
            elif cause:
                ElementTree.SubElement(case, "system-out").text = _clean(f"{verdict}: {cause}")


def _suite(suites: ElementTree.Element, name: str, report: Report, seconds: float) -> ElementTree.Element:
    time = f"{seconds:.1f}"
    return ElementTree.SubElement(suites, "testsuite", name=_clean(name), time=time, timestamp=report.started)


def _case(suite: ElementTree.Element, name: str, report: Report) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", name=_clean(name), classname=_clean(f"acceptance.{report.cluster}")
    )


def _problem(case: ElementTree.Element, tag: str, kind: str, message: str, more: Sequence[str] = ()) -> None:
    found = ElementTree.SubElement(case, tag, type=kind, message=_clean(message))
    found.text = "\n".join(map(_clean, [message, *more]))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", str(text))
