#!/usr/bin/env python3
"""Say what Managed Prometheus refused of the metrics that this head node sends.

Usage: `remote_write.py [--record]`. Prometheus stays ready and its scrapes stay green while every sample that it sends
is refused (HTTP 400 at a limit, 429 when throttled); only its own counters say so. Prints them as JSON: samples of the
last 15 minutes that were sent, `refused` (failed or dropped: lost) and `retried`, and the last refusal in Prometheus'
log. `--record` appends `remote_write REFUSED RETRIED SENT TIME` to LOG instead: the CloudWatch agent ships it, and a
metric filter of the observability stack makes the alarm's metric of it. Without remote write nothing is done.
Exit 0; 1 when Prometheus does not answer. Runs on the head node: Python 3.9, standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the bundle

from nodes.lib import env

API = "http://127.0.0.1:9090/api/v1/query"
WINDOW = "15m"
TIMEOUT_S = 5.0
LOG = Path("/var/log/slipway/remote-write.log")
LOG_BYTES = 1 << 20
UNIT = "slipway-prometheus.service"
TEXT = 300
# Prometheus' own counters (storage/remote/queue_manager.go). No relabelling drops samples here: dropped ones are lost.
COUNTERS = {
    "sent": ("prometheus_remote_storage_samples_total",),
    "refused": ("prometheus_remote_storage_samples_failed_total", "prometheus_remote_storage_samples_dropped_total"),
    "retried": ("prometheus_remote_storage_samples_retried_total",),
}
REFUSAL = re.compile(r'err(?:or)?="?((?:[^"\\]|\\.)*)')


def read() -> dict[str, Any] | None:
    """Return the counters and the last refusal, or `error`; None when this node sends nothing."""
    if not env.read(env.NODE_ENV).get("AMP_REMOTE_WRITE_URL"):
        return None
    try:
        found: dict[str, Any] = {key: round(sum(map(_increase, names))) for key, names in COUNTERS.items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return {"error": f"Prometheus does not say what it sent: {error}"[:TEXT]}
    if found["refused"] or found["retried"]:
        found["why"] = last_refusal()
    return found


def _increase(counter: str) -> float:
    query = urllib.parse.urlencode({"query": f"sum(increase({counter}[{WINDOW}]))"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the site
    with opener.open(f"{API}?{query}", timeout=TIMEOUT_S) as answer:
        result = json.loads(answer.read(1 << 20))["data"]["result"]
    return float(result[0]["value"][1]) if result else 0.0


def last_refusal() -> str:
    """What the server said last, from Prometheus' log; empty when the log does not say."""
    command = ["journalctl", "--unit", UNIT, "--no-pager", "--output=cat", "--lines=2000", "--since=-1h"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return refusal_in(done.stdout)


def refusal_in(log: str) -> str:
    """The newest line's error about a batch that was not taken."""
    lines = [line for line in log.splitlines() if "non-recoverable error" in line or "Failed to send batch" in line]
    match = REFUSAL.search(lines[-1]) if lines else None
    return (match[1].replace('\\"', '"') if match else "")[:TEXT]


def record(found: dict[str, Any]) -> None:
    """Append the line of the metric filter; the log and its predecessor never grow beyond twice `LOG_BYTES`."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    if LOG.exists() and LOG.stat().st_size > LOG_BYTES:
        LOG.replace(LOG.with_name(f"{LOG.name}.1"))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with LOG.open("a", encoding="utf-8") as stream:
        stream.write(f"remote_write {found['refused']} {found['retried']} {found['sent']} {stamp}\n")


def main(arguments: list[str] | None = None) -> int:
    """Print or record; return the exit code."""
    parser = argparse.ArgumentParser(description="What Managed Prometheus refused of this head node's metrics.")
    parser.add_argument("--record", action="store_true", help="append a line to the log, for the timer")
    options = parser.parse_args(arguments)
    found = read()
    if found is None:
        return 0
    if "error" in found:
        print(f"slipway: {found['error']}", file=sys.stderr)
        return 1
    if options.record:
        record(found)
    else:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
