"""A booted host with the bundle unpacked where load-bundle.sh puts it, to run steps one by one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .conftest import bundle_files, pack
from .host import Host


def install(host: Host, **files: bytes) -> None:
    """Unpack the bundle (``files`` replace parts of it: ``instances__json`` is instances.json) and write node.env."""
    content = bundle_files()
    content.update({name.replace("__", "."): (data, 0o644) for name, data in files.items()})
    script = "mkdir -p /opt/slipway/releases/test /etc/slipway && tar -xzf - -C /opt/slipway/releases/test && "
    script += (
        "ln -sfn /opt/slipway/releases/test /opt/slipway/current && cp /opt/slipway/current/node.env /etc/slipway/"
    )
    subprocess.run(host.command(script), input=pack(content), check=True, timeout=60)


def step(host: Host, name: str, *, before: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one step, such as ``compute/steps/10-fsx``, in a mount namespace of its own after the line ``before``."""
    path = Path("/opt/slipway/current", f"{name}.sh")
    return host.run(f"unshare --mount bash -c '{before or ':'} && exec {path}'", check=check)
