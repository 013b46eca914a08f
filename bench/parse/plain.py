"""The straightforward reader that the parser is compared with: line by line, one regular expression for each fact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

NUMBER = r"(-?(?:nan|inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?))"
SIDE = rf"\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s+(\S+)"
ROW = re.compile(rf"\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+){SIDE}{SIDE}\s*$")
DEVICE = re.compile(r"#\s+Rank\s+(\d+).* on\s+(\S+) device\s+(\d+) \[([^\]]+)\] (.*)")
AVERAGE = re.compile(r"# Avg bus bandwidth\s+: (\S+)")
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\w+).*found (\d+) nics")
NETWORK = re.compile(r"NCCL INFO Using network (.*)")
VERSION = re.compile(r"NCCL version (\S+)|aws-ofi-nccl (\d\S+)|Libfabric version (\S+)")
RANKS = re.compile(r"n[Rr]anks (\d+)")
FAILURE = re.compile(r"Test (?:NCCL|CUDA) failure|Test timeout|srun: error|DUE TO TIME LIMIT|NODE FAILURE")


def read(path: Path) -> dict[str, Any]:
    """Read a log."""
    found: dict[str, Any] = {
        "bytes": 0,
        "tables": 0,
        "rows": [],
        "devices": [],
        "failures": [],
        "hosts": {},
        "ranks": 0,
    }
    versions = set()
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            found["bytes"] += len(line)
            if row := ROW.match(line):
                found["rows"].append((int(row[1]), int(row[2]), row[3], *map(float, row.groups()[5:8])))
            if device := DEVICE.search(line):
                found["devices"].append(device.groups())
            if AVERAGE.search(line):
                found["tables"] += 1
            if provider := PROVIDER.search(line):
                found["hosts"][line.split(":", 1)[0]] = (provider[1], int(provider[2]))
            if network := NETWORK.search(line):
                versions.add(network[1])
            if version := VERSION.search(line):
                versions.add(version.group())
            if ranks := RANKS.search(line):
                found["ranks"] = max(found["ranks"], int(ranks[1]))
            if FAILURE.search(line):
                found["failures"].append(line)
    return found
