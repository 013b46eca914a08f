"""An existing VPC, healthy and spoilt in each way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_vpc import (
    ACL,
    COMPUTE,
    ENDPOINT_GROUP,
    EVERYWHERE,
    GATEWAY,
    GROUP,
    HEAD,
    NAT,
    NETWORK,
    VPC,
    ZONE,
    acl,
    another_vpc,
    endpoints,
    group,
    no_nat,
    no_way_out,
    vpc,
)  # fmt: skip
from preflight_cases import REGION, Case, all_of, check, denied, merged

from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
OWN = {"network": NETWORK}
G6 = {"queues": [{"name": "dev", "instance_type": "g6.12xlarge", "max_count": 2}]}
HEAD_PATH, COMPUTE_PATH = ("network", "head_node_subnet_id"), ("network", "compute_subnet_id")
NODE_ENDPOINTS = ("logs", "cloudformation", "ec2", "s3", "dynamodb", "ssm")
PRIVATE = "name a private subnet whose default route is a NAT gateway"


def own(
    name: str, question: str, status: Status, text: str, arrange: Callable[[PreflightAws], object], **more: Any
) -> Case:
    """A case with an existing VPC."""
    settings = merged(OWN, more.pop("settings", {}))
    return Case(question, name, status, text, arrange=arrange, settings=settings, **more)


def modify_vpc(attribute: str) -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        aws.clients("ec2").modify_vpc_attribute(VpcId=VPC, **{attribute: {"Value": False}})

    return arrange


def no_public_addresses(subnet: str) -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        aws.clients("ec2").modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": False})

    return arrange


def nodes(count: int, cluster: str) -> Callable[[PreflightAws], None]:
    """Nodes of a cluster that run in the compute subnet already."""

    def arrange(aws: PreflightAws) -> None:
        tags = [{"Key": "parallelcluster:cluster-name", "Value": cluster}]
        aws.clients("ec2").run_instances(
            ImageId="ami-00000000000000003",
            InstanceType="g6.12xlarge",
            MinCount=count,
            MaxCount=count,
            SubnetId=COMPUTE,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )

    return arrange


CASES = [
    own("healthy", "vpc", OK, f"{VPC} has enableDnsHostnames", vpc(), path=("network", "vpc_id")),
    own("not there", "vpc", FAULT, f"{VPC} does not exist in {REGION}", all_of(),
        hint=f"aws ec2 describe-vpcs --region {REGION} lists those there are"),
    own("no host names", "vpc", FAULT,
        f"{VPC} has enableDnsHostnames off: the nodes find neither each other nor the file system by name",
        all_of(vpc(), modify_vpc("EnableDnsHostnames")),
        hint=f"aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns-hostnames"),
    own("no DNS", "vpc", FAULT,
        f"{VPC} has enableDnsSupport off: the nodes find neither each other nor the file system by name",
        all_of(vpc(), modify_vpc("EnableDnsSupport"))),
    denied("ec2:DescribeVpcs", "vpc", settings=OWN, arrange=vpc()),
    denied("ec2:DescribeVpcAttribute", "vpc", settings=OWN, arrange=vpc()),

    own("healthy", "subnets", OK, f"{COMPUTE} is in {VPC} and {ZONE}, 32763 addresses free", vpc(), path=COMPUTE_PATH),
    own("one subnet for all", "subnets", OK, f"{COMPUTE} is in {VPC} and {ZONE}, 32763 addresses free", vpc(),
        settings={"network": {"head_node_subnet_id": COMPUTE}}),
    own("not there", "subnets", FAULT, f"subnet-0cccccccccccccccc does not exist in {REGION}", vpc(), path=COMPUTE_PATH,
        settings={"network": {"compute_subnet_id": "subnet-0cccccccccccccccc"}}),
    own("another zone", "subnets", FAULT, f"{COMPUTE} is in us-east-1b, the cluster in {ZONE}", vpc("us-east-1b"),
        path=COMPUTE_PATH, alone=False),
    own("another VPC", "subnets", FAULT, f"{COMPUTE} is in {VPC}, not in vpc-0bbbbbbbbbbbbbbbb", vpc(),
        path=COMPUTE_PATH, alone=False, settings={"network": {"vpc_id": "vpc-0bbbbbbbbbbbbbbbb"}}),
    own("too few addresses", "subnets", FAULT, f"{COMPUTE} has 11 free addresses, the static nodes need 16",
        vpc(compute_cidr="10.0.128.0/28"), path=COMPUTE_PATH, hint="name a larger subnet, or lower count",
        settings={"queues": [{"name": "dev", "instance_type": "g6.12xlarge", "count": 16}]}),
    own("too few addresses for all", "subnets", WARNING, f"{COMPUTE} has 11 free addresses, the nodes can need 16",
        vpc(compute_cidr="10.0.128.0/28"), path=COMPUTE_PATH, hint="name a larger subnet, or lower max_count",
        settings={"queues": [{"name": "dev", "instance_type": "g6.12xlarge", "max_count": 16}]}),
    own("own nodes run in it", "subnets", OK, f"{COMPUTE} is in {VPC} and {ZONE}, 11 addresses free",
        all_of(vpc(compute_cidr="10.0.128.0/28"), nodes(4, "p5")), path=COMPUTE_PATH,
        settings={"queues": [{"name": "dev", "instance_type": "g6.12xlarge", "count": 11}]}),
    own("other nodes run in it", "subnets", FAULT, f"{COMPUTE} has 7 free addresses, the static nodes need 11",
        all_of(vpc(compute_cidr="10.0.128.0/28"), nodes(4, "other")), path=COMPUTE_PATH,
        settings={"queues": [{"name": "dev", "instance_type": "g6.12xlarge", "count": 11}]}),
    own("an address on each card without EFA", "subnets", FAULT,
        f"{COMPUTE} has 59 free addresses, the static nodes need 64",
        vpc(compute_cidr="10.0.128.0/26"), path=COMPUTE_PATH,
        settings={"queues": [{"name": "train", "instance_type": "p5.48xlarge", "count": 2}]}),
    denied("ec2:DescribeSubnets", "subnets", settings=OWN, arrange=vpc()),
    denied("ec2:DescribeInstances", "subnets", arrange=vpc(compute_cidr="10.0.128.0/28"),
           settings={**OWN, "queues": [{"name": "dev", "instance_type": "g6.12xlarge", "count": 16}]}),

    own("NAT", "compute-routes", OK, f"{COMPUTE} has a way out through {NAT}", vpc()),
    own("main table, no way", "compute-routes", FAULT,
        f"{COMPUTE} has no way to the internet and no VPC endpoint for logs, cloudformation, ec2, s3, dynamodb, ssm",
        all_of(vpc(), no_way_out(COMPUTE)), path=COMPUTE_PATH,
        hint="give it a default route to a NAT gateway, or make the endpoints"),
    own("some endpoints", "compute-routes", FAULT,
        f"{COMPUTE} has no way to the internet and no VPC endpoint for cloudformation, ec2, dynamodb, ssm",
        all_of(vpc(), no_way_out(COMPUTE), endpoints(COMPUTE, "logs", "s3"))),
    own("all endpoints, no mirror", "compute-routes", WARNING,
        f"{COMPUTE} has no way to the internet, and the nodes' software comes from there: the exporters and Prometheus are "
        "missing, and no metric is recorded; nccl-tests is not built, and acceptance measures nothing",
        all_of(vpc(), no_way_out(COMPUTE), endpoints(COMPUTE, *NODE_ENDPOINTS)),
        hint="copy it to a bucket and name that: software_mirror: s3://BUCKET/PREFIX"),
    own("all endpoints and a mirror", "compute-routes", OK,
        f"{COMPUTE} has no way to the internet, and VPC endpoints for all that the nodes call",
        all_of(vpc(), no_way_out(COMPUTE), endpoints(COMPUTE, *NODE_ENDPOINTS)),
        settings={"software_mirror": "s3://corp-mirror/slipway"}),
    own("endpoint without private DNS", "compute-routes", FAULT,
        f"vpce-0123456789abcdef0 (logs) has private DNS off: its name leads to the internet, and {COMPUTE} has no way there",
        all_of(vpc(), no_way_out(COMPUTE), endpoints(COMPUTE, *NODE_ENDPOINTS, private_dns=False)), path=COMPUTE_PATH,
        hint="aws ec2 modify-vpc-endpoint --vpc-endpoint-id vpce-0123456789abcdef0 --private-dns-enabled", alone=False),
    own("endpoint closed to the nodes", "compute-routes", FAULT,
        f"{ENDPOINT_GROUP} of vpce-0123456789abcdef0 (logs) lets no HTTPS in from {COMPUTE}",
        all_of(vpc(), no_way_out(COMPUTE), endpoints(COMPUTE, *NODE_ENDPOINTS, open_to="10.9.0.0/16")),
        path=COMPUTE_PATH, alone=False,
        hint=f"aws ec2 authorize-security-group-ingress --group-id {ENDPOINT_GROUP} --protocol tcp --port 443 "
        "--cidr 10.0.128.0/17"),
    own("endpoint closed, with a way out", "compute-routes", FAULT,
        f"{ENDPOINT_GROUP} of vpce-0123456789abcdef0 (logs) lets no HTTPS in from {COMPUTE}",
        all_of(vpc(), endpoints(COMPUTE, "logs", open_to="")), path=COMPUTE_PATH),
    own("endpoint without private DNS, with a way out", "compute-routes", OK, f"{COMPUTE} has a way out through {NAT}",
        all_of(vpc(), endpoints(COMPUTE, "logs", private_dns=False, open_to=""))),
    own("endpoint closed to the head node", "head-routes", FAULT,
        f"{ENDPOINT_GROUP} of vpce-0123456789abcdef0 (ssmmessages) lets no HTTPS in from {HEAD}",
        all_of(vpc(), endpoints(HEAD, "ssmmessages", open_to="")), path=HEAD_PATH),
    own("public, 32 cards", "compute-routes", FAULT,
        f"{COMPUTE} is public (its way out is {GATEWAY}), and p5.48xlarge with 33 network interfaces cannot have a "
        "public address: the nodes would reach nothing", vpc(compute_public=True), path=COMPUTE_PATH, hint=PRIVATE),
    own("public, one card with EFA", "compute-routes", FAULT,
        f"{COMPUTE} is public (its way out is {GATEWAY}), and g6.48xlarge with 2 network interfaces cannot have a "
        "public address: the nodes would reach nothing", vpc(compute_public=True), path=COMPUTE_PATH, hint=PRIVATE,
        settings={"queues": [{"name": "dev", "instance_type": "g6.48xlarge", "count": 2, "efa": True}]}),
    own("public, one card", "compute-routes", WARNING, f"{COMPUTE} is public: every compute node gets a public address",
        vpc(compute_public=True), settings=G6, hint=PRIVATE),
    own("public without addresses", "compute-routes", FAULT,
        f"{COMPUTE} has {GATEWAY} as its way out and gives no public addresses: the nodes would reach nothing",
        all_of(vpc(compute_public=True), no_public_addresses(COMPUTE)), settings=G6, hint=PRIVATE),
    own("NAT is gone", "compute-routes", FAULT,
        f"{COMPUTE} sends what is for the internet to {NAT}, which is gone (blackhole)",
        all_of(vpc(), no_nat), hint="point its default route to a NAT gateway that is there"),
    denied("ec2:DescribeRouteTables", "compute-routes", settings=OWN, arrange=vpc()),
    denied("ec2:DescribeVpcEndpoints", "compute-routes", settings=OWN, arrange=all_of(vpc(), no_way_out(COMPUTE))),
    denied("ec2:DescribeSecurityGroups", "compute-routes", settings=OWN, arrange=all_of(vpc(), endpoints(COMPUTE, "logs"))),
    denied("ec2:DescribeSecurityGroups", "head-routes", settings=OWN, arrange=all_of(vpc(), endpoints(HEAD, "ssmmessages"))),
    denied("ec2:DescribeSubnets", "compute-routes", settings=merged(OWN, G6), arrange=vpc(compute_public=True)),

    own("public", "head-routes", OK, f"{HEAD} has a way out through {GATEWAY}; the head node gets a public address",
        vpc(), path=HEAD_PATH),
    own("private", "head-routes", OK,
        f"{HEAD} has a way out through {NAT}; the head node gets no public address",
        vpc(head_public=False), settings={"head_node": {"ssh_from": "10.0.0.0/8"}}),
    own("private, SSH from outside", "head-routes", WARNING,
        "SSH is allowed from 203.0.113.0/24, and the head node has no public address to reach it at",
        vpc(head_public=False), path=("head_node", "ssh_from"),
        settings={"head_node": {"ssh_from": "203.0.113.0/24"}}),
    own("public without addresses", "head-routes", FAULT,
        f"{HEAD} has {GATEWAY} as its way out and gives no public addresses: the head node would reach nothing",
        all_of(vpc(), no_public_addresses(HEAD)), path=HEAD_PATH,
        hint=f"aws ec2 modify-subnet-attribute --subnet-id {HEAD} --map-public-ip-on-launch"),
    own("isolated", "head-routes", FAULT,
        f"{HEAD} has no way to the internet and no VPC endpoint for ssmmessages, aps-workspaces, secretsmanager",
        all_of(vpc(head_public=False), no_way_out(HEAD), endpoints(HEAD, *NODE_ENDPOINTS)),
        settings={"ngc_secret_arn": "arn:aws:secretsmanager:us-east-1:123456789012:secret:ngc-key-AbCdEf"}),
    own("isolated, images of ECR", "head-routes", FAULT,
        f"{HEAD} has no way to the internet and no VPC endpoint for ecr.api, ecr.dkr",
        all_of(vpc(head_public=False), no_way_out(HEAD), endpoints(HEAD, *NODE_ENDPOINTS, "ssmmessages", "aps-workspaces")),
        settings={"images": ["docker://123456789012.dkr.ecr.us-east-1.amazonaws.com#train:1.0"]}),
    own("isolated, images from outside", "head-routes", WARNING,
        f"{HEAD} has no way to the internet, and docker://nvcr.io#nvidia/pytorch:24.01-py3 comes from there",
        all_of(vpc(head_public=False), no_way_out(HEAD), endpoints(HEAD, *NODE_ENDPOINTS, "ssmmessages", "aps-workspaces")),
        settings={"images": ["docker://nvcr.io#nvidia/pytorch:24.01-py3"], "software_mirror": "s3://corp-mirror/slipway"},
        path=("images", 0), alone=False),
    own("NAT is gone", "head-routes", FAULT,
        f"{HEAD} sends what is for the internet to {NAT}, which is gone (blackhole)",
        all_of(vpc(head_public=False), no_nat)),
    denied("ec2:DescribeRouteTables", "head-routes", settings=OWN, arrange=vpc()),
    denied("ec2:DescribeSubnets", "head-routes", settings=OWN, arrange=vpc()),
    denied("ec2:DescribeVpcEndpoints", "head-routes", settings=OWN, arrange=all_of(vpc(), no_way_out(HEAD))),

    own("closed", "network-acls", FAULT, f"{ACL} of {COMPUTE} lets nothing out",
        all_of(vpc(), acl((100, "-1", False, "allow", EVERYWHERE))), path=COMPUTE_PATH),
    own("half open", "network-acls", WARNING, f"{ACL} of {COMPUTE} lets only some traffic in",
        all_of(vpc(), acl((100, "6", False, "allow", "10.0.0.0/8"), (100, "-1", True, "allow", EVERYWHERE)))),
    own("a denial first", "network-acls", WARNING, f"{ACL} of {COMPUTE} lets only some traffic in",
        all_of(vpc(), acl((90, "6", False, "deny", "10.7.0.0/16"), (100, "-1", False, "allow", EVERYWHERE),
                          (100, "-1", True, "allow", EVERYWHERE)))),
    own("open", "network-acls", OK, f"{ACL} of {COMPUTE} lets everything through",
        all_of(vpc(), acl((100, "-1", False, "allow", EVERYWHERE), (100, "-1", True, "allow", EVERYWHERE)))),
    denied("ec2:DescribeNetworkAcls", "network-acls", settings=OWN, arrange=vpc()),
]  # fmt: skip

WITH_GROUP = {"network": {"security_group_id": GROUP}}
NODES = ("network", "security_group_id")
NOT_ENOUGH = "EFA does not get through, 0.0.0.0/0 is not enough"
CASES += [
    own("healthy", "security-groups", OK, f"{GROUP} is in {VPC} and open to itself both ways", all_of(vpc(), group()),
        settings=WITH_GROUP, path=NODES),
    own("not there", "security-groups", FAULT, f"{GROUP} does not exist in {REGION}", vpc(), settings=WITH_GROUP),
    own("no egress to itself", "security-groups", FAULT,
        f"{GROUP} has no egress rule for all traffic to itself: {NOT_ENOUGH}", all_of(vpc(), group(egress=False)),
        settings=WITH_GROUP, path=NODES,
        hint=f"aws ec2 authorize-security-group-egress --group-id {GROUP} --protocol all --source-group {GROUP}"),
    own("no ingress from itself", "security-groups", FAULT,
        f"{GROUP} has no ingress rule for all traffic to itself: {NOT_ENOUGH}", all_of(vpc(), group(ingress=False)),
        settings=WITH_GROUP, path=NODES,
        hint=f"aws ec2 authorize-security-group-ingress --group-id {GROUP} --protocol all --source-group {GROUP}"),
    own("closed to itself, no EFA", "security-groups", OK, f"{GROUP} is in {VPC} and open to itself both ways",
        all_of(vpc(), group()), settings=merged(WITH_GROUP, G6)),
    own("another VPC", "security-groups", FAULT, f"{GROUP} is in vpc-0bbbbbbbbbbbbbbbb, not in {VPC}",
        all_of(vpc(), another_vpc(), group(vpc_id="vpc-0bbbbbbbbbbbbbbbb")), settings=WITH_GROUP, path=NODES),
    own("the head node's", "security-groups", OK, f"{GROUP} is in {VPC}",
        all_of(vpc(), group(ingress=False, egress=False)), settings={"head_node": {"security_group_ids": [GROUP]}},
        path=("head_node", "security_group_ids", 0)),
    Case("security-groups", "the head node's, in a new VPC", FAULT,
         f"{GROUP} is in vpc-0bbbbbbbbbbbbbbbb, and the cluster makes a new VPC",
         ("head_node", "security_group_ids", 0), "leave it out, or deploy into its VPC",
         {"head_node": {"security_group_ids": [GROUP]}},
         all_of(another_vpc(), group(vpc_id="vpc-0bbbbbbbbbbbbbbbb"))),
    denied("ec2:DescribeSecurityGroups", "security-groups", settings=merged(OWN, WITH_GROUP),
           arrange=all_of(vpc(), group())),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_network(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
