"""Time limits as CloudAI's files write them, in seconds, and as sbatch takes them."""

from __future__ import annotations

import re
from typing import Any

from acceptance.cloudai.forms import INVALID
from acceptance.cloudai.remarks import Spot

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
TIME_RULE = "must be a time limit: HH:MM:SS, D-HH:MM:SS, or a number with s, m, h, d or w"
_LONGEST = 10 * 365 * 86_400  # seconds


def seconds_of(text: str) -> int | None:
    """Return a time limit in seconds; None if it is not one. `A:B` is hours:minutes, as CloudAI reads it.

    Slurm's own forms with days (`D-HH`, `D-HH:MM`) and a plain number of minutes are taken as Slurm takes them.
    """
    text = text.strip()
    match = re.fullmatch(r"(\d{1,7})([smhdw]?)", text, re.IGNORECASE)
    if match:
        seconds = int(match[1]) * _UNITS[match[2].lower() or "m"]
    else:
        match = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,5})(?::(\d{1,5}))?(?::(\d{1,5}))?", text)
        if match is None:
            return None
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = days * 86_400 + hours * 3600 + minutes * 60 + rest
    return seconds if 0 < seconds <= _LONGEST else None


def slurm_time(seconds: int) -> str:
    """Return seconds as sbatch takes them: `20 minutes` is 00:20:00, 25 hours are 1-01:00:00."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def time_limit_form(value: Any, spot: Spot) -> Any:
    """The form of a time limit; its value is in seconds."""
    seconds = seconds_of(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if seconds is None:
        spot.error(value, TIME_RULE, 'write "00:20:00" for 20 minutes')
        return INVALID
    written = str(value).strip()
    if re.fullmatch(r"\d+:\d+", written):
        minutes, rest = written.split(":")
        slurm = slurm_time(max(1, int(minutes) * 60 + int(rest)))
        rule = f"is read as hours:minutes ({slurm_time(seconds)}), as CloudAI does; sbatch would read {slurm}"
        spot.warn(value, rule, f'write "{slurm_time(seconds)}"')
    elif re.fullmatch(r"\d+|\d+-\d+(:\d+)?", written):
        spot.warn(value, "is read as Slurm reads it; CloudAI refuses this form", f'write "{slurm_time(seconds)}"')
    return seconds
