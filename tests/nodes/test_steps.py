"""The steps of both node kinds on a real systemd: what they start, that a second run changes nothing, how they fail."""

from __future__ import annotations

import json
import re
import time

import pytest

from slipway.node_steps import steps_of

from .conftest import LOAD
from .host import Host

pytestmark = pytest.mark.hosts
HEAD, COMPUTE = LOAD.format(kind="head"), LOAD.format(kind="compute")
# The import of images is a oneshot unit: "activating" while it runs.
IMPORTED = (
    "for i in $(seq 400); do [[ $(systemctl is-active slipway-containers) == *activating ]] || break; sleep 0.2; done"
)
SINFO = b"""#!/bin/bash
printf 'train-st-gpu-1|10.0.0.11|train|idle|gpu:8\\ntrain-st-gpu-2|10.0.0.12|train|idle~|gpu:8\\n'
"""


@pytest.fixture(scope="module")
def head(node: Host) -> Host:
    """The machine after the head node's setup."""
    node.put("/usr/local/bin/sinfo", SINFO, 0o755)
    node.run(HEAD)
    return node


def test_every_step_reports_its_time(head: Host) -> None:
    log = head.run("cat /var/log/slipway/setup.log").stdout
    steps = [path.stem for path, _ in steps_of("headnode")]
    assert re.findall(r"step headnode/(\S+) ok \d+\.\d s", log) == steps


def test_a_set_up_takes_the_mirrors_list_once(head: Host) -> None:
    assert head.run("grep -c mirror/SHA256SUMS /run/aws.calls").stdout == "1\n"
    assert head.run("grep -c mirror/.*.tar.gz /run/aws.calls").stdout == "2\n"


def test_prometheus_answers_on_loopback_with_the_retention_asked_for(head: Host) -> None:
    assert "127.0.0.1:9090" in head.run("ss -ltn").stdout
    flags = json.loads(head.run("curl -sf http://127.0.0.1:9090/api/v1/status/flags").stdout)["data"]
    assert flags["storage.tsdb.retention.time"] == "30d"


def test_prometheus_scrapes_the_nodes_that_slurm_says_are_up(head: Host) -> None:
    end = time.monotonic() + 90  # three times what test_targets.py adds up: this machine may be slow
    labels: list[str] = []
    while time.monotonic() < end and "train-st-gpu-1" not in labels:
        time.sleep(0.5)
        answer = json.loads(head.run("curl -sf http://127.0.0.1:9090/api/v1/targets").stdout)
        labels = [target["labels"]["instance"] for target in answer["data"]["activeTargets"]]
    # The node that is powered off (idle~) has no exporter: it is no target.
    assert sorted(set(labels)) == ["127.0.0.1:9090", "head", "train-st-gpu-1"]


def test_fsx_has_the_layout_of_the_guide(head: Host) -> None:
    listing = head.run("cd /fsx && find . -mindepth 1 -not -name '.*' -printf '%P %m\\n'").stdout.splitlines()
    modes = dict(line.split() for line in listing)
    for shared in ("containers", "datasets", "checkpoints", "results", "logs/slurm", "logs/training"):
        assert modes[shared] == "1777"
    for fixed in ("scripts", "config", "nccl", "logs"):
        assert modes[fixed] == "755"
    for script in (
        "scripts/download-ngc-containers.sh",
        "scripts/check-containers.sh",
        "containers/list-containers.sh",
        "nccl/install-nccl-shared.sh",
        "nccl/apply-nccl-to-running-nodes.sh",
    ):
        assert modes[script] == "755"
    assert "config/containers.txt" in modes


def test_deploy_time_values_win_over_the_bundle(head: Host) -> None:
    value = head.run(
        "source /opt/slipway/current/nodes/lib/all.sh; env::load /etc/slipway/node.env; env::get RESULTS_BUCKET"
    ).stdout
    assert value == "results-1"


def test_second_run_changes_no_file_and_restarts_nothing(head: Host) -> None:
    # The import of images goes on in the background: it is waited for, so that it cannot change files in between.
    pids = "systemctl show --property MainPID slipway-prometheus slipway-node-exporter"
    idle = f"systemctl stop slipway-slurm-targets; {IMPORTED}"
    head.run(idle)
    before, running = head.snapshot("/fsx/logs"), head.run(pids).stdout
    head.run(f"{HEAD}; {idle}", timeout=200)
    after = head.snapshot("/fsx/logs")
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    # Directories whose time changed because a file in them was compared under a temporary name are no change.
    assert {path for path in changed if not (before.get(path, "") + after.get(path, "")).startswith("d ")} == set()
    assert head.run(pids).stdout == running


def test_a_changed_setting_restarts_only_what_it_concerns(head: Host) -> None:
    pid = "systemctl show --property MainPID --value {}"
    before = [head.run(pid.format(unit)).stdout for unit in ("slipway-prometheus", "slipway-node-exporter")]
    head.run(f"echo PROMETHEUS_RETENTION_DAYS=7 >/etc/slipway/site.env; {HEAD}")
    after = [head.run(pid.format(unit)).stdout for unit in ("slipway-prometheus", "slipway-node-exporter")]
    assert before[0] != after[0]
    assert before[1] == after[1]
    head.run("rm /etc/slipway/site.env")


def test_an_edited_list_of_images_is_kept(head: Host) -> None:
    head.run("echo '# mine' >>/fsx/config/containers.txt; /opt/slipway/current/headnode/steps/12-user-scripts.sh")
    assert "# mine" in head.run("cat /fsx/config/containers.txt").stdout
    head.run("cp /opt/slipway/current/containers.txt /fsx/config/containers.txt")


def test_acceptance_command(head: Host) -> None:
    assert head.run("acceptance").stdout == "acceptance of the tests\n"


def test_images_without_enroot_are_reported_in_the_background(head: Host) -> None:
    status = head.run(
        f"{IMPORTED}; cat /fsx/logs/container-downloads/status.tsv; /fsx/containers/list-containers.sh",
    ).stdout
    assert "nvcr.io_nvidia_pytorch-24.01-py3.sqsh\tfailed\tenroot is not installed on this node" in status
    assert "0 images in /fsx/containers" in status


def test_failing_step_names_itself_its_log_and_what_to_do(head: Host) -> None:
    # A file where a directory belongs: a real step meets a real obstacle.
    head.run("rmdir /fsx/checkpoints; touch /fsx/checkpoints")
    done = head.run(HEAD, check=False)
    head.run("rm /fsx/checkpoints")
    assert done.returncode == 1
    fault = next(line for line in done.stdout.splitlines() if line.startswith("slipway: FAULT"))
    assert "host=head step=headnode/10-fsx-layout exit=1 log=/var/log/slipway/10-fsx-layout.log hint=move it" in fault
    assert "/fsx/checkpoints is there, but is no directory" in done.stdout
    record = json.loads(head.run("cat /var/lib/slipway/steps/10-fsx-layout.json").stdout)
    assert record["status"] == "failed"
    assert record["exit"] == 1
    assert "step headnode/12-user-scripts" not in done.stdout


def test_hanging_step_is_ended_and_named(head: Host) -> None:
    # A pipe that nobody writes to, where the step reads a file; and no release from before to go back to.
    head.run(
        "rm -f /var/lib/slipway/good-release; cp -a /opt/slipway/current/containers.txt /srv/keep; rm /opt/slipway/current/containers.txt; "
        "mkfifo /opt/slipway/current/containers.txt; echo STEP_TIMEOUT_S=5 >/etc/slipway/site.env"
    )
    started = time.monotonic()
    done = head.run(HEAD, check=False)
    took = time.monotonic() - started
    head.run(
        "rm /opt/slipway/current/containers.txt /etc/slipway/site.env; cp -a /srv/keep /opt/slipway/current/containers.txt"
    )
    assert done.returncode == 1
    assert "FAULT host=head step=headnode/12-user-scripts exit=124 exceeded 5 s log=/var/log/slipway/12-" in done.stdout
    assert took < 60  # the pipe itself never ends


def test_compute_node_twice_the_same(node: Host) -> None:
    node.run("echo stale >/etc/profile.d/unrelated.sh")
    node.run("mkdir -p /var/lib/slipway/steps; echo '{}' >/var/lib/slipway/steps/05-of-an-earlier-release.json")
    first = node.run(COMPUTE).stdout
    assert "step compute/30-nccl ok" in first
    records = node.run("cd /var/lib/slipway/steps && ls").stdout.split()
    assert records == [f"{path.stem}.json" for path, _ in steps_of("compute")]
    before = node.snapshot("/fsx/logs")
    node.run(COMPUTE)
    after = node.snapshot("/fsx/logs")
    files = {
        p for p in before.keys() | after.keys() if before.get(p) != after.get(p) and "f " in after.get(p, "f ")[:2]
    }
    assert files - {"/etc/prometheus/targets/node.json"} == set()
    assert node.run("systemctl is-active slipway-node-exporter").stdout == "active\n"
    assert "node_load1" in node.run("curl -sf http://127.0.0.1:9100/metrics").stdout


def test_mirror_file_with_another_checksum_is_refused(node: Host) -> None:
    node.run(
        "rm -rf /var/cache/slipway; cp -r /srv/s3/mirror /srv/s3/bad; echo x >>/srv/s3/bad/node_exporter-1.9.1.linux-amd64.tar.gz; "
        "echo SOFTWARE_MIRROR=s3://bad >/etc/slipway/site.env"
    )
    done = node.run(COMPUTE, check=False)
    node.run("rm /etc/slipway/site.env")
    assert done.returncode == 0  # a node without metrics still trains
    assert "slipway: WARNING host=" in done.stdout
    assert "step=compute/15-node-exporter exit=1" in done.stdout
    assert "do not use it" in done.stdout


def test_step_whose_download_failed_is_run_again_by_the_timer(node: Host) -> None:
    record = "/var/lib/slipway/steps/15-node-exporter.json"
    retry = "/opt/slipway/current/nodes/retry-steps.sh compute"
    assert node.run("systemctl is-active slipway-retry.timer").stdout == "active\n"
    node.run("mv /srv/s3/mirror /srv/s3/away; rm -rf /var/cache/slipway")
    node.run(COMPUTE)
    assert '"status": "reported"' in node.run(f"cat {record}").stdout
    assert "step compute/15-node-exporter started" in node.run(retry, check=False).stdout
    assert '"status": "reported"' in node.run(f"cat {record}").stdout
    node.run("mv /srv/s3/away /srv/s3/mirror")
    assert "step compute/15-node-exporter ok" in node.run(retry).stdout
    assert '"status": "ok"' in node.run(f"cat {record}").stdout
    assert node.run(retry).stdout == ""
    assert node.run(f"exec 8>/run/slipway/setup.lock; flock 8; {retry}").stdout == ""


def test_value_that_a_step_refuses_stops_the_setup(node: Host) -> None:
    node.run("echo NCCL_ENVIRONMENT=broken >/etc/slipway/site.env")
    done = node.run(COMPUTE, check=False)
    node.run("rm /etc/slipway/site.env")
    assert done.returncode == 1
    assert "slipway: FAULT host=" in done.stdout
    assert "step=compute/30-nccl exit=1 log=/var/log/slipway/30-nccl.log hint=correct NCCL_ENVIRONMENT" in done.stdout
    assert "slipway: step compute/30-nccl on " in done.stdout  # standard error, which ParallelCluster keeps


def test_read_only_place_is_reported_with_a_hint(node: Host) -> None:
    node.run("rm -rf /var/cache/slipway; mkdir /var/cache/slipway; mount -t tmpfs -o ro none /var/cache/slipway")
    done = node.run(COMPUTE, check=False)
    node.run("umount /var/cache/slipway")
    assert done.returncode == 0
    assert (
        "step=compute/15-node-exporter exit=1 log=/var/log/slipway/15-node-exporter.log hint=is it read-only"
        in done.stdout
    )


def test_pipe_without_a_writer_ends_in_bounded_time_on_a_compute_node(node: Host) -> None:
    node.run("mkfifo /etc/slipway/software.tsv; echo STEP_TIMEOUT_S=5 >/etc/slipway/site.env")
    done = node.run(COMPUTE, check=False)
    node.run("rm /etc/slipway/software.tsv /etc/slipway/site.env")
    assert done.returncode == 0
    assert "step=compute/15-node-exporter exit=124 exceeded 5 s log=" in done.stdout


def test_setup_without_node_env_says_so(node: Host) -> None:
    node.run("mv /etc/slipway/node.env /srv/node.env")
    done = node.run("/opt/slipway/current/compute/setup-compute.sh", check=False)
    node.run("mv /srv/node.env /etc/slipway/node.env")
    assert done.returncode == 1
    assert "/etc/slipway/node.env is missing" in done.stdout
