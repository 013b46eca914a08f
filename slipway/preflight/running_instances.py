"""What runs in the account already; several questions ask for it, and one call answers them all."""

from __future__ import annotations

import dataclasses
from typing import Any

from slipway.aws.calls import Aws
from slipway.instances import INSTANCE_TYPES

CLUSTER_TAG = "parallelcluster:cluster-name"
"""ParallelCluster tags with it what belongs to a cluster."""
ALIVE = ["pending", "running"]  # what counts against the vCPU quotas (EC2 user guide, "On-Demand Instance quotas")


@dataclasses.dataclass(frozen=True)
class Instance:
    """A running instance: `lifecycle` is on-demand, spot or capacity-block; `cluster` is empty outside of one.

    `subnets` has the subnet of each private address that it takes.
    """

    id: str
    instance_type: str
    vcpus: int
    lifecycle: str
    reservation_id: str
    cluster: str
    subnets: tuple[str, ...] = ()


class Instances:
    """The instances that run in the region; the call is on its way as soon as this is made."""

    def __init__(self, aws: Aws) -> None:
        filters = [{"Name": "instance-state-name", "Values": ALIVE}]
        self._pending = aws.start("ec2", "describe_instances", Filters=filters)

    def all(self) -> list[Instance]:
        """Every one. Raises Unasked."""
        reservations = self._pending.result()["Reservations"]
        return [_instance(item) for reservation in reservations for item in reservation["Instances"]]

    def of_cluster(self, name: str) -> list[Instance]:
        """Those of the cluster `name`: an update finds its own nodes running."""
        return [instance for instance in self.all() if instance.cluster == name]


def _instance(item: dict[str, Any]) -> Instance:
    cpu = item.get("CpuOptions") or {}
    known = INSTANCE_TYPES.get(item["InstanceType"])
    vcpus = cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 0) or (known.vcpus if known else 0)
    return Instance(
        id=item["InstanceId"],
        instance_type=item["InstanceType"],
        vcpus=vcpus,
        lifecycle=item.get("InstanceLifecycle") or "on-demand",
        reservation_id=item.get("CapacityReservationId", ""),
        cluster=tag(item, CLUSTER_TAG),
        subnets=tuple(
            str(interface["SubnetId"])
            for interface in item.get("NetworkInterfaces", ())
            if interface.get("PrivateIpAddress") and interface.get("SubnetId")
        ),
    )


def tag(item: dict[str, Any], key: str) -> str:
    """The value of a tag of anything of EC2; empty when it has none."""
    return next((str(pair["Value"]) for pair in item.get("Tags", ()) if pair["Key"] == key), "")
