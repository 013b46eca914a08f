"""Runs the table of checks on one node and counts how often in a row each finding failed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

from nodes.health.checks import CHECKS, STATUSES, Check, Finding
from nodes.health.node import Node


@dataclasses.dataclass(frozen=True)
class Failure:
    """A finding that failed. row: how many runs in a row; needed: how many of them drain the node."""

    check: str
    subject: str
    evidence: str
    limit: str
    mark: str
    row: int
    needed: int
    heals: bool

    @property
    def key(self) -> str:
        """Identifies what an operator knew when resuming the node: a worse finding has another key."""
        return f"{self.check}/{self.subject}/{self.mark}"

    @property
    def text(self) -> str:
        """For the reason of a drained node: `gpu 3: 12 uncorrectable ECC errors (limit 0 errors, no flag)`."""
        return f"{self.subject}: {self.evidence}" if self.subject else self.evidence


@dataclasses.dataclass(frozen=True)
class Result:
    """The findings of one check."""

    check: Check
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def status(self) -> str:
        """The worst status of its findings; unknown without findings."""
        return max((one.status for one in self.findings), key=STATUSES.index, default="unknown")

    @property
    def evidence(self) -> str:
        """The findings of the worst status, in words; at most four of them."""
        worst = [one for one in self.findings if one.status == self.status]
        words = list(dict.fromkeys(f"{one.subject}: {one.evidence}" if one.subject else one.evidence for one in worst))
        if self.status == "ok" and len(words) > 1:
            evidence = list(dict.fromkeys(one.evidence for one in worst))
            words = evidence if len(evidence) <= 2 else words
        more = f"; and {len(words) - 4} more" if len(words) > 4 else ""
        return "; ".join(words[:4]) + more


def run(node: Node, checks: Sequence[Check] = CHECKS) -> list[Result]:
    """Run every check of the table. A check that raises is unknown; the others still run."""
    results = []
    for check in checks:
        started = time.monotonic()
        try:
            findings = tuple(check.look(node))
        except (OSError, ValueError, KeyError, TypeError) as error:
            findings = (Finding("unknown", f"the check itself failed: {type(error).__name__}: {error}"),)
        results.append(Result(check, findings, time.monotonic() - started))
    return results


def failures(results: Iterable[Result], rows: dict[str, int]) -> list[Failure]:
    """Return the failed findings with their count of runs in a row. Updates `rows`, the counts of earlier runs.

    A run that could not see (unknown) neither counts nor clears.
    """
    found: list[Failure] = []
    counted: dict[str, int] = {}
    for result in results:
        check = result.check
        for one in result.findings:
            key = f"{check.name}/{one.subject}"
            if one.status == "fail":
                counted[key] = max(counted.get(key, 0), rows.get(key, 0) + 1)
                fault = (check.name, one.subject, one.evidence, check.limit, one.mark, counted[key], check.runs)
                found.append(Failure(*fault, check.heals))
        if any(one.status == "unknown" for one in result.findings):
            kept = {key: row for key, row in rows.items() if key.startswith(f"{check.name}/")}
            counted = {**kept, **counted}
    rows.clear()
    rows.update(counted)
    return found


def as_json(result: Result) -> dict[str, Any]:
    """One check of health.json."""
    return {
        "check": result.check.name,
        "status": result.status,
        "evidence": result.evidence,
        "limit": result.check.limit,
        "seconds": round(result.seconds, 3),
        "findings": [dataclasses.asdict(one) for one in result.findings],
    }
