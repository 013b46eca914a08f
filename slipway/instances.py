"""Facts of EC2 instance types, read from one data file (`data/instance_types.json`, with its sources)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DATA_FILE = Path(__file__).with_name("data") / "instance_types.json"


@dataclasses.dataclass(frozen=True)
class InstanceType:
    """What one instance type is made of. Units: MiB, GB (NVMe), Gbit/s (network), GB/s per GPU both ways (NVLink).

    `nvlink_links`: NVLinks of one GPU; every type that has some joins them by NVSwitches.
    """

    name: str
    gpus: int
    gpu_memory_mib: int
    vcpus: int
    memory_mib: int
    efa_interfaces: int
    network_cards: int
    nvme_gb: int
    gpu_model: str | None = None
    cores: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    network_gbit_s: int | None = None
    nvlink_gb_s: int | None = None
    nvlink_links: int | None = None
    efa_generation: int | None = None
    plugin_protocol: str | None = None
    capacity_block: bool = False

    @property
    def memory_gib(self) -> int:
        """Memory in GiB, rounded down."""
        return self.memory_mib // 1024

    @property
    def compute_resource(self) -> str:
        """The name of ParallelCluster's compute resource for this type: `gpu` or `cpu`."""
        return "gpu" if self.gpus else "cpu"


def _load() -> Mapping[str, InstanceType]:
    rows = json.loads(DATA_FILE.read_text(encoding="utf-8"))["instance_types"]
    return MappingProxyType({name: InstanceType(name=name, **row) for name, row in rows.items()})


INSTANCE_TYPES: Mapping[str, InstanceType] = _load()
"""Every instance type Slipway knows, by name."""

COMPUTE_CAPABILITIES: Mapping[str, int] = MappingProxyType(
    json.loads(DATA_FILE.read_text(encoding="utf-8"))["compute_capabilities"]
)
"""CUDA compute capability times ten (9.0 is 90) of every GPU model."""
