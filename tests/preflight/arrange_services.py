"""What an account can have besides machines and networks, each with the id that the texts name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

from moto.amp.models import amp_backends
from moto.efs.models import efs_backends
from moto.fsx.models import fsx_backends
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.secretsmanager.models import secretsmanager_backends
from preflight_cases import REGION

from rehearsal.cloud.stack import Stack, StackOptions
from rehearsal.cloud_model import ACCOUNT, PARTITION
from tests.aws.preflight_aws import PreflightAws

Arrange = Callable[[PreflightAws], None]
OTHER_ACCOUNT = "210987654321"
KEY_ID = "11111111-2222-3333-4444-555555555555"
KEY_ARN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{KEY_ID}"


def policy(*statements: dict[str, Any]) -> str:
    """A policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(*actions: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    """A statement of an identity policy."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource, **more}


# ---- callers and roles ----


def as_user(name: str, *statements: dict[str, Any]) -> Arrange:
    """Ask as a user with that policy."""

    def arrange(aws: PreflightAws) -> None:
        iam = aws.clients("iam")
        iam.create_user(UserName=name)
        if statements:
            iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=policy(*statements))
        _become(iam.create_access_key(UserName=name)["AccessKey"])

    return arrange


def as_role(name: str, path: str, *statements: dict[str, Any]) -> Arrange:
    """Ask as a caller who has assumed a role with that policy, and may ask: the embedded AWS evaluates roles."""
    asking = allow("iam:GetRole", "iam:SimulatePrincipalPolicy")

    def arrange(aws: PreflightAws) -> None:
        iam = aws.clients("iam")
        trust = policy({"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}})
        arn = iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=policy(asking, *statements))
        _become(aws.clients("sts").assume_role(RoleArn=arn, RoleSessionName="ann")["Credentials"])

    return arrange


def _become(key: dict[str, str]) -> None:
    os.environ["AWS_ACCESS_KEY_ID"] = key["AccessKeyId"]  # the fixture takes it back
    os.environ["AWS_SECRET_ACCESS_KEY"] = key["SecretAccessKey"]


def executing_role(*statements: dict[str, Any], boundary: tuple[dict[str, Any], ...] = ()) -> Arrange:
    """The CDK's executing role with that policy in the place of AdministratorAccess, or within a boundary."""
    name = f"cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-{REGION}"

    def arrange(aws: PreflightAws) -> None:
        iam = aws.clients("iam")
        if statements:
            iam.detach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
            iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=policy(*statements))
        if boundary:
            made = iam.create_policy(PolicyName="boundary", PolicyDocument=policy(*boundary))["Policy"]
            iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=made["Arn"])

    return arrange


def role_with_path(kind: str) -> Arrange:
    """One of the bootstrap's roles lies under a path, as a site's own bootstrap template may make it."""

    def arrange(_: PreflightAws) -> None:
        roles = iam_backends[ACCOUNT][PARTITION].roles.values()
        next(role for role in roles if f"-{kind}-role-" in role.name).path = "/team/"

    return arrange


def without_role(kind: str) -> Arrange:
    """The bootstrap without one of its roles."""

    def arrange(_: PreflightAws) -> None:
        roles = iam_backends[ACCOUNT][PARTITION].roles
        for role_id in [key for key, role in roles.items() if f"-{kind}-role-" in role.name]:
            del roles[role_id]

    return arrange


def linked_role(service: str) -> Arrange:
    """A service-linked role."""
    return lambda aws: aws.clients("iam").create_service_linked_role(AWSServiceName=service)


# ---- stacks ----


def stack(name: str, status: str, **tags: str) -> Arrange:
    """A stack in that state; tags with ``__`` for ``:``."""

    def arrange(aws: PreflightAws) -> None:
        arn = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/0"
        options = StackOptions(tags={key.replace("__", ":"): value for key, value in tags.items()})
        aws.stacks._stacks[arn] = Stack(arn, name, "{}", {"Resources": {}}, {}, {}, options, status=status)

    return arrange


# ---- buckets and keys ----


def bucket(name: str, region: str = REGION, owner: str = ACCOUNT) -> Arrange:
    """An empty bucket that is blocked to the public."""

    def arrange(aws: PreflightAws) -> None:
        s3 = aws.clients("s3")
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        s3.create_bucket(Bucket=name, **place)
        names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=dict.fromkeys(names, True))
        s3_backends[ACCOUNT][PARTITION].buckets[name].account_id = owner

    return arrange


def bucket_policy(name: str, *statements: dict[str, Any]) -> Arrange:
    return lambda aws: aws.clients("s3").put_bucket_policy(Bucket=name, Policy=policy(*statements))


def objects(bucket_name: str, **contents: str) -> Arrange:
    """Objects by key, ``/`` written as ``__`` and ``.`` as ``_dot_``."""

    def arrange(aws: PreflightAws) -> None:
        for key, text in contents.items():
            name = key.replace("__", "/").replace("_dot_", ".")
            aws.clients("s3").put_object(Bucket=bucket_name, Key=name, Body=text.encode())

    return arrange


def encrypted(name: str, key: str = KEY_ARN) -> Arrange:
    """The bucket encrypted with a key by default."""
    default = {"SSEAlgorithm": "aws:kms", **({"KMSMasterKeyID": key} if key else {})}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": default}]}
    return lambda aws: aws.clients("s3").put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=rules)


def key(*statements: dict[str, Any]) -> Arrange:
    """A customer's key with that policy."""
    root = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}}

    def arrange(aws: PreflightAws) -> None:
        with mock.patch("moto.kms.models.generate_key_id", return_value=KEY_ID):
            aws.clients("kms").create_key(Policy=policy(root, *statements))

    return arrange


# ---- file systems ----


def file_system(
    system_id: str, subnet: str, group: str, kind: str = "LUSTRE", deployment: str = "PERSISTENT_2", **facts: Any
) -> Arrange:
    """An FSx file system of 1200 GiB; ``facts`` replace what it says of itself."""

    def arrange(aws: PreflightAws) -> None:
        lustre: dict[str, Any] = {"DeploymentType": deployment}
        if deployment == "PERSISTENT_2":
            lustre["PerUnitStorageThroughput"] = 125
        more = {"LustreConfiguration": lustre} if kind == "LUSTRE" else {}
        made = aws.clients("fsx").create_file_system(
            FileSystemType=kind, StorageCapacity=1200, SubnetIds=[subnet], SecurityGroupIds=[group], **more
        )["FileSystem"]
        known = fsx_backends[ACCOUNT][REGION].file_systems
        system = known[system_id] = known.pop(made["FileSystemId"])
        system.file_system_id = system_id
        system.facts = facts

    return arrange


def efs(system_id: str, state: str = "available", *, subnet: str = "") -> Arrange:
    """An EFS file system, with a mount target in a subnet."""

    def arrange(aws: PreflightAws) -> None:
        client = aws.clients("efs")
        made = client.create_file_system(CreationToken=system_id)["FileSystemId"]
        if subnet:
            client.create_mount_target(FileSystemId=made, SubnetId=subnet)
        known = efs_backends[ACCOUNT][REGION].file_systems_by_id
        system = known[system_id] = known.pop(made)
        system.file_system_id = system_id
        system.life_cycle_state = state

    return arrange


# ---- workspaces and secrets ----


def prometheus_workspace(workspace_id: str, alias: str) -> Arrange:
    def arrange(aws: PreflightAws) -> None:
        made = aws.clients("amp").create_workspace(alias=alias)["workspaceId"]
        known = amp_backends[ACCOUNT][REGION].workspaces
        known[workspace_id] = known.pop(made)
        known[workspace_id].workspace_id = workspace_id

    return arrange


def secret(arn: str, value: str | bytes | None, **more: Any) -> Arrange:
    """A secret with that ARN and that value; bytes make a binary one, None one without a value."""
    name = arn.split(":secret:")[1][:-7]

    def arrange(aws: PreflightAws) -> None:
        kind = (
            {"SecretBinary": value}
            if isinstance(value, bytes)
            else {"SecretString": value}
            if value is not None
            else {}
        )
        aws.clients("secretsmanager").create_secret(Name=name, **kind, **more)
        known = secretsmanager_backends[ACCOUNT][REGION].secrets
        next(item for item in known.values() if item.name == name).arn = arn

    return arrange
