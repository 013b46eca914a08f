"""Set up the process for CDK's library, which runs in Node through jsii. Import this module before `aws_cdk`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CACHE = "~/.cache/aws/jsii/package-cache"  # jsii's own default on Linux
CACHE_VARIABLES = ("JSII_RUNTIME_PACKAGE_CACHE", "JSII_RUNTIME_PACKAGE_CACHE_ROOT")


def prepare() -> None:
    """Do without jsii's cache if the home directory cannot be written, and without its banner about Node 20."""
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    if any(os.environ.get(name) for name in CACHE_VARIABLES):
        return
    folder = Path(CACHE).expanduser()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not _is_writable(existing):
        os.environ[CACHE_VARIABLES[0]] = "disabled"
        text = f"{existing} cannot be written: CDK unpacks its library each time, which is slower"
        print(f"app.py: {text}. Hint: set {CACHE_VARIABLES[1]} to a folder that can be written", file=sys.stderr)


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryDirectory(dir=folder):  # os.access does not know read-only file systems for root
            return True
    except OSError:
        return False


prepare()
