"""What test_acceptance_hosts.py runs in namespaces of its own: `python inside_hosts.py RUN_DIR TOOLS_DIR [PYTHON]` prints JSON.

PYTHON is that of the environment with torch, if there is one. Eight compute hosts are booted once. Between two searches something is broken and mended again; each search is the
command of the head node, with the program that a deployment puts there. What is measured is program/tcp_perf.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rehearsal.hosts import Fleet, Host, HostSpec
from slipway.bundle import acceptance_program

HERE = Path(__file__).parent
CIDR, GATEWAY = "10.0.0.0/16", "10.0.0.2"
HEAD = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
HOSTS = 8
PROGRAM, SCENARIO, HANG_SITE, RESULTS = "/opt/acceptance.pyz", "/fsx/scenario.json", "/fsx/site.json", "/fsx/results"
LINK_MBIT, SLOW_MBIT = 200.0, 20.0  # healthy links and broken ones, Mbit/s: 0.025 and 0.0025 GB/s
LIMIT_GB_PER_S = 0.005  # a fifth of what healthy links carry, twice what broken ones do
SIZE = 2 << 20  # bytes: 0.08 s over a healthy link, 0.42 s at the limit: a busy machine may stop a rank for 0.3 s
PAIR_TIMEOUT_S = 12  # ten times what a healthy pair takes
GUIDE_TRIES = 3  # with Slurm 22.05 one MPI job in about twenty hangs before its ranks have met (PMIx)
TESTS = "/fsx/tests"
SUITE = HERE.parents[1] / "gpusuite"
TORCH = "/opt/torch"  # on the hosts: the environment of torch, its Python, and the GPU suite
WHERE_TORCH_IS = "import json, sys, sysconfig; print(json.dumps([sys.base_prefix, sysconfig.get_path('purelib')]))"
DDP_CASES = {  # name -> flags; a rank of the second host is stopped in the second one
    "good": "--all --iters 10 --sizes 4K,1M --collectives all_reduce,alltoall --expect-gpus 2 --report-dir /fsx/ddp",
    "stall": "--iters 2 --timeout 30 --inject stall:1",
}
# As the guides write them; the sweep of nccl-tests ends earlier, and each of its sizes is measured once.
GUIDE = (
    "sudo su - ubuntu -c whoami",
    "mountpoint /fsx",
    "df -h /fsx",
    "sudo mount -a",
    "srun --nodes=2 --ntasks=16 --gpus-per-task=1 /opt/nccl-tests/build/all_reduce_perf -b 8 -e 2K -f 2 -g 1 -n 1 -w 0",
)
STOPPED = """
while :; do
  for place in /proc/[0-9]*; do
    read -r name <"$place/comm" && [[ $name == all_reduce_perf ]] && kill -STOP "${place#/proc/}"
  done
  sleep 0.02
done 2>/dev/null
"""


def compute(number: int) -> HostSpec:
    address = f"10.0.16.{number}"
    return HostSpec(f"gpu-{number}", address, "compute", "p5.48xlarge", 192, 2097152, 8, "h100", "train", "gpu")


def scenario() -> dict[str, Any]:
    """All hosts, one GPU of each: more ranks would measure this machine's CPUs. Bandwidths in GB/s, sizes in bytes."""
    sweep = {"min_bytes": SIZE, "max_bytes": SIZE, "iterations": 1, "warmup_iterations": 1}
    limit = {"nodes": HOSTS, "size_bytes": SIZE, "fail_below_gb_per_s": LIMIT_GB_PER_S, "warn_below_gb_per_s": None}
    return {
        "schema": 1,
        "cluster": "eight",
        "partition": "train",
        "instance_type": "p5.48xlarge",
        "nodes": HOSTS,
        "gpus_per_node": 1,
        "network": None,
        "mpi": "none",
        "nccl_tests_paths": [TESTS],
        "tests": [{"name": "all_reduce", "collective": "all_reduce", **sweep, "timeout_s": 40}],
        "limits": [
            {"collective": "all_reduce", **limit, "source": f"links of {LINK_MBIT:g} Mbit/s", "date": "2026-11-28"}
        ],
        "locate": {
            "iterations": 1,
            "pair_timeout_s": PAIR_TIMEOUT_S,
            "pair_limit_gb_per_s": LIMIT_GB_PER_S,
            "drain_percent": 25,
        },
    }


def hang_site() -> dict[str, Any]:
    """Two rounds are enough for four nodes, and each takes as long as a hang may: a third one only where it is needed."""
    return {"locate": {**scenario()["locate"], "max_rounds": 3}}


def shell(host: Host, text: str, timeout_s: float = 90) -> str:
    done = host.exec(["/bin/bash", "-c", text], timeout_s=timeout_s)
    assert done.ok, f"{host.name}: {text}: exit {done.rc}: {done.stdout}{done.stderr}"
    return done.stdout


def left_jobs(fleet: Fleet) -> list[str]:
    """What squeue still lists after 40 s: a job that has ended is completing for a moment."""
    wait = 'for n in {1..200}; do [ -n "$(squeue --noheader)" ] || break; sleep 0.2; done; squeue --noheader'
    return shell(fleet.head, wait).splitlines()


def acceptance(fleet: Fleet, *words: str) -> dict[str, Any]:
    """Run the head node's command: what it said, the report and the jobs that it left, the nodes' states."""
    done = fleet.head.exec(["python3", PROGRAM, *words, "--output", RESULTS], timeout_s=300)
    run_id = shell(fleet.head, f"ls -t {RESULTS} | grep -m1 -v history").strip()
    left_jobs(fleet)
    jobs = shell(fleet.head, "squeue --noheader --states=all --format='%T %j'").splitlines()
    states = shell(fleet.head, "sinfo --noheader --Node --format='%N %T %E'").splitlines()
    report = json.loads(shell(fleet.head, f"cat {RESULTS}/{run_id}/report.json"))
    parts = [*report["locate"]["pairs"], *report["locate"]["others"]]
    logs = " ".join(part["log"] for part in parts if part["outcome"] != "ok")
    return {
        "code": done.rc,
        "out": done.stdout
        + done.stderr
        + shell(fleet.head, f"cd {RESULTS}/{run_id}; tail -n 20 {logs or '/dev/null'}"),
        "last": done.stdout.rstrip().splitlines()[-1],
        "report": report,
        "jobs": [line.replace(f"-{run_id}", "") for line in jobs if line.endswith(run_id)],
        "states": dict(line.split(" ", 1) for line in states),
    }


@contextlib.contextmanager
def slow_nodes(fleet: Fleet, *names: str) -> Iterator[None]:
    for name in names:
        fleet.throttle(name, SLOW_MBIT)
    yield
    for name in names:
        fleet.throttle(name, LINK_MBIT)


@contextlib.contextmanager
def slow_link(fleet: Fleet, first: str, second: str) -> Iterator[None]:
    """What the two send to each other is slow; both are as fast as before with everyone else."""
    for name, other in ((first, second), (second, first)):
        rates = {"1:10": LINK_MBIT, "1:30": SLOW_MBIT}
        lines = ["qdisc replace dev eth0 root handle 1: htb default 10"]
        for number, mbit in rates.items():
            lines.append(
                f"class add dev eth0 parent 1: classid {number} htb rate {mbit:g}mbit burst 128kb quantum 60000"
            )
        for line in lines:
            subprocess.run(["tc", "-n", name, *line.split()], check=True, timeout=20)
        address = fleet.hosts[other].spec.ip
        shell(fleet.hosts[name], f"iptables -t mangle -A POSTROUTING -d {address} -j CLASSIFY --set-class 1:30")
    yield
    for name in (first, second):
        shell(fleet.hosts[name], "iptables -t mangle -F POSTROUTING")
        fleet.throttle(name, LINK_MBIT)


@contextlib.contextmanager
def stopped_ranks(fleet: Fleet, name: str) -> Iterator[None]:
    """Every rank on a host is stopped as soon as it is there (SIGSTOP): it answers nothing and does not end."""
    host = fleet.hosts[name]
    argv = ["/bin/bash", "-c", STOPPED]
    watcher = threading.Thread(target=host.exec, args=(argv,), kwargs={"timeout_s": 300})
    watcher.daemon = True
    watcher.start()
    yield


class TorchFleet(Fleet):
    """Hosts that also see the environment of torch: `python`, which is python of SLIPWAY_GPU_SUITE, or None."""

    python: str | None = None

    def _binds(self, spec: HostSpec, root: Path) -> list[str]:
        return [*super()._binds(spec, root), *self._torch]

    @functools.cached_property
    def _torch(self) -> list[str]:
        if self.python is None:
            return []
        said = subprocess.run([self.python, "-c", WHERE_TORCH_IS], check=True, capture_output=True, text=True)
        base, packages = json.loads(said.stdout)
        places = {"python": base, "packages": packages, "gpusuite": SUITE}
        return [f"--bind-ro={path}:{TORCH}/{name}" for name, path in places.items()]


def ddp(fleet: TorchFleet) -> dict[str, Any]:
    """ddp_tests.py as docs/gpu-suite.md starts it: srun with one task a GPU and no launcher, here with gloo on two hosts."""
    # By name: the two may still end a job of before, and srun would take others.
    srun = ["srun", "--nodelist=gpu-1,gpu-2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    env = [f"PYTHONPATH={TORCH}/packages", f"LD_LIBRARY_PATH={TORCH}/python/lib", "OMP_NUM_THREADS=1"]
    answer: dict[str, Any] = {}
    for case, flags in DDP_CASES.items():
        program = [f"{TORCH}/python/bin/python3", f"{TORCH}/gpusuite/ddp_tests.py", "--cpu", *flags.split()]
        done = fleet.head.exec([*srun, "env", *env, *program], timeout_s=240)
        answer[case] = {"code": done.rc, "out": done.stdout + done.stderr, "left": left_jobs(fleet)}
    names = shell(fleet.head, "ls /fsx/ddp").split()
    return {**answer, "reports": {name: json.loads(shell(fleet.head, f"cat /fsx/ddp/{name}")) for name in names}}


def guide(fleet: Fleet) -> dict[str, list[Any]]:
    """Commands of the guides, typed as the cluster's user on the head node: command -> exit code and output."""
    seen = {}
    for command in GUIDE:
        for _ in range(GUIDE_TRIES):
            done = fleet.head.exec(["su", "-", "ubuntu", "-c", command], timeout_s=60)
            seen[command] = [done.rc, done.stdout + done.stderr]
            if done.ok:
                break
            shell(fleet.head, "scancel --user=ubuntu")
    return seen


def search_all(fleet: TorchFleet) -> dict[str, Any]:
    answer: dict[str, Any] = {"guide": guide(fleet), "ddp": ddp(fleet) if fleet.python else None}
    search = ["locate", "--scenario", SCENARIO]
    cases: dict[str, tuple[AbstractContextManager[None], list[str]]] = {
        "one": (slow_nodes(fleet, "gpu-6"), search),
        "link": (slow_link(fleet, "gpu-4", "gpu-5"), search),
        "two": (slow_nodes(fleet, "gpu-3", "gpu-8"), ["run", "--scenario", SCENARIO, "--drain"]),
        # The last one: ranks on gpu-2 stay stopped. gpu-3 and gpu-8 are drained by now.
        "hang": (stopped_ranks(fleet, "gpu-2"), [*search, "--site", HANG_SITE, "--nodes", "gpu-[1-2],gpu-[4-5]"]),
    }
    for name, (fault, words) in cases.items():
        with fault:
            answer[name] = acceptance(fleet, *words)
    return answer


def main(run_dir: str, tools_dir: str, python: str | None = None) -> dict[str, Any]:
    TorchFleet.python = python
    with TorchFleet(Path(run_dir), CIDR, GATEWAY, tools_dir=Path(tools_dir), link_rate_mbit=LINK_MBIT) as fleet:
        fleet.boot(HEAD, *(compute(number + 1) for number in range(HOSTS)))
        fleet.write_slurm()
        fleet.start_slurm()
        fleet.wait_idle(60)
        fleet.head.put(PROGRAM, acceptance_program())
        fleet.head.put(SCENARIO, json.dumps(scenario()).encode())
        for name in ("all_reduce_perf", "alltoall_perf"):
            fleet.head.put(f"{TESTS}/{name}", (HERE / "program/tcp_perf").read_bytes(), 0o755)
        shell(fleet.head, f"chmod 755 {TESTS}")
        fleet.head.put(HANG_SITE, json.dumps(hang_site()).encode())
        return search_all(fleet)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
