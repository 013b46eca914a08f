"""Stand-ins of a node's hardware on a local host: files of its root, by path (without the leading slash).

GPUs and fabric manager as programs that behave like NVIDIA's, EFA devices as a tree like the kernel's /sys (the health
checks are pointed to it), and a /scratch as ParallelCluster mounts it from NVMe. All as the instance type has them.
"""

from __future__ import annotations

import json
from pathlib import Path

from rehearsal.host_spec import HostSpec
from slipway.instances import INSTANCE_TYPES, InstanceType

STANDINS = Path(__file__).resolve().parent
SYSFS = "opt/rehearsal/sys"
STATE = "opt/rehearsal/gpus.json"
DRIVER = "580.159.04"  # whose output the stand-in has the form of
SCRATCH_BYTES = 1 << 30
PRODUCTS = {
    "a100": "NVIDIA A100-SXM4-40GB",
    "a10g": "NVIDIA A10G",
    "h100": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "b200": "NVIDIA B200",
    "b300": "NVIDIA B300 SXM6 AC",
    "l4": "NVIDIA L4",
    "l40s": "NVIDIA L40S",
}
FABRIC_MANAGER = f"""#!/bin/sh
# Stand-in of the rehearsal: there is no NVSwitch here.
echo "Fabric Manager version is : {DRIVER}"
"""
FABRIC_UNIT = """[Unit]
Description=Stand-in of NVIDIA's fabric manager: there is no NVSwitch here
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""
SYSFS_DROP_IN = f"[Service]\nEnvironment=SLIPWAY_SYSFS=/{SYSFS}\n"
SYSFS_PROFILE = f"export SLIPWAY_SYSFS=/{SYSFS}\n"  # slipway-health, typed
SYSFS_SUDO = "Defaults env_keep += SLIPWAY_SYSFS\n"
File = tuple[bytes, int]


def files(spec: HostSpec) -> dict[str, File]:
    """Path -> content and mode, for a compute host; none for the head node."""
    facts = INSTANCE_TYPES.get(spec.instance_type)
    if spec.role != "compute" or facts is None:
        return {}
    found = {
        "etc/systemd/system/slipway-health.service.d/rehearsal.conf": (SYSFS_DROP_IN.encode(), 0o644),
        "etc/profile.d/rehearsal.sh": (SYSFS_PROFILE.encode(), 0o644),
        "etc/sudoers.d/91-rehearsal": (SYSFS_SUDO.encode(), 0o440),
    }
    if facts.gpus:
        found.update(_gpus(facts))
    if "efa" in spec.features:
        found.update(_efa(facts))
    if facts.nvme_gb:
        found["etc/fstab"] = (f"tmpfs /scratch tmpfs size={SCRATCH_BYTES},mode=1777 0 0\n".encode(), 0o644)
    return found


def _gpus(facts: InstanceType) -> dict[str, File]:
    model = facts.gpu_model or "gpu"
    state = {
        "driver": DRIVER,
        "product": PRODUCTS.get(model, f"NVIDIA {model.upper()}"),
        "memory_mib": facts.gpu_memory_mib,
        "links": facts.nvlink_links or 0,
        "gpus": facts.gpus,
    }
    found = {
        "usr/local/bin/nvidia-smi": ((STANDINS / "nvidia-smi").read_bytes(), 0o755),
        STATE: ((json.dumps(state, indent=1) + "\n").encode(), 0o644),
    }
    if facts.nvlink_links:
        found["usr/local/bin/nv-fabricmanager"] = (FABRIC_MANAGER.encode(), 0o755)
        found["usr/lib/systemd/system/nvidia-fabricmanager.service"] = (FABRIC_UNIT.encode(), 0o644)
    return found


def _efa(facts: InstanceType) -> dict[str, File]:
    names = [f"rdmap{16 + card}s0" for card in range(facts.efa_interfaces)]
    uevent = (b"DRIVER=efa\nPCI_CLASS=20000\n", 0o644)
    return {f"{SYSFS}/class/infiniband/{name}/device/uevent": uevent for name in names}
