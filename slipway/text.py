"""Text for the user: did-you-mean hints, text that is safe on a terminal, times and lists."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

# Characters that control a terminal or hide part of a line: control characters, line separators, marks of writing
# direction, surrogates.
UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
LONGEST_WORD = 64  # longer words are not typos, and difflib is quadratic
MOST_SHOWN = 20
LEAST_COLUMNS = 20  # of a folded line, however narrow the terminal is
CLOSE = 0.6  # of 1 (equal), difflib's ratio: "eaf" still is "efa"
VERY_CLOSE = 0.75  # among names that all look alike, as instance types do


def nearest(word: str, choices: Iterable[str], close: float = CLOSE) -> str | None:
    """Return the choice most similar to `word`, among equals the one with the longest common beginning, or None."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib

    near = difflib.get_close_matches(word, list(choices), n=MOST_SHOWN, cutoff=close)
    ratios = {choice: difflib.SequenceMatcher(None, choice, word).ratio() for choice in near}
    best = [choice for choice in near if ratios[choice] == ratios[near[0]]]
    return max(best, key=lambda choice: _beginning(choice, word), default=None)


def _beginning(word: str, other: str) -> int:
    """Return the number of characters with which both begin."""
    return next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))


def did_you_mean(word: str, choices: Iterable[str], close: float = CLOSE) -> str:
    """Return a hint with the nearest choice, or with all choices if they are few and none is near."""
    known = list(choices)
    near = nearest(word, known, close)
    if near:
        return f"did you mean {near}?"
    return f"one of: {', '.join(known)}" if len(known) <= MOST_SHOWN else ""


def visible(text: str) -> str:
    """Return `text` on one line without characters that control a terminal: it may come from a file or from AWS."""
    return UNSHOWN.sub("?", text)


def width_on_screen(text: str) -> int:
    """How many columns of a terminal `text` takes: two for a wide character, none for a combining one."""
    import unicodedata

    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(bool(unicodedata.combining(character)) for character in text)


def moment(time: datetime.datetime) -> str:
    """Return the time as `2026-12-05 11:30 UTC`."""
    return time.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def duration(length: datetime.timedelta | float | None) -> str:
    """Return the two largest units of a time in seconds: `6 d 21 h`, `5 h 10 min`, `1 min 35 s`."""
    if length is None:
        return "unknown time"
    seconds = length.total_seconds() if isinstance(length, datetime.timedelta) else length
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def plural(count: int, word: str) -> str:
    """Return `1 fault`, `2 faults`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return `a, b, c and 2 more`."""
    return ", ".join(names[:most]) + more(len(names), most)


def more(count: int, shown: int) -> str:
    """Return ` and 2 more` when `count` is 2 above `shown`, and nothing when all were shown."""
    return f" and {count - shown} more" if count > shown else ""


def screen_width() -> int | None:
    """Return the columns of the terminal, or None if the output goes into a file or a pipe and is not to be folded."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def folded(line: str, indent: int = 2) -> str:
    """Return `line` folded between words to the width of the terminal; further lines begin with `indent` blanks."""
    width = screen_width()
    if width is None or len(line) <= width:
        return line
    return textwrap.fill(
        line,
        max(width, indent + LEAST_COLUMNS),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
