"""Reports: report.json, junit.xml, report.html, summary.md and the terminal's table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from acceptance.report.build import build_report, suite_report, with_suite
from acceptance.report.junit import render_junit
from acceptance.report.model import Report
from acceptance.report.page import render_page
from acceptance.report.summary import render_summary
from acceptance.report.terminal import table
from acceptance.runner.files import write_whole
from acceptance.runner.judged import JudgedLog

__all__ = ["Report", "build_report", "suite_report", "table", "with_suite", "write_files", "write_report"]


def write_report(directory: Path, judged: Mapping[str, JudgedLog] | None = None) -> Report:
    """Write the four files of a run directory and return the report. Raises InputError, OSError.

    judged: as in `build_report`.
    """
    report = build_report(directory, judged)
    write_files(report)
    return report


REPORT_FILES = ("report.json", "junit.xml", "report.html", "summary.md")


def write_files(report: Report) -> None:
    """Write the four files of a report into its directory. Raises OSError."""
    directory = Path(report.directory)
    write_whole(directory / "report.json", json.dumps(report.as_json(), indent=1, allow_nan=False) + "\n")
    write_whole(directory / "junit.xml", render_junit(report))
    write_whole(directory / "report.html", render_page(report))
    write_whole(directory / "summary.md", render_summary(report))
