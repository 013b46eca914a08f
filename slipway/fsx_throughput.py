"""What an FSx for Lustre file system is made for, by its settings: for the storage test of acceptance."""

from __future__ import annotations

from typing import Any

from slipway.settings.model import Fsx

# Amazon FSx for Lustre User Guide, "Performance characteristics of SSD and HDD storage classes" (ssd-storage.html, read
# 2026-11), MB/s per TiB of disk throughput: what writes, and reads that miss the file servers' memory, are bound by.
# persistent: the setting itself, burst 500 with 125 and 250. scratch-2: 200 read, 100 write. scratch-1 has no row.
_BURST_MB_S_PER_TIB = {125: 500, 250: 500}
_SCRATCH_2 = {"read": 200, "write": 100}
# Over TCP a client has 100 Gbit/s at most (the same guide, "Throughput to individual client instances"). One of 16
# vCPUs wrote 1.67 and read 2.0 GB/s with 16 streams (AllenXieSZ/storage, fsx-lustre-throughput-change/README.md at
# 85e14b1, 2026-08-01); no source has a lower bound for GPU nodes, so that a node is counted with this.
CLIENT_GB_PER_S = 1.6


def file_system_facts(fsx: Fsx, mount: str, network_gbit_s: int | None) -> dict[str, Any] | None:
    """Return the key `file_system` of acceptance.json; None where nothing is known: an existing one, scratch-1."""
    if fsx.file_system_id or fsx.deployment == "scratch-1":
        return None
    tib = fsx.capacity_gib / 1024
    unit = fsx.throughput_mb_s_per_tib
    read, write = (unit, unit) if unit else (_SCRATCH_2["read"], _SCRATCH_2["write"])
    rate = f"{unit} MB/s per TiB" if unit else f"{read} MB/s per TiB read, {write} written"
    burst = _BURST_MB_S_PER_TIB.get(unit or 0) if fsx.deployment == "persistent-2" else None
    return {
        "mount": mount,
        "write_gb_per_s": round(tib * write / 1000, 4),
        "read_gb_per_s": round(tib * read / 1000, 4),
        "burst_gb_per_s": round(tib * burst / 1000, 4) if burst else None,
        "client_gb_per_s": round(min(CLIENT_GB_PER_S, (network_gbit_s or 100) / 8), 4),
        "source": f"{fsx.deployment}, {fsx.capacity_gib} GiB, {rate}",
    }
