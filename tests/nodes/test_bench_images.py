"""The benchmark of the imports touches nothing of the machine it runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.hosts
# What an import by root writes, and what it sees of states that the machine has itself.
SCRIPT = f"""
import os, pathlib, subprocess, sys
from bench.bootstrap import images
images._own_places(pathlib.Path(sys.argv[1]))
print(os.listdir("/var/lib/slipway"), os.listdir("/var/log/slipway"))
script = "source {ROOT}/nodes/lib/all.sh && background::status containers failed of-the-bench /x"
subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL)
print(os.listdir("/var/lib/slipway"), os.listdir("/var/log/slipway"), os.path.isdir("/var/lib/dpkg"))
"""


def listing(place: str) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in Path(place).rglob("*")}


def test_states_and_logs_of_the_machine_are_left_alone(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    places = ("/var/lib/slipway", "/var/log/slipway")
    before = [listing(place) for place in places]
    argv = ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[] []\n['background'] ['setup.log'] True\n"
    assert [listing(place) for place in places] == before
