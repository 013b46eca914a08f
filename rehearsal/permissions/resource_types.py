"""Permissions of CloudFormation's resource types that are made in this process, without a request to a service.

Source: the handlers' permissions in CloudFormation's resource schemas (registry, November 2026), as far as the
properties that a template sets need them. Types that are made through the services' APIs need no row: their requests
are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rehearsal.cloud_model import ACCOUNT, PARTITION, ResourceRequest, ResourceResult, ResourceType
from rehearsal.permissions.actions import arn
from rehearsal.permissions.authority import Authority


class Rights(NamedTuple):
    """Of one type: what Create needs by property ("" always), what Delete needs, and the ARN of one by its name."""

    create: Mapping[str, tuple[str, ...]]
    delete: tuple[str, ...]
    resource: str
    passes: tuple[str, str] = ("", "")  # the property that names a role, and the service it is for


RIGHTS: Mapping[str, Rights] = {
    "AWS::S3::Bucket": Rights(
        {
            "": ("s3:CreateBucket",),
            "BucketEncryption": ("s3:PutEncryptionConfiguration",),
            "PublicAccessBlockConfiguration": ("s3:PutBucketPublicAccessBlock",),
            "VersioningConfiguration": ("s3:PutBucketVersioning",),
            "LifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
            "Tags": ("s3:PutBucketTagging",),
        },
        ("s3:DeleteBucket",),
        "arn:{partition}:s3:::{name}",
    ),
    "AWS::Logs::LogGroup": Rights(
        {
            "": ("logs:CreateLogGroup",),
            "RetentionInDays": ("logs:PutRetentionPolicy",),
            "Tags": ("logs:TagResource",),
        },
        ("logs:DeleteLogGroup",),
        "logs log-group:{name}:*",
    ),
    "AWS::SNS::Topic": Rights(
        {"": ("sns:CreateTopic", "sns:GetTopicAttributes"), "Tags": ("sns:TagResource",)},
        ("sns:GetTopicAttributes", "sns:DeleteTopic"),
        "sns {name}",
    ),
    "AWS::SNS::TopicPolicy": Rights({"": ("sns:SetTopicAttributes",)}, ("sns:SetTopicAttributes",), "sns {stack}-*"),
    "AWS::Lambda::Function": Rights(
        {"": ("lambda:CreateFunction", "lambda:GetFunction"), "Tags": ("lambda:TagResource",)},
        ("lambda:DeleteFunction", "lambda:GetFunction"),
        "lambda function:{name}",
        ("Role", "lambda.amazonaws.com"),
    ),
    "AWS::StepFunctions::StateMachine": Rights(
        {"": ("states:CreateStateMachine", "states:DescribeStateMachine"), "Tags": ("states:TagResource",)},
        ("states:DeleteStateMachine", "states:DescribeStateMachine"),
        "states stateMachine:{name}",
        ("RoleArn", "states.amazonaws.com"),
    ),
    "AWS::Grafana::Workspace": Rights(
        {
            "": ("grafana:CreateWorkspace", "grafana:DescribeWorkspace", "grafana:DescribeWorkspaceAuthentication"),
            "Tags": ("grafana:TagResource",),
            "AuthenticationProviders": (
                "sso:DescribeRegisteredRegions",
                "sso:CreateManagedApplicationInstance",
                "organizations:DescribeOrganization",
            ),
        },
        ("grafana:DeleteWorkspace", "grafana:DescribeWorkspace", "sso:DeleteManagedApplicationInstance"),
        "grafana /workspaces/{name}",
        ("RoleArn", "grafana.amazonaws.com"),
    ),
    "AWS::CloudFormation::Stack": Rights(
        {"": ("cloudformation:CreateStack", "cloudformation:DescribeStacks")},
        ("cloudformation:DeleteStack", "cloudformation:DescribeStacks"),
        "cloudformation stack/{name}/*",
    ),
}
_ON_EVERYTHING = ("sso:", "organizations:")  # actions of a type's handlers that are about no resource of its own


class Permitted:
    """A type whose requests are made only if IAM allows them to the role that the stack's operation acts as."""

    def __init__(self, kind: ResourceType, name: str, authority: Authority) -> None:
        self._kind = kind
        self._rights = RIGHTS.get(name)
        self._authority = authority

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Create it if that is allowed."""
        self._authorize_making(request)
        return self._kind.create(request)

    def update(self, request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Update it if its creation would be allowed: the handlers' permissions are those, mostly."""
        self._authorize_making(request)
        return self._kind.update(request, current)

    def delete(self, request: ResourceRequest, current: ResourceResult) -> None:
        """Delete it if that is allowed."""
        for action in self._rights.delete if self._rights else ():
            self._authority.authorize_thread(action, self._resource(action, request, current.physical_id))
        self._kind.delete(request, current)

    def _authorize_making(self, request: ResourceRequest) -> None:
        if self._rights is None:
            return
        properties: Mapping[str, Any] = {**request.properties, "": True}
        for key, actions in self._rights.create.items():
            for action in actions if properties.get(key) else ():
                self._authority.authorize_thread(action, self._resource(action, request, request.physical_id))
        key, service = self._rights.passes
        if key and properties.get(key):
            self._authority.authorize_thread("iam:PassRole", str(properties[key]), iam__PassedToService=service)

    def _resource(self, action: str, request: ResourceRequest, physical_id: str) -> str:
        """The ARN by the physical id, before it is known by the name that CloudFormation will generate."""
        if action.startswith(_ON_EVERYTHING) or self._rights is None:
            return "*"
        if physical_id.startswith("arn:"):
            return physical_id
        explicit = next((str(request.properties[key]) for key in _NAMES if request.properties.get(key)), "")
        name = physical_id or explicit or f"{request.stack_name}-{request.logical_id}-0123456789AB"
        if ":s3:::" in self._rights.resource:
            return f"arn:{PARTITION}:s3:::{name.lower()}"
        service, _, rest = self._rights.resource.partition(" ")
        return arn(service, rest.format(name=name, stack=request.stack_name), request.region, ACCOUNT)


_NAMES = ("BucketName", "LogGroupName", "TopicName", "FunctionName", "StateMachineName")
