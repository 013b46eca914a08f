"""Versions of what a node has from its image: kernel, GPU driver, EFA, NCCL's plugin. Reads files only."""

from __future__ import annotations

import os
import re
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")
EFA = Path("/opt/amazon/efa_installed_packages")
_DRIVER = re.compile(r"(?:x86_64|Module)\s+(\d+(?:\.\d+)+)")
_EFA = re.compile(r"EFA installer version: (\S+)")
_PLUGIN = re.compile(r"libnccl-ofi\S*?[_-](\d+(?:\.\d+)+)")


def versions(driver: Path = DRIVER, efa: Path = EFA) -> dict[str, str]:
    """Return name -> version; a name is left out where the node does not have it."""
    installed = _text(efa)
    found = {
        "driver": _DRIVER.search(_text(driver)),
        "EFA": _EFA.search(installed),
        "NCCL plugin": _PLUGIN.search(installed),
    }
    return {"kernel": os.uname().release, **{name: match[1] for name, match in found.items() if match}}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
