"""Bad nodes, a bad link and a hang on eight real hosts: each with its own network, systemd and slurmd, real MPI between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
TOOLS = REPOSITORY / ".rehearsal-tools"
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
ENGINE = 'mount -t tmpfs run /run && exec "$@"'
LIMIT_S = 800
LINK_GB_PER_S = 0.025  # what inside_hosts.py gives each link, 200 Mbit/s
TORCH = os.environ.get("SLIPWAY_GPU_SUITE")
needs_torch = pytest.mark.skipif(TORCH is None, reason="needs the environment of `make test-gpu-suite`")
NODES = [f"gpu-{number}" for number in range(1, 9)]

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None,
        reason="needs root and the Debian packages of the local hosts",
    ),
]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All searches, on hosts that were booted once; inside_hosts.py says how each was broken."""
    subprocess.run([str(REPOSITORY / "rehearsal/standins/setup.sh"), str(TOOLS)], check=True, timeout=300)
    inside = [sys.executable, str(HERE / "inside_hosts.py"), str(tmp_path_factory.mktemp("eight")), str(TOOLS)]
    if TORCH:
        inside.append(str(Path(TORCH).absolute()))
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", ENGINE, "sh", *inside],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def verdicts(search: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["verdict"] for node in search["report"]["nodes"]}


def good_but(**others: str) -> dict[str, str]:
    """All eight nodes good, but for these (gpu_6="slow")."""
    return {**dict.fromkeys(NODES, "good"), **{name.replace("_", "-"): verdict for name, verdict in others.items()}}


def test_a_throttled_host_is_found_by_name(searched: dict[str, Any]) -> None:
    one = searched["one"]
    assert verdicts(one) == good_but(gpu_6="slow"), one["out"]
    assert one["code"] == 1
    assert one["last"].startswith("[RESULT] FAILURE: node gpu-6: slow: best pair busbw=")
    assert (one["report"]["locate"]["links"], one["report"]["locate"]["groups"]) == ([], [])
    assert one["jobs"] == ["COMPLETED acceptance-locate"], "one allocation for all rounds"
    assert set(one["states"].values()) == {"idle none"}, "draining was not requested"


def test_a_throttled_link_is_named_and_both_its_nodes_are_good(searched: dict[str, Any]) -> None:
    link = searched["link"]
    assert verdicts(link) == good_but(), link["out"]
    (found,) = link["report"]["locate"]["links"]
    assert (sorted(found["nodes"]), found["verdict"]) == (["gpu-4", "gpu-5"], "slow"), link["out"]
    measured = [pair for pair in link["report"]["locate"]["pairs"] if sorted(pair["nodes"]) == ["gpu-4", "gpu-5"]]
    assert len(measured) > 1, "a link is bad when it is so again"
    assert (link["code"], link["jobs"]) == (1, ["COMPLETED acceptance-locate"])


def test_two_throttled_hosts_fail_the_run_and_are_drained_when_asked(searched: dict[str, Any]) -> None:
    two = searched["two"]
    assert verdicts(two) == good_but(gpu_3="slow", gpu_8="slow"), two["out"]
    assert (two["code"], two["report"]["tests"][0]["verdict"]) == (1, "fail")
    assert two["jobs"] == ["COMPLETED acceptance-all_reduce", "COMPLETED acceptance-locate"]
    (rest,) = (one for one in two["report"]["locate"]["others"] if one["kind"] == "rest")
    assert sorted(rest["nodes"]) == ["gpu-1", "gpu-2", "gpu-4", "gpu-5", "gpu-6", "gpu-7"]
    drained = {name: state for name, state in two["states"].items() if state != "idle none"}
    assert sorted(drained) == ["gpu-3", "gpu-8"]
    for state in drained.values():
        assert state.startswith(f"drained acceptance {two['report']['run_id']}: slow: best pair")


def test_stopped_ranks_are_a_hang_of_their_host(searched: dict[str, Any]) -> None:
    hang = searched["hang"]
    found = {name: verdict for name, verdict in verdicts(hang).items() if name in ("gpu-1", "gpu-2", "gpu-4", "gpu-5")}
    assert found == {"gpu-1": "good", "gpu-2": "failed", "gpu-4": "good", "gpu-5": "good"}, hang["out"]
    (node,) = (one for one in hang["report"]["nodes"] if one["name"] == "gpu-2")
    assert "hung" in node["evidence"]
    assert (hang["code"], hang["jobs"]) == (1, ["COMPLETED acceptance-locate"])
    of_gpu_2 = [pair for pair in hang["report"]["locate"]["pairs"] if "gpu-2" in pair["nodes"]]
    assert {pair["outcome"] for pair in of_gpu_2} == {"hang"}


@needs_torch
def test_communication_between_hosts_by_srun(searched: dict[str, Any]) -> None:
    """The ranks, the address and the port come from what srun sets; gloo finds the hosts' network by itself."""
    good = searched["ddp"]["good"]
    assert (good["code"], good["left"]) == (0, []), good["out"]
    assert "[RESULT] SUCCESS" in good["out"]
    moved, trained, sharded = (
        searched["ddp"]["reports"][f"{name}_result.json"] for name in ("ddp_allreduce", "ddp_training", "fsdp_training")
    )
    for report in (moved, trained, sharded):
        found = (report["launcher"], report["world_size"], report["nodes"], report["backend"], report["failures"])
        assert found == ("srun", 2, ["gpu-1", "gpu-2"], "gloo", [])
    rows = [(row["collective"], row["bytes"], row["ok"]) for row in moved["allreduce"] + moved["collectives"]]
    assert rows == [(name, size, True) for name in ("all_reduce", "alltoall") for size in (4096, 1 << 20)]
    assert 0 < moved["allreduce"][-1]["busbw_gb_per_s"] < 2 * LINK_GB_PER_S, "it crossed the hosts' links"
    for one in (trained, sharded):
        assert (one["improved"], one["weights_equal"]) == (True, True)


@needs_torch
def test_a_rank_that_is_stopped_is_named_with_its_host_and_the_step_ends(searched: dict[str, Any]) -> None:
    stall = searched["ddp"]["stall"]
    assert stall["left"] == [], "no job is left"
    assert stall["code"] not in (0, 124), stall["out"]
    line = (
        "[RESULT] FAILURE: [all-reduce of 8000000 did not end within 30 s on rank 0: ranks 1 on gpu-2 did not arrive]"
    )
    assert line in stall["out"]


def test_commands_of_the_guides_as_the_clusters_user(searched: dict[str, Any]) -> None:
    seen = searched["guide"]
    assert {code for code, _ in seen.values()} == {0}, seen
    said = {command.split()[0] + " " + command.split()[1]: text for command, (_, text) in seen.items()}
    assert said["sudo su"] == "ubuntu\n"
    assert said["mountpoint /fsx"] == "/fsx is a mountpoint\n"
    assert "/fsx" in said["df -h"]
    table = said["srun --nodes=2"]
    assert "#  Rank 15 Group  0" in table
    assert "# Out of bounds values : 0 OK" in table
