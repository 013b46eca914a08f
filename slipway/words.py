"""Hints that name what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_WORD = 64  # a longer one is no slip of the pen, and comparing it would take long
MOST_SHOWN = 20
CLOSE_ENOUGH = 0.75  # of 1 (equal), difflib's ratio: a suggestion that is far off misleads


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that looks most like ``word``; None when none does."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib

    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=CLOSE_ENOUGH)
    return near[0] if near else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint naming the nearest choice, or all choices when they are few and none is near."""
    known = list(choices)
    near = nearest(word, known)
    if near:
        return f"did you mean {near}?"
    return f"one of: {', '.join(known)}" if len(known) <= MOST_SHOWN else ""
