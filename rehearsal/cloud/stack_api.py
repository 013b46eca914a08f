"""CloudFormation's requests, answered by our StackEngine instead of moto's models.

Every action that moto would answer with its own, synchronous stacks is replaced or refused: a request that this module
does not know must fail, not half-work. Change sets are refused so that `cdk deploy` without `--method=direct` fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlparse

from moto.cloudformation.exceptions import AlreadyExistsException, ValidationError
from moto.cloudformation.responses import CloudFormationResponse as Response
from moto.core.responses import ActionResult, EmptyResult

from rehearsal.cloud import template
from rehearsal.cloud.stack import Stack, StackOptions
from rehearsal.cloud.stack_engine import StackEngine
from rehearsal.cloud_errors import ResourceFailed, StackAlreadyExists, TemplateInvalid
from rehearsal.cloud_model import CloudEvent, Resource
from rehearsal.permissions.calls import access_key_of

_REFUSED = (
    "create_change_set",
    "execute_change_set",
    "describe_change_set",
    "create_stack_set",
    "create_stack_instances",
    "update_stack_set",
)


def bucket_and_key(url: str) -> tuple[str, str]:
    """Bucket and key of a template's URL, in path style, virtual-hosted style or s3://."""
    parts = urlparse(url)
    host, path = parts.hostname or "", parts.path.lstrip("/")
    if parts.scheme == "s3":
        return host, path
    label, _, rest = host.partition(".")
    if (rest.startswith("s3") and not label.startswith("s3")) or rest == "localhost":
        return label, path
    bucket, _, key = path.partition("/")
    return bucket, key


def install(engine: StackEngine, fetch: Callable[[str], str]) -> None:
    """Make moto's CloudFormation endpoint answer from `engine`."""
    actions: dict[str, Callable[[Response], Any]] = {
        "create_stack": lambda r: _create(r, engine, fetch),
        "update_stack": lambda r: _update(r, engine, fetch),
        "delete_stack": lambda r: _delete(r, engine),
        "continue_update_rollback": lambda r: _continue(r, engine),
        "rollback_stack": lambda r: _rollback(r, engine),
        "describe_stacks": lambda r: ActionResult({"Stacks": [_stack(s) for s in _selected(r, engine)]}),
        "list_stacks": lambda r: ActionResult({"StackSummaries": _summaries(r, engine)}),
        "describe_stack_events": lambda r: ActionResult({"StackEvents": _events(r, engine)}),
        "describe_stack_resources": lambda r: ActionResult({"StackResources": _resources(r, engine)}),
        "describe_stack_resource": lambda r: ActionResult({"StackResourceDetail": _one_resource(r, engine)}),
        "list_stack_resources": lambda r: ActionResult({"StackResourceSummaries": _resources(r, engine)}),
        "get_template": lambda r: ActionResult(_template(engine.find(r._get_param("StackName")))),
        "get_template_summary": lambda r: ActionResult(_template_summary(r, engine, fetch)),
        "list_exports": lambda _: ActionResult({"Exports": _exports(engine)}),
        "validate_template": lambda r: ActionResult(_validate(r, fetch)),
        "list_change_sets": lambda _: ActionResult({"Summaries": []}),
        "delete_change_set": lambda _: EmptyResult(),
    }
    Response.RESPONSE_KEY_PATH_TO_TRANSFORMER = {}  # for moto's objects; our shapes are AWS's already
    for name, action in actions.items():
        setattr(Response, name, _guarded(action))
    for name in _REFUSED:
        setattr(Response, name, _refusal(name))


def _guarded(action: Callable[[Response], Any]) -> Callable[[Response], Any]:
    def method(self: Response) -> Any:
        try:
            return action(self)
        except StackAlreadyExists as error:
            raise AlreadyExistsException(str(error)) from None
        except (TemplateInvalid, ResourceFailed) as error:
            raise ValidationError(message=str(error)) from None

    return method


def _refusal(name: str) -> Callable[[Response], Any]:
    def method(_: Response) -> Any:
        raise ValidationError(
            message=f"{name} is not emulated by the rehearsal's cloud: deploy with `cdk deploy --method=direct`"
        )

    return method


def _body(response: Response, fetch: Callable[[str], str]) -> str | None:
    url = response._get_param("TemplateURL")
    text = response._get_param("TemplateBody")
    return fetch(url) if url else text


def _options(response: Response) -> StackOptions:
    return StackOptions(
        tags={item["Key"]: item["Value"] for item in response._get_param("Tags", [])},
        role_arn=response._get_param("RoleARN"),
        disable_rollback=response._get_bool_param("DisableRollback", False),
        on_failure=response._get_param("OnFailure") or "ROLLBACK",
        termination_protection=response._get_bool_param("EnableTerminationProtection", False),
        caller=access_key_of(str(response.headers.get("Authorization", ""))),
    )


def _create(response: Response, engine: StackEngine, fetch: Callable[[str], str]) -> Any:
    text = _body(response, fetch)
    if not text:
        raise TemplateInvalid("Either Template URL or Template Body must be specified.")
    given = {item["ParameterKey"]: item["ParameterValue"] for item in response._get_param("Parameters", [])}
    stack = engine.create(response._get_param("StackName"), text, given, _options(response))
    return ActionResult({"StackId": stack.stack_id})


def _update(response: Response, engine: StackEngine, fetch: Callable[[str], str]) -> Any:
    stack = engine.find(response._get_param("StackName"))
    given = {}
    for item in response._get_param("Parameters", []):
        key = item["ParameterKey"]
        if item.get("UsePreviousValue"):
            if key in stack.given:
                given[key] = stack.given[key]
        else:
            given[key] = item["ParameterValue"]
    engine.update(stack.stack_id, _body(response, fetch), given, _options(response))
    return ActionResult({"StackId": stack.stack_id})


def _delete(response: Response, engine: StackEngine) -> Any:
    engine.delete(response._get_param("StackName"), response._get_param("RetainResources", []))
    return EmptyResult()


def _continue(response: Response, engine: StackEngine) -> Any:
    engine.continue_rollback(response._get_param("StackName"), response._get_param("ResourcesToSkip", []))
    return EmptyResult()


def _rollback(response: Response, engine: StackEngine) -> Any:
    retain_except_on_create = response._get_bool_param("RetainExceptOnCreate", False)
    stack = engine.rollback(response._get_param("StackName"), retain_except_on_create)
    return ActionResult({"StackId": stack.stack_id})


def _selected(response: Response, engine: StackEngine) -> list[Stack]:
    name = response._get_param("StackName")
    if name:
        return [engine.find(name)]
    return [stack for stack in engine.stacks() if stack.status != "DELETE_COMPLETE"]


def _stack(stack: Stack) -> dict[str, Any]:
    parameters = [
        {"ParameterKey": key, "ParameterValue": str(stack.given.get(key, body.get("Default", "")))}
        for key, body in stack.document.get("Parameters", {}).items()
    ]
    shape = {
        "StackId": stack.stack_id,
        "StackName": stack.name,
        "Description": stack.document.get("Description"),
        "Parameters": parameters,
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "DisableRollback": stack.options.disable_rollback,
        "NotificationARNs": [],
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        "Outputs": list(stack.outputs.values()),
        "RoleARN": stack.options.role_arn,
        "Tags": [{"Key": key, "Value": value} for key, value in stack.options.tags.items()],
        "EnableTerminationProtection": stack.options.termination_protection,
        "ParentId": stack.parent_id,
        "DriftInformation": {"StackDriftStatus": "NOT_CHECKED"},
    }
    return {key: value for key, value in shape.items() if value is not None}


def _summaries(response: Response, engine: StackEngine) -> list[dict[str, Any]]:
    wanted = response._get_param("StackStatusFilter", [])
    times = ("CreationTime", "LastUpdatedTime", "DeletionTime")
    keys = ("StackId", "StackName", *times, "StackStatus", "StackStatusReason", "ParentId")
    shapes = [_stack(stack) for stack in engine.stacks() if not wanted or stack.status in wanted]
    return [{key: shape[key] for key in keys if key in shape} for shape in shapes]


def _events(response: Response, engine: StackEngine) -> list[dict[str, Any]]:
    stack = engine.find(response._get_param("StackName"))
    return [_event(event) for event in reversed(list(stack.events))]


def _event(event: CloudEvent) -> dict[str, Any]:
    shape = {
        "StackId": event.stack_id,
        "EventId": event.event_id,
        "StackName": event.stack,
        "LogicalResourceId": event.logical_id,
        "PhysicalResourceId": event.physical_id,
        "ResourceType": event.resource_type,
        "Timestamp": event.time,
        "ResourceStatus": event.status,
    }
    return {**shape, "ResourceStatusReason": event.reason} if event.reason else shape


def _resource(stack: Stack, resource: Resource) -> dict[str, Any]:
    moment = resource.updated or stack.created
    return {
        "StackName": stack.name,
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.result.physical_id,
        "ResourceType": resource.resource_type,
        "Timestamp": moment,
        "LastUpdatedTimestamp": moment,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason,
        "DriftInformation": {"StackResourceDriftStatus": "NOT_CHECKED"},
    }


def _resources(response: Response, engine: StackEngine) -> list[dict[str, Any]]:
    stack = _stack_of(response, engine)
    logical_id = response._get_param("LogicalResourceId")
    listed = [*stack.resources.values(), *stack.skipped]
    found = [resource for resource in listed if logical_id in (None, resource.logical_id)]
    return [_resource(stack, resource) for resource in found]


def _stack_of(response: Response, engine: StackEngine) -> Stack:
    name, physical_id = response._get_param("StackName"), response._get_param("PhysicalResourceId")
    if name:
        return engine.find(name)
    for stack in engine.stacks():
        if any(resource.result.physical_id == physical_id for resource in list(stack.resources.values())):
            return stack
    raise TemplateInvalid(f"Stack for {physical_id} does not exist")


def _one_resource(response: Response, engine: StackEngine) -> dict[str, Any]:
    found = _resources(response, engine)
    if not found:
        name, stack = response._get_param("LogicalResourceId"), response._get_param("StackName")
        raise TemplateInvalid(f"Resource {name} does not exist for stack {stack}")
    return found[0]


def _template(stack: Stack) -> dict[str, Any]:
    return {"TemplateBody": stack.text, "StagesAvailable": ["Original", "Processed"]}


def _template_summary(response: Response, engine: StackEngine, fetch: Callable[[str], str]) -> dict[str, Any]:
    name = response._get_param("StackName")
    document = template.parse(engine.find(name).text if name else _body(response, fetch) or "")
    parameters = [
        {"ParameterKey": key, "ParameterType": body.get("Type"), "DefaultValue": body.get("Default"), "NoEcho": False}
        for key, body in document.get("Parameters", {}).items()
    ]
    kinds = sorted({str(body["Type"]) for body in document["Resources"].values()})
    return {"Parameters": parameters, "ResourceTypes": kinds}


def _validate(response: Response, fetch: Callable[[str], str]) -> dict[str, Any]:
    document = template.parse(_body(response, fetch) or "")
    template.check_references(document)
    return {"Description": document.get("Description", ""), "Parameters": []}


def _exports(engine: StackEngine) -> list[dict[str, str]]:
    return [
        {"Name": name, "Value": value, "ExportingStackId": owner} for name, (value, owner) in engine.exports().items()
    ]
