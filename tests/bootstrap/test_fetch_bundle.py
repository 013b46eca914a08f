"""fetch-bundle.sh: arguments, checksum, and that a kill at any moment leaves one whole release in use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from .conftest import ROOT, pack
from .host import Host

pytestmark = pytest.mark.hosts
GOOD = "a" * 64


def bundle(version: str) -> bytes:
    """Return a bundle whose setup script says which version it is; large enough for a kill to hit its unpacking."""
    setup = f'#!/bin/bash\necho "setup of {version}"\n'.encode()
    files = {f"filler/{number}": (version.encode() * 20000, 0o644) for number in range(40)}
    files |= {
        "bootstrap/common.sh": (b"", 0o644),
        "node.env": (f"VERSION={version}\nREGION=us-east-1\n".encode(), 0o644),
        "headnode/setup-headnode.sh": (setup, 0o755),
        "compute/setup-compute.sh": (setup, 0o755),
    }
    return pack(files)


@pytest.fixture
def fetch(host: Host) -> Iterator[Host]:
    """The machine with two bundles in its S3, and nothing of Slipway installed."""
    host.put("/srv/fetch-bundle.sh", (ROOT / "bootstrap/fetch-bundle.sh").read_bytes(), 0o755)
    for version in ("old", "new"):
        content = bundle(version)
        host.put(f"/srv/s3/assets/{version}.gz", content)
        host.put(f"/srv/{version}.sha", hashlib.sha256(content).hexdigest().encode())
    yield host
    host.run("rm -rf /opt/slipway /etc/slipway /srv/s3/.slow")


def call(version: str, *pairs: str) -> str:
    quoted = " ".join(f"'{pair}'" for pair in pairs)
    return f"/srv/fetch-bundle.sh head s3://assets/{version}.gz $(cat /srv/{version}.sha) {quoted}"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("", "0 arguments"),
        ("head s3://b/k", "2 arguments"),
        (f"login s3://bkt/k {GOOD}", "kind 'login'"),
        (f"head http://bkt/k {GOOD}", "bundle 'http://bkt/k'"),
        (f"head 's3://bkt/$(id)' {GOOD}", "is no s3://BUCKET/KEY"),
        ("head s3://bkt/k abc", "sha256 'abc'"),
        (f"head s3://bkt/k {GOOD} lower=1", "is no KEY=VALUE"),
        (f"head s3://bkt/k {GOOD} $'K=a\\nB=b'", "is no KEY=VALUE"),
    ],
)
def test_bad_arguments(fetch: Host, arguments: str, named: str) -> None:
    done = fetch.run(f"/srv/fetch-bundle.sh {arguments}", check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("slipway: FAULT host=head step=fetch-bundle exit=2 ")
    assert named in done.stdout
    assert fetch.run("test -e /opt/slipway", check=False).returncode == 1


def test_values_of_bundle_arguments_and_site_in_this_order(fetch: Host) -> None:
    fetch.run("mkdir -p /etc/slipway; echo REGION=site >/etc/slipway/site.env")
    assert (
        fetch.run(call("old", "VERSION=argument", 'NASTY=$(touch /srv/canary) `id` "x" = y')).stdout == "setup of old\n"
    )
    lines = [line for line in fetch.run("cat /etc/slipway/node.env").stdout.splitlines() if not line.startswith("#")]
    assert lines == [
        "VERSION=old",
        "REGION=us-east-1",
        "VERSION=argument",
        'NASTY=$(touch /srv/canary) `id` "x" = y',
        "REGION=site",
    ]
    assert fetch.run("test -e /srv/canary", check=False).returncode == 1


def test_wrong_checksum_keeps_the_release_in_use(fetch: Host) -> None:
    fetch.run(call("old"))
    done = fetch.run(f"/srv/fetch-bundle.sh head s3://assets/new.gz {GOOD}", check=False)
    assert done.returncode == 1
    assert f"expected {GOOD}" in done.stdout
    assert fetch.run("cat /opt/slipway/current/node.env").stdout.startswith("VERSION=old")
    assert fetch.run("ls -A /opt/slipway/releases").stdout.split() == [
        fetch.run("cut -c 1-12 /srv/old.sha").stdout.strip()
    ]


def test_bundle_without_a_setup_script_is_refused(fetch: Host) -> None:
    content = pack({"bootstrap/common.sh": (b"", 0o644), "node.env": (b"A=1\n", 0o644)})
    fetch.put("/srv/s3/assets/thin.gz", content)
    digest = hashlib.sha256(content).hexdigest()
    done = fetch.run(f"/srv/fetch-bundle.sh compute s3://assets/thin.gz {digest}", check=False)
    assert done.returncode == 1
    assert "holds no compute/setup-compute.sh" in done.stdout
    assert fetch.run("ls -A /opt/slipway").stdout.split() == ["releases"]


def test_archive_that_is_none_is_refused(fetch: Host) -> None:
    fetch.put("/srv/s3/assets/none.gz", b"no archive")
    digest = hashlib.sha256(b"no archive").hexdigest()
    done = fetch.run(f"/srv/fetch-bundle.sh compute s3://assets/none.gz {digest}", check=False)
    assert done.returncode == 1
    assert "s3://assets/none.gz cannot be unpacked" in done.stdout
    assert fetch.run("ls -A /opt/slipway/releases").stdout == ""


def test_failing_setup_keeps_its_exit_code_whatever_cannot_be_kept_of_it(fetch: Host) -> None:
    files = {"bootstrap/common.sh": (b"", 0o644), "node.env": (b"A=1\n", 0o644)}
    content = pack({**files, "compute/setup-compute.sh": (b"#!/bin/bash\nexit 9\n", 0o755)})
    fetch.put("/srv/s3/assets/fails.gz", content)
    digest = hashlib.sha256(content).hexdigest()
    fetch.run("rm -rf /var/lib/slipway")
    done = fetch.run(f"/srv/fetch-bundle.sh compute s3://assets/fails.gz {digest}", check=False)
    assert done.returncode == 9
    assert "the records of the failed setup could not be kept" in done.stdout
    assert "the state of this node could not be shared" in done.stdout


def test_missing_bundle_says_what_to_try(fetch: Host) -> None:
    # The pauses are the point of the retry, not of this test.
    done = fetch.run(
        f"sleep() {{ :; }}; export -f sleep; /srv/fetch-bundle.sh head s3://assets/absent.gz {GOOD}", check=False
    )
    assert done.returncode == 1
    assert "cannot read s3://assets/absent.gz after 5 tries" in done.stdout
    assert "instance policy" in done.stdout


def test_second_run_fetches_nothing(fetch: Host) -> None:
    fetch.run(call("old"))
    fetch.run("rm /srv/s3/assets/old.gz")
    assert "is here already\nsetup of old\n" in fetch.run(call("old")).stdout


def test_kill_at_any_moment_leaves_a_whole_release(fetch: Host) -> None:
    fetch.run(call("old"))
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
    while [ $delay -lt 900 ]; do
      rc=0
      timeout --signal=KILL $(printf '0.%03d' $((delay + 1))) bash -c '{call("new")}' >/dev/null 2>&1 || rc=$?
      whole || {{ echo "broken after $delay ms"; exit 1; }}
      [ $rc -ne 0 ] || break
      delay=$((delay + 15))
    done
    echo "rounds $((delay / 15)) rc $rc"
    ls -A /opt/slipway /etc/slipway
    """
    out = fetch.run(script, timeout=120).stdout
    assert "whole new" in out
    assert "whole old" in out
    assert " rc 0" in out
    # Nothing of the killed rounds is left.
    assert out.split("rc 0\n")[1].split() == ["/etc/slipway:", "node.env", "/opt/slipway:", "current", "releases"]
