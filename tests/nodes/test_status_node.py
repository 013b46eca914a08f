"""node_status.py: what a node says of itself, from records as the scripts write them, good, bad and torn."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .programs import load_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "nodes/status/node_status.py"
SINFO = """\
gpu-1|train*|idle|up|Unknown|none
gpu-1|debug|idle|inact|Unknown|none
gpu-2|train*|drained|up|2026-11-28T15:51:28|health: gpu_count 7 of 8 | and more
gpu-3|train*|idle~|up|Unknown|none"""
COMMENTS = "gpu-1    slipway-drains=1000,{now} rack 7\ngpu-1    slipway-drains=1000,{now} rack 7\ngpu-2   (null)\ngpu-3"
SQUEUE = "RUNNING|training||gpu-1\nPENDING|training||\nPENDING|slipway-update|gpu-2|\nRUNNING|slipway-update||gpu-1"


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def step(name: str, status: str = "ok", **more: Any) -> dict[str, Any]:
    made = {"step": name, "status": status, "exit": 0, "seconds": 1.5, "log": f"/var/log/{name}.log", "hint": ""}
    return {**made, "finished": "2026-11-28T05:00:00Z", **more}


class Node:
    """A node's places in a directory, and the program looking at them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.fsx = root, root / "fsx"
        self.fsx.mkdir()
        self.program = load_program(PROGRAM)
        monkeypatch.setattr(self.program, "STATE", root / "state")
        monkeypatch.setattr(self.program, "CURRENT", root / "current")
        monkeypatch.setattr(self.program, "NODE_ENV", root / "node.env")
        monkeypatch.setattr(self.program, "SLURM_CONF", root / "slurm.conf")
        monkeypatch.setattr(self.program.os.path, "ismount", lambda path: Path(path) == self.fsx)
        put(root / "node.env", f"CLUSTER_NAME=ml\nFSX_MOUNT=/other\nFSX_MOUNT={self.fsx}\n")
        (root / "releases/aaaaaaaaaaaa").mkdir(parents=True)
        (root / "current").symlink_to(root / "releases/aaaaaaaaaaaa")
        put(root / "state/good-release", f"{root}/releases/aaaaaaaaaaaa\nA=1\n")

    def record(self, *steps: dict[str, Any]) -> None:
        for one in steps:
            put(self.root / f"state/steps/{one['step'].partition('/')[2]}.json", one)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


@pytest.fixture
def head(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A head node with Slurm's commands of the tests, and the states of its compute nodes."""
    node.record(step("headnode/10-fsx-layout"), step("headnode/90-report"))
    comments = COMMENTS.format(now=int(time.time()))
    put(node.root / "bin/squeue", f"#!/bin/sh\ncat <<'X'\n{SQUEUE}\nX\n")
    script = f"case $* in *Comment*) cat <<'X'\n{comments}\nX\n;; *) cat <<'X'\n{SINFO}\nX\n;; esac\n"
    put(node.root / "bin/sinfo", f"#!/bin/sh\n{script}")
    put(node.root / "bin/fleet", '#!/bin/sh\necho \'{\n "status": "PROTECTED"\n}\'\n')
    for name in ("sinfo", "squeue", "fleet"):
        (node.root / f"bin/{name}").chmod(0o755)
    fleet = node.program.fleet
    monkeypatch.setattr(fleet, "FLEET_STATUS", str(node.root / "bin/fleet"))
    monkeypatch.setattr(fleet, "CLUSTERMGTD_LOG", node.root / "clustermgtd")
    monkeypatch.setenv("PATH", f"{node.root / 'bin'}:{os.environ['PATH']}")
    return node


def test_a_node_before_its_set_up(node: Node) -> None:
    (node.root / "current").unlink()
    (node.root / "state/good-release").unlink()
    found = node.program.whole()
    assert (found["kind"], found["steps"], found["health"]) == ("unknown", [], None)
    assert found["release"] == {"in_use": None, "good": None, "failed": None}


def test_steps_background_and_health(node: Node) -> None:
    bad = step("compute/30-nccl", "reported", exit=1, hint="x" * 5000)
    node.record(step("compute/10-fsx"), bad)
    put(node.root / "state/background/containers.json", {"name": "containers", "state": "running", "percent": 38})
    checks = [{"check": "gpus", "status": "fail", "evidence": "7 of 8"}, {"check": "clock", "status": "ok"}]
    put(node.root / "state/health.json", {"status": "fail", "time": "T", "action": "drained", "checks": checks})
    found = node.program.whole()
    assert found["kind"] == "compute"
    assert [one["status"] for one in found["steps"]] == ["ok", "reported"]
    assert len(found["steps"][1]["hint"]) == node.program.TEXT
    assert "hint" not in found["steps"][0]
    assert found["background"][0]["percent"] == 38
    assert found["health"] == {"status": "fail", "time": "T", "action": "drained", "bad": ["gpus: fail (7 of 8)"]}
    assert "slurm" not in found


@pytest.mark.parametrize("torn", ["", "{", "[1]", "null", '"text"', "\udcff"])
def test_a_torn_record_is_left_out(node: Node, torn: str) -> None:
    node.record(step("compute/10-fsx"))
    (node.root / "state/steps/20-x.json").write_bytes(torn.encode("utf-8", "surrogateescape"))
    put(node.root / "state/health.json", "{")
    assert [one["step"] for one in node.program.own()["steps"]] == ["compute/10-fsx"]


def test_sharing_is_whole_and_without_its_own_record(node: Node) -> None:
    node.record(step("compute/10-fsx"), step("compute/90-report", "failed"))
    assert node.program.main(["--share"]) == 0
    (file,) = (node.fsx / "logs/slipway/nodes").iterdir()
    shared = json.loads(file.read_text())
    assert file.name == f"{os.uname().nodename}.json"
    assert [one["step"] for one in shared["steps"]] == ["compute/10-fsx"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_nothing_is_written_below_a_place_where_nothing_is_mounted(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node.program.os.path, "ismount", lambda _: False)
    assert node.program.main(["--share"]) == 1
    assert "is not mounted" in capsys.readouterr().err
    assert list(node.fsx.iterdir()) == []


def test_the_head_node_knows_slurm_the_others_and_the_last_acceptance(head: Node) -> None:
    compute = {"host": "gpu-1", "kind": "compute", "release": {"in_use": "aaaaaaaaaaaa", "failed": None}}
    compute |= {"steps": [step("compute/10-fsx"), step("compute/30-nccl", "failed", seconds=2.25)]}
    compute |= {"background": [{"name": "a", "state": "done"}, {"name": "b", "state": "failed"}], "health": None}
    put(head.fsx / "logs/slipway/nodes/gpu-1.json", compute)
    put(head.fsx / "logs/slipway/nodes/head.json", {"host": "head", "kind": "headnode"})
    put(head.fsx / "results/20261127-1/report.json", {"run_id": "old", "verdict": "accepted"})
    put(head.fsx / "results/20261128-1/report.json", {"run_id": "new", "verdict": "not accepted", "tests": [1] * 9})
    (head.fsx / "results/20261128-2").mkdir()  # still running
    if os.geteuid() == 0:  # what another user put there is no verdict
        put(head.fsx / "results/20261128-3/report.json", {"run_id": "planted", "verdict": "accepted"})
        os.chown(head.fsx / "results/20261128-3", 1000, 1000)
    # The reader of the shared file system is a process of its own: it finds the mount as the node's own one would.
    found = head.program.own() | {"slurm": head.program.slurm()} | head.program.shared(head.fsx)
    assert found["slurm"]["nodes"][1].pop("reason_age_s") == pytest.approx(
        time.time() - time.mktime(time.strptime("2026-11-28T15:51:28", "%Y-%m-%dT%H:%M:%S")), abs=30
    )
    assert found["slurm"]["partitions"] == {"train": "up", "debug": "inact"}
    assert found["slurm"]["drains"] == {"gpu-1": 1}, "of the last 24 hours, each node once"
    assert found["slurm"]["fleet"] == "PROTECTED"
    assert found["slurm"]["up_s"] > 0
    assert found["slurm"]["nodes"] == [
        {"name": "gpu-1", "partition": "train", "state": "idle"},
        {"name": "gpu-2", "partition": "train", "state": "drained", "reason": "health: gpu_count 7 of 8 | and more"},
        {"name": "gpu-3", "partition": "train", "state": "idle~"},
    ]
    assert found["slurm"]["jobs"] == {"running": 1, "pending": 1}
    assert found["slurm"]["updating"] == ["gpu-1", "gpu-2"]
    (one,) = found["nodes"]
    assert one["steps"] == {"ok": 1, "reported": 0, "failed": 1}
    assert one["seconds"] == 3.8
    assert [bad["step"] for bad in one["bad_steps"]] == ["compute/30-nccl"]
    assert [work["name"] for work in one["background"]] == ["b"]
    assert found["acceptance"]["run_id"] == "new"
    assert set(found["acceptance"]) == {"run_id", "verdict", "summary", "finished", "directory"}


def test_the_newest_run_is_that_of_the_latest_time_whatever_its_name(head: Node) -> None:
    for name in ("20261128T235959Z-train", "nightly_2026-11-29_04-00-00", "a_2026-11-29_03-59-59"):
        put(head.fsx / f"results/{name}/report.json", {"run_id": name})
    assert head.program.acceptance(head.fsx / "results")["run_id"] == "nightly_2026-11-29_04-00-00"
    put(head.fsx / "results/20261129T040001Z-train/report.json", {"run_id": "last"})
    assert head.program.acceptance(head.fsx / "results")["run_id"] == "last"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("exec sleep 30", "sinfo did not answer within 0.2 s"),
    ],
)
def test_a_slurm_that_does_not_answer(head: Node, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    monkeypatch.setattr(head.program, "SLURM_TIMEOUT_S", 0.2 if "sleep" in script else 60)
    put(head.root / "bin/sinfo", f"#!/bin/sh\n{script}\n")
    assert said in head.program.slurm()["error"]


@pytest.mark.parametrize(
    ("reader", "said"),
    [("import time; time.sleep(30)", "did not answer within 0.2 s"), ("print('x')", "cannot be read")],
)
def test_a_file_system_that_hangs_is_not_waited_for(
    head: Node, monkeypatch: pytest.MonkeyPatch, reader: str, said: str
) -> None:
    put(head.root / "reader.py", reader)
    monkeypatch.setattr(head.program, "__file__", str(head.root / "reader.py"))
    monkeypatch.setattr(head.program, "FSX_TIMEOUT_S", 0.2 if "sleep" in reader else 60)
    found = head.program.whole()
    assert said in found["fsx_error"]
    assert (found["nodes"], found["acceptance"]) == ([], None)


def test_expect(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    expect: Callable[[str], int] = node.program.expect
    assert expect("a" * 64) == 0
    assert expect("b" * 64) == 1
    put(node.root / "state/failed-release/release", f"{node.root}/releases/bbbbbbbbbbbb\n")
    put(node.root / "state/failed-release/10-x.json", step("headnode/10-x", "failed", hint="mend it"))
    assert expect("b" * 64) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[RESULT] FAILURE: the head node uses release aaaaaaaaaaaa, not bbbbbbbbbbbb"
    assert said[1] == f"{said[0]}: step headnode/10-x failed: mend it"
    # In use, but its set-up never ended well.
    put(node.root / "state/good-release", "")
    assert expect("a" * 64) == 1


def test_a_thousand_nodes_fit_into_what_run_command_returns(head: Node) -> None:
    for number in range(1000):
        steps = [step(f"compute/{n}-a-step-of-it", seconds=n / 7 + number / 997) for n in range(10, 20)]
        release = {"in_use": "aaaaaaaaaaaa", "failed": None}
        made = {"host": f"gpu-st-p5-{number}", "kind": "compute", "time": f"2026-11-28T05:{number % 60:02}:00Z"}
        put(head.fsx / f"logs/slipway/nodes/{number}.json", {**made, "release": release, "steps": steps})
    text = json.dumps({**head.program.own(), **head.program.shared(head.fsx)}, separators=(",", ":"))
    assert len(base64.b64encode(zlib.compress(text.encode(), 9))) < 22_000


def test_the_program_itself(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", str(PROGRAM), "--packed"], capture_output=True, text=True, check=True)
    packed = done.stdout.strip().removeprefix("slipway-status:")
    assert json.loads(zlib.decompress(base64.b64decode(packed)))["schema"] == 1
    done = subprocess.run([sys.executable, str(PROGRAM), "--shared"], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {"nodes", "acceptance"}


LOGGED = """\
{old},000 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy static nodes: (x1) ['a-1(b)']
{now},123 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy static nodes: (x2) ['a-1(10.0.0.5)', 'a-2(a-2)']
{now},124 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy dynamic nodes: (x1) ['d(b)']
{now},125 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy static nodes: (x1) ['a-1(10.0.0.6)']
{now},125 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy static nodes: (x1) [torn
not a line of the log
"""


def test_launches_are_counted_from_clustermgtds_log(head: Node) -> None:
    now = time.time()
    old, recent = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - ago)) for ago in (90_000, 60))
    put(head.root / "clustermgtd", LOGGED.format(old=old, now=recent))
    assert head.program.slurm()["launches"] == {"a-1": 2, "a-2": 1}


@pytest.mark.parametrize("script", ["exit 1", "echo no JSON", "echo '[]'", ""])
def test_a_fleet_status_that_is_not_said_is_empty(head: Node, script: str) -> None:
    put(head.root / "bin/fleet", f"#!/bin/sh\n{script}\n")
    assert head.program.slurm()["fleet"] == ""
    assert head.program.slurm()["error"] == ""


ACCOUNTED = "AccountingStorageType   = accounting_storage/slurmdbd\nAccountingStorageHost   = db-host\n"
ACCOUNTED += "AccountingStoragePort   = 6819"


@pytest.mark.parametrize(
    ("config", "sacctmgr", "said"),
    [
        ("AccountingStorageType   = accounting_storage/none", "exit 1", ""),
        (ACCOUNTED, "echo 'ml|10.0.0.4|6817|9984'", ""),
        (ACCOUNTED, "exit 0", "slurmdbd at db-host:6819 knows no cluster"),
        (
            ACCOUNTED,
            "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1",
            "slurmdbd at db-host:6819 does not answer: sacctmgr: error: Sending PersistInit msg: Connection refused",
        ),
        (ACCOUNTED, "exec sleep 30", "sacctmgr did not answer within 2 s"),
    ],
)
def test_slurmdbd_is_asked_where_there_is_one(
    head: Node, monkeypatch: pytest.MonkeyPatch, config: str, sacctmgr: str, said: str
) -> None:
    for name, script in (("scontrol", f"cat <<'X'\n{config}\nX"), ("sacctmgr", sacctmgr)):
        put(head.root / f"bin/{name}", f"#!/bin/sh\n{script}\n")
        (head.root / f"bin/{name}").chmod(0o755)
    monkeypatch.setattr(head.program, "SLURM_TIMEOUT_S", 2 if "sleep" in sacctmgr else 60)
    text = head.program.accounting.problem(head.program._slurm, head.program._why)
    assert said in text if said else text == ""
