"""The function that starts acceptance and watches it, against the embedded AWS and recorded answers."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from stacks.acceptance_handler import index

INSTANCE = "i-0123456789abcdef0"
PROPERTIES = {
    "ClusterName": "ml",
    "InstanceId": INSTANCE,
    "ResultsBucket": "ml-results",
    "TimeoutMinutes": "30",  # CloudFormation sends every number as a string
    "Release": "f" * 64,
    "Basis": "0" * 64,
    "Asked": "",
}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmbeddedAws]:
    with EmbeddedAws("us-east-1", tmp_path / "aws") as started:
        started.register_instance(INSTANCE, "head", "10.0.0.4")
        started.set_ssm_runner(lambda *_: (0, "", ""))
        for name, value in started.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", started.address_endpoint)
        yield started


@pytest.fixture
def aws(cloud: EmbeddedAws) -> Any:
    return cloud.clients("ssm")


def event(kind: str, **changes: Any) -> dict[str, Any]:
    return {"RequestType": kind, "ResourceProperties": PROPERTIES, **changes}


def invocation(status: str, output: str = "", error: str = "", code: int = 0) -> dict[str, Any]:
    return {"Status": status, "StandardOutputContent": output, "StandardErrorContent": error, "ResponseCode": code}


def test_starts_the_constant_command_on_the_head_node(aws: Any) -> None:
    answer = index.on_event(event("Create"))
    (command,) = aws.list_commands()["Commands"]
    assert answer == {"PhysicalResourceId": "acceptance-ml", "Data": {"CommandId": command["CommandId"]}}
    assert command["InstanceIds"] == [INSTANCE]
    assert command["Parameters"] == {
        "commands": [
            f"/opt/slipway/current/nodes/status/node_status.py --expect {'f' * 64} && "
            "/usr/local/bin/acceptance run --scenario /opt/slipway/current/acceptance.json"
            " --output /fsx/results --upload s3://ml-results/acceptance/"
        ],
        "executionTimeout": ["1800"],
    }


# A stack with the verdict alone; the embedded CloudFormation creates, updates and rolls it back as AWS does.
TEMPLATE = {
    "Resources": {"Verdict": {"Type": "Custom::ClusterAcceptance", "Properties": {"ServiceToken": "x", **PROPERTIES}}},
    "Outputs": {"Summary": {"Value": {"Fn::GetAtt": ["Verdict", "Summary"]}}},
}


def serve(request: ResourceRequest) -> ResourceResult:
    """What the CDK's provider framework does with the two functions."""
    sent = {
        "RequestType": request.request_type,
        "StackId": request.stack_id,
        "ResourceProperties": request.properties,
        "OldResourceProperties": request.old_properties,
    }
    started = index.on_event(sent)
    try:
        while not (answer := index.is_complete({**sent, **started}))["IsComplete"]:
            time.sleep(0.02)
    except index.NotAccepted as error:
        raise ResourceFailed(str(error)) from None
    return ResourceResult(started["PhysicalResourceId"], answer.get("Data", {}))


class Verdict:
    """The stack, on a head node where ``release`` is in use and runs end as ``good`` says."""

    def __init__(self, cloud: EmbeddedAws) -> None:
        self._cloudformation = cloud.clients("cloudformation")
        self.commands: list[str] = []
        self.good, self.release = True, "f" * 64
        self._template = copy.deepcopy(TEMPLATE)
        cloud.set_ssm_runner(self.run)
        cloud.register_custom_resource("Custom::ClusterAcceptance", serve)
        self._cloudformation.create_stack(StackName="ml-acceptance", TemplateBody=json.dumps(TEMPLATE))
        self.wait()

    def run(self, _instance: str, commands: list[str], _timeout_s: float) -> tuple[int, str, str]:
        self.commands += commands
        if self.release not in commands[0]:
            return 1, "[RESULT] FAILURE: the head node uses release ffffffffffff, not eeeeeeeeeeee", ""
        if "acceptance run" not in commands[0]:
            return 0, "release eeeeeeeeeeee is in use\n", ""
        return (0, "[RESULT] SUCCESS", "") if self.good else (1, "[RESULT] FAILURE: slow", "")

    def update(self, **changes: str) -> tuple[str, str]:
        """Update the stack; returns its state and its output."""
        template = copy.deepcopy(self._template)
        template["Resources"]["Verdict"]["Properties"].update(changes)
        self._cloudformation.update_stack(StackName="ml-acceptance", TemplateBody=json.dumps(template))
        state, said = self.wait()
        self._template = template if state == "UPDATE_COMPLETE" else self._template
        return state, said

    def wait(self) -> tuple[str, str]:
        while True:
            (stack,) = self._cloudformation.describe_stacks(StackName="ml-acceptance")["Stacks"]
            if not stack["StackStatus"].endswith("_IN_PROGRESS"):
                return stack["StackStatus"], stack["Outputs"][0]["OutputValue"]
            time.sleep(0.02)

    def runs(self) -> int:
        return len([command for command in self.commands if "acceptance run" in command])


def test_an_update_measures_when_a_verdict_depends_on_it_and_a_rollback_never_does(cloud: EmbeddedAws) -> None:
    verdict = Verdict(cloud)
    assert verdict.runs() == 1
    verdict.release = "e" * 64
    state, said = verdict.update(Release="e" * 64, TimeoutMinutes="31")
    assert (state, verdict.runs(), len(verdict.commands)) == ("UPDATE_COMPLETE", 1, 2)
    assert said.startswith("not measured again: nothing that a verdict depends on has changed")
    assert verdict.update(Asked="after the switch was mended") == ("UPDATE_COMPLETE", "[RESULT] SUCCESS")
    assert verdict.runs() == 2
    verdict.good = False
    state, said = verdict.update(Basis="1" * 64)
    assert (state, verdict.runs()) == ("UPDATE_ROLLBACK_COMPLETE", 3)
    assert said.startswith("not measured again: an update failed and was rolled back")
    verdict.good = True
    assert verdict.update(Basis="1" * 64) == ("UPDATE_COMPLETE", "[RESULT] SUCCESS")
    assert verdict.runs() == 4


def test_a_release_that_the_head_node_did_not_keep_is_a_failed_update_and_measures_nothing(cloud: EmbeddedAws) -> None:
    verdict = Verdict(cloud)
    assert verdict.update(Release="e" * 64)[0] == "UPDATE_ROLLBACK_COMPLETE"
    assert verdict.update(Release="e" * 64, Basis="1" * 64)[0] == "UPDATE_ROLLBACK_COMPLETE"
    events = cloud.clients("cloudformation").describe_stack_events(StackName="ml-acceptance")["StackEvents"]
    reasons = [one["ResourceStatusReason"] for one in events if one["ResourceStatus"] == "UPDATE_FAILED"]
    assert reasons == ["[RESULT] FAILURE: the head node uses release ffffffffffff, not eeeeeeeeeeee"] * 2
    assert verdict.runs() == 2  # the second one was refused by the head node before it measured


def test_delete_touches_nothing(aws: Any) -> None:
    assert index.on_event(event("Delete")) == {"PhysicalResourceId": "acceptance-ml"}
    assert index.is_complete(event("Delete")) == {"IsComplete": True}
    assert aws.list_commands()["Commands"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("ResultsBucket", "b; reboot"), ("ResultsBucket", "$(id)"), ("InstanceId", "i-1 i-2"), ("Release", "f; reboot")],
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
