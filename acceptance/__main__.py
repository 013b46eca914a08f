"""The command `acceptance`, `python -m acceptance`, and the entry point of the zipapp."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - as long as the program runs


def main() -> int:
    """Run the command line. Its imports are here so that Ctrl-C during them ends without a traceback."""
    for descriptor in (0, 1, 2):  # a file that is opened must not take the place of one that the caller has closed
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 gets escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        from acceptance.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
