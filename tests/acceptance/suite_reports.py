"""Directories of the GPU suite's JSON: a real report of one H200, and the same made into a node of eight."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "gpusuite/data/h200-quick.json"
STORAGE = {
    "schema": 1,
    "program": "storage_tests",
    "node": "gpu-7",
    "date": "2026-11-29T02:10:00Z",
    "directories": {
        "/fsx": {
            "bytes": 1 << 30,
            "write_gb_per_s": 1.25,
            "read_gb_per_s": 2.5,
            "loader_reads_per_s": 9000.0,
            "fio": {"randread": {"iops": 4e5, "gb_per_s": 1.6}, "randwrite": {"error": "fio did not end"}},
        }
    },
    "checks": [{"name": "storage", "outcome": "warn", "message": "gpu-7 /fsx: reads went through the page cache"}],
    "result": "SUCCESS",
    "failures": [],
}
ALL_REDUCE = {
    "schema": 1,
    "date": "2026-11-29T02:09:00Z",
    "launcher": "torchrun",
    "world_size": 8,
    "allreduce": [{"bytes": 1 << 30, "busbw_gb_per_s": 340.5, "ok": True}],
    "collectives": [{"collective": "alltoall", "bytes": 1 << 30, "busbw_gb_per_s": 300.5, "ok": True}],
    "nccl": "2.28.9",
    "result": "SUCCESS",
    "failures": [],
}
SLOW = "gpu-7 gpu 3 (0000:03:00): gemm bf16 8192 397.7 TFLOP/s, 40% below the median 662.8 of 8"


def recorded() -> dict[str, Any]:
    """The report of one H200."""
    values: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return values


def of_eight() -> dict[str, Any]:
    """The report of a node of eight: GPU 3 is slow, and the copy from GPU 5 to 6 is at half speed."""
    report = recorded()
    one, samples, readings = report["gpus"][0], report["samples"], report["readings"]
    report.update(node="gpu-7", gpus=[], samples=[], readings=[])
    for index in range(8):
        bus = f"0000:0{index}:00"
        report["gpus"].append({**one, "index": index, "bus": bus, "uuid": f"GPU-{index}"})
        report["samples"] += [{**sample, "bus": bus} for sample in samples]
        for reading in copy.deepcopy(readings):
            slow = index == 3 and reading["metric"] == "gemm bf16 8192"
            report["readings"].append({**reading, "gpu": index, "value": reading["value"] * (0.6 if slow else 1)})
    report["peers"] = {
        "pairs": [_pair(source, target) for source in range(8) for target in range(8) if source != target]
    }
    pair = "gpu-7 gpu 5 (0000:05:00 to gpu 6 0000:06:00): peer 197 GB/s, 50% below the median 393 of 56"
    report["failures"] = [SLOW, pair]
    metrics = ("gemm bf16 8192", "peer")
    report["checks"] += [
        {"name": "peers", "outcome": "fail", "message": text, "gpu": 3, "metric": metric, "kind": "slow"}
        for text, metric in zip(report["failures"], metrics, strict=True)
    ]
    report["result"] = "FAILURE"
    return report


def _pair(source: int, target: int) -> dict[str, Any]:
    rate = 197.0 if (source, target) == (5, 6) else 393.0
    return {"from": source, "to": target, "gb_per_s": rate, "direct": True, "wrong": False}


def write_reports(directory: Path, **reports: Any) -> Path:
    """Write each report as NAME.json and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, values in reports.items():
        (directory / f"{name}.json").write_text(json.dumps(values))
    return directory


def whole(**parts: Any) -> dict[str, Any]:
    """The report of `run_all_tests.py` with these parts."""
    failures = [text for part in parts.values() for text in part["failures"]]
    values = {"schema": 1, "node": "gpu-7", "date": "2026-11-29T02:11:00Z", "quick": True, "parts": parts}
    return {**values, "failures": failures, "result": "FAILURE" if failures else "SUCCESS"}
