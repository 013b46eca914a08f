"""`python -m rehearsal SPECIFICATION`: started by `slipway rehearse` in its own namespaces. Not for typing."""

from __future__ import annotations

import contextlib
import os
import sys

os.umask(0o022)  # the hosts' services read files of other users; a hardened root has 077

from rehearsal.engine.main import main  # noqa: E402 (modules that are imported may make files)

code = main(sys.argv[1])
for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):  # a closed terminal
        stream.flush()
# The namespaces end with this process. Python's own end would free the embedded AWS for seconds, and could wait for a
# lock that a thread holds.
os._exit(code)
