"""What IAM evaluates for a request: actions, resources, and condition keys.

Source: service authorization reference (actions, resource types and condition keys of each service); for Amazon S3 the
user guide, "Required permissions for Amazon S3 API operations". Most actions are `service:Operation`; the tables name
those that are not, and the resources of what Slipway, the CDK CLI and ParallelCluster use. An operation without a row
is evaluated on `*` and reported as such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from moto.iam.models import iam_backends

from rehearsal.cloud_model import ACCOUNT, PARTITION
from rehearsal.permissions.calls import Call
from rehearsal.permissions.evaluator import Request

#: botocore's name of a service -> its prefix in IAM's actions.
_PREFIXES = {
    "amp": "aps",
    "efs": "elasticfilesystem",
    "stepfunctions": "states",
    "service-quotas": "servicequotas",
    "sso-admin": "sso",
    "resourcegroupstaggingapi": "tag",
}

_OBJECT_WRITES = ("PutObject", "CopyObject", "UploadPart", "UploadPartCopy", "CreateMultipartUpload")
#: service:Operation -> action, where the names differ.
_ACTIONS = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjects": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListParts": "s3:ListMultipartUploadParts",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    **{f"s3:{name}": "s3:PutObject" for name in _OBJECT_WRITES},
    "lambda:Invoke": "lambda:InvokeFunction",
    "budgets:CreateBudget": "budgets:ModifyBudget",
    "budgets:UpdateBudget": "budgets:ModifyBudget",
    "budgets:DeleteBudget": "budgets:ModifyBudget",
    "budgets:DescribeBudget": "budgets:ViewBudget",
    "budgets:DescribeBudgets": "budgets:ViewBudget",
}

#: Actions that IAM knows no resource of: they are evaluated on `*`.
_WITHOUT_RESOURCE = re.compile(
    r"(ec2|ssm|rds|events|lambda|route53|servicequotas|pricing|sso|organizations|ce|cloudtrail"
    r"|grafana|cloudwatch|tag|resource-groups|kms|ecr):(Describe|List|Get|Lookup|Simulate|View).*"
    r"|iam:(List(Roles|Policies|Users|InstanceProfiles)|GetAccount.*)|sts:GetCallerIdentity|aps:ListWorkspaces"
    r"|logs:Describe(LogGroups|Queries)|s3:ListAllMyBuckets|ssm:UpdateInstanceInformation|sns:List.*"
    r"|secretsmanager:(ListSecrets|GetRandomPassword)|cloudformation:(ListStacks|ListExports|ValidateTemplate|Describe"
    r"AccountLimits)|ssmmessages:.*|ec2messages:.*|cloudwatch:PutMetricData|states:List.*|budgets:Describe.*"
)


class Needed(NamedTuple):
    """One action that a call needs; `mapped`: whether its resource is known here."""

    request: Request
    mapped: bool = True


def needed(call: Call, context: Mapping[str, tuple[str, ...]]) -> Iterator[Needed]:
    """Each action on each resource that `call` needs; `context` are the condition keys of the sender."""
    action = action_of(call)
    keys = {**context, "aws:requestedregion": (call.region,), **_keys(call)}
    resources = _resources(call)
    for resource in resources or ["*"]:
        mapped = bool(resources) or bool(_WITHOUT_RESOURCE.fullmatch(action))
        yield Needed(Request(action, resource, keys), mapped)
    if call.service == "s3" and call.get("CopySource"):
        yield Needed(Request("s3:GetObject", f"arn:{PARTITION}:s3:::{call.get('CopySource').lstrip('/')}", keys))
    yield from _passed_roles(call, keys)


def action_of(call: Call) -> str:
    """The IAM action of a call."""
    if call.service == "s3" and call.get("VersionId") and call.operation in ("GetObject", "HeadObject", "DeleteObject"):
        return "s3:DeleteObjectVersion" if call.operation == "DeleteObject" else "s3:GetObjectVersion"
    prefix = _PREFIXES.get(call.service, call.service)
    return _ACTIONS.get(f"{call.service}:{call.operation}", f"{prefix}:{call.operation}")


# ---- resources ----


def _resources(call: Call) -> list[str]:
    find = _RESOURCES.get(call.service)
    return find(call) if find else []


def arn(service: str, resource: str, region: str, account: str = ACCOUNT) -> str:
    """An ARN of the account."""
    return f"arn:{PARTITION}:{service}:{region}:{account}:{resource}"


def role_arn(name: str, path: str = "/") -> str:
    """The ARN of a role, with its path where it exists."""
    roles = iam_backends[ACCOUNT][PARTITION].roles
    known = next((role.arn for role in list(roles.values()) if role.name == name), None)
    return known or arn("iam", f"role{path}{name}", "")


def _s3(call: Call) -> list[str]:
    bucket, key = call.get("Bucket"), call.get("Key")
    if not bucket:
        return []
    if call.operation == "DeleteObjects":
        key = "*"
    return [f"arn:{PARTITION}:s3:::{bucket}/{key}" if key else f"arn:{PARTITION}:s3:::{bucket}"]


def _iam(call: Call) -> list[str]:
    path = call.get("Path") or "/"
    if call.operation == "CreateServiceLinkedRole":
        return [arn("iam", f"role/aws-service-role/{call.get('AWSServiceName')}/*", "")]
    if call.get("PolicySourceArn"):
        return [call.get("PolicySourceArn")]
    if call.get("InstanceProfileName"):
        profiles = iam_backends[ACCOUNT][PARTITION].instance_profiles.values()
        known = [profile.arn for profile in list(profiles) if profile.name == call.get("InstanceProfileName")]
        return known or [arn("iam", f"instance-profile{path}{call.get('InstanceProfileName')}", "")]
    if call.get("RoleName"):
        return [role_arn(call.get("RoleName"), path)]
    if call.get("PolicyArn"):
        return [call.get("PolicyArn")]
    if call.operation == "CreatePolicy":
        return [arn("iam", f"policy{path}{call.get('PolicyName')}", "")]
    return [arn("iam", f"user/{call.get('UserName')}", "")] if call.get("UserName") else []


def _ssm(call: Call) -> list[str]:
    if call.operation == "SendCommand":
        document = call.get("DocumentName")
        targets = [value for target in call.parameters.get("Targets", []) for value in target.get("Values", [])]
        owner = "" if document.startswith(("AWS-", "Amazon")) else ACCOUNT
        instances = [*call.all("InstanceIds"), *targets]
        return [
            arn("ssm", f"document/{document}", call.region, owner),
            *(arn("ec2", f"instance/{instance}", call.region) for instance in instances),
        ]
    names = [*call.all("Names"), *call.all("Name"), *call.all("ResourceId"), *call.all("Path")]
    if "Parameter" in call.operation or call.get("ResourceType") == "Parameter":
        return [
            name if name.startswith("arn:") else arn("ssm", f"parameter/{name.lstrip('/')}", call.region)
            for name in names
        ]
    return []


def _secretsmanager(call: Call) -> list[str]:
    secret = call.get("SecretId") or call.get("Name")
    if not secret:
        return []
    return [secret if secret.startswith("arn:") else arn("secretsmanager", f"secret:{secret}-AbCdEf", call.region)]


def _lambda(call: Call) -> list[str]:
    function = call.get("FunctionName")
    if call.get("LayerName"):
        return [arn("lambda", f"layer:{call.get('LayerName')}", call.region)]
    return (
        [function if function.startswith("arn:") else arn("lambda", f"function:{function}", call.region)]
        if function
        else []
    )


def _logs(call: Call) -> list[str]:
    group = call.get("logGroupName") or call.get("logGroupIdentifier")
    if not group:
        return []
    stream = call.get("logStreamName")
    return [arn("logs", f"log-group:{group}:log-stream:{stream}", call.region)]


def _cloudformation(call: Call) -> list[str]:
    name = call.get("StackName")
    return [name if name.startswith("arn:") else arn("cloudformation", f"stack/{name}/*", call.region)] if name else []


def _sts(call: Call) -> list[str]:
    return [call.get("RoleArn")] if call.get("RoleArn") else []


def _aps(call: Call) -> list[str]:
    workspace = call.get("workspaceId")
    return [arn("aps", f"workspace/{workspace}" if workspace else "*", call.region)]


def _grafana(call: Call) -> list[str]:
    return [
        arn(
            "grafana",
            f"/workspaces/{call.get('workspaceId')}" if call.get("workspaceId") else "/workspaces",
            call.region,
        )
    ]


def _sns(call: Call) -> list[str]:
    return [call.get("TopicArn")] if call.get("TopicArn") else [arn("sns", call.get("Name") or "*", call.region)]


def _cloudwatch(call: Call) -> list[str]:
    names = [*call.all("AlarmName"), *call.all("AlarmNames")]
    return [arn("cloudwatch", f"alarm:{name}", call.region) for name in names]


def _budgets(call: Call) -> list[str]:
    budget = call.parameters.get("Budget")
    name = call.get("BudgetName") or (budget.get("BudgetName", "*") if isinstance(budget, dict) else "*")
    return [f"arn:{PARTITION}:budgets::{ACCOUNT}:budget/{name}"]


def _events(call: Call) -> list[str]:
    name = call.get("Name") or call.get("Rule")
    return [arn("events", f"rule/{name}", call.region)] if name else []


def _fsx(call: Call) -> list[str]:
    made = "association/*" if "Association" in call.operation else "file-system/*"
    names = ("FileSystemId", "FileSystemIds", "AssociationId", "AssociationIds", "VolumeIds", "FileCacheIds")
    ids = [one for name in names for one in call.all(name)]
    kinds = {"fs": "file-system", "dra": "association", "fsvol": "volume", "fc": "file-cache"}
    resources = [arn("fsx", f"{kinds.get(one.partition('-')[0], '*')}/{one}", call.region) for one in ids]
    creates = call.operation.startswith("Create") or not resources
    return [*resources, arn("fsx", made, call.region)] if creates else resources


def _efs(call: Call) -> list[str]:
    return [arn("elasticfilesystem", f"file-system/{call.get('FileSystemId') or '*'}", call.region)]


def _kms(call: Call) -> list[str]:
    key = call.get("KeyId")
    return [key if key.startswith("arn:") else arn("kms", f"key/{key}", call.region)] if key else []


def _states(call: Call) -> list[str]:
    machine = call.get("stateMachineArn") or call.get("name")
    return [machine if machine.startswith("arn:") else arn("states", f"stateMachine:{machine}", call.region)]


def _ec2(call: Call) -> list[str]:
    """Of an instance alone; what is made or changed in a VPC is evaluated on `*`."""
    if call.operation in ("TerminateInstances", "StopInstances", "StartInstances", "RebootInstances"):
        ids = [*call.all("InstanceId"), *call.all("InstanceIds")]
        return [arn("ec2", f"instance/{one}", call.region) for one in ids]
    if call.operation == "RunInstances":
        subnets = [f"subnet/{call.get('SubnetId')}"] if call.get("SubnetId") else []
        kinds = ("instance/*", "network-interface/*", "volume/*")
        own = [arn("ec2", resource, call.region) for resource in (*subnets, *kinds)]
        return [*own, arn("ec2", f"image/{call.get('ImageId')}", call.region, "")]
    if call.operation == "CreateTags":
        return [arn("ec2", _ec2_resource(one), call.region) for one in call.all("ResourceId")]
    if call.operation == "GetConsoleOutput":
        return [arn("ec2", f"instance/{call.get('InstanceId')}", call.region)]
    return []


def _ec2_resource(one: str) -> str:
    """`i-...` as `instance/i-...`: the kinds that carry tags here."""
    kinds = {"i": "instance", "vol": "volume", "vpc": "vpc", "subnet": "subnet", "sg": "security-group"}
    return f"{kinds.get(one.partition('-')[0], '*')}/{one}"


_RESOURCES: Mapping[str, Callable[[Call], list[str]]] = {
    "s3": _s3,
    "iam": _iam,
    "ssm": _ssm,
    "secretsmanager": _secretsmanager,
    "lambda": _lambda,
    "logs": _logs,
    "cloudformation": _cloudformation,
    "sts": _sts,
    "amp": _aps,
    "grafana": _grafana,
    "sns": _sns,
    "cloudwatch": _cloudwatch,
    "budgets": _budgets,
    "events": _events,
    "fsx": _fsx,
    "efs": _efs,
    "kms": _kms,
    "stepfunctions": _states,
    "ec2": _ec2,
}


# ---- condition keys and passed roles ----


def _keys(call: Call) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    tags = _tags(call)
    if tags:
        keys["aws:tagkeys"] = tuple(tags)
        keys |= {f"aws:requesttag/{name.lower()}": (value,) for name, value in tags.items()}
    if call.service == "iam":
        if call.get("PolicyArn"):
            keys["iam:policyarn"] = (call.get("PolicyArn"),)
        if boundary := call.get("PermissionsBoundary") or _boundary_of(call.get("RoleName")):
            keys["iam:permissionsboundary"] = (boundary,)
        if call.get("AWSServiceName"):
            keys["iam:awsservicename"] = (call.get("AWSServiceName"),)
    if call.service == "s3":
        keys["s3:tlsversion"] = ("1.3",)  # the embedded AWS itself answers on the loopback interface without TLS
        keys["s3:resourceaccount"] = keys["aws:resourceaccount"] = (ACCOUNT,)
        if "Prefix" in call.parameters:
            keys["s3:prefix"] = (call.get("Prefix"),)
    if call.service == "ec2":
        keys |= _instance_tags(call)
    if call.service == "cloudformation" and call.get("RoleARN"):
        keys["cloudformation:rolearn"] = (call.get("RoleARN"),)
    return keys


def _tags(call: Call) -> dict[str, str]:
    listed = call.parameters.get("Tags") or call.parameters.get("tags") or []
    if isinstance(listed, dict):
        return {str(key): str(value) for key, value in listed.items()}
    pairs = [item for item in listed if isinstance(item, dict)]
    return {str(item.get("Key", item.get("key", ""))): str(item.get("Value", item.get("value", ""))) for item in pairs}


def _boundary_of(role: str) -> str:
    roles = iam_backends[ACCOUNT][PARTITION].roles.values()
    return next((str(item.permissions_boundary_arn or "") for item in list(roles) if item.name == role), "")


def _instance_tags(call: Call) -> dict[str, tuple[str, ...]]:
    from moto.ec2.models import ec2_backends

    ids = {*call.all("InstanceId"), *call.all("InstanceIds")}
    if not ids:
        return {}
    instances = [item for item in ec2_backends[ACCOUNT][call.region].all_instances() if item.id in ids]
    tags = {tag["key"]: tag["value"] for instance in instances for tag in instance.get_tags()}
    return {f"ec2:resourcetag/{key.lower()}": (value,) for key, value in tags.items()}


#: service:Operation -> (the parameter that names a role, the service that it is passed to).
_PASSING = {
    "lambda:CreateFunction": ("Role", "lambda.amazonaws.com"),
    "lambda:UpdateFunctionConfiguration": ("Role", "lambda.amazonaws.com"),
    "stepfunctions:CreateStateMachine": ("roleArn", "states.amazonaws.com"),
    "cloudformation:CreateStack": ("RoleARN", "cloudformation.amazonaws.com"),
    "cloudformation:UpdateStack": ("RoleARN", "cloudformation.amazonaws.com"),
    "cloudformation:DeleteStack": ("RoleARN", "cloudformation.amazonaws.com"),
}


def _passed_roles(call: Call, keys: Mapping[str, tuple[str, ...]]) -> Iterator[Needed]:
    parameter, service = _PASSING.get(f"{call.service}:{call.operation}", ("", ""))
    if parameter and call.get(parameter):
        yield Needed(Request("iam:PassRole", call.get(parameter), {**keys, "iam:passedtoservice": (service,)}))
    if call.service == "ec2" and call.operation == "RunInstances":
        profile = call.parameters.get("IamInstanceProfile")
        name = (
            str(profile.get("Name") or profile.get("Arn", "")).rpartition("/")[2] if isinstance(profile, dict) else ""
        )
        for role in roles_of_profile(name):
            yield Needed(Request("iam:PassRole", role, {**keys, "iam:passedtoservice": ("ec2.amazonaws.com",)}))
    if call.service == "iam" and call.operation == "AddRoleToInstanceProfile":
        yield Needed(Request("iam:PassRole", role_arn(call.get("RoleName")), keys))


def roles_of_profile(name: str) -> list[str]:
    """The ARNs of the roles of an instance profile."""
    profiles = iam_backends[ACCOUNT][PARTITION].instance_profiles.values()
    return [role.arn for item in list(profiles) if item.name == name for role in item.roles]


def document_of(value: Any) -> str:
    """A policy document as JSON text, however it is kept."""
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else json.dumps(value)
