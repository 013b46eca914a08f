"""What an AWS account has before our deployment: the CDK's bootstrap, ParallelCluster's images and provider, what is
bought.

The CDK's bootstrap: bootstrap.py. Names of images and of the provider's
template: aws-parallelcluster 3.16.1 (`pcluster/constants.py`, user guide "Custom resources").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models import ec2_backends, subnets, vpcs
from moto.ec2.models.amis import Ami
from moto.s3.models import s3_backends

from rehearsal.cloud.bootstrap import make_bootstrap
from rehearsal.cloud.capacity import add_reservation
from rehearsal.cloud.clients import Clients
from rehearsal.cloud.existing import (
    FileSystem,
    SecurityGroup,
    make_file_system,
    make_placement_group,
    make_policy,
    make_secret,
    make_security_group,
    make_volume,
    next_id,
)
from rehearsal.cloud_model import ACCOUNT, PARTITION
from rehearsal.permissions.parallelcluster import provider_statements

PARALLELCLUSTER_VERSION = "3.16.1"
DEPLOYER = "deployer"
_NGC_KEY = "nvapi-" + "0" * 64  # the form of a key of NVIDIA's registry; it opens nothing
_AMI_OWNER = "247102896272"  # the account that publishes ParallelCluster's images
_AMI_SYSTEMS = {
    "alinux2023": "amzn2023-hvm",
    "ubuntu2204": "ubuntu-2204-lts-hvm",
    "ubuntu2404": "ubuntu-2404-lts-hvm",
    "rhel9": "rhel9-hvm",
}
_AMI_MOMENT = datetime(2026, 8, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation that settings name; `kind` is capacity-block or on-demand, `count` is in instances.

    `placement_group`: the name of the group that it was made in.
    """

    id: str
    instance_type: str
    count: int
    zone: str
    kind: str
    placement_group: str = ""


@dataclass(frozen=True)
class ExistingSubnet:
    """A subnet that settings name."""

    id: str
    cidr: str
    zone: str
    public: bool = False


@dataclass(frozen=True)
class ExistingNetwork:
    """A VPC that settings name, with its subnets; public ones get a route to an internet gateway."""

    vpc_id: str
    cidr: str
    subnets: tuple[ExistingSubnet, ...]


@dataclass(frozen=True)
class Seed:
    """All that is there before the deployment.

    `volumes` are (id, zone), `objects` (bucket, key), `scripts` (bucket, key, text); `secret_arns` hold a key of
    NVIDIA's registry each, `secrets` are (ARN, text); `service_roles`: services whose linked role was made, such as
    spot.amazonaws.com; `execution_policy`: the document for the role that CloudFormation deploys with (empty: it may do
    everything); `deployer_policy`: that of the role DEPLOYER, which runs the CDK CLI (empty: there is no such role).
    """

    reservations: tuple[Reservation, ...] = ()
    key_pairs: tuple[str, ...] = ()
    secret_arns: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    objects: tuple[tuple[str, str], ...] = ()
    service_roles: tuple[str, ...] = ()
    network: ExistingNetwork | None = None
    security_groups: tuple[SecurityGroup, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    scripts: tuple[tuple[str, str, bytes], ...] = ()
    policy_arns: tuple[str, ...] = ()
    boundary_arn: str | None = None
    placement_groups: tuple[str, ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()
    execution_policy: str = ""
    deployer_policy: str = ""


def plant(clients: Clients, seed: Seed) -> None:
    """Make everything of `seed`, and what every account has."""
    make_bootstrap(clients, seed.execution_policy)
    if seed.deployer_policy:
        _deployer(clients, seed.deployer_policy)
    _provider_template(clients.region)
    _images(clients.region)
    for reservation in seed.reservations:
        add_reservation(
            clients.region,
            reservation.id,
            reservation.instance_type,
            reservation.count,
            reservation.zone,
            reservation.kind,
            **_placed(clients.region, reservation),
        )
    for name in seed.key_pairs:
        clients("ec2").create_key_pair(KeyName=name, KeyType="ed25519")  # pcluster warns of RSA
    for arn in seed.secret_arns:
        make_secret(clients, arn, _NGC_KEY)
    for arn, text in seed.secrets:
        make_secret(clients, arn, text)
    for bucket in seed.buckets:
        _closed_bucket(clients, bucket)
    for bucket, key in seed.objects:
        clients("s3").put_object(Bucket=bucket, Key=key, Body=b"stand-in for the site's data\n")
    for service in seed.service_roles:
        clients("iam").create_service_linked_role(AWSServiceName=service)
    if seed.network is not None:
        make_network(clients, seed.network)
    _site(clients, seed)


def _deployer(clients: Clients, document: str) -> None:
    """The role of the person who deploys, as single sign-on gives one."""
    iam, trust = clients("iam"), {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": ACCOUNT}}
    iam.create_role(RoleName=DEPLOYER, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    iam.put_role_policy(RoleName=DEPLOYER, PolicyName="policy-deploy", PolicyDocument=document)


def _placed(region: str, reservation: Reservation) -> dict[str, str]:
    name = reservation.placement_group
    return {"PlacementGroupArn": f"arn:{PARTITION}:ec2:{region}:{ACCOUNT}:placement-group/{name}"} if name else {}


def _site(clients: Clients, seed: Seed) -> None:
    """Make the site's parts other than its network: groups first, since file systems use them."""
    for group in seed.security_groups:
        make_security_group(clients, group)
    for system in seed.file_systems:
        make_file_system(clients, system)
    for volume_id, zone in seed.volumes:
        make_volume(clients, volume_id, zone)
    for bucket, key, body in seed.scripts:
        clients("s3").put_object(Bucket=bucket, Key=key, Body=body)
    for arn in seed.policy_arns:
        make_policy(clients, arn)
    if seed.boundary_arn:
        make_policy(clients, seed.boundary_arn, actions="*")  # what a site bounds is its own matter
    for name in seed.placement_groups:
        make_placement_group(clients, name)


def make_bucket(clients: Clients, name: str) -> None:
    """A bucket in the region; us-east-1 must not be named as a constraint."""
    region = clients.region
    constraint = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    clients("s3").create_bucket(Bucket=name, **constraint)


def _closed_bucket(clients: Clients, name: str) -> None:
    """As buckets are made today: nothing in it can be made public."""
    make_bucket(clients, name)
    names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    closed = dict.fromkeys(names, True)
    clients("s3").put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=closed)


_LAMBDA_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}],
}
_LOGGING = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"


def _provider(region: str) -> dict[str, Any]:
    """Our own stand-in for ParallelCluster's provider: same parameters, role and output, a function that is not called.

    The rehearsal serves the custom resource itself, with this role's permissions.
    """
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Stand-in for ParallelCluster's custom resource provider",
        "Parameters": {
            "CustomLambdaRole": {"Type": "String", "Default": ""},
            "AdditionalIamPolicies": {"Type": "CommaDelimitedList", "Default": ""},
        },
        "Conditions": {"MakeRole": {"Fn::Equals": [{"Ref": "CustomLambdaRole"}, ""]}},
        "Resources": {
            "PclusterLambdaRole": {
                "Type": "AWS::IAM::Role",
                "Condition": "MakeRole",
                "Properties": {
                    "AssumeRolePolicyDocument": _LAMBDA_TRUST,
                    "ManagedPolicyArns": {
                        "Fn::Split": [
                            ",",
                            {"Fn::Join": [",", [_LOGGING, {"Fn::Join": [",", {"Ref": "AdditionalIamPolicies"}]}]]},
                        ]
                    },
                    "Policies": [_provider_permissions(region)],
                },
            },
            "PclusterCfnFunction": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "FunctionName": _with_suffix("pcluster-cfn-"),
                    "Runtime": "python3.12",
                    "Handler": "index.handler",
                    "Timeout": 900,
                    "Role": {
                        "Fn::If": [
                            "MakeRole",
                            {"Fn::GetAtt": ["PclusterLambdaRole", "Arn"]},
                            {"Ref": "CustomLambdaRole"},
                        ]
                    },
                    "Code": {
                        "ZipFile": "def handler(event, context):\n"
                        "    raise RuntimeError('the rehearsal serves Custom::PclusterCluster without this function')\n"
                    },
                },
            },
        },
        "Outputs": {"ServiceToken": {"Value": {"Fn::GetAtt": ["PclusterCfnFunction", "Arn"]}}},
    }


def _provider_permissions(region: str, boundary: str = "") -> dict[str, Any]:
    document = {"Version": "2012-10-17", "Statement": provider_statements(region, boundary)}
    return {"PolicyName": "ParallelCluster", "PolicyDocument": document}


def _with_suffix(name: str) -> dict[str, Any]:
    """A name that ends in the stack's unique id, as ParallelCluster's templates make it."""
    return {"Fn::Join": ["", [name, {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}]]}


def _policies(region: str) -> dict[str, Any]:
    """The same for ParallelCluster's template of the provider's role, which takes a boundary and a prefix."""
    bounded = _provider_permissions(region, "BOUNDARY")
    text = json.dumps(bounded).replace('"BOUNDARY"', '{"Ref": "PermissionsBoundaryPolicy"}')
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Stand-in for ParallelCluster's policies",
        "Parameters": {
            "EnableIamAdminAccess": {"Type": "String", "Default": "false"},
            "PermissionsBoundaryPolicy": {
                "Type": "String",
                "Default": "",
                "AllowedPattern": "^(arn:.*:iam::.*:policy\\/([a-zA-Z0-9_-]+))|()$",
            },
            "IAMRoleAndPolicyPrefix": {"Type": "String", "Default": "", "AllowedPattern": ".{0,10}"},
            "AdditionalPolicies": {
                "Type": "String",
                "Default": "",
                "AllowedPattern": "^(arn:.*:iam::.*:policy\\/([a-zA-Z0-9_-]+))|()$",
            },
        },
        "Conditions": {"Bounded": {"Fn::Not": [{"Fn::Equals": [{"Ref": "PermissionsBoundaryPolicy"}, ""]}]}},
        "Resources": {
            "ParallelClusterLambdaRole": {
                "Type": "AWS::IAM::Role",
                "Properties": {
                    "RoleName": {
                        "Fn::Join": [
                            "",
                            [
                                {"Ref": "IAMRoleAndPolicyPrefix"},
                                "ParallelClusterLambdaRole-",
                                {"Fn::Select": [0, {"Fn::Split": ["-", _with_suffix("")]}]},
                            ],
                        ]
                    },
                    "AssumeRolePolicyDocument": _LAMBDA_TRUST,
                    "PermissionsBoundary": {
                        "Fn::If": ["Bounded", {"Ref": "PermissionsBoundaryPolicy"}, {"Ref": "AWS::NoValue"}]
                    },
                    "ManagedPolicyArns": [_LOGGING, {"Ref": "AdditionalPolicies"}],
                    "Policies": [
                        {"Fn::If": ["Bounded", json.loads(text), _provider_permissions(region)]},
                    ],
                },
            }
        },
        "Outputs": {"ParallelClusterLambdaRoleArn": {"Value": {"Fn::GetAtt": ["ParallelClusterLambdaRole", "Arn"]}}},
    }


def _provider_template(region: str) -> None:
    bucket = f"{region}-aws-parallelcluster"
    s3 = s3_backends[ACCOUNT][PARTITION]  # in this process, as in bootstrap.py
    s3.create_bucket(bucket, region)
    folder = f"parallelcluster/{PARALLELCLUSTER_VERSION}/templates"
    for name, template in (("custom_resource/cluster", _provider), ("policies/policies", _policies)):
        s3.put_object(bucket, f"{folder}/{name}.yaml", json.dumps(template(region)).encode())


def _images(region: str) -> None:
    backend = ec2_backends[ACCOUNT][region]
    number = 0
    for label in _AMI_SYSTEMS.values():
        for architecture in ("x86_64", "arm64"):
            number += 1
            image_id = f"ami-{number:017x}"
            name = f"aws-parallelcluster-{PARALLELCLUSTER_VERSION}-{label}-{architecture}-202608080000"
            backend.amis[image_id] = Ami(
                backend,
                image_id,
                name=f"{name} 2026-08-08T00-00-00.000Z",
                description="stand-in for an image of AWS ParallelCluster",
                owner_id=_AMI_OWNER,
                owner_alias="amazon",
                public=True,
                virtualization_type="hvm",
                architecture=architecture,
                creation_date=_AMI_MOMENT,
                image_location=f"amazon/{name}",
                hypervisor="xen",
                root_device_type="ebs",
                root_device_name="/dev/sda1",
                region_name=region,
            )


def make_network(clients: Clients, network: ExistingNetwork) -> None:
    """Private subnets get a NAT gateway if there is a public subnet for it."""
    ec2 = clients("ec2")
    with next_id(vpcs, "random_vpc_id", network.vpc_id):
        ec2.create_vpc(CidrBlock=network.cidr)
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=network.vpc_id, **{name: {"Value": True}})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc_id)
    public_table = _table(ec2, network.vpc_id, GatewayId=gateway)
    for subnet in network.subnets:
        with next_id(subnets, "random_subnet_id", subnet.id):
            ec2.create_subnet(VpcId=network.vpc_id, CidrBlock=subnet.cidr, AvailabilityZone=subnet.zone)
        ec2.modify_subnet_attribute(SubnetId=subnet.id, MapPublicIpOnLaunch={"Value": subnet.public})
        if subnet.public:
            ec2.associate_route_table(RouteTableId=public_table, SubnetId=subnet.id)
    public = next((subnet for subnet in network.subnets if subnet.public), None)
    private = [subnet for subnet in network.subnets if not subnet.public]
    if private:
        private_table = _table(ec2, network.vpc_id, NatGatewayId=_nat(ec2, public or private[0]))
        for subnet in private:
            ec2.associate_route_table(RouteTableId=private_table, SubnetId=subnet.id)


def _table(ec2: Any, vpc_id: str, **target: str) -> str:
    table: str = ec2.create_route_table(VpcId=vpc_id)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
    return table


def _nat(ec2: Any, subnet: ExistingSubnet) -> str:
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    made = ec2.create_nat_gateway(SubnetId=subnet.id, AllocationId=address)
    gateway: str = made["NatGateway"]["NatGatewayId"]
    return gateway
