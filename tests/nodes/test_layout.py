"""The shared file system's directories on the head node, and what a compute node says about the file system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .host import Host
from .installed import install, step

pytestmark = pytest.mark.hosts
LAYOUT = "headnode/steps/10-fsx-layout"
COMPUTE = "compute/steps/10-fsx"
TREE = {
    "containers": "1777",
    "containers/cache": "1777",
    "containers/data": "1777",
    "containers/runtime": "1777",
    "checkpoints": "1777",
    "config": "755",
    "datasets": "1777",
    "logs": "755",
    "logs/container-downloads": "1777",
    "logs/slurm": "1777",
    "logs/training": "1777",
    "nccl": "755",
    "results": "1777",
    "scripts": "755",
}


@pytest.fixture(scope="module")
def head(host: Host) -> Host:
    install(host)
    return host


@pytest.fixture
def fsx(head: Host) -> Iterator[Host]:
    """The host, with an empty /fsx before and after."""
    head.run("find /fsx -mindepth 1 -delete")
    yield head
    head.run("find /fsx -mindepth 1 -delete; rm -rf /srv/outside")


def tree(host: Host) -> dict[str, str]:
    lines = host.run("cd /fsx && find . -mindepth 1 -printf '%P %m\\n'").stdout.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines)


def test_layout_is_the_guides_and_twice_the_same(fsx: Host) -> None:
    step(fsx, LAYOUT)
    assert tree(fsx) == TREE
    first = fsx.run("find /fsx -printf '%p %i %m %U %T@\\n' | sort").stdout
    assert "made" not in step(fsx, LAYOUT).stdout
    assert fsx.run("find /fsx -printf '%p %i %m %U %T@\\n' | sort").stdout == first


def test_what_a_killed_run_left_is_no_obstacle(fsx: Host) -> None:
    fsx.run("mkdir -m 700 /fsx/.datasets.slipway-new")
    step(fsx, LAYOUT)
    assert tree(fsx) == TREE


def test_two_at_once(fsx: Host) -> None:
    path = f"/opt/slipway/current/{LAYOUT}.sh"
    done = fsx.run(
        f"for n in 1 2 3; do {path} & pids+=($!); done; for pid in ${{pids[@]}}; do wait $pid || exit 1; done"
    )
    assert tree(fsx) == TREE
    assert done.stdout.count("made /fsx/datasets") == 1


def test_data_from_before_keeps_content_owner_and_mode(fsx: Host) -> None:
    fsx.run("mkdir -m 750 /fsx/datasets /fsx/mine; echo x >/fsx/datasets/file; chown -R 1234:1234 /fsx/datasets")
    done = step(fsx, LAYOUT).stdout
    assert fsx.run("stat -c '%a %u' /fsx/datasets; cat /fsx/datasets/file").stdout == "750 1234\nx\n"
    assert "WARNING" not in done


def test_directories_that_root_runs_things_from_are_refused_when_others_may_write_there(fsx: Host) -> None:
    fsx.run("mkdir -m 755 /fsx/nccl; chown 1234 /fsx/nccl; mkdir -m 777 /fsx/results /fsx/scripts")
    done = step(fsx, LAYOUT, check=False)
    assert done.returncode == 1
    assert "slipway: /fsx/nccl can be written by others (uid 1234, mode 755): root runs and reads files" in done.stdout
    assert "then: chown root /fsx/nccl; chmod 755 /fsx/nccl" in done.stdout
    assert "slipway: /fsx/scripts can be written by others (uid 0, mode 777)" in done.stdout
    assert "WARNING /fsx/results is not sticky: users can remove each other's files. Hint: chmod +t" in done.stdout


def test_folders_of_associations_that_fsx_made_are_opened_once(fsx: Host) -> None:
    """FSx makes them as root:root 0755 (aws-parallelcluster issues 1466 and 4273)."""
    fsx.run("mkdir -m 755 /fsx/checkpoints /fsx/models /fsx/corpus /fsx/results; chgrp 1234 /fsx/results")
    fsx.run("echo FSX_WRITTEN=/ /checkpoints /models /results /not-there >>/etc/slipway/node.env")
    try:
        done = step(fsx, LAYOUT).stdout
        assert "slipway: /fsx/checkpoints was root's alone (0755)" in done
        assert "WARNING only root can write to /fsx/results. Hint: chmod 1777 /fsx/results" in done
        modes = fsx.run("stat -c '%a %u' /fsx/checkpoints /fsx/models /fsx/corpus /fsx/results").stdout.splitlines()
        assert modes == ["1777 0", "1777 0", "755 0", "755 0"]
        # What the site closes afterwards stays closed.
        fsx.run("chmod 755 /fsx/checkpoints")
        assert "checkpoints" not in step(fsx, LAYOUT).stdout
        assert fsx.run("stat -c %a /fsx/checkpoints").stdout == "755\n"
    finally:
        fsx.run("sed -i /FSX_WRITTEN/d /etc/slipway/node.env")


@pytest.mark.parametrize(
    ("broken", "program"),
    [
        ("chown 1234 FILE", "sh"),
        ("chmod 666 FILE", "bash"),
        ("chown 1234 /fsx/nccl", "bash"),
        ("chmod 777 /fsx/nccl", "sh"),
    ],
)
def test_roots_shells_run_no_file_that_others_may_write(fsx: Host, broken: str, program: str) -> None:
    shell = f"{program} -c '. /opt/slipway/current/compute/nccl-shared.sh; echo ${{SLIPWAY_NCCL_DIR-none}}'"
    fsx.run("mkdir -m 755 /fsx/nccl; echo : >/fsx/nccl/setup-nccl-env.sh")
    assert fsx.run(shell).stdout == "/fsx/nccl\n"
    fsx.run(broken.replace("FILE", "/fsx/nccl/setup-nccl-env.sh"))
    said = fsx.run(shell).stdout
    assert "slipway: /fsx/nccl/setup-nccl-env.sh is not root's alone: not used in root's shells" in said
    assert said.endswith("none\n")
    user = fsx.run(f"env --unset=BASH_ENV setpriv --reuid=4321 --regid=4321 --clear-groups {shell}").stdout
    assert user == "/fsx/nccl\n"


def test_every_conflict_at_once(fsx: Host) -> None:
    fsx.run(
        "mkdir -p /srv/outside /fsx/logs; touch /fsx/checkpoints /fsx/logs/slurm; ln -s /srv/outside /fsx/containers"
    )
    done = step(fsx, LAYOUT, check=False)
    assert done.returncode == 1
    assert "/fsx/checkpoints is there, but is no directory" in done.stdout
    assert "/fsx/logs/slurm is there, but is no directory" in done.stdout
    link = "/fsx/containers is a symbolic link to /srv/outside: followed only to a directory below /fsx"
    assert done.stdout.count(link) == 1
    assert done.stdout.splitlines()[-1] == "slipway-hint: move it away, or repair it, and run the set-up again"
    assert fsx.run("ls -A /srv/outside").stdout == ""
    assert tree(fsx)["datasets"] == "1777"


@pytest.mark.parametrize("target", ["/srv/outside", "../srv/outside", "nowhere", "containers", "/etc"])
def test_no_link_is_followed_out_of_the_file_system(fsx: Host, target: str) -> None:
    fsx.run(f"mkdir -p /srv/outside; ln -s {target} /fsx/containers")
    done = step(fsx, LAYOUT, check=False)
    assert done.returncode == 1
    assert "/fsx/containers is a symbolic link to " in done.stdout
    assert fsx.run("ls -A /srv/outside; ls -d /etc/runtime", check=False).stdout.startswith("ls: cannot access")


def test_link_to_a_place_below_is_followed(fsx: Host) -> None:
    fsx.run("mkdir -p /fsx/large/images; ln -s large/images /fsx/containers")
    step(fsx, LAYOUT)
    assert tree(fsx)["large/images/runtime"] == "1777"


def test_read_only(fsx: Host) -> None:
    done = step(fsx, LAYOUT, before="mount -o remount,ro,bind /fsx", check=False)
    assert done.returncode == 1
    assert "slipway: cannot make /fsx/config and 7 more: Read-only file system" in done.stdout
    assert "slipway-hint: it is mounted read-only: see" in done.stdout


def test_full(fsx: Host) -> None:
    done = step(fsx, LAYOUT, before="mount -t tmpfs -o nr_inodes=3 none /fsx", check=False)
    assert done.returncode == 1
    assert "slipway: cannot make /fsx/containers/runtime and 8 more: No space left on device" in done.stdout
    assert "slipway-hint: it is full: free space or inodes" in done.stdout


def test_not_mounted(fsx: Host) -> None:
    done = step(fsx, LAYOUT, before="umount /fsx", check=False)
    assert done.returncode == 1
    assert "slipway: /fsx is not mounted" in done.stdout


# ------------------------------------------------------------------------------------------------------- compute node


def test_compute_node_with_a_good_file_system(fsx: Host) -> None:
    assert step(fsx, COMPUTE).stdout == ""


COMPUTE_FAULTS = [
    ("umount /fsx", "/fsx is not mounted after 1 s"),
    ("mount -o remount,ro,bind /fsx", "/fsx is mounted read-only: no job could write its results"),
    ("mount --bind /srv/hangs /usr/bin/timeout", "/fsx is mounted, but does not answer in 20 s"),
    ("mount --bind /srv/fails /usr/bin/timeout", "/fsx is mounted, but cannot be read"),
]


@pytest.mark.parametrize(("before", "message"), COMPUTE_FAULTS)
def test_compute_node_says_what_is_wrong(fsx: Host, before: str, message: str) -> None:
    fsx.put("/srv/hangs", b"#!/bin/sh\nexit 124\n", 0o755)
    fsx.put("/srv/fails", b"#!/bin/sh\nexit 2\n", 0o755)
    fsx.run("echo FSX_MOUNT_WAIT_S=1 >>/etc/slipway/node.env")
    done = step(fsx, COMPUTE, before=before, check=False)
    fsx.run("sed -i /FSX_MOUNT_WAIT_S/d /etc/slipway/node.env")
    assert done.returncode == 1
    assert f"slipway: {message}" in done.stdout
    assert "slipway-hint: see " in done.stdout


def test_compute_node_says_that_it_is_full(fsx: Host) -> None:
    full = "mount -t tmpfs -o size=4k,nr_inodes=2 none /fsx && (head -c 9000 /dev/zero >/fsx/x; true)"
    done = step(fsx, COMPUTE, before=full)
    assert "WARNING /fsx is full: no block is free" in done.stdout
    assert "WARNING /fsx has no free inode" in done.stdout
