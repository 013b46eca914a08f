"""rehearsal/engine/update.py: what an update of the rehearsal's cluster takes, by ParallelCluster's own classes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud_errors import ResourceFailed
from rehearsal.engine.update import update
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-pcluster/bin/python"
SCRIPT = b"#!/bin/sh\nexit 0\n"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-pcluster (make setup-rehearsal)")


def configuration(sha256: str = "0" * 64) -> dict[str, Any]:
    settings = load_settings(ROOT / "clusters/rehearsal.yaml")
    return cluster_configuration(settings, dataclasses.replace(placeholder_facts(settings), bundle_sha256=sha256))


class Recorder:
    """Takes the place of a booted host and of S3: remembers what would be run on the head node."""

    name = "head"

    def __init__(self) -> None:
        self.ran: list[list[str]] = []

    def put(self, _path: str, content: bytes, _mode: int) -> None:
        assert content == SCRIPT

    def stream(self, argv: list[str], _take: Any, **_: Any) -> Any:
        self.ran.append(argv)
        return type("Done", (), {"ok": True})()

    def get_object(self, **_: Any) -> dict[str, Any]:
        return {"Body": type("Body", (), {"read": staticmethod(lambda: SCRIPT)})()}


def run(new: dict[str, Any], host: Any = None) -> list[str]:
    recorder = host or Recorder()
    changes = update(configuration(), new, recorder, recorder, print, python=PYTHON, timeout_s=10)
    return [change.name for change in changes]


def test_another_bundle_runs_on_node_updated_on_the_head_node() -> None:
    host = Recorder()
    assert run(configuration("1" * 64), host) == ["HeadNode.CustomActions.OnNodeUpdated.Args"]
    ((_, *arguments),) = host.ran
    assert arguments[:4] == ["head", "us-east-1", "/slipway/rehearsal/bundle", "1" * 64]


def test_an_update_taken_back_that_changed_nothing_runs_nothing() -> None:
    host = Recorder()
    assert run(configuration(), host) == []
    assert host.ran == []


def bigger_head(wanted: dict[str, Any]) -> None:
    wanted["HeadNode"]["InstanceType"] = "m5.16xlarge"


def more_queues(wanted: dict[str, Any]) -> None:
    queue = copy.deepcopy(wanted["Scheduling"]["SlurmQueues"][0])
    wanted["Scheduling"]["SlurmQueues"].append({**queue, "Name": "more"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (bigger_head, "ParallelCluster refuses the update: HeadNode.InstanceType: Update actions are not currently"),
        (more_queues, "the rehearsal takes no update of Scheduling.SlurmQueues: run it anew"),
    ],
)
def test_what_is_not_taken_is_named_and_nothing_runs(change: Callable[[dict[str, Any]], None], said: str) -> None:
    host, wanted = Recorder(), configuration("1" * 64)
    change(wanted)
    with pytest.raises(ResourceFailed, match=said):
        run(wanted, host)
    assert host.ran == []
