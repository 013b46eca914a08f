"""Systems Manager: commands that really run on the rehearsal's hosts.

moto answers every send-command with an empty success. Here AWS-RunShellScript runs through a *runner* that the engine
gives, in a thread of its own, and its state, exit code and output are asked for as on AWS: output is cut at 24,000
characters, the first moments are Pending and InProgress, a time-out is TimedOut.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ssm.exceptions import SSMException
from moto.ssm.responses import SimpleSystemManagerResponse as Response

log = logging.getLogger("rehearsal.cloud")

#: runner(instance id, commands, timeout in seconds) -> (exit code, stdout, stderr); raises TimeoutError.
Runner = Callable[[str, "list[str]", float], "tuple[int, str, str]"]

#: What the agent of an instance needs to be known and to take commands and sessions. Source: Systems Manager user
#: guide, "Reference: ec2messages, ssmmessages, and other API operations" and "Minimum Session Manager permissions".
AGENT_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenDataChannel",
)
STDOUT_LIMIT_CHARS = 24_000
STDERR_LIMIT_CHARS = 8_000
_CUT = "\n---Output truncated---"
_DEFAULT_TIMEOUT_S = 3600.0
_MAX_TIMEOUT_S = 172_800.0
_DONE = ("Success", "Failed", "TimedOut", "Cancelled")
_DOCUMENT = "AWS-RunShellScript"


def _refusal(code: str, message: str) -> Exception:
    error: Exception = SSMException(code, message)
    return error


@dataclass
class Invocation:
    """One command on one instance."""

    command_id: str
    instance_id: str
    comment: str
    commands: list[str]
    timeout_s: float
    status: str = "Pending"
    response_code: int = -1
    stdout: str = ""
    stderr: str = ""
    requested: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    ended: datetime | None = None


class CommandService:
    """Commands of the region, and the instances that can take them."""

    def __init__(self) -> None:
        self._runner: Runner | None = None
        self._instances: dict[str, dict[str, str]] = {}
        self._invocations: dict[str, list[Invocation]] = {}
        self._lock = threading.Lock()

    def set_runner(self, runner: Runner | None) -> None:
        """What runs commands from now on."""
        self._runner = runner

    def register(self, instance_id: str, name: str = "", address: str = "") -> None:
        """An instance's agent reports: it may be sent commands."""
        with self._lock:
            self._instances[instance_id] = {"ComputerName": name, "IPAddress": address}

    def unregister(self, instance_id: str) -> None:
        """The instance is gone."""
        with self._lock:
            self._instances.pop(instance_id, None)

    def send(self, response: Response) -> ActionResult:
        """SendCommand."""
        document = response._get_param("DocumentName")
        if document != _DOCUMENT:
            raise _refusal(
                "InvalidDocument", f"Document {document} does not exist in the rehearsal's cloud: only {_DOCUMENT}"
            )
        instance_ids = list(response._get_param("InstanceIds", []))
        for target in response._get_param("Targets", []):
            if target["Key"].lower() == "instanceids":
                instance_ids += target["Values"]
        with self._lock:
            unknown = [name for name in instance_ids if name not in self._instances]
        if unknown or not instance_ids:
            raise _refusal("InvalidInstanceId", f"Instances {unknown or instance_ids} not in a valid state for account")
        parameters = response._get_param("Parameters", {})
        timeout_s = float((parameters.get("executionTimeout") or [_DEFAULT_TIMEOUT_S])[0])
        command_id = str(uuid.uuid4())
        made = [
            Invocation(
                command_id,
                instance_id,
                response._get_param("Comment", ""),
                list(parameters.get("commands", [])),
                min(timeout_s, _MAX_TIMEOUT_S),
            )
            for instance_id in instance_ids
        ]
        with self._lock:
            self._invocations[command_id] = made
        for invocation in made:
            threading.Thread(target=self._run, args=(invocation,), name="ssm-command", daemon=True).start()
        return ActionResult({"Command": _command(made)})

    def _run(self, invocation: Invocation) -> None:
        invocation.started, invocation.status = datetime.now(UTC), "InProgress"
        code, stdout, stderr, status = self._result(invocation)
        invocation.response_code = code
        invocation.stdout = _cut(stdout, STDOUT_LIMIT_CHARS)
        invocation.stderr = _cut(stderr, STDERR_LIMIT_CHARS)
        invocation.ended = datetime.now(UTC)
        invocation.status = status  # last: a reader that sees the new status sees the other fields too

    def _result(self, invocation: Invocation) -> tuple[int, str, str, str]:
        if self._runner is None:
            return -1, "", "no host takes commands in this rehearsal", "Failed"
        try:
            code, stdout, stderr = self._runner(invocation.instance_id, invocation.commands, invocation.timeout_s)
        except TimeoutError as error:
            return -1, "", str(error), "TimedOut"
        except Exception as error:
            log.exception("the runner of commands raised for %s", invocation.instance_id)
            return -1, "", f"{type(error).__name__}: {error}", "Failed"
        return code, stdout, stderr, "Success" if code == 0 else "Failed"

    def _of(self, command_id: str | None) -> list[Invocation]:
        with self._lock:
            if command_id is None:
                return [item for items in self._invocations.values() for item in items]
            if command_id not in self._invocations:
                raise _refusal("InvalidCommandId", "The specified command ID is not valid")
            return list(self._invocations[command_id])

    def get_invocation(self, response: Response) -> ActionResult:
        """GetCommandInvocation."""
        instance_id = response._get_param("InstanceId")
        for invocation in self._of(response._get_param("CommandId")):
            if invocation.instance_id == instance_id:
                return ActionResult(_invocation(invocation))
        raise _refusal("InvocationDoesNotExist", "The command ID and managed node ID did not match any invocations")

    def list_invocations(self, response: Response) -> ActionResult:
        """ListCommandInvocations, with Details."""
        instance_id = response._get_param("InstanceId")
        details = response._get_param("Details", False)
        shapes = [
            _listed(invocation, bool(details))
            for invocation in self._of(response._get_param("CommandId"))
            if instance_id in (None, invocation.instance_id)
        ]
        return ActionResult({"CommandInvocations": shapes})

    def list_commands(self, response: Response) -> ActionResult:
        """ListCommands."""
        command_id = response._get_param("CommandId")
        if command_id is not None:
            return ActionResult({"Commands": [_command(self._of(command_id))]})
        with self._lock:
            made = [list(items) for items in self._invocations.values()]
        return ActionResult({"Commands": [_command(items) for items in made]})

    def describe_instances(self, response: Response) -> ActionResult:
        """DescribeInstanceInformation, with the InstanceIds filter in both of its forms."""
        wanted: set[str] | None = None
        for key in ("Filters", "InstanceInformationFilterList"):
            for item in response._get_param(key, []):
                if (item.get("Key") or item.get("key")) == "InstanceIds":
                    wanted = set(item.get("Values") or item.get("valueSet") or [])
        with self._lock:
            known = dict(self._instances)
        shapes = [
            {
                "InstanceId": instance_id,
                "PingStatus": "Online",
                "LastPingDateTime": datetime.now(UTC),
                "PlatformType": "Linux",
                "ResourceType": "EC2Instance",
                **facts,
            }
            for instance_id, facts in known.items()
            if wanted is None or instance_id in wanted
        ]
        return ActionResult({"InstanceInformationList": shapes})

    def install(self) -> None:
        """Answer moto's Systems Manager endpoint for these actions."""
        actions: dict[str, Callable[[Response], ActionResult]] = {
            "send_command": self.send,
            "get_command_invocation": self.get_invocation,
            "list_command_invocations": self.list_invocations,
            "list_commands": self.list_commands,
            "describe_instance_information": self.describe_instances,
        }
        for name, action in actions.items():
            setattr(Response, name, lambda response, act=action: act(response))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def _command(made: list[Invocation]) -> dict[str, Any]:
    states = [invocation.status for invocation in made]
    status = next((s for s in ("InProgress", "Pending", "TimedOut", "Failed") if s in states), "Success")
    return {
        "CommandId": made[0].command_id,
        "DocumentName": _DOCUMENT,
        "Comment": made[0].comment,
        "RequestedDateTime": made[0].requested,
        "InstanceIds": [invocation.instance_id for invocation in made],
        "Parameters": {"commands": made[0].commands, "executionTimeout": [str(int(made[0].timeout_s))]},
        "Status": status,
        "StatusDetails": status,
        "TargetCount": len(made),
        "CompletedCount": sum(state in _DONE for state in states),
        "ErrorCount": states.count("Failed"),
        "TimeoutSeconds": int(made[0].timeout_s),
    }


def _details(status: str) -> str:
    return "ExecutionTimedOut" if status == "TimedOut" else status


def _invocation(item: Invocation) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "CommandId": item.command_id,
        "InstanceId": item.instance_id,
        "Comment": item.comment,
        "DocumentName": _DOCUMENT,
        "PluginName": "aws:runShellScript",
        "ResponseCode": item.response_code,
        "Status": item.status,
        "StatusDetails": _details(item.status),
        "StandardOutputContent": item.stdout,
        "StandardErrorContent": item.stderr,
    }
    if item.started:
        shape["ExecutionStartDateTime"] = item.started.isoformat()
    if item.ended and item.started:
        shape["ExecutionEndDateTime"] = item.ended.isoformat()
        shape["ExecutionElapsedTime"] = f"PT{(item.ended - item.started).total_seconds():.3f}S"
    return shape


def _listed(item: Invocation, details: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "CommandId": item.command_id,
        "InstanceId": item.instance_id,
        "Comment": item.comment,
        "DocumentName": _DOCUMENT,
        "RequestedDateTime": item.requested,
        "Status": item.status,
        "StatusDetails": _details(item.status),
    }
    if details:
        plugin = {
            "Name": "aws:runShellScript",
            "Status": item.status,
            "StatusDetails": _details(item.status),
            "ResponseCode": item.response_code,
            "Output": item.stdout + (f"\n----------ERROR-------\n{item.stderr}" if item.stderr else ""),
            "ResponseStartDateTime": item.started,
            "ResponseFinishDateTime": item.ended,
        }
        shape["CommandPlugins"] = [{key: value for key, value in plugin.items() if value is not None}]
    return shape
