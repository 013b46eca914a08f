"""The exporters, the collectors, Slurm's targets and the CloudWatch agent's step on a real systemd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from .conftest import NODE_ENV
from .host import Host

pytestmark = pytest.mark.hosts
DIGEST = "613ab03c11d442fd960ff515f547e9921537454a712d08160bc8f677f89f1c35"
IMAGE = f"docker://nvcr.io#nvidia/k8s/dcgm-exporter:sha256:{DIGEST}"
STATE = "/var/lib/slipway/background/gpu-exporter.json"
SINFO = b"#!/bin/bash\ncat /srv/sinfo\n"
# Behaves as enroot does where it is used here: output that exists is refused, also for a container; a killed run leaves
# half of it; the image's configured program runs with the host's network. /srv/enroot.says is what is to happen.
ENROOT = rb"""#!/bin/bash
set -eu
command=$1; shift
echo "$command $*" >>/srv/enroot.log
case $command in
  import)
    [ "$1" = --output ]
    [ ! -e "$2" ] || { echo "[ERROR] File already exists: $2" >&2; exit 1; }
    case $(cat /srv/enroot.says) in
      refuse) echo "[ERROR] URL https://nvcr.io/v2/ returned error code: 403 Forbidden" >&2; exit 1 ;;
      half) echo half >"$2"; exit 1 ;;
    esac
    cp /srv/image.sqsh "$2" ;;
  create)
    [ "$1" = --name ]
    [ ! -e "$ENROOT_DATA_PATH/$2" ] || { echo "[ERROR] File already exists" >&2; exit 1; }
    mkdir -p "$ENROOT_DATA_PATH/$2"
    echo half >"$ENROOT_DATA_PATH/$2/serve"
    [ "$(cat /srv/enroot.says)" != half-unpacked ] || exit 1
    unsquashfs -force -quiet -no-progress -dest "$ENROOT_DATA_PATH/$2" "$3" >/dev/null ;;
  start)
    [ -d "$ENROOT_DATA_PATH/${*: -1}" ] || { echo "[ERROR] No such file or directory" >&2; exit 1; }
    exec "$ENROOT_DATA_PATH/${*: -1}/serve" ;;
esac
"""
SERVE = b"#!/bin/bash\ncd /srv/dcgm; exec python3 -m http.server 9400 --bind 127.0.0.1\n"
# Acts as the agent's tool: keeps each file by its last name, refuses what is not JSON (and what the test says).
AGENT = rb"""#!/bin/bash
set -eu
echo "$*" >>/srv/cloudwatch
[ ! -e /srv/agent-refuses ] || { echo 'E! Invalid Json input schema.'; exit 1; }
file=${*: -1}; file=${file#file:}
python3 -m json.tool "$file" >/dev/null
mkdir -p /opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d
cp "$file" "/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d/file_${file##*/}"
"""
STEP = "/opt/slipway/current/{}"
HEAD_STEPS = (
    "nodes/steps/15-node-exporter",
    *(f"headnode/steps/{name}" for name in ("20-prometheus", "25-slurm-targets", "26-slurm-metrics")),
)


@pytest.fixture(scope="module")
def machine(node: Host) -> Host:
    """The machine with the bundle in its place; no step has run."""
    node.run(
        "mkdir -p /opt/slipway/one /etc/slipway /var/log/slipway /srv/dcgm; "
        "tar --extract --gzip --file /srv/s3/assets/bundle.gz --directory /opt/slipway/one; ln -s one /opt/slipway/current"
    )
    node.put("/etc/slipway/node.env", "".join(f"{key}={value}\n" for key, value in NODE_ENV.items()).encode())
    node.put("/srv/dcgm/metrics", b"DCGM_FI_DEV_GPU_TEMP 30\n")
    return node


def step(machine: Host, name: str, *, check: bool = True) -> str:
    return machine.run(STEP.format(name), check=check).stdout


def wait(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


# ------------------------------------------------------------------------------------------- node exporter, targets


@pytest.fixture(scope="module")
def head(machine: Host) -> Host:
    machine.put("/usr/local/bin/sinfo", SINFO, 0o755)
    machine.run("printf 'gpu-1|127.0.0.2|train|idle~|gpu:8\\n' >/srv/sinfo")
    for name in HEAD_STEPS:
        step(machine, f"{name}.sh")
    return machine


def test_node_exporter_serves_the_collectors_metrics(head: Host) -> None:
    def metrics() -> str:
        return head.run("curl -sf http://127.0.0.1:9100/metrics").stdout

    wait(lambda: "slipway_efa_devices 0" in metrics(), "the collectors' first run")
    wait(lambda: 'slipway_collector_up{collector="slurm"} 0' in metrics(), "the answer of a Slurm without scontrol")
    assert "node_textfile_scrape_error 0" in metrics()
    assert 'node_scrape_collector_success{collector="infiniband"}' not in metrics()


def test_only_prometheus_itself_listens_on_9090_and_on_loopback(head: Host) -> None:
    lines = [line for line in head.run("ss -Hltn").stdout.splitlines() if ":9090 " in line]
    assert [line.split()[3] for line in lines] == ["127.0.0.1:9090"]


def health(head: Host) -> dict[str, str]:
    answer = json.loads(head.run("curl -sf http://127.0.0.1:9090/api/v1/targets").stdout)
    targets = answer["data"]["activeTargets"]
    return {f"{t['labels']['job']}/{t['labels']['instance']}": t["health"] for t in targets}


def test_target_comes_with_its_node_and_goes_with_it(head: Host) -> None:
    """Each way twice the time that the parts may take (test_targets.py adds those up): this machine may be slow."""
    assert "node/gpu-1" not in health(head)
    head.run("printf 'gpu-1|127.0.0.2|train|idle|gpu:8\\n' >/srv/sinfo")
    wait(lambda: health(head).get("node/gpu-1") == "up", "the target did not come up", 60)
    # Down without having been powered down: it stays, so that an alert can fire.
    head.run("printf 'gpu-1|127.0.0.3|train|down*|gpu:8\\n' >/srv/sinfo")
    wait(lambda: "127.0.0.3" in head.run("cat /etc/prometheus/targets/node.json").stdout, "the new address")
    assert "node/gpu-1" in health(head)
    head.run("printf 'gpu-1|127.0.0.2|train|idle%%|gpu:8\\n' >/srv/sinfo")
    wait(lambda: "node/gpu-1" not in health(head), "the target did not go", 120)


def test_steps_again_change_and_restart_nothing(head: Host) -> None:
    units = "systemctl show --property MainPID,ActiveEnterTimestamp slipway-node-exporter slipway-slurm-targets "
    units += "slipway-node-metrics.timer slipway-slurm-metrics.timer slipway-prometheus"
    before, running = head.snapshot("/etc/prometheus/targets"), head.run(units).stdout
    for name in HEAD_STEPS:
        step(head, f"{name}.sh")
    after = head.snapshot("/etc/prometheus/targets")
    assert {
        p
        for p in before.keys() | after.keys()
        if before.get(p) != after.get(p) and not after.get(p, "").startswith("d ")
    } == set()
    assert head.run(units).stdout == running


def test_configuration_that_promtool_refuses_does_not_take_the_place_of_the_one_in_use(head: Host) -> None:
    env = "/etc/slipway/node.env"
    head.run(f"cp {env} /srv/env; sha256sum /etc/prometheus/prometheus.yml >/srv/config.sha256")
    head.run(f"sed -i 's|^AMP_REMOTE_WRITE_URL=.*|AMP_REMOTE_WRITE_URL=https://host:port/write|' {env}")
    done = head.run(STEP.format("headnode/steps/20-prometheus.sh"), check=False)
    head.run(f"cp /srv/env {env}")
    assert done.returncode == 1
    assert "slipway-hint: look at AMP_REMOTE_WRITE_URL in /etc/slipway/node.env" in done.stdout
    head.run("sha256sum --check /srv/config.sha256; curl -sf http://127.0.0.1:9090/-/ready")


def test_prometheus_that_lost_the_metadata_service_is_a_fault_until_it_is_restarted(head: Host) -> None:
    # As after ParallelCluster restored its own rules: the chain is without the rule of this account.
    head.run("iptables --new-chain PARALLELCLUSTER_IMDS")
    done = head.run(STEP.format("headnode/steps/20-prometheus.sh"), check=False)
    head.run("systemctl restart slipway-prometheus")
    after = head.run(STEP.format("headnode/steps/20-prometheus.sh"), check=False)
    head.run("iptables --flush PARALLELCLUSTER_IMDS; iptables --delete-chain PARALLELCLUSTER_IMDS")
    assert done.returncode == 1
    assert "prometheus has no access to the metadata service" in done.stdout
    assert "slipway-hint: run 'sudo systemctl restart slipway-prometheus'" in done.stdout
    assert after.returncode == 0, after.stdout


# --------------------------------------------------------------------------------------------------- GPU exporter


def state(machine: Host) -> dict[str, str]:
    text = machine.run(f"cat {STATE} 2>/dev/null || echo '{{}}'").stdout
    found: dict[str, str] = json.loads(text)
    return found


@pytest.fixture
def gpus(machine: Host) -> Host:
    """The machine with GPUs and with nothing of the exporter from another test."""
    machine.run(
        "systemctl disable --now slipway-gpu-exporter 2>/dev/null; systemctl reset-failed slipway-gpu-exporter 2>/dev/null; "
        f"rm -rf /usr/local/bin/dcgm-exporter /var/lib/slipway/gpu-exporter /var/lib/slipway/units/slipway-gpu-* {STATE} "
        "/etc/slipway/software.tsv /srv/enroot.log /var/log/slipway/gpu-exporter.log /etc/systemd/system/slipway-gpu-*; "
        "touch /dev/nvidia0; echo well >/srv/enroot.says; rm -rf /srv/image; mkdir /srv/image"
    )
    machine.put("/srv/image/serve", SERVE, 0o755)
    machine.run("rm -f /srv/image.sqsh; mksquashfs /srv/image /srv/image.sqsh -quiet -no-progress >/dev/null")
    machine.put("/usr/local/bin/enroot", ENROOT, 0o755)
    machine.put("/usr/local/bin/nvidia-smi", b"#!/bin/sh\necho 'NVIDIA H100 80GB HBM3'\n", 0o755)
    machine.put("/usr/local/bin/nvidia-container-cli", b"#!/bin/sh\n", 0o755)
    return machine


def start(machine: Host, wanted: str) -> dict[str, str]:
    step(machine, "compute/steps/20-gpu-exporter.sh")
    wait(lambda: state(machine).get("state") == wanted, f"not {wanted}", 90)
    return state(machine)


def again(machine: Host, wanted: str) -> dict[str, str]:
    machine.run(
        f"rm -f {STATE}; systemctl reset-failed slipway-gpu-exporter; systemctl restart --no-block slipway-gpu-exporter"
    )
    wait(lambda: state(machine).get("state") == wanted, f"not {wanted}", 90)
    return state(machine)


def test_image_is_imported_by_digest_once_and_survives_a_reboot(gpus: Host) -> None:
    found = start(gpus, "done")
    assert found["detail"] == "answers on http://127.0.0.1:9400/metrics"
    log = gpus.run("cat /var/log/slipway/setup.log").stdout
    assert "slipway: background gpu-exporter running: getting the exporter ready" in log
    assert "slipway: background gpu-exporter done: answers on" in log
    assert "DCGM_FI_DEV_GPU_TEMP" in gpus.run("curl -sf http://127.0.0.1:9400/metrics").stdout
    calls = gpus.run("cat /srv/enroot.log").stdout.splitlines()
    assert [call.split()[0] for call in calls] == ["import", "create", "start"]
    assert calls[0].endswith(IMAGE)
    assert "dcgm-counters.csv:/etc/dcgm-exporter/default-counters.csv" in calls[2]
    assert calls[2].endswith(DIGEST[:12])
    assert gpus.run("systemctl is-enabled slipway-gpu-exporter").stdout == "enabled\n"
    # What a reboot does: the unit alone, and the registry may be away.
    gpus.run("echo refuse >/srv/enroot.says; systemctl stop slipway-gpu-exporter")
    again(gpus, "done")
    assert gpus.run("grep -c import /srv/enroot.log").stdout == "1\n"
    # Only what runs is kept, and the step again changes nothing.
    assert (
        gpus.run("cd /var/lib/slipway/gpu-exporter && ls -d data/* *.sqsh cache tmp 2>/dev/null || true").stdout
        == f"data/{DIGEST[:12]}\n"
    )
    pid = gpus.run("systemctl show --property MainPID slipway-gpu-exporter").stdout
    step(gpus, "compute/steps/20-gpu-exporter.sh")
    assert gpus.run("systemctl show --property MainPID slipway-gpu-exporter").stdout == pid


@pytest.mark.parametrize("kind", ["half", "half-unpacked"])
def test_killed_import_is_taken_up_again(gpus: Host, kind: str) -> None:
    gpus.run(f"echo {kind} >/srv/enroot.says")
    assert start(gpus, "failed")["detail"].startswith("exit-code: enroot cannot")
    gpus.run("echo well >/srv/enroot.says")
    again(gpus, "done")


def test_file_that_is_no_image_is_refused(gpus: Host) -> None:
    gpus.run("echo text >/srv/image.sqsh")
    assert "is not a squash file" in start(gpus, "failed")["detail"]


def test_registry_that_refuses_is_told_with_what_to_do(gpus: Host) -> None:
    gpus.run("echo refuse >/srv/enroot.says")
    found = start(gpus, "failed")
    assert found["detail"] == f"exit-code: enroot cannot import nvcr.io#nvidia/k8s/dcgm-exporter:sha256:{DIGEST[:12]}"
    assert "put dcgm-exporter-4.6.0-4.8.3.sqsh into SOFTWARE_MIRROR" in found["hint"]
    assert "403 Forbidden" in gpus.run(f"cat {found['log']}").stdout
    assert "background gpu-exporter failed" in gpus.run("cat /var/log/slipway/setup.log").stdout


def test_image_comes_from_the_mirror_where_that_has_it(gpus: Host) -> None:
    gpus.run(
        "cd /srv/s3/mirror && cp /srv/image.sqsh dcgm-exporter-4.6.0-4.8.3.sqsh && sha256sum *.sqsh *.gz *.deb >SHA256SUMS; "
        "echo refuse >/srv/enroot.says"
    )
    try:
        start(gpus, "done")
    finally:
        gpus.run("cd /srv/s3/mirror && rm *.sqsh && sha256sum *.gz *.deb >SHA256SUMS")
    assert gpus.run("grep -c import /srv/enroot.log", check=False).stdout == "0\n"


def test_sites_own_image_wins(gpus: Host) -> None:
    digest = "ab" * 32
    line = f"dcgm-exporter\t4.7.0-4.9.0\t{digest}\tdocker://registry.example#gpu/dcgm\n"
    gpus.put("/etc/slipway/software.tsv", line.encode())
    start(gpus, "done")
    assert gpus.run("head -1 /srv/enroot.log").stdout.endswith(f"docker://registry.example#gpu/dcgm:sha256:{digest}\n")


@pytest.mark.parametrize(("gpu", "least"), [("NVIDIA B200", "4.2.0"), ("NVIDIA B300 SXM6 AC", "4.4.0")])
def test_dcgm_that_does_not_know_the_gpu_is_refused(gpus: Host, gpu: str, least: str) -> None:
    gpus.put("/usr/local/bin/nvidia-smi", f"#!/bin/sh\necho '{gpu}'\n".encode(), 0o755)
    line = f"dcgm-exporter\t4.1.1-4.0.4\t{'ab' * 32}\tdocker://registry.example#gpu/dcgm\n"
    gpus.put("/etc/slipway/software.tsv", line.encode())
    found = start(gpus, "failed")
    assert f"it needs {least} (" in found["detail"]
    assert found["hint"] == "correct the line dcgm-exporter of /etc/slipway/software.tsv"


def test_driver_that_does_not_answer_is_told(gpus: Host) -> None:
    gpus.put("/usr/local/bin/nvidia-smi", b"#!/bin/sh\necho 'No devices were found'; exit 6\n", 0o755)
    assert start(gpus, "failed")["detail"] == "exit-code: nvidia-smi does not answer"


def test_node_with_gpus_and_no_enroot_says_what_is_missing(gpus: Host) -> None:
    gpus.run("rm /usr/local/bin/enroot")
    found = start(gpus, "failed")
    assert "there is no enroot and no /usr/local/bin/dcgm-exporter" in found["detail"]


def test_node_without_the_program_that_gives_containers_gpus_says_so(gpus: Host) -> None:
    gpus.run("rm /usr/local/bin/nvidia-container-cli")
    found = start(gpus, "failed")
    assert "nvidia-container-cli is missing: the exporter's container would have no GPU" in found["detail"]
    assert "/var/log/slipway/16-gpu-containers.log" in found["hint"]


def test_program_of_the_image_is_used_with_the_sites_counters(gpus: Host) -> None:
    program = b"#!/bin/bash\nenv | grep ^DCGM_ >/srv/dcgm.env\n" + SERVE.removeprefix(b"#!/bin/bash\n")
    gpus.put("/usr/local/bin/dcgm-exporter", program, 0o755)
    gpus.put("/etc/slipway/dcgm-counters.csv", b"DCGM_FI_DEV_GPU_TEMP, gauge, C.\n")
    start(gpus, "done")
    assert sorted(gpus.run("cat /srv/dcgm.env").stdout.splitlines()) == [
        "DCGM_EXPORTER_COLLECTORS=/etc/slipway/dcgm-counters.csv",
        "DCGM_EXPORTER_INTERVAL=15000",
        "DCGM_EXPORTER_LISTEN=:9400",
    ]
    gpus.run("rm /etc/slipway/dcgm-counters.csv")
    assert gpus.run("test -e /srv/enroot.log", check=False).returncode == 1


def test_exporter_that_dies_is_told_in_the_background(gpus: Host) -> None:
    gpus.put("/usr/local/bin/dcgm-exporter", b"#!/bin/bash\necho no NVML here; exit 3\n", 0o755)
    found = start(gpus, "failed")
    assert found["detail"] == "exit-code: the exporter ended at once (see the lines above)"
    assert "no NVML here" in gpus.run(f"cat {found['log']}").stdout


def test_exporter_that_ends_later_is_told(gpus: Host) -> None:
    start(gpus, "done")
    gpus.run("kill -KILL $(systemctl show --property MainPID --value slipway-gpu-exporter)")
    wait(lambda: state(gpus).get("state") == "failed", "not reported")
    assert state(gpus)["detail"] == "signal: the exporter ended"
    assert "then run: sudo systemctl restart slipway-gpu-exporter" in state(gpus)["hint"]


def test_exporter_without_an_answer_fails_after_its_time(gpus: Host) -> None:
    script = "sed -i 's/VERIFY_TIMEOUT_S=120/VERIFY_TIMEOUT_S=1/' /opt/slipway/current/nodes/metrics/gpu-exporter.sh"
    gpus.run(f"cp -a /opt/slipway/current/nodes/metrics/gpu-exporter.sh /srv/keep; {script}")
    gpus.put("/usr/local/bin/dcgm-exporter", b"#!/bin/bash\nexec sleep 600\n", 0o755)
    found = start(gpus, "failed")
    gpus.run("cp -a /srv/keep /opt/slipway/current/nodes/metrics/gpu-exporter.sh")
    assert "no answer on http://127.0.0.1:9400/metrics after 1 s" in found["detail"]


def test_second_run_by_hand_waits_for_the_first(gpus: Host) -> None:
    script = "/opt/slipway/current/nodes/metrics/gpu-exporter.sh"
    gpus.run(f"sed 's/IMPORT_TIMEOUT_S=1200/IMPORT_TIMEOUT_S=1/' {script} >{script}.test; chmod +x {script}.test")
    done = gpus.run(
        f"mkdir -p /var/lib/slipway/gpu-exporter; exec 8>/var/lib/slipway/gpu-exporter/lock; flock 8; {script}.test prepare",
        check=False,
    )
    gpus.run(f"rm {script}.test")
    assert done.returncode == 1
    assert "another run holds /var/lib/slipway/gpu-exporter/lock" in done.stdout


def test_unknown_word_is_wrong_use(gpus: Host) -> None:
    done = gpus.run("/opt/slipway/current/nodes/metrics/gpu-exporter.sh sing", check=False)
    assert done.returncode == 1
    assert "usage: gpu-exporter.sh" in done.stdout


def test_node_without_gpus_has_no_exporter_and_loses_one_that_the_ami_brought(gpus: Host) -> None:
    start(gpus, "done")
    gpus.run("rm /dev/nvidia0")
    assert "no GPU on this node: nothing to export" in step(gpus, "compute/steps/20-gpu-exporter.sh")
    wait(
        lambda: "active" not in gpus.run("systemctl is-active slipway-gpu-exporter", check=False).stdout.split(),
        "it runs on",
    )
    assert gpus.run("ls /etc/systemd/system/slipway-gpu-exporter.service", check=False).returncode != 0
    assert "nothing to export" in step(gpus, "compute/steps/20-gpu-exporter.sh")


# ---------------------------------------------------------------------------------------------------- CloudWatch

CONTROL = "/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"
KEPT = "/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d"


@pytest.fixture
def agent(machine: Host) -> Host:
    machine.run(
        "rm -rf /opt/aws /etc/parallelcluster/amazon-cloudwatch-agent /srv/cloudwatch /srv/agent-refuses /var/lib/slipway/cloudwatch-agent.loaded"
    )
    machine.put(CONTROL, AGENT, 0o755)
    machine.put(f"{KEPT}/file_amazon-cloudwatch-agent.json", b'{"logs": {"of": "ParallelCluster"}}\n')
    return machine


def test_agent_is_told_once_and_keeps_parallelclusters_configuration(agent: Host) -> None:
    for _ in range(2):
        step(agent, "nodes/steps/40-cloudwatch-agent.sh")
    assert agent.run("cat /srv/cloudwatch").stdout == "-a append-config -m ec2 -s -c file:/etc/slipway/slipway.json\n"
    # The agent keeps files by their last name: ours must not be ParallelCluster's.
    assert "ParallelCluster" in agent.run(f"cat {KEPT}/file_amazon-cloudwatch-agent.json").stdout
    ours = json.loads(agent.run(f"cat {KEPT}/file_slipway.json").stdout)
    assert ours["metrics"]["namespace"] == "ParallelCluster"


@pytest.mark.parametrize(
    "file",
    [
        "/etc/parallelcluster/amazon-cloudwatch-agent/amazon-cloudwatch-agent.json",
        f"{KEPT}/file_amazon-cloudwatch-agent.json",
    ],
)
def test_metrics_that_parallelcluster_collects_are_not_collected_twice(agent: Host, file: str) -> None:
    agent.put(file, b'{"metrics": {"metrics_collected": {"mem": {}}}}\n')
    assert "adds the logs only" in step(agent, "nodes/steps/40-cloudwatch-agent.sh")
    assert set(json.loads(agent.run(f"cat {KEPT}/file_slipway.json").stdout)) == {"logs"}


def test_agent_that_refuses_is_told_and_asked_again(agent: Host) -> None:
    agent.run("touch /srv/agent-refuses")
    done = agent.run(STEP.format("nodes/steps/40-cloudwatch-agent.sh"), check=False)
    assert done.returncode == 1
    assert "the CloudWatch agent refuses /etc/slipway/slipway.json" in done.stdout
    agent.run("rm /srv/agent-refuses")
    step(agent, "nodes/steps/40-cloudwatch-agent.sh")
    assert agent.run("wc -l </srv/cloudwatch").stdout == "2\n"


def test_node_without_the_agent_has_its_configuration_ready(agent: Host) -> None:
    agent.run(f"rm {CONTROL}")
    assert "no CloudWatch agent on this node" in step(agent, "nodes/steps/40-cloudwatch-agent.sh")
