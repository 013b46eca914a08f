"""``python -m rehearsal SPECIFICATION``: run by ``slipway rehearse`` in namespaces of its own. Not for typing."""

from __future__ import annotations

import signal
import sys

# Ctrl-C reaches the whole foreground group; `slipway rehearse` takes it and closes our standard input, which we watch.
signal.signal(signal.SIGINT, signal.SIG_IGN)

from rehearsal.engine.run import main  # noqa: E402 (the signal comes before the imports, which take a second)

sys.exit(main(sys.argv[1]))
