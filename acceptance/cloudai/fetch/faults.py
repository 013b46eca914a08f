"""Faults of a download: those that end it, and those after which another try may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FORM = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # an answer of another form
SLOWEST = 1 << 16  # bytes; a try that gets this far does not count
_TRIES, _PAUSE_S = 5, 2.0


class Fault(Exception):
    """Why the download is not whole: one line for the user."""


class Passing(Exception):
    """A fault after which another try may help.

    at: the byte up to which the file is there; after_s: how long the host asks to wait.
    """

    def __init__(self, rule: str, at: int = 0, after_s: int = 0) -> None:
        super().__init__(rule)
        self.at, self.after_s = at, after_s


class Stopped(Exception):
    """Another file failed."""


def tried(do: Callable[[], Any], place: str = "", pause: Callable[[float], Any] = time.sleep) -> Any:
    """Return what `do` returns, tried again after what may pass; tries that get farther do not count. Raises Fault."""
    number, farthest = 0, 0
    while True:
        try:
            return do()
        except Passing as error:
            farther = error.at >= farthest + SLOWEST
            number, farthest = (1 if farther else number + 1), max(farthest, error.at)
            if number == _TRIES:
                raise Fault(f"{place}{error} ({_TRIES} tries). Hint: run it again: it goes on") from None
            pause_s = max(_PAUSE_S * number, error.after_s)
            print(f"{place}{error}: tried again in {pause_s:g} s", flush=True)
        if pause(pause_s):
            raise Stopped


@contextmanager
def form_of(address: str) -> Iterator[None]:
    """Raise Fault where what an address answered has another form than the block reads."""
    try:
        yield
    except FORM:
        raise Fault(f"{address}: an answer of a form that is not known here") from None


def gb(size: float) -> str:
    """Return a number of bytes as GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
