"""Quotas against need, with what runs and what is reserved counted as AWS counts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_vpc import NETWORK, vpc
from preflight_cases import REGION, Case, all_of, check, denied, merged, nothing

from rehearsal.cloud.capacity import add_reservation
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws
from tests.aws.quotas import set_quota

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
STANDARD, P, G = "L-1216C47A", "L-417A185B", "L-DB2E81BA"
VCPUS = "vCPUs of running on-demand"
ID = "cr-0123456789abcdef1"


def granted(code: str, value: float, service: str = "ec2") -> Callable[[PreflightAws], None]:
    return lambda _: set_quota(REGION, service, code, value)


def asks(code: str, value: int, service: str = "ec2") -> str:
    return (
        f"aws service-quotas request-service-quota-increase --region {REGION} --service-code {service} "
        f"--quota-code {code} --desired-value {value}"
    )


def run(instance_type: str, count: int, *, cluster: str = "", market: str = "") -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        tags = [{"Key": "parallelcluster:cluster-name", "Value": cluster}]
        tagged = {"TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]} if cluster else {}
        sold = {"InstanceMarketOptions": {"MarketType": market}} if market else {}
        aws.clients("ec2").run_instances(
            ImageId="ami-00000000000000003", InstanceType=instance_type, MinCount=count, MaxCount=count,
            **tagged, **sold,
        )  # fmt: skip

    return arrange


def reserved(count: int, **more: Any) -> Callable[[PreflightAws], None]:
    return lambda _: add_reservation(REGION, ID, "p5.48xlarge", count, f"{REGION}a", "on-demand", **more)


def queues(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"queues": [{"name": f"q{number}", **row} for number, row in enumerate(rows)]}


ON_DEMAND_P5 = queues({"instance_type": "p5.48xlarge", "count": 2})
CPU = queues({"instance_type": "c6i.8xlarge", "max_count": 8})
G6_STATIC = queues({"instance_type": "g6.12xlarge", "count": 2})
SPOT_P5 = queues({"instance_type": "p5.48xlarge", "max_count": 2, "spot": True})
HEAD_PATH, QUEUE_PATH = ("head_node", "instance_type"), ("queues", 0, "instance_type")


def vcpus(name: str, status: Status, text: str, **more: Any) -> Case:
    return Case("vcpu-quotas", name, status, text, **more)


CASES = [
    vcpus("a block counts against no quota", OK, f"{VCPUS} standard instances: 8 needed, 1152 free (0 of 1152 in use)",
          path=HEAD_PATH, arrange=granted(P, 0)),
    vcpus("new account", FAULT, f"{VCPUS} standard instances: 8 needed, 5 free (0 of 5 in use)", path=HEAD_PATH,
          hint=asks(STANDARD, 8), arrange=granted(STANDARD, 5)),
    vcpus("no GPU granted", FAULT, f"{VCPUS} P instances: 384 needed, 0 free (0 of 0 in use)", path=QUEUE_PATH,
          hint=asks(P, 384), settings=ON_DEMAND_P5, arrange=granted(P, 0)),
    vcpus("no G granted", FAULT, f"{VCPUS} G and VT instances: 96 needed, 48 free (0 of 48 in use)", path=QUEUE_PATH,
          hint=asks(G, 96), settings=G6_STATIC, arrange=granted(G, 48)),
    vcpus("dynamic nodes above it", WARNING, f"{VCPUS} standard instances: 8 to 264 needed, 64 free (0 of 64 in use)",
          path=QUEUE_PATH, hint=asks(STANDARD, 264), settings=CPU, arrange=granted(STANDARD, 64)),
    vcpus("others run", FAULT, f"{VCPUS} P instances: 384 needed, 192 free (192 of 384 in use)",
          settings=ON_DEMAND_P5, hint=asks(P, 576), arrange=all_of(granted(P, 384), run("p5.48xlarge", 1))),
    vcpus("its own nodes run", OK, f"{VCPUS} P instances: 384 needed, 384 free (0 of 384 in use)",
          settings=ON_DEMAND_P5, arrange=all_of(granted(P, 384), run("p5.48xlarge", 2, cluster="p5"))),
    vcpus("a block and spot instances run", OK, f"{VCPUS} P instances: 384 needed, 384 free (0 of 384 in use)",
          settings=ON_DEMAND_P5, arrange=all_of(granted(P, 384), run("p5.48xlarge", 1, market="capacity-block"),
                                                run("p5.48xlarge", 1, market="spot"))),
    vcpus("an unused reservation counts", FAULT, f"{VCPUS} P instances: 384 needed, 0 free (384 of 384 in use)",
          settings=ON_DEMAND_P5, arrange=all_of(granted(P, 384), reserved(2))),
    vcpus("a foreign one does not", OK, f"{VCPUS} P instances: 384 needed, 384 free (0 of 384 in use)",
          settings=ON_DEMAND_P5, arrange=all_of(granted(P, 384), reserved(2, OwnerId="210987654321"))),
    vcpus("spot", WARNING, "vCPUs of P5 spot instances: 0 to 384 needed, 192 free (0 of 192 in use)",
          settings=SPOT_P5, hint=asks("L-C4BD4855", 384), arrange=granted("L-C4BD4855", 192)),
    vcpus("spot that runs", WARNING, "vCPUs of P5 spot instances: 0 to 384 needed, 192 free (192 of 384 in use)",
          settings=SPOT_P5, arrange=all_of(granted("L-C4BD4855", 384), run("p5.48xlarge", 1, market="spot"))),
    vcpus("spot of P6", WARNING, "which quota p6-b200.48xlarge spot instances count against is not published",
          path=("queues", 0, "spot"), settings=queues({"instance_type": "p6-b200.48xlarge", "count": 1, "spot": True})),
    denied("service-quotas:GetServiceQuota", "vcpu-quotas", "servicequotas:GetServiceQuota"),
    denied("ec2:DescribeInstances", "vcpu-quotas"),
    denied("ec2:DescribeCapacityReservations", "vcpu-quotas"),
    denied("sts:GetCallerIdentity", "vcpu-quotas"),
]  # fmt: skip

CIDR = ("network", "cidr")


def five_vpcs(aws: PreflightAws) -> None:
    for number in range(4):  # and the default one
        aws.clients("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")


def five_addresses(aws: PreflightAws) -> None:
    for _ in range(5):
        aws.clients("ec2").allocate_address(Domain="vpc")


def network_of(cluster: str) -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        vpc_id = aws.clients("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        from moto.ec2.models import ec2_backends

        # CloudFormation's own tags cannot be made by hand
        ec2_backends["123456789012"][REGION].create_tags(
            [vpc_id], {"aws:cloudformation:stack-name": f"{cluster}-network"}
        )

    return arrange


def spoil_nat(aws: PreflightAws) -> None:
    vpc()(aws)
    set_quota(REGION, "vpc", "L-FE5A380F", 1)


def network(
    name: str, status: Status, text: str, arrange: Callable[[PreflightAws], object] = nothing, **more: Any
) -> Case:
    return Case("network-quotas", name, status, text, arrange=arrange, path=CIDR, **more)


CASES += [
    network("room", OK, "VPCs in the region: 1 needed, 4 free (1 of 5 in use)"),
    network("VPCs", FAULT, "VPCs in the region: 1 needed, 0 free (5 of 5 in use)", five_vpcs,
            hint=asks("L-F678F1CE", 6, "vpc")),
    network("addresses", FAULT, "Elastic IP addresses in the region: 1 needed, 0 free (5 of 5 in use)", five_addresses,
            hint=asks("L-0263D0A3", 6)),
    network("NAT gateways", FAULT, f"NAT gateways in {REGION}a: 1 needed, 0 free (1 of 1 in use)", spoil_nat,
            hint=asks("L-FE5A380F", 2, "vpc")),
    network("NAT gateways of another zone", OK, f"NAT gateways in {REGION}b: 1 needed, 1 free (0 of 1 in use)",
            spoil_nat, settings={"zone": f"{REGION}b"}),
    network("internet gateways", FAULT, "internet gateways in the region: 1 needed, 0 free (1 of 1 in use)",
            all_of(granted("L-A4707A72", 1, "vpc"), lambda aws: aws.clients("ec2").create_internet_gateway())),
    denied("service-quotas:GetServiceQuota", "network-quotas", "servicequotas:GetServiceQuota"),
    denied("ec2:DescribeVpcs", "network-quotas"),
    denied("ec2:DescribeInternetGateways", "network-quotas"),
    denied("ec2:DescribeNatGateways", "network-quotas"),
    denied("ec2:DescribeSubnets", "network-quotas"),
    denied("ec2:DescribeAddresses", "network-quotas"),
]  # fmt: skip

NIC, GP3, GROUPS = "network interfaces in the region", "TiB of gp3 volumes in the region", "L-E79EC296"


def nodes(
    name: str, status: Status, text: str, arrange: Callable[[PreflightAws], object] = nothing, **more: Any
) -> Case:
    return Case("node-quotas", name, status, text, arrange=arrange, **more)


def volume(gib: int, cluster: str) -> Callable[[PreflightAws], object]:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "parallelcluster:cluster-name", "Value": cluster}]}]
    return lambda aws: aws.clients("ec2").create_volume(
        AvailabilityZone=f"{REGION}a", Size=gib, VolumeType="gp3", TagSpecifications=tags
    )


CASES += [
    nodes("room", OK, f"{NIC}: 133 needed, 5000 free (0 of 5000 in use)", path=("queues",)),
    nodes("interfaces", FAULT, f"{NIC}: 133 needed, 100 free (0 of 100 in use)", granted("L-DF5E4CA3", 100, "vpc"),
          hint=asks("L-DF5E4CA3", 133, "vpc")),
    nodes("interfaces of others", FAULT, f"{NIC}: 133 needed, 132 free (1 of 133 in use)",
          all_of(granted("L-DF5E4CA3", 133, "vpc"), run("m5.large", 1))),
    nodes("its own interfaces", OK, f"{NIC}: 133 needed, 133 free (0 of 133 in use)",
          all_of(granted("L-DF5E4CA3", 133, "vpc"), run("m5.large", 1, cluster="p5"))),
    nodes("volumes", FAULT, f"{GP3}: 0.98 needed, 0.5 free (0 of 0.5 in use)", granted("L-7A658B76", 0.5, "ebs"),
          hint=asks("L-7A658B76", 1, "ebs")),
    nodes("volumes of others", FAULT, f"{GP3}: 0.98 needed, 0 free (1 of 1 in use)",
          all_of(granted("L-7A658B76", 1, "ebs"), volume(1024, "other"), volume(1024, "p5"))),
    nodes("security groups", FAULT, "security groups in the region: 4 needed, 3 free (1 of 4 in use)",
          granted(GROUPS, 4, "vpc"), path=("network",), hint=asks(GROUPS, 5, "vpc")),
    nodes("the file system has its group", OK, "security groups in the region: 3 needed, 3 free (1 of 4 in use)",
          granted(GROUPS, 4, "vpc"), settings={"storage": {"fsx": {"file_system_id": "fs-0123456789abcdef0"}}}),
    nodes("an existing group", OK, "security groups in the region: 2 needed, 2 free (1 of 3 in use)",
          granted(GROUPS, 3, "vpc"), settings={"network": {**NETWORK, "security_group_id": "sg-0123456789abcdef0"}}),
    nodes("interfaces without EFA", OK, f"{NIC}: 65 needed, 5000 free (0 of 5000 in use)",
          settings=queues({"instance_type": "p5.48xlarge", "count": 2})),
    denied("service-quotas:GetServiceQuota", "node-quotas", "servicequotas:GetServiceQuota"),
    denied("ec2:DescribeNetworkInterfaces", "node-quotas"),
    denied("ec2:DescribeSecurityGroups", "node-quotas"),
    denied("ec2:DescribeVolumes", "node-quotas"),
    denied("ec2:DescribeInstances", "node-quotas"),
]  # fmt: skip


def never_granted(aws: PreflightAws) -> None:
    """Service Quotas has no applied value of a quota that nobody ever touched."""
    aws.misbehave("service-quotas:GetServiceQuota", error=(400, "NoSuchResourceException", "The request failed."))


DEFAULTS = [
    vcpus("AWS's default", FAULT, f"{VCPUS} standard instances: 8 needed, 5 free (0 of 5 in use)",
          arrange=never_granted),
    denied("service-quotas:GetAWSDefaultServiceQuota", "vcpu-quotas", "servicequotas:GetAWSDefaultServiceQuota",
           arrange=never_granted),
    denied("service-quotas:GetAWSDefaultServiceQuota", "network-quotas", "servicequotas:GetAWSDefaultServiceQuota",
           arrange=never_granted),
    denied("service-quotas:GetAWSDefaultServiceQuota", "node-quotas", "servicequotas:GetAWSDefaultServiceQuota",
           arrange=never_granted),
]  # fmt: skip
CASES += DEFAULTS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_quotas(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_an_update_needs_no_second_network(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    case = Case("network-quotas", "update", OK, "", arrange=all_of(five_vpcs, five_addresses, network_of("p5")))
    answers = ask(case)
    assert [answer.status for answer in answers] == [OK]
    assert answers[0].text.startswith("the network of this deployment exists already (vpc-")


def test_nothing_is_asked_about_an_existing_vpc(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    assert ask(Case("network-quotas", "existing", OK, "", settings=merged({}, {"network": NETWORK}))) == ()
