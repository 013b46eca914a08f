"""The parser and a line-by-line reader over the same debug log, each in a separate process.

    python -m bench.parse [--megabytes 1000] [--json]

The log is generated in TMPDIR and removed at the end. The two readers take turns, the regex reader with a tenth of the
log, and the best reading of each counts, by CPU time: the ratio changes less with the machine than a speed does.
Exit 0 if the parser is fast enough and its memory constant, 1 if not, 3 if TMPDIR has no room.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.parse.generate import HOSTS, NICS, NODES, RANKS, SIZES, write_log

ROOT = Path(__file__).resolve().parents[2]
LEAST_RATIO = 3.0  # times the regex reader: 3.6 to 5.9 on busy machines of two cores, 2026-11-29 (docs/parsing.md)
MOST_GROWTH = 16.0  # MB from a tenth of the log to all of it: 14,000 rows of the result, of 0.6 kB each, and no text


def main() -> int:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(prog="bench.parse", description="How fast a NCCL_DEBUG log is read.")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the log (default: 1000)")
    parser.add_argument("--repeat", type=int, default=5, help="readings by each; the best counts (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--worker", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(_work(*arguments.worker)))
        return 0
    if shutil.disk_usage(tempfile.gettempdir()).free < arguments.megabytes * 1.3e6:
        print(
            f"bench.parse: no room for {arguments.megabytes} MB in {tempfile.gettempdir()}. Hint: set TMPDIR",
            file=sys.stderr,
        )
        return 3
    with tempfile.TemporaryDirectory(prefix="bench-parse-") as directory:
        return _bench(arguments, Path(directory))


def _bench(arguments: argparse.Namespace, directory: Path) -> int:
    log, part = directory / "debug.log", directory / "part.log"
    jobs = write_log(log, arguments.megabytes * 1_000_000)
    part_jobs = write_log(part, arguments.megabytes * 100_000)
    pairs = [(_measure("parser", log), _measure("plain", part)) for _ in range(arguments.repeat)]
    runs = [run for run, _ in pairs]
    best, plain = (min(readings, key=_cpu_per_mb) for readings in zip(*pairs, strict=True))
    tenth = _measure("parser", part)
    faults = _faults(best, jobs) + _faults(tenth, part_jobs) + _differences(tenth, plain)
    growth = best["peak_mb"] - tenth["peak_mb"]
    ratio = _cpu_per_mb(plain) / _cpu_per_mb(best)
    if ratio < LEAST_RATIO:
        faults.append(f"{ratio:.1f} times as fast as the regex reader is less than {LEAST_RATIO:g}")
    if growth > MOST_GROWTH:
        faults.append(f"the peak grows with the log: {growth:.1f} MB")
    rows = [
        ("acceptance.nccl", best),
        ("acceptance.nccl, a tenth of the log", tenth),
        ("regex reader, a tenth of the log", plain),
    ]
    speed = 1 / _cpu_per_mb(best)
    summary = f"{ratio:.1f}x the regex reader, {speed:.0f} MB a second of CPU time, peak {best['peak_mb']:.0f} MB"
    if arguments.json:
        print(
            json.dumps({"runs": runs, "tenth": tenth, "plain": plain, "faults": faults, "summary": summary}, indent=1)
        )
    else:
        _print(rows, runs, faults, summary)
    return 1 if faults else 0


def _print(rows: list[tuple[str, dict[str, Any]]], runs: list[dict[str, Any]], faults: list[str], summary: str) -> None:
    titles = f"{'s':>7s} {'CPU s':>7s} {'MB/s':>6s} {'peak MB':>8s} {'tables':>7s} {'rows':>7s}"
    print(f"{'reader':36s} {'MB read':>8s} {titles}")
    for name, run in rows:
        print(
            f"{name:36s} {run['megabytes']:8.0f} {run['seconds']:7.2f} {run['cpu_seconds']:7.2f} {run['mb_per_s']:6.0f}"
            f" {run['peak_mb']:8.1f} {run['tables']:7d} {run['rows']:7d}"
        )
    print("all readings of the parser, MB/s: " + ", ".join(f"{run['mb_per_s']:.0f}" for run in runs))
    for fault in faults:
        print(f"FAULT: {fault}")
    print(summary)


def _cpu_per_mb(run: dict[str, Any]) -> float:
    return float(run["cpu_seconds"] / run["megabytes"])


def _measure(reader: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.parse", "--worker", reader, str(path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _work(reader: str, name: str) -> dict[str, Any]:
    """Read in this process, so that its peak is the reader's own."""
    path = Path(name)
    started, cpu = time.perf_counter(), time.process_time()
    facts = _with_parser(path) if reader == "parser" else _with_plain(path)
    seconds = time.perf_counter() - started
    facts["seconds"], facts["cpu_seconds"] = seconds, time.process_time() - cpu
    facts["megabytes"] = facts.pop("bytes") / 1e6
    facts["mb_per_s"] = facts["megabytes"] / seconds
    facts["peak_mb"] = _peak_mb()
    return facts


def _with_parser(path: Path) -> dict[str, Any]:
    from acceptance.nccl import parse_file

    log = parse_file(path)
    rows = [row for table in log.tables for row in table.rows]
    return {
        "bytes": path.stat().st_size,
        "tables": len(log.tables),
        "rows": len(rows),
        "busbw_sum": round(sum(row.out_of_place.busbw for row in rows), 2),
        "hosts": len(log.network.hosts),
        "nics": log.network.values("nics"),
        "providers": log.network.values("provider"),
        "ranks": log.network.ranks,
        "devices": len(log.devices),
        "failures": len(log.failures) + len(log.events),
        "complete": log.complete,
    }


def _with_plain(path: Path) -> dict[str, Any]:
    from bench.parse.plain import read

    found = read(path)
    return {
        "bytes": found["bytes"],
        "tables": found["tables"],
        "rows": len(found["rows"]),
        "busbw_sum": round(sum(row[5] for row in found["rows"]), 2),
        "hosts": len(found["hosts"]),
        "nics": sorted({nics for _, nics in found["hosts"].values()}),
        "providers": sorted({provider for provider, _ in found["hosts"].values()}),
        "ranks": found["ranks"],
        "devices": len(found["devices"]),
        "failures": len(found["failures"]),
    }


def _faults(run: dict[str, Any], jobs: int) -> list[str]:
    """Hold what was read against what was written."""
    written = {
        "tables": jobs,
        "rows": jobs * len(SIZES),
        "devices": min(jobs * RANKS, 100_000),
        "hosts": min(jobs * NODES, HOSTS),
        "nics": [NICS],
        "providers": ["efa"],
        "ranks": RANKS,
        "failures": 0,
        "complete": True,
    }
    return [f"{key}: read {run[key]}, written {value}" for key, value in written.items() if run[key] != value]


def _differences(parser: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    """Both read the same log: they have to agree."""
    keys = ("tables", "rows", "busbw_sum", "hosts", "nics", "providers", "ranks", "failures")
    return [f"{key}: parser {parser[key]}, regex reader {plain[key]}" for key in keys if parser[key] != plain[key]]


def _peak_mb() -> float:
    """The peak of this process's resident memory in MB (the kernel's VmHWM; getrusage would count the parent's)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


if __name__ == "__main__":
    sys.exit(main())
