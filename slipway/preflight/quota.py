"""The quotas of EC2, EBS and VPC against what the cluster needs and what runs already."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Unasked
from slipway.cluster_config import COMPUTE_ROOT_VOLUME_GIB
from slipway.instances import INSTANCE_TYPES
from slipway.preflight.account import identity
from slipway.preflight.asking import found, together
from slipway.preflight.model import EC2_GUIDE, Answer, Question, Status, fault, ok, warning
from slipway.preflight.running_instances import CLUSTER_TAG, Instance, Instances, tag
from slipway.settings import Queue, Settings
from slipway.settings.source import Place

STACK_TAG = "aws:cloudformation:stack-name"
PCLUSTER_GROUPS = 2  # security groups: for the head node and for the compute nodes


class Quota:
    """The value of one quota; its call is on its way as soon as this is made."""

    def __init__(self, aws: Aws, service: str, code: str) -> None:
        self.service, self.code, self.region = service, code, aws.region
        self._aws = aws
        self._pending = aws.start("service-quotas", "get_service_quota", ServiceCode=service, QuotaCode=code)

    def value(self) -> float:
        """What is granted, or AWS's default where nothing was ever granted. Raises Unasked and Refused."""
        response = found(self._pending, "NoSuchResourceException")
        if response is None:
            parameters = {"ServiceCode": self.service, "QuotaCode": self.code}
            response = self._aws.call("service-quotas", "get_aws_default_service_quota", **parameters)
        return float(response["Quota"]["Value"])

    def repair(self, wanted: float) -> str:
        """The command that asks AWS for more."""
        return (
            f"aws service-quotas request-service-quota-increase --region {self.region} --service-code {self.service} "
            f"--quota-code {self.code} --desired-value {math.ceil(wanted)}"
        )


@dataclasses.dataclass(frozen=True)
class Need:
    """What the cluster takes of one thing: `least` at once, `most` when every queue is full."""

    what: str
    path: Place
    least: float
    most: float

    @property
    def text(self) -> str:
        """`768`, or `8 to 776` where nodes come and go."""
        return f"{self.most:g}" if self.least == self.most else f"{self.least:g} to {self.most:g}"


def compared_with(need: Need, quota: Quota, used: Callable[[], float]) -> Iterator[Answer]:
    """The need against what the quota leaves. Less than the static nodes take is a fault; less than all, a warning."""
    granted, taken = quota.value(), used()
    free = granted - taken
    text = f"{need.what}: {need.text} needed, {free:g} free ({taken:g} of {granted:g} in use)"
    if need.least > free:
        yield fault(need.path, text, quota.repair(taken + need.most))
    elif need.most > free:
        yield warning(need.path, text, quota.repair(taken + need.most))
    else:
        yield ok(need.path, text)


# ---- vCPUs ----


@dataclasses.dataclass(frozen=True)
class VcpuQuota:
    """One vCPU quota: the first letters of the types that count in it, and its code."""

    name: str
    code: str
    prefixes: tuple[str, ...]
    lifecycle: str


# Source of codes and families: Service Quotas, service "ec2"; EC2 user guide, "On-Demand Instance quotas" and "Spot
# Instance quotas"; November 2026. No quota for P6 spot instances is published.
STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
VCPU_QUOTAS = (
    VcpuQuota("vCPUs of running on-demand standard instances", "L-1216C47A", STANDARD, "on-demand"),
    VcpuQuota("vCPUs of running on-demand G and VT instances", "L-DB2E81BA", ("g", "vt"), "on-demand"),
    VcpuQuota("vCPUs of running on-demand P instances", "L-417A185B", ("p",), "on-demand"),
    VcpuQuota("vCPUs of standard spot instances", "L-34B43A08", STANDARD, "spot"),
    VcpuQuota("vCPUs of G and VT spot instances", "L-3819A6DF", ("g", "vt"), "spot"),
    VcpuQuota("vCPUs of P4, P3 and P2 spot instances", "L-7212CCBC", ("p2", "p3", "p4"), "spot"),
    VcpuQuota("vCPUs of P5 spot instances", "L-C4BD4855", ("p5",), "spot"),
)
OTHER_FAMILIES = ("inf", "trn", "dl", "hpc", "mac")  # begin like a standard family, and count elsewhere


def _counts_in(vcpu_quota: VcpuQuota, instance_type: str) -> bool:
    return instance_type.startswith(vcpu_quota.prefixes) and not instance_type.startswith(OTHER_FAMILIES)


def _lifecycle(queue: Queue) -> str:
    """Instances of a capacity block count against no quota, those of another reservation with the reservation."""
    return "reserved" if queue.reservation else "spot" if queue.spot else "on-demand"


def _vcpu_need(settings: Settings, vcpu_quota: VcpuQuota) -> Need | None:
    queues = [
        (index, queue)
        for index, queue in enumerate(settings.queues)
        if _lifecycle(queue) == vcpu_quota.lifecycle and _counts_in(vcpu_quota, queue.instance_type)
    ]
    least = sum(queue.min_count * queue.instance.vcpus for _, queue in queues)
    most = sum(queue.max_count * queue.instance.vcpus for _, queue in queues)
    path: Place = ("queues", queues[0][0], "instance_type") if queues else ("head_node", "instance_type")
    head = settings.head_node.instance_type
    if vcpu_quota.lifecycle == "on-demand" and _counts_in(vcpu_quota, head):
        least, most = least + INSTANCE_TYPES[head].vcpus, most + INSTANCE_TYPES[head].vcpus
    return Need(vcpu_quota.name, path, least, most) if most else None


def ask_vcpus(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Each vCPU quota that the cluster touches, against what runs and what is reserved."""
    needs = [(vcpu_quota, need) for vcpu_quota in VCPU_QUOTAS if (need := _vcpu_need(settings, vcpu_quota))]
    quotas = [Quota(aws, "ec2", vcpu_quota.code) for vcpu_quota, _ in needs]
    instances, reserved = Instances(aws), aws.start("ec2", "describe_capacity_reservations")
    caller = identity(aws)

    def part(vcpu_quota: VcpuQuota, need: Need, quota: Quota) -> Iterator[Answer]:
        def used() -> float:
            held = _held_unused(vcpu_quota, reserved, caller) if vcpu_quota.lifecycle == "on-demand" else 0
            return held + sum(item.vcpus for item in _others(instances.all(), settings, vcpu_quota))

        return compared_with(need, quota, used)

    parts = (part(vcpu_quota, need, quota) for (vcpu_quota, need), quota in zip(needs, quotas, strict=True))
    yield from together(*parts, _spot_without_quota(settings))


def _others(instances: list[Instance], settings: Settings, vcpu_quota: VcpuQuota) -> list[Instance]:
    """What runs in the vcpu_quota already; the cluster's own nodes are in its need."""
    return [
        instance
        for instance in instances
        if instance.lifecycle == vcpu_quota.lifecycle
        and _counts_in(vcpu_quota, instance.instance_type)
        and (instance.cluster != settings.name or instance.reservation_id)
    ]


def _held_unused(vcpu_quota: VcpuQuota, reserved: Pending, caller: Pending) -> float:
    """vCPUs of the account's own active reservations that nothing runs in: they count as if something did."""
    account = caller.result()["Account"]
    return float(
        sum(
            item["AvailableInstanceCount"] * INSTANCE_TYPES[item["InstanceType"]].vcpus
            for item in reserved.result()["CapacityReservations"]
            if item["State"] == "active"
            and item.get("ReservationType", "default") == "default"
            and item.get("OwnerId", account) == account
            and item["InstanceType"] in INSTANCE_TYPES
            and _counts_in(vcpu_quota, item["InstanceType"])
        )
    )


def _spot_without_quota(settings: Settings) -> Iterator[Answer]:
    for index, queue in enumerate(settings.queues):
        known = [vcpu_quota for vcpu_quota in VCPU_QUOTAS if vcpu_quota.lifecycle == "spot"]
        if _lifecycle(queue) == "spot" and not any(_counts_in(vcpu_quota, queue.instance_type) for vcpu_quota in known):
            text = f"which quota {queue.instance_type} spot instances count against is not published"
            yield warning(("queues", index, "spot"), text, "ask AWS support, or use a reservation")


# ---- the network of a new VPC ----


def ask_new_vpc(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The VPC, its gateways and its address; nothing if the deployment's network exists already."""
    vpcs = aws.start("ec2", "describe_vpcs")
    gateways = aws.start("ec2", "describe_internet_gateways")
    living = [{"Name": "state", "Values": ["pending", "available"]}]
    nats = aws.start("ec2", "describe_nat_gateways", Filters=living)
    in_zone = [{"Name": "availability-zone", "Values": [settings.zone]}]
    subnets = aws.start("ec2", "describe_subnets", Filters=in_zone)
    addresses = aws.start("ec2", "describe_addresses")
    rows: tuple[tuple[str, str, str, Callable[[], float]], ...] = (
        ("VPCs in the region", "vpc", "L-F678F1CE", lambda: len(vpcs.result()["Vpcs"])),
        ("internet gateways in the region", "vpc", "L-A4707A72", lambda: len(gateways.result()["InternetGateways"])),
        (f"NAT gateways in {settings.zone}", "vpc", "L-FE5A380F", lambda: _nats_in_zone(nats, subnets)),
        ("Elastic IP addresses in the region", "ec2", "L-0263D0A3", lambda: len(addresses.result()["Addresses"])),
    )
    quotas = [Quota(aws, service, code) for _, service, code, _ in rows]
    path = ("network", "cidr")

    def parts() -> Iterator[Iterator[Answer]]:
        for (what, _, _, used), quota in zip(rows, quotas, strict=True):
            yield compared_with(Need(what, path, 1, 1), quota, used)

    existing = _existing_network(settings, vpcs)
    if existing:
        yield ok(path, f"the network of this deployment exists already ({existing})")
        return
    yield from together(*parts())


def _existing_network(settings: Settings, vpcs: Pending) -> str:
    """Return the VPC of an earlier deployment; empty if it does not exist, or if AWS does not answer."""
    stack = f"{settings.name}-network"
    with contextlib.suppress(Unasked):  # the quota of VPCs reports it
        return next((str(vpc["VpcId"]) for vpc in vpcs.result()["Vpcs"] if tag(vpc, STACK_TAG) == stack), "")
    return ""


def _nats_in_zone(nats: Pending, subnets: Pending) -> int:
    zone = {subnet["SubnetId"] for subnet in subnets.result()["Subnets"]}
    return sum(nat["SubnetId"] in zone for nat in nats.result()["NatGateways"])


# ---- interfaces, security groups, volumes ----


def ask_resources(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Network interfaces, security groups and gp3 volumes of all nodes together."""
    interfaces = aws.start("ec2", "describe_network_interfaces")
    groups = aws.start("ec2", "describe_security_groups")
    gp3 = [{"Name": "volume-type", "Values": ["gp3"]}]
    volumes = aws.start("ec2", "describe_volumes", Filters=gp3)
    instances = Instances(aws)
    rows: tuple[tuple[Need, Quota, Callable[[], float]], ...] = (
        (_interface_need(settings), Quota(aws, "vpc", "L-DF5E4CA3"), lambda: _foreign(interfaces, instances, settings)),
        (_group_need(settings), Quota(aws, "vpc", "L-E79EC296"), lambda: _foreign_groups(groups, settings)),
        (_volume_need(settings), Quota(aws, "ebs", "L-7A658B76"), lambda: _foreign_tib(volumes, settings)),
    )
    yield from together(*(compared_with(need, quota, used) for need, quota, used in rows))


def _sum(settings: Settings, a_node: Callable[[Queue], float], head: float) -> tuple[float, float]:
    least = head + sum(queue.min_count * a_node(queue) for queue in settings.queues)
    most = head + sum(queue.max_count * a_node(queue) for queue in settings.queues)
    return least, most


def _interface_need(settings: Settings) -> Need:
    """Of all nodes together; the head node has one on each of its cards."""
    head = INSTANCE_TYPES[settings.head_node.instance_type].network_cards
    least, most = _sum(settings, lambda queue: queue.interfaces, head)
    return Need("network interfaces in the region", ("queues",), least, most)


def _group_need(settings: Settings) -> Need:
    """In addition to ParallelCluster's: the nodes' own and the file system's, unless the site has a group for both."""
    is_ours = settings.network.security_group_id is None
    count = PCLUSTER_GROUPS + is_ours + (is_ours and settings.storage.fsx.file_system_id is None)
    return Need("security groups in the region", ("network",), count, count)


def _volume_need(settings: Settings) -> Need:
    head = settings.head_node.root_volume_gib + (settings.storage.home.size_gib or 0)
    least, most = _sum(settings, lambda _: COMPUTE_ROOT_VOLUME_GIB, head)
    return Need("TiB of gp3 volumes in the region", ("queues",), _tib(least), _tib(most))


def _tib(gib: float) -> float:
    return round(gib / 1024, 2)


def _foreign(interfaces: Pending, instances: Instances, settings: Settings) -> float:
    own = {instance.id for instance in instances.of_cluster(settings.name)}
    attached = [item.get("Attachment") or {} for item in interfaces.result()["NetworkInterfaces"]]
    return sum(item.get("InstanceId") not in own for item in attached)


def _foreign_groups(groups: Pending, settings: Settings) -> float:
    stacks = {f"{settings.name}-network", f"{settings.name}-storage", settings.name}
    return sum(tag(group, STACK_TAG) not in stacks for group in groups.result()["SecurityGroups"])


def _foreign_tib(volumes: Pending, settings: Settings) -> float:
    items: Iterable[dict[str, Any]] = volumes.result()["Volumes"]
    return _tib(sum(item["Size"] for item in items if tag(item, CLUSTER_TAG) != settings.name))


QUOTA_PERMISSIONS = ("servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota")
QUESTIONS = (
    Question(
        name="vcpu-quotas",
        asks="Do the vCPU quotas leave room for the head node and the queues?",
        why="A new account may run 5 standard vCPUs and no GPU; nodes above a quota never start, and static ones make "
        "the creation fail after 35 minutes. Instances of a capacity block count against none.",
        source=f"{EC2_GUIDE}/ec2-on-demand-instances.html; {EC2_GUIDE}/ec2-capacity-blocks.html; "
        f"{EC2_GUIDE}/capacity-reservation-sharing.html; aws-parallelcluster issues 1375 and 3863",
        permissions=(
            *QUOTA_PERMISSIONS,
            "ec2:DescribeInstances",
            "ec2:DescribeCapacityReservations",
            "sts:GetCallerIdentity",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_vcpus,
    ),
    Question(
        name="network-quotas",
        asks="Do the quotas leave room for a VPC with its gateways and address?",
        why="Five VPCs and five Elastic IP addresses a region are used up soon; the network stack would fail and roll "
        "back.",
        source="https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html",
        permissions=(
            *QUOTA_PERMISSIONS,
            "ec2:DescribeVpcs",
            "ec2:DescribeInternetGateways",
            "ec2:DescribeNatGateways",
            "ec2:DescribeSubnets",
            "ec2:DescribeAddresses",
        ),
        ask=ask_new_vpc,
        applies=lambda settings: settings.network.is_new,
    ),
    Question(
        name="node-quotas",
        asks="Do the quotas leave room for the nodes' network interfaces, security groups and volumes?",
        why="A p5.48xlarge takes 33 network interfaces and every node a root volume: large clusters reach quotas that "
        "are easily forgotten.",
        source="https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html; "
        "https://docs.aws.amazon.com/general/latest/gr/ebs-service.html; aws-parallelcluster pull request 7262",
        permissions=(
            *QUOTA_PERMISSIONS,
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeVolumes",
            "ec2:DescribeInstances",
        ),
        ask=ask_resources,
    ),
)
