"""``python -m rehearsal SPECIFICATION``: run by ``slipway rehearse`` in namespaces of its own. Not for typing."""

from __future__ import annotations

import sys

from rehearsal.engine import main

sys.exit(main(sys.argv[1]))
