"""Prometheus' targets from Slurm's list of nodes: who is one, how soon, and what a silent Slurm changes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import ROOT
from .programs import load_program

PROGRAM = ROOT / "headnode/slurm-targets.py"
NODES = """\
train-st-gpu-1|10.0.0.11|train|idle|gpu:8
train-st-gpu-1|10.0.0.11|all|idle|gpu:8
train-st-gpu-2|10.0.0.12|train|down*|gpu:8
cpu-st-1||cpu|mixed|(null)
"""
# Prometheus hands new targets on every 5 s, twice: from discovery to the scrape manager, and from there to the scrapers
# (discovery/manager.go updatert, scrape/manager.go reloader; the same in 2.42 and 3.5).
PROMETHEUS_S = 5 + 5
SLACK_S = 2  # sinfo's answer, the rename, the scrape itself


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    return load_program(PROGRAM)


@pytest.mark.parametrize(
    ("state", "is_target"),
    [
        ("idle", True), ("allocated", True), ("mixed", True), ("drained", True), ("draining@", True), ("maint$", True),
        ("down", True), ("down*", True), ("idle*", True), ("reserved", True), ("inval", True), ("fail*", True),
        ("idle~", False), ("down~", False), ("drained~", False), ("idle%", False), ("idle#", False), ("mixed#", False),
        ("allocated!", False), ("POWERED_DOWN", False), ("powering_down", False), ("future", False),
    ],
)  # fmt: skip
def test_who_is_a_target(targets: ModuleType, state: str, is_target: bool) -> None:
    """One that is down by itself stays, so that an alert fires; one that was powered down, or is on its way, does not."""
    assert ("n" in targets.parse_nodes(f"n|10.0.0.1|q|{state}|gpu:8\n")) == is_target


def slurm(tmp_path: Path, listing: str) -> dict[str, str]:
    (tmp_path / "nodes").write_text(listing)
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\ncat '{tmp_path}/nodes'\n")
    sinfo.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def run(tmp_path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/python3", "-B", str(PROGRAM), "--output", str(tmp_path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_files(tmp_path: Path) -> None:
    assert run(tmp_path, slurm(tmp_path, NODES)).returncode == 0
    nodes = {group["labels"]["node"]: group for group in json.loads((tmp_path / "node.json").read_text())}
    assert nodes["train-st-gpu-1"] == {
        "targets": ["10.0.0.11:9100"],
        "labels": {"node": "train-st-gpu-1", "queue": "train"},
    }
    assert nodes["cpu-st-1"]["targets"] == ["cpu-st-1:9100"]
    assert nodes[os.uname().nodename]["targets"] == ["127.0.0.1:9100"]
    gpus = [group["targets"] for group in json.loads((tmp_path / "gpu.json").read_text())]
    assert gpus == [["10.0.0.11:9400"], ["10.0.0.12:9400"]]
    before = (tmp_path / "node.json").stat().st_mtime_ns
    run(tmp_path, slurm(tmp_path, NODES))
    assert (tmp_path / "node.json").stat().st_mtime_ns == before  # Prometheus has nothing to read again


@pytest.mark.parametrize("sinfo", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho two words\n"])
def test_old_targets_stay_when_slurm_does_not_answer(sinfo: str, tmp_path: Path) -> None:
    environment = slurm(tmp_path, NODES)
    run(tmp_path, environment)
    before = (tmp_path / "node.json").read_text()
    (tmp_path / "sinfo").write_text(sinfo)
    done = run(tmp_path, environment)
    assert done.returncode == 1
    assert "the old targets stay" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "node.json").read_text() == before


def test_it_goes_on_and_tells_each_fault_once(tmp_path: Path) -> None:
    environment = slurm(tmp_path, "broken\n")
    command = ["/usr/bin/python3", "-B", str(PROGRAM), "--output", str(tmp_path), "--every", "0.05"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, env=environment, stderr=said)
    try:
        # A second refresh reports nothing new; then Slurm answers.
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho asked >>'{tmp_path}/asked'\ncat '{tmp_path}/nodes'\n")
        wait(lambda: (tmp_path / "asked").exists() and (tmp_path / "asked").read_text().count("asked") >= 2)
        (tmp_path / "nodes").write_text(NODES)
        wait((tmp_path / "gpu.json").exists)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    assert (tmp_path / "said").read_text().count("Hint:") == 1


def wait(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_worst_case_of_all_intervals_is_within_the_bounds() -> None:
    """Up within 30 s of its node, gone within 60 s of its end: the sum of what each part may take."""
    unit = (ROOT / "headnode/units/slipway-slurm-targets.service").read_text()
    config = (ROOT / "templates/prometheus.yml.j2").read_text()
    every = re.search(r"--every (\d+)", unit)
    scrape = re.search(r"^  scrape_interval: (\d+)s", config, re.MULTILINE)
    assert every
    assert scrape
    gone = int(every[1]) + SLACK_S + PROMETHEUS_S
    up = gone + int(scrape[1])
    assert up <= 30
    assert gone <= 60
    told = (ROOT / "docs/metrics.md").read_text()
    assert f"up after at most {up} s" in told
    assert f"gone after at most {gone} s" in told
