"""Systems Manager's commands and AMP's remote write."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud.server import EmbeddedAws

HEAD = "i-0123456789abcdef0"


@pytest.fixture
def ssm(aws: EmbeddedAws) -> Any:
    aws.register_instance(HEAD, "head", "10.0.0.10")
    return aws.clients("ssm")


def send(ssm: Any, *commands: str, instance: str = HEAD, timeout_s: int = 60) -> str:
    parameters = {"commands": list(commands), "executionTimeout": [str(timeout_s)]}
    made = ssm.send_command(InstanceIds=[instance], DocumentName="AWS-RunShellScript", Parameters=parameters)
    return str(made["Command"]["CommandId"])


def state(ssm: Any, command: str) -> dict[str, Any]:
    answer: dict[str, Any] = ssm.get_command_invocation(CommandId=command, InstanceId=HEAD)
    return answer


def test_a_command_runs_while_it_is_asked_for(
    aws: EmbeddedAws, ssm: Any, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    gate = threading.Event()
    got: list[tuple[str, list[str], float]] = []

    def runner(instance: str, commands: list[str], timeout_s: float) -> tuple[int, str, str]:
        got.append((instance, commands, timeout_s))
        gate.wait(120)
        return 1, "out\n[RESULT] FAILURE: gpu-3\n", "err"

    aws.set_ssm_runner(runner)
    command = send(ssm, "acceptance run", "echo done", timeout_s=77)
    eventually(lambda: state(ssm, command)["Status"] == "InProgress")
    gate.set()
    eventually(lambda: state(ssm, command)["Status"] == "Failed")
    done = state(ssm, command)
    assert got == [(HEAD, ["acceptance run", "echo done"], 77.0)]
    assert (done["ResponseCode"], done["StandardErrorContent"]) == (1, "err")
    assert done["StandardOutputContent"].endswith("[RESULT] FAILURE: gpu-3\n")
    listed = ssm.list_command_invocations(CommandId=command, Details=True)["CommandInvocations"][0]
    assert (listed["Status"], listed["CommandPlugins"][0]["ResponseCode"]) == ("Failed", 1)


def test_success_is_told_and_output_is_cut_as_on_aws(
    aws: EmbeddedAws, ssm: Any, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    aws.set_ssm_runner(lambda *_: (0, "x" * 100_000, ""))
    command = send(ssm, "true")
    eventually(lambda: state(ssm, command)["Status"] == "Success")
    assert len(state(ssm, command)["StandardOutputContent"]) == 24_000


def test_a_timeout_is_told_apart(aws: EmbeddedAws, ssm: Any, eventually: Callable[[Callable[[], bool]], None]) -> None:
    def runner(instance: str, commands: list[str], timeout_s: float) -> tuple[int, str, str]:
        raise TimeoutError(f"not done after {timeout_s:.0f} s")

    aws.set_ssm_runner(runner)
    command = send(ssm, "sleep 100", timeout_s=5)
    eventually(lambda: state(ssm, command)["Status"] == "TimedOut")
    assert state(ssm, command)["StatusDetails"] == "ExecutionTimedOut"


def test_only_registered_instances_take_commands(ssm: Any) -> None:
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, "true", instance="i-0000000000000dead")
    filters = [{"Key": "InstanceIds", "Values": [HEAD]}]
    known = ssm.describe_instance_information(Filters=filters)["InstanceInformationList"]
    assert [(item["InstanceId"], item["PingStatus"]) for item in known] == [(HEAD, "Online")]
    nobody = [{"Key": "InstanceIds", "Values": ["i-0000000000000dead"]}]
    assert ssm.describe_instance_information(Filters=nobody)["InstanceInformationList"] == []


def test_unknown_commands_and_documents_are_refused(ssm: Any) -> None:
    with pytest.raises(ClientError, match="InvalidCommandId"):
        state(ssm, "11111111-2222-3333-4444-555555555555")
    with pytest.raises(ClientError, match="InvalidDocument"):
        ssm.send_command(InstanceIds=[HEAD], DocumentName="Custom-Document", Parameters={})


def post(url: str, body: bytes | None) -> int:
    try:
        request = urllib.request.Request(url, data=body)  # noqa: S310 (our own http address)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (our own http address)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_remote_write_is_accepted_and_a_query_refused(aws: EmbeddedAws) -> None:
    workspace = aws.clients("amp").create_workspace(alias="ml")["workspaceId"]
    base = f"{aws.address_endpoint}/workspaces"
    write = f"{workspace}/api/v1/remote_write"
    codes = [
        post(f"{base}/{write}", b"12345"),
        post(f"{base}/{write}", b""),
        post(f"{base}/{workspace}/api/v1/query", b"query=up"),
        post(f"{base}/ws-00000000-0000-0000-0000-000000000000/api/v1/remote_write", b"x"),
    ]
    assert codes == [204, 400, 501, 404]
