"""The command `slipway`, and `python -m slipway`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line. Its imports are here so that Ctrl-C during them ends without a traceback."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for plugins takes time, and none is wanted
    try:
        from slipway.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
