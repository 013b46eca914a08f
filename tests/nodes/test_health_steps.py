"""The steps around the GPUs' health on a real systemd, with the stand-ins that the rehearsal gives its hosts."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from rehearsal.host_spec import HostSpec
from rehearsal.standins import hardware

from .host import Host
from .installed import install, step

pytestmark = pytest.mark.hosts
SPEC = HostSpec(
    name="n1",
    ip="10.0.0.9",
    role="compute",
    instance_type="p5.48xlarge",
    vcpus=192,
    memory_mib=1,
    gpus=8,
    queue="train",
    features=("efa",),
)
FACTS = {
    "schema": 1,
    "queues": {"train": {"instance_type": "p5.48xlarge", "efa": True}},
    "instance_types": {
        "p5.48xlarge": {"gpus": 8, "efa_interfaces": 32, "nvlink_links": 18, "nvme_gb": 30400},
        "m5.large": {"gpus": 0, "efa_interfaces": 0, "nvlink_links": 0, "nvme_gb": 0},
    },
}
GPU_STATE = "compute/steps/14-gpu-state"
SCRATCH = "compute/steps/13-scratch"
HEALTH = "compute/steps/45-health"


@pytest.fixture(scope="module")
def p5(host: Host) -> Host:
    """A host with all stand-ins of a p5's hardware."""
    install(host, instances__json=json.dumps(FACTS).encode())
    host.put("/etc/parallelcluster/cfnconfig", b"cfn_instance_type=p5.48xlarge\nscheduler_queue_name=train\n")
    for name, (data, mode) in hardware.files(SPEC).items():
        host.put(f"/{name}", data, mode)
    host.put("/usr/local/bin/sinfo", b'#!/bin/sh\necho "$(uname -n)|idle|none"\n', 0o755)
    host.put("/usr/local/bin/scontrol", b'#!/bin/sh\necho "$@" >>/srv/calls\n', 0o755)
    host.run("touch /dev/nvidia0 /srv/calls; mkdir /scratch; mount -t tmpfs none /scratch; systemctl daemon-reload")
    return host


def change(host: Host, **state: Any) -> None:
    """Change what the stand-in nvidia-smi tells."""
    given = json.loads(host.run(f"cat /{hardware.STATE}").stdout)
    host.put(f"/{hardware.STATE}", json.dumps({**given, **state}).encode())


# Without the timer, whose run may have begun before a test changed what it looks at.
ALONE = (
    "systemctl stop slipway-health.timer; "
    "while [ $(systemctl is-active slipway-health.service) = activating ]; do sleep 0.1; done"
)


def run_health(host: Host) -> dict[str, Any]:
    host.run(f"{ALONE}; systemctl start slipway-health.service")
    told: dict[str, Any] = json.loads(host.run("cat /var/lib/slipway/health.json").stdout)
    return told


def test_head_node_and_types_nobody_knows_get_no_stand_ins() -> None:
    assert hardware.files(HostSpec("h", "10.0.0.1", "head", "m5.large", 2, 1)) == {}
    assert hardware.files(HostSpec("c", "10.0.0.2", "compute", "x9.nothing", 2, 1, queue="q")) == {}
    plain = hardware.files(HostSpec("c", "10.0.0.2", "compute", "m5.large", 2, 1, queue="q"))
    assert list(plain) == [
        "etc/systemd/system/slipway-health.service.d/rehearsal.conf", "etc/profile.d/rehearsal.sh", "etc/sudoers.d/91-rehearsal"
    ]  # fmt: skip


def test_persistence_and_fabric_manager_are_turned_on_once(p5: Host) -> None:
    done = step(p5, GPU_STATE).stdout
    assert "slipway: turned persistence mode on" in done
    assert "slipway: started nvidia-fabricmanager.service" in done
    assert p5.run("systemctl is-enabled nvidia-fabricmanager").stdout == "enabled\n"
    assert step(p5, GPU_STATE).stdout == "slipway: persistence mode is on\n"


def test_health_is_judged_by_a_timer(p5: Host) -> None:
    p5.run("rm -f /var/lib/slipway/health.json; systemctl start nvidia-fabricmanager; nvidia-smi -pm 1")
    first = step(p5, HEALTH).stdout
    assert "started slipway-health.timer" in first
    end = time.monotonic() + 60
    while p5.run("test -e /var/lib/slipway/health.json", check=False).returncode and time.monotonic() < end:
        time.sleep(0.3)
    told = json.loads(p5.run("cat /var/lib/slipway/health.json").stdout)
    assert told["instance_type"] == "p5.48xlarge"
    bad = {one["check"]: one["evidence"] for one in told["checks"] if one["status"] not in ("ok", "warn")}
    assert set(bad) <= {"clock"}, bad
    assert "started slipway-health.timer" not in step(p5, HEALTH).stdout
    timer = p5.run("systemctl show --property TimersMonotonic slipway-health.timer").stdout
    assert "OnUnitActiveUSec=1min" in timer


def test_broken_gpu_is_drained_by_the_unit(p5: Host) -> None:
    p5.run(ALONE)
    change(p5, gpu={"3": {"volatile_uncorrectable": 12}})
    told = run_health(p5)
    change(p5, gpu={})
    assert told["status"] == "fail"
    note, drain = p5.run("cat /srv/calls; : >/srv/calls").stdout.splitlines()
    assert re.fullmatch(r"update nodename=head comment=slipway-drains=\d+", note)
    assert (
        drain
        == "update nodename=head state=drain reason=slipway: gpu 3: 12 uncorrectable ECC errors (limit 0 errors, no flag)"
    )
    assert "gpu-ecc=fail" in p5.run("tail -n 1 /var/log/slipway/health.log").stdout
    assert 'check="gpu-ecc"} 2' in p5.run("cat /var/lib/node-exporter/textfile/slipway_health.prom").stdout


def test_the_command_looks_and_changes_nothing(p5: Host) -> None:
    step(p5, HEALTH)
    # Typed at a login shell, and with sudo there: both see the stand-in of the EFA devices.
    for typed in ("slipway-health --json", "sudo slipway-health --json"):
        told = json.loads(p5.run(f"bash -l -c '{typed}' 2>/dev/null", check=False).stdout)
        assert next(one["status"] for one in told["checks"] if one["check"] == "efa") == "ok"
    done = p5.run("bash -l -c slipway-health", check=False)
    assert done.stdout.splitlines()[0].endswith("only looked")
    assert p5.run("cat /srv/calls").stdout == ""
    assert p5.run("find /opt/slipway/releases -name __pycache__").stdout == ""


def test_interval_of_the_settings_and_off(p5: Host) -> None:
    p5.run("sed -i -e s/HEALTH_INTERVAL_S=60/HEALTH_INTERVAL_S=300/ /etc/slipway/node.env")
    step(p5, HEALTH)
    assert "OnUnitActiveUSec=5min" in p5.run("systemctl show --property TimersMonotonic slipway-health.timer").stdout
    p5.run("sed -i s/HEALTH_ENABLED=true/HEALTH_ENABLED=false/ /etc/slipway/node.env")
    assert "HEALTH_ENABLED is false" in step(p5, HEALTH).stdout
    assert p5.run("systemctl is-active slipway-health.timer", check=False).stdout == "inactive\n"
    assert p5.run("systemctl is-enabled slipway-health.timer", check=False).stdout == "disabled\n"
    p5.run("cp /opt/slipway/current/node.env /etc/slipway/")


def test_hanging_unit_is_ended(p5: Host) -> None:
    shown = p5.run("systemctl show --property TimeoutStartUSec slipway-health.service").stdout
    assert shown == "TimeoutStartUSec=1min 25s\n"  # evidence of a node to drain has 25 s of it


# ---------------------------------------------------------------------------------------------- steps that say so


def test_scratch(p5: Host) -> None:
    assert "/scratch is mounted" in step(p5, SCRATCH).stdout
    done = step(p5, SCRATCH, before="umount /scratch", check=False)
    assert done.returncode == 1
    assert "/scratch is not mounted, but this type has 30400 GB of NVMe" in done.stdout


@pytest.mark.parametrize(
    ("kind", "scratch", "fabric"),
    [
        ("m5.large", "this instance type has no NVMe disks", "no NVSwitches known on this node"),
        ("x9.nothing", "the instance type is not known", "no NVSwitches known on this node"),
    ],
)
def test_other_types(p5: Host, kind: str, scratch: str, fabric: str) -> None:
    p5.run(f"echo cfn_instance_type={kind} >/srv/cfnconfig")
    before = "mount --bind /srv/cfnconfig /etc/parallelcluster/cfnconfig"
    assert scratch in step(p5, SCRATCH, before=before).stdout
    assert fabric in step(p5, GPU_STATE, before=before).stdout


def test_node_without_gpus(p5: Host) -> None:
    p5.run("rm /dev/nvidia0")
    done = step(p5, GPU_STATE)
    p5.run("touch /dev/nvidia0")
    assert done.stdout == "slipway: no GPU on this node\n"


def test_facts_of_a_damaged_bundle(p5: Host) -> None:
    done = step(
        p5,
        SCRATCH,
        before="echo {} >/srv/none && mount --bind /srv/none /opt/slipway/current/nodes/health/__main__.py",
        check=False,
    )
    assert done.returncode == 1
    assert "slipway-health --facts has no nvme_gb" in done.stdout


SMI_FAULTS = [
    (b"#!/bin/sh\nexit 9\n", "nvidia-smi does not report the GPUs' persistence mode"),
    (b'#!/bin/sh\n[ "$1" = -pm ] && exit 3\necho Disabled\n', "cannot turn persistence mode on"),
    (b"#!/bin/sh\necho Disabled\n", "persistence mode is still off"),
]


@pytest.mark.parametrize(("program", "message"), SMI_FAULTS)
def test_persistence_that_cannot_be_had(p5: Host, program: bytes, message: str) -> None:
    p5.put("/srv/smi", program, 0o755)
    done = step(p5, GPU_STATE, before="mount --bind /srv/smi /usr/local/bin/nvidia-smi", check=False)
    assert done.returncode == 1
    assert f"slipway: {message}" in done.stdout


def test_image_without_tools_or_fabric_manager(p5: Host) -> None:
    done = step(p5, GPU_STATE, before="mount -t tmpfs none /usr/local/bin", check=False)
    assert "this node has GPUs, but no nvidia-smi" in done.stdout
    p5.run(
        "systemctl disable --now nvidia-fabricmanager; mv /usr/lib/systemd/system/nvidia-fabricmanager.service /srv/; systemctl daemon-reload"
    )
    done = step(p5, GPU_STATE, check=False)
    assert "this node has NVSwitches, but no nvidia-fabricmanager.service" in done.stdout
    p5.run(
        "sed s,/bin/true,/bin/false, /srv/nvidia-fabricmanager.service >/usr/lib/systemd/system/nvidia-fabricmanager.service; systemctl daemon-reload"
    )
    done = step(p5, GPU_STATE, check=False)
    assert done.returncode == 1
    assert "nvidia-fabricmanager.service did not start" in done.stdout


# ---------------------------------------------------------------------------------------------------------- real Slurm

SLURM_CONF = b"""ClusterName=t
SlurmctldHost=head(10.0.0.9)
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld-test
SlurmdSpoolDir=/var/spool/slurmd-test
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=head NodeAddr=10.0.0.9 CPUs=1 State=UNKNOWN
PartitionName=one Nodes=ALL Default=YES
PartitionName=two Nodes=ALL
"""
START_SLURM = """
rm -f /usr/local/bin/sinfo /usr/local/bin/scontrol
echo 10.0.0.9 head >>/etc/hosts
ip address add 10.0.0.9/32 dev lo # Slurm resolves no name while there are loopback's own addresses only
mkdir -p /var/spool/slurmctld-test /var/spool/slurmd-test /var/log/slurm
systemctl start munge
export SLURM_CONF=/opt/slurm/etc/slurm.conf
systemd-run --quiet --unit=test-slurmctld --setenv=SLURM_CONF=$SLURM_CONF /usr/sbin/slurmctld -D
systemd-run --quiet --unit=test-slurmd --setenv=SLURM_CONF=$SLURM_CONF /usr/sbin/slurmd -D -N head
for n in $(seq 200); do [ "$(timeout 2 sinfo --noheader --format=%T 2>/dev/null | sort -u)" = idle ] && exit 0; sleep 0.1; done
journalctl --unit 'test-slurm*' --no-pager | tail -n 20
exit 1
"""


def slurm_says(host: Host) -> str:
    export = "export SLURM_CONF=/opt/slurm/etc/slurm.conf"
    return host.run(f"{export}; sinfo --noheader --Node --format='%T|%E' | sort -u").stdout.strip().replace("*|", "|")


def test_with_real_slurm(p5: Host) -> None:
    step(p5, HEALTH)
    p5.put("/opt/slurm/etc/slurm.conf", SLURM_CONF)
    p5.run(START_SLURM)
    export = "export SLURM_CONF=/opt/slurm/etc/slurm.conf"
    reason = "slipway: gpu 3: 12 uncorrectable ECC errors (limit 0 errors, no flag)"
    p5.run(f"{ALONE}; rm -rf /run/slipway/health")
    change(p5, gpu={"3": {"volatile_uncorrectable": 12}})

    p5.run(f"{export}; scontrol update nodename=head state=drain reason='admin: my own'")
    assert run_health(p5)["action"].replace("*", "") == "out of service already: drained (admin: my own)"
    assert slurm_says(p5) == "drained|admin: my own"
    p5.run(f"{export}; scontrol update nodename=head state=resume")
    action, place = run_health(p5)["action"].split("; evidence: ")
    assert action == f"drained: {reason}"
    assert f"==> drained for <==\n{reason}\n" in p5.run(f"cat {place}").stdout
    assert "slipway-drains=" in p5.run(f"{export}; scontrol show node head").stdout
    assert slurm_says(p5) == f"drained|{reason}"
    assert run_health(p5)["action"] == f"drained already ({reason})"
    p5.run(f"{export}; scontrol update nodename=head state=resume")
    assert run_health(p5)["action"] == "resumed by an operator: not drained again for what is known"
    assert slurm_says(p5) == "idle|none"

    change(p5, gpu={"3": {"volatile_uncorrectable": 13}})
    assert run_health(p5)["action"].startswith("drained: slipway: gpu 3: 13 uncorrectable")
