"""What this node is: the facts of its instance type, its queue, its name in Slurm, its settings."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from nodes.lib import env

IMDS_TIMEOUT_S = 1.0
INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
BUNDLE = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Places:
    """Where things are. `sysfs` is the kernel's device tree; the rehearsal has a separate one (SLIPWAY_SYSFS)."""

    node_env: Path = env.NODE_ENV
    cfnconfig: Path = Path("/etc/parallelcluster/cfnconfig")
    slurm_nodename: Path = Path("/etc/parallelcluster/slurm_plugin/slurm_nodename")
    instances: Path = BUNDLE / "instances.json"
    sysfs: Path = Path(os.environ.get("SLIPWAY_SYSFS") or "/sys")
    mounts: Path = Path("/proc/self/mounts")
    driver: Path = Path("/proc/driver/nvidia/version")
    imds: str = "http://169.254.169.254"
    state: Path = Path("/run/slipway/health")
    result: Path = Path("/var/lib/slipway/health.json")
    textfile: Path = Path("/var/lib/node-exporter/textfile/slipway_health.prom")
    log: Path = Path("/var/log/slipway/health.log")
    evidence: Path = Path("/var/log/slipway/evidence.log")


@dataclasses.dataclass(frozen=True)
class Facts:
    """The hardware that the node should have. None: not known. Links are a GPU's; NVMe in GB (0: none)."""

    instance_type: str | None = None
    gpus: int | None = None
    efa_devices: int | None = None
    nvlink_links: int | None = None
    nvme_gb: int | None = None

    @property
    def nvswitch(self) -> bool | None:
        """Whether the GPUs are joined by NVSwitches, so that a fabric manager must run."""
        return None if self.instance_type is None else bool(self.nvlink_links)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The part of node.env that concerns health. `replaced`: ParallelCluster replaces a drained node."""

    fsx: str = "/fsx"
    drain: bool = True
    replaced: bool = True
    replacements_per_day: int = 4


def settings(places: Places) -> Settings:
    """What node.env says."""
    values = env.read(places.node_env)
    per_day = values.get("HEALTH_REPLACEMENTS_PER_DAY", "")
    return Settings(
        fsx=values.get("FSX_MOUNT") or "/fsx",
        drain=values.get("HEALTH_DRAIN", "true") == "true",
        replaced=values.get("HEALTH_REPLACED", "true") == "true",
        replacements_per_day=int(per_day) if per_day.isdigit() else Settings.replacements_per_day,
    )


def facts(places: Places) -> Facts:
    """The facts of this node, from instances.json of the bundle."""
    try:
        known = json.loads(places.instances.read_text(encoding="utf-8"))
        types, queues = known["instance_types"], known["queues"]
    except (OSError, ValueError, KeyError, TypeError):
        return Facts()
    found = instance_type(places, types)
    if found is None:
        return Facts()
    row = types[found]
    return Facts(
        instance_type=found,
        gpus=row["gpus"],
        efa_devices=_efa_devices(row["efa_interfaces"], found, queues, own_queue(places)),
        nvlink_links=row["nvlink_links"],
        nvme_gb=row["nvme_gb"],
    )


def _efa_devices(interfaces: int, name: str, queues: Mapping[str, Mapping[str, object]], queue: str) -> int | None:
    """EFA devices of a node of `queue`; None when its queue is not known and queues of the type differ."""
    if not interfaces:
        return 0
    if queue in queues:
        return interfaces if queues[queue]["efa"] else 0
    with_efa = {bool(one["efa"]) for one in queues.values() if one["instance_type"] == name}
    return None if len(with_efa) != 1 else interfaces if with_efa.pop() else 0


def own_queue(places: Places) -> str:
    """The node's queue, as ParallelCluster wrote it; empty when it did not."""
    pairs = _cfnconfig(places)
    return pairs.get("cfn_scheduler_queue_name") or pairs.get("scheduler_queue_name") or ""


def instance_type(places: Places, known: Mapping[str, object]) -> str | None:
    """The node's instance type, if it is one of `known`.

    From ParallelCluster's cfnconfig where it says it, else from the metadata service (IMDSv2), else from the firmware
    (on Nitro instances the product's name is the instance type).
    """
    for find in (_from_cfnconfig, _from_imds, _from_firmware):
        found = find(places)
        if found in known:
            return found
    return None


def _cfnconfig(places: Places) -> dict[str, str]:
    """What ParallelCluster wrote down of this node; its values may be in quotes."""
    return {key: value.strip("\"'") for key, value in env.read(places.cfnconfig).items()}


def _from_cfnconfig(places: Places) -> str:
    return _cfnconfig(places).get("cfn_instance_type", "")


def _from_firmware(places: Places) -> str:
    try:
        return (places.sysfs / "class/dmi/id/product_name").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _from_imds(places: Places) -> str:
    import http.client  # here and below: loading them takes as long as the rest of a run

    try:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = _http("PUT", f"{places.imds}/latest/api/token", lifetime)
        found = _http("GET", f"{places.imds}/latest/meta-data/instance-type", {"X-aws-ec2-metadata-token": token})
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    return found if INSTANCE_TYPE.fullmatch(found) else ""


def _http(method: str, url: str, headers: dict[str, str]) -> str:
    """Raises OSError (urllib's errors are ones), ValueError or HTTPException."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the site
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310  (http to the own instance)
    with opener.open(request, timeout=IMDS_TIMEOUT_S) as answer:
        return str(answer.read(4096).decode("ascii")).strip()


def slurm_name(places: Places) -> str:
    """The node's name in Slurm: what ParallelCluster wrote down, else the host's name."""
    try:
        name = places.slurm_nodename.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = ""
    return name or socket.gethostname().partition(".")[0]
