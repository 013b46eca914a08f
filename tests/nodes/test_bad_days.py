"""The whole set-up of both kinds on bad days: the shared file system, S3, credentials, the clock, a state directory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .conftest import AWS, ROOT
from .host import Host
from .test_kill_sweep import INSTALL

pytestmark = pytest.mark.hosts
SETUP = {
    "head": "/opt/slipway/current/headnode/setup-headnode.sh",
    "compute": "/opt/slipway/current/compute/setup-compute.sh",
}
# What the AWS CLI says, and its exit codes.
NO_NETWORK = 'Could not connect to the endpoint URL: "https://mirror.s3.us-east-1.amazonaws.com/"'
NO_CREDENTIALS = "fatal error: Unable to locate credentials"  # the metadata service does not answer
CLOCK = "fatal error: An error occurred (RequestTimeTooSkewed): The difference between the request time and the current time is too large."
SAYS = "printf '#!/bin/bash\\necho %q >&2\\nexit {code}\\n' '{text}' >/usr/local/bin/aws"
HANGS = "printf '#!/bin/bash\\nexec /bin/sleep 1000\\n' >/usr/local/bin/aws"
FRESH = "rm -rf /var/cache/slipway /opt/slipway/software"


@dataclass(frozen=True)
class Day:
    """kind: whose set-up; broken, mended: bash; told: what its output says; code: its exit code.

    `logged` is in the log of the step 20-prometheus: the output of a step that only warns is not repeated.
    """

    kind: str
    broken: str
    mended: str
    told: tuple[str, ...]
    code: int = 1
    logged: str = ""


NO_AWS = "true"
DAYS = {
    "head: /fsx is not mounted": Day(
        "head",
        "umount /fsx",
        "mount -t tmpfs -o mode=755 fsx /fsx",
        ("FAULT host=head step=headnode/10-fsx-layout exit=1", "/fsx is not mounted"),
    ),
    "compute: /fsx is not mounted": Day(
        "compute",
        "umount /fsx; echo STEP_TIMEOUT_S=5 >>/etc/slipway/node.env",
        "mount -t tmpfs -o mode=755 fsx /fsx",
        ("FAULT host=head step=compute/10-fsx exit=124 exceeded 5 s",),
    ),
    "head: /fsx is read-only": Day(
        "head",
        "mount -o remount,ro /fsx",
        "mount -o remount,rw /fsx",
        ("FAULT host=head step=headnode/10-fsx-layout exit=1", "ead-only"),
    ),
    "compute: /fsx is read-only": Day(
        "compute", "mount -o remount,ro /fsx", "mount -o remount,rw /fsx", ("step=compute/10-fsx exit=1", "ead-only")
    ),
    "head: /fsx is full": Day(
        "head",
        "umount /fsx; mount -t tmpfs -o size=64k,mode=755 fsx /fsx; head -c 200000 /dev/zero >/fsx/data || true",
        "umount /fsx; mount -t tmpfs -o mode=755 fsx /fsx",
        ("FAULT host=head step=headnode/1", "No space left on device"),
    ),
    "head: S3 does not answer": Day(
        "head",
        f"{HANGS}; {FRESH}; echo STEP_TIMEOUT_S=5 >>/etc/slipway/node.env",
        NO_AWS,
        (
            "WARNING host=head step=headnode/15-node-exporter exit=124",
            "WARNING host=head step=headnode/20-prometheus exit=124 exceeded 5 s",
            "set-up of this headnode node done",
        ),
        0,
    ),
    "compute: S3 does not answer": Day(
        "compute",
        f"{HANGS}; {FRESH}; echo STEP_TIMEOUT_S=5 >>/etc/slipway/node.env",
        NO_AWS,
        ("WARNING host=head step=compute/15-node-exporter exit=124 exceeded 5 s", "set-up of this compute node done"),
        0,
    ),
    "head: S3 cannot be reached": Day(
        "head",
        f"{SAYS.format(text=NO_NETWORK, code=255)}; {FRESH}",
        NO_AWS,
        (
            "WARNING host=head step=headnode/20-prometheus exit=1",
            "hint=SOFTWARE_MIRROR must hold",
            "set-up of this headnode node done",
        ),
        0,
        "Could not connect to the endpoint URL",
    ),
    "head: no credentials": Day(
        "head",
        f"{SAYS.format(text=NO_CREDENTIALS, code=255)}; {FRESH}",
        NO_AWS,
        ("WARNING host=head step=headnode/20-prometheus exit=1", "set-up of this headnode node done"),
        0,
        "Unable to locate credentials",
    ),
    "compute: the clock is wrong": Day(
        "compute",
        f"{SAYS.format(text=CLOCK, code=1)}; {FRESH}",
        NO_AWS,
        ("WARNING host=head step=compute/15-node-exporter exit=1", "set-up of this compute node done"),
        0,
    ),
    "compute: its state cannot be written": Day(
        "compute",
        "mkdir -p /srv/ro/steps; mount -t tmpfs -o ro none /var/lib/slipway",
        "umount /var/lib/slipway",
        ("/var/lib/slipway",),
    ),
    "compute: its log cannot be written": Day(
        "compute",
        "mount -t tmpfs -o size=16k none /var/log/slipway; head -c 100000 /dev/zero >/var/log/slipway/data || true",
        "umount /var/log/slipway",
        ("No space left on device",),
    ),
}


@pytest.fixture(scope="module")
def installed(node: Host) -> Host:
    """The machine with a release in use, whose pauses between two tries are none."""
    node.run(INSTALL)
    node.put(
        "/usr/local/bin/sleep",
        b'#!/bin/bash\n[[ $1 == [0-9]* ]] && exec /bin/sleep 0.01\nexec /bin/sleep "$@"\n',
        0o755,
    )
    return node


@pytest.mark.parametrize("name", DAYS)
def test_a_bad_day_is_told_in_bounded_time(installed: Host, name: str) -> None:
    day = DAYS[name]
    installed.run(day.broken)
    try:
        done = installed.run(SETUP[day.kind], check=False)
    finally:
        installed.put("/usr/local/bin/aws", AWS, 0o755)
        installed.run(f"{day.mended}; cp /opt/slipway/current/node.env /etc/slipway/node.env")
    assert done.returncode == day.code, done.stdout
    for words in day.told:
        assert words in done.stdout
    if day.logged:
        assert day.logged in installed.run("cat /var/log/slipway/20-prometheus.log").stdout
    assert "unbound variable" not in done.stdout


@pytest.mark.parametrize("kind", SETUP)
def test_slow_answers_are_waited_for(installed: Host, kind: str) -> None:
    installed.run(f"{FRESH}; touch /srv/s3/.slow")
    done = installed.run(SETUP[kind], check=False)
    installed.run("rm /srv/s3/.slow")
    assert done.returncode == 0, done.stdout
    assert "FAULT" not in done.stdout


@pytest.mark.parametrize("kind", SETUP)
def test_two_setups_at_once_end_as_one(installed: Host, kind: str) -> None:
    installed.run(SETUP[kind])
    before = installed.snapshot("/fsx/logs", "/var/lib/slipway")
    done = installed.run(
        f"{SETUP[kind]} & one=$!; {SETUP[kind]} & two=$!; wait $one; one=$?; wait $two; echo codes $one $?"
    )
    after = installed.snapshot("/fsx/logs", "/var/lib/slipway")
    assert "codes 0 0" in done.stdout
    files = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    ignored = ("/etc/prometheus/targets", "/fsx/containers/.")
    assert {path for path in files if after.get(path, "f").startswith("f") and not path.startswith(ignored)} == set()


def test_wrong_clock_is_named_where_the_bundle_cannot_be_had(installed: Host) -> None:
    installed.put("/srv/load-bundle.sh", (ROOT / "nodes/load-bundle.sh").read_bytes(), 0o755)
    installed.run(SAYS.format(text=CLOCK, code=254))
    done = installed.run("/srv/load-bundle.sh compute us-east-1 /slipway/ml/bundle", check=False)
    installed.put("/usr/local/bin/aws", AWS, 0o755)
    assert done.returncode == 1
    assert "RequestTimeTooSkewed" in done.stdout
    assert "the clock" in done.stdout.splitlines()[-1]


CURRENT = "/opt/slipway/current"
MIRROR = "/srv/s3/mirror"
LONELY = {
    "the zipapp is damaged": (
        "headnode/steps/60-acceptance.sh",
        f"mv {CURRENT}/acceptance.pyz /srv/; echo no zip >{CURRENT}/acceptance.pyz",
        f"mv /srv/acceptance.pyz {CURRENT}/",
        "acceptance.pyz does not start",
    ),
    "its state cannot be shared": (
        "nodes/steps/90-report.sh",
        "rm -f /fsx/logs/slipway/nodes/*.json; mount -o remount,ro /fsx",  # what is there already is not written again
        "mount -o remount,rw /fsx",
        "could not be shared",
    ),
    "a line of the site's table is damaged": (
        "nodes/steps/15-node-exporter.sh",
        "printf 'node_exporter\\t1.9.1\\tabc\\thttps://x\\n' >/etc/slipway/software.tsv",
        "rm /etc/slipway/software.tsv",
        "/etc/slipway/software.tsv: line of node_exporter: not NAME, VERSION, SHA256, URL separated by tabs",
    ),
    "the mirror names a file that it does not hold": (
        "nodes/steps/15-node-exporter.sh",
        f"{FRESH}; mv {MIRROR}/node_exporter-1.9.1.linux-amd64.tar.gz /srv/",
        f"mv /srv/node_exporter-1.9.1.linux-amd64.tar.gz {MIRROR}/",
        "cannot fetch s3://mirror/node_exporter-1.9.1.linux-amd64.tar.gz",
    ),
    "a release without its program": (
        "nodes/steps/15-node-exporter.sh",
        f"{FRESH}; cp -r {MIRROR} /srv/s3/thin; cd /srv/s3/thin; mkdir a; tar czf node_exporter-1.9.1.linux-amd64.tar.gz a; "
        "sha256sum *.tar.gz >SHA256SUMS; echo SOFTWARE_MIRROR=s3://thin >>/etc/slipway/node.env",
        f"cp {CURRENT}/node.env /etc/slipway/node.env",
        "node_exporter-1.9.1.linux-amd64.tar.gz has no program node_exporter",
    ),
}


@pytest.mark.parametrize("name", LONELY)
def test_a_step_that_fails_says_why_and_what_to_do(installed: Host, name: str) -> None:
    step, broken, mended, told = LONELY[name]
    installed.run(broken)
    done = installed.run(f"{CURRENT}/{step}", check=False)
    installed.run(mended)
    assert done.returncode == 1
    assert told in done.stdout
    assert "\nslipway-hint: " in done.stdout


UNIT_THAT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={}\n"
# The clock of the wait runs fast: each pause counts for 20 s.
COMMON = f"source {CURRENT}/nodes/lib/all.sh; sleep() {{ /bin/sleep 0.2; SECONDS=$((SECONDS + 20)); }}"


def test_service_that_does_not_come_up_is_told_with_its_own_words(installed: Host) -> None:
    installed.put("/etc/systemd/system/bad.service", UNIT_THAT.format("/bin/sh -c 'echo no disk; exit 3'").encode())
    done = installed.run(f"{COMMON}; unit::ensure bad.service /etc/systemd/system/bad.service", check=False)
    assert done.returncode == 1
    assert "no disk" in done.stdout
    assert "bad.service did not start" in done.stdout
    installed.run("systemctl start --no-block bad.service")
    done = installed.run(f"{COMMON}; unit::wait_active bad.service", check=False)
    assert "bad.service is not running" in done.stdout
    done = installed.run(f"{COMMON}; unit::wait_http bad.service http://127.0.0.1:1/", check=False)
    assert done.returncode == 1
    assert "bad.service does not answer on http://127.0.0.1:1/ after 30 s" in done.stdout


def test_systemd_reads_a_new_unit_and_a_changed_one_and_no_other(installed: Host) -> None:
    units = "/etc/systemd/system/slipway-x"
    installed.put(f"{units}.timer", b"[Timer]\nOnActiveSec=9h\n[Install]\nWantedBy=timers.target\n")
    ensure = f"""
        source {CURRENT}/nodes/lib/all.sh
        systemctl() {{ [ "$1" != daemon-reload ] || echo reload; command systemctl "$@"; }}
        unit::ensure slipway-x.timer {units}.timer {units}.service; command systemctl is-active slipway-x.timer
        command systemctl show --property ExecStart slipway-x.service
    """
    for program, reload in (("/bin/true", False), ("/bin/false", True)):
        installed.put(f"{units}.service", f"[Service]\nExecStart={program}\n".encode())
        for again in (False, True):
            out = installed.run(ensure).stdout
            assert ("\nactive\n" in f"\n{out}", f"path={program} " in out) == (True, True), out
            assert ("reload" in out.splitlines()) == (reload and not again), out
    installed.run(f"systemctl disable --quiet --now slipway-x.timer; rm {units}.timer {units}.service")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (SETUP["compute"], "another setup ran for more than 900 s"),
        (
            f"{CURRENT}/nodes/use-bundle.sh compute s3://assets/bundle.gz {'a' * 64}",
            "another use-bundle.sh ran for more",
        ),
        (
            f"{CURRENT}/nodes/load-bundle.sh compute us-east-1 /p/q",
            "another load-bundle.sh ran for more than 900 s",
        ),
    ],
)
def test_another_run_that_does_not_end_is_not_waited_for_for_ever(installed: Host, command: str, told: str) -> None:
    done = installed.run(f"flock() {{ echo waited $2; return 1; }}; export -f flock; {command}", check=False)
    assert done.returncode == 1
    assert told in done.stdout
    assert "waited" in done.stdout
