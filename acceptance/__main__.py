"""The command `acceptance`, `python -m acceptance`, and the entry point of the zipapp."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line. Its imports are here so that Ctrl-C during them ends without a traceback."""
    try:
        from acceptance.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
