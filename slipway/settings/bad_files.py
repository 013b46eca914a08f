"""The bad files: one for each fault, slipway/settings/bad/NAME.yaml, with the expected messages in it.

Documentation and `slipway check --explain` show the message that a file really gives.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from slipway.settings.check import examine
from slipway.settings.source import MAX_BYTES

FOLDER = Path(__file__).with_name("bad")

# Files that a repository cannot contain.
MADE: dict[str, Callable[[Path], Path]] = {
    "file-missing": lambda folder: folder / "demo.yaml",
    "file-kind": lambda folder: folder,
    "file-size": lambda folder: _written(folder / "demo.yaml", "#" * (MAX_BYTES + 1)),
    "file-unreadable": lambda folder: _written(folder / "demo.yaml", "") / "demo.yaml",
}


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def bad_file(name: str, folder: Path) -> Path:
    """Return the file that has the fault `name`; if a repository cannot contain it, it is made in `folder`."""
    return MADE[name](folder) if name in MADE else FOLDER / f"{name}.yaml"


def message_of(name: str) -> str:
    """Return the message of the fault `name`, without the place, from a check of its bad file; empty without a file."""
    with tempfile.TemporaryDirectory() as folder:
        examination = examine(bad_file(name, Path(folder)))
    messages = [fault.message for fault in (*examination.faults, *examination.warnings) if fault.rule_name == name]
    return messages[0] if messages else ""
