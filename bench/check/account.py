"""The account that the benchmark's settings are meant for: all that a company has already, as the embedded AWS."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, Reservation, Seed
from tests.aws.preflight_aws import PreflightAws

REGION = "us-east-1"
ZONE = "us-east-1a"
ACCOUNT = "123456789012"
VPC_ID = "vpc-0123456789abcdef0"
HEAD_SUBNET_ID = "subnet-0123456789abcdef0"
COMPUTE_SUBNET_ID = "subnet-0123456789abcdef1"
RESERVATION_ID = "cr-0123456789abcdef0"
NODES = 4
BUCKET = "corp-training-data"
SCRIPT = "scripts/harden.sh"
KEY_PAIR = "platform"
NGC_SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ngc-key-AbCdEf"
DATABASE_SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:slurm-db-AbCdEf"
NGC_KEY = "nvapi-" + "x" * 64  # the form of a key; it is not valid


@dataclasses.dataclass(frozen=True)
class Site:
    """Ids that the account gave, for settings and for the cluster configuration."""

    security_group_id: str
    efs_id: str
    fsx_id: str
    policy_arn: str


def prepare(aws: PreflightAws) -> Site:
    """A fresh account in which the benchmark's settings have no fault."""
    aws.reset()
    aws.seed(
        Seed(
            reservations=(Reservation(RESERVATION_ID, "p5.48xlarge", NODES, ZONE, "capacity-block"),),
            key_pairs=(KEY_PAIR,),
            secret_arns=(NGC_SECRET, DATABASE_SECRET),
            buckets=(BUCKET,),
            network=ExistingNetwork(
                VPC_ID,
                "10.0.0.0/16",
                (
                    ExistingSubnet(HEAD_SUBNET_ID, "10.0.0.0/24", ZONE, public=True),
                    ExistingSubnet(COMPUTE_SUBNET_ID, "10.0.128.0/17", ZONE),
                ),
            ),
        )
    )
    secrets = aws.clients("secretsmanager")
    secrets.put_secret_value(SecretId="ngc-key", SecretString=NGC_KEY)
    secrets.put_secret_value(SecretId="slurm-db", SecretString="made-up-password")
    aws.clients("s3").put_object(Bucket=BUCKET, Key=SCRIPT, Body=b"#!/bin/bash\n")
    aws.clients("s3").put_object(Bucket=BUCKET, Key="datasets/part-0", Body=b"x")
    group = security_group(aws)
    return Site(group, _efs(aws, group), _fsx(aws, group), _policy(aws))


def security_group(aws: PreflightAws) -> str:
    """Create the nodes' group, open to itself; EC2 opens each new group to everywhere on the way out."""
    ec2 = aws.clients("ec2")
    group: str = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=VPC_ID)["GroupId"]
    itself: list[Any] = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=itself)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=itself)
    return group


def _efs(aws: PreflightAws, group: str) -> str:
    efs = aws.clients("efs")
    made: str = efs.create_file_system(CreationToken="shared", Encrypted=True)["FileSystemId"]
    efs.create_mount_target(FileSystemId=made, SubnetId=COMPUTE_SUBNET_ID, SecurityGroups=[group])
    return made


def _fsx(aws: PreflightAws, group: str) -> str:
    """What the storage stack will have made by the time ParallelCluster's configuration names it."""
    made = aws.clients("fsx").create_file_system(
        FileSystemType="LUSTRE",
        FileSystemTypeVersion="2.15",
        StorageCapacity=4800,
        SubnetIds=[COMPUTE_SUBNET_ID],
        SecurityGroupIds=[group],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250},
    )
    identifier: str = made["FileSystem"]["FileSystemId"]
    return identifier


def _policy(aws: PreflightAws) -> str:
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"}],
    }
    made = aws.clients("iam").create_policy(
        PolicyName="images", Path="/parallelcluster/", PolicyDocument=json.dumps(document)
    )
    arn: str = made["Policy"]["Arn"]
    return arn
