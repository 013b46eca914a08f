"""A home directory that cannot be written stops neither `cdk synth` nor `cdk deploy`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "import os, slipway.jsii_environment as _; print(os.environ.get('JSII_RUNTIME_PACKAGE_CACHE'))"
READ_ONLY = "/proc"  # for root too


def run(home: str, **environment: str) -> subprocess.CompletedProcess[str]:
    names = ("JSII_RUNTIME_PACKAGE_CACHE", "JSII_RUNTIME_PACKAGE_CACHE_ROOT")
    inherited = {key: value for key, value in os.environ.items() if key not in names}
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(
        command, env={**inherited, "HOME": home, **environment}, capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("home", [READ_ONLY, f"{READ_ONLY}/missing/home"])
def test_a_read_only_home_is_reported_in_one_line_with_its_repair(home: str) -> None:
    done = run(home)
    assert done.stdout == "disabled\n"
    assert done.stderr.splitlines() == [
        "app.py: /proc cannot be written: CDK unpacks its library each time, which is slower."
        " Hint: set JSII_RUNTIME_PACKAGE_CACHE_ROOT to a folder that can be written"
    ]


def test_a_home_that_can_be_written_keeps_the_cache_and_is_left_as_it_is(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.stdout, done.stderr) == ("None\n", "")
    assert not list(tmp_path.iterdir())


def test_a_chosen_cache_is_kept(tmp_path: Path) -> None:
    done = run(READ_ONLY, JSII_RUNTIME_PACKAGE_CACHE_ROOT=str(tmp_path))
    assert (done.stdout, done.stderr) == ("None\n", "")
