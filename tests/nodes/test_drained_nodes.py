"""headnode/drained-nodes.py against the configuration that ParallelCluster's cookbook writes."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

# The form of parallelcluster_clustermgtd.conf.erb of aws-parallelcluster-cookbook (2024-10-21).
CONF = """[clustermgtd]
cluster_name = p5
region = us-east-1
node_replacement_timeout = 1800
insufficient_capacity_timeout = 600
"""


def run(path: Path, word: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(ROOT / "headnode/drained-nodes.py"), str(path), word]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def terminates(path: Path) -> bool:
    """What clustermgtd reads, with its own default."""
    parser = configparser.ConfigParser()
    parser.read(path)
    return parser.getboolean("clustermgtd", "terminate_drain_nodes", fallback=True)


@pytest.mark.parametrize(
    "before", [CONF, CONF + "terminate_drain_nodes = true\n", CONF + "terminate_drain_nodes=false\n"]
)
def test_the_file_says_what_the_settings_say_and_keeps_the_rest(tmp_path: Path, before: str) -> None:
    path = tmp_path / "clustermgtd.conf"
    path.write_text(before)
    path.chmod(0o644)
    for word in ("false", "false", "true"):
        assert run(path, word).returncode == 0
        assert terminates(path) is (word == "true")
    assert path.read_text() == CONF
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("text", "said"), [(None, "No such file"), ("[other]\n", "there is no section [clustermgtd]")])
def test_a_cluster_without_clustermgtd_is_reported_only_when_it_matters(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "clustermgtd.conf"
    if text is not None:
        path.write_text(text)
    assert run(path, "true").returncode == 0
    done = run(path, "false")
    assert done.returncode == 1
    assert said in done.stdout
    assert "slipway-hint: write terminate_drain_nodes = false" in done.stdout
