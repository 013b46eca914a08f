"""Custom resources: our own handlers, the CDK's Provider framework, Lambda functions, and the CDK's Node helpers.

Contracts: the CloudFormation user guide, "Custom resources" (request and response objects; scalars arrive as
strings), and the CDK's `custom_resources` documentation, "Provider framework" (onEvent, isComplete, query interval,
total timeout).

The framework itself and some of the CDK's helpers are Node.js functions that need AWS's runtime. They are
replaced here; the product's Python functions behind the framework run as they are.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moto.awslambda.models import LambdaFunction
from moto.stepfunctions.models import stepfunctions_backends

from rehearsal.cloud.clients import Clients, aws_reasons
from rehearsal.cloud.functions import FunctionError, FunctionRunner
from rehearsal.cloud.template import stringify
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, ResourceRequest, ResourceResult
from rehearsal.permissions.authority import Authority

#: A handler in Python: gets the request, returns physical id and attributes, raises ResourceFailed(reason).
Handler = Callable[[ResourceRequest], ResourceResult]
#: Where a plain Lambda function puts its answer.
RESPONSE_PATH = "/_rehearsal/cfn-response/"
_RESPONSE_WAIT_S = 5.0  # after the function returned, its answer is there or will not come
_DATA_LIMIT_BYTES = 4096  # CloudFormation's limit for a custom resource's response
_DEFAULT_INTERVAL_S, _DEFAULT_TOTAL_S = 5.0, 1800.0  # the framework's defaults


class CustomResources:
    """Serves every `Custom::*` type.

    `interval_s` replaces the framework's query interval when given (a rehearsal need not wait as long); the number of
    seconds after which the framework gives up stays the template's.
    """

    def __init__(
        self,
        clients: Clients,
        functions: FunctionRunner,
        endpoint: Callable[[], str],
        authority: Authority,
        interval_s: float | None = None,
    ) -> None:
        self._authority = authority
        self._clients = clients
        self._functions = functions
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._handlers: dict[str, Handler] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._answered = threading.Condition()
        self._stopping = threading.Event()

    def register(self, type_name: str, handler: Handler) -> None:
        """Let `handler` serve a type instead of the function that its ServiceToken names."""
        self._handlers[type_name] = handler

    def stop(self) -> None:
        """End waits soon; resources that are being waited for fail."""
        self._stopping.set()

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Create: the physical id comes from the handler, else one is generated."""
        return self._serve(request)

    def update(self, request: ResourceRequest, _current: ResourceResult) -> ResourceResult:
        """Update: another physical id means replacement; the engine deletes the old one later."""
        return self._serve(request)

    def delete(self, request: ResourceRequest, _current: ResourceResult) -> None:
        """Delete."""
        self._serve(request)

    def _serve(self, request: ResourceRequest) -> ResourceResult:
        sent = _as_sent(request)
        handler = self._handlers.get(request.resource_type)
        token = str(request.properties.get("ServiceToken", ""))
        if ":function:" not in token:
            if handler is not None:
                return handler(sent)
            raise ResourceFailed(
                f"ServiceToken {token or '(none)'} of {request.resource_type} is no Lambda function, and the rehearsal"
                " has no handler for that type"
            )
        function = self._functions.find(token)
        self._functions.log_group(function)
        self._authority.authorize_thread("lambda:InvokeFunction", token)
        role = self._authority.session(function.role, function.function_name)
        if handler is not None:
            with self._authority.as_role(role):
                return handler(sent)
        variables = function.environment_vars or {}
        if "USER_ON_EVENT_FUNCTION_ARN" in variables:
            with self._authority.as_role(role):
                return self._provider(sent, variables)
        if str(function.run_time).startswith("python"):
            return self._plain(sent, function)
        stand_in = _NODE_STAND_INS.get(request.resource_type)
        if stand_in is None:
            raise ResourceFailed(
                f"{request.resource_type} is served by a {function.run_time} function, which the rehearsal's cloud does"
                " not run and has no stand-in for (rehearsal/cloud/custom.py)"
            )
        with self._authority.as_role(role), aws_reasons():
            return stand_in(self._clients, sent)

    # ---- the Provider framework ----

    def _provider(self, request: ResourceRequest, variables: Mapping[str, str]) -> ResourceResult:
        event = _event(request)
        created = _Answer.of(event, self._call(variables["USER_ON_EVENT_FUNCTION_ARN"], event, request))
        if request.request_type == "Delete" and created.physical_id != request.physical_id:
            raise ResourceFailed(
                f'DELETE: cannot change the physical resource ID from "{request.physical_id}" to'
                f' "{created.physical_id}" during deletion'
            )
        checker = variables.get("USER_IS_COMPLETE_FUNCTION_ARN")
        if checker:
            event = {**event, **created.extra, "PhysicalResourceId": created.physical_id, "Data": created.data}
            created = self._wait(request, checker, event, created, variables)
        return ResourceResult(created.physical_id, _attributes(created.data))

    def _wait(
        self,
        request: ResourceRequest,
        checker: str,
        event: dict[str, Any],
        created: _Answer,
        variables: Mapping[str, str],
    ) -> _Answer:
        interval_s, total_s = self._patience(variables.get("WAITER_STATE_MACHINE_ARN", ""))
        deadline = time.monotonic() + total_s
        while True:
            answer = self._call(checker, event, request, created.physical_id) or {}
            if not isinstance(answer, dict) or "IsComplete" not in answer:
                raise ResourceFailed('"isComplete" must return an object with IsComplete', created.physical_id)
            if answer["IsComplete"]:
                return _Answer(created.physical_id, {**created.data, **(answer.get("Data") or {})}, {})
            if answer.get("Data"):
                raise ResourceFailed('"Data" is not allowed if "IsComplete" is "False"', created.physical_id)
            if time.monotonic() + interval_s > deadline:
                raise ResourceFailed(f"Operation timed out after {total_s:.0f} s", created.physical_id)
            if self._stopping.wait(interval_s):
                raise ResourceFailed("the embedded AWS is being stopped", created.physical_id)

    def _patience(self, state_machine_arn: str) -> tuple[float, float]:
        """Interval and total time in seconds: the retry rule of the framework's waiter state machine."""
        interval_s, total_s = _DEFAULT_INTERVAL_S, _DEFAULT_TOTAL_S
        for machine in stepfunctions_backends[ACCOUNT][self._clients.region].state_machines:
            if machine.arn == state_machine_arn:
                seconds = re.search(r'"IntervalSeconds"\s*:\s*(\d+)', machine.definition)
                attempts = re.search(r'"MaxAttempts"\s*:\s*(\d+)', machine.definition)
                if seconds and attempts:
                    interval_s = float(seconds.group(1))
                    total_s = interval_s * int(attempts.group(1))
        return (self._interval_s if self._interval_s is not None else interval_s), total_s

    def _call(self, arn: str, event: Mapping[str, Any], request: ResourceRequest, physical_id: str = "") -> Any:
        function = self._functions.find(arn)
        self._authority.authorize_thread("lambda:InvokeFunction", function.function_arn)
        try:
            return self._functions.invoke(function, event).result
        except FunctionError as error:
            made = physical_id or request.physical_id
            raise ResourceFailed(f"Error: {error} ({error.kind} in {function.function_name})", made) from None

    # ---- a plain Lambda function ----

    def _plain(self, request: ResourceRequest, function: LambdaFunction) -> ResourceResult:
        token = uuid.uuid4().hex
        event = {**_event(request), "ResponseURL": f"{self._endpoint()}{RESPONSE_PATH}{token}"}
        try:
            self._functions.invoke(function, event)
        except FunctionError as error:
            # AWS would wait for an hour for an answer that cannot come; the fault is the same, an hour earlier.
            raise ResourceFailed(
                f"{function.function_name} raised {error.kind}: {error}", request.physical_id
            ) from None
        with self._answered:
            self._answered.wait_for(lambda: token in self._answers, _RESPONSE_WAIT_S)
            answer = self._answers.pop(token, None)
        if answer is None:
            raise ResourceFailed(
                f"{function.function_name} returned without an answer to ResponseURL (AWS waits 1 hour)"
            )
        physical_id = str(answer.get("PhysicalResourceId") or request.physical_id or event["RequestId"])
        if answer.get("Status") != "SUCCESS":
            reason = answer.get("Reason") or "FAILED without a reason"
            raise ResourceFailed(
                f"Received response status [FAILED] from custom resource. Message returned: {reason}", physical_id
            )
        return ResourceResult(physical_id, _attributes(answer.get("Data") or {}))

    def answer(self, token: str, body: bytes) -> bool:
        """Take what a function put to its ResponseURL; False when it is no JSON object."""
        try:
            document = json.loads(body)
        except ValueError:
            return False
        if not isinstance(document, dict):
            return False
        with self._answered:
            self._answers[token] = document
            self._answered.notify_all()
        return True


class _Answer:
    """What onEvent returned, with the framework's defaults filled in."""

    def __init__(self, physical_id: str, data: dict[str, Any], extra: dict[str, Any]) -> None:
        self.physical_id = physical_id
        self.data = data
        self.extra = extra

    @classmethod
    def of(cls, event: Mapping[str, Any], returned: Any) -> _Answer:
        if returned is not None and not isinstance(returned, dict):
            raise ResourceFailed("return values from user-handlers must be JSON objects")
        answer = dict(returned or {})
        default = event["RequestId"] if event["RequestType"] == "Create" else event["PhysicalResourceId"]
        physical_id = str(answer.pop("PhysicalResourceId", None) or default)
        data = answer.pop("Data", None) or {}
        return cls(physical_id, data, {key: value for key, value in answer.items() if key not in event})


def _as_sent(request: ResourceRequest) -> ResourceRequest:
    """The request with properties as CloudFormation sends them: every scalar a string."""
    return replace(
        request,
        properties=stringify(dict(request.properties)),
        old_properties=stringify(dict(request.old_properties)),
    )


def _event(request: ResourceRequest) -> dict[str, Any]:
    event: dict[str, Any] = {
        "RequestType": request.request_type,
        "ServiceToken": request.properties.get("ServiceToken", ""),
        "ResponseURL": "...",
        "StackId": request.stack_id,
        "RequestId": str(uuid.uuid4()),
        "LogicalResourceId": request.logical_id,
        "ResourceType": request.resource_type,
        "ResourceProperties": dict(request.properties),
    }
    if request.request_type != "Create":
        event["PhysicalResourceId"] = request.physical_id
    if request.request_type == "Update":
        event["OldResourceProperties"] = dict(request.old_properties)
    return event


def _attributes(data: Mapping[str, Any]) -> dict[str, Any]:
    if len(json.dumps(data)) > _DATA_LIMIT_BYTES:
        raise ResourceFailed("Response object is too long.")
    return dict(data)


# ---- the CDK's own Node.js helpers ----


def _empty_bucket(clients: Clients, request: ResourceRequest) -> ResourceResult:
    """Custom::S3AutoDeleteObjects: empties its bucket on Delete."""
    bucket = str(request.properties["BucketName"])
    if request.request_type == "Delete":
        s3 = clients("s3")
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for item in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                s3.delete_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
    return ResourceResult(request.physical_id or f"{bucket}-auto-delete", {})


def _log_retention(clients: Clients, request: ResourceRequest) -> ResourceResult:
    """Custom::LogRetention: makes the group and sets its retention."""
    name = str(request.properties["LogGroupName"])
    logs = clients("logs")
    if request.request_type != "Delete":
        existing = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        if not any(group["logGroupName"] == name for group in existing):
            logs.create_log_group(logGroupName=name)
        if "RetentionInDays" in request.properties:
            logs.put_retention_policy(logGroupName=name, retentionInDays=int(request.properties["RetentionInDays"]))
    return ResourceResult(name, {"LogGroupName": name})


def _restrict_default_group(clients: Clients, request: ResourceRequest) -> ResourceResult:
    """Custom::VpcRestrictDefaultSG: takes the rules of a VPC's default security group away."""
    group_id = str(request.properties["DefaultSecurityGroupId"])
    ec2 = clients("ec2")
    if request.request_type != "Delete":
        group = ec2.describe_security_groups(GroupIds=[group_id])["SecurityGroups"][0]
        if group["IpPermissions"]:
            ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=group["IpPermissions"])
        if group["IpPermissionsEgress"]:
            ec2.revoke_security_group_egress(GroupId=group_id, IpPermissions=group["IpPermissionsEgress"])
    return ResourceResult(request.physical_id or f"{group_id}-restricted", {})


_NODE_STAND_INS: Mapping[str, Callable[[Clients, ResourceRequest], ResourceResult]] = {
    "Custom::S3AutoDeleteObjects": _empty_bucket,
    "Custom::LogRetention": _log_retention,
    "Custom::VpcRestrictDefaultSG": _restrict_default_group,
}
