"""node.env and other files of KEY=VALUE lines, read as data by the nodes' Python programs (env.sh does it for bash)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

NODE_ENV = Path("/etc/slipway/node.env")
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


def read(path: Path = NODE_ENV) -> dict[str, str]:
    """Return the values, taken literally; the last line of a key holds. Empty when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    matches = (_PAIR.fullmatch(line) for line in text.split("\n"))
    return {match[1]: match[2] for match in matches if match}


def number(key: str, default: int, path: Path = NODE_ENV) -> int:
    """Return a whole number from 1 to 999999. Ends the program with a message when the value is not one."""
    text = read(path).get(key, str(default))
    if _NUMBER.fullmatch(text) is None:
        sys.exit(
            f"slipway: {path}: {key} = '{text}': not a whole number from 1 to 999999\n"
            f"slipway-hint: correct {key} in /etc/slipway/site.env and run the set-up again"
        )
    return int(text)
