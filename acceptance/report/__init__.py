"""Reports: report.json, junit.xml, report.html, summary.md and the terminal's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acceptance.report.build import SCHEMA_VERSION, build_report
from acceptance.report.junit import render_junit
from acceptance.report.page import render_page
from acceptance.report.summary import render_summary
from acceptance.report.terminal import table
from acceptance.runner.files import write_whole

__all__ = ["SCHEMA_VERSION", "build_report", "table", "write_report"]


def write_report(directory: Path) -> dict[str, Any]:
    """Make the four files of a run directory from its record and logs; give the report. Raises InputError, OSError."""
    report = build_report(directory)
    write_whole(directory / "report.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    write_whole(directory / "junit.xml", render_junit(report))
    write_whole(directory / "report.html", render_page(report))
    write_whole(directory / "summary.md", render_summary(report))
    return report
