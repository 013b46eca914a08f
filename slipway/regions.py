"""Facts of AWS's regions, read from one data file (`data/regions.json`, with its sources)."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

REGIONS_FILE = Path(__file__).resolve().parent / "data/regions.json"


@lru_cache(maxsize=1)
def regions() -> dict[str, dict[str, Any]]:
    """Every AWS region: name, partition, letters of its zones, whether ParallelCluster lists it."""
    table: dict[str, dict[str, Any]] = json.loads(REGIONS_FILE.read_text(encoding="utf-8"))["regions"]
    return table


def partition(region: str) -> str:
    """The partition of a region: `aws`, `aws-cn`, `aws-us-gov` or an isolated one; `aws` for a new region."""
    return str(regions().get(region, {}).get("partition", "aws"))
