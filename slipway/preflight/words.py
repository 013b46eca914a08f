"""Times, counts and commands in the words of an answer."""

from __future__ import annotations

import datetime


def moment(time: datetime.datetime) -> str:
    """``2026-12-05 11:30 UTC``"""
    return time.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def span(length: datetime.timedelta) -> str:
    """``6 d 21 h``, ``5 h 10 min``, ``55 min``: two units at most, rounded down."""
    minutes = max(0, int(length.total_seconds() // 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def listed(names: list[str], most: int = 3) -> str:
    """``a, b, c and 2 more``"""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
