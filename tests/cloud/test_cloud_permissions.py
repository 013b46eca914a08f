"""Roles in the embedded AWS: whose request is allowed, how a refusal looks, and what the printed policies allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from rehearsal.cloud.metadata import Identity, MetadataService
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ACCOUNT
from rehearsal.permissions import report
from rehearsal.permissions.authority import Credentials, Denied
from slipway.deploy_policy import deployer_policy, execution_policy
from slipway.settings import load_settings
from tests.stacks.assembly import EXAMPLES

REGION = "us-east-1"
DATA = "arn:aws:s3:::data-of-a-test"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/reader/i-1"

POLICY_CHARACTERS = 6144  # of a managed policy, white space not counted: IAM user guide, quotas


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def make_role(aws: EmbeddedAws, name: str, *statements: dict[str, Any], **more: Any) -> Credentials:
    iam = aws.clients("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(), **more)
    if statements:
        iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document(*statements))
    return aws.authority.session(name, "i-1")


def client(aws: EmbeddedAws, credentials: Credentials, service: str) -> Any:
    given = {key.lower(): value for key, value in credentials.items()}
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=aws.address_endpoint,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        **given,
    )


@pytest.fixture
def account(aws: EmbeddedAws) -> EmbeddedAws:
    """A fresh account with a bucket and an object in it."""
    aws.reset()
    aws.authority.denials.clear()
    aws.clients("s3").create_bucket(Bucket="data-of-a-test")
    aws.clients("s3").put_object(Bucket="data-of-a-test", Key="a/b", Body=b"text")
    return aws


def code(call: Callable[[], Any]) -> str:
    """The error code of a refused call; empty if it is allowed."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_role_may_do_what_its_policies_allow(account: EmbeddedAws) -> None:
    key = make_role(account, "reader", allow("s3:GetObject", f"{DATA}/a/*"))
    s3 = client(account, key, "s3")
    assert s3.get_object(Bucket="data-of-a-test", Key="a/b")["Body"].read() == b"text"
    assert s3.head_object(Bucket="data-of-a-test", Key="a/b")["ContentLength"] == 4
    assert code(lambda: s3.get_object(Bucket="data-of-a-test", Key="b")) == "AccessDenied"
    assert code(lambda: s3.put_object(Bucket="data-of-a-test", Key="a/b", Body=b"")) == "AccessDenied"
    assert code(lambda: s3.list_objects_v2(Bucket="data-of-a-test")) == "AccessDenied"
    assert code(lambda: s3.copy_object(Bucket="data-of-a-test", Key="a/c", CopySource="data-of-a-test/a/b"))
    assert client(account, key, "sts").get_caller_identity()["Arn"] == SESSION


REFUSED = [
    ("ec2", "describe_instances", {}, "UnauthorizedOperation", "ec2:DescribeInstances", "*"),
    ("ec2", "describe_instance_topology", {}, "UnauthorizedOperation", "ec2:DescribeInstanceTopology", "*"),
    ("iam", "get_role", {"RoleName": "reader"}, "AccessDenied", "iam:GetRole", f"arn:aws:iam::{ACCOUNT}:role/reader"),
    ("ssm", "get_parameter", {"Name": "/x"}, "AccessDeniedException", "ssm:GetParameter",
     f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/x"),
    ("lambda", "list_functions", {}, "AccessDeniedException", "lambda:ListFunctions", "*"),
    ("amp", "list_workspaces", {}, "AccessDeniedException", "aps:ListWorkspaces",
     f"arn:aws:aps:{REGION}:{ACCOUNT}:*"),
    ("cloudwatch", "describe_alarms", {}, "AccessDeniedException", "cloudwatch:DescribeAlarms", "*"),
    ("cloudformation", "describe_stacks", {"StackName": "ml"}, "AccessDenied", "cloudformation:DescribeStacks",
     f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/ml/*"),
    ("secretsmanager", "get_secret_value", {"SecretId": "k"}, "AccessDeniedException",
     "secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:k-AbCdEf"),
    ("s3", "list_objects_v2", {"Bucket": "data-of-a-test"}, "AccessDenied", "s3:ListBucket", DATA),
    ("logs", "create_log_stream", {"logGroupName": "g", "logStreamName": "s"}, "AccessDeniedException",
     "logs:CreateLogStream", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:g:log-stream:s"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "operation", "parameters", "expected", "action", "resource"), REFUSED)
def test_a_refusal_is_aws_own(
    account: EmbeddedAws, service: str, operation: str, parameters: dict[str, Any], expected: str, action: str,
    resource: str,
) -> None:  # fmt: skip
    key = make_role(account, "reader")
    with pytest.raises(ClientError) as caught:
        getattr(client(account, key, service), operation)(**parameters)
    error = caught.value.response["Error"]
    text = f"User: {SESSION} is not authorized to perform: {action} on resource: {resource}"
    assert error["Code"] == expected
    assert error["Message"].endswith(f"{text} because no identity-based policy allows the {action} action")
    assert [denial.request.action for denial in account.authority.denials] == [action]


def test_a_refusal_names_who_is_granted_the_action(account: EmbeddedAws) -> None:
    make_role(account, "other", allow("ssm:SendCommand"))
    key = make_role(account, "reader")
    sent = {"DocumentName": "AWS-RunShellScript", "InstanceIds": ["i-1"]}
    assert code(lambda: client(account, key, "ssm").send_command(**sent)) == "AccessDeniedException"
    text = report.fault(account.authority.denials[0])
    assert "resource: arn:aws:ssm:us-east-1::document/AWS-RunShellScript" in text
    assert "other/own[0] of other allows it" in text
    assert "ssm:SendCommand is granted in stacks/acceptance.py:" in text


def test_a_boundary_and_a_session_of_sts(account: EmbeddedAws) -> None:
    iam = account.clients("iam")
    made = iam.create_policy(PolicyName="bounds", PolicyDocument=document(allow("s3:*"), allow("sts:*")))["Policy"]
    trust = document({"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": ACCOUNT}})
    key = make_role(account, "reader", allow("*"), PermissionsBoundary=made["Arn"])
    iam.create_role(RoleName="target", AssumeRolePolicyDocument=trust)
    iam.create_role(RoleName="closed", AssumeRolePolicyDocument=trust.replace(ACCOUNT, "999999999999"))
    sts = client(account, key, "sts")
    assert code(lambda: client(account, key, "ec2").describe_vpcs()) == "UnauthorizedOperation"
    session = sts.assume_role(RoleArn=f"arn:aws:iam::{ACCOUNT}:role/target", RoleSessionName="again")["Credentials"]
    assumed = Credentials.make(session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])
    assert code(lambda: client(account, assumed, "s3").list_buckets()) == "AccessDenied"
    closed = f"arn:aws:iam::{ACCOUNT}:role/closed"
    assert code(lambda: sts.assume_role(RoleArn=closed, RoleSessionName="again")) == "AccessDenied"


def test_a_bucket_policy_counts(account: EmbeddedAws) -> None:
    key, s3 = make_role(account, "reader", allow("s3:*")), account.clients("s3")
    read = lambda: client(account, key, "s3").get_object(Bucket="data-of-a-test", Key="a/b")  # noqa: E731
    refuse = {"Effect": "Deny", "Action": "s3:GetObject", "Resource": f"{DATA}/*", "Principal": "*"}
    plain = {**refuse, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    s3.put_bucket_policy(Bucket="data-of-a-test", Policy=document(plain))
    assert code(read) == ""
    s3.put_bucket_policy(Bucket="data-of-a-test", Policy=document(refuse))
    assert code(read) == "AccessDenied"


def test_a_role_is_passed_only_if_that_is_allowed(account: EmbeddedAws) -> None:
    key = make_role(account, "reader", allow("lambda:*"))
    function = {"FunctionName": "f", "Runtime": "python3.12", "Handler": "i.h", "Code": {"ZipFile": b"x"}}
    role = f"arn:aws:iam::{ACCOUNT}:role/reader"
    assert code(lambda: client(account, key, "lambda").create_function(Role=role, **function))
    assert [denial.request.action for denial in account.authority.denials] == ["iam:PassRole"]


def test_conditions_on_what_is_attached(account: EmbeddedAws) -> None:
    ours = {"ArnLike": {"iam:PolicyARN": f"arn:aws:iam::{ACCOUNT}:policy/parallelcluster/*"}}
    key, iam = make_role(account, "reader", allow("iam:AttachRolePolicy", Condition=ours)), account.clients("iam")
    for path in ("/parallelcluster/ml/", "/other/"):
        iam.create_policy(PolicyName="p", Path=path, PolicyDocument=document(allow("s3:*")))
    attach = client(account, key, "iam").attach_role_policy
    arn = f"arn:aws:iam::{ACCOUNT}:policy"
    assert code(lambda: attach(RoleName="reader", PolicyArn=f"{arn}/parallelcluster/ml/p")) == ""
    assert code(lambda: attach(RoleName="reader", PolicyArn=f"{arn}/other/p")) == "AccessDenied"


def test_cloudformation_acts_with_the_role_of_the_stack(account: EmbeddedAws) -> None:
    make_role(account, "making", allow(["logs:CreateLogGroup", "sns:*"]))
    template = json.dumps({"Resources": {"G": {"Type": "AWS::Logs::LogGroup"}, "B": {"Type": "AWS::S3::Bucket"}}})
    cloudformation = account.clients("cloudformation")
    cloudformation.create_stack(StackName="s", TemplateBody=template, RoleARN=f"arn:aws:iam::{ACCOUNT}:role/making")
    assert account.stacks.wait_idle(120)
    events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
    failed = {event["LogicalResourceId"]: event["ResourceStatusReason"] for event in events
              if event["ResourceStatus"] == "CREATE_FAILED"}  # fmt: skip
    assert set(failed) == {"B"}
    assert "assumed-role/making/AWSCloudFormation is not authorized to perform: s3:CreateBucket" in failed["B"]


def test_what_is_granted_and_not_used_is_listed(account: EmbeddedAws) -> None:
    key = make_role(account, "reader", allow(["s3:GetObject", "s3:PutObject", "s3:List*"], f"{DATA}/*"))
    client(account, key, "s3").get_object(Bucket="data-of-a-test", Key="a/b")
    unused = [grant for grant in report.unused(account.authority) if grant.policy == "reader/own"]
    assert [grant.action for grant in unused] == ["s3:List*", "s3:PutObject"]


def test_an_operation_without_a_row_is_listed(account: EmbeddedAws) -> None:
    key = make_role(account, "reader", allow("ec2:*"))
    client(account, key, "ec2").create_vpc(CidrBlock="10.0.0.0/16")
    assert account.authority.unmapped["ec2:CreateVpc"]
    assert not account.authority.unmapped["ec2:DescribeInstances"]


def test_the_metadata_service_gives_each_instance_its_role(account: EmbeddedAws) -> None:
    key = account.authority.session("reader", "i-1")
    head = Identity("i-1", "m5.8xlarge", "us-east-1a", "10.0.0.4", "reader", key)
    service = MetadataService({"10.0.0.4": head}.get)

    def ask(path: str, method: str = "GET", address: str = "10.0.0.4", **headers: str) -> tuple[str, str]:
        got: list[str] = []
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": address, **headers}
        body = b"".join(service.answer(environ, lambda status, _: got.append(status)))
        return got[0][:3], body.decode()

    roles = "/latest/meta-data/iam/security-credentials/"
    assert ask(roles)[0] == "401"  # version 1
    _, token = ask("/latest/api/token", "PUT", HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS="21600")
    asked = {"HTTP_X_AWS_EC2_METADATA_TOKEN": token}
    assert ask(roles, **asked) == ("200", "reader")
    assert json.loads(ask(f"{roles}reader", **asked)[1])["AccessKeyId"] == key.access_key
    assert ask("/latest/meta-data/placement/region", **asked) == ("200", "us-east-1")
    assert ask(f"{roles}other", **asked)[0] == "404"
    assert ask(roles, address="10.0.0.5", **asked)[0] == "404"


def test_an_agent_without_its_permissions_is_not_known_to_systems_manager(account: EmbeddedAws) -> None:
    without, core = make_role(account, "compute"), allow(["ssm:UpdateInstanceInformation", "ssmmessages:*"])
    account.register_instance("i-compute", "compute", "10.0.0.5", without)
    account.register_instance("i-head", "head", "10.0.0.4", make_role(account, "head", core))
    known = account.clients("ssm").describe_instance_information()["InstanceInformationList"]
    assert [item["InstanceId"] for item in known if item["InstanceId"] in ("i-compute", "i-head")] == ["i-head"]
    assert account.authority.denials == []  # ParallelCluster's compute nodes have no agent that is heard


def test_metrics_are_taken_from_a_role_that_may_write_them(account: EmbeddedAws) -> None:
    workspace = account.clients("amp").create_workspace(alias="ml")["workspaceId"]
    head = make_role(account, "head", allow("aps:RemoteWrite", f"arn:aws:aps:{REGION}:{ACCOUNT}:workspace/{workspace}"))
    other = make_role(account, "other", allow("aps:RemoteWrite", "arn:aws:aps:*:*:workspace/ws-0"))
    account.credentials_at = {"10.0.0.4": head, "10.0.0.5": other}.get
    assert account._may_write("10.0.0.4", workspace) == ""
    assert "aps:RemoteWrite" in account._may_write("10.0.0.5", workspace)


@pytest.mark.parametrize("file", EXAMPLES.values(), ids=EXAMPLES)
def test_the_execution_policy_fits_into_one_managed_policy(file: Path) -> None:
    settings = load_settings(file)
    for policy in (execution_policy(settings), deployer_policy(settings)):
        assert len(json.dumps(policy, separators=(",", ":"))) <= POLICY_CHARACTERS
        names = [statement["Sid"] for statement in policy["Statement"]]
        assert len(names) == len(set(names))


def test_a_denied_action_in_this_process_is_a_failure_of_the_resource(account: EmbeddedAws) -> None:
    make_role(account, "reader")
    principal = account.authority.principal(account.authority.session("reader", "i-1").access_key)
    assert principal is not None
    with pytest.raises(Denied, match="lambda:InvokeFunction"):
        account.authority.authorize(principal, "lambda:InvokeFunction", "arn:aws:lambda:us-east-1:1:function:f")
