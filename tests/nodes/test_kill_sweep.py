"""Every node script, killed at its commands by a generated sweep and run again: nothing is ever half there, and the end
is that of an undisturbed run.

Steps and the scripts that users run are found by themselves; one of the latter without a way to run it (`user_scripts`)
is a fault. A run takes a spread of the commands, chosen by SLIPWAY_SWEEP_SEED;
SLIPWAY_SWEEP=all takes every one. The last test kills the head node's whole set-up at moments of the clock, so that
programs too (tar, useradd, systemctl) are hit in the middle.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rehearsal.host_spec import HostSpec
from rehearsal.standins import hardware
from slipway.node_steps import steps_of

from . import coverage_bash, nccl_host, registry
from .conftest import AWS, LOAD, ROOT, bundle_files, name_bundle, pack
from .host import Host

pytestmark = [pytest.mark.hosts, pytest.mark.slow]
HEAD = LOAD.format(kind="head")
CURRENT = "/opt/slipway/current"
INSTALL = """
mkdir -p /opt/slipway/releases/sweep /etc/slipway /var/log/slipway /var/lib/slipway /var/cache/slipway /var/lib/prometheus
tar --extract --gzip --no-same-owner --file /srv/s3/assets/bundle.gz --directory /opt/slipway/releases/sweep
ln -sfn /opt/slipway/releases/sweep /opt/slipway/current
{ cat /opt/slipway/current/node.env; echo NODE_KIND=headnode; } >/etc/slipway/node.env
"""
AGENT = "/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"


SRUN = b"""#!/bin/bash
case "$*" in
  --help) echo '  --container-image=IMAGE' ;;
  *--container-image*) echo 'n-1 0:2 0 Image' ;;
  *) echo 'n-1 0:1 0 Node' ;;
esac
"""
NODES = b"#!/bin/bash\nprintf 'n-1 idle\\nn-2 mixed\\nn-3 idle~\\n'\n"


def plan(scripts: list[dict[str, Any]], own: int = 1, shared: int = 1, names: list[str] | None = None) -> bytes:
    """What sweep.py is told: own and shared, how many commands of a script and of nodes/lib it kills at; names: scripts."""
    everything = os.environ.get("SLIPWAY_SWEEP") == "all"
    seed = int(os.environ.get("SLIPWAY_SWEEP_SEED", "1"))
    numbers = {"own": 0 if everything else own, "shared": 0 if everything else shared, "seed": seed}
    names = names or [script.name for script in coverage_bash.scripts(ROOT)]
    return json.dumps({"scripts": scripts, "names": names, **numbers}).encode()


def sweep(host: Host, scripts: list[dict[str, Any]], **chosen: Any) -> None:
    """Run the sweep inside. Fails with every fault of every script."""
    host.put("/srv/sweep.py", Path(__file__).with_name("sweep.py").read_bytes(), 0o755)
    host.put("/srv/plan.json", plan(scripts, **chosen))
    out = host.run("unset BASH_ENV; /usr/bin/python3 /srv/sweep.py /srv/plan.json", timeout=3000).stdout
    print(out)
    results = [json.loads(line) for line in out.splitlines()]
    faults = [f"{result['name']}: {fault}" for result in results for fault in result["faults"]]
    assert faults == [], "\n".join(faults)
    assert [result["name"] for result in results] == [script["name"] for script in scripts]
    assert all(result["kills"] > 0 for result in results)


def steps(kind: str) -> list[dict[str, Any]]:
    """An entry a step, in their order; the first one of a kind begins anew."""
    found = []
    files = [path for path, _ in steps_of(kind) if kind == "headnode" or kind in path.parts]  # those of both kinds once
    for number, step in enumerate(files):
        argv = [f"{CURRENT}/{step.relative_to(ROOT)}"]
        found.append({"name": f"{kind}/{step.name}", "argv": argv, "reset": number == 0})
    return found


BAD = """#!/bin/bash
printf half >/fsx/bad-half
printf ' whole' >>/fsx/bad-half
[ -e /fsx/bad-lock ] && exit 3
touch /fsx/bad-lock
echo line >>/fsx/bad-log
rm /fsx/bad-lock
"""


def test_the_sweep_finds_a_script_that_is_not_safe(node: Host) -> None:
    """Half a file, a lock that a killed run leaves, a log that grows with each run, two that meet."""
    node.put("/srv/bad.sh", BAD.encode(), 0o755)
    with pytest.raises(AssertionError) as told:
        sweep(node, [{"name": "bad", "argv": ["/srv/bad.sh"], "at_once": True}], own=10, names=["bad.sh"])
    node.run("rm -f /fsx/bad-*")
    lines = str(told.value).splitlines()
    assert any("killed before /srv/bad.sh:3:" in line and ": half: /fsx/bad-half" in line for line in lines)
    assert any("killed before /srv/bad.sh:6:" in line and "then it ended with 3" in line for line in lines)
    assert any("killed before /srv/bad.sh:7:" in line and "then it ended with 3" in line for line in lines)
    assert any("run again it ended with 3" in line for line in lines)
    # Either both wrote their line, or one met the other's lock.
    assert any("two at once: " in line for line in lines)


def equip(host: Host) -> None:
    """What the steps of a p5 node look for: GPUs, NVSwitches, enroot and pyxis (turned off), Slurm, CloudWatch's agent."""
    facts = {"gpus": 8, "efa_interfaces": 32, "nvlink_links": 18, "nvme_gb": 30400}
    queues = {"train": {"instance_type": "p5.48xlarge", "efa": True}}
    instances = {"schema": 1, "queues": queues, "instance_types": {"p5.48xlarge": facts}}
    host.put(f"{CURRENT}/instances.json", json.dumps(instances).encode())
    host.put("/etc/parallelcluster/cfnconfig", b"cfn_instance_type=p5.48xlarge\nscheduler_queue_name=train\n")
    spec = HostSpec("n1", "10.0.0.9", "compute", "p5.48xlarge", 192, 1, gpus=8, queue="train", features=("efa",))
    for name, (data, mode) in hardware.files(spec).items():
        host.put(f"/{name}", data, mode)
    host.put(AGENT, b"#!/bin/bash\n", 0o755)
    host.put("/usr/local/bin/enroot", (ROOT / "rehearsal/standins/enroot").read_bytes(), 0o755)
    host.put("/usr/local/lib/slurm/spank_pyxis.so", b"")
    host.put("/opt/slurm/etc/slurm.conf", b"ClusterName=ml\n")
    host.put("/usr/local/bin/sinfo", NODES, 0o755)
    host.put("/usr/local/bin/scontrol", b"#!/bin/bash\n", 0o755)
    host.run("mkdir -p /opt/slurm/etc/scripts/prolog.d /opt/slurm/etc/scripts/epilog.d")
    host.run("mkdir -p /scratch; mountpoint --quiet /scratch || mount -t tmpfs none /scratch")


@pytest.mark.timeout(3600)
def test_each_step_of_both_kinds(node: Host) -> None:
    node.run(INSTALL)
    equip(node)
    sweep(node, steps("headnode") + steps("compute"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["head", "compute"])
def test_the_bootstrap_action_from_the_parameter_to_the_last_record(node: Host, kind: str) -> None:
    """load-bundle.sh, use-bundle.sh and the set-up, with a bundle of one step, so that their own commands are what takes time."""
    files = bundle_files()
    keep = [
        step
        for step in files
        if "/steps/" not in step or step.endswith(("headnode/steps/12-user-scripts.sh", "compute/steps/10-fsx.sh"))
    ]
    small = pack({name: files[name] for name in keep if not name.endswith(".pyz")})
    name_bundle(node, "small", small)
    node.run(
        "systemctl stop 'slipway-*'; rm -rf /opt/slipway /etc/slipway /var/lib/slipway; mkdir -p /var/lib/slipway "
        "/fsx/scripts /fsx/config /fsx/containers /fsx/nccl /fsx/logs"
    )
    argv = LOAD.format(kind=kind).split()
    sweep(node, [{"name": f"{kind} bootstrap action", "argv": argv, "at_once": True}], own=5, shared=3)


# A killed run is ended with everything it started: a unit's processes are one control group.
CLOCK = """
whole() {
  while read -r file; do bash -n "$file" || return 1; done < <(find /fsx /usr/local/bin/acceptance -name '*.sh' -type f 2>/dev/null)
  [ ! -e /etc/prometheus/prometheus.yml ] || /usr/bin/promtool check config /etc/prometheus/prometheus.yml >/dev/null || return 1
  [ ! -e /etc/slipway/node.env ] || grep -qx STEP_TIMEOUT_S=300 /etc/slipway/node.env || return 1
  for program in prometheus/current/prometheus node_exporter/current/node_exporter; do
    [ ! -e /opt/slipway/software/$program ] || /opt/slipway/software/$program --version >/dev/null 2>&1 || return 1
  done
}
round=0 ms=300
while :; do
  round=$((round + 1))
  systemd-run --quiet --collect --unit=sweep-$round bash -c 'HEAD >/srv/said 2>&1 && touch /srv/finished || [ $? -ge 128 ] || touch /srv/failed'
  sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
  ms=$((ms * 4 / 3))
  systemctl kill --signal=KILL sweep-$round 2>/dev/null || true
  for wait in $(seq 50); do systemctl is-active --quiet sweep-$round || break; sleep 0.1; done
  whole || { echo "broken in round $round"; exit 1; }
  [ ! -e /srv/failed ] || { tail /srv/said; exit 1; }
  [ ! -e /srv/finished ] || break
  [ $round -lt 24 ] || { echo 'never finished'; exit 1; }
done
echo "rounds $round"
"""


@pytest.mark.timeout(900)
def test_the_head_nodes_setup_killed_at_moments_of_the_clock(node: Host) -> None:
    name_bundle(node, "bundle", pack(bundle_files()))
    node.run(
        "systemctl stop 'slipway-*'; rm -rf /opt/slipway /etc/slipway /etc/prometheus /fsx/* /fsx/.[!.]* /var/lib/slipway /srv/finished /srv/failed "
        "/etc/systemd/system/slipway-* /etc/systemd/system/*.wants/slipway-* /usr/local/bin/acceptance "
        "/usr/local/libexec /var/lib/prometheus/slipway /var/cache/slipway; systemctl daemon-reload"
    )
    out = node.run(CLOCK.replace("HEAD", HEAD), timeout=800).stdout
    assert int(out.split("rounds ")[1].split()[0]) > 3
    assert node.run("curl -sf http://127.0.0.1:9090/-/ready").stdout.startswith("Prometheus")
    assert "step headnode/60-acceptance ok" in node.run("cat /var/log/slipway/setup.log").stdout


def user_scripts(host: Host, work: Path) -> dict[str, dict[str, Any]]:
    """How each script that users run is run here: what is there before, its arguments, what is not compared."""
    for folder in ("registry", "nccl"):
        (work / folder).mkdir()
    registry.furnish(host, work / "registry")
    host.put("/usr/local/bin/aws", AWS, 0o755)
    nccl_host.prepare(host, work / "nccl")
    host.put("/srv/list", b"docker://nvcr.io#public/small:1\n")
    host.put("/usr/local/bin/sinfo", NODES, 0o755)
    host.put("/usr/local/bin/ssh", b"#!/bin/bash\n", 0o755)
    host.put("/usr/local/bin/srun", SRUN, 0o755)
    return {
        "download-ngc-containers.sh": {
            "argv": ["/fsx/scripts/download-ngc-containers.sh", "/srv/list"],
            "varies": r"\.sqsh$|\.info$",
            "at_once": True,
        },
        "install-nccl-shared.sh": {
            "argv": ["bash", "/fsx/nccl/install-nccl-shared.sh", "v2.28.7-1", "v1.17.2-aws", "/fsx"],
            "varies": "/nccl/versions/.*",
            "at_once": True,
            "most": 3,
        },
        "apply-nccl-to-running-nodes.sh": {
            "argv": ["bash", "/fsx/nccl/apply-nccl-to-running-nodes.sh"],
            "at_once": True,
        },
        "check-containers.sh": {"argv": [f"{CURRENT}/headnode/user/check-containers.sh", "/srv/list"], "at_once": True},
        "list-containers.sh": {"argv": ["/fsx/containers/list-containers.sh"], "at_once": True},
    }


@pytest.mark.timeout(3600)
def test_each_script_that_users_run(host: Host, tmp_path: Path) -> None:
    table = user_scripts(host, tmp_path)
    found = {path.name for path in (ROOT / "headnode/user").glob("*.sh") if path.stat().st_mode & 0o111}
    assert found == table.keys(), "a way to run each script that users run"
    sweep(host, [{"name": name, **entry} for name, entry in table.items()], own=2, shared=1)
