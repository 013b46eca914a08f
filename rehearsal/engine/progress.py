"""What the user sees while a rehearsal runs: one live view on a terminal, plain lines elsewhere.

Thread-safe: stacks, hosts and jobs report from threads of their own.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

STYLES = {"ok": "green", "failed": "bold red", "running": "cyan", "waiting": "dim"}
REFRESHES_PER_S = 4
STATE_WIDTH = 8


@dataclasses.dataclass
class Row:
    """One line of the view: a stack, a host or a job."""

    kind: str
    name: str
    state: str = "waiting"
    text: str = ""
    started: float | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float | None:
        """Seconds it took, or takes up to now; None when it has not begun."""
        return None if self.started is None else (self.ended or now) - self.started


@dataclasses.dataclass
class Phase:
    """A part of the rehearsal and the seconds it took."""

    name: str
    depth: int
    seconds: float = 0.0


class Progress:
    """The rehearsal's progress. `phase` times a part of it; `update` changes the row of one stack, host or job."""

    def __init__(self, console: Console, begin: float | None = None) -> None:
        """`begin`: when the rehearsal began on the monotonic clock of this machine; None: now."""
        self.console = console
        self.phases: list[Phase] = []
        self._begin = time.monotonic() if begin is None else begin
        self._rows: dict[tuple[str, str], Row] = {}
        self._phase = ""
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._silent = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the rehearsal began."""
        return time.monotonic() - self._begin

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While inside, a terminal shows the live view."""
        if not self.console.is_terminal:
            yield
            return
        with Live(self, console=self.console, refresh_per_second=REFRESHES_PER_S, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While inside, the terminal belongs to another program."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start(refresh=True)

    def silence(self) -> None:
        """Print nothing more."""
        self._silent = True

    @contextmanager
    def phase(self, name: str, depth: int = 0) -> Iterator[None]:
        """Time one part of the rehearsal (`depth` 1: a part of the part around it)."""
        self.say(name)
        phase = Phase(name, depth)
        with self._lock:
            self._phase = name
            self.phases.append(phase)
        begin = time.monotonic()
        try:
            yield
        finally:
            phase.seconds = time.monotonic() - begin

    def took(self, name: str, seconds: float, depth: int = 0) -> None:
        """Add a part that another program timed."""
        self.say(f"{name} {seconds:.1f} s")
        self.phases.append(Phase(name, depth, seconds))

    def say(self, text: str, style: str = "") -> None:
        """One line that stays.

        Printed outside our lock: rich holds its own while it draws us, and asks for ours there.
        """
        if not self._silent:
            self.console.print(Text.assemble((f"{self.elapsed_s:6.1f} s  ", "dim"), (text, style)), soft_wrap=True)

    def update(self, kind: str, name: str, state: str, text: str = "", *, quiet: bool = False) -> None:
        """Change the row of one thing; `state` is waiting, running, ok or failed.

        Without a terminal each change is a line, except what is `quiet` and leaves the state as it was.
        """
        with self._lock:
            row = self._rows.setdefault((kind, name), Row(kind, name))
            now = time.monotonic()
            if state == "running" and row.state != "running":
                row.started, row.ended = now, None
            if state in {"ok", "failed"} and row.ended is None:
                row.started, row.ended = row.started or now, now
            changed, row.state, row.text = state != row.state, state, text
            took = f" ({row.seconds(now):.1f} s)" if state in {"ok", "failed"} and row.started != row.ended else ""
        if (state == "failed" and changed) or (self._live is None and (changed or (text and not quiet))):
            self.say(f"{kind:<5} {name}: {text or state}{took}", STYLES[state] if state == "failed" else "")

    def __rich__(self) -> RenderableType:
        """The live view, drawn again and again by rich."""
        with self._lock:
            table = Table(box=None, padding=(0, 1), show_header=False)
            now = time.monotonic()
            for row in self._rows.values():
                seconds = row.seconds(now)
                table.add_row(
                    row.kind,
                    row.name,
                    Text(f"{row.state:<{STATE_WIDTH}}", STYLES[row.state]),
                    "" if seconds is None else f"{seconds:5.1f} s",
                    Text(row.text, overflow="ellipsis", no_wrap=True),
                )
            return Group(Text(f"{self.elapsed_s:6.1f} s  {self._phase}", "bold"), table)
