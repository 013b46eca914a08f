"""One embedded AWS for each test module, and small helpers around it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import CloudEvent

REGION = "us-east-1"
WAIT_S = 120.0


class Deployer:
    """Deploys templates through boto3 and waits; `events` is what the listener heard."""

    def __init__(self, aws: EmbeddedAws, events: list[CloudEvent]) -> None:
        self.aws = aws
        self.events = events
        self.api = aws.clients("cloudformation")

    def create(self, resources: dict[str, Any], name: str | None = None, **more: Any) -> dict[str, Any]:
        """Create a stack of these resources (plus Outputs, Parameters, ...) and return its description when done."""
        options = {key: more.pop(key) for key in ("DisableRollback", "OnFailure", "Tags") if key in more}
        given = more.pop("given", {})
        name = name or f"s{uuid.uuid4().hex[:8]}"
        body = json.dumps({"Resources": resources, **more})
        parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()]
        self.api.create_stack(StackName=name, TemplateBody=body, Parameters=parameters, **options)
        return self.done(name)

    def update(self, name: str, resources: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.api.update_stack(StackName=name, TemplateBody=json.dumps({"Resources": resources, **more}))
        return self.done(name)

    def delete(self, name: str) -> dict[str, Any]:
        stack_id = self.api.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        self.api.delete_stack(StackName=name)
        return self.done(stack_id)

    def done(self, name: str) -> dict[str, Any]:
        assert self.aws.stacks.wait_idle(WAIT_S), "a stack operation did not end"
        stack: dict[str, Any] = self.api.describe_stacks(StackName=name)["Stacks"][0]
        return stack

    def outputs(self, stack: dict[str, Any]) -> dict[str, str]:
        return {item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])}

    def failures(self, name: str) -> dict[str, str]:
        """Logical id -> reason of everything that failed in a stack."""
        events = self.api.describe_stack_events(StackName=name)["StackEvents"]
        return {
            item["LogicalResourceId"]: item.get("ResourceStatusReason", "")
            for item in events
            if item["ResourceStatus"].endswith("_FAILED")
        }


@pytest.fixture(scope="module")
def heard() -> list[CloudEvent]:
    return []


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory, heard: list[CloudEvent]) -> Iterator[EmbeddedAws]:
    folder: Path = tmp_path_factory.mktemp("aws")
    with EmbeddedAws(REGION, folder, listener=heard.append, query_interval_s=0.05) as running:
        yield running


@pytest.fixture
def deployer(aws: EmbeddedAws, heard: list[CloudEvent]) -> Deployer:
    heard.clear()
    return Deployer(aws, heard)


@pytest.fixture
def subnet(aws: EmbeddedAws) -> str:
    ec2 = aws.clients("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    return ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait, bounded, until something is true."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "did not become true within 60 s"
            time.sleep(0.02)

    return wait
