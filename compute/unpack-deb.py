#!/usr/bin/python3
"""Unpack the files of Debian packages without dpkg, which Amazon Linux does not have.

Usage: `unpack-deb.py DIRECTORY PACKAGE ...`. A package is an ar archive (deb(5)); its member `data.tar.xz` or
`data.tar.gz` has the files. Exit 0; 1 with the package and the reason. Runs on the nodes: Python 3.9, standard library.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"!<arch>\n"
HEADER = 60  # bytes: name 16, time 12, owner 6, group 6, mode 8, size 10, end 2


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each member of an ar archive. Raises ValueError if it is not one."""
    if not archive.startswith(MAGIC):
        raise ValueError("it is not a Debian package")
    place = len(MAGIC)
    while place + HEADER <= len(archive):
        name = archive[place : place + 16].decode().strip().rstrip("/")
        size = int(archive[place + 48 : place + 58])
        place += HEADER
        yield name, archive[place : place + size]
        place += size + size % 2  # members begin at even positions


def unpack(package: Path, directory: Path) -> None:
    """Put the package's files below `directory`. Raises ValueError, OSError or tarfile.TarError."""
    for name, content in members(package.read_bytes()):
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as files:
                files.extractall(directory)  # noqa: S202  # the package's checksum was compared
            return
    raise ValueError("it has no member data.tar")


def main(arguments: list[str]) -> int:
    """Unpack all packages; return the exit code."""
    for package in arguments[1:]:
        try:
            unpack(Path(package), Path(arguments[0]))
        except (ValueError, OSError, tarfile.TarError) as error:
            print(f"slipway: {package}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
