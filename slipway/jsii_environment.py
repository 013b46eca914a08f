"""Set up the process for CDK's library, which runs in Node through jsii. Import this module before `aws_cdk`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from slipway.errors import EXIT_ENVIRONMENT

ENOUGH_BYTES = 3 * 2**30
LIBRARY_MB = 210  # of CDK's library, unpacked: aws-cdk-lib 2.275.0
CACHE = "~/.cache/aws/jsii/package-cache"  # jsii's own default on Linux
NODE = Path(__file__).with_name("jsii-node.sh")
CACHE_VARIABLES = ("JSII_RUNTIME_PACKAGE_CACHE", "JSII_RUNTIME_PACKAGE_CACHE_ROOT")


def prepare() -> None:
    """Do without jsii's cache of CDK's library if the home has no place for it, and without its banner about Node 20.

    With little memory, as in AWS CloudShell (2 GiB), do without CDK's own validation of the templates: it alone takes
    400 MB. CloudFormation validates what is deployed, and `make check-cloud` validates the templates elsewhere. Do
    without the cache too: filling it takes 1.5 GB of memory and 210 MB of the home; /tmp is not in CloudShell's home.
    The library's Node then has a heap of 512 MB at most: deployments of the examples need less than 300 MB.
    Ends the program if the library can be unpacked nowhere.
    """
    has_little_memory = memory_bytes() < ENOUGH_BYTES
    if has_little_memory:
        os.environ.setdefault("CDK_VALIDATION", "false")
        if os.access(NODE, os.X_OK):
            os.environ.setdefault("JSII_NODE", str(NODE))
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    if any(os.environ.get(name) for name in CACHE_VARIABLES):
        return
    fault = None if has_little_memory else _fault_of(Path(CACHE).expanduser())
    if not (has_little_memory or fault):
        return
    os.environ[CACHE_VARIABLES[0]] = "disabled"
    if fault:
        text = f"{fault}: CDK unpacks its library each time, which is slower"
        print(f"app.py: {text}. Hint: set {CACHE_VARIABLES[1]} to a folder that can be written", file=sys.stderr)
    temporary = _room_fault(Path(os.environ.get("TMPDIR") or tempfile.gettempdir()))  # Node knows no other folder
    if temporary:
        print(f"app.py: {temporary}. Hint: set TMPDIR to a folder with room, or free some", file=sys.stderr)
        sys.exit(EXIT_ENVIRONMENT)


def _fault_of(cache: Path) -> str | None:
    """Return why CDK's library cannot be unpacked in jsii's cache; None if it can, or is there already."""
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    if not _is_writable(existing):
        return f"{existing} cannot be written"
    return None if (cache / "aws-cdk-lib" / version("aws-cdk-lib")).is_dir() else _room_fault(existing)


def _room_fault(folder: Path) -> str | None:
    try:
        free = shutil.disk_usage(folder).free // 10**6
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None if free >= LIBRARY_MB else f"{folder} has {free} MB free, CDK's library takes {LIBRARY_MB} MB"


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or less in a control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError):  # macOS has no /proc
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            mounted = Path("/sys/fs/cgroup", controllers)
            files = [mounted / path.lstrip("/") / name for name in ("memory.max", "memory.limit_in_bytes")]
            texts = [file.read_text(encoding="utf-8").strip() for file in files if file.is_file()]
            limits += [int(text) for text in texts if text.isdigit()]
    return min(limits)


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryDirectory(dir=folder):  # os.access does not know read-only file systems for root
            return True
    except OSError:
        return False


prepare()
