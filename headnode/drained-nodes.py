#!/usr/bin/python3
"""Write `terminate_drain_nodes` into clustermgtd's configuration, or take it out.

Usage: `drained-nodes.py FILE true|false`. The key is not in the file that ParallelCluster writes
(parallelcluster_clustermgtd.conf.erb of its cookbook); clustermgtd's default is true, and its updates keep the file
(update_head_node.rb changes one other key). All other lines stay as they are.
Exit 0; 1 with a hint when the file cannot be read or has no section `[clustermgtd]`. Python 3.9, standard library.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

KEY = "terminate_drain_nodes"
LINE = re.compile(rf"\s*{KEY}\s*[=:]")
SECTION = "[clustermgtd]"


def changed(text: str, terminate: bool) -> str:
    """Return the configuration with the key as wanted. Raises ValueError without the section."""
    lines = [line for line in text.splitlines() if not LINE.match(line)]
    place = [line.strip() for line in lines].index(SECTION)
    own = [] if terminate else [f"{KEY} = false"]
    return "\n".join([*lines[: place + 1], *own, *lines[place + 1 :]]) + "\n"


def main(arguments: list[str]) -> int:
    """Change the file by one rename; return the exit code."""
    path, terminate = Path(arguments[0]), arguments[1] == "true"
    try:
        before = path.read_text(encoding="utf-8")
        after = changed(before, terminate)
        if after != before:
            fresh = path.with_name(f".{path.name}.slipway-new")
            fresh.write_text(after, encoding="utf-8")
            fresh.chmod(path.stat().st_mode & 0o7777)
            fresh.replace(path)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else f"there is no section {SECTION}"
        print(f"slipway: {path}: {what}: ParallelCluster's default holds, drained nodes are replaced")
        print(f"slipway-hint: write {KEY} = {arguments[1]} there, if this ParallelCluster has clustermgtd")
        return 0 if terminate else 1  # the default is what was asked for
    print(f"slipway: ParallelCluster {'replaces' if terminate else 'does not replace'} drained nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
