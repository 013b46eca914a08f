"""`cdk synth` on a machine like AWS CloudShell, the first time after the set-up: 1 GB of memory, an empty home.

The limit is a control group's. What exceeds it is killed by the kernel, and the synthesis fails.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stacks.assembly import ROOT

CONTROL_GROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 10**9
CDK = ROOT / "node_modules/.bin/cdk"
TIMEOUT_S = 240

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup"),
]


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with the limit."""
    version_1 = CONTROL_GROUPS / "memory"
    parent = version_1 if version_1.is_dir() else CONTROL_GROUPS
    made = parent / f"slipway-cloudshell-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield made
    deadline = time.monotonic() + 30
    while made.is_dir():  # the CDK CLI leaves processes that end a moment later
        with contextlib.suppress(OSError):
            made.rmdir()
        assert time.monotonic() < deadline, (made / "cgroup.procs").read_text()
        time.sleep(0.1)


def test_the_first_synthesis_fits_one_gigabyte(group: Path, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    done = subprocess.run(
        ["bash", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group), str(CDK), "synth", "--quiet",
         "-c", "settings=clusters/rehearsal.yaml", "--output", str(out)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(out.glob("*.template.json"))) == 5
    kept = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    assert kept < 10 * 2**20, f"{kept >> 20} MiB in the home, of 1 GB"
