"""Releases of NCCL, its plugin and Libfabric that are known to be bad, compared with those that a log names."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from acceptance.limits.check import Check
from acceptance.nccl.model import Log

# The ranges of an entry, the name of each version in a log, and its name for readers.
RANGES = (
    ("nccl", "nccl", "NCCL"),
    ("plugin", "ofi_plugin", "aws-ofi-nccl"),
    ("libfabric", "libfabric", "Libfabric"),
)


@lru_cache(maxsize=1)
def _entries() -> list[dict[str, Any]]:
    data = json.loads(files("acceptance.limits").joinpath("bad_releases.json").read_text("utf-8"))
    entries: list[dict[str, Any]] = data["entries"]
    return entries


def bad_releases(instance_type: str, log: Log) -> list[Check]:
    """Return a warning for each release, or pair of releases, in the log that is known to be bad."""
    return [
        Check("software", "warn", _text(entry, log.versions))
        for entry in _entries()
        if instance_type in entry.get("instance_types", [instance_type])
        and all(_within(entry[key], log.versions.get(name)) for key, name, _ in RANGES if key in entry)
    ]


def _text(entry: dict[str, Any], versions: dict[str, str]) -> str:
    bad = " with ".join(f"{title} {versions[name].partition('+')[0]}" for key, name, title in RANGES if key in entry)
    source = f"repaired in {entry['fixed_in']}; {entry['source']}, {entry['date']}"
    return f"{bad} is known to be bad: {entry['symptom']}. Hint: {entry['repair']} ({source})"


def _within(bounds: list[str | None], version: str | None) -> bool:
    """Whether a version is in [first, last]; its length is that of the bound: 2.19 is in [null, 2.19] as 2.19.4 is."""
    numbers = _numbers(version or "")
    if not numbers:
        return False
    first, last = ((_numbers(bound) if bound else None) for bound in bounds)
    return (first is None or numbers >= first) and (last is None or numbers[: len(last)] <= last)


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: of `2.28.9+cuda13.0` 2, 28, 9. None of its parts has more than 9 digits."""
    form = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in form.group(1).split(".")) if form else ()
