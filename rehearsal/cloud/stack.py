"""One CloudFormation stack: its template, resources, events and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Thread
from typing import Any

from rehearsal.cloud_errors import TemplateInvalid
from rehearsal.cloud_model import CloudEvent, Resource, ResourceRequest, ResourceResult

_LOCKED_SUFFIX = "_IN_PROGRESS"


@dataclass
class StackOptions:
    """What a request may say about a stack besides template and parameters."""

    tags: dict[str, str] = field(default_factory=dict)
    role_arn: str | None = None
    disable_rollback: bool = False
    on_failure: str = "ROLLBACK"
    termination_protection: bool = False
    caller: str = ""  # the access key of the request: CloudFormation acts with it if no role is named


@dataclass
class Stack:
    """One stack. `references` holds what Ref finds; `resources` is in order of creation."""

    stack_id: str
    name: str
    text: str
    document: dict[str, Any]
    given: dict[str, str]
    references: dict[str, Any]
    options: StackOptions
    parent_id: str | None = None
    status: str = "CREATE_IN_PROGRESS"
    reason: str = ""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    updated: datetime | None = None
    deleted: datetime | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    events: list[CloudEvent] = field(default_factory=list)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    skipped: list[Resource] = field(default_factory=list)  # retained when the stack was deleted; still listed
    rollback: Rollback | None = None
    worker: Thread | None = None  # of the newest operation
    stable: bool = False  # whether it ever was CREATE_COMPLETE or UPDATE_COMPLETE

    @property
    def busy(self) -> bool:
        """Whether an operation runs on the stack."""
        return self.status.endswith(_LOCKED_SUFFIX)


Change = tuple[Resource, dict[str, Any], ResourceResult]  # a changed resource, its earlier properties and result


@dataclass
class Rollback:
    """What it takes to return a stack to its last stable state; kept in UPDATE_FAILED and UPDATE_ROLLBACK_FAILED.

    `undo` are the changes in their order; `before` (text, document, given values, options), `existing` (logical ids)
    and `references` are the stack's before the update; `reason` is why the update failed.
    """

    before: tuple[str, dict[str, Any], dict[str, str], StackOptions]
    existing: list[str]
    references: dict[str, Any]
    undo: list[Change] = field(default_factory=list)
    reason: str = ""

    @classmethod
    def of(cls, stack: Stack) -> Rollback:
        """The way back to a stack as it is now."""
        before = (stack.text, stack.document, stack.given, stack.options)
        return cls(before, list(stack.resources), dict(stack.references))


def new_resource(logical_id: str, body: Mapping[str, Any]) -> Resource:
    """A resource of a template that is not created yet."""
    return Resource(
        logical_id=logical_id,
        resource_type=str(body["Type"]),
        properties={},
        result=ResourceResult(""),
        deletion_policy=str(body.get("DeletionPolicy", "Delete")),
        replace_policy=str(body.get("UpdateReplacePolicy", "Delete")),
        metadata=dict(body.get("Metadata", {})),
    )


def parameters_of(request: ResourceRequest) -> dict[str, str]:
    """The parameters of a nested stack; a list is joined by commas."""
    values = request.properties.get("Parameters", {})
    return {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in values.items()}


def output_text(value: Any) -> str:
    """An output's value as text. Raises TemplateInvalid for a list."""
    if isinstance(value, list):
        raise TemplateInvalid("Template format error: Output values must be strings, got a list")
    return str(value).lower() if isinstance(value, bool) else str(value)
