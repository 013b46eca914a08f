"""`python3 nodes/health`: the command slipway-health."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nodes.health.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
