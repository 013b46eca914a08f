"""The function that starts acceptance and watches it, against the embedded AWS and recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from rehearsal.cloud.server import EmbeddedAws
from stacks.acceptance_handler import index

INSTANCE = "i-0123456789abcdef0"
PROPERTIES = {
    "ClusterName": "ml",
    "InstanceId": INSTANCE,
    "ResultsBucket": "ml-results",
    "TimeoutMinutes": "30",  # CloudFormation sends every number as a string
    "BundleSha256": "0" * 64,
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    with EmbeddedAws("us-east-1", tmp_path / "aws") as cloud:
        cloud.register_instance(INSTANCE, "head", "10.0.0.4")
        cloud.set_ssm_runner(lambda *_: (0, "", ""))
        for name, value in cloud.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.address_endpoint)
        yield boto3.client("ssm")


def event(kind: str, **changes: Any) -> dict[str, Any]:
    return {"RequestType": kind, "ResourceProperties": PROPERTIES, **changes}


def invocation(status: str, output: str = "", error: str = "", code: int = 0) -> dict[str, Any]:
    return {"Status": status, "StandardOutputContent": output, "StandardErrorContent": error, "ResponseCode": code}


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_starts_the_constant_command_on_the_head_node(aws: Any, kind: str) -> None:
    answer = index.on_event(event(kind))
    (command,) = aws.list_commands()["Commands"]
    assert answer == {"PhysicalResourceId": "acceptance-ml", "Data": {"CommandId": command["CommandId"]}}
    assert command["InstanceIds"] == [INSTANCE]
    assert command["Parameters"] == {
        "commands": [
            "/usr/local/bin/acceptance run --scenario /opt/slipway/current/acceptance.json"
            " --output /fsx/results --upload s3://ml-results/acceptance/"
        ],
        "executionTimeout": ["1800"],
    }


def test_delete_touches_nothing(aws: Any) -> None:
    assert index.on_event(event("Delete")) == {"PhysicalResourceId": "acceptance-ml"}
    assert index.is_complete(event("Delete")) == {"IsComplete": True}
    assert aws.list_commands()["Commands"] == []


@pytest.mark.parametrize(
    ("name", "value"), [("ResultsBucket", "b; reboot"), ("ResultsBucket", "$(id)"), ("InstanceId", "i-1 i-2")]
)
def test_no_value_becomes_shell(aws: Any, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        index.on_event({"RequestType": "Create", "ResourceProperties": {**PROPERTIES, name: value}})
    assert aws.list_commands()["Commands"] == []


@pytest.fixture
def refusing(aws: Any, monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """Systems Manager's refusals that moto does not make: AWS's error codes, answered by botocore's stubber."""
    monkeypatch.setattr(index.boto3, "client", lambda _: aws)
    monkeypatch.setattr(index, "AGENT_RETRY_S", 0)
    stubber = Stubber(aws)
    stubber.activate()
    return stubber


def test_a_command_not_yet_known_is_waited_for(refusing: Stubber) -> None:
    refusing.add_client_error("get_command_invocation", "InvocationDoesNotExist")
    assert index.is_complete(event("Create", Data={"CommandId": "0" * 36})) == {"IsComplete": False}


def test_an_agent_not_yet_registered_is_waited_for(refusing: Stubber) -> None:
    refusing.add_client_error("send_command", "InvalidInstanceId")
    refusing.add_response("send_command", {"Command": {"CommandId": "0" * 36}})
    assert index.on_event(event("Create"))["Data"] == {"CommandId": "0" * 36}


def test_an_agent_that_never_comes_is_named(refusing: Stubber, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "AGENT_WAIT_S", -1)
    refusing.add_client_error("send_command", "InvalidInstanceId")
    with pytest.raises(index.NotAccepted, match=f"head node {INSTANCE} did not register"):
        index.on_event(event("Create"))


def test_a_sent_command_is_found_again(aws: Any) -> None:
    started = index.on_event(event("Create"))
    assert index.is_complete(event("Create", **started))["IsComplete"] is True


@pytest.mark.parametrize("status", ["Pending", "InProgress", "Delayed"])
def test_running(status: str) -> None:
    assert index._judge(invocation(status), PROPERTIES) == {"IsComplete": False}


def test_accepted() -> None:
    output = "run 20261127-101500\nreport: /fsx/results/20261127-101500/report.html\n[RESULT] SUCCESS\n"
    assert index._judge(invocation("Success", output), PROPERTIES) == {
        "IsComplete": True,
        "Data": {"RunId": "20261127-101500", "Summary": "[RESULT] SUCCESS"},
    }


FAILED = "/fsx/results/r1/report.json\n[RESULT] FAILURE: early, x\n[RESULT] FAILURE: gpu-3 slow, all_reduce\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            invocation("Failed", FAILED, code=1),
            "[RESULT] FAILURE: gpu-3 slow, all_reduce; report: s3://ml-results/acceptance/r1/",
        ),
        (
            invocation("TimedOut"),
            "[RESULT] FAILURE: acceptance did not end within 30 minutes, on the head node",
        ),
        (
            invocation("Failed", error="a\nacceptance: not found\n", code=127),
            "[RESULT] FAILURE: acceptance ended with Failed (exit 127) on the head node: acceptance: not found",
        ),
        (
            invocation("Cancelled", code=-1),
            "[RESULT] FAILURE: acceptance ended with Cancelled (exit -1) on the head node: no output",
        ),
    ],
)
def test_not_accepted_carries_the_verdict(answer: dict[str, Any], message: str) -> None:
    with pytest.raises(index.NotAccepted) as raised:
        index._judge(answer, PROPERTIES)
    assert str(raised.value) == message


def test_a_long_reason_is_cut_before_cloudformation_does() -> None:
    with pytest.raises(index.NotAccepted) as raised:
        index._judge(invocation("Failed", f"[RESULT] FAILURE: {'x' * 5000}\n"), PROPERTIES)
    assert len(str(raised.value)) == index.MESSAGE_CHARACTERS
