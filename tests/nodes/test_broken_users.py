"""What users who may write below /fsx can do to root's scripts: links, pipes, locks and files in the places of others'.

The machine has fs.protected_symlinks off, as a kernel may: the scripts must not rest on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import host as machine
from .host import Host
from .registry import KEY, furnish

pytestmark = pytest.mark.hosts
LOGS, IMAGES, NAME = "/fsx/logs/container-downloads", "/fsx/containers", "nvcr.io_public_small-1.sqsh"
DOWNLOAD = f"NGC_API_KEY={KEY} timeout 80 /fsx/scripts/download-ngc-containers.sh --progress 0.5 --pause 0.1"
VICTIM = "root:x:0:0:what no user may change:/root:/bin/bash\n"
READ_STATUS = "/opt/slipway/current/nodes/status/node_status.py --shared"


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    reason = machine.missing()
    if reason:
        pytest.skip(reason)
    booted = Host(tmp_path_factory.mktemp("host"))
    try:
        furnish(booted, tmp_path_factory.mktemp("work"))
        booted.put("/srv/list", b"docker://nvcr.io/public/small:1\n")
        booted.run("useradd mallory; chmod 666 /dev/null")
        yield booted
    finally:
        booted.close()


def mallory(host: Host, script: str) -> None:
    """Run a line as a user without rights, in the background where it says so."""
    host.run(f"setpriv --reuid=mallory --regid=mallory --clear-groups bash -c '{script}'")


@pytest.fixture
def clean(head: Host) -> Iterator[Host]:
    """The machine with a file that root alone may change, and nothing of mallory's afterwards."""
    head.put("/etc/victim", VICTIM.encode(), 0o600)
    yield head
    head.run(f"pkill -KILL -u mallory; rm -rf {LOGS}/* {LOGS}/.st* {IMAGES}/nvcr* {IMAGES}/.nvcr* /fsx/results/*; true")


def imported(host: Host) -> str:
    return host.run(f"{DOWNLOAD} /srv/list").stdout


def hold(lock: str) -> str:
    """A line that takes a lock for 300 s in the background, and ends when it is held."""
    return f"flock {lock} sleep 300 >/dev/null 2>&1 & while flock --nonblock {lock} true; do sleep 0.05; done"


PLANTED = {
    "a link in the place of an image's log": f"ln -s /etc/victim {LOGS}/{NAME}.log",
    "a link in the place of the table": f"ln -s /etc/victim {LOGS}/status.tsv",
    "a link where the table is written": f"ln -s /etc/victim {LOGS}/.status.tsv.new",
    "a pipe in the place of the table": f"mkfifo {LOGS}/status.tsv",
    "a link in the place of the note": f"ln -s /etc/victim {IMAGES}/.{NAME}.info",
    "a pipe in the place of the table's lock": f"mkfifo {LOGS}/.status.lock",
    "a lock that is never given back": hold(f"{LOGS}/.status.lock"),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=list(PLANTED))
def test_an_import_as_root_follows_and_waits_for_nothing_of_a_user(clean: Host, planted: str) -> None:
    mallory(clean, planted)
    assert "1 of 1 images are there" in imported(clean)
    assert clean.run("cat /etc/victim").stdout == VICTIM
    table = clean.run(f"timeout 5 cat {LOGS}/status.tsv 2>&1 || true").stdout
    assert "what no user may change" not in table
    if "lock" not in planted:
        assert table.rpartition("\t")[0] == f"{NAME}\tready\tdocker://nvcr.io/public/small:1"  # and when


def test_a_pipe_in_the_place_of_an_images_lock_is_told(clean: Host) -> None:
    mallory(clean, f"mkfifo {IMAGES}/.{NAME}.lock")
    out = clean.run(f"{DOWNLOAD} /srv/list", check=False).stdout
    assert "is not a plain file" in out
    assert f"{IMAGES}/.{NAME}.lock" in out


def test_an_images_lock_that_is_held_for_ever_is_not_waited_for(clean: Host) -> None:
    mallory(clean, hold(f"{IMAGES}/.{NAME}.lock"))
    out = clean.run(f"{DOWNLOAD} --timeout 1 /srv/list", check=False).stdout
    assert f"another run holds it for more than 1 s: see 'fuser' of {IMAGES}/.{NAME}.lock" in out
    assert "0 of 1 images are there" in out


def test_an_image_of_a_user_is_said_to_be_his_and_listed_without_its_controls(clean: Host) -> None:
    mallory(clean, f"echo x >{IMAGES}/{NAME}; mkfifo {IMAGES}/.{NAME}.info; touch {IMAGES}/$(printf nvcr\\\\033c).sqsh")
    assert "is there already (made by the user mallory); its digest was not noted" in imported(clean)
    listed = clean.run(f"timeout 60 {IMAGES}/list-containers.sh").stdout
    assert f"{IMAGES}/{NAME}" in listed
    assert "\033" not in listed


def test_roots_file_among_the_users_is_written_beside_no_link(clean: Host) -> None:
    """A link under every name that root's next process may take for its temporary file."""
    target = f"{IMAGES}/.list-containers.sh.slipway-new"
    clean.run(f"rm {IMAGES}/list-containers.sh; cp /opt/slipway/current/headnode/user/list-containers.sh /srv/equal")
    plant = f"cp /srv/equal {IMAGES}/list-containers.sh; for n in $(seq $(($$ + 10)) $(($$ + 600))); do echo {target}.$n; done"
    mallory(clean, f"{plant} | xargs -n 1 ln -s /etc/victim")
    clean.run("/opt/slipway/current/headnode/steps/12-user-scripts.sh")
    assert clean.run("cat /etc/victim").stdout == VICTIM
    # An equal file of mallory's is not kept: he may have it open.
    assert clean.run(f"stat -c '%U %a' {IMAGES}/list-containers.sh").stdout == "root 755\n"
    clean.run(f"rm -f {target}.*")


def test_no_user_can_hold_the_locks_of_the_setup(clean: Host) -> None:
    common = "source /opt/slipway/current/nodes/lib/all.sh"
    clean.run(f"{common}; mkdir -p /run/slipway; touch /run/slipway/setup.lock; file::lock /run/slipway/setup.lock")
    clean.run("/opt/slipway/current/headnode/steps/10-fsx-layout.sh")
    clean.run("/usr/bin/python3 -B /opt/slipway/current/nodes/health --record || true")
    for lock in ("/run/slipway/setup.lock", "/run/slipway/fsx-layout.lock", "/run/slipway/health/lock"):
        assert clean.run(f"stat -c '%a %U' {lock}").stdout == "600 root\n", lock
        held = clean.run(f"setpriv --reuid=mallory --regid=mallory --clear-groups flock -n {lock} true", check=False)
        assert held.returncode != 0, lock


@pytest.mark.parametrize("planted", ["mkfifo", "ln -s /dev/zero", "ln -s /etc/victim"])
def test_the_status_waits_for_no_report_of_a_user(clean: Host, planted: str) -> None:
    clean.run('mkdir /fsx/results/1; echo \'{"run_id": "1", "verdict": "accepted"}\' >/fsx/results/1/report.json')
    mallory(clean, f"mkdir /fsx/results/2; {planted} /fsx/results/2/report.json")
    told = json.loads(clean.run(f"ulimit -v 2000000; timeout 60 {READ_STATUS}").stdout)
    assert told["acceptance"]["run_id"] == "1"


def test_a_bad_bound_of_the_steps_is_told_and_no_step_runs(clean: Host) -> None:
    run = (
        'STEP=/opt/slipway/current/headnode/steps/10-fsx-layout.sh; steps::run_one headnode "$STEP" || echo "ended $?"'
    )
    out = clean.run(
        f"source /opt/slipway/current/nodes/lib/all.sh; NODE_ENV[STEP_TIMEOUT_S]='$(touch /srv/ran)'; {run}; ls /srv/ran || true"
    ).stdout
    assert "STEP_TIMEOUT_S = '$(touch /srv/ran)': not a whole number" in out
    assert "ended 1" in out
    assert "step headnode/10-fsx-layout started" not in out
    assert "cannot access '/srv/ran'" in out


def test_a_step_during_which_the_clock_is_set_back_has_its_true_time(clean: Host, tmp_path: Path) -> None:
    """`date` of a clock that goes an hour back with each look; the record stays JSON."""
    clean.put(
        "/srv/clock/date",
        b'#!/bin/bash\nn=$(cat /srv/n); echo $((n - 3600)) >/srv/n\nexec /bin/date --date="@$n" "$@"\n',
        0o755,
    )
    step = "#!/bin/bash\n# A step.\n# on failure: stop\n# timeout: 60 s\nexit 0\n"
    clean.put("/srv/10-step.sh", step.encode(), 0o755)
    clean.run(
        "date +%s >/srv/n; mkdir -p /var/log/slipway /var/lib/slipway/steps; source /opt/slipway/current/nodes/lib/all.sh; "
        "PATH=/srv/clock:$PATH; steps::run_one compute /srv/10-step.sh"
    )
    record = json.loads(
        clean.run("cat /var/lib/slipway/steps/10-step.json; rm /var/lib/slipway/steps/10-step.json").stdout
    )
    assert 0 <= record["seconds"] < 60


BACKGROUND = "/var/lib/slipway/background"


def test_an_import_that_was_killed_or_never_began_is_no_longer_waited_for(clean: Host) -> None:
    """SIGKILL leaves no last word, and neither does an end before the first one."""
    slow = "printf '#!/bin/bash\nexec sleep 1000\n' >/usr/local/bin/enroot; chmod 755 /usr/local/bin/enroot"
    key = f"mkdir -p /run/systemd/system/slipway-containers.service.d; printf '[Service]\nEnvironment=NGC_API_KEY={KEY}\n' >/run/systemd/system/slipway-containers.service.d/key.conf"
    state = f"{BACKGROUND}/containers.json"
    clean.run(f"cp /usr/local/bin/enroot /srv/enroot; {slow}; {key}; rm -f {state}")
    clean.run("/opt/slipway/current/headnode/steps/50-containers.sh")
    clean.run(f"until grep -q running {state}; do sleep 0.1; done; systemctl kill --signal=KILL slipway-containers")
    clean.run(f"until grep -q failed {state}; do sleep 0.1; done; cp /srv/enroot /usr/local/bin/enroot")
    told = json.loads(clean.run(f"cat {state}").stdout)
    assert told["detail"].startswith("ended (signal) while: 0 of 1 images are there")
    assert told["hint"].endswith("then: sudo systemctl restart slipway-containers")
    clean.run(
        "echo CONTAINERS_FORMAT=none >>/etc/slipway/node.env; /opt/slipway/current/headnode/steps/50-containers.sh"
    )
    clean.run(f"until grep -q failed {state}; do sleep 0.1; done; sed -i '$ d' /etc/slipway/node.env")
    assert "ended (exit-code) while: queued" in clean.run(f"cat {state}").stdout
    # What ended well, or said itself how it ended, is left alone.
    before = clean.run(f"cat {state}").stdout
    clean.run(
        "SERVICE_RESULT=exit-code /opt/slipway/current/nodes/lib/state.py ended containers; /opt/slipway/current/nodes/lib/state.py ended containers"
    )
    assert clean.run(f"cat {state}").stdout == before


@pytest.mark.parametrize("option", ["--at-once=-5", "--at-once=65", "--progress=0", "--timeout=nan", "--stall=-1"])
def test_numbers_without_sense_are_refused(clean: Host, option: str) -> None:
    name, value = option.split("=")
    done = clean.run(f"/fsx/scripts/download-ngc-containers.sh {name} {value} /srv/list", check=False)
    assert done.returncode == 2
    assert f"argument {name}: invalid" in done.stdout


def test_a_list_of_windows_is_read(clean: Host) -> None:
    clean.put("/srv/windows", b"\xef\xbb\xbfdocker://nvcr.io/public/small:1\r\n")
    assert "1 of 1 images are there" in clean.run(f"{DOWNLOAD} /srv/windows").stdout


def test_a_word_that_is_neither_true_nor_false_does_not_switch_the_health_checks_off(clean: Host) -> None:
    clean.run("echo HEALTH_ENABLED=True >>/etc/slipway/node.env")
    done = clean.run("/opt/slipway/current/compute/steps/45-health.sh", check=False)
    clean.run("sed -i '$ d' /etc/slipway/node.env")
    assert done.returncode == 1
    assert "HEALTH_ENABLED = 'True': neither true nor false" in done.stdout
