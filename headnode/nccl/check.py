#!/usr/bin/env python3
"""Load an NCCL and its plugin as a program would, and say which versions came.

usage: check.py LIBNCCL WANTED_VERSION [PLUGIN_DIRECTORY]

Needs no GPU: NCCL loads the driver only when it is used. Prints one line for people and one line `glibc=2.N`, the
newest glibc that the libraries ask for (a container with an older one cannot load them). Exit 1 with one line that says
what did not load. Runs on Python 3.9 and newer.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

NEWEST_INTERFACE, OLDEST_INTERFACE = 20, 4  # of NCCL's network plugins: ncclNetPlugin_v4 (2020) and what may come
OLDEST_GLIBC = 17  # glibc 2.17 (2012): older than the C library of every image with CUDA
AWS_PLATFORM = b"p4d.24xlarge"  # named only in code that --enable-platform-aws adds (aws-ofi-nccl src/platform-aws)


class Unloadable(Exception):
    """A library that does not load or is not what was asked for; the text says which and why."""


def nccl_version(path: str) -> str:
    """Return the version that a libnccl says of itself, as 2.28.7. Raises Unloadable."""
    library = load(path)
    number = ctypes.c_int()
    if not hasattr(library, "ncclGetVersion") or library.ncclGetVersion(ctypes.byref(number)) != 0:
        raise Unloadable(f"{path}: ncclGetVersion does not answer")
    code = number.value
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def plugin_interface(path: str) -> int:
    """Return the newest of NCCL's plugin interfaces that a plugin has. Raises Unloadable."""
    library = load(path)
    for number in range(NEWEST_INTERFACE, OLDEST_INTERFACE - 1, -1):
        if hasattr(library, f"ncclNetPlugin_v{number}"):
            return number
    raise Unloadable(f"{path}: has no ncclNetPlugin_v{OLDEST_INTERFACE} or newer")


def load(path: str) -> ctypes.CDLL:
    """Load a shared library with all its symbols resolved now. Raises Unloadable."""
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise Unloadable(str(error)) from None


def newest_glibc(*paths: str) -> int:
    """Return the N of the newest symbol version GLIBC_2.N that the files name; not less than OLDEST_GLIBC."""
    found = (int(n) for path in paths for n in re.findall(rb"\0GLIBC_2\.(\d+)", Path(path).read_bytes()))
    return max((OLDEST_GLIBC, *found))


def report(nccl: str, wanted: str, directory: str | None) -> str:
    """Return the two lines. Raises Unloadable."""
    version = nccl_version(nccl)
    if version != wanted:
        raise Unloadable(f"{nccl}: is NCCL {version}, not {wanted}")
    if directory is None:
        return f"NCCL {version}\nglibc=2.{newest_glibc(nccl)}"
    plugin = next((str(path) for path in sorted(Path(directory).glob("libnccl-net*.so"))), None)
    if plugin is None:
        raise Unloadable(f"{directory}: holds no libnccl-net*.so")
    interface = plugin_interface(plugin)
    if AWS_PLATFORM not in Path(plugin).read_bytes():
        raise Unloadable(f"{plugin}: was built without --enable-platform-aws: it knows no instance type")
    return f"NCCL {version}, plugin {plugin} (interface v{interface})\nglibc=2.{newest_glibc(nccl, plugin)}"


def main(arguments: list[str]) -> int:
    """Print the report; 1 with one line on what did not load."""
    try:
        print(report(arguments[0], arguments[1], arguments[2] if len(arguments) > 2 else None))
    except Unloadable as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
