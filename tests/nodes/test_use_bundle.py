"""use-bundle.sh: arguments, values, and that a kill of the bootstrap action at any moment leaves one whole release in use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import LOAD, ROOT, name_bundle, pack
from .host import Host

pytestmark = pytest.mark.hosts
GOOD = "a" * 64
HEAD, COMPUTE = LOAD.format(kind="head"), LOAD.format(kind="compute")
USE = "/srv/thin/nodes/use-bundle.sh"
SCRIPTS = [ROOT / "nodes/use-bundle.sh", *(ROOT / "nodes/lib").glob("*.*")]
THIN = {str(path.relative_to(ROOT)): (path.read_bytes(), 0o755) for path in SCRIPTS}
THIN["node.env"] = (b"A=1\n", 0o644)


def bundle(version: str) -> bytes:
    """Return a bundle whose set-up script says which version it is; large enough for a kill to hit its unpacking."""
    setup = f'#!/bin/bash\necho "setup of {version}"\n'.encode()
    files = {f"filler/{number}": (version.encode() * 20000, 0o644) for number in range(40)}
    files |= {
        **THIN,
        "node.env": (f"VERSION={version}\nREGION=us-east-1\n".encode(), 0o644),
        "headnode/setup-headnode.sh": (setup, 0o755),
        "compute/setup-compute.sh": (setup, 0o755),
    }
    return pack(files)


@pytest.fixture
def node(host: Host) -> Iterator[Host]:
    """The machine with nothing of Slipway installed."""
    host.put("/srv/thin.tgz", pack(THIN))
    host.run("mkdir -p /srv/thin && tar --extract --gzip --file /srv/thin.tgz --directory /srv/thin")
    yield host
    host.run("rm -rf /opt/slipway /etc/slipway /srv/s3/.slow")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("", "0 arguments"),
        ("head s3://b/k", "2 arguments"),
        (f"login s3://bkt/k {GOOD}", "kind 'login'"),
        (f"head http://bkt/k {GOOD}", "bundle 'http://bkt/k'"),
        (f"head 's3://bkt/$(id)' {GOOD}", "is not s3://BUCKET/KEY"),
        ("head s3://bkt/k abc", "sha256 'abc'"),
        (f"head s3://bkt/k {GOOD} lower=1", "is not KEY=VALUE"),
        (f"head s3://bkt/k {GOOD} $'K=a\\nB=b'", "is not KEY=VALUE"),
    ],
)
def test_bad_arguments(node: Host, arguments: str, named: str) -> None:
    done = node.run(f"{USE} {arguments}", check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("slipway: FAULT host=head step=use-bundle exit=2 ")
    assert named in done.stdout
    assert node.run("test -e /opt/slipway", check=False).returncode == 1


def test_values_of_bundle_arguments_and_site_in_this_order(node: Host) -> None:
    node.run("mkdir -p /etc/slipway; echo REGION=site >/etc/slipway/site.env")
    name_bundle(node, "old", bundle("old"), "VERSION=argument", 'NASTY=$(touch /srv/canary) `id` "x" = y')
    assert node.run(HEAD).stdout == "setup of old\n"
    lines = [line for line in node.run("cat /etc/slipway/node.env").stdout.splitlines() if not line.startswith("#")]
    assert lines == [
        "VERSION=old",
        "REGION=us-east-1",
        "NODE_KIND=headnode",
        "RESULTS_BUCKET=results-1",
        "VERSION=argument",
        'NASTY=$(touch /srv/canary) `id` "x" = y',
        "REGION=site",
    ]
    assert node.run("test -e /srv/canary", check=False).returncode == 1


def test_bundle_without_a_setup_script_is_refused(node: Host) -> None:
    name_bundle(node, "thin", pack(THIN))
    done = node.run(COMPUTE, check=False)
    assert done.returncode == 1
    assert "s3://assets/thin.gz has no compute/setup-compute.sh" in done.stdout
    assert node.run("ls -A /opt/slipway").stdout.split() == ["releases"]


def test_release_that_is_not_there_is_refused(node: Host) -> None:
    done = node.run(f"{USE} head s3://assets/old.gz {GOOD}", check=False)
    assert done.returncode == 1
    assert (
        "step=use-bundle exit=1 release aaaaaaaaaaaa is not on this node. Hint: load-bundle.sh fetches it"
        in done.stdout
    )
    assert node.run("ls -A /etc/slipway /opt/slipway/releases").stdout.split() == [
        "/etc/slipway:",
        "/opt/slipway/releases:",
    ]


def test_values_that_cannot_be_written_are_a_fault_of_this_script(node: Host) -> None:
    name_bundle(node, "old", bundle("old"))
    node.run("mkdir -p /etc/slipway/node.env")
    done = node.run(HEAD, check=False)
    assert done.returncode == 1
    assert "step=use-bundle exit=1 cannot write /etc/slipway/node.env. Hint: is it read-only or full?" in done.stdout
    assert node.run("test -e /opt/slipway/current", check=False).returncode == 1


def test_failing_setup_keeps_its_exit_code_whatever_cannot_be_kept_of_it(node: Host) -> None:
    name_bundle(node, "fails", pack({**THIN, "compute/setup-compute.sh": (b"#!/bin/bash\nexit 9\n", 0o755)}))
    node.run("rm -rf /var/lib/slipway")
    done = node.run(COMPUTE, check=False)
    assert done.returncode == 9
    assert "the records of the failed setup could not be kept" in done.stdout
    assert "the state of this node could not be shared" in done.stdout


def test_the_umask_of_the_caller_changes_no_mode(node: Host) -> None:
    name_bundle(node, "old", bundle("old"))
    node.run(f"rm -f /run/slipway-*.lock; umask 077; {HEAD}")
    daemons_read = "/opt/slipway /opt/slipway/releases /opt/slipway/current/ /opt/slipway/current/nodes /etc/slipway /etc/slipway/node.env"
    locks = "/run/slipway-load.lock /run/slipway-use.lock"
    modes = node.run(f"stat --format %a {daemons_read} {locks}").stdout.split()
    assert modes == ["755", "755", "755", "755", "755", "644", "600", "600"]


def test_kill_at_any_moment_leaves_a_whole_release(node: Host) -> None:
    name_bundle(node, "old", bundle("old"))
    node.run(HEAD)
    name_bundle(node, "new", bundle("new"))
    # Each round is killed a little later, until one gets through; then everything starts from the old release again.
    script = f"""
    whole() {{ # the release in use is whole, and node.env is of one version
      version=$(sed -n 's/^VERSION=//p' /opt/slipway/current/node.env)
      [ "$(ls /opt/slipway/current/filler | wc -l)" = 40 ] || return 1
      [ "$(cat /opt/slipway/current/filler/* | wc -c)" = 2400000 ] || return 1
      grep -Eqx 'VERSION=(old|new)' /etc/slipway/node.env && grep -qx REGION=us-east-1 /etc/slipway/node.env || return 1
      echo "whole $version"
    }}
    touch /srv/s3/.slow
    delay=0
    while [ $delay -lt 8000 ]; do
      rc=0
      timeout --signal=KILL $(printf '0.%03d' $((delay + 1))) bash -c '{HEAD}' >/dev/null 2>&1 || rc=$?
      whole || {{ echo "broken after $delay ms"; exit 1; }}
      [ $rc -ne 0 ] || break
      delay=$((delay + 15 + delay / 20))
    done
    echo "last after $delay ms: rc $rc"
    ls -A /opt/slipway /etc/slipway
    """
    out = node.run(script, timeout=240).stdout
    assert "whole new" in out
    assert "whole old" in out
    assert " rc 0" in out
    # Nothing of the killed rounds is left.
    assert out.split("rc 0\n")[1].split() == ["/etc/slipway:", "node.env", "/opt/slipway:", "current", "releases"]
