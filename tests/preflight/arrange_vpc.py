"""An existing VPC in the account, healthy until a case spoils it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto.ec2.models import (
    internet_gateways,
    nat_gateways,
    network_acls,
    security_groups,
    vpcs,
)
from preflight_cases import REGION

from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, make_network
from tests.aws.preflight_aws import PreflightAws

VPC = "vpc-0123456789abcdef0"
HEAD = "subnet-0123456789abcdef0"
COMPUTE = "subnet-0123456789abcdef1"
GROUP = "sg-0123456789abcdef0"
ENDPOINT_GROUP = "sg-0123456789abcdef9"
GATEWAY = "igw-0123456789abcdef0"
NAT = "nat-0123456789abcdef0"
ACL = "acl-0123456789abcdef0"
ZONE = f"{REGION}a"
EVERYWHERE = "0.0.0.0/0"
ALL = {"IpProtocol": "-1"}

NETWORK: dict[str, Any] = {"cidr": None, "vpc_id": VPC, "head_node_subnet_id": HEAD, "compute_subnet_id": COMPUTE}


@contextmanager
def fixed_ids(**ids: str) -> Iterator[None]:
    """Make moto give the next resource of a kind the id that the texts name."""
    places = {
        "gateway": (internet_gateways, "random_internet_gateway_id"),
        "nat": (nat_gateways, "random_nat_gateway_id"),
        "acl": (network_acls, "random_network_acl_id"),
        "group": (security_groups, "random_security_group_id"),
        "vpc": (vpcs, "random_vpc_id"),
        "endpoint": (vpcs, "random_vpc_ep_id"),
    }
    with ExitStack() as stack:
        for kind, id in ids.items():
            module, name = places[kind]
            stack.enter_context(mock.patch.object(module, name, lambda id=id: id))
        yield


def vpc(
    zone: str = ZONE, compute_cidr: str = "10.0.128.0/17", *, head_public: bool = True, compute_public: bool = False
) -> Callable[[PreflightAws], None]:
    """The VPC with both subnets: public ones lead to the gateway and give addresses, private ones to a NAT gateway."""

    def arrange(aws: PreflightAws) -> None:
        subnets = (
            ExistingSubnet(HEAD, "10.0.0.0/24", zone, public=head_public),
            ExistingSubnet(COMPUTE, compute_cidr, zone, public=compute_public),
        )
        with fixed_ids(gateway=GATEWAY, nat=NAT):
            make_network(aws.clients, ExistingNetwork(VPC, "10.0.0.0/16", subnets))

    return arrange


def route_table(aws: PreflightAws, subnet: str) -> str:
    tables = aws.clients("ec2").describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])
    return str(tables["RouteTables"][0]["RouteTableId"])


def no_way_out(subnet: str) -> Callable[[PreflightAws], None]:
    """Take the default route of the subnet's table away."""

    def arrange(aws: PreflightAws) -> None:
        table = route_table(aws, subnet)
        aws.clients("ec2").delete_route(RouteTableId=table, DestinationCidrBlock=EVERYWHERE)

    return arrange


def no_nat(aws: PreflightAws) -> None:
    """Delete the NAT gateway; the routes to it stay."""
    aws.clients("ec2").delete_nat_gateway(NatGatewayId=NAT)


def endpoints(
    subnet: str, *names: str, private_dns: bool = True, open_to: str = "10.0.0.0/16"
) -> Callable[[PreflightAws], None]:
    """VPC endpoints: those of S3 and DynamoDB are gateways in the subnet's route table, the others have one group."""

    def arrange(aws: PreflightAws) -> None:
        ec2 = aws.clients("ec2")
        with fixed_ids(group=ENDPOINT_GROUP):
            ec2.create_security_group(GroupName="endpoints", Description="endpoints", VpcId=VPC)
        if open_to:
            https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": open_to}]}
            ec2.authorize_security_group_ingress(GroupId=ENDPOINT_GROUP, IpPermissions=[https])
        interface = {
            "VpcEndpointType": "Interface",
            "SubnetIds": [subnet],
            "SecurityGroupIds": [ENDPOINT_GROUP],
            "PrivateDnsEnabled": private_dns,
        }
        for number, name in enumerate(names):
            kind: dict[str, Any] = interface
            if name in ("s3", "dynamodb"):
                kind = {"VpcEndpointType": "Gateway", "RouteTableIds": [route_table(aws, subnet)]}
            service = f"com.amazonaws.{REGION}.{name}"
            with fixed_ids(endpoint=f"vpce-0123456789abcdef{number}"):
                ec2.create_vpc_endpoint(VpcId=VPC, ServiceName=service, **kind)

    return arrange


def group(
    *, ingress: bool = True, egress: bool = True, id: str = GROUP, vpc_id: str = VPC
) -> Callable[[PreflightAws], None]:
    """A security group with EC2's own egress rule to everywhere, and with rules to itself as told."""

    def arrange(aws: PreflightAws) -> None:
        ec2 = aws.clients("ec2")
        with fixed_ids(group=id):
            ec2.create_security_group(GroupName=f"nodes-{id}", Description="nodes", VpcId=vpc_id)
        rule = [{**ALL, "UserIdGroupPairs": [{"GroupId": id}]}]
        if ingress:
            ec2.authorize_security_group_ingress(GroupId=id, IpPermissions=rule)
        if egress:
            ec2.authorize_security_group_egress(GroupId=id, IpPermissions=rule)

    return arrange


def another_vpc(id: str = "vpc-0bbbbbbbbbbbbbbbb") -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        with fixed_ids(vpc=id):
            aws.clients("ec2").create_vpc(CidrBlock="10.9.0.0/16")

    return arrange


def acl(*entries: tuple[int, str, bool, str, str]) -> Callable[[PreflightAws], None]:
    """A network ACL of its own for the compute subnet: (number, protocol, egress, allow or deny, range)."""

    def arrange(aws: PreflightAws) -> None:
        ec2 = aws.clients("ec2")
        with fixed_ids(acl=ACL):
            ec2.create_network_acl(VpcId=VPC)
        for number, protocol, egress, action, cidr in entries:
            ports = {} if protocol == "-1" else {"PortRange": {"From": 1, "To": 65535}}
            ec2.create_network_acl_entry(
                NetworkAclId=ACL, RuleNumber=number, Protocol=protocol, Egress=egress, RuleAction=action,
                CidrBlock=cidr, **ports,
            )  # fmt: skip
        old = ec2.describe_network_acls(Filters=[{"Name": "association.subnet-id", "Values": [COMPUTE]}])
        for association in old["NetworkAcls"][0]["Associations"]:
            if association["SubnetId"] == COMPUTE:
                ec2.replace_network_acl_association(
                    AssociationId=association["NetworkAclAssociationId"], NetworkAclId=ACL
                )

    return arrange
