"""The parts of the local hosts that need neither root nor Slurm."""

from __future__ import annotations

import io
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rehearsal.hosts import HostsError, HostSpec, NodeFailed, cgroups, image, slurm
from rehearsal.hosts.actions import CustomAction, custom_actions, fetch_script
from rehearsal.hosts.commands import communicate
from slipway.breakage import Breakage, match_name, parse_breakage
from slipway.errors import UsageError

STANDINS = Path(__file__).resolve().parents[2] / "rehearsal" / "standins"
NODES = [f"train-st-gpu-{number}" for number in (1, 2, 3, 13)]

HYBRID_MOUNTS = """\
30 20 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/cpuset rw shared:13 - cgroup cgroup rw,cpuset
"""
HYBRID_OWN = "12:cpuset:/\n3:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/session-4.scope\n0::/user.slice/session-4.scope\n"


def test_hybrid_machine_has_a_group_in_each_hierarchy_but_cpuset() -> None:
    found = {str(tree.root): str(tree.own) for tree in cgroups.hierarchies(HYBRID_MOUNTS, HYBRID_OWN)}
    assert found == {
        "/sys/fs/cgroup/unified": "/sys/fs/cgroup/unified/user.slice/session-4.scope",
        "/sys/fs/cgroup/systemd": "/sys/fs/cgroup/systemd/user.slice/session-4.scope",
        "/sys/fs/cgroup/cpu,cpuacct": "/sys/fs/cgroup/cpu,cpuacct/user.slice",
    }


def test_unified_machine_and_a_container_that_sees_a_part_of_the_tree() -> None:
    mounts = "31 30 0:27 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    (tree,) = cgroups.hierarchies(mounts, "0::/docker/ab/init\n")
    assert tree.unified
    assert tree.own == Path("/sys/fs/cgroup/init")


def test_no_hierarchy_is_told() -> None:
    with pytest.raises(HostsError, match="no control groups"):
        cgroups.hierarchies("20 1 0:4 / /proc rw - proc proc rw\n", "0::/\n")


def test_sweep_takes_old_empty_groups_only(tmp_path: Path) -> None:
    old, busy, young = (tmp_path / f"a/{cgroups.GROUP_PREFIX}{name}" for name in ("old", "busy", "young"))
    for top in (old, busy):
        (top / "gpu-1/system.slice").mkdir(parents=True)
    (busy / "gpu-1/cgroup.procs").write_text("41\n")
    tree = cgroups.Hierarchy(tmp_path, tmp_path, frozenset())
    assert cgroups.sweep([tree], older_than_s=-5) == [old]
    young.mkdir()
    assert cgroups.sweep([tree], older_than_s=60) == []
    assert young.exists()
    assert busy.exists()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("slow-node=gpu-3", Breakage("slow-node", "gpu-3")),
        ("bootstrap=head", Breakage("bootstrap", "head")),
        ("bootstrap=compute", Breakage("bootstrap", "compute")),
        ("hang", Breakage("hang")),
    ],
)
def test_fault_is_parsed(text: str, fault: Breakage) -> None:
    assert parse_breakage(text) == fault
    assert str(fault) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow-nod=gpu-3", "Did you mean slow-node?"),
        ("", "no such kind"),
        ("slow-node", "which node?"),
        ("slow-node=", "which node?"),
        ("bootstrap=gpu-1", "head or compute, not gpu-1"),
        ("bootstrap", "head or compute, not nothing"),
        ("hang=gpu-1", "takes no value"),
    ],
)
def test_bad_fault_says_why(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_breakage(text)


def test_node_is_found_by_name_and_by_end() -> None:
    assert match_name(NODES, "gpu-3") == "train-st-gpu-3"
    assert match_name(NODES, "train-st-gpu-13") == "train-st-gpu-13"
    assert match_name(NODES, "3") == "train-st-gpu-3"


def test_unknown_and_ambiguous_node() -> None:
    with pytest.raises(UsageError, match=r"no such node\. Nodes: train-st-gpu-1"):
        match_name(NODES, "gpu-9")
    with pytest.raises(UsageError, match="several nodes are meant"):
        match_name(["a-gpu-1", "b-gpu-1"], "gpu-1")


def test_custom_actions_of_both_forms() -> None:
    one = {"OnNodeConfigured": {"Script": "s3://b/k.sh", "Args": ["head", 5]}}
    assert custom_actions(one) == [CustomAction("s3://b/k.sh", ("head", "5"))]
    several = {"OnNodeConfigured": {"Sequence": [{"Script": "s3://b/1.sh"}, {"Script": "s3://b/2.sh", "Args": None}]}}
    assert [action.script for action in custom_actions(several)] == ["s3://b/1.sh", "s3://b/2.sh"]
    assert custom_actions({}) == []
    with pytest.raises(HostsError, match=r"OnNodeConfigured\[0\]"):
        custom_actions({"OnNodeConfigured": {"Args": ["head"]}})


class EmptyS3:
    """A store without objects."""

    def get_object(self, **_: Any) -> dict[str, io.BytesIO]:
        raise OSError("NoSuchKey")


@pytest.mark.parametrize("address", ["https://x/y.sh", "s3://bucket", "s3:///key", "s3://bucket/key.sh"])
def test_script_that_cannot_be_fetched_names_node_and_script(address: str) -> None:
    with pytest.raises(NodeFailed) as caught:
        fetch_script("gpu-1", address, EmptyS3())
    assert caught.value.host == "gpu-1"
    assert address in str(caught.value)


def test_slurm_files_are_laid_out_as_by_parallelcluster(tmp_path: Path) -> None:
    head = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
    gpu = [
        HostSpec(
            f"train-st-gpu-{n}",
            f"10.0.1.{n}",
            "compute",
            "p5.48xlarge",
            192,
            2097152,
            8,
            "h100",
            "train",
            "gpu",
            ("efa",),
        )
        for n in (1, 2)
    ]
    cpu = HostSpec("prep-st-cpu-1", "10.0.1.9", "compute", "c7i.large", 2, 4096, queue="prep", compute_resource="cpu")
    slurm.write_tree(tmp_path, "ml", head, [*gpu, cpu])
    etc = tmp_path / "etc"
    assert (etc / "slurm_parallelcluster.conf").read_text() == (
        "SlurmctldHost=head(10.0.0.10)\n"
        "include pcluster/slurm_parallelcluster_train_partition.conf\n"
        "include pcluster/slurm_parallelcluster_prep_partition.conf\n"
    )
    assert (etc / "pcluster/slurm_parallelcluster_train_partition.conf").read_text().splitlines() == [
        "NodeName=train-st-gpu-1 CPUs=192 RealMemory=1992294 Feature=static,p5.48xlarge,gpu,efa Weight=1 State=UNKNOWN Gres=gpu:h100:8",
        "NodeName=train-st-gpu-2 CPUs=192 RealMemory=1992294 Feature=static,p5.48xlarge,gpu,efa Weight=1 State=UNKNOWN Gres=gpu:h100:8",
        "NodeSet=train_nodes Nodes=train-st-gpu-1,train-st-gpu-2",
        "PartitionName=train Nodes=train_nodes MaxTime=INFINITE State=UP Default=YES",
    ]
    assert (etc / "pcluster/slurm_parallelcluster_prep_gres.conf").read_text() == ""
    assert "File=/dev/nvidia[0-7]" in (etc / "pcluster/slurm_parallelcluster_train_gres.conf").read_text()
    assert (tmp_path / "bin/sinfo").is_symlink()
    conf = (etc / "slurm.conf").read_text().splitlines()
    for kind in ("prolog", "epilog"):
        assert f"{kind.capitalize()}=/opt/slurm/etc/scripts/{kind}.d/*" in conf
        (own,) = (etc / f"scripts/{kind}.d").iterdir()  # an empty directory would be a fault of Slurm's
        assert own.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["", "Head", "a b", "-x", "x" * 64, "a;b"])
def test_host_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        HostSpec(name, "10.0.0.1", "head", "m5.large", 2, 8192)


def run_here(*argv: str, timeout_s: float = 30, lines: list[str] | None = None) -> Any:
    return communicate(
        argv, env={"PATH": "/usr/bin:/bin"}, timeout_s=timeout_s, stdin=b"given\n", on_line=None if lines is None else lines.append, on_timeout=lambda _: None
    )  # fmt: skip


def test_command_answers_with_code_and_both_outputs() -> None:
    done = run_here("sh", "-c", "cat; echo bad >&2; exit 3")
    assert (done.rc, done.stdout, done.stderr, done.timed_out) == (3, "given\n", "bad\n", False)


def test_command_that_takes_too_long_answers_124() -> None:
    done = run_here("sh", "-c", "echo begun; exec sleep 30", timeout_s=0.3)
    assert (done.rc, done.stdout, done.timed_out) == (124, "begun\n", True)
    assert done.seconds < 20


def test_daemon_that_keeps_the_output_open_does_not_hold_the_answer() -> None:
    done = run_here("sh", "-c", "sleep 40 & echo started")
    assert (done.rc, done.stdout) == (0, "started\n")
    assert done.seconds < 20


def test_lines_are_told_whole_even_the_last_without_newline() -> None:
    lines: list[str] = []
    run_here("sh", "-c", "printf 'a\\nb'; sleep 0.1; printf 'c\\nend'", lines=lines)
    assert lines == ["a", "bc", "end"]


def test_enroot_stand_in_refuses_as_the_real_one(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}

    def enroot(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [str(STANDINS / "enroot"), *argv]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    # Nothing listens on port 9 of this machine: as without a network.
    offline = enroot("import", "-o", "x.sqsh", "docker://127.0.0.1:9#nvidia/pytorch:24.01-py3")
    assert offline.returncode == 7  # curl's own code
    assert "curl: (7) Failed to connect to 127.0.0.1" in offline.stderr
    (tmp_path / "nvidia+pytorch+24.01-py3.sqsh").write_bytes(b"image")
    again = enroot("import", "docker://127.0.0.1:9#nvidia/pytorch:24.01-py3")
    assert again.returncode == 1
    assert "File already exists" in again.stderr
    assert enroot("import", "docker://A#B").returncode == 1


@pytest.mark.hosts
def test_states_of_a_machine_that_slipway_set_up_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"etc/slipway", "var/lib/slipway", "var/cache/slipway"} <= set(image._ABSENT)
    # Any directory of this machine, as those are on one that is a node too; what is not there needs no whiteout.
    there, absent = str(tmp_path.relative_to("/")), "var/lib/slipway-is-not-here"
    monkeypatch.setattr(image, "_ABSENT", (there, absent))
    for name in (there, absent):
        image._absent(tmp_path / "upper" / name)
    whiteout = (tmp_path / "upper" / there).lstat()
    assert (stat.S_ISCHR(whiteout.st_mode), whiteout.st_rdev) == (True, 0)
    assert not (tmp_path / "upper" / absent).exists()
