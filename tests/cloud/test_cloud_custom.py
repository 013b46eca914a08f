"""Custom resources: handlers, plain functions, the Provider framework with the product's kind of Python code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ResourceRequest, ResourceResult

from .conftest import Deployer

ROLE = "arn:aws:iam::123456789012:role/any"


@pytest.fixture(scope="module", autouse=True)
def role(aws: EmbeddedAws) -> None:
    """The role of every function here: Lambda refuses one that does not exist, and IAM evaluates what it does."""
    iam = aws.clients("iam")
    iam.create_role(RoleName="any", AssumeRolePolicyDocument="{}")
    used = ["lambda:InvokeFunction", "s3:*", "ec2:*", "logs:*"]
    statement = {"Effect": "Allow", "Action": used, "Resource": "*"}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    iam.put_role_policy(RoleName="any", PolicyName="used", PolicyDocument=json.dumps(document))


PLAIN = """
import json, urllib.request
def handler(event, context):
    body = json.dumps({"Status": "%s", "Reason": "said no", "PhysicalResourceId": "plain-1",
                       "StackId": event["StackId"], "Data": {"Seen": event["ResourceProperties"]["N"]}}).encode()
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], data=body, method="PUT"), timeout=60)
"""

# isComplete says yes the third time: it counts in S3, so it shows that functions reach the embedded AWS.
PROVIDED = """
import os
import boto3
def on_event(event, context):
    if event["RequestType"] == "Delete":
        return {}
    if event["ResourceProperties"].get("Bad"):
        raise ValueError("the cluster was not accepted: gpu-3 is slow")
    return {"PhysicalResourceId": "run-1", "Data": {"Run": "7"}, "Extra": context.function_name}
def is_complete(event, context):
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    assert event["PhysicalResourceId"] == "run-1" and event["Extra"], event
    if event["ResourceProperties"].get("Never"):
        return {"IsComplete": False}
    if event["ResourceProperties"].get("Late"):
        raise RuntimeError("[RESULT] FAILURE: bus bandwidth 2 GB/s below 30 GB/s")
    s3 = boto3.client("s3")
    count = s3.list_objects_v2(Bucket=os.environ["BUCKET"])["KeyCount"]
    s3.put_object(Bucket=os.environ["BUCKET"], Key=f"call-{count}", Body=b"")
    return {"IsComplete": True, "Data": {"Calls": str(count + 1)}} if count == 2 else {"IsComplete": False}
"""


def function(
    code: str, handler: str, timeout_s: int = 60, runtime: str = "python3.12", **variables: Any
) -> dict[str, Any]:
    body = {
        "Runtime": runtime,
        "Handler": f"index.{handler}",
        "Role": ROLE,
        "Timeout": timeout_s,
        "Code": {"ZipFile": code},
    }
    return {"Type": "AWS::Lambda::Function", "Properties": {**body, "Environment": {"Variables": variables}}}


def custom(token: Any, kind: str = "Custom::Thing", **properties: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": {"ServiceToken": token, **properties}}


def provider(attempts: int = 100, **properties: Any) -> dict[str, Any]:
    """What aws_cdk.custom_resources.Provider makes, in the small."""
    definition = {"States": {"wait": {"Retry": [{"IntervalSeconds": 1, "MaxAttempts": attempts, "BackoffRate": 1}]}}}

    def arn(name: str) -> dict[str, list[str]]:
        return {"Fn::GetAtt": [name, "Arn"]}

    framework = {
        "USER_ON_EVENT_FUNCTION_ARN": arn("On"),
        "USER_IS_COMPLETE_FUNCTION_ARN": arn("Is"),
        "WAITER_STATE_MACHINE_ARN": {"Ref": "Waiter"},
    }
    return {
        "Bucket": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain"},
        "On": function(PROVIDED, "on_event"),
        "Is": function(PROVIDED, "is_complete", BUCKET={"Ref": "Bucket"}),
        "Waiter": {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {"RoleArn": ROLE, "DefinitionString": json.dumps(definition)},
        },
        "Framework": function("exports.handler = () => {}", "onEvent", runtime="nodejs22.x", **framework),
        "Accept": custom(arn("Framework"), "Custom::Acceptance", **properties),
    }


def test_a_handler_gets_strings_and_gives_attributes(aws: EmbeddedAws, deployer: Deployer) -> None:
    got: list[ResourceRequest] = []

    def handler(request: ResourceRequest) -> ResourceResult:
        got.append(request)
        return ResourceResult("ml", {"headNode.instanceId": "i-1"})

    aws.register_custom_resource("Custom::PclusterCluster", handler)
    configuration = {"MinCount": 4, "Efa": {"Enabled": True}}
    stack = deployer.create(
        {"Cluster": custom("any", "Custom::PclusterCluster", ClusterConfiguration=configuration)},
        Outputs={"Head": {"Value": {"Fn::GetAtt": ["Cluster", "headNode.instanceId"]}}},
    )
    deployer.delete(stack["StackName"])
    assert deployer.outputs(stack) == {"Head": "i-1"}
    assert got[0].properties["ClusterConfiguration"] == {"MinCount": "4", "Efa": {"Enabled": "true"}}
    assert [(request.request_type, request.physical_id) for request in got] == [("Create", ""), ("Delete", "ml")]


def test_an_update_tells_old_and_new(aws: EmbeddedAws, deployer: Deployer) -> None:
    got: list[tuple[str, str, Any, Any]] = []

    def handler(request: ResourceRequest) -> ResourceResult:
        old = request.old_properties.get("N")
        got.append((request.request_type, request.physical_id, old, request.properties.get("N")))
        return ResourceResult(
            f"id-{request.properties['N']}" if request.request_type != "Delete" else request.physical_id
        )

    aws.register_custom_resource("Custom::Replaced", handler)
    deployer.create({"R": custom("any", "Custom::Replaced", N=1)}, name="replaced")
    deployer.update("replaced", {"R": custom("any", "Custom::Replaced", N=2)})
    assert got == [("Create", "", None, "1"), ("Update", "id-1", "1", "2"), ("Delete", "id-1", None, "1")]


@pytest.mark.parametrize(("status", "expected"), [("SUCCESS", "CREATE_COMPLETE"), ("FAILED", "ROLLBACK_COMPLETE")])
def test_a_plain_function_answers_by_url(deployer: Deployer, status: str, expected: str) -> None:
    resources = {"F": function(PLAIN % status, "handler"), "R": custom({"Fn::GetAtt": ["F", "Arn"]}, N=3)}
    stack = deployer.create(
        resources, DisableRollback=False, Outputs={"Seen": {"Value": {"Fn::GetAtt": ["R", "Seen"]}}}
    )
    failures = deployer.failures(stack["StackName"])
    if status == "SUCCESS":
        assert (stack["StackStatus"], deployer.outputs(stack)) == (expected, {"Seen": "3"})
    else:
        assert "said no" in failures["R"]


def test_the_provider_framework_polls_until_complete(deployer: Deployer) -> None:
    outputs = {name: {"Value": {"Fn::GetAtt": ["Accept", name]}} for name in ("Run", "Calls")}
    stack = deployer.create(provider(), Outputs=outputs)
    assert deployer.outputs(stack) == {"Run": "7", "Calls": "3"}, deployer.failures(stack["StackName"])
    assert deployer.delete(stack["StackName"])["StackStatus"] == "DELETE_COMPLETE"


@pytest.mark.parametrize(
    ("attempts", "properties", "words"),
    [
        (100, {"Bad": "yes"}, "gpu-3 is slow (ValueError"),
        (100, {"Late": "yes"}, "[RESULT] FAILURE: bus bandwidth 2 GB/s below 30 GB/s"),
        (1, {"Never": "yes"}, "Operation timed out after 1 s"),
    ],
)
def test_failures_of_provided_code_are_the_reason(
    deployer: Deployer, attempts: int, properties: dict[str, str], words: str
) -> None:
    stack = deployer.create(provider(attempts, **properties))
    assert words in deployer.failures(stack["StackName"])["Accept"]


@pytest.mark.parametrize(
    ("code", "timeout_s", "words"),
    [
        ("import time\ndef handler(e, c): time.sleep(60)", 1, "Task timed out after 1.00 seconds"),
        ("def handler(e, c): return 1", 60, "returned without an answer"),
        ("import no_such_module\ndef handler(e, c): pass", 60, "No module named 'no_such_module'"),
        ("import os\ndef handler(e, c): os._exit(9)", 60, "ended without an answer"),
    ],
)
def test_broken_functions_fail_in_bounded_time(deployer: Deployer, code: str, timeout_s: int, words: str) -> None:
    resources = {"F": function(code, "handler", timeout_s), "R": custom({"Fn::GetAtt": ["F", "Arn"]})}
    stack = deployer.create(resources)
    assert words in deployer.failures(stack["StackName"])["R"]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"R": custom("arn:aws:sns:us-east-1:123456789012:topic")}, "is no Lambda function"),
        ({"R": custom("arn:aws:lambda:us-east-1:123456789012:function:none")}, "Function not found"),
        (
            {
                "F": function("x", "h", runtime="nodejs22.x"),
                "R": custom({"Fn::GetAtt": ["F", "Arn"]}, "Custom::Unheard"),
            },
            "Custom::Unheard is served by a nodejs22.x function",
        ),
    ],
)
def test_what_cannot_be_served_is_named(deployer: Deployer, resources: dict[str, Any], words: str) -> None:
    stack = deployer.create(resources)
    assert words in deployer.failures(stack["StackName"])["R"]


def test_the_cdks_bucket_emptier_is_stood_in_for(aws: EmbeddedAws, deployer: Deployer) -> None:
    versioned = {"BucketName": "emptied", "VersioningConfiguration": {"Status": "Enabled"}}
    resources = {
        "Data": {"Type": "AWS::S3::Bucket", "Properties": versioned},
        "F": function("x", "h", runtime="nodejs22.x"),
        "Empty": custom({"Fn::GetAtt": ["F", "Arn"]}, "Custom::S3AutoDeleteObjects", BucketName={"Ref": "Data"}),
    }
    deployer.create(resources, name="emptying")
    for _ in range(2):
        aws.clients("s3").put_object(Bucket="emptied", Key="k", Body=b"x")
    assert deployer.delete("emptying")["StackStatus"] == "DELETE_COMPLETE"


def test_functions_see_no_credentials_of_ours(
    aws: EmbeddedAws, deployer: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    code = "import os\ndef handler(e, c): return dict(os.environ)"
    deployer.create({"F": function(code, "handler")}, name="see")
    name = deployer.api.describe_stack_resources(StackName="see")["StackResources"][0]["PhysicalResourceId"]
    seen = json.load(aws.clients("lambda").invoke(FunctionName=name, Payload=b"{}")["Payload"])
    assert seen["AWS_SESSION_TOKEN"] not in ("", "secret")
    principal = aws.authority.principal(seen["AWS_ACCESS_KEY_ID"])
    assert principal is not None
    assert principal.role_arn == ROLE
    assert seen["AWS_ENDPOINT_URL"] == aws.address_endpoint


@pytest.mark.parametrize("in_order", [False, True])
def test_a_function_that_is_called_before_its_log_group_exists_makes_it(deployer: Deployer, in_order: bool) -> None:
    """As Lambda does: the stack that makes the group later fails (aws-cdk issue 667)."""
    name = f"early-{in_order}"
    plain = function(PLAIN % "SUCCESS", "handler")
    plain["Properties"]["FunctionName"] = name
    group = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": {"Fn::Sub": "/aws/lambda/${F}"}}}
    use = custom({"Fn::GetAtt": ["F", "Arn"]}, N=1)
    stack = deployer.create({"F": plain, "Logs": group, "C": {**use, **({"DependsOn": "Logs"} if in_order else {})}})
    failures = deployer.failures(stack["StackName"])
    assert (stack["StackStatus"], "Logs" in failures) == (
        ("CREATE_COMPLETE", False) if in_order else ("ROLLBACK_COMPLETE", True)
    )
    if not in_order:
        assert "already exists" in failures["Logs"]


def test_a_function_with_a_log_group_of_its_own_logs_there(aws: EmbeddedAws, deployer: Deployer) -> None:
    plain = function(PLAIN % "SUCCESS", "handler")
    plain["Properties"]["LoggingConfig"] = {"LogGroup": {"Ref": "Logs"}}
    resources = {"F": plain, "Logs": {"Type": "AWS::Logs::LogGroup"}, "C": custom({"Fn::GetAtt": ["F", "Arn"]}, N=1)}
    before = len(aws.clients("logs").describe_log_groups()["logGroups"])
    assert deployer.create(resources)["StackStatus"] == "CREATE_COMPLETE"
    assert len(aws.clients("logs").describe_log_groups()["logGroups"]) == before + 1
