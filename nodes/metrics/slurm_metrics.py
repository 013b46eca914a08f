#!/usr/bin/env python3
"""Write Slurm's nodes, jobs, GPUs and scheduler as metrics, or point Prometheus to Slurm's own endpoint.

Usage: `slurm_metrics.py [--directory DIR] [--targets FILE] [--timeout SECONDS]`. Where `MetricsType` is set and
`PrivateData` is not (Slurm 25.11 and newer), the endpoint's pages go into FILE as file_sd targets and nothing is
exported here; else FILE is an empty list and `sinfo`, `squeue` and `sdiag` are asked. When one of them gives no
answer in time, the metrics are left out and `slipway_collector_up{collector="slurm"}` is 0. Exit 0; 1 when a file
cannot be written. Runs on the head node: Python 3.9, standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the bundle

from nodes.metrics import textfile
from nodes.metrics.textfile import CollectorError, Family, Page

TIMEOUT_S = 10.0
SLURM_CONF = Path("/opt/slurm/etc/slurm.conf")
TARGETS = Path("/etc/prometheus/targets/slurm.json")
# https://slurm.schedmd.com/metrics.html, read 2026-11-28; the users' and accounts' page is left out: a series for each.
ENDPOINTS = ("jobs", "nodes", "partitions", "scheduler")
# sinfo's marks behind a state that say more than the state itself.
MARKS = {"~": "powered_down", "#": "powering_up", "%": "powering_down", "!": "powering_down"}
OTHER_MARKS = "*$@^-+"
ABSENT = frozenset({"powered_down", "powering_up", "powering_down"})
NO_REASON = frozenset({"", "none", "n/a"})
MOST_REASONS = 20
REASON_LENGTH = 80
GPUS = re.compile(r"(?:^|,)gpu(?::[\w.-]+)?:(\d+)")

NODES: Family = ("slipway_slurm_nodes", "gauge", "Nodes by partition and state; one of two partitions is in both.")
DRAINED: Family = ("slipway_slurm_nodes_with_reason", "gauge", "Nodes that are drained, draining or down, by reason.")
JOBS: Family = ("slipway_slurm_jobs", "gauge", "Jobs in the queue by partition and state; a waiting array is one.")
GPUS_UP: Family = ("slipway_slurm_gpus", "gauge", "GPUs of the nodes that are not powered down.")
GPUS_USED: Family = ("slipway_slurm_gpus_allocated", "gauge", "GPUs that jobs hold.")
# What sdiag prints -> its metric: (section, line), (name, type, help), factor.
US = 1e-6
SDIAG: dict[tuple[str, str], tuple[Family, float]] = {
    ("", "Server thread count"): (("slipway_slurm_server_threads", "gauge", "Threads of slurmctld at work."), 1),
    ("", "Agent queue size"): (("slipway_slurm_agent_queue", "gauge", "Messages that wait for being sent."), 1),
    ("", "DBD Agent queue size"): (("slipway_slurm_dbd_queue", "gauge", "Messages that wait for slurmdbd."), 1),
    ("", "Jobs submitted"): (("slipway_slurm_jobs_submitted_total", "counter", "Jobs submitted; daily from 0."), 1),
    ("", "Jobs started"): (("slipway_slurm_jobs_started_total", "counter", "Jobs started; daily from 0."), 1),
    ("", "Jobs completed"): (("slipway_slurm_jobs_completed_total", "counter", "Jobs completed; daily from 0."), 1),
    ("", "Jobs canceled"): (("slipway_slurm_jobs_canceled_total", "counter", "Jobs canceled; daily from 0."), 1),
    ("", "Jobs failed"): (("slipway_slurm_jobs_failed_total", "counter", "Jobs failed; daily from 0."), 1),
    ("main", "Last cycle"): (("slipway_slurm_cycle_seconds", "gauge", "Seconds of the last scheduling cycle."), US),
    ("main", "Mean cycle"): (("slipway_slurm_cycle_mean_seconds", "gauge", "Mean seconds of a scheduling cycle."), US),
    ("main", "Max cycle"): (("slipway_slurm_cycle_max_seconds", "gauge", "Most seconds of a scheduling cycle."), US),
    ("backfill", "Last cycle"): (
        ("slipway_slurm_backfill_cycle_seconds", "gauge", "Seconds of the last backfilling cycle."),
        US,
    ),
    ("backfill", "Max cycle"): (
        ("slipway_slurm_backfill_cycle_max_seconds", "gauge", "Most seconds of a backfilling cycle."),
        US,
    ),
}


def ask(command: list[str], seconds: float) -> str:
    """Return what one of Slurm's commands printed.

    Raises CollectorError if it is absent, fails, or does not answer in time.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    environment["PATH"] = "/opt/slurm/bin:/usr/local/bin:" + environment.get("PATH", "/usr/bin:/bin")
    if SLURM_CONF.exists():
        environment.setdefault("SLURM_CONF", str(SLURM_CONF))
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CollectorError(f"{command[0]}: {error}") from error
    return done.stdout


def endpoint(config: str) -> str:
    """Return the address of Slurm's own metrics, or "" where it has none, from `scontrol show config`."""
    values = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", config, re.MULTILINE))
    if values.get("MetricsType", "(null)") in ("(null)", "", "none"):
        return ""
    if values.get("PrivateData", "none") not in ("none", "(null)"):
        return ""
    port = re.match(r"\d+", values.get("SlurmctldPort", ""))
    return f"127.0.0.1:{port.group()}" if port else ""


def targets(address: str) -> list[dict[str, object]]:
    """Return file_sd's groups of the endpoint's pages; none without an address."""
    node = os.uname().nodename
    pages = ENDPOINTS if address else ()
    return [
        {"targets": [address], "labels": {"__metrics_path__": f"/metrics/{page}", "page": page, "node": node}}
        for page in pages
    ]


def state(printed: str) -> str:
    """Return one word for sinfo's state: "idle~" is powered_down, "idle*" not_responding, "down*" down."""
    text = printed.lower()
    if text and text[-1] in MARKS:
        return MARKS[text[-1]]
    word = text.rstrip(OTHER_MARKS)
    silent = text.endswith("*") and not word.startswith(("down", "drain"))
    return "not_responding" if silent else word


def count_gpus(gres: str) -> int:
    """GPUs of "gpu:h100:8(S:0-1)", "gpu:8" or "gpu:h100:3(IDX:0-2)"."""
    return sum(int(number) for number in GPUS.findall(gres))


def nodes_page(page: Page, listing: str, used: str) -> None:
    """Add nodes, reasons and GPUs, from `sinfo -o '%N|%R|%T|%G|%E'` and `sinfo -O NodeList,GresUsed`."""
    states: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    gpus: dict[str, int] = {}
    for name, partition, printed, gres, reason in _fields(listing, 5):
        states[partition, state(printed)] += 1
        if name in gpus:  # of a second partition
            continue
        gpus[name] = 0 if state(printed) in ABSENT else count_gpus(gres)
        if state(printed).startswith(("down", "drain", "fail")) and reason.lower() not in NO_REASON:
            reasons[reason[:REASON_LENGTH]] += 1
    for (partition, word), number in sorted(states.items()):
        page.add(NODES, number, partition=partition, state=word)
    for reason, number in _most(reasons):
        page.add(DRAINED, number, reason=reason)
    # Of several partitions, once for each: a dict has it once.
    held = dict(line.split(None, 1) for line in used.splitlines() if len(line.split(None, 1)) == 2)
    page.add(GPUS_UP, sum(gpus.values()))
    page.add(GPUS_USED, sum(count_gpus(gres) for gres in held.values()))


def _fields(listing: str, number: int) -> Iterator[list[str]]:
    for line in listing.splitlines():
        fields = [field.strip() for field in line.split("|", number - 1)]
        if len(fields) == number:
            yield fields


def _most(reasons: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent reasons; the rest as one, since anybody can write any text there."""
    most = reasons.most_common(MOST_REASONS)
    rest = sum(reasons.values()) - sum(number for _, number in most)
    return [*most, ("other", rest)] if rest else most


def jobs_page(page: Page, listing: str) -> None:
    """Add jobs by partition and state, from `squeue -o '%P|%T'`."""
    jobs = Counter((partition, word.lower()) for partition, word in _fields(listing, 2))
    for (partition, word), number in sorted(jobs.items()):
        page.add(JOBS, number, partition=partition, state=word)


def sdiag_page(page: Page, text: str) -> None:
    """Add what `sdiag` says of the controller and of both schedulers."""
    section = ""
    for line in text.splitlines():
        if line.startswith("Main schedule"):
            section = "main"
        elif line.startswith("Backfilling"):
            section = "backfill"
        match = re.match(r"\s*([^:]+):\s+(\d+)$", line)
        known = SDIAG.get((section, match.group(1))) if match else None
        if match and known:
            page.add(known[0], round(int(match.group(2)) * known[1], 6))


def metrics(seconds: float) -> str:
    """Return the page. Raises CollectorError when one of the commands gave no answer."""
    page = Page()
    sinfo = ["sinfo", "--all", "--noheader", "--Node"]
    listing = ask([*sinfo, "--format=%N|%R|%T|%G|%E"], seconds)
    nodes_page(page, listing, ask([*sinfo, "--Format=NodeList:128,GresUsed:256"], seconds))
    jobs_page(page, ask(["squeue", "--all", "--noheader", "--format=%P|%T"], seconds))
    sdiag_page(page, ask(["sdiag"], seconds))
    return page.text()


def main(arguments: list[str]) -> int:
    """Ask Slurm once and write the files; return the exit code."""
    parser = argparse.ArgumentParser(description="Write Slurm's metrics for the node exporter.")
    parser.add_argument("--directory", type=Path, default=textfile.DIRECTORY, help="where the *.prom files go")
    parser.add_argument("--targets", type=Path, default=TARGETS, help="file_sd file of Slurm's own endpoint")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds that each command has")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    text, up, groups = "", 1, None
    try:
        address = endpoint(ask(["scontrol", "show", "config"], options.timeout))
        groups = targets(address)
        text = "" if address else metrics(options.timeout)
    except CollectorError as error:
        up = 0
        print(f"slurm_metrics.py: {error}. Hint: run it on this node; the metrics are left out", file=sys.stderr)
    report = Page()
    report.add(textfile.UP, up, collector="slurm")
    report.add(textfile.DURATION, round(time.monotonic() - started, 3), collector="slurm")
    try:
        if groups is not None:  # without an answer the targets stay as they are
            textfile.publish(options.targets, json.dumps(groups, indent=2) + "\n")
        textfile.publish(options.directory / "slipway-slurm.prom", text)
        textfile.publish(options.directory / "slipway-slurm-collector.prom", report.text())
    except OSError as error:
        print(f"slurm_metrics.py: {error}. Hint: is the directory there, writable, and not full?", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
