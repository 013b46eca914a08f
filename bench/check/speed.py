"""Wall times, measured side by side: programs from start to end, medians of runs in turn."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.check import account, base
from bench.check.find import SCRIPT_URL, Bench

RUNS = 7
QUEUES = 16
USUAL_CALL_S = 0.2  # stand-ins for AWS over the network: most calls, and the search among all images
SLOW_CALL_S = 1.5


def check_and_pcluster(bench: Bench) -> tuple[float, float]:
    """Seconds of ``slipway check`` and of pcluster's dry run on a cluster of 16 queues."""
    site = account.prepare(bench.aws)
    file = base.write(_many_queues(base.settings(site)), bench.work / "queues.yaml")
    cluster = base.configuration(file, site, SCRIPT_URL)
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_seconds(lambda: bench.check(file)))
        theirs.append(_seconds(lambda: bench.pcluster(cluster, "bench")))
    ours_s, theirs_s = statistics.median(ours), statistics.median(theirs)
    print(f"{QUEUES} queues: slipway check {ours_s:.2f} s, pcluster create-cluster --dryrun {theirs_s:.2f} s")
    return ours_s, theirs_s


def preflight_and_slowest_call(bench: Bench) -> tuple[float, float]:
    """Seconds that all questions took together, and the slowest of their calls, with calls that take their time."""
    site = account.prepare(bench.aws)
    file = base.write(base.settings(site), bench.work / "control.yaml")
    runs = []
    with (
        bench.aws.misbehave("*", delay_s=USUAL_CALL_S),
        bench.aws.misbehave("ec2:DescribeImages", delay_s=SLOW_CALL_S),
    ):
        for _ in range(3):
            answer = bench.slipway("preflight", file)
            runs.append((answer["seconds"], answer["slowest_call"]["seconds"]))
    return sorted(runs)[len(runs) // 2]


def _many_queues(settings: dict[str, Any]) -> dict[str, Any]:
    cpu = settings["queues"][1]
    settings["queues"][1:] = [{**cpu, "name": f"cpu{number}"} for number in range(1, QUEUES)]
    return settings


def _seconds(run: Any) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began
