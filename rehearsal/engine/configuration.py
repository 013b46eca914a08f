"""What a rehearsal reads from a cluster configuration: nodes, mounts, and parameters of Slurm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rehearsal.host_spec import NO_ADDRESS
from rehearsal.hosts import HostSpec, slurm
from slipway.breakage import node_names
from slipway.instances import INSTANCE_TYPES

LEAST_SUSPEND_S = 5  # a shorter idle time would end nodes between two steps of one job's script


@dataclasses.dataclass(frozen=True)
class Node:
    """One node: what ParallelCluster would start an instance for. `dynamic`: only when Slurm asks for it."""

    name: str
    role: str
    instance_type: str
    subnet_id: str
    actions: Mapping[str, Any]
    queue: str = ""
    compute_resource: str = ""
    dynamic: bool = False


def planned_nodes(configuration: Mapping[str, Any], max_hosts: int) -> list[Node]:
    """The head node and each queue's nodes, named as ParallelCluster does; at most `max_hosts` of a queue.

    Static ones (MinCount) come first, dynamic ones (what MaxCount has above it) take what room they leave.
    """
    head = configuration["HeadNode"]
    nodes = [Node("head", "head", head["InstanceType"], head["Networking"]["SubnetId"], head.get("CustomActions", {}))]
    for queue in configuration["Scheduling"]["SlurmQueues"]:
        for resource in queue["ComputeResources"]:
            nodes += _of_resource(queue, resource, max_hosts)
    return nodes


def _of_resource(queue: Mapping[str, Any], resource: Mapping[str, Any], max_hosts: int) -> list[Node]:
    counts = int(resource["MinCount"]), int(resource["MaxCount"])
    return [
        Node(
            name=name,
            role="compute",
            instance_type=resource["InstanceType"],
            subnet_id=queue["Networking"]["SubnetIds"][0],
            actions=queue.get("CustomActions", {}),
            queue=queue["Name"],
            compute_resource=resource["Name"],
            dynamic=dynamic,
        )
        for name, dynamic in node_names(queue["Name"], resource["Name"], counts, max_hosts)
    ]


def host_spec(node: Node, address: str = NO_ADDRESS) -> HostSpec:
    """Return the local host for a node; a dynamic node has no address before it is started."""
    instance = INSTANCE_TYPES[node.instance_type]
    return HostSpec(
        name=node.name,
        ip=address,
        role="head" if node.role == "head" else "compute",
        instance_type=node.instance_type,
        vcpus=instance.vcpus,
        memory_mib=instance.memory_mib,
        gpus=instance.gpus,
        gpu_kind=instance.gpu_model or "gpu",
        queue=node.queue,
        compute_resource=node.compute_resource,
        features=("efa",) if instance.efa_interfaces else (),
        dynamic=node.dynamic,
    )


def power_saving(configuration: Mapping[str, Any]) -> slurm.PowerSaving:
    """Slurm's power saving with the idle time's minutes (ScaledownIdletime) as seconds."""
    minutes = int(configuration["Scheduling"].get("SlurmSettings", {}).get("ScaledownIdletime", slurm.POWER.suspend_s))
    return slurm.PowerSaving(suspend_s=max(LEAST_SUSPEND_S, minutes))


def mounts_of(configuration: Mapping[str, Any]) -> list[str]:
    """Where the site's file systems are mounted; /fsx and /home are shared on every local host in any case."""
    places = [storage["MountDir"] for storage in configuration.get("SharedStorage", [])]
    return [place for place in places if place not in ("/fsx", "/home")]


def parameters_of(configuration: Mapping[str, Any]) -> slurm.Parameters:
    """The site's own parameters of slurm.conf in a cluster configuration."""
    scheduling = configuration["Scheduling"]
    cluster = {
        key: str(value)
        for entry in scheduling.get("SlurmSettings", {}).get("CustomSlurmSettings", [])
        for key, value in entry.items()
    }
    queues = {
        queue["Name"]: {key: str(value) for key, value in queue.get("CustomSlurmSettings", {}).items()}
        for queue in scheduling["SlurmQueues"]
    }
    return slurm.Parameters(cluster, queues)


def judged_nodes(nodes: list[Node], wanted: int) -> list[Node]:
    """The hosts that acceptance measures: `wanted` of the first queue with GPUs, or all of it; static ones first."""
    with_gpus = [node for node in nodes if node.role == "compute" and INSTANCE_TYPES[node.instance_type].gpus]
    return [node for node in with_gpus if node.queue == with_gpus[0].queue][:wanted]
