#!/usr/bin/env python3
"""Write EFA's hardware counters and the Lustre client's statistics for the node exporter's textfile collector.

Usage: `node_metrics.py [--directory DIR] [--locks DIR] [--root DIR] [--timeout SECONDS]`. Reads
`/sys/class/infiniband/*` of devices of the driver efa, and `llite/*/stats` below `/proc/fs/lustre` or
`/sys/kernel/debug/lustre`, else `lctl`. Each collector has a separate process and a deadline; a collector without an
answer loses its file and has `slipway_collector_up` 0. Exit 0; 1 when the directory cannot be written.
Needs root for Lustre's statistics. Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the bundle

from nodes.metrics import textfile
from nodes.metrics.infiniband import efa_devices
from nodes.metrics.textfile import Family, Page

TIMEOUT_S = 5.0
LCTL_TIMEOUT_S = 4
# Not counters: how long the kernel caches the others, in ms.
NOT_COUNTERS = frozenset({"lifespan"})
# Port counters of the kernel's driver (drivers/infiniband/hw/efa/efa_verbs.c), as the driver names them.
EFA_COUNTERS: dict[str, tuple[str, str]] = {
    "tx_bytes": ("tx_bytes", "Bytes sent."),
    "tx_pkts": ("tx_packets", "Packets sent."),
    "rx_bytes": ("rx_bytes", "Bytes received."),
    "rx_pkts": ("rx_packets", "Packets received."),
    "rx_drops": ("rx_dropped_packets", "Packets received and dropped."),
    "send_bytes": ("send_bytes", "Bytes of send work requests."),
    "send_wrs": ("send_work_requests", "Send work requests."),
    "recv_bytes": ("recv_bytes", "Bytes of receive work requests."),
    "recv_wrs": ("recv_work_requests", "Receive work requests."),
    "rdma_read_wrs": ("rdma_read_work_requests", "RDMA read work requests."),
    "rdma_read_bytes": ("rdma_read_bytes", "Bytes read by RDMA."),
    "rdma_read_wr_err": ("rdma_read_work_request_errors", "RDMA read work requests that failed."),
    "rdma_read_resp_bytes": ("rdma_read_response_bytes", "Bytes given to others' RDMA reads."),
    "rdma_write_wrs": ("rdma_write_work_requests", "RDMA write work requests."),
    "rdma_write_bytes": ("rdma_write_bytes", "Bytes written by RDMA."),
    "rdma_write_wr_err": ("rdma_write_work_request_errors", "RDMA write work requests that failed."),
    "rdma_write_recv_bytes": ("rdma_write_received_bytes", "Bytes that others wrote by RDMA."),
    "retrans_bytes": ("retransmitted_bytes", "Bytes sent again."),
    "retrans_pkts": ("retransmitted_packets", "Packets sent again."),
    "retrans_timeout_events": ("retransmission_timeouts", "Times a retransmission came too late."),
    "impaired_remote_conn_events": ("impaired_remote_connections", "Times a connection to a peer was impaired."),
    "unresponsive_remote_events": ("unresponsive_remotes", "Times a peer did not respond."),
}
EFA_OTHER: Family = (
    "slipway_efa_other_total",
    "counter",
    "A counter of the EFA driver without a name of its own here.",
)
EFA_DEVICES: Family = ("slipway_efa_devices", "gauge", "EFA devices of this node.")
EFA_ACTIVE: Family = ("slipway_efa_port_active", "gauge", "1 when the port's state is ACTIVE, else 0.")
LUSTRE_BYTES: Family = ("slipway_lustre_bytes_total", "counter", "Bytes that this client moved, by direction.")
LUSTRE_CALLS: Family = ("slipway_lustre_operations_total", "counter", "Calls of this client, by operation.")
LUSTRE_SECONDS: Family = (
    "slipway_lustre_operation_seconds_total",
    "counter",
    "Seconds that this client's calls took, by operation.",
)
LLITE = ("proc/fs/lustre/llite", "sys/kernel/debug/lustre/llite")
# Such as: read_bytes 12 samples [bytes] 4096 1048576 5242880; sums of squares may follow.
STATS_LINE = re.compile(r"(\w+)\s+(\d+) samples \[(\w+)\](?:\s+\d+\s+\d+\s+(\d+))?")
BYTES_OPERATIONS = {"read_bytes": "read", "write_bytes": "write"}


def efa(root: Path) -> str:
    """Return the page of every EFA device's counters; of none, the number 0."""
    page = Page()
    devices = efa_devices(root / "sys")
    page.add(EFA_DEVICES, len(devices))
    for device in devices:
        for port in _children(device / "ports"):
            labels = {"device": device.name, "port": port.name}
            page.add(EFA_ACTIVE, float("ACTIVE" in (port / "state").read_text(encoding="utf-8")), **labels)
            for counter in _children(port / "hw_counters"):
                _efa_counter(page, counter, labels)
        for counter in _children(device / "hw_counters"):
            _efa_counter(page, counter, {"device": device.name, "port": ""})
    return page.text()


def _efa_counter(page: Page, file: Path, labels: dict[str, str]) -> None:
    if file.name in NOT_COUNTERS:
        return
    value = int(file.read_text(encoding="utf-8"))
    known = EFA_COUNTERS.get(file.name)
    if known:
        page.add((f"slipway_efa_{known[0]}_total", "counter", known[1]), value, **labels)
    else:
        page.add(EFA_OTHER, value, **labels, counter=file.name)


def _children(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def lustre(root: Path) -> str:
    """Return the page of each mounted Lustre file system; empty where none is."""
    totals: dict[tuple[Family, str, str], float] = {}
    for name, stats in _llite(root):
        for family, operation, value in parse_stats(stats):
            # Two mounts of one file system are added up.
            key = (family, name, operation)
            totals[key] = totals.get(key, 0) + value
    page = Page()
    for (family, name, operation), value in totals.items():
        label = "direction" if family is LUSTRE_BYTES else "operation"
        page.add(family, value, file_system=name, **{label: operation})
    return page.text()


def parse_stats(text: str) -> Iterator[tuple[Family, str, float]]:
    """Yield family, operation and value of each line of an `llite` stats file; other lines are left out."""
    for line in text.splitlines():
        match = STATS_LINE.match(line)
        if not match:
            continue
        operation, calls, unit, total = match.groups()
        if operation in BYTES_OPERATIONS:
            yield LUSTRE_BYTES, BYTES_OPERATIONS[operation], float(total or 0)
            continue
        yield LUSTRE_CALLS, operation, float(calls)
        if unit in ("usec", "usecs") and total:
            yield LUSTRE_SECONDS, operation, int(total) / 1e6


def _llite(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the file system's name and the text of its statistics for each mount."""
    files = [file for place in LLITE for file in sorted((root / place).glob("*/stats"))]
    for file in files:
        yield _file_system(file.parent.name), file.read_text(encoding="utf-8", errors="replace")
    if not files and (root / "sys/fs/lustre").is_dir():
        yield from _lctl()


def _lctl() -> Iterator[tuple[str, str]]:
    """Where the files have moved, the client's own tool finds them: `llite.NAME-ID.stats=` heads each one."""
    command = ["lctl", "get_param", "llite.*.stats"]
    # It inherits the collector's lock: should it hang in the kernel, there is one of it at most.
    done = subprocess.run(command, capture_output=True, text=True, timeout=LCTL_TIMEOUT_S, check=True, close_fds=False)
    for part in re.split(r"^llite\.", done.stdout, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition(".stats=")
        yield _file_system(head), text


def _file_system(instance: str) -> str:
    """fsname of "fsname-ffff8881234"."""
    return instance.rpartition("-")[0] or instance


def collect(name: str, work: Callable[[], str], options: argparse.Namespace, report: Page) -> None:
    """Run one collector; put its page in place or take it away, and say in `report` how it went."""
    started = time.monotonic()
    text, up = "", 1
    try:
        text = textfile.within(options.timeout, options.locks / f"metrics-{name}.lock", work)
    except textfile.CollectorError as error:
        up = 0
        print(f"node_metrics.py: {name}: {error}. Its metrics are left out until it answers", file=sys.stderr)
    textfile.publish(options.directory / f"slipway-{name}.prom", text)
    report.add(textfile.UP, up, collector=name)
    report.add(textfile.DURATION, round(time.monotonic() - started, 3), collector=name)


def main(arguments: list[str]) -> int:
    """Run both collectors once; return the exit code."""
    parser = argparse.ArgumentParser(description="Write EFA and Lustre metrics for the node exporter.")
    parser.add_argument("--directory", type=Path, default=textfile.DIRECTORY, help="where the *.prom files go")
    parser.add_argument("--locks", type=Path, default=textfile.LOCKS, help="directory of the lock files")
    parser.add_argument("--root", type=Path, default=Path("/"), help="in place of / (tests)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds that each collector has")
    options = parser.parse_args(arguments)
    report = Page()
    try:
        collect("efa", lambda: efa(options.root), options, report)
        collect("lustre", lambda: lustre(options.root), options, report)
        textfile.publish(options.directory / "slipway-node-collectors.prom", report.text())
    except OSError as error:
        print(f"node_metrics.py: {error}. Hint: is {options.directory} there, writable, and not full?", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
