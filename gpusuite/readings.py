"""Measured figures as readings: one number of one GPU that is compared with its peers and with limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

# The least share below the median that counts, by kind of metric; ours: above the spread of healthy GPUs of one model
# (docs/measurements.md).
# host: the transfers of all GPUs run at once and share the host's memory; 54.0 next to 55.3 GB/s was healthy.
FLOORS = {"gemm": 0.05, "memory": 0.03, "host": 0.05, "peer": 0.02, "inference": 0.08}
_MEMORY = {"memory copy": "memory", "memory triad": "memory", "host to device": "host", "device to host": "host"}


@dataclass(frozen=True)
class Reading:
    """One figure; more is better. kind: a key of FLOORS; metric: such as `gemm bf16 8192`; gpu: its index.

    model and multiprocessors: peers have the same ones.
    """

    node: str
    gpu: int
    bus: str
    model: str
    kind: str
    metric: str
    value: float
    unit: str
    multiprocessors: int = 0

    @property
    def where(self) -> str:
        """Node, index and bus id, as every message names a GPU."""
        return f"{self.node} gpu {self.gpu} ({self.bus})"

    def as_json(self) -> dict[str, Any]:
        """Return the object of the report; `reading_of` reads it back."""
        return {"gpu": self.gpu, "kind": self.kind, "metric": self.metric, "value": self.value, "unit": self.unit}


def readings_of(report: Mapping[str, Any]) -> list[Reading]:
    """Return the readings of a report of `gpu_tests.py` (its JSON), one a GPU and metric."""
    gpus = {gpu["index"]: gpu for gpu in report["gpus"]}
    found = []
    for stage, results in report["stages"].items():
        for index, result in results.items():
            gpu = gpus[int(index)]
            who, size = (report["node"], int(index), gpu["bus"], gpu["name"]), gpu.get("multiprocessors", 0)
            found += [Reading(*who, *figure, multiprocessors=size) for figure in figures(stage, result)]
    return found


def figures(stage: str, result: Mapping[str, Any]) -> list[tuple[str, str, float, str]]:
    """Return kind, metric, value and unit of each figure that is judged in a stage's result of one GPU."""
    if stage == "compute":
        gemms = [one for one in result.get("gemms", []) if one.get("tflops") is not None]
        return [("gemm", f"gemm {one['dtype']} {one['n']}", one["tflops"], "TFLOP/s") for one in gemms]
    if stage == "memory":
        rates = result.get("gb_per_s", {})
        return [(kind, name, rates[name], "GB/s") for name, kind in _MEMORY.items() if name in rates]
    if stage == "inference":
        models = result.get("models", [])
        return [("inference", f"{one['model']} batch {one['batch']}", one["per_s"], one["unit"]) for one in models]
    if stage == "stress" and result.get("windows_tflops"):
        return [("gemm", f"stress {result['dtype']} {result['n']}", median(result["windows_tflops"]), "TFLOP/s")]
    return []


def pair_readings(report: Mapping[str, Any]) -> list[Reading]:
    """Return one reading for each ordered pair of the peer-to-peer matrix, named by its source."""
    gpus = {gpu["index"]: gpu for gpu in report["gpus"]}
    found = []
    for pair in report.get("peers", {}).get("pairs", []):
        source, target = gpus[pair["from"]], gpus[pair["to"]]
        bus = f"{source['bus']} to gpu {target['index']} {target['bus']}"
        kind = "peer" if pair["direct"] else "peer through the host"
        model = source["name"] if source["name"] == target["name"] else f"{source['name']} to {target['name']}"
        who, size = (report["node"], pair["from"], bus, model), source.get("multiprocessors", 0)
        found.append(Reading(*who, kind, kind, pair["gb_per_s"], "GB/s", size))
    return found
