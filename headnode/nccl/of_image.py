#!/usr/bin/python3 -B
"""Prints the directory of the image's own nccl-tests, nothing when it has none."""

from __future__ import annotations

import os
from pathlib import Path

OF_IMAGE = (
    "opt/nccl-tests/build",
    "opt/nccl-tests",
    "opt/amazon/nccl-tests/build",
    "usr/local/nccl-tests/build",
    "usr/local/cuda-*/efa/test-cuda-*",
)


def of_image() -> str:
    """Return the directory of the image's own nccl-tests. A link is Slipway's own, to the shared build."""
    places = (place for pattern in OF_IMAGE for place in sorted(Path("/").glob(pattern)))
    return next((str(place) for place in places if not place.is_symlink() and runs(place)), "")


def runs(directory: Path) -> bool:
    """Return whether the directory holds an all_reduce_perf that can be run."""
    return os.access(directory / "all_reduce_perf", os.X_OK)


if __name__ == "__main__":
    print(of_image())
