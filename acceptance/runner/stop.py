"""Stopping on a signal. The handler only sets a flag that the loops check, so no job id is lost in between."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from acceptance.errors import Interrupted


class Stop:
    """A context in which SIGINT and SIGTERM ask for an orderly end."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._name = ""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave before

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self._name = signal.Signals(number).name
        self._event.set()

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self._event.is_set():
            raise Interrupted(f"stopped by {self._name}: the measurement is not finished")

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until a signal comes; then raise Interrupted."""
        self._event.wait(seconds)
        self.check()
