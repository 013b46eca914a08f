"""The types of options that all commands share, and paths that may be links."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path


def path_of(text: str) -> Path:
    """A path. An empty one would mean the current folder, although a variable of the shell was not set."""
    if not text:
        filled(text)
    try:
        Path(text).stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            rule = "is a link that points to itself"
            raise argparse.ArgumentTypeError(f"{text}: {rule}. Hint: remove the link, or give another path") from None
    return Path(text)


def filled(text: str) -> str:
    """A text of one line that is not empty."""
    if not text.strip() or not text.isprintable():
        rule = "must be one line" if text.strip() else "must not be empty"
        raise argparse.ArgumentTypeError(f"{text!r}: {rule}. Hint: is a variable of the shell not set?")
    return text


def resolved(one: Path) -> Path:
    """Return a path without links. Path.resolve raises RuntimeError for a link that points to itself."""
    return Path(os.path.realpath(one))
