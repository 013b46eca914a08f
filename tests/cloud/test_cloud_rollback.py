"""UPDATE_ROLLBACK_FAILED: how a stack comes there, what `slipway status` reports of it, and the way out.

As CloudFormation's API reference and user guide ("Continue rolling back an update", "Choose how to handle failures when
provisioning resources") describe ContinueUpdateRollback, RollbackStack and a deployment without a roll-back.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud.seed import Seed
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult
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


@pytest.fixture(scope="module")
def bootstrapped(aws: EmbeddedAws) -> None:
    """The bucket and the roles of `cdk bootstrap`, which the CDK CLI uses."""
    aws.seed(Seed())


def cdk(deployer: Deployer, folder: Path, *arguments: str, template: str = "{}", exit_code: int = 0) -> str:
    """Run the real CDK CLI on a stack of the CDK; return what it printed. `arguments`: the command, the stack, ..."""
    name = arguments[1]
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
    (folder / "template.json").write_text(template, encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"version": "48.0.0", "artifacts": {name: stack}}), "utf-8")
    done = subprocess.run(
        [str(CDK), *arguments, "--app", str(folder)],
        env={**os.environ, **deployer.aws.env(), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup")
@pytest.mark.usefixtures("bootstrapped")
def test_the_cdk_cli_continues_a_roll_back_with_the_roles_of_the_bootstrap(deployer: Deployer, tmp_path: Path) -> None:
    """docs/updates.md, "When a roll-back fails": a resource that was repaired, then one that cannot be."""
    fragile = stuck(deployer, "cli-cluster", {"Kept": "Topic does not exist"})
    fragile.broken = {}
    assert "Continuing rollback of stack cli-cluster" in cdk(deployer, tmp_path / "app", "rollback", "cli-cluster")
    assert deployer.done("cli-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "1", "Other": "1"}
    fragile = stuck(deployer, "lone-cluster", {"Kept": "fs-1 does not exist"})
    printed = cdk(deployer, tmp_path / "app", "rollback", "lone-cluster", "--orphan", "Kept")
    assert "Continuing rollback of stack lone-cluster (orphaning: Kept)" in printed
    assert deployer.done("lone-cluster")["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "2", "Other": "1"}


@pytest.mark.slow
@pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup")
@pytest.mark.usefixtures("bootstrapped")
def test_the_cdk_cli_rolls_a_deployment_without_a_roll_back_back(deployer: Deployer, tmp_path: Path) -> None:
    """docs/updates.md: `cdk deploy --no-rollback` fails, then `cdk rollback`; of a creation, then of an update."""
    fragile = Fragile(deployer)
    options = ("--no-rollback", "--method=direct", "--require-approval=never")
    for made, template, end in (
        (False, {"Kept": custom("1"), "Other": kept("Kept"), "Odd": UNKNOWN}, "ROLLBACK_COMPLETE"),
        (True, {**resources("2"), "Odd": UNKNOWN}, "UPDATE_ROLLBACK_COMPLETE"),
    ):
        name = f"pause-{'update' if made else 'create'}"
        if made:
            deployer.create(resources("1"), name=name)
        text = json.dumps({"Resources": template})
        cdk(deployer, tmp_path / name, "deploy", name, *options, template=text, exit_code=1)
        assert status_of(deployer, name) == ("UPDATE_FAILED" if made else "CREATE_FAILED")
        cdk(deployer, tmp_path / name, "rollback", name)
        assert status_of(deployer, name) == end
    assert fragile.values == {"Kept": "1", "Other": "1"}


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


def status_of(deployer: Deployer, name: str) -> str:
    return str(deployer.done(name)["StackStatus"])


def kept(logical_id: str) -> dict[str, Any]:
    return {**custom("1"), "DeletionPolicy": "Retain", "DependsOn": logical_id}


def states(deployer: Deployer, name: str) -> dict[str, str]:
    listed = deployer.api.describe_stack_resources(StackName=name)["StackResources"]
    return {item["LogicalResourceId"]: item["ResourceStatus"] for item in listed}


@pytest.mark.parametrize("retain", [True, False])
def test_a_creation_without_a_roll_back_is_rolled_back(deployer: Deployer, retain: bool) -> None:
    """RollbackStack deletes what has no stable state; new resources of policy Retain only with RetainExceptOnCreate."""
    Fragile(deployer)
    name = f"paused-{retain}"
    wanted = {"Kept": custom("1"), "Other": kept("Kept"), "Odd": UNKNOWN}
    assert deployer.create(wanted, name=name, DisableRollback=True)["StackStatus"] == "CREATE_FAILED"
    deployer.api.rollback_stack(StackName=name, RetainExceptOnCreate=retain)
    assert status_of(deployer, name) == "ROLLBACK_COMPLETE"
    events = deployer.api.describe_stack_events(StackName=name)["StackEvents"]
    ends = {item["LogicalResourceId"]: item["ResourceStatus"] for item in reversed(events)}
    assert ends["Kept"] == ends["Odd"] == "DELETE_COMPLETE"
    assert ends["Other"] == ("DELETE_COMPLETE" if retain else "DELETE_SKIPPED")
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be rolled back"):
        deployer.api.rollback_stack(StackName=name)


def pause(deployer: Deployer, name: str, wanted: dict[str, Any]) -> None:
    deployer.api.update_stack(StackName=name, TemplateBody=json.dumps({"Resources": wanted}), DisableRollback=True)
    assert status_of(deployer, name) == "UPDATE_FAILED"


def test_an_update_without_a_roll_back_is_tried_again_and_rolled_back(deployer: Deployer) -> None:
    fragile = Fragile(deployer)
    deployer.create(resources("1"), name="pause-cluster")
    pause(deployer, "pause-cluster", {**resources("2"), "Odd": UNKNOWN})
    found = states(deployer, "pause-cluster")
    assert found == {"Kept": "UPDATE_COMPLETE", "Other": "UPDATE_COMPLETE", "Odd": "CREATE_FAILED"}
    assert fragile.values == {"Kept": "2", "Other": "2"}
    pause(deployer, "pause-cluster", {**resources("3"), "New": custom("3"), "Odd": {**UNKNOWN, "DependsOn": "New"}})
    deployer.api.rollback_stack(StackName="pause-cluster")
    assert status_of(deployer, "pause-cluster") == "UPDATE_ROLLBACK_COMPLETE"
    assert set(states(deployer, "pause-cluster")) == {"Kept", "Other"}
    assert fragile.values["Kept"] == fragile.values["Other"] == "1"
    pause(deployer, "pause-cluster", {**resources("2"), "Odd": UNKNOWN})
    assert deployer.update("pause-cluster", resources("2"))["StackStatus"] == "UPDATE_COMPLETE"


def test_what_is_paused_and_cannot_be_taken_back_waits_for_the_next_roll_back(deployer: Deployer) -> None:
    fragile = Fragile(deployer)
    deployer.create(resources("1"), name="both-cluster")
    pause(deployer, "both-cluster", {**resources("2"), "Odd": UNKNOWN})
    fragile.broken = {"Kept": "Topic does not exist"}
    deployer.api.rollback_stack(StackName="both-cluster")
    assert status_of(deployer, "both-cluster") == FAILED
    fragile.broken = {}
    deployer.api.continue_update_rollback(StackName="both-cluster")
    assert status_of(deployer, "both-cluster") == "UPDATE_ROLLBACK_COMPLETE"
    assert fragile.values == {"Kept": "1", "Other": "1"}


def test_a_stack_that_is_updated_is_not_deleted(deployer: Deployer) -> None:
    gate = threading.Event()

    def handler(request: ResourceRequest) -> ResourceResult:
        if request.request_type == "Update":
            assert gate.wait(120)
        return ResourceResult("x")

    deployer.aws.register_custom_resource("Custom::Slow", handler)
    body: dict[str, Any] = {"Type": "Custom::Slow", "Properties": {"ServiceToken": "x", "Value": "1"}}
    deployer.create({"Slow": body}, name="slow-cluster")
    changed = {"Slow": {**body, "Properties": {"ServiceToken": "x", "Value": "2"}}}
    deployer.api.update_stack(StackName="slow-cluster", TemplateBody=json.dumps({"Resources": changed}))
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        deployer.api.delete_stack(StackName="slow-cluster")
    gate.set()
    assert status_of(deployer, "slow-cluster") == "UPDATE_COMPLETE"
    assert deployer.delete("slow-cluster")["StackStatus"] == "DELETE_COMPLETE"
