"""Text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line of text without characters that a terminal would act on."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def grid(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of equal length as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
