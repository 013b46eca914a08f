"""`slipway rehearse` before anything starts: what is wrong with the use or the machine is one clear line each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway import rehearse as module
from slipway.rehearse import Rehearsal, missing_parts

REPOSITORY = Path(__file__).resolve().parents[2]
SLIPWAY = Path(sys.executable).parent / "slipway"


def rehearse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(SLIPWAY), "rehearse", "clusters/rehearsal.yaml", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = rehearse("--cloud-only", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        2,
        f"--port {port}: Address already in use. Hint: another port, or 0 for a free one\n",
    )


def test_temporary_folder_that_is_not_there() -> None:
    done = rehearse("--cloud-only", TMPDIR="/nowhere")
    assert (done.returncode, done.stderr) == (
        3,
        "TMPDIR=/nowhere: is no folder that can be written to. Hint: another TMPDIR, or none\n",
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "small", str(place)], check=True, timeout=20)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=20)


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_full_temporary_folder(small_disk: Path) -> None:
    done = rehearse("--cloud-only", TMPDIR=str(small_disk))
    assert done.returncode == 3
    assert f"{small_disk}: 10 MB free, the rehearsal needs 300. Hint: make room, or set TMPDIR" in done.stderr
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("slow-nod=gpu-3", "Did you mean slow-node?"),
        ("slow-node=gpu-9", "no such node. Nodes: train-st-gpu-1"),
        ("bootstrap=login", "bootstrap takes head or compute, not login"),
        ("hang=1", "hang takes no value"),
    ],
)
@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="local hosts need root")
def test_fault_that_does_not_exist(fault: str, words: str, tmp_path: Path) -> None:
    done = rehearse("--break", fault, "--output", str(tmp_path))
    assert done.returncode == 2
    assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = Rehearsal(tmp_path / "x.yaml", False, (), 0, 8, tmp_path, False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told = missing_parts(options)
    assert any("local hosts need root" in line and "--cloud-only" in line for line in told)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(module, "SYSTEM_PATH", "/nowhere")
    assert any("commands are missing: unshare, nsenter" in line for line in missing_parts(options))
