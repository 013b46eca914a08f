"""`python -m rehearsal SPECIFICATION`: started by `slipway rehearse` in its own namespaces. Not for typing."""

from __future__ import annotations

import os
import sys

os.umask(0o022)  # the hosts' services read files of other users; a hardened root has 077

from rehearsal.engine.main import main  # noqa: E402 (modules that are imported may make files)

sys.exit(main(sys.argv[1]))
