"""The kernel's RDMA devices. For the metrics and for the health checks, so that both count the same ones.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

from pathlib import Path


def efa_devices(sysfs: Path) -> list[Path]:
    """Directories of the devices below `sysfs` (such as /sys) that the driver efa has, by name."""
    return [device for device in sorted((sysfs / "class/infiniband").glob("*")) if _driver(device) == "efa"]


def _driver(device: Path) -> str:
    """Return the driver, as in the kernel's uevent; empty for a device without one, or just removed."""
    try:
        lines = (device / "device/uevent").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in lines if line.startswith("DRIVER=")), "")
