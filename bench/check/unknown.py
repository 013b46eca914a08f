"""Thirty faults that ParallelCluster's dry run passes: it asks for neither time, money, quotas nor the surroundings."""

from __future__ import annotations

import datetime
import json
from typing import Any

from moto.ssoadmin.models import ssoadmin_backends

from bench.check import account
from bench.check.cases import Case
from rehearsal.cloud.capacity import add_reservation
from tests.aws.preflight_aws import PreflightAws
from tests.aws.quotas import set_quota

Data = dict[str, Any]
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
BAD_PLUGIN = {"source": "shared", "nccl_version": "v2.27.7-1", "ofi_version": "v1.12.0"}


def _block(**facts: Any) -> Any:
    """The account's block with some facts otherwise."""

    def arrange(_: PreflightAws) -> None:
        add_reservation(
            account.REGION,
            account.RESERVATION_ID,
            "p5.48xlarge",
            account.NODES,
            account.ZONE,
            "capacity-block",
            **facts,
        )

    return arrange


def _hours(number: float) -> datetime.datetime:
    return NOW + datetime.timedelta(hours=number)


def _quota(service: str, code: str, value: float) -> Any:
    return lambda _: set_quota(account.REGION, service, code, value)


def _queue(settings: Data, **values: Any) -> None:
    settings["queues"][0].update(values)


def _on_demand(settings: Data) -> None:
    del settings["queues"][0]["reservation"]
    settings["queues"][0]["placement_group"] = True  # as pcluster wants it for EFA


def _new_network(settings: Data) -> None:
    settings["network"] = {"cidr": "10.0.0.0/16"}


def _closed_group(aws: PreflightAws) -> None:
    """Everything may go out, as EC2 makes a group; nothing is said of the group itself."""
    group = _nodes_group(aws)
    itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    aws.clients("ec2").revoke_security_group_egress(GroupId=group, IpPermissions=itself)


def _nodes_group(aws: PreflightAws) -> str:
    filters = [{"Name": "group-name", "Values": ["nodes"]}, {"Name": "vpc-id", "Values": [account.VPC_ID]}]
    found: str = aws.clients("ec2").describe_security_groups(Filters=filters)["SecurityGroups"][0]["GroupId"]
    return found


def _route_table(aws: PreflightAws, subnet: str) -> str:
    """A table of its own for the subnet, with no route but the VPC's."""
    ec2 = aws.clients("ec2")
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    for table in ec2.describe_route_tables(Filters=filters)["RouteTables"]:
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet:
                ec2.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
    made: str = ec2.create_route_table(VpcId=account.VPC_ID)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=made, SubnetId=subnet)
    return made


def _public_compute(aws: PreflightAws) -> None:
    table = _route_table(aws, account.COMPUTE_SUBNET_ID)
    ec2 = aws.clients("ec2")
    filters = [{"Name": "attachment.vpc-id", "Values": [account.VPC_ID]}]
    gateway = ec2.describe_internet_gateways(Filters=filters)["InternetGateways"][0]["InternetGatewayId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)


def _closed_compute(aws: PreflightAws) -> None:
    _route_table(aws, account.COMPUTE_SUBNET_ID)
    ec2 = aws.clients("ec2")
    filters = [{"Name": "vpc-id", "Values": [account.VPC_ID]}]
    endpoints = [item["VpcEndpointId"] for item in ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]]
    if endpoints:
        ec2.delete_vpc_endpoints(VpcEndpointIds=endpoints)


def _no_host_names(aws: PreflightAws) -> None:
    aws.clients("ec2").modify_vpc_attribute(VpcId=account.VPC_ID, EnableDnsHostnames={"Value": False})


def _bucket_elsewhere(aws: PreflightAws) -> None:
    s3 = aws.clients("s3")
    for item in s3.list_objects_v2(Bucket=account.BUCKET).get("Contents", []):
        s3.delete_object(Bucket=account.BUCKET, Key=item["Key"])
    s3.delete_bucket(Bucket=account.BUCKET)
    s3.create_bucket(Bucket=account.BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket=account.BUCKET, Key=account.SCRIPT, Body=b"#!/bin/bash\n")


def _bucket_denied(aws: PreflightAws) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [f"arn:aws:s3:::{account.BUCKET}", f"arn:aws:s3:::{account.BUCKET}/*"],
                "Condition": {"StringNotEquals": {"aws:PrincipalArn": f"arn:aws:iam::{account.ACCOUNT}:role/etl"}},
            }
        ],
    }
    aws.clients("s3").put_bucket_policy(Bucket=account.BUCKET, Policy=json.dumps(policy))


def _disabled_key(aws: PreflightAws) -> None:
    kms = aws.clients("kms")
    key = kms.create_key(Description="bucket")["KeyMetadata"]
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["Arn"]}}
    aws.clients("s3").put_bucket_encryption(Bucket=account.BUCKET, ServerSideEncryptionConfiguration={"Rules": [rule]})
    kms.disable_key(KeyId=key["KeyId"])


def _no_identity_center(aws: PreflightAws) -> None:
    """Moto has an instance in every region; in an account it is in one, or in none."""
    for item in aws.clients("ec2").describe_regions()["Regions"]:
        ssoadmin_backends[account.ACCOUNT][item["RegionName"]].instances.clear()


def _secret(name: str, value: str) -> Any:
    return lambda aws: aws.clients("secretsmanager").put_secret_value(SecretId=name, SecretString=value)


def _no_bootstrap(aws: PreflightAws) -> None:
    aws.clients("ssm").delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")


def _weak_role(aws: PreflightAws) -> None:
    """As in an account whose administrators bootstrapped the CDK with a policy of their own."""
    role = f"cdk-hnb659fds-cfn-exec-role-{account.ACCOUNT}-{account.REGION}"
    iam = aws.clients("iam")
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    iam.attach_role_policy(RoleName=role, PolicyArn="arn:aws:iam::aws:policy/AmazonEC2FullAccess")


OFFLINE = (
    Case(
        "associations inside each other",
        "association-paths",
        settings=lambda s: s["storage"]["associations"].append({"path": "/datasets/images", "prefix": "images/"}),
    ),
    Case(
        "nine associations",
        "association-count",
        settings=lambda s: s["storage"].update(
            associations=[{"path": f"/data{number}", "prefix": f"data{number}/"} for number in range(9)]
        ),
    ),
    Case(
        "a network with too few addresses",
        "network-room",
        settings=lambda s: (s.update(network={"cidr": "10.0.0.0/24"}), s["queues"][1].update(max_count=300))[-1],
    ),
    Case(
        "a head node too small for the NCCL build",
        "head-node-nccl-build",
        settings=lambda s: (s.update(nccl={"source": "shared"}), s["head_node"].update(instance_type="m5.large"))[-1],
        cluster=lambda c: c["HeadNode"].update(InstanceType="m5.large"),
    ),
    Case(
        "an image that nobody can pull",
        "image-uri",
        settings=lambda s: s.update(images=["nvcr.io/nvidia/pytorch:24.01-py3"]),
    ),
    Case(
        "a secret of another region",
        "secret-region",
        settings=lambda s: s.update(ngc_secret_arn=account.NGC_SECRET.replace(account.REGION, "eu-west-1")),
    ),
    Case("a key in place of a secret", "secret-value", settings=lambda s: s.update(tags={"ngc": account.NGC_KEY})),
    Case("a budget that nobody hears of", "budget-reader", settings=lambda s: s.update(budget={"monthly_usd": 50000})),
    Case("an EFA plugin that is known to crash", "plugin-bad", settings=lambda s: s.update(nccl=BAD_PLUGIN)),
    Case(
        "a limit that warns below where it fails",
        "limit-order",
        settings=lambda s: s.update(
            acceptance={
                "limits": [
                    {
                        "collective": "all_reduce",
                        "nodes": account.NODES,
                        "size": "8GiB",
                        "fail_below_gb_per_s": 325,
                        "warn_below_gb_per_s": 300,
                        "source": "the site's own measurement",
                        "date": "2026-11-20",
                    }
                ]
            }
        ),
    ),
)

LIVE = (
    Case("an expired block", "reservation", account=_block(State="expired", EndDate=_hours(-2))),
    Case(
        "a block that starts tomorrow",
        "reservation",
        account=_block(State="scheduled", StartDate=_hours(24), EndDate=_hours(72)),
    ),
    Case("a block that ends in half an hour", "reservation", account=_block(EndDate=_hours(0.5))),
    Case("a block that was not paid", "reservation", account=_block(State="payment-failed")),
    Case("a block whose instances are in use", "reservation", account=_block(AvailableInstanceCount=1)),
    Case("no quota for P instances", "vcpu-quotas", settings=_on_demand, account=_quota("ec2", "L-417A185B", 0)),
    Case("no quota for one more VPC", "network-quotas", settings=_new_network, account=_quota("vpc", "L-F678F1CE", 1)),
    Case("no quota for the file system", "file-system-quota", account=_quota("fsx", "L-8F1B9C74", 0)),
    Case("a security group without the rule to itself on the way out", "security-groups", account=_closed_group),
    Case("32 network cards in a public subnet", "compute-routes", account=_public_compute),
    Case("compute nodes without a way to AWS", "compute-routes", account=_closed_compute),
    Case("a VPC without DNS host names", "vpc", account=_no_host_names),
    Case("a bucket of another region", "bucket", account=_bucket_elsewhere),
    Case("a bucket whose policy denies FSx", "bucket-access", account=_bucket_denied),
    Case("a bucket whose key is disabled", "bucket-access", account=_disabled_key),
    Case("Grafana without IAM Identity Center", "identity-center", account=_no_identity_center),
    Case("an NGC secret with a file name in it", "ngc-secret", account=_secret("ngc-key", "ngc-key.txt")),
    Case("a database password with # in it", "database-secret", account=_secret("slurm-db", "pass#word")),
    Case("no CDK bootstrap", "cdk-bootstrap", account=_no_bootstrap),
    Case("a CDK role that may make EC2's resources alone", "deployment-permissions", account=_weak_role),
)

UNKNOWN = OFFLINE + LIVE
