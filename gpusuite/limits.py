"""The expected figures of GPU models, from limits.json: each with source and date."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "limits.json"


@dataclass(frozen=True)
class Limit:
    """The bounds of one metric of one GPU model. typical: what healthy cards reached, by `source`."""

    gpu: str
    metric: str
    unit: str
    typical: float
    fail_below: float
    warn_below: float
    source: str

    def outcome(self, value: float) -> str:
        """Return pass, warn or fail for a measured value; a value that is not a number fails."""
        if not value >= self.fail_below:
            return "fail"
        return "pass" if value >= self.warn_below else "warn"

    def __str__(self) -> str:
        bounds = f"fail below {self.fail_below:.4g}, warn below {self.warn_below:.4g}"
        return f"{self.typical:.4g} ({bounds} {self.unit}; {self.gpu}: {self.source})"


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def model_of(name: str) -> str | None:
    """Return the model in limits.json of a GPU's name, such as `NVIDIA H100 80GB HBM3`; None for an unknown one.

    The patterns are exact about the form: PCIe cards and the NVL and MIG forms are slower, and have no limits.
    """
    for model in _data()["models"]:
        if re.fullmatch(model["pattern"], name.strip()):
            return str(model["name"])
    return None


@lru_cache(maxsize=1)
def known_limits() -> tuple[Limit, ...]:
    """The limits of the data file, with their bounds: shares of the typical figure by kind of metric."""
    data = _data()
    limits = []
    for entry in data["limits"]:
        shares = data["shares"][entry["metric"].partition(" ")[0]]
        sources = [data["sources"][name] for name in entry["sources"]]
        limits.append(
            Limit(
                gpu=entry["gpu"],
                metric=entry["metric"],
                unit=entry["unit"],
                typical=float(entry["typical"]),
                fail_below=entry.get("fail_below", round(entry["typical"] * shares["fail"], 3)),
                warn_below=entry.get("warn_below", round(entry["typical"] * shares["warn"], 3)),
                source="; ".join(f"{one['where']}, {one['date']}" for one in sources),
            )
        )
    return tuple(limits)


def find_limit(gpu_name: str, metric: str) -> Limit | None:
    """Return the limit of a metric for a GPU by its name; None if none is known."""
    model = model_of(gpu_name)
    return next((one for one in known_limits() if (one.gpu, one.metric) == (model, metric)), None)
