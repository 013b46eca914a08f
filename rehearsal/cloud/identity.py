"""IAM roles, policies and instance profiles, and permissions of functions, through the APIs.

moto's models of these cannot delete what is attached, and a permission has no id. What they allow is evaluated by
rehearsal/permissions.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from rehearsal.cloud.clients import Clients
from rehearsal.cloud.network import ApiType
from rehearsal.cloud_model import ResourceRequest, ResourceResult, ResourceType

_ROLE_NAME_CHARS = 64
_NAME_CHARS = 128
_SUFFIX_CHARS = 13


def _named(request: ResourceRequest, key: str, limit_chars: int) -> str:
    given = request.properties.get(key)
    if given:
        return str(given)
    stem = f"{request.stack_name}-{request.logical_id}"[: limit_chars - _SUFFIX_CHARS]
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def _role(iam: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = _named(request, "RoleName", _ROLE_NAME_CHARS)
    optional = {key: properties[key] for key in ("Path", "Description", "PermissionsBoundary") if key in properties}
    if "MaxSessionDuration" in properties:
        optional["MaxSessionDuration"] = int(properties["MaxSessionDuration"])
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, **optional)["Role"]
    _fill_role(iam, name, request)
    return ResourceResult(name, {"Arn": made["Arn"], "RoleId": made["RoleId"]})


def _fill_role(iam: Any, name: str, request: ResourceRequest) -> None:
    for arn in request.properties.get("ManagedPolicyArns", []):
        iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    for policy in request.properties.get("Policies", []):
        document = json.dumps(policy["PolicyDocument"])
        iam.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)


def _change_role(iam: Any, request: ResourceRequest) -> ResourceResult:
    name = request.physical_id
    _empty_role(
        iam, request.old_properties.get("ManagedPolicyArns", []), request.old_properties.get("Policies", []), name
    )
    iam.update_assume_role_policy(
        RoleName=name, PolicyDocument=json.dumps(request.properties["AssumeRolePolicyDocument"])
    )
    _fill_role(iam, name, request)
    if boundary := request.properties.get("PermissionsBoundary"):
        iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=boundary)
    elif "PermissionsBoundary" in request.old_properties:
        iam.delete_role_permissions_boundary(RoleName=name)
    made = iam.get_role(RoleName=name)["Role"]
    return ResourceResult(name, {"Arn": made["Arn"], "RoleId": made["RoleId"]})


def _empty_role(iam: Any, arns: list[str], policies: list[dict[str, Any]], name: str) -> None:
    for arn in arns:
        iam.detach_role_policy(RoleName=name, PolicyArn=arn)
    for policy in policies:
        iam.delete_role_policy(RoleName=name, PolicyName=policy["PolicyName"])


def _delete_role(iam: Any, request: ResourceRequest, name: str) -> None:
    _empty_role(iam, request.properties.get("ManagedPolicyArns", []), request.properties.get("Policies", []), name)
    iam.delete_role(RoleName=name)  # AWS, too, refuses while something else is attached


def _inline_policy(iam: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = properties["PolicyName"]
    for role in properties.get("Roles", []):
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(properties["PolicyDocument"]))
    return ResourceResult(name, {"Id": name})


def _change_inline_policy(iam: Any, request: ResourceRequest) -> ResourceResult:
    """Roles that the policy had before lose it."""
    result = _inline_policy(iam, request)
    for role in set(request.old_properties.get("Roles", [])) - set(request.properties.get("Roles", [])):
        iam.delete_role_policy(RoleName=role, PolicyName=request.old_properties["PolicyName"])
    return result


def _delete_inline_policy(iam: Any, request: ResourceRequest, name: str) -> None:
    for role in request.properties.get("Roles", []):
        iam.delete_role_policy(RoleName=role, PolicyName=name)


POLICY_VERSIONS = 5  # IAM user guide, quotas


def _managed_policy(iam: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = _named(request, "ManagedPolicyName", _NAME_CHARS)
    optional = {key: properties[key] for key in ("Path", "Description") if key in properties}
    document = json.dumps(properties["PolicyDocument"])
    arn = iam.create_policy(PolicyName=name, PolicyDocument=document, **optional)["Policy"]["Arn"]
    for role in properties.get("Roles", []):
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    return ResourceResult(arn, {"PolicyArn": arn})


def _change_managed_policy(iam: Any, request: ResourceRequest) -> ResourceResult:
    """A new version. IAM keeps five: the handler deletes the oldest first (its schema: iam:DeletePolicyVersion)."""
    arn = request.physical_id
    versions = iam.list_policy_versions(PolicyArn=arn)["Versions"]
    if len(versions) == POLICY_VERSIONS:
        oldest = min((item for item in versions if not item["IsDefaultVersion"]), key=lambda item: item["CreateDate"])
        iam.delete_policy_version(PolicyArn=arn, VersionId=oldest["VersionId"])
    document = json.dumps(request.properties["PolicyDocument"])
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
    before, after = (set(item.get("Roles", [])) for item in (request.old_properties, request.properties))
    for role in after - before:
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    for role in before - after:
        iam.detach_role_policy(RoleName=role, PolicyArn=arn)
    return ResourceResult(arn, {"PolicyArn": arn})


def _delete_managed_policy(iam: Any, request: ResourceRequest, arn: str) -> None:
    for role in request.properties.get("Roles", []):
        iam.detach_role_policy(RoleName=role, PolicyArn=arn)
    iam.delete_policy(PolicyArn=arn)


def _profile(iam: Any, request: ResourceRequest) -> ResourceResult:
    name = _named(request, "InstanceProfileName", _NAME_CHARS)
    made = iam.create_instance_profile(InstanceProfileName=name, Path=request.properties.get("Path", "/"))
    for role in request.properties["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    return ResourceResult(name, {"Arn": made["InstanceProfile"]["Arn"]})


def _delete_profile(iam: Any, request: ResourceRequest, name: str) -> None:
    for role in request.properties["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
    iam.delete_instance_profile(InstanceProfileName=name)


_PERMISSION_KEYS = ("FunctionName", "Action", "Principal", "SourceArn", "SourceAccount")


def _permission(functions: Any, request: ResourceRequest) -> ResourceResult:
    statement = f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12]}"[-100:].lstrip("-")
    arguments = {key: request.properties[key] for key in _PERMISSION_KEYS if key in request.properties}
    functions.add_permission(StatementId=statement, **arguments)
    return ResourceResult(statement, {"Id": statement})


def _delete_permission(functions: Any, request: ResourceRequest, statement: str) -> None:
    functions.remove_permission(FunctionName=request.properties["FunctionName"], StatementId=statement)


def identity_types(clients: Clients) -> dict[str, ResourceType]:
    """The types of this module by name."""
    return {
        "AWS::IAM::Role": ApiType(
            clients, "iam", _role, _delete_role, change=_change_role, replacing=("Path", "RoleName")
        ),
        "AWS::IAM::Policy": ApiType(
            clients, "iam", _inline_policy, _delete_inline_policy, change=_change_inline_policy
        ),
        "AWS::IAM::ManagedPolicy": ApiType(
            clients,
            "iam",
            _managed_policy,
            _delete_managed_policy,
            change=_change_managed_policy,
            replacing=("Description", "ManagedPolicyName", "Path"),
        ),
        "AWS::IAM::InstanceProfile": ApiType(clients, "iam", _profile, _delete_profile),
        "AWS::Lambda::Permission": ApiType(clients, "lambda", _permission, _delete_permission),
    }
