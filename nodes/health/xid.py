"""The driver's error numbers in the kernel log: Xid (GPU) and SXid (NVSwitch)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nodes.health import smi

TABLE = Path(__file__).with_name("xids.json")
_EVENT = r"\((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+),?\s*(?P<text>.*)"
_KERNEL = r"(?P<time>\d+\.\d+) \S+ kernel: "  # nothing but the kernel's own lines, from their start
LINE = re.compile(f"{_KERNEL}NVRM: Xid {_EVENT}")
SWITCH = re.compile(rf"{_KERNEL}nvidia-nvswitch\d*: SXid {_EVENT}")
NONFATAL = re.compile(r"non-?\s?fatal", re.I)
FATAL = re.compile(r"\bfatal\b", re.I)
NO_ACTION = re.compile(r"\bto\s+0x0+\b|\(None\)\s*$", re.I)
TEXT_LIMIT = 120


@dataclasses.dataclass(frozen=True)
class Event:
    """One line of the kernel log. time: seconds since 1970, as journalctl printed it."""

    time: str
    kind: str
    bus: str
    code: int
    text: str

    @property
    def key(self) -> str:
        """The identity of the event."""
        return f"{self.kind} {self.code} {self.bus} {self.time}"


def events(log: str) -> list[Event]:
    """The events of `journalctl --output=short-unix` lines, in their order."""
    found = []
    for line in log.splitlines():
        for kind, pattern in (("Xid", LINE), ("SXid", SWITCH)):
            match = pattern.match(line)
            if match:
                text = match["text"].strip()[:TEXT_LIMIT]
                found.append(Event(match["time"], kind, smi.bus(match["bus"]), int(match["code"]), text))
    return found


def table() -> Mapping[str, Mapping[str, str]]:
    """Number -> class, what, action."""
    loaded: Mapping[str, Mapping[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))["xids"]
    return loaded


def severity(event: Event, known: Mapping[str, Mapping[str, str]]) -> str:
    """Return `fatal`, `watch` or `application`. An unknown number is watched."""
    if event.kind == "SXid":
        return "fatal" if FATAL.search(NONFATAL.sub("", event.text)) else "watch"
    kind = known.get(str(event.code), {}).get("class", "watch")
    if kind == "flagged":  # NVLink 5: the message itself says it
        return "fatal" if FATAL.search(NONFATAL.sub("", event.text)) else "watch"
    if kind == "recovery":  # Xid 154: from one action to another; None is good news
        return "watch" if NO_ACTION.search(event.text) else "fatal"
    return kind


def describe(event: Event, known: Mapping[str, Mapping[str, str]]) -> str:
    """`Xid 79: the GPU has fallen off the bus`; the log's own words for what is not in the table."""
    what = known.get(str(event.code), {}).get("what", "") if event.kind == "Xid" else ""
    if event.code == 154 or not what:
        what = event.text or "no text"
    return f"{event.kind} {event.code}: {what}"


def merge(old: Iterable[Event], new: Iterable[Event], limit: int = 200) -> list[Event]:
    """Both, each event once, the newest `limit` ones."""
    every = {event.key: event for event in (*old, *new)}
    return list(every.values())[-limit:]
