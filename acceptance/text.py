"""Text for people: sizes, bandwidths, counts, and tables for a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence


def size_text(size_bytes: int) -> str:
    """16777216 -> '16 MiB'; sizes that are no whole number of a unit stay in bytes."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def gb_text(gb_per_s: float | None) -> str:
    """A bandwidth with four significant digits: 487.1, 0.04712; '-' for None."""
    if gb_per_s is None:
        return "-"
    text = f"{gb_per_s:.4g}"
    return text if "e" not in text or gb_per_s < 1 else f"{gb_per_s:.0f}"


def plural(count: int, thing: str) -> str:
    """'1 node', '4 nodes'."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def named(names: Sequence[str], most: int, rest: str) -> str:
    """'a, b and 3 more nodes': the first `most` names, and how many more there are. rest: such as 'more node'."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {plural(left, rest)}" if left > 0 else "")


def printable(text: str) -> str:
    """One line of text without characters that a terminal would act on."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def without_password(text: str) -> str:
    """Return a text whose addresses have no user and password any more."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def grid(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of equal length as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def complain(message: str) -> None:
    """Print each line of a message to standard error, after the program's name."""
    for line in message.split("\n"):
        print(f"acceptance: {printable(line)}", file=sys.stderr)
