"""Packages that stay at the image's versions: with Debian's real tools, and dnf's configuration with a stand-in rpm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .host import Host
from .installed import install, step

pytestmark = pytest.mark.hosts
HOLD = "nodes/steps/11-hold-packages"
# Made with dpkg-deb: empty packages with the names that count, and some that must not be held.
HELD = [
    "cuda-toolkit-13-0",
    "efa",
    "libnccl-dev",
    "libnccl2",
    "libnvidia-compute-580",
    "linux-image-6.8.0-1015-aws",
    "lustre-client-modules-aws",
    "nvidia-fabricmanager",
    "nvlsm",
]
FREE = ["nvtop", "linuxinfo", "libefa-tools", "libncclient", "cuda-samples"]
MAKE = """
for name in {names}; do
  mkdir -p /srv/deb/$name/DEBIAN
  printf 'Package: %s\\nVersion: 1\\nArchitecture: all\\nMaintainer: none\\nDescription: empty\\n' $name >/srv/deb/$name/DEBIAN/control
  dpkg-deb --build /srv/deb/$name /srv/deb/$name.deb >/dev/null
done
dpkg --force-all --install /srv/deb/*.deb
"""
RPM = b"#!/bin/sh\nprintf '%s\\n' kernel6.12 kernel-devel lustre-client nvidia-driver bash efa libfabric-aws kmod kmod-nvidia-open libnccl libnccl-devel nvlsm cuda-toolkit-12-8\n"


@pytest.fixture(scope="module")
def node(host: Host) -> Host:
    install(host)
    host.run(MAKE.format(names=" ".join(HELD + FREE)))
    return host


def held(host: Host) -> set[str]:
    return set(host.run("dpkg --get-selections | sed -n 's/\\(:amd64\\)\\?[[:space:]]*hold$//p'").stdout.split())


def select(host: Host, state: str, *names: str) -> None:
    """What apt-mark does, without apt's cache."""
    host.run(f"printf '%s {state}\\n' {' '.join(names)} | dpkg --set-selections")


def test_only_what_is_installed_is_held_and_twice_the_same(node: Host) -> None:
    done = step(node, HOLD)
    assert set(HELD) <= held(node) == set(node.run("apt-mark showhold").stdout.split())
    assert not set(FREE) & held(node)
    assert "slipway: held: " in done.stdout
    again = step(node, HOLD)
    assert again.stdout == "slipway: nothing to hold that is not held\n"


def test_what_a_site_holds_stays_held(node: Host) -> None:
    select(node, "hold", FREE[0])
    select(node, "install", "efa")
    step(node, HOLD)
    assert {FREE[0], "efa"} <= held(node)
    select(node, "install", FREE[0])


def test_head_node_does_the_same(node: Host) -> None:
    assert "nothing to hold" in step(node, "nodes/steps/11-hold-packages").stdout


def test_unattended_upgrades_is_told_the_same_names(node: Host) -> None:
    step(node, HOLD)
    told = node.run("apt-config dump Unattended-Upgrade::Package-Blacklist").stdout
    pattern = told.split('Blacklist:: "')[1].split('"')[0]
    script = f"import re,sys; print([n for n in sys.argv[1:] if re.match({pattern!r}, n)])"
    node.put("/srv/match.py", script.encode())
    assert node.run(f"python3 /srv/match.py {' '.join(HELD + FREE)}").stdout.strip() == str(HELD)


def test_lock_held_by_another_program_is_waited_for_and_then_said(node: Host) -> None:
    select(node, "install", "efa")
    node.put("/usr/local/bin/dpkg", b"#!/bin/sh\nexit 2\n", 0o755)
    node.put("/usr/local/bin/sleep", b"#!/bin/sh\n", 0o755)
    done = step(node, HOLD, check=False)
    node.run("rm /usr/local/bin/dpkg /usr/local/bin/sleep")
    assert done.returncode == 1
    assert "try 2 of 3 failed with exit 2" in done.stdout
    assert "slipway: cannot hold packages: efa" in done.stdout
    step(node, HOLD)


def test_package_database_that_cannot_be_read_is_said(node: Host) -> None:
    node.put("/usr/local/bin/dpkg-query", b"#!/bin/sh\nexit 2\n", 0o755)
    done = step(node, HOLD, check=False)
    node.run("rm /usr/local/bin/dpkg-query")
    assert "slipway: dpkg-query cannot list the installed packages" in done.stdout


# ---------------------------------------------------------------------------------------------------------------- dnf

AMAZON = """[main]
gpgcheck=True
installonly_limit=3
excludepkgs=site-thing, other
  third
skip_if_unavailable=True

[repo]
name=x
"""
EXCLUDED = (
    "cuda-toolkit-12-8 efa kernel-devel kernel6.12 kmod-nvidia-open libfabric-aws libnccl libnccl-devel lustre-client "
    "nvidia-driver nvlsm other site-thing third"
)


@pytest.fixture
def dnf(node: Host) -> Iterator[Host]:
    """The host as Amazon Linux has it: no dpkg, a dnf.conf, an rpm."""
    node.put("/usr/local/bin/rpm", RPM, 0o755)
    node.run("mkdir -p /etc/dnf")
    node.put("/etc/dnf/dnf.conf", AMAZON.encode())
    node.run("mv /usr/bin/dpkg-query /srv/")
    try:
        yield node
    finally:
        node.run("mv /srv/dpkg-query /usr/bin/; rm -rf /etc/dnf /usr/local/bin/rpm")


def test_dnf_leaves_them_alone_and_keeps_the_sites_own(dnf: Host) -> None:
    done = step(dnf, HOLD)
    assert f"slipway: dnf leaves alone: {EXCLUDED}\n" in done.stdout
    text = dnf.run("cat /etc/dnf/dnf.conf").stdout
    assert text.splitlines()[0] == "[main]"
    assert text.splitlines()[1].startswith("# slipway: ")
    assert text.splitlines()[2:] == [
        f"excludepkgs={EXCLUDED}",
        "gpgcheck=True",
        "installonly_limit=3",
        "skip_if_unavailable=True",
        "",
        "[repo]",
        "name=x",
    ]
    inode = dnf.run("stat -c %i /etc/dnf/dnf.conf").stdout
    step(dnf, HOLD)
    assert dnf.run("cat /etc/dnf/dnf.conf; stat -c %i /etc/dnf/dnf.conf").stdout == text + inode


def test_lines_that_go_on_are_kept_as_they_are(dnf: Host) -> None:
    dnf.put("/etc/dnf/dnf.conf", b"[main]\nproxy=x\n  y\n")
    step(dnf, HOLD)
    assert "proxy=x\n  y\n" in dnf.run("cat /etc/dnf/dnf.conf").stdout


def test_rpm_that_fails_changes_nothing(dnf: Host) -> None:
    dnf.put("/usr/local/bin/rpm", b"#!/bin/sh\nexit 1\n", 0o755)
    done = step(dnf, HOLD, check=False)
    assert "slipway: rpm cannot list the installed packages" in done.stdout
    assert dnf.run("cat /etc/dnf/dnf.conf").stdout == AMAZON


def test_neither_apt_nor_dnf(dnf: Host) -> None:
    dnf.run("rm /etc/dnf/dnf.conf")
    done = step(dnf, HOLD, check=False)
    assert done.returncode == 1
    assert "nothing holds kernel and driver" in done.stdout
