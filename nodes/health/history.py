"""When nodes were drained, noted where all nodes see it: in each node's comment in Slurm.

ParallelCluster rewrites a replaced node's state and reason, never its comment. Slurm keeps the comment through
replacements and restarts of slurmctld (node_mgr.c saves and restores it, 22.05 to 25.11), and the note works while the
shared file system does not. Text of the site in the same comment is kept.
"""

from __future__ import annotations

import dataclasses
import re

from nodes.health.ask import Asker

NOTE = re.compile(r"slipway-drains=([0-9,]+) ?")
KEPT_HOURS = 24.0
HOUR_S = 3600.0


@dataclasses.dataclass(frozen=True)
class Notes:
    """The comments of all nodes, by node."""

    comments: dict[str, str]

    def within(self, hours: float, now: float) -> dict[str, int]:
        """Return how often each node was drained in the last `hours`; nodes without a drain are left out."""
        counts = {
            name: sum(now - time <= hours * HOUR_S for time in times(text)) for name, text in self.comments.items()
        }
        return {name: count for name, count in counts.items() if count}

    def add(self, asker: Asker, name: str, now: float, limit_s: float) -> str:
        """Note a drain of `name` at `now`; return why Slurm did not take it, empty when it did."""
        text = self.comments.get(name, "")
        kept = [time for time in times(text) if now - time <= KEPT_HOURS * HOUR_S]
        note = ",".join(f"{time:.0f}" for time in [*kept, now])
        return _write(asker, name, f"slipway-drains={note} {NOTE.sub('', text)}".strip(), limit_s)

    def restore(self, asker: Asker, name: str, limit_s: float) -> None:
        """Take a note back: the node was not drained."""
        _write(asker, name, self.comments.get(name, ""), limit_s)


def times(comment: str) -> list[float]:
    """Return the times of the drains in a comment, in seconds since 1970."""
    match = NOTE.search(comment)
    return [float(word) for word in match[1].split(",") if word] if match else []


def read(asker: Asker, limit_s: float) -> Notes | None:
    """Return the comments of all nodes; None when Slurm did not answer."""
    answer = asker.ask(["sinfo", "--noheader", "--Node", "--Format=NodeList:256,Comment:1024"], limit_s)
    if not answer.ok:
        return None
    fields = (line.split(None, 1) for line in answer.out.splitlines())
    comments = {field[0]: field[1].strip() if len(field) > 1 else "" for field in fields if field}
    return Notes({name: "" if text == "(null)" else text for name, text in comments.items()})


def _write(asker: Asker, name: str, text: str, limit_s: float) -> str:
    answer = asker.ask(["scontrol", "update", f"nodename={name}", f"comment={text}"], limit_s)
    return "" if answer.ok else answer.problem or answer.out.strip()[:160] or f"exit {answer.rc}"
