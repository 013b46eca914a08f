"""Every public problem report has a verdict and the tests that show it; so has every row of docs/first-day.md.

A row that is open fails here on purpose (xfail, strict): when evidence is added, its verdict has to change too. A row
whose evidence does not exist yet counts as open until it does.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from slipway.preflight.questions import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
REPORTS = json.loads((Path(__file__).parent / "reports.json").read_text(encoding="utf-8"))["rows"]
FIRST_DAY = json.loads((Path(__file__).parent / "first_day.json").read_text(encoding="utf-8"))["rows"]
PAGE = ROOT / "docs/first-day.md"
BEGIN, END = "<!-- table of tests/reports/first_day.json -->\n", "<!-- end of table -->"
VERDICTS = ("prevented", "found early", "named", "open")
NAMES = {question.name for question in QUESTIONS}


def missing(evidence: list[str]) -> list[str]:
    """Return the pieces of evidence that do not exist."""
    return [item for item in evidence if not _exists(item)]


def _exists(item: str) -> bool:
    kind, _, name = item.partition(":")
    if kind == "rule":
        return (ROOT / f"slipway/settings/bad/{name}.yaml").is_file()
    if kind == "question":  # that it has this case: tests/preflight/test_preflight_registry.py
        question, _, case = name.partition("/")
        return bool(case) and question in NAMES
    path, _, function = item.partition("::")
    file = ROOT / path
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return bool(function and re.search(rf"^def {function}\(", text, re.MULTILINE))  # a whole file shows no input


def _marked(row: list[Any]) -> Any:
    number, _, verdict, evidence, reason = row
    absent = [] if verdict == "open" else missing(evidence)
    reason = f"open until this exists: {', '.join(absent)}" if absent else reason
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if verdict == "open" or absent else []
    return pytest.param(row, id=number, marks=marks)


@pytest.mark.parametrize("row", [_marked(row) for row in REPORTS])
def test_a_report_is_shown_by_tests_that_exist(row: list[Any]) -> None:
    _, _, verdict, evidence, _ = row
    assert verdict in VERDICTS
    assert evidence
    assert missing(evidence) == []


@pytest.mark.parametrize("row", [_marked([row[0], row[1], "named", row[4], ""]) for row in FIRST_DAY])
def test_a_row_of_the_first_day_is_held_by_tests_that_exist(row: list[Any]) -> None:
    evidence = row[3]
    assert evidence
    assert missing(evidence) == []


def test_ids_occur_once() -> None:
    for rows in (REPORTS, FIRST_DAY):
        ids = [row[0] for row in rows]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "item",
    [
        "rule:no-such-rule",
        "question:none/free",
        "question:stack-names",
        "tests/none.py",
        "tests/reports/test_reports.py",
        "tests/reports/test_reports.py::none",
    ],
)
def test_evidence_that_does_not_exist_is_found(item: str) -> None:
    assert missing([item]) == [item]


def test_the_page_has_the_rows() -> None:
    rows = [f"| {what} | {where} | {repair} |" for _, what, where, repair, _ in FIRST_DAY]
    table = "\n".join(["| what goes wrong | where it shows | what to do |", "|---|---|---|", *rows]) + "\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")
        found = table
    assert found == table, "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/reports"
