"""One job that holds the nodes of a search, and runs the rounds that are put before it one after another.

So no round waits in the queue, no node is scaled down between two rounds, and each launch's exit code is known
without accounting. The job's script (holder.sbatch.j2) reads ROUNDS line by line, each the name of a script in
the same directory. It ends when STOP exists, or after a while without a new round: a killed runner holds no node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from acceptance.runner.files import write_whole
from acceptance.runner.follow import Follower

ROUNDS, STOP = "locate-rounds.txt", "locate-stop"
NAME = "locate"
IDLE_S = 120  # seconds without a new round after which the job ends
_POLL_S = 0.3
_SLACK_S = 60  # seconds beyond a round's own bound before it counts as stuck
_CLOSE_S = 20  # seconds that the job gets to see STOP before it is cancelled


class Allocation:
    """The nodes of a search, held by one job from the first round to the last."""

    def __init__(self, directory: Path, job_name: str, follower: Follower) -> None:
        self._directory, self._job_name, self._follower = directory, job_name, follower
        self._rounds: list[str] = []
        self._job_id: int | None = None
        self.trouble: str | None = None

    def open(self, script: Path, on_submitted: Callable[[], None]) -> None:
        """Submit the holder and wait until it runs; `trouble` says why it does not."""
        for name in (ROUNDS, STOP):
            (self._directory / name).unlink(missing_ok=True)
        self._job_id = self._follower.submit(script, self._directory / f"{NAME}.out", self._job_name)
        on_submitted()
        info, trouble = self._follower.wait_started(self._job_id)
        if trouble or info is None or info.final:
            self._give_up(trouble)

    def run(self, script: Path, status: Path, parts: int, timeout_s: int) -> dict[int, int]:
        """Let the job run one round's script; return the exit codes by the number of the part, from 0.

        There are fewer than `parts` if something went wrong: see `trouble` and `ended`. timeout_s: the bound of each
        part, which run at the same time.
        """
        self._rounds.append(script.name)
        write_whole(self._directory / ROUNDS, "".join(f"{name}\n" for name in self._rounds))
        until, asked = time.monotonic() + timeout_s + _SLACK_S, time.monotonic()
        while self.ended(status) is None and len(exit_codes(status)) < parts:
            self._follower.stop.sleep(_POLL_S)
            if time.monotonic() > until:
                self._give_up(f"did not end a round within {timeout_s} s")
                break
            if time.monotonic() - asked > 2:
                asked = time.monotonic()
                if self._has_ended():
                    break
        return exit_codes(status)  # the script may have written some, and its end, between two looks

    @staticmethod
    def ended(status: Path) -> int | None:
        """The exit code of a round's script as a whole; None while it runs."""
        try:
            found = re.search(r"^ended=(\d{1,3})$", status.read_text("utf-8", errors="replace"), re.MULTILINE)
        except OSError:
            return None
        return int(found[1]) if found else None

    def close(self) -> None:
        """Let the job end; cancel it if it does not."""
        if self._job_id is None or self.trouble:
            return
        write_whole(self._directory / STOP, "")
        until, trouble = time.monotonic() + _CLOSE_S, ""
        while (info := self._follower.ask(self._job_id)) is not None and not info.final and not trouble:
            if time.monotonic() > until:
                trouble = "did not end on request"
            else:
                self._follower.stop.sleep(_POLL_S)
        self._follower.end(self._job_id, info, trouble, self._directory / f"{NAME}.status", 0)

    def _has_ended(self) -> bool:
        info = self._follower.ask(self._job_id or 0)
        if info is None or info.final:
            self._give_up("")
            return True
        return False

    def _give_up(self, trouble: str) -> None:
        """Note why nothing more can be measured in this job; cancel it if it still runs."""
        job_id = self._job_id or 0
        outcome = self._follower.end(job_id, self._follower.ask(job_id), trouble, self._directory / f"{NAME}.status", 0)
        self.trouble = outcome.message


def exit_codes(status: Path) -> dict[int, int]:
    """What a round's script has written so far: the number of a part -> its exit code."""
    try:
        text = status.read_text("utf-8", errors="replace")
    except OSError:
        return {}
    found = re.findall(r"^part=(\d{1,5}) exit=(\d{1,3})$", text, re.MULTILINE)
    return {int(index): int(code) for index, code in found}
