"""The questions as a whole: every outcome that they promise is produced by a case, and they ask only what they say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from preflight_cases import Case

from slipway.preflight.model import Question, Status
from slipway.preflight.questions import QUESTIONS

HERE = Path(__file__).parent


def every_case() -> list[Case]:
    """The CASES of every module of this folder."""
    names = sorted(path.stem for path in HERE.glob("test_preflight_*.py") if path.stem != Path(__file__).stem)
    return [case for name in names for case in getattr(importlib.import_module(name), "CASES", ())]


CASES_OF_ALL = every_case()


def test_names_are_unique() -> None:
    names = [question.name for question in QUESTIONS]
    assert len(names) == len(set(names))
    assert {case.question for case in CASES_OF_ALL} <= set(names)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_question_is_tried_healthy_and_denied(question: Question) -> None:
    statuses = {case.status for case in CASES_OF_ALL if case.question == question.name}
    assert Status.OK in statuses
    assert Status.COULD_NOT_ASK in statuses
    assert statuses - {Status.OK, Status.COULD_NOT_ASK} == set(question.finds)


@pytest.mark.parametrize("table", ["reports.json", "first_day.json"])
def test_a_report_found_by_a_question_is_a_case_of_it(table: str) -> None:
    rows = json.loads((HERE.parent / "reports" / table).read_text(encoding="utf-8"))["rows"]
    evidence = {item for row in rows for part in row if isinstance(part, list) for item in part}
    named = {item.partition(":")[2] for item in evidence if item.startswith("question:")}
    assert named
    assert named <= {f"{case.question}/{case.name}" for case in CASES_OF_ALL if case.status is not Status.OK}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_permission_is_tried_missing(question: Question) -> None:
    denied = {
        case.text.removesuffix(" is not allowed")
        for case in CASES_OF_ALL
        if case.question == question.name and case.status is Status.COULD_NOT_ASK
    }
    assert set(question.permissions) <= denied


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_question_says_what_it_is(question: Question) -> None:
    assert question.asks.endswith("?")
    assert question.why.endswith(".")
    assert question.source
    assert question.permissions
    assert question.name == question.name.lower()
