"""Hints that name what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_WORD = 64  # a longer one is no slip of the pen, and comparing it would take long
MOST_SHOWN = 20
CLOSE = 0.6  # of 1 (equal), difflib's ratio: "eaf" still is "efa"
VERY_CLOSE = 0.75  # among names that all look alike, as instance types do


def nearest(word: str, choices: Iterable[str], close: float = CLOSE) -> str | None:
    """The choice that looks most like ``word``; None when none does."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib

    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=close)
    return near[0] if near else None


def did_you_mean(word: str, choices: Iterable[str], close: float = CLOSE) -> str:
    """A hint naming the nearest choice, or all choices when they are few and none is near."""
    known = list(choices)
    near = nearest(word, known, close)
    if near:
        return f"did you mean {near}?"
    return f"one of: {', '.join(known)}" if len(known) <= MOST_SHOWN else ""
