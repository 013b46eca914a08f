"""Nodes that come and go, in one rehearsal: users' workflows with NCCL, jobs, idle nodes, and what goes wrong with them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rehearsal.engine.specification import Specification

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside_dynamic.py")
SETTINGS = Path(__file__).with_name("comes-and-goes.yaml")
UNSHARE = [
    *("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"),
    *("--propagation", "private"),
]
LIMIT_S = 600
FIRST, SECOND, SPARE = "train-dy-gpu-1", "train-dy-gpu-2", "spare-dy-gpu-1"

pytestmark = [
    pytest.mark.road,
    pytest.mark.timeout(700),
    pytest.mark.slow,
    pytest.mark.hosts,
    pytest.mark.skipif(os.geteuid() != 0, reason="local hosts need root"),
]


@dataclasses.dataclass(frozen=True)
class Rehearsed:
    """What one rehearsal came to: exit code, output, what was seen inside, its folder."""

    code: int
    output: str
    saw: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    place = tmp_path_factory.mktemp("dynamic")
    answer, work = place / "answer.json", place / "work"
    for folder in (work, work / "home", work / "tmp"):
        folder.mkdir()
    spec = Specification(
        settings=SETTINGS,
        original=SETTINGS,
        cloud_only=False,
        breaks=("bootstrap=compute",),
        port=0,
        max_hosts=2,
        output=place / "out",
        as_json=False,
        work=work,
        began=time.monotonic(),
    )
    text = json.dumps(dataclasses.asdict(spec), default=str)
    env = {**os.environ, "HOME": str(work / "home"), "TMPDIR": str(work / "tmp"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*UNSHARE, sys.executable, str(INSIDE), text, str(answer)],
        env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "[RESULT] " in done.stdout, done.stdout[-5000:]
    (folder,) = (place / "out").iterdir()
    return Rehearsed(done.returncode, done.stdout, json.loads(answer.read_text(encoding="utf-8")), folder)


def said(rehearsed: Rehearsed, name: str) -> str:
    """What a command printed that must have ended well."""
    code, text = rehearsed.saw[name]
    assert code == 0, (name, text, rehearsed.output[-5000:])
    return str(text)


def test_no_node_runs_before_a_job_needs_one(rehearsed: Rehearsed) -> None:
    assert sorted(said(rehearsed, "at first").splitlines()) == [f"{SPARE} idle~", f"{FIRST} idle~", f"{SECOND} idle~"]
    assert "0 nodes idle, 3 powered down until a job needs them" in rehearsed.output


def test_a_job_starts_one_node_on_one_instance(rehearsed: Rehearsed) -> None:
    said(rehearsed, "hold")
    assert rehearsed.saw["instances"] == {FIRST: "running"}


def test_nccl_applied_to_a_node_that_ran_before(rehearsed: Rehearsed) -> None:
    code, text = rehearsed.saw["before"]
    assert code != 0, "there was no NCCL when the node started"
    assert "No such file" in text
    assert "v2.28.7-1 is in use" in said(rehearsed, "install")
    assert f"ok      {FIRST}: by a job" in said(rehearsed, "apply")
    assert said(rehearsed, "after apply") == "v2.28.7-1"


def test_an_idle_node_goes_and_leaves_nothing(rehearsed: Rehearsed) -> None:
    assert rehearsed.saw["instances when idle"] == {FIRST: "terminated"}
    assert rehearsed.saw["left of the node"] == []
    assert f"{FIRST}: powered down" in rehearsed.output


def test_targets_come_and_go_with_the_node(rehearsed: Rehearsed) -> None:
    """Within the limits of inside_dynamic.py: the waits end there, and then return None."""
    assert rehearsed.saw["targets up after"] is not None
    assert rehearsed.saw["targets gone after"] is not None


def test_nccl_is_detected_by_nodes_that_start_later(rehearsed: Rehearsed) -> None:
    said(rehearsed, "install other")
    assert said(rehearsed, "two nodes").splitlines() == ["v2.27.7-1", "v2.27.7-1"]


def test_a_cancelled_job_and_a_restarted_controller_harm_no_node_on_its_way_up(rehearsed: Rehearsed) -> None:
    assert said(rehearsed, "cancel") == ""
    states = rehearsed.saw["on the way up"]
    assert states[FIRST].endswith("#"), states
    assert states[SECOND].endswith("#"), states
    said(rehearsed, "restart")
    # The job behind "two nodes" then ran on the very instances: each node had one before and one now.
    assert rehearsed.output.count(f"{FIRST}: Slurm asks for it") == 2
    assert rehearsed.output.count(f"{SECOND}: Slurm asks for it") == 1


def test_no_capacity_is_told_as_ec2_tells_it(rehearsed: Rehearsed) -> None:
    assert "(Code:InsufficientInstanceCapacity)Failure when resuming nodes" in rehearsed.saw["no capacity"][1]


def test_a_node_whose_host_died_is_powered_down(rehearsed: Rehearsed) -> None:
    assert said(rehearsed, "reason") == "Scheduler health check failed"
    assert f"{SECOND}: its host died" in rehearsed.output


def test_a_set_up_that_fails_names_node_and_step_and_ends_the_rehearsal_badly(rehearsed: Rehearsed) -> None:
    assert "Node failure" in rehearsed.saw["failed set-up"][1]
    (failure,) = rehearsed.saw["failures"]
    assert failure.startswith(f"{SPARE}: step compute/30-nccl: exit=1 ")
    assert rehearsed.saw["instances at the end"] == {FIRST: "running", SECOND: "terminated", SPARE: "terminated"}
    assert rehearsed.code == 1
    assert rehearsed.output.splitlines()[-1].startswith(f"[RESULT] FAILURE: {SPARE}: step compute/30-nccl")
    assert "Traceback" not in rehearsed.output


def test_nothing_is_left_of_a_node_that_ran_to_the_end(rehearsed: Rehearsed) -> None:
    assert not list(Path("/sys/fs/cgroup").rglob(rehearsed.saw["group"]))
    assert not list((rehearsed.folder.parents[1] / "work").glob("hosts*"))
    log = (rehearsed.folder / f"hosts/{FIRST}.log").read_text(encoding="utf-8")
    assert log.count("==> custom actions <==") == 2, "one part for each of its instances"
