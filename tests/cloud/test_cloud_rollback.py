"""UPDATE_ROLLBACK_FAILED: how a stack comes there, what `slipway status` reports of it, and the way out.

As CloudFormation's API reference and user guide ("Continue rolling back an update") describe ContinueUpdateRollback.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud.errors import ResourceFailed
from rehearsal.cloud.model import ResourceRequest, ResourceResult
from rehearsal.cloud.seed import Seed
from slipway.aws.calls import Aws
from slipway.aws.session import session_of
from slipway.status.head import HeadNode
from slipway.status.judge import Findings, problems
from slipway.status.stacks import Stack, StackReader

from .conftest import REGION, Deployer

CDK = Path(__file__).resolve().parents[2] / "node_modules/.bin/cdk"
FAILED = "UPDATE_ROLLBACK_FAILED"
UNKNOWN = {"Type": "AWS::Quantum::Computer", "DependsOn": ["Kept", "Other"]}


def custom(value: str) -> dict[str, Any]:
    return {"Type": "Custom::Fragile", "Properties": {"ServiceToken": "x", "Value": value}}


def resources(value: str) -> dict[str, Any]:
    return {"Kept": custom(value), "Other": custom(value)}


class Fragile:
    """A resource whose owner may break it: `broken` are the logical ids that nothing can be done with."""

    def __init__(self, deployer: Deployer) -> None:
        self.broken: dict[str, str] = {}
        self.values: dict[str, str] = {}
        deployer.aws.register_custom_resource("Custom::Fragile", self)

    def __call__(self, request: ResourceRequest) -> ResourceResult:
        name, value = request.logical_id, str(request.properties["Value"])
        if request.request_type == "Update" and value == "1" and name in self.broken:
            raise ResourceFailed(self.broken[name], request.physical_id)
        self.values[name] = value
        return ResourceResult(name)


def status(monkeypatch: pytest.MonkeyPatch, deployer: Deployer, name: str) -> tuple[Stack, str]:
    """What `slipway status` reads of the stack `NAME-cluster`, and the line of its problem with the repair."""
    for key, value in deployer.aws.env().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", deployer.aws.address_endpoint)
    stacks = StackReader(Aws(session_of(None, REGION), REGION), name).read()
    (problem,) = [one for one in problems(Findings(stacks, frozenset(), HeadNode())) if one.where == f"{name}-cluster"]
    return next(one for one in stacks if one.part == "cluster"), f"{problem.text}. Hint: {problem.hint}"


def stuck(deployer: Deployer, name: str, broken: dict[str, str]) -> Fragile:
    """A stack whose update failed, and whose roll-back fails for the `broken` resources."""
    fragile = Fragile(deployer)
    deployer.create(resources("1"), name=name)
    fragile.broken = broken
    assert deployer.update(name, {**resources("2"), "Odd": UNKNOWN})["StackStatus"] == FAILED
    return fragile


def test_a_resource_that_is_repaired_is_rolled_back(deployer: Deployer) -> None:
    fragile = stuck(deployer, "mend-cluster", {"Kept": "Topic does not exist"})
    with pytest.raises(ClientError, match="is in UPDATE_ROLLBACK_FAILED state and can not be updated"):
        deployer.update("mend-cluster", resources("3"))
    deployer.api.continue_update_rollback(StackName="mend-cluster")
    assert deployer.done("mend-cluster")["StackStatus"] == FAILED  # nothing was repaired
    fragile.broken = {}
    deployer.api.continue_update_rollback(StackName="mend-cluster")
    assert deployer.done("mend-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "1", "Other": "1"}
    with pytest.raises(ClientError, match="is in UPDATE_ROLLBACK_COMPLETE state and can not be rolled back"):
        deployer.api.continue_update_rollback(StackName="mend-cluster")


def test_status_names_what_holds_the_roll_back_and_it_can_be_skipped(
    deployer: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the resource with which the update failed: CloudFormation refuses to skip that one."""
    fragile = stuck(deployer, "skip-cluster", {"Kept": "fs-1 does not exist (deleted by hand)"})
    stack, line = status(monkeypatch, deployer, "skip")
    assert [(step.name, step.reason) for step in stack.stuck] == [("Kept", "fs-1 does not exist (deleted by hand)")]
    assert "first failure: Odd: Resource type AWS::Quantum::Computer is not emulated" in line
    assert "; the roll-back stopped at Kept: fs-1 does not exist (deleted by hand). Hint: repair what" in line
    assert "cdk rollback skip-cluster --context settings=FILE; if it cannot be repaired, add --orphan Kept" in line
    for wrong in ("Odd", "Other"):
        with pytest.raises(ClientError, match="not in UPDATE_FAILED state because a rollback failed"):
            deployer.api.continue_update_rollback(StackName="skip-cluster", ResourcesToSkip=["Kept", wrong])
    deployer.api.continue_update_rollback(StackName="skip-cluster", ResourcesToSkip=["Kept"])
    assert deployer.done("skip-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    listed = deployer.api.describe_stack_resources(StackName="skip-cluster")["StackResources"]
    assert {item["LogicalResourceId"]: item["ResourceStatus"] for item in listed}["Kept"] == "UPDATE_COMPLETE"
    assert fragile.values == {"Kept": "2", "Other": "1"}  # left as the failed update made it
    fragile.broken = {}
    assert deployer.update("skip-cluster", resources("3"))["StackStatus"] == "UPDATE_COMPLETE"


def cdk_rollback(deployer: Deployer, folder: Path, name: str, *arguments: str) -> str:
    """Run `cdk rollback` of the real CDK CLI on a stack of the CDK; return what it printed. It reads no template."""
    role = "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/cdk-hnb659fds-%s-role-${AWS::AccountId}-" + REGION
    properties = {
        "templateFile": "template.json",
        "stackName": name,
        "assumeRoleArn": role % "deploy",
        "cloudFormationExecutionRoleArn": role % "cfn-exec",
        "bootstrapStackVersionSsmParameter": "/cdk-bootstrap/hnb659fds/version",
    }
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": f"aws://unknown-account/{REGION}",
        "properties": properties,
    }
    folder.mkdir(exist_ok=True)
    (folder / "template.json").write_text("{}", encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"version": "48.0.0", "artifacts": {name: stack}}), "utf-8")
    done = subprocess.run(
        [str(CDK), "rollback", name, "--app", str(folder), *arguments],
        env={**os.environ, **deployer.aws.env(), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup")
def test_the_cdk_cli_continues_a_roll_back_with_the_roles_of_the_bootstrap(deployer: Deployer, tmp_path: Path) -> None:
    """docs/updates.md, "When a roll-back fails": a resource that was repaired, then one that cannot be."""
    deployer.aws.seed(Seed())
    fragile = stuck(deployer, "cli-cluster", {"Kept": "Topic does not exist"})
    fragile.broken = {}
    assert "Continuing rollback of stack cli-cluster" in cdk_rollback(deployer, tmp_path / "app", "cli-cluster")
    assert deployer.done("cli-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "1", "Other": "1"}
    fragile = stuck(deployer, "lone-cluster", {"Kept": "fs-1 does not exist"})
    printed = cdk_rollback(deployer, tmp_path / "app", "lone-cluster", "--orphan", "Kept")
    assert "Continuing rollback of stack lone-cluster (orphaning: Kept)" in printed
    assert deployer.done("lone-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "2", "Other": "1"}


def test_two_resources_are_named_and_the_second_try_names_the_rest(
    deployer: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragile = stuck(
        deployer, "two-cluster", {"Kept": "not authorized to perform: sns:SetTopicAttributes", "Other": "x"}
    )
    stack, line = status(monkeypatch, deployer, "two")
    assert {step.name for step in stack.stuck} == {"Kept", "Other"}
    del fragile.broken["Other"]
    deployer.api.continue_update_rollback(StackName="two-cluster")
    assert deployer.done("two-cluster")["StackStatus"] == FAILED
    stack, line = status(monkeypatch, deployer, "two")
    assert [step.name for step in stack.stuck] == ["Kept"]
    assert "the roll-back stopped at Kept: not authorized to perform: sns:SetTopicAttributes" in line
    assert deployer.delete("two-cluster")["StackStatus"] == "DELETE_COMPLETE"  # as `slipway teardown` does it


def test_an_output_that_is_gone_is_made_again(deployer: Deployer, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/updates.md: switch the part on again, deploy its stack alone, and continue."""
    part = {"Publish": {"Value": "a"}}
    reading = {"Fn::GetStackOutput": {"StackName": "lost-part", "OutputName": "Publish"}}
    fragile = Fragile(deployer)
    deployer.create({"One": custom("1")}, name="lost-part", Outputs=part)
    uses = {"Kept": {**custom("1"), "Properties": {"ServiceToken": "x", "Value": reading}}, "Other": custom("1")}
    assert deployer.create(uses, name="lost-cluster")["StackStatus"] == "CREATE_COMPLETE"
    deployer.update("lost-part", {"One": custom("2")})  # without the output
    assert deployer.update("lost-cluster", {**resources("2"), "Odd": UNKNOWN})["StackStatus"] == FAILED
    stack, line = status(monkeypatch, deployer, "lost")
    assert [step.name for step in stack.stuck] == ["lost-cluster"]
    assert "the roll-back stopped at lost-cluster: Output Publish does not exist in stack" in line
    assert "--orphan" not in line
    deployer.update("lost-part", {"One": custom("2")}, Outputs=part)
    deployer.api.continue_update_rollback(StackName="lost-cluster")
    assert deployer.done("lost-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values["Kept"] == "a"
