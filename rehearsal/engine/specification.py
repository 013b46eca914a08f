"""What one rehearsal is to do, from `slipway rehearse` as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from slipway.places import FILES

TOOLS = FILES / ".rehearsal-tools"


@dataclasses.dataclass(frozen=True)
class Specification:
    """One rehearsal. `settings` is a copy of `original`.

    Paths are absolute; `work` is removed afterwards, `output` holds one folder per rehearsal.
    `began` is the moment, on this machine's monotonic clock in seconds, at which the user asked for it.
    `name` is the cluster's; `keep_hours` is how long it stays after the verdict.
    """

    settings: Path
    original: Path
    cloud_only: bool
    breaks: tuple[str, ...]
    port: int
    max_hosts: int
    output: Path
    as_json: bool
    work: Path
    began: float
    shell: bool = False
    name: str = ""
    keep_hours: float = 0.0

    @classmethod
    def from_json(cls, text: str) -> Specification:
        """Return the specification in `text`."""
        data = json.loads(text)
        paths = {name: Path(data[name]) for name in ("settings", "original", "output", "work")}
        return cls(**{**data, **paths, "breaks": tuple(data["breaks"])})
