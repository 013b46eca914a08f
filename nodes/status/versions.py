"""Versions of what a node has: kernel, GPU driver, EFA, NCCL's plugin and NCCL. Reads files only."""

from __future__ import annotations

import os
import re
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")
EFA = Path("/opt/amazon/efa_installed_packages")
PROFILE = Path("/etc/profile.d/nccl-shared.sh")  # compute/steps/30-nccl.sh: shells and jobs take the shared NCCL
# Where the NCCL of an image or of a package of NVIDIA is, in the order of the loader.
LIBRARIES = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
)
SHARED = "shared"  # the shared file system has the version, the same for all nodes: it is added by `with_shared_nccl`
_DRIVER = re.compile(r"(?:x86_64|Module)\s+(\d+(?:\.\d+)+)")
_EFA = re.compile(r"EFA installer version: (\S+)")
_PLUGIN = re.compile(r"libnccl-ofi\S*?[_-](\d+(?:\.\d+)+)")
_LIBRARY = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)")
_RELEASE = re.compile(r"(\d+\.\d+\.\d+-\d+)_(\d+\.\d+\.\d+)")  # headnode/nccl/releases.sh: versions/NCCL_OFI


def versions(driver: Path = DRIVER, efa: Path = EFA, root: Path = Path("/")) -> dict[str, str]:
    """Return name -> version; a name is left out where the node does not have it."""
    installed = _text(efa)
    found = {
        "driver": _DRIVER.search(_text(driver)),
        "EFA": _EFA.search(installed),
        "NCCL plugin": _PLUGIN.search(installed),
    }
    nccl = _nccl(root)
    return {
        "kernel": os.uname().release,
        **{name: match[1] for name, match in found.items() if match},
        **({"NCCL": nccl} if nccl else {}),
    }


def _nccl(root: Path) -> str:
    """What a job without a container loads: the shared NCCL, the image's with its version, or none."""
    if (root / PROFILE.relative_to("/")).exists():
        return SHARED
    for directory in LIBRARIES:
        for path in sorted((root / directory.lstrip("/")).glob("libnccl.so.2.*")):
            if match := _LIBRARY.fullmatch(path.name):
                return f"{match[1]} (image)"
    return ""


def shared_nccl(fsx: Path) -> str:
    """Return the version on the shared file system that is in use, with its plugin; empty when no version is in use."""
    try:
        release = (fsx / "nccl/current").readlink().name
    except OSError:
        return ""
    match = _RELEASE.match(release)
    return f"{match[1]} with the plugin {match[2]}" if match else release


def with_shared_nccl(found: dict[str, str], version: str) -> dict[str, str]:
    """Return a node's versions with the shared NCCL's own."""
    if found.get("NCCL") != SHARED:
        return found
    return {**found, "NCCL": f"{version or 'not built yet'} ({SHARED})"}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
