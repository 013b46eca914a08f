"""Plain data that the parts of the embedded AWS hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

ACCOUNT = "123456789012"
PARTITION = "aws"
URL_SUFFIX = "amazonaws.com"
STACK_TYPE = "AWS::CloudFormation::Stack"


@dataclass(frozen=True)
class CloudEvent:
    """One change of state of a stack or of a resource, as CloudFormation reports it.

    `stack` is the stack's name; for an event of the stack itself `logical_id` is that name and `resource_type` is
    `AWS::CloudFormation::Stack`. `reason` is empty when CloudFormation gives none.
    """

    time: datetime
    stack: str
    logical_id: str
    resource_type: str
    status: str
    reason: str = ""
    stack_id: str = ""
    physical_id: str = ""
    event_id: str = ""


@dataclass(frozen=True)
class ResourceRequest:
    """What a resource type (or a custom resource's handler) is asked to do.

    `request_type` is Create, Update or Delete. `properties` are resolved. For a custom resource every scalar in them
    is a string, as CloudFormation sends it ("true", "4"). `physical_id` is empty on Create.
    """

    request_type: str
    stack_id: str
    stack_name: str
    logical_id: str
    resource_type: str
    region: str
    properties: Mapping[str, Any]
    old_properties: Mapping[str, Any] = field(default_factory=dict)
    physical_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceResult:
    """What became of a request: the physical id, and the attributes that Fn::GetAtt finds (flat, dotted names)."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class ResourceType(Protocol):
    """One CloudFormation resource type. Each method raises ResourceFailed with AWS's reason."""

    def create(self, request: ResourceRequest, /) -> ResourceResult:
        """Make the resource."""

    def update(self, request: ResourceRequest, current: ResourceResult, /) -> ResourceResult:
        """Change the resource; another physical id means that it was replaced."""

    def delete(self, request: ResourceRequest, current: ResourceResult, /) -> None:
        """Remove the resource."""


@dataclass
class Resource:
    """A resource of a stack, as it is now; `needs` are the logical ids that it depends on."""

    logical_id: str
    resource_type: str
    properties: dict[str, Any]
    result: ResourceResult
    status: str = "CREATE_IN_PROGRESS"
    reason: str = ""
    deletion_policy: str = "Delete"
    replace_policy: str = "Delete"
    needs: set[str] = field(default_factory=set)
    metadata: dict[str, Any] = field(default_factory=dict)
    updated: datetime | None = None
