"""The steps of the nodes, read from the heads of their scripts.

A head is the comment below a script's first line: a sentence that says what the script does, then lines `# key: text`.
A line that is indented further continues the line above.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slipway.places import FILES

KINDS = ("headnode", "compute")
_KEY = re.compile(r"^#\s?(?P<key>[a-z][a-z ]*):\s+(?P<text>\S.*)$")
_FIRST_KEY = "needs"


@dataclass(frozen=True)
class Head:
    """The head of a script: the sentence that says what it does, its keys, and the number of its last line."""

    does: str
    keys: dict[str, str]
    last_line: int


def head(text: str) -> Head:
    """Return the head of a script."""
    lines = text.splitlines()
    start = 1 if lines and lines[0].startswith(("#!", "# shellcheck")) else 0
    does: list[str] = []
    keys: dict[str, str] = {}
    last = ""
    number = start
    for line in lines[start:]:
        if not line.startswith("#") or line.startswith("# shellcheck"):
            break
        number += 1
        match = _KEY.match(line)
        if match and (match["key"] == _FIRST_KEY or keys):
            last = match["key"]
            keys[last] = match["text"]
        elif last and re.match(r"^#\s{2,}\S", line):
            keys[last] += " " + line[1:].strip()
        elif line.strip() == "#":
            last = ""
            does += [""] if does else []
        elif not keys and "" not in does:
            does.append(line[1:].strip())
    return Head(" ".join(does).strip(), keys, number)


def steps_of(kind: str, root: Path = FILES) -> list[tuple[Path, Head]]:
    """Return the steps of a kind of node in the order in which they run, as nodes/lib/steps.sh does.

    They are those of the kind's own folder, and those of nodes/steps whose line `runs on` names the kind.
    """
    of_kind, shared = ((root / folder / "steps").glob("[0-9][0-9]-*.sh") for folder in (kind, "nodes"))
    steps = [(path, head(path.read_text(encoding="utf-8"))) for path in (*of_kind, *shared)]
    steps = [step for step in steps if kind in step[1].keys.get("runs on", kind).split()]
    return sorted(steps, key=lambda step: step[0].name)


def seconds(kind: str, root: Path = FILES) -> int:
    """Return the most seconds that the steps of a kind of node can take: the sum of their time-outs."""
    return sum(int(step.keys["timeout"].removesuffix(" s")) for _, step in steps_of(kind, root))
