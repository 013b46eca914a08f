"""Files that no reader ever sees half of."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: beside its place, then renamed."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, "utf-8")
    part.replace(path)
