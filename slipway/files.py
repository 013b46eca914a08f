"""Files for the user: written completely or not at all, and never in place of another without `--force`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from slipway.errors import SlipwayError, UsageError


def refuse_existing(path: Path | None, force: bool) -> None:
    """Raise UsageError if `path` is no file, its folder does not exist, or it exists and `force` is not given.

    A device such as /dev/null is refused too: root would replace it by a file.
    """
    if path is None:
        return
    try:
        other, exists = path.exists() and not path.is_file(), path.exists() or path.is_symlink()
    except (OSError, ValueError) as error:  # a name that is too long, or with a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--output {path}: cannot be a file: {reason}. Hint: another --output") from None
    if not path.name or other:
        raise UsageError(f"--output {path or repr('')}: is not a file. Hint: name the file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}. Hint: mkdir -p {shlex.quote(str(path.parent))}")
    if not force and exists:
        raise UsageError(f"{path}: exists already. Hint: --force replaces it, or name another --output")


def write_whole(path: Path, text: str, *, force: bool = False) -> None:
    """Write `path` completely or not at all. Raises UsageError for an existing file, SlipwayError if it fails."""
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
    """Delete `path` if it exists. Errors are ignored: if it cannot be reached, this program did not create it."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
