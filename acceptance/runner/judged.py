"""The log of a test, read and judged once: for the decision about a search, and for the report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from acceptance.limits import Check, judge_log
from acceptance.nccl import Failure, Log, merged
from acceptance.runner.files import open_plain, read_log
from acceptance.runner.follow import JobOutcome
from acceptance.runner.gpus import judge_gpus, judge_image
from acceptance.runner.record import TestRecord
from acceptance.runner.script import NOT_FOUND
from acceptance.scenario.model import Scenario, Test

CAUSE = "cause"  # the start of the name of a check that quotes a cause
_MOST_CAUSES = 3
_LONGEST_LINE = 200  # characters of a log's line in a message
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
    checks = checks_of(scenario, test, record.outcome, log, path)
    if record.outcome is not None and record.outcome.kind == "done":
        checks += [*judge_gpus(scenario, test, directory), *judge_image(scenario, test, directory)]
    return JudgedLog(log, tuple(checks))


def checks_of(scenario: Scenario, test: Test, outcome: JobOutcome | None, log: Log, path: Path) -> list[Check]:
    """Return the checks that follow from a log and from how its job ended. path: the log's file."""
    if outcome is None:
        return list(NOT_MEASURED)
    checks = judge_log(scenario, test, log, scenario.nodes)
    failed = [check for check in checks if check.outcome == "fail"]
    if outcome.kind == "done":
        return [Check("job", "pass", outcome.message), *checks, *(causes_of(log, notes=True) if failed else [])]
    message = outcome.message
    if outcome.kind == "hang":
        message += f" (after {test.timeout_s} s)"
    if outcome.exit_code == NOT_FOUND:
        message = _where_it_looked(path) or message
    event = _telling_event(log, outcome)
    if event:
        message += f"; {event.text}"
    # A job that did not end well has no bandwidth. Shown are, nearest to the cause first: wrong data, the causes that
    # the log names, how the job ended, what nccl-tests and the network plugin reported, and bad releases.
    data = [check for check in failed if check.name == "data"]
    reported = [check for check in failed if check.name in ("nccl-tests", "minimum bandwidth", "complete")]
    reported += [check for check in failed if check.name == "network" and log.network.red_flags]
    known = [check for check in checks if check.name == "software"]
    return [*data, *causes_of(log), Check("job", "fail", message), *reported, *known]


def causes_of(log: Log, notes: bool = False) -> list[Check]:
    """Return a check for each cause that the log names: the roots, or else what follows from an unknown one.

    notes: also what is no failure, but may explain a low bandwidth or a wrong network.
    """
    roots = [one for one in log.causes if not one.weak and not one.note]
    weak = [one for one in log.causes if one.weak]
    found = (roots or weak)[:_MOST_CAUSES] + [one for one in log.causes if one.note and notes]
    return [
        Check(f"{CAUSE} {one.id}", "fail", f"{one.text} (log: {one.line[:_LONGEST_LINE]})" if one.repair else one.text)
        for one in found
    ]


def _telling_event(log: Log, outcome: JobOutcome) -> Failure | None:
    """The first event that says more than that tasks were ended because the measurement reached its own time-out."""
    events = merged(log.events)
    if outcome.kind == "hang":
        events = [one for one in events if one.kind not in ("cancelled", "exit")]
    return next((one for one in events if (one.kind, one.message) != ("cancelled", "no reason given")), None)


def _where_it_looked(path: Path) -> str | None:
    """The job script's own line about nccl-tests that it did not find."""
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            lines = stream.read(65_536).splitlines()
    except OSError:
        return None
    prefix = "acceptance: "
    return next((line[len(prefix) :] for line in lines if line.startswith(f"{prefix}no ")), None)
