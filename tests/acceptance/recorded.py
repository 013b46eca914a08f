"""Recorded runs: directories as the runner leaves them, made without Slurm."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from acceptance_runs import HERE, make_scenario

from acceptance.locate.model import Result
from acceptance.runner.follow import JobOutcome
from acceptance.runner.record import LocateRecord, RunRecord, TestRecord

GIB = 1 << 30
RANKS = 16


def run_directory(root: Path, log: str | None = "90-SYNTH-v2.19-plain.txt", **changes: Any) -> Path:
    """A finished run of two nodes, as the runner leaves it, without its reports.

    changes: of the run's id and start, the scenario, its limit, the outcome, the log's text, or the record's own values.
    """
    directory = root / changes.pop("run_id", "20261127T210000Z-train")
    directory.mkdir(parents=True)
    started = changes.pop("started", "2026-11-27T21:00:00Z")
    scenario = make_scenario(nodes=2, gpus_per_node=8, cluster="ml")
    scenario["tests"][0].update(min_bytes=1 << 30, max_bytes=1 << 32)
    scenario["limits"][0].update(nodes=2, size_bytes=1 << 32, fail_below_gb_per_s=400, warn_below_gb_per_s=450)
    scenario["limits"][0].update(changes.pop("limit", {}))
    scenario.update(changes.pop("scenario", {}))
    (directory / "scenario.json").write_text(json.dumps(scenario))
    if log:
        text = changes.pop("text", None) or (HERE / "data" / log).read_text()
        (directory / "all_reduce.out").write_text(text)
    values = {"job_id": 7, "state": "COMPLETED", "exit_code": 0, "kind": "done", "message": "the job ended well"}
    values.update(changes.pop("outcome", {}))
    outcome = JobOutcome(nodes=["gpu-1", "gpu-2"], seconds=12.5, **values)
    record = RunRecord(directory.name, started, finished="2026-11-27T21:00:20Z", slurm="slurm 22.05.8")
    record.nodes = {name: {"state": "IDLE", "trouble": None, "reason": None} for name in ("gpu-1", "gpu-2")}
    record.tests = [TestRecord("all_reduce", "all_reduce.out", ["sbatch", "a b.sbatch"], outcome=outcome)]
    for name, value in changes.items():
        setattr(record, name, value)
    record.write(directory)
    return directory


def log_of(busbw: dict[int, float], ranks: int = RANKS) -> str:
    """A log as nccl-tests 2.19 prints it, with these out-of-place bus bandwidths in GB/s by size in bytes."""
    lines = (HERE / "data/90-SYNTH-v2.19-plain.txt").read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  1073741824"))
    head, foot = lines[:first], lines[first + 3 :]
    head[2] = head[2].replace("1073741824", str(min(busbw))).replace("4294967296", str(max(busbw)))
    rows = []
    for size, speed in sorted(busbw.items()):
        algbw = speed * ranks / (2 * (ranks - 1))
        time_us = size / algbw / 1e3
        digits = 2 if time_us < 1e4 else 1 if time_us < 1e5 else 0  # as nccl-tests prints them
        side = f"{time_us:9.{digits}f} {algbw:7.2f} {speed:7.2f} {0:7d}"
        rows.append(f"{size:12d} {size // 4:13d} {'float':>9} {'sum':>7} {-1:7d} {side} {side}")
    return "\n".join([*head, *rows, *foot]) + "\n"


def sweep(top: float) -> dict[int, float]:
    """Bus bandwidths of 1, 2 and 4 GiB, of which the last is `top` GB/s."""
    return {GIB: round(top * 0.94, 2), 2 * GIB: round(top * 0.95, 2), 4 * GIB: top}


def idle(names: list[str]) -> dict[str, dict[str, str | None]]:
    """The nodes as Slurm knew them, for the record."""
    return {name: {"state": "IDLE", "trouble": None, "reason": None} for name in names}


def located(names: list[str], slow: str, hanging: str) -> LocateRecord:
    """A search by pairs that names a slow node and a hanging one; as its record is in run.json."""
    noise = random.Random(1)  # noqa: S311 - makes figures, no secrets
    results = [
        Result(0, "alone", "all_reduce", (n,), "ok", 480.1, f"locate-1-{i + 1}.out") for i, n in enumerate(names)
    ]
    half = len(names) // 2
    rounds = [
        names,
        names[1:] + names[:1],
        [name for index in range(half) for name in (names[index], names[half + index])],
    ]
    for number, ring in enumerate(rounds, 1):
        for index in range(0, len(names), 2):
            pair = (ring[index], ring[index + 1])
            value = None if hanging in pair else 8.9 if slow in pair else 87 + noise.random()
            log = f"locate-{number + 1}-{index // 2 + 1}.out"
            results.append(Result(number, "pair", "all_reduce", pair, "ok" if value else "hang", value, log))
    return LocateRecord(
        test="all_reduce",
        collective="all_reduce",
        size_bytes=4 * GIB,
        nodes=names,
        pair_limit=None,
        factor=0.8,
        max_rounds=6,
        alone="all_reduce",
        collectives=["all_reduce"],
        sizes={"all_reduce": 4 * GIB},
        results=results,
        commands=[["sbatch", "--parsable", f"/runs/locate-{number}.sbatch"] for number in (1, 2, 3, 4)],
    )
