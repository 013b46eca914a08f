"""Files that the user gets: written whole or not at all, and never over another one without saying so."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from slipway.errors import SlipwayError, UsageError


def refuse_existing(path: Path | None, force: bool) -> None:
    """Raise UsageError when ``path`` is a folder or in none, or is there already and ``force`` is not given."""
    if path is None:
        return
    try:
        folder, there = path.is_dir(), path.exists() or path.is_symlink()
    except (OSError, ValueError) as error:  # a name that is too long, or with a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--output {path}: cannot be a file: {reason}. Hint: another --output") from None
    if not path.name or folder:
        raise UsageError(f"--output {path or repr('')}: is no file. Hint: name the file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}. Hint: mkdir -p {shlex.quote(str(path.parent))}")
    if not force and there:
        raise UsageError(f"{path}: exists already. Hint: --force replaces it, or name another --output")


def write_whole(path: Path, text: str, *, force: bool = False) -> None:
    """Write ``path`` completely or not at all. Raises UsageError for an existing file, SlipwayError when it cannot."""
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        raise SlipwayError(f"{path}: cannot be written: {error.strerror}. Hint: another --output") from None
    finally:
        remove(temporary)


def remove(path: Path) -> None:
    """Take ``path`` away if it is there; a place that cannot even be looked at holds nothing of ours."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
