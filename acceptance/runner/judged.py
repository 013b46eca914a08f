"""The log of a test, read and judged once: for the decision about a search, and for the report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from acceptance.limits import Check, judge_log
from acceptance.nccl import Log
from acceptance.runner.files import open_plain, read_log
from acceptance.runner.follow import JobOutcome
from acceptance.runner.gpus import judge_gpus, judge_image
from acceptance.runner.record import TestRecord
from acceptance.runner.script import NOT_FOUND
from acceptance.scenario.model import Scenario, Test

NOT_MEASURED = (Check("job", "fail", "was not measured"),)


@dataclass(frozen=True)
class JudgedLog:
    """A log, and the checks that follow from it and from how its job ended."""

    log: Log
    checks: tuple[Check, ...]


def judge_test(scenario: Scenario, test: Test, record: TestRecord, directory: Path) -> JudgedLog:
    """Read the log of a test from its run directory and judge it."""
    path = directory / record.log
    log = read_log(path)
    checks = _checks(scenario, test, record.outcome, log, path)
    if record.outcome is not None and record.outcome.kind == "done":
        checks += [*judge_gpus(scenario, test, directory), *judge_image(scenario, test, directory)]
    return JudgedLog(log, tuple(checks))


def _checks(scenario: Scenario, test: Test, outcome: JobOutcome | None, log: Log, path: Path) -> list[Check]:
    if outcome is None:
        return list(NOT_MEASURED)
    checks = judge_log(scenario, test, log, scenario.nodes)
    if outcome.kind == "done":
        return [Check("job", "pass", outcome.message), *checks]
    message = outcome.message
    if outcome.kind == "hang":
        message += f" (after {test.timeout_s} s)"
    if outcome.exit_code == NOT_FOUND:
        message = _where_it_looked(path) or message
    if log.events:
        event = log.events[0]
        message += f"; {event.host + ': ' if event.host else ''}{event.message}"
    # A job that did not end well has no bandwidth: only how it ended, what nccl-tests reported and releases that are
    # known to be bad are shown.
    known = [check for check in checks if check.name == "software"]
    failed = [check for check in checks if check.name in ("nccl-tests", "complete", "data") and check.outcome == "fail"]
    return [Check("job", "fail", message), *failed, *known]


def _where_it_looked(path: Path) -> str | None:
    """The job script's own line about nccl-tests that it did not find."""
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            lines = stream.read(65_536).splitlines()
    except OSError:
        return None
    prefix = "acceptance: "
    return next((line[len(prefix) :] for line in lines if line.startswith(f"{prefix}no ")), None)
