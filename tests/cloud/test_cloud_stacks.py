"""CloudFormation over time: asynchronous, honest about failures, able to roll back, update and delete."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult

from .conftest import Deployer

TOPIC = {"Type": "AWS::SNS::Topic"}
UNKNOWN = {"Type": "AWS::Quantum::Computer", "DependsOn": "Topic"}


def parameter(value: Any) -> dict[str, Any]:
    return {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": value}}


def test_create_answers_before_the_work_is_done(aws: EmbeddedAws, deployer: Deployer) -> None:
    gate = threading.Event()

    def handler(request: ResourceRequest) -> ResourceResult:
        gate.wait(120)
        return ResourceResult("x")

    aws.register_custom_resource("Custom::Gate", handler)
    body = '{"Resources": {"Gate": {"Type": "Custom::Gate"}}}'
    deployer.api.create_stack(StackName="gated", TemplateBody=body)
    during = deployer.api.describe_stacks(StackName="gated")["Stacks"][0]["StackStatus"]
    gate.set()
    assert (during, deployer.done("gated")["StackStatus"]) == ("CREATE_IN_PROGRESS", "CREATE_COMPLETE")


def test_a_second_delete_while_the_first_runs_does_nothing(aws: EmbeddedAws, deployer: Deployer) -> None:
    gate = threading.Event()
    deletes: list[str] = []

    def handler(request: ResourceRequest) -> ResourceResult:
        if request.request_type == "Delete":
            deletes.append(request.logical_id)
            gate.wait(120)
        return ResourceResult("x")

    aws.register_custom_resource("Custom::Gate", handler)
    stack = deployer.create({"Gate": {"Type": "Custom::Gate"}}, name="twice")
    deployer.api.delete_stack(StackName="twice")
    deployer.api.delete_stack(StackName="twice")
    gate.set()
    assert deployer.done(stack["StackId"])["StackStatus"] == "DELETE_COMPLETE"
    assert deletes == ["Gate"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_deletion_cancels_the_creation(nested: bool, aws: EmbeddedAws, deployer: Deployer) -> None:
    """Nothing is begun any more; what is being made ends as CREATE_FAILED and is deleted, in one thread at a time."""
    begun, gate = threading.Event(), threading.Event()
    calls: list[tuple[str, str]] = []

    def handler(request: ResourceRequest) -> ResourceResult:
        if request.request_type == "Create":
            begun.set()
            assert gate.wait(120)
        calls.append((request.request_type, request.logical_id))
        return ResourceResult(request.logical_id)

    aws.register_custom_resource("Custom::Gate", handler)
    gates: dict[str, Any] = {"Gate": {"Type": "Custom::Gate"}, "Later": {"Type": "Custom::Gate", "DependsOn": "Gate"}}
    name = f"cancelled-{nested}"
    if nested:
        aws.clients("s3").create_bucket(Bucket="inner")
        aws.clients("s3").put_object(Bucket="inner", Key="gates.json", Body=json.dumps({"Resources": gates}).encode())
        url = {"Fn::Sub": "https://s3.${AWS::Region}.${AWS::URLSuffix}/inner/gates.json"}
        gates = {"Inner": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url}}}
    made = deployer.api.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": gates}))
    assert begun.wait(120)
    deployer.api.delete_stack(StackName=name)
    assert deployer.api.describe_stacks(StackName=made["StackId"])["Stacks"][0]["StackStatus"] == "DELETE_IN_PROGRESS"
    gate.set()
    assert deployer.done(made["StackId"])["StackStatus"] == "DELETE_COMPLETE"
    assert calls == [("Create", "Gate"), ("Delete", "Gate")]
    ends = [event.status for event in deployer.events if event.logical_id == name]
    assert ends == ["CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"]
    failed = [(event.logical_id, event.reason) for event in deployer.events if event.status == "CREATE_FAILED"]
    assert failed[0] == ("Gate", "Resource creation cancelled")


def test_events_tell_every_step_in_order(deployer: Deployer) -> None:
    deployer.create({"Second": {**TOPIC, "DependsOn": "First"}, "First": TOPIC}, name="steps")
    told = [(event.logical_id, event.status) for event in deployer.events]
    assert told == [
        ("steps", "CREATE_IN_PROGRESS"),
        ("First", "CREATE_IN_PROGRESS"),
        ("First", "CREATE_COMPLETE"),
        ("Second", "CREATE_IN_PROGRESS"),
        ("Second", "CREATE_COMPLETE"),
        ("steps", "CREATE_COMPLETE"),
    ]
    listed = deployer.api.describe_stack_events(StackName="steps")["StackEvents"]
    assert [(item["LogicalResourceId"], item["ResourceStatus"]) for item in reversed(listed)] == told


def test_an_unknown_type_fails_by_name_and_is_rolled_back(aws: EmbeddedAws, deployer: Deployer) -> None:
    before = len(aws.clients("sns").list_topics()["Topics"])
    stack = deployer.create({"Topic": TOPIC, "Odd": UNKNOWN}, name="unknown")
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "AWS::Quantum::Computer is not emulated" in deployer.failures("unknown")["Odd"]
    assert len(aws.clients("sns").list_topics()["Topics"]) == before


@pytest.mark.parametrize("options", [{"DisableRollback": True}, {"OnFailure": "DO_NOTHING"}])
def test_without_rollback_what_was_made_stays(deployer: Deployer, options: dict[str, Any]) -> None:
    stack = deployer.create({"Topic": TOPIC, "Odd": UNKNOWN}, **options)
    kept = deployer.api.describe_stack_resources(StackName=stack["StackName"])["StackResources"]
    states = {item["LogicalResourceId"]: item["ResourceStatus"] for item in kept}
    assert stack["StackStatus"] == "CREATE_FAILED"
    assert states == {"Topic": "CREATE_COMPLETE", "Odd": "CREATE_FAILED"}


def test_rollback_keeps_what_is_to_be_retained(aws: EmbeddedAws, deployer: Deployer) -> None:
    kept = {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain", "Properties": {"BucketName": "kept-bucket"}}
    deployer.create({"Topic": kept, "Odd": UNKNOWN})
    assert "kept-bucket" in {item["Name"] for item in aws.clients("s3").list_buckets()["Buckets"]}


def test_a_refusal_of_a_service_becomes_the_reason(deployer: Deployer) -> None:
    bad = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": "vpc-0123456789abcdef0", "CidrBlock": "10.0.0.0/24"}}
    stack = deployer.create({"Bad": bad})
    assert "InvalidVpcID.NotFound" in deployer.failures(stack["StackName"])["Bad"]


def test_an_unknown_attribute_is_a_failure(deployer: Deployer) -> None:
    stack = deployer.create({"Topic": TOPIC, "P": parameter({"Fn::GetAtt": ["Topic", "Colour"]})})
    assert "has no attribute Colour" in deployer.failures(stack["StackName"])["P"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            '{"Resources": {"A": {"Type": "AWS::SNS::Topic", "Properties": {"x": {"Ref": "No"}}}}}',
            "Unresolved resource",
        ),
        ("{}", "At least one Resources member"),
    ],
)
def test_bad_templates_are_refused_at_once(deployer: Deployer, body: str, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        deployer.api.create_stack(StackName="bad", TemplateBody=body)


def test_a_name_is_taken_once(deployer: Deployer) -> None:
    deployer.create({"Topic": TOPIC}, name="taken")
    with pytest.raises(ClientError, match="AlreadyExistsException"):
        deployer.create({"Topic": TOPIC}, name="taken")


def test_change_sets_are_refused_with_the_way_out(deployer: Deployer) -> None:
    with pytest.raises(ClientError, match="--method=direct"):
        deployer.api.create_change_set(
            StackName="x", ChangeSetName="c", ChangeSetType="CREATE", TemplateBody='{"Resources": {"A": {}}}'
        )


def test_exports_are_imported_and_guarded(deployer: Deployer) -> None:
    export = {"Arn": {"Value": {"Ref": "Topic"}, "Export": {"Name": "the-topic"}}}
    deployer.create({"Topic": TOPIC}, name="exporter", Outputs=export)
    user = deployer.create(
        {"P": parameter({"Fn::ImportValue": "the-topic"})},
        name="importer",
        Outputs={"V": {"Value": {"Fn::GetAtt": ["P", "Value"]}}},
    )
    assert deployer.outputs(user)["V"].startswith("arn:aws:sns:")
    with pytest.raises(ClientError, match="in use by importer"):
        deployer.api.delete_stack(StackName="exporter")
    missing = deployer.create({"P": parameter({"Fn::ImportValue": "nobody"})})
    assert deployer.failures(missing["StackName"]) == {"P": "No export named nobody found."}


def test_an_export_name_is_unique(deployer: Deployer) -> None:
    export = {"Arn": {"Value": "x", "Export": {"Name": "only-once"}}}
    deployer.create({"Topic": TOPIC}, name="first-owner", Outputs=export)
    second = deployer.create({"Topic": TOPIC}, Outputs=export)
    assert second["StackStatus"] == "ROLLBACK_COMPLETE"


def test_an_update_without_a_change_is_refused_as_on_aws(deployer: Deployer) -> None:
    deployer.create({"Topic": TOPIC}, name="same")
    with pytest.raises(ClientError, match="No updates are to be performed"):
        deployer.update("same", {"Topic": TOPIC})


def test_an_update_adds_changes_and_removes(deployer: Deployer) -> None:
    deployer.create({"P": parameter("1"), "Gone": TOPIC}, name="grow")
    stack = deployer.update("grow", {"P": parameter("2"), "New": TOPIC})
    kept = deployer.api.describe_stack_resources(StackName="grow")["StackResources"]
    states = {item["LogicalResourceId"]: item["ResourceStatus"] for item in kept}
    assert stack["StackStatus"] == "UPDATE_COMPLETE"
    assert states == {"P": "UPDATE_COMPLETE", "New": "CREATE_COMPLETE"}


def test_a_failed_update_is_rolled_back(deployer: Deployer) -> None:
    value = {"V": {"Value": {"Fn::GetAtt": ["P", "Value"]}}}
    deployer.create({"Topic": parameter("1"), "P": parameter("1")}, name="shrink", Outputs=value)
    stack = deployer.update("shrink", {"P": parameter("2"), "Topic": parameter("1"), "Odd": UNKNOWN}, Outputs=value)
    names = {
        item["LogicalResourceId"]
        for item in deployer.api.describe_stack_resources(StackName="shrink")["StackResources"]
    }
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert (deployer.outputs(stack), names) == ({"V": "1"}, {"Topic", "P"})


def test_delete_removes_and_forgets_the_name(deployer: Deployer) -> None:
    deployer.create({"Topic": TOPIC}, name="gone")
    assert deployer.delete("gone")["StackStatus"] == "DELETE_COMPLETE"
    with pytest.raises(ClientError, match="Stack with id gone does not exist"):
        deployer.api.describe_stacks(StackName="gone")


def test_a_delete_that_fails_says_which(aws: EmbeddedAws, deployer: Deployer) -> None:
    deployer.create({"Data": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full-bucket"}}}, name="full")
    aws.clients("s3").put_object(Bucket="full-bucket", Key="k", Body=b"x")
    assert deployer.delete("full")["StackStatus"] == "DELETE_FAILED"
    assert "not empty" in deployer.failures("full")["Data"]


def test_a_failed_resource_that_made_something_is_deleted_in_the_rollback(aws: EmbeddedAws, deployer: Deployer) -> None:
    calls: list[tuple[str, str]] = []

    def handler(request: ResourceRequest) -> ResourceResult:
        calls.append((request.request_type, request.physical_id))
        if request.request_type == "Create":
            raise ResourceFailed("half way", physical_id="half-1")
        return ResourceResult(request.physical_id)

    aws.register_custom_resource("Custom::Half", handler)
    stack = deployer.create({"Half": {"Type": "Custom::Half"}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert calls == [("Create", ""), ("Delete", "half-1")]


def test_nested_stacks_pass_parameters_outputs_and_failures(aws: EmbeddedAws, deployer: Deployer) -> None:
    s3 = aws.clients("s3")
    s3.create_bucket(Bucket="templates")
    child = (
        '{"Parameters": {"V": {"Type": "String"}}, "Resources": {"P": {"Type": "%s",'
        ' "Properties": {"Type": "String", "Value": {"Ref": "V"}}}}, "Outputs": {"O": {"Value": {"Ref": "V"}}}}'
    )
    s3.put_object(Bucket="templates", Key="good.json", Body=(child % "AWS::SSM::Parameter").encode())
    s3.put_object(Bucket="templates", Key="bad.json", Body=(child % "AWS::No::Type").encode())

    def nested(key: str) -> dict[str, Any]:
        url = {"Fn::Sub": f"https://s3.${{AWS::Region}}.${{AWS::URLSuffix}}/templates/{key}"}
        return {
            "Child": {
                "Type": "AWS::CloudFormation::Stack",
                "Properties": {"TemplateURL": url, "Parameters": {"V": "7"}},
            }
        }

    good = deployer.create(nested("good.json"), Outputs={"O": {"Value": {"Fn::GetAtt": ["Child", "Outputs.O"]}}})
    bad = deployer.create(nested("bad.json"))
    assert deployer.outputs(good) == {"O": "7"}
    assert "Embedded stack" in deployer.failures(bad["StackName"])["Child"]
    assert deployer.delete(good["StackName"])["StackStatus"] == "DELETE_COMPLETE"


def test_a_fault_of_the_emulation_is_a_failure_with_a_traceback_in_the_log(
    aws: EmbeddedAws, deployer: Deployer
) -> None:
    def handler(request: ResourceRequest) -> ResourceResult:
        raise ZeroDivisionError("a bug")

    aws.register_custom_resource("Custom::Bug", handler)
    before = len(aws.tracebacks())
    stack = deployer.create({"Bug": {"Type": "Custom::Bug"}})
    after = aws.tracebacks()
    assert "Internal failure of the embedded AWS: ZeroDivisionError" in deployer.failures(stack["StackName"])["Bug"]
    assert len(after) == before + 1
    assert after[-1].endswith("ZeroDivisionError: a bug")


def test_independent_resources_are_made_in_the_worst_order(deployer: Deployer) -> None:
    """CloudFormation makes them side by side; what others may need without saying so is late here."""
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "g", "VpcId": {"Ref": "Vpc"}}}
    rule = {"GroupId": {"Fn::GetAtt": ["Group", "GroupId"]}, "IpProtocol": "-1", "CidrIp": "10.0.0.0/8"}
    resources = {
        "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
        "Logs": {"Type": "AWS::Logs::LogGroup"},
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Group": group,
        "Last": {**TOPIC, "DependsOn": "Group"},
    }
    deployer.create(resources, name="worst")
    made = [event.logical_id for event in deployer.events if event.status == "CREATE_COMPLETE"]
    assert made[:3] == ["Vpc", "Group", "Last"]
    assert set(made[3:5]) == {"Rule", "Logs"}


@pytest.mark.parametrize("value", ["changed", None], ids=["changed", "dropped"])
def test_an_export_in_use_may_neither_change_nor_go(deployer: Deployer, value: str | None) -> None:
    """aws-cdk's documentation of cross-stack references has CloudFormation's words."""
    name = f"kept-{value}"
    export = {"Key": {"Value": {"Ref": "P"}, "Export": {"Name": name}}}
    first = {"P": {**parameter("1"), "Properties": {"Type": "String", "Value": "1", "Name": f"/one/{name}"}}}
    deployer.create(first, name=f"{name}-producer", Outputs=export)
    deployer.create({"U": parameter({"Fn::ImportValue": name})}, name=f"{name}-user")
    later = {"Outputs": {"Key": {"Value": value, "Export": {"Name": name}}}} if value else {}
    stack = deployer.update(f"{name}-producer", {**first, "More": TOPIC}, **later)
    verb = "updated" if value else "deleted"
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    refusal = f"Export {name} cannot be {verb} as it is in use by {name}-user"
    assert refusal in [event.reason for event in deployer.events]
    deployer.update(f"{name}-user", {"U": parameter("its own")})
    assert deployer.update(f"{name}-producer", {**first, "More": TOPIC}, **later)["StackStatus"] == "UPDATE_COMPLETE"


def test_an_output_is_read_without_an_export(deployer: Deployer) -> None:
    """Fn::GetStackOutput: read at each create and update; the output can go while it is in use."""
    body = {"Fn::GetStackOutput": {"StackName": "weak-producer", "OutputName": "Key"}}
    deployer.create({"P": TOPIC}, name="weak-producer", Outputs={"Key": {"Value": "one"}})
    read = {"V": {"Value": {"Fn::GetAtt": ["U", "Value"]}}}
    user = deployer.create({"U": parameter(body)}, name="weak-user", Outputs=read)
    assert deployer.outputs(user) == {"V": "one"}
    deployer.update("weak-producer", {"P": TOPIC}, Outputs={"Key": {"Value": "two"}})
    user = deployer.update("weak-user", {"U": parameter(body), "More": TOPIC}, Outputs=read)
    assert deployer.outputs(user) == {"V": "two"}
    assert deployer.update("weak-producer", {"P": TOPIC, "More": TOPIC})["StackStatus"] == "UPDATE_COMPLETE"
    missing = deployer.create({"U": parameter(body)})
    assert deployer.failures(missing["StackName"])["U"] == "Output Key does not exist in stack weak-producer"


def test_only_a_creation_that_is_rolled_back_removes_what_is_to_be_kept_except_then(
    aws: EmbeddedAws, deployer: Deployer
) -> None:
    def kept(name: str, policy: str) -> dict[str, Any]:
        return {"Type": "AWS::S3::Bucket", "DeletionPolicy": policy, "Properties": {"BucketName": name}}

    both = {"A": kept("retained-ever", "Retain"), "B": kept("retained-later", "RetainExceptOnCreate")}
    deployer.create({**both, "Odd": {"Type": "AWS::Quantum::Computer", "DependsOn": ["A", "B"]}})
    names = {item["Name"] for item in aws.clients("s3").list_buckets()["Buckets"]}
    assert (names & {"retained-ever", "retained-later"}) == {"retained-ever"}
    stack = deployer.create({"B": kept("retained-later", "RetainExceptOnCreate")})
    deployer.delete(stack["StackName"])
    assert "retained-later" in {item["Name"] for item in aws.clients("s3").list_buckets()["Buckets"]}


def test_a_group_that_another_one_refers_to_is_not_deleted(aws: EmbeddedAws, deployer: Deployer) -> None:
    """What a retained security group does to the stack of the network."""
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "g", "VpcId": {"Ref": "Vpc"}}}
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}
    export = {
        key: {"Value": {"Ref": key} if key == "Vpc" else {"Fn::GetAtt": [key, "GroupId"]}, "Export": {"Name": key}}
        for key in ("Vpc", "Nodes")
    }
    deployer.create({"Vpc": vpc, "Nodes": group}, name="net", Outputs=export)
    kept = {"DeletionPolicy": "Retain"}
    theirs = {**group, **kept, "Properties": {"GroupDescription": "g", "VpcId": {"Fn::ImportValue": "Vpc"}}}
    rule = {"GroupId": {"Fn::GetAtt": ["Kept", "GroupId"]}, "IpProtocol": "-1"}
    refers = {**rule, "SourceSecurityGroupId": {"Fn::ImportValue": "Nodes"}}
    made = deployer.create(
        {"Kept": theirs, "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": refers, **kept}},
        Outputs={"Kept": {"Value": {"Fn::GetAtt": ["Kept", "GroupId"]}}},
    )
    kept_group = deployer.outputs(made)["Kept"]
    assert deployer.delete(made["StackName"])["StackStatus"] == "DELETE_COMPLETE"
    assert deployer.delete("net")["StackStatus"] == "DELETE_FAILED"
    failures = deployer.failures("net")
    assert set(failures) == {"Nodes", "net"}  # what the group needs is not tried
    assert "has a dependent object (DependencyViolation)" in failures["Nodes"]
    ec2 = aws.clients("ec2")
    rules = ec2.describe_security_groups(GroupIds=[kept_group])["SecurityGroups"][0]["IpPermissions"]
    ec2.revoke_security_group_ingress(GroupId=kept_group, IpPermissions=rules)
    assert deployer.delete("net")["StackStatus"] == "DELETE_FAILED"
    assert "has dependencies and cannot be deleted" in deployer.failures("net")["Vpc"]
    ec2.delete_security_group(GroupId=kept_group)
    assert deployer.delete("net")["StackStatus"] == "DELETE_COMPLETE"


def test_a_replacement_is_made_before_the_old_one_is_deleted(aws: EmbeddedAws, deployer: Deployer) -> None:
    mail = {"TopicArn": {"Ref": "Topic"}, "Protocol": "email", "Endpoint": "a@example.com"}
    resources = {"Topic": TOPIC, "Mail": {"Type": "AWS::SNS::Subscription", "Properties": mail}}
    deployer.create(resources, name="replaces")
    other = {
        **resources,
        "Mail": {"Type": "AWS::SNS::Subscription", "Properties": {**mail, "Endpoint": "b@example.com"}},
    }
    deployer.events.clear()
    assert deployer.update("replaces", other)["StackStatus"] == "UPDATE_COMPLETE"
    steps = [event.status for event in deployer.events if event.logical_id == "Mail"]
    assert steps == ["UPDATE_IN_PROGRESS", "UPDATE_COMPLETE", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"]
    failed = deployer.update("replaces", {**resources, "Odd": {"Type": "AWS::No::Type", "DependsOn": "Mail"}})
    assert failed["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    listed = aws.clients("sns").list_subscriptions()["Subscriptions"]
    assert [item["Endpoint"] for item in listed] == ["b@example.com"]
