"""`python3 -I fetch.pyz SPEC.json`."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from acceptance.cloudai.fetch.faults import Fault
from acceptance.cloudai.fetch.place import alone_in, complete
from acceptance.cloudai.fetch.transfer import Download

_HINTS = {  # of errors of the file system
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room, and run it again: it goes on"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "may this user write there?"),
}


def main(argv: list[str]) -> int:
    """Download what a specification says; 0 if all of it is there."""
    spec = json.loads(Path(argv[0]).read_text("utf-8"))
    folder = Path(spec["folder"])
    try:
        if complete(spec):
            print(f"{spec['source']}: is complete: {folder}")
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            Download(spec).run()
    except Fault as fault:
        print(f"acceptance download: {fault}", file=sys.stderr)
        return 3
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "look at this place, and run it again: it goes on")
        print(
            f"acceptance download: {error.filename2 or error.filename or folder}: {error.strerror}. Hint: {hint}",
            file=sys.stderr,
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
