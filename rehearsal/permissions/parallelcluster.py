"""The roles of ParallelCluster: of its provider's function, and of the nodes that it makes.

Sources: aws-parallelcluster, cloudformation/custom_resource/cluster.yaml (3.13.1) and
cloudformation/policies/parallelcluster-policies.yaml for the provider; pcluster/templates/cdk_builder_utils.py (3.16.1)
for the nodes. Left out: AWS Batch, login nodes, images, directories, which Slipway's configurations do not have.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rehearsal.cloud_model import ACCOUNT, PARTITION

IAM_PATH = "/parallelcluster/"
AGENT_POLICY = f"arn:{PARTITION}:iam::aws:policy/CloudWatchAgentServerPolicy"  # on every node, if logs go to CloudWatch
_ATTACHABLE = (  # what the provider may attach to nodes' roles without being allowed more
    f"arn:{PARTITION}:iam::{ACCOUNT}:policy/parallelcluster*",
    AGENT_POLICY,
    f"arn:{PARTITION}:iam::aws:policy/AmazonSSMManagedInstanceCore",
    f"arn:{PARTITION}:iam::aws:policy/AmazonS3ReadOnlyAccess",
    f"arn:{PARTITION}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole",
)
_EC2 = (
    "Describe*", "AllocateAddress", "AssociateAddress", "AttachNetworkInterface", "AuthorizeSecurityGroupEgress",
    "AuthorizeSecurityGroupIngress", "CreateFleet", "CreateLaunchTemplate", "CreateLaunchTemplateVersion",
    "CreateNetworkInterface", "CreatePlacementGroup", "CreateSecurityGroup", "CreateSnapshot", "CreateTags",
    "DeleteTags", "CreateVolume", "DeleteLaunchTemplate", "DeleteNetworkInterface", "DeletePlacementGroup",
    "DeleteSecurityGroup", "DeleteVolume", "DisassociateAddress", "ModifyLaunchTemplate",
    "ModifyNetworkInterfaceAttribute", "ModifyVolume", "ModifyVolumeAttribute", "ReleaseAddress",
    "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress", "RunInstances", "TerminateInstances",
)  # fmt: skip
_FUNCTIONS = (
    "CreateFunction", "TagResource", "DeleteFunction", "GetFunctionConfiguration", "GetFunction", "InvokeFunction",
    "AddPermission", "RemovePermission", "UpdateFunctionConfiguration", "ListTags", "UntagResource",
)  # fmt: skip
Statement = dict[str, Any]


def _allow(service: str, actions: Sequence[str], *resources: str, **more: Any) -> Statement:
    return {
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in actions],
        "Resource": list(resources or ("*",)),
        **more,
    }


def provider_statements(region: str, boundary: str = "") -> list[Statement]:
    """What the provider's own policies allow. `boundary`: the ARN that the roles which it makes must be bounded by."""
    iam = f"arn:{PARTITION}:iam::{ACCOUNT}"
    roles = f"{iam}:role{IAM_PATH}*"
    bounded = {"StringEquals": {"iam:PermissionsBoundary": [boundary]}} if boundary else {}
    return [
        _allow("ec2", _EC2),
        _allow("dynamodb", ["*"], f"arn:{PARTITION}:dynamodb:*:{ACCOUNT}:table/parallelcluster-*"),
        _allow("route53", ["*"]),
        _allow(
            "cloudformation",
            ["CreateStack", "UpdateStack"],
            f"arn:{PARTITION}:cloudformation:*:{ACCOUNT}:stack/*",
            Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": ["parallelcluster:cluster-name"]}},
        ),
        _allow(
            "cloudformation",
            ["DeleteStack", "DescribeStacks", "DescribeStackEvents", "DescribeStackResources", "GetTemplate"],
            f"arn:{PARTITION}:cloudformation:*:{ACCOUNT}:stack/*",
        ),
        _allow("cloudwatch", ["PutDashboard", "ListDashboards", "DeleteDashboards", "GetDashboard", "PutMetricAlarm",
                              "DeleteAlarms", "DescribeAlarms", "PutCompositeAlarm"]),
        _allow(
            "iam",
            ["GetRole", "GetRolePolicy", "GetPolicy", "SimulatePrincipalPolicy", "GetInstanceProfile"],
            f"{iam}:role/*", f"{iam}:policy/*", f"arn:{PARTITION}:iam::aws:policy/*", f"{iam}:instance-profile/*",
        ),
        _allow(
            "iam",
            ["CreateInstanceProfile", "DeleteInstanceProfile", "AddRoleToInstanceProfile",
             "RemoveRoleFromInstanceProfile"],
            f"{iam}:instance-profile{IAM_PATH}*",
        ),
        _allow(
            "iam",
            ["PassRole"],
            roles,
            Condition={"StringEqualsIfExists": {"iam:PassedToService": ["lambda.amazonaws.com", "ec2.amazonaws.com",
                                                                        "spotfleet.amazonaws.com"]}},
        ),
        _allow("iam", ["CreateServiceLinkedRole", "DeleteRole", "TagRole", "UntagRole"], roles),
        _allow("iam", ["CreateRole", "PutRolePolicy", "DeleteRolePolicy"], roles, **_condition(bounded)),
        _allow(
            "iam",
            ["AttachRolePolicy", "DetachRolePolicy"],
            roles,
            Condition={"ArnLike": {"iam:PolicyARN": list(_ATTACHABLE)}, **bounded},
        ),
        _allow("lambda", _FUNCTIONS, *(f"arn:{PARTITION}:lambda:*:{ACCOUNT}:function:{name}-*"
                                       for name in ("parallelcluster", "pcluster"))),
        _allow("s3", ["*"], f"arn:{PARTITION}:s3:::parallelcluster-*", f"arn:{PARTITION}:s3:::aws-parallelcluster-*"),
        _allow("s3", ["Get*", "List*"], f"arn:{PARTITION}:s3:::{region}-aws-parallelcluster*"),
        _allow("fsx", ["*"], f"arn:{PARTITION}:fsx:*:{ACCOUNT}:*"),
        _allow("elasticfilesystem", ["*"], f"arn:{PARTITION}:elasticfilesystem:*:{ACCOUNT}:*"),
        _allow("logs", ["DeleteLogGroup", "PutRetentionPolicy", "DescribeLogGroups", "CreateLogGroup", "TagResource",
                        "UntagResource", "DescribeMetricFilters", "PutMetricFilter", "DeleteMetricFilter",
                        "ListTagsForResource"]),
        _allow("resource-groups", ["ListGroupResources", "GetGroupConfiguration"]),
    ]  # fmt: skip


def _condition(bounded: Mapping[str, Any]) -> dict[str, Any]:
    return {"Condition": dict(bounded)} if bounded else {}


# ---- roles of nodes ----


def node_roles(configuration: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """("HeadNode" or a queue's name, the policies that are attached to its role) of each kind of node."""
    yield "HeadNode", _attached(configuration["HeadNode"], configuration)
    for queue in configuration["Scheduling"]["SlurmQueues"]:
        yield queue["Name"], _attached(queue, configuration)


def _attached(part: Mapping[str, Any], configuration: Mapping[str, Any]) -> list[str]:
    own = [item["Policy"] for item in part.get("Iam", {}).get("AdditionalIamPolicies", [])]
    logs = configuration.get("Monitoring", {}).get("Logs", {}).get("CloudWatch", {}).get("Enabled", True)
    return [*own, *([AGENT_POLICY] if str(logs).lower() == "true" else [])]


def node_statements(kind: str, configuration: Mapping[str, Any], cluster: str, region: str) -> list[Statement]:
    """ParallelCluster's own policy of a kind of node."""
    stack = f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT}:stack/{cluster}/*"
    table = f"arn:{PARTITION}:dynamodb:{region}:{ACCOUNT}:table/parallelcluster-slurm-{cluster}"
    releases = f"arn:{PARTITION}:s3:::{region}-aws-parallelcluster/*"
    if kind != "HeadNode":
        return [
            _allow("ec2", ["DescribeInstanceAttribute"]),
            _allow("s3", ["GetObject"], releases),
            _allow("cloudformation", ["DescribeStackResource"], stack),
            _allow("dynamodb", ["UpdateItem", "PutItem", "GetItem"], table),
        ]
    return [
        _allow("ec2", ["DescribeLaunchTemplateVersions", "DescribeInstanceAttribute", "DescribeInstances",
                       "DescribeInstanceStatus", "DescribeVolumes", "DescribeCapacityReservations"]),
        _allow("ec2", ["AttachVolume", "CreateTags", "DetachVolume"], *_ec2(region, "instance/*", "volume/*")),
        _allow("s3", ["GetObject"], releases),
        _allow("cloudformation", ["DescribeStacks", "DescribeStackResource", "SignalResource"], stack),
        _allow("dynamodb", ["UpdateItem", "PutItem", "GetItem", "BatchGetItem"], table),
        _allow(
            "ec2",
            ["TerminateInstances"],
            Condition={"StringEquals": {"ec2:ResourceTag/parallelcluster:cluster-name": cluster}},
        ),
        _allow("ec2", ["RunInstances", "CreateFleet"], *_launching(configuration, region)),
        _allow("iam", ["PassRole"], f"arn:{PARTITION}:iam::{ACCOUNT}:role{IAM_PATH}{cluster}/*"),
        *_secrets(configuration),
    ]  # fmt: skip


def _ec2(region: str, *resources: str) -> list[str]:
    return [f"arn:{PARTITION}:ec2:{region}:{ACCOUNT}:{resource}" for resource in resources]


def _launching(configuration: Mapping[str, Any], region: str) -> list[str]:
    queues = configuration["Scheduling"]["SlurmQueues"]
    subnets = [f"subnet/{subnet}" for queue in queues for subnet in queue["Networking"]["SubnetIds"]]
    kinds = ("fleet", "network-interface", "instance", "volume", "security-group", "launch-template", "placement-group")
    reservations = [
        f"capacity-reservation/{target['CapacityReservationId']}"
        for queue in queues
        for holder in (queue, *queue["ComputeResources"])
        if (target := holder.get("CapacityReservationTarget", {})).get("CapacityReservationId")
    ]
    own = _ec2(region, *subnets, *(f"{kind}/*" for kind in kinds), *reservations)
    return [*own, f"arn:{PARTITION}:ec2:{region}::image/*"]


def _secrets(configuration: Mapping[str, Any]) -> list[Statement]:
    settings = configuration["Scheduling"].get("SlurmSettings", {})
    named = [settings.get("MungeKeySecretArn"), settings.get("Database", {}).get("PasswordSecretArn")]
    return [_allow("secretsmanager", ["GetSecretValue"], secret) for secret in named if secret]


def make_roles(iam: Any, configuration: Mapping[str, Any], cluster: str, region: str) -> dict[str, str]:
    """Make each kind of node its role and instance profile; the roles' names by kind. `iam`: the provider's client."""
    own = configuration.get("Iam", {})
    prefix, boundary = own.get("ResourcePrefix", ""), own.get("PermissionsBoundary", "")
    bounded = {"PermissionsBoundary": boundary} if boundary else {}
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
    path, names = f"{IAM_PATH}{cluster}/", {}
    for kind, policies in node_roles(configuration):
        digest = hashlib.sha256(f"{kind}{cluster}{region}".encode()).hexdigest()[:12].upper()
        name = names[kind] = f"{prefix}Role{kind}-{digest}" if prefix else f"{cluster}-Role{kind}-{digest}"[-64:]
        iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=_document([trust]), **bounded)
        for arn in dict.fromkeys(policies):
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        document = _document(node_statements(kind, configuration, cluster, region))
        iam.put_role_policy(RoleName=name, PolicyName="parallelcluster", PolicyDocument=document)
        iam.create_instance_profile(InstanceProfileName=name, Path=path)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return names


def remove_roles(iam: Any, configuration: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Remove what `make_roles` made; what is gone already is no fault."""
    for kind, policies in node_roles(configuration):
        if kind not in names:
            continue
        name = names[kind]
        with contextlib.suppress(iam.exceptions.NoSuchEntityException):
            iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
            iam.delete_instance_profile(InstanceProfileName=name)
            iam.delete_role_policy(RoleName=name, PolicyName="parallelcluster")
            for arn in dict.fromkeys(policies):
                iam.detach_role_policy(RoleName=name, PolicyArn=arn)
            iam.delete_role(RoleName=name)


def _document(statements: Sequence[Statement]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
