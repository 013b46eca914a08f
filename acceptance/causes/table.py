"""The table of known causes: causes.json next to this file, strongest cause first."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

_LONGEST = 2048  # characters of a line that the patterns read


@dataclass(frozen=True)
class Cause:
    """A row of the table: what a line of a log means, and the repair.

    marks: literal texts of which the line contains at least one; they are cheap to look for. pattern: what it matches.
    cause: the meaning; names in braces are groups of the pattern. source: where the line is printed, or documented.
    weak: it follows from another failure, so a cause that is not weak comes first. note: it is no failure, but may
    explain one. implied_by: causes that make this one redundant. plugin: void if the host's network plugin chose a
    provider afterwards. exit_code: the task's, which names the host where the line does not. first: only the first
    such line of a host counts. anonymous: the host is only where the line was seen.
    """

    id: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    cause: str
    repair: str
    source: str
    example: str
    weak: bool = False
    note: bool = False
    plugin: bool = False
    first: bool = False
    anonymous: bool = False
    exit_code: int | None = None
    implied_by: tuple[str, ...] = field(default=())

    @property
    def rank(self) -> int:
        """How far from the root the cause is: 0 for the root itself, 1 for what follows from it, 2 for a note."""
        return 2 if self.note else 1 if self.weak else 0


@lru_cache(maxsize=1)
def known_causes() -> tuple[Cause, ...]:
    """Return all rows, strongest cause first."""
    rows = json.loads(files("acceptance.causes").joinpath("causes.json").read_text("utf-8"))["causes"]
    return tuple(
        Cause(
            **{
                **row,
                "marks": tuple(row["marks"]),
                "pattern": re.compile(row["pattern"]),
                "implied_by": tuple(row.get("implied_by", ())),
            }
        )
        for row in rows
    )


@lru_cache(maxsize=1)
def all_marks() -> tuple[str, ...]:
    """Return the different marks of all rows."""
    return tuple(dict.fromkeys(mark for cause in known_causes() for mark in cause.marks))


def cause_of(line: str) -> tuple[Cause, re.Match[str]] | None:
    """Return the first row that fits a line, with the match; None if none fits."""
    marks = [mark for mark in all_marks() if mark in line]
    if not marks:
        return None
    line = line[:_LONGEST]
    for cause in known_causes():
        if any(mark in marks for mark in cause.marks):
            match = cause.pattern.search(line)
            if match:
                return cause, match
    return None
