"""Resource types served by moto's own CloudFormation models, behind our interface."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.core.exceptions import ServiceException
from werkzeug.exceptions import HTTPException

from rehearsal.cloud.clients import aws_reasons
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, ResourceRequest, ResourceResult

#: What moto raises for a request that AWS would refuse; anything else is a fault of the emulation, traceback and all.
_REFUSALS = (ServiceException, HTTPException)

#: Fn::GetAtt names tried on a moto object once it exists; moto offers no list of them.
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "AWS::CloudWatch::Dashboard": (),
    "AWS::DynamoDB::Table": ("Arn", "StreamArn"),
    "AWS::Events::EventBus": ("Arn", "Name"),
    "AWS::EC2::LaunchTemplate": ("LatestVersionNumber", "DefaultVersionNumber", "LaunchTemplateId"),
    "AWS::KMS::Key": ("Arn", "KeyId"),
    "AWS::Lambda::Function": ("Arn",),
    "AWS::Lambda::Version": ("Version",),
    "AWS::Logs::LogGroup": ("Arn",),
    "AWS::S3::Bucket": ("Arn", "DomainName", "RegionalDomainName", "DualStackDomainName", "WebsiteURL"),
    "AWS::SNS::Topic": ("TopicName", "TopicArn"),
    "AWS::SQS::Queue": ("Arn", "QueueName", "QueueUrl"),
    "AWS::StepFunctions::StateMachine": ("Name", "Arn"),
}

#: Names that AWS makes shorter than moto does: (limit in characters, in lower case).
_NAME_LIMITS: Mapping[str, int] = {
    "AWS::Lambda::Function": 64,
    "AWS::StepFunctions::StateMachine": 80,
}


class MotoType:
    """One type of moto's. Objects of moto are kept by physical id, since updates and deletes need them.

    `remove` deletes by physical id instead of moto's model, where that one deletes what AWS would not.
    """

    def __init__(self, resource_type: str, remove: Callable[[str], None] | None = None) -> None:
        self._type = resource_type
        self._model: Any = parsing.resource_class_from_type(resource_type)
        self._objects: dict[str, Any] = {}
        self._remove = remove

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Create through the model, with the name that CloudFormation would generate when none is given."""
        properties = deepcopy(dict(request.properties))
        try:
            made = self._model.create_from_cloudformation_json(
                self._name(request),
                {"Type": self._type, "Properties": properties},
                ACCOUNT,
                request.region,
                LogicalId=request.logical_id,
                StackId=request.stack_id,
                ResourceType=self._type,
            )
        except _REFUSALS as error:
            raise ResourceFailed(_words(error)) from None
        except KeyError as error:
            raise ResourceFailed(f"Properties validation failed: required key {error} not found") from None
        return self._keep(made, request)

    def update(self, request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Update through the model; what moto cannot change in place is a failure, not a silent success."""
        changed = {
            key
            for key in {*request.properties, *request.old_properties}
            if request.properties.get(key) != request.old_properties.get(key)
        }
        if not changed - {"Tags"}:
            return current
        if self._type == "AWS::Logs::LogGroup" and changed - {"Tags"} == {"RetentionInDays"}:
            self._objects[current.physical_id].retention_in_days = str(request.properties["RetentionInDays"])
            return current
        if self._type == "AWS::Lambda::Function" and "Code" not in changed:  # moto reads inline code as an archive
            self._objects[current.physical_id].update_configuration(deepcopy(dict(request.properties)))
            return current
        if hasattr(self._model.update_from_cloudformation_json, "__isabstractmethod__"):
            raise ResourceFailed(f"the rehearsal's cloud cannot update {self._type}: {', '.join(sorted(changed))}")
        try:
            made = self._model.update_from_cloudformation_json(
                self._objects[current.physical_id],
                self._name(request),
                {"Type": self._type, "Properties": deepcopy(dict(request.properties))},
                ACCOUNT,
                request.region,
            )
        except _REFUSALS as error:
            raise ResourceFailed(_words(error)) from None
        return self._keep(made, request)

    def delete(self, request: ResourceRequest, current: ResourceResult) -> None:
        """Delete through the model; types without any deletion of moto's vanish from CloudFormation only."""
        if self._remove is not None:
            with aws_reasons():
                self._remove(current.physical_id)
            return
        made = self._objects.pop(current.physical_id, None)
        body = {"Type": self._type, "Properties": deepcopy(dict(request.properties))}
        try:
            if not hasattr(self._model.delete_from_cloudformation_json, "__isabstractmethod__"):
                self._model.delete_from_cloudformation_json(current.physical_id, body, ACCOUNT, request.region)
            elif made is not None and hasattr(made, "delete"):
                made.delete(ACCOUNT, request.region)
        except _REFUSALS as error:
            raise ResourceFailed(_words(error)) from None

    def _keep(self, made: Any, request: ResourceRequest) -> ResourceResult:
        if self._type == "AWS::Lambda::Function":
            made.logging_group = (request.properties.get("LoggingConfig") or {}).get("LogGroup")  # moto drops it
        physical_id = str(made.physical_resource_id)
        self._objects[physical_id] = made
        return ResourceResult(physical_id, self._attributes(made))

    def _attributes(self, made: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in _ATTRIBUTES.get(self._type, ()):
            try:
                found[name] = made.get_cfn_attribute(name)
            except (UnformattedGetAttTemplateException, NotImplementedError):
                continue
        return found

    def _name(self, request: ResourceRequest) -> str:
        given = parsing.resource_name_property_from_type(self._type)
        if given and given in request.properties:
            return str(request.properties[given])
        suffix = uuid.uuid4().hex[:12]
        limit = _NAME_LIMITS.get(self._type, 255)
        if self._type == "AWS::S3::Bucket":
            stem = f"{request.stack_name}-{request.logical_id}".lower()[: 63 - 13]
            return f"{stem.rstrip('-')}-{suffix}"
        return f"{request.stack_name}-{request.logical_id}"[: limit - 13] + f"-{suffix}"


def _words(error: Exception) -> str:
    message = getattr(error, "message", None) or str(error)
    code = getattr(error, "code", None) or getattr(error, "error_type", "")
    return f"{message} ({code})" if isinstance(code, str) and code else str(message)
