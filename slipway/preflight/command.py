"""`slipway preflight`: ask every question, print every answer, and report faults with their place in the file."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slipway.aws.calls import Aws
from slipway.aws.session import session_of
from slipway.errors import EXIT_ENVIRONMENT, EXIT_GOOD, EXIT_NO, Fault, SettingsError, fault_lines, order
from slipway.preflight.asking import QUESTION_TIMEOUT_S, run_questions
from slipway.preflight.model import Answer, Result, Status
from slipway.settings import Settings, load_settings
from slipway.settings.source import Source, path_text, read_source
from slipway.text import folded, listed, plural, visible

MARKS = {Status.OK: "ok", Status.WARNING: "warning", Status.FAULT: "fault", Status.COULD_NOT_ASK: "?"}
LOG_IN_AGAIN = "log in (aws sso login, or new keys), or name another profile with --profile"
NEEDED = {"credentials", "reservation"}  # without these answers it is unknown whether the cluster can be made


def preflight(
    file: str | Path, *, as_json: bool = False, profile: str | None = None, timeout_s: float = QUESTION_TIMEOUT_S
) -> int:
    """Ask AWS everything about the settings in `file`; read-only. The exit code is that of `exit_code`.

    `profile` is one of the AWS configuration; `timeout_s` bounds each question, in seconds. Raises SettingsError
    for a file that `slipway check` refuses, UsageError for an unknown profile, EnvironmentFault without credentials.
    """
    settings = _settings(file, as_json=as_json)
    if settings is None:
        return SettingsError.exit_code
    source = read_source(file)
    session = session_of(profile, settings.region)
    from slipway.preflight.questions import QUESTIONS

    aws, began = Aws(session, settings.region), time.monotonic()
    results = run_questions(QUESTIONS, settings, aws, timeout_s)
    seconds = time.monotonic() - began
    if as_json:
        print(json.dumps(_as_dict(source, settings, results, aws, seconds)))
    else:
        _print(source, results, aws, seconds)
    return exit_code(results)


def exit_code(results: Sequence[Result]) -> int:
    """1 with a fault; 3 when the credentials or a reservation could not be asked about; 0 otherwise.

    GetCallerIdentity needs no permission: without its answer it is not AWS, or not this account, that said the rest.
    """
    if any(answer.status is Status.FAULT for result in results for answer in result.answers):
        return EXIT_NO
    return EXIT_ENVIRONMENT if NEEDED.intersection(_not_asked(results)) else EXIT_GOOD


def _not_asked(results: Sequence[Result]) -> list[str]:
    """The questions without an answer, or without the whole of it."""
    return [
        result.question.name
        for result in results
        if any(answer.status is Status.COULD_NOT_ASK for answer in result.answers)
    ]


def _settings(file: str | Path, *, as_json: bool) -> Settings | None:
    """The settings; None when their faults were printed as JSON."""
    try:
        return load_settings(file)
    except SettingsError as error:
        if not as_json:
            raise
        faults = [fault.as_dict() for fault in error.faults]
        print(json.dumps({"file": str(file), "good": False, "settings_faults": faults}))
        return None


# ---- for people ----


def _print(source: Source, results: Sequence[Result], aws: Aws, seconds: float) -> None:
    if aws.answered:
        for line in _lines(results):
            print(folded(visible(line), 11))
        for line in fault_lines(faults_of(source, results)):
            print(line, file=sys.stderr)
        if open_ones := _not_asked(results):
            print(f"not asked: {', '.join(open_ones)}")
    else:
        print(_nothing_asked(results), file=sys.stderr)
    print(_summary(results, aws, seconds))


def _lines(results: Sequence[Result]) -> Iterator[str]:
    """One line an answer under its question; what is no fault carries its hint here."""
    for result in results:
        if result.answers:
            yield result.question.name
        for answer in result.answers:
            hint = f". Hint: {answer.hint}" if answer.hint and answer.status is not Status.FAULT else ""
            yield f"  {MARKS[answer.status]:<8} {answer.text}{hint}"


def faults_of(source: Source, results: Sequence[Result]) -> list[Fault]:
    """The answers that are faults, with the place of their key, in the order of the file."""
    faults = [
        _fault(source, answer, result.question.name)
        for result in results
        for answer in result.answers
        if answer.status is Status.FAULT
    ]
    return sorted(faults, key=order)


def _fault(source: Source, answer: Answer, name: str) -> Fault:
    """The fault as `slipway check` has it, without the value: the text of the answer has it where it matters."""
    if not answer.path:
        return Fault(source.file, 0, "", None, answer.text, answer.hint, name)
    fault = source.fault(answer.path, answer.text, answer.hint, name)
    return dataclasses.replace(fault, value=None)


def _nothing_asked(results: Sequence[Result]) -> str:
    """The reason once, not once a question."""
    answers = [answer for result in results for answer in result.answers]
    reasons = list(dict.fromkeys(answer.text for answer in answers if answer.status is Status.COULD_NOT_ASK))
    refused = [reason for reason in reasons if reason.startswith("the credentials")]
    if refused:
        return visible(f"nothing could be asked: {refused[0]}. Hint: {LOG_IN_AGAIN}")
    return visible(f"nothing could be asked: {listed(reasons)}. Hint: look at the region, the network and a proxy")


def _summary(results: Sequence[Result], aws: Aws, seconds: float) -> str:
    counts = _counts(results)
    parts = [
        f"{counts['ok']} ok",
        plural(counts["warning"], "warning"),
        plural(counts["fault"], "fault"),
        f"{counts['could_not_ask']} could not be asked",
    ]
    slowest, name = aws.slowest_call
    call = f" (slowest call {name} {slowest:.1f} s)" if name else ""
    return f"preflight: {', '.join(parts)} in {seconds:.1f} s{call}"


def _counts(results: Sequence[Result]) -> dict[str, int]:
    statuses = [answer.status for result in results for answer in result.answers]
    return {status.value.replace("-", "_"): statuses.count(status) for status in Status}


# ---- for programs ----


def _as_dict(source: Source, settings: Settings, results: Sequence[Result], aws: Aws, seconds: float) -> dict[str, Any]:
    slowest, name = aws.slowest_call
    return {
        "file": source.file,
        "name": settings.name,
        "region": settings.region,
        "good": exit_code(results) == EXIT_GOOD,
        "counts": _counts(results),
        "not_asked": _not_asked(results),
        "seconds": round(seconds, 3),
        "slowest_call": {"name": name, "seconds": round(slowest, 3)},
        "questions": [
            {
                "name": result.question.name,
                "seconds": round(result.seconds, 3),
                "answers": [_answer(source, answer) for answer in result.answers],
            }
            for result in results
        ],
    }


def _answer(source: Source, answer: Answer) -> dict[str, Any]:
    return {
        "status": answer.status.value,
        "path": path_text(answer.path),
        "line": source.line(answer.path) if answer.path else 0,
        "text": answer.text,
        "hint": answer.hint,
    }
