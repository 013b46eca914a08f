"""`python -m rehearsal SPECIFICATION`: started by `slipway rehearse` in its own namespaces. Not for typing."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

COLLECTED_OBJECTS = 50_000
"""More than Python's 700: a rehearsal has many objects that stay."""

os.umask(0o022)  # the hosts' services read files of other users; a hardened root has 077
gc.disable()  # what is imported stays

from rehearsal.engine.main import main  # noqa: E402 (modules that are imported may make files)

gc.freeze()
gc.set_threshold(COLLECTED_OBJECTS)
gc.enable()
code = main(sys.argv[1])
for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):  # a closed terminal
        stream.flush()
# The namespaces end with this process. Python's own end would free the embedded AWS for seconds, and could wait for a
# lock that a thread holds.
os._exit(code)
