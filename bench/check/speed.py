"""Wall times, measured side by side: programs from start to end, medians of runs in turn."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench.check import base
from bench.check.find import Bench

RUNS = 7
QUEUES = 16
USUAL_CALL_S = 0.2  # stand-ins for AWS over the network: most calls, and the search among all images
SLOW_CALL_S = 1.5


def check_and_pcluster(bench: Bench) -> tuple[float, float]:
    """Seconds of `slipway check` and of pcluster's dry run on a cluster of 16 queues."""
    base.prepare(bench.aws)
    file = _many_queues(bench.work / "queues.yaml")
    cluster = base.configuration(file)
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_seconds(lambda: bench.check(file)))
        theirs.append(_seconds(lambda: bench.pcluster(cluster)))
    ours_s, theirs_s = statistics.median(ours), statistics.median(theirs)
    print(f"{QUEUES} queues: slipway check {ours_s:.2f} s, pcluster create-cluster --dryrun {theirs_s:.2f} s")
    return ours_s, theirs_s


def preflight_and_slowest_call(bench: Bench) -> tuple[float, float]:
    """Seconds that all questions took together, and the slowest of their calls, with calls that take their time."""
    base.prepare(bench.aws)
    runs = []
    with (
        bench.aws.misbehave("*", delay_s=USUAL_CALL_S),
        bench.aws.misbehave("ec2:DescribeImages", delay_s=SLOW_CALL_S),
    ):
        for _ in range(3):
            answer = bench.slipway("preflight", base.CONTROL)
            runs.append((answer["seconds"], answer["slowest_call"]["seconds"]))
    return sorted(runs)[len(runs) // 2]


def _many_queues(file: Path) -> Path:
    """Write the settings with 16 queues to `file`."""
    settings = YAML().load(base.CONTROL)
    cpu = settings["queues"][1]
    settings["queues"][1:] = [{**cpu, "name": f"cpu{number}"} for number in range(1, QUEUES)]
    YAML().dump(settings, file)
    return file


def _seconds(run: Any) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began
