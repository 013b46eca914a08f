"""What the tests run inside the namespaces of an engine: `python inside.py SCENARIO RUN_DIR TOOLS_DIR` prints one JSON object."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from rehearsal.hosts import BootFailed, Fleet, HostsError, HostSpec, NodeFailed
from rehearsal.hosts.actions import run_custom_actions
from rehearsal.hosts.breakage import inject
from slipway.breakage import parse_breakage

CIDR, GATEWAY = "10.0.0.0/16", "10.0.0.2"
HEAD = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
PERF = "/opt/nccl-tests/build/all_reduce_perf"
SCRIPT = """#!/bin/bash
echo "slipway: step $1/10-first ok 0.1 s"
echo "args: $# $2"
[ "$1" = head ] && exit 0
echo "slipway: FAULT host=$(hostname) step=$1/20-second exit=1 log=/var/log/slipway/20-second.log hint=none"
exit 1
"""
EPILOG = b"#!/bin/bash\nenv | grep -E '^(PATH|SLURM)' | sort >/run/epilog.new\nmv /run/epilog.new /run/epilog\n"


def compute(number: int) -> HostSpec:
    return HostSpec(
        f"train-st-gpu-{number}", f"10.0.16.{number}", "compute", "p5.48xlarge", 192, 2097152, 8, "h100", "train", "gpu"
    )


def fleet(run_dir: str, tools_dir: str, **more: Any) -> Fleet:
    return Fleet(Path(run_dir), CIDR, GATEWAY, tools_dir=Path(tools_dir), **more)


def shell(host: Any, text: str, timeout_s: float = 90) -> str:
    done = host.exec(["/bin/bash", "-c", text], timeout_s=timeout_s)
    return str(done.stdout if done.ok else f"rc {done.rc}: {done.stdout}{done.stderr}").strip()


def all_reduce(one: Fleet, size: str) -> dict[str, Any]:
    srun = ["srun", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--exclusive"]
    done = one.head.exec([*srun, PERF, "-b", size, "-e", size, "-n", "2", "-w", "1", "-g", "1"], timeout_s=120)
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d", line)]
    return {"rc": done.rc, "rows": rows, "out": done.stdout, "err": done.stderr[-500:]}


def actions(one: Fleet) -> dict[str, Any]:
    server = ThreadedMotoServer(ip_address=GATEWAY, port=5000, verbose=False)
    server.start()
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    s3 = boto3.client("s3", endpoint_url=f"http://{GATEWAY}:5000", **keys)
    s3.create_bucket(Bucket="assets")
    s3.put_object(Bucket="assets", Key="a.sh", Body=SCRIPT.encode())
    lines: list[str] = []
    given = {"OnNodeConfigured": {"Script": "s3://assets/a.sh", "Args": ["head", "two words; $(id)"]}}
    run_custom_actions(one.head, given, s3, lines.append, timeout_s=90)
    answer: dict[str, Any] = {"lines": lines, "aws": shell(one.head, "aws s3 ls s3://assets/")}
    given["OnNodeConfigured"]["Args"] = ["compute"]
    try:
        run_custom_actions(one.computes[0], given, s3, lines.append, timeout_s=90)
    except NodeFailed as error:
        answer["failed"] = {"host": error.host, "step": error.step, "rc": error.rc, "text": str(error)}
    server.stop()
    return answer


def faults(one: Fleet) -> dict[str, Any]:
    touched = []
    for fault in map(parse_breakage, ("bootstrap=head", "hang")):
        name = fault.name_of_host(one.head.name, [host.name for host in one.computes])
        inject(fault, one.hosts[name], one)
        touched.append(name)
    return {
        "hosts": touched,
        "write": shell(one.head, "mkdir /fsx/scripts/x"),
        "hang": one.computes[-1].exec(["mountpoint", "-q", "/fsx"], timeout_s=60).rc,
        "others": shell(one.computes[0], "mountpoint -q /fsx && mkdir -p /fsx/scripts/x && echo free"),
    }


def cluster(run_dir: str, tools_dir: str) -> dict[str, Any]:
    """One head node and two compute hosts: everything that a rehearsal asks of them."""
    with fleet(run_dir, tools_dir) as one:
        one.boot(HEAD, compute(1), compute(2))
        one.write_slurm()
        one.head.put("/opt/slurm/etc/scripts/epilog.d/50_see", EPILOG, 0o755)
        one.start_slurm()
        one.wait_idle(90)
        first = one.computes[0]
        told: list[str] = []
        begin = time.monotonic()
        ended = first.stream(["/bin/bash", "-c", "echo one; setsid sleep 60 & exec sleep 60"], told.append, timeout_s=1)
        answer: dict[str, Any] = {
            "timeout": [ended.rc, ended.timed_out, told, time.monotonic() - begin, shell(first, "pgrep -c sleep")],
            "state": shell(one.head, "systemctl is-system-running --wait"),
            "units": shell(first, "systemctl list-units --state=running --plain --no-legend | cut -d' ' -f1"),
            "srun": sorted(shell(one.head, "srun -N2 --gpus-per-node=8 hostname").split()),
            "epilog": shell(
                first, "for n in {1..100}; do [ ! -e /run/epilog ] || break; sleep 0.1; done; cat /run/epilog"
            ),
            "secrets": shell(
                first, "ls -A /root; ls /home; cat /etc/shadow | grep -vc ':[*]:'; ls /opt /usr/local/bin"
            ),
            "route": shell(first, "ip route"),
            "shared": shell(one.head, "echo x >/fsx/a; su ubuntu -c 'touch /home/ubuntu/b'; id -un 1000")
            + shell(first, "cat /fsx/a; stat -c %U /home/ubuntu/b"),
            "facts": shell(
                first, "cat /etc/parallelcluster/cfnconfig; readlink /etc/slurm; ls /dev/nvidia[0-9]* | wc -l"
            ),
            "env": shell(first, "env | grep -c REHEARSAL_TEST_SECRET"),
            "gpu": shell(
                first,
                "dcgm-exporter & for n in {1..300}; do curl -sf localhost:9400/metrics && break; sleep 0.1; done; kill %1",
            ),
            "healthy": all_reduce(one, "2M"),
        }
        one.throttle("train-st-gpu-2", 20)
        answer["slow"] = all_reduce(one, "2M")
        one.throttle("train-st-gpu-2", None)
        answer["too_many"] = one.head.exec(
            ["srun", "-N1", "-n9", "--gpus-per-node=8", PERF, "-b", "8"], timeout_s=90
        ).rc
        answer["wrong_use"] = one.head.exec(["srun", "-N1", "-n1", PERF, "-b", "1X"], timeout_s=90).rc
        answer["actions"] = actions(one)
        answer["faults"] = faults(one)
        answer["bridge"] = links("br-hosts")[0].split("link/ether ")[1].split()[0]
        one.end("train-st-gpu-1")
        answer["ended"] = {
            "hosts": list(one.hosts),
            "names": shell(one.head, "cat /etc/hosts"),
            "bridge": links("br-hosts")[0].split("link/ether ")[1].split()[0],
            "left": [line for line in Path("/proc/mounts").read_text().splitlines() if "train-st-gpu-1" in line],
            "links": len([line for line in links() if " port" in line]),
        }
        one.boot(compute(1))
        answer["again"] = shell(one.head, "getent hosts train-st-gpu-1")
    answer["left"] = left_inside(run_dir)
    return answer


def links(*names: str) -> list[str]:
    """The engine's network devices, one a line."""
    done = subprocess.run(["ip", "-o", "link", "show", *names], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def left_inside(run_dir: str) -> dict[str, Any]:
    """What a stopped fleet left in the engine's namespaces."""
    return {
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if run_dir in line],
        "processes": [path.name for path in Path("/proc").glob("[0-9]*") if int(path.name) not in (1, os.getpid())],
        "links": len(links()),
        "files": [path.name for path in Path(run_dir).iterdir()],
    }


def head_only(run_dir: str, tools_dir: str) -> dict[str, Any]:
    """Boots a head node and waits to be killed; for two fleets at once and for kill -9."""
    one = fleet(run_dir, tools_dir)
    (host,) = one.boot(HEAD)
    marker = Path(run_dir).name
    shell(host, f"echo {marker} >/fsx/owner; sleep 300 >/dev/null 2>&1 & echo {marker} >/run/owner")
    told = {"owner": shell(host, "cat /fsx/owner /run/owner"), "sleepers": shell(host, "ps ax | grep -c '[s]leep 300'")}
    print(json.dumps({**told, "group": one.group}), flush=True)
    sys.stdin.read()
    one.stop()
    return {"left": left_inside(run_dir)}


def broken(run_dir: str, tools_dir: str) -> dict[str, Any]:
    """Boots that cannot succeed."""
    answer = {}
    tries: dict[str, Callable[[], Any]] = {
        "no tools": lambda: fleet(run_dir, run_dir).boot(HEAD),
        "no head": lambda: fleet(run_dir, tools_dir).boot(compute(1)),
        "twice": lambda: fleet(run_dir, tools_dir).boot(HEAD, compute(1), compute(1)),
        "no time": lambda: late(fleet(run_dir, tools_dir)),
    }
    for name, one in tries.items():
        try:
            one()
        except (HostsError, ValueError) as error:
            answer[name] = f"{type(error).__name__}: {error}"
    return answer


def late(one: Fleet) -> None:
    try:
        one.boot(HEAD, timeout_s=0.01)
    except BootFailed:
        raise
    finally:
        one.stop()


if __name__ == "__main__":
    scenario, *places = sys.argv[1:]
    print(json.dumps({"cluster": cluster, "head_only": head_only, "broken": broken}[scenario](*places)), flush=True)
