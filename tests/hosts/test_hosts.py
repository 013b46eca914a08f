"""Local hosts for real: systemd, Slurm and MPI across network namespaces. Needs root, the Debian packages and a minute."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.hosts import cgroups

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside.py")
TOOLS = ROOT / ".rehearsal-tools"
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
ENGINE = 'mount -t tmpfs run /run && exec "$@"'

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None,
        reason="needs root and the Debian packages of the local hosts",
    ),
]


@pytest.fixture(scope="session")
def tools() -> Path:
    subprocess.run([str(ROOT / "rehearsal/standins/setup.sh"), str(TOOLS)], check=True, timeout=300)
    return TOOLS


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


def start(scenario: str, run_dir: Path, tools: Path) -> subprocess.Popen[str]:
    argv = [*UNSHARE, "sh", "-c", ENGINE, "sh", sys.executable, str(INSIDE), scenario, str(run_dir), str(tools)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "REHEARSAL_TEST_SECRET": "x"}
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 300) -> Any:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def cluster(run_dir: Path, tools: Path) -> Any:
    return finish(start("cluster", run_dir, tools))


def machines(run_dir: Path) -> set[int]:
    """Process ids of every nspawn of a fleet."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if f"={run_dir}/" in nspawn(path)}


def nspawn(process: Path) -> str:
    """The arguments of a systemd-nspawn; empty for other processes."""
    try:
        words = (process / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(words) if words[0].endswith("systemd-nspawn") else ""


def groups(name: str) -> list[Path]:
    return [top for tree in cgroups.hierarchies() for top in tree.root.rglob(name)]


def test_systemd_runs_what_the_host_asks_for_and_nothing_of_the_machine(cluster: Any) -> None:
    assert cluster["state"] == "running"
    services = {unit for unit in cluster["units"].split() if unit.endswith(".service")}
    assert services == {"munge.service", "slurmd.service", "systemd-journald.service"}


def test_srun_reaches_both_hosts(cluster: Any) -> None:
    assert cluster["srun"] == ["train-st-gpu-1", "train-st-gpu-2"]


def test_slurm_runs_the_epilogs_of_the_directory_with_what_ours_needs(cluster: Any) -> None:
    """Slurm gives them no search path: compute/job-end.sh sets its own."""
    names = {line.partition("=")[0] for line in cluster["epilog"].splitlines()}
    assert names >= {"SLURM_JOB_ID", "SLURM_JOB_UID", "SLURMD_NODENAME"}
    assert "PATH" not in names


def test_nothing_of_the_user_is_seen(cluster: Any) -> None:
    assert cluster["secrets"].split() == [
        ".aws", ".ssh", "ubuntu", "0",
        "/opt:", "amazon", "nccl-tests", "rehearsal", "slurm",
        "/usr/local/bin:", "aws", "dcgm-exporter", "enroot", "nv-fabricmanager", "nvidia-smi",
    ]  # fmt: skip
    assert cluster["env"].endswith("0"), "the engine's environment must not reach a host"


def test_no_way_out_of_the_hosts_network(cluster: Any) -> None:
    assert "default" not in cluster["route"]
    assert "10.0.0.0/16 dev eth0" in cluster["route"]


def test_shared_directories_and_the_cluster_user(cluster: Any) -> None:
    assert cluster["shared"].split() == ["ubuntux", "ubuntu"]


def test_facts_as_parallelcluster_leaves_them(cluster: Any) -> None:
    lines = cluster["facts"].splitlines()
    assert {"cfn_node_type=ComputeFleet", "cfn_region=us-east-1", "cfn_head_node_private_ip=10.0.0.10"} <= set(lines)
    assert lines[-2:] == ["/opt/slurm/etc", "8"]


def test_gpu_exporter_says_what_it_is(cluster: Any) -> None:
    series = [line for line in cluster["gpu"].splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{")]
    assert len(series) == 8
    assert all("tand-in" in line for line in cluster["gpu"].splitlines() if line.startswith("# HELP"))


def test_timeout_ends_all_that_the_command_started(cluster: Any) -> None:
    rc, timed_out, told, seconds, sleepers = cluster["timeout"]
    assert (rc, timed_out, told) == (124, True, ["one"])
    assert seconds < 30  # the command would take 60 s
    assert sleepers.splitlines()[0] in ("0", "rc 1: 0")


def test_all_reduce_prints_a_table(cluster: Any) -> None:
    healthy = cluster["healthy"]
    assert healthy["rc"] == 0, healthy["err"]
    (row,) = healthy["rows"]
    assert (row[0], row[1], row[2], row[3], row[4]) == ("2097152", "524288", "float", "sum", "-1")
    assert len(row) == 13
    assert (row[8], row[12]) == ("0", "0"), "no wrong elements"
    assert re.search(r"#  Rank 15 Group  0 Pid +\d+ on train-st-gpu-2 device  7 .*stand-in", healthy["out"])
    assert "# Out of bounds values : 0 OK" in healthy["out"]


def test_throttled_link_changes_the_figure(cluster: Any) -> None:
    assert cluster["slow"]["rc"] == 0, cluster["slow"]["err"]
    healthy_us, slow_us = (float(cluster[kind]["rows"][0][5]) for kind in ("healthy", "slow"))
    floor_us = 2 * 15 / 16 * 2097152 * 8 / 20  # what the ring sends over one link, at 20 Mbit/s
    assert slow_us > 0.9 * floor_us
    assert slow_us > 2 * healthy_us


def test_exit_codes_of_the_stand_in(cluster: Any) -> None:
    assert cluster["too_many"] == 5
    assert cluster["wrong_use"] == 6


def test_custom_action_runs_with_its_arguments_and_reaches_the_embedded_aws(cluster: Any) -> None:
    assert cluster["actions"]["lines"][:2] == ["slipway: step head/10-first ok 0.1 s", "args: 2 two words; $(id)"]
    assert cluster["actions"]["aws"].endswith("a.sh")


def test_failed_custom_action_names_host_and_step(cluster: Any) -> None:
    failed = cluster["actions"]["failed"]
    assert (failed["host"], failed["step"], failed["rc"]) == ("train-st-gpu-1", "compute/20-second", 1)
    assert "hint=none" in failed["text"]


def test_faults_on_purpose_touch_their_host_only(cluster: Any) -> None:
    faults = cluster["faults"]
    assert faults["hosts"] == ["head", "train-st-gpu-2"]
    assert "Read-only file system" in faults["write"]
    assert faults["hang"] not in (0, 124), "the shared file system is gone there"
    assert faults["others"] == "free"


def test_one_host_ends_alone_and_can_come_again(cluster: Any) -> None:
    ended = cluster["ended"]
    assert ended["hosts"] == ["head", "train-st-gpu-2"]
    assert "train-st-gpu-1" not in ended["names"]
    assert "train-st-gpu-2" in ended["names"]
    assert (ended["left"], ended["links"]) == ([], 2)
    assert ended["bridge"] == cluster["bridge"], "with another address the hosts' connections to the engine would hang"
    assert cluster["again"].split() == ["10.0.16.1", "train-st-gpu-1"]


def test_stop_leaves_nothing(cluster: Any) -> None:
    assert cluster["left"] == {"mounts": [], "processes": [], "links": 1, "files": []}


def test_boots_that_cannot_succeed_say_why(tmp_path: Path, tools: Path) -> None:
    told = finish(start("broken", tmp_path, tools))
    assert "this machine lacks" in told["no tools"]
    assert str(tmp_path / "aws") in told["no tools"]
    assert "exactly one is needed" in told["no head"]
    assert "two hosts have the name train-st-gpu-1" in told["twice"]
    assert told["no time"].startswith("BootFailed: head: not up after")


@pytest.fixture
def two_fleets(tmp_path: Path, tools: Path) -> Iterator[list[tuple[subprocess.Popen[str], Path, Any]]]:
    running = []
    for name in ("one", "two"):
        place = tmp_path / name
        place.mkdir()
        running.append((start("head_only", place, tools), place))
    yield [(process, place, json.loads((process.stdout or sys.stdin).readline())) for process, place in running]
    for process, _ in running:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def test_two_fleets_do_not_meet_and_a_killed_one_leaves_nothing(two_fleets: Any, tmp_path: Path) -> None:
    (first, first_dir, first_told), (second, second_dir, second_told) = two_fleets
    assert (first_told["owner"], first_told["sleepers"]) == ("one\none", "1")
    assert (second_told["owner"], second_told["sleepers"]) == ("two\ntwo", "1")
    assert len(machines(first_dir)) == len(machines(second_dir)) == 1
    first.send_signal(
        signal.SIGKILL
    )  # unshare dies, and with it the engine (--kill-child) and all of its PID namespace
    first.wait(timeout=60)
    deadline = time.monotonic() + 60
    while machines(first_dir):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(machines(second_dir)) == 1
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert json.loads(second.communicate("", timeout=90)[0])["left"]["files"] == []
    assert [path.name for path in first_dir.iterdir()] in ([], ["hosts"])
    assert not any((first_dir / "hosts").glob("*")), "the tmpfs went with the namespace"
    left = groups(first_told["group"])
    assert left, "a killed engine cannot remove its control groups"
    while not all(cgroups.remove_tree(top) for top in groups(first_told["group"])):
        assert time.monotonic() < deadline, "they are empty, so a sweep can"
        time.sleep(0.1)
    assert not groups(second_told["group"]), "a stopped fleet has removed its own"
