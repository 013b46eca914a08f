"""A home that cannot be written, and little memory, stop neither `cdk synth` nor `cdk deploy`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from slipway import jsii_environment

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


@pytest.mark.parametrize("free", [0, 209])
def test_a_full_home_is_reported_in_one_line_with_its_repair(
    free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    rooms = {home: free * 10**6, temporary: 400 * 10**6}
    for name in (*jsii_environment.CACHE_VARIABLES, "CDK_VALIDATION"):
        monkeypatch.setenv(name, "")  # so that what prepare sets is undone
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(jsii_environment, "memory_bytes", lambda: 2**33)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=rooms[folder]))
    fault = f"app.py: {home} has {free} MB free, CDK's library takes 210 MB: CDK unpacks its library each time"
    jsii_environment.prepare()
    assert os.environ["JSII_RUNTIME_PACKAGE_CACHE"] == "disabled"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{fault}, which is slower. Hint: set JSII_RUNTIME_PACKAGE_CACHE_ROOT")

    monkeypatch.setenv("JSII_RUNTIME_PACKAGE_CACHE", "")
    rooms[temporary] = 12 * 10**6
    with pytest.raises(SystemExit) as ended:
        jsii_environment.prepare()
    assert ended.value.code == 3
    assert capsys.readouterr().err.splitlines()[1] == (
        f"app.py: {temporary} has 12 MB free, CDK's library takes 210 MB. Hint: set TMPDIR to a folder with room,"
        " or free some"
    )

    monkeypatch.setenv("JSII_RUNTIME_PACKAGE_CACHE", "")
    (home / ".cache/aws/jsii/package-cache/aws-cdk-lib" / version("aws-cdk-lib")).mkdir(parents=True)
    jsii_environment.prepare()  # the library is there already
    assert os.environ["JSII_RUNTIME_PACKAGE_CACHE"] == ""


def test_a_home_that_can_be_written_keeps_the_cache_and_is_left_as_it_is(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.stdout, done.stderr) == ("None\n", "")
    assert not list(tmp_path.iterdir())


def test_a_chosen_cache_is_kept(tmp_path: Path) -> None:
    done = run(READ_ONLY, JSII_RUNTIME_PACKAGE_CACHE_ROOT=str(tmp_path))
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.parametrize(
    ("mib", "cache", "validation", "node"),
    [(2048, "disabled", "false", str(jsii_environment.NODE)), (8192, None, None, None)],
)
def test_little_memory_does_without_cache_and_validation_and_with_a_small_heap(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mib: int,
    cache: str | None,
    validation: str | None,
    node: str | None,
) -> None:
    for name in ("JSII_RUNTIME_PACKAGE_CACHE", "JSII_RUNTIME_PACKAGE_CACHE_ROOT", "CDK_VALIDATION", "JSII_NODE"):
        monkeypatch.setenv(name, "")  # so that what prepare sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jsii_environment, "memory_bytes", lambda: mib * 2**20)
    jsii_environment.prepare()
    assert os.environ.get("JSII_RUNTIME_PACKAGE_CACHE") == cache
    assert os.environ.get("CDK_VALIDATION") == validation
    assert os.environ.get("JSII_NODE") == node


def test_the_heap_of_jsiis_node_is_bounded() -> None:
    show = "console.log(require('v8').getHeapStatistics().heap_size_limit >> 20)"
    command = [str(jsii_environment.NODE), "--max-old-space-size=4069", "--eval", show]
    limit_mib = int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert 512 <= limit_mib < 700  # the young generation comes on top
