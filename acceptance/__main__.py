"""Entry point of `python -m acceptance` and of the zipapp."""

from __future__ import annotations

import sys

from acceptance.cli import main

if __name__ == "__main__":
    sys.exit(main())
