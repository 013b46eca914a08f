"""The embedded AWS on a bad day answers as the real one does, and waits on its own side."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from preflight_cases import REGION

from tests.aws.preflight_aws import PreflightAws

# operation as misbehave takes it, service, method, parameters, the code of a denial, of a throttled request
OPERATIONS: list[tuple[str, str, str, dict[str, Any], str, str]] = [
    ("ec2:DescribeVpcs", "ec2", "describe_vpcs", {}, "UnauthorizedOperation", "RequestLimitExceeded"),
    ("iam:GetRole", "iam", "get_role", {"RoleName": "r"}, "AccessDenied", "Throttling"),
    ("cloudformation:DescribeStacks", "cloudformation", "describe_stacks", {}, "AccessDenied", "Throttling"),
    ("sts:GetCallerIdentity", "sts", "get_caller_identity", {}, "AccessDenied", "Throttling"),
    ("ssm:GetParameter", "ssm", "get_parameter", {"Name": "/n"}, "AccessDeniedException", "ThrottlingException"),
    ("fsx:DescribeFileSystems", "fsx", "describe_file_systems", {}, "AccessDeniedException", "ThrottlingException"),
    (
        "service-quotas:GetServiceQuota", "service-quotas", "get_service_quota",
        {"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"}, "AccessDeniedException", "ThrottlingException",
    ),
    ("amp:ListWorkspaces", "amp", "list_workspaces", {}, "AccessDeniedException", "ThrottlingException"),
    ("efs:DescribeFileSystems", "efs", "describe_file_systems", {}, "AccessDeniedException", "ThrottlingException"),
    ("s3:HeadBucket", "s3", "head_bucket", {"Bucket": "bucket"}, "403", "503"),
    ("s3:GetBucketPolicy", "s3", "get_bucket_policy", {"Bucket": "bucket"}, "AccessDenied", "SlowDown"),
    ("s3:ListObjectsV2", "s3", "list_objects_v2", {"Bucket": "bucket"}, "AccessDenied", "SlowDown"),
    ("s3:GetObject", "s3", "get_object", {"Bucket": "bucket", "Key": "a/b"}, "AccessDenied", "SlowDown"),
]  # fmt: skip
by_operation = pytest.mark.parametrize(
    ("operation", "service", "method", "parameters", "denied", "throttled"),
    OPERATIONS,
    ids=[row[0] for row in OPERATIONS],
)


def code_of(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


@by_operation
def test_denials_have_the_code_of_the_service(
    account: PreflightAws,
    operation: str,
    service: str,
    method: str,
    parameters: dict[str, Any],
    denied: str,
    throttled: str,
) -> None:
    with account.misbehave(operation, deny=True):
        assert code_of(getattr(account.clients(service), method), **parameters) == denied


@by_operation
def test_throttling_has_the_code_of_the_service(
    account: PreflightAws,
    operation: str,
    service: str,
    method: str,
    parameters: dict[str, Any],
    denied: str,
    throttled: str,
) -> None:
    with account.misbehave(operation, throttle=True):
        assert code_of(getattr(account.clients(service), method), **parameters) == throttled


def test_other_operations_are_left_alone(account: PreflightAws) -> None:
    with account.misbehave("ec2:DescribeVpcs", deny=True):
        assert account.clients("ec2").describe_subnets()["Subnets"]
    assert account.clients("ec2").describe_vpcs()["Vpcs"]


def test_the_like_of_an_operation_is_another(account: PreflightAws) -> None:
    """GET /BUCKET is ListObjects, ListObjectsV2, GetBucketPolicy, ... by its query alone."""
    bucket = f"{REGION}-aws-parallelcluster"
    with account.misbehave("s3:ListObjects", deny=True), account.misbehave("s3:GetBucketPolicy", deny=True):
        assert account.clients("s3").list_objects_v2(Bucket=bucket)["KeyCount"] == 2
        assert code_of(account.clients("s3").list_objects, Bucket=bucket) == "AccessDenied"


def test_whole_services_and_everything(account: PreflightAws) -> None:
    with account.misbehave("ec2:*", deny=True):
        assert code_of(account.clients("ec2").describe_subnets) == "UnauthorizedOperation"
        account.clients("sts").get_caller_identity()
    with account.misbehave("*", error=(403, "ExpiredToken", "The token has expired")):
        assert code_of(account.clients("sts").get_caller_identity) == "ExpiredToken"


def test_an_error_of_its_own_a_number_of_times(account: PreflightAws) -> None:
    account.misbehave("ec2:DescribeVpcs", error=(500, "InternalError", "An internal error has occurred"), times=2)
    assert [code_of(account.clients("ec2").describe_vpcs) for _ in range(2)] == ["InternalError"] * 2
    assert account.clients("ec2").describe_vpcs()["Vpcs"]


def test_a_request_that_was_looked_at_still_has_its_body(account: PreflightAws) -> None:
    with account.misbehave("ec2:DescribeSubnets", deny=True):
        vpc = account.clients("ec2").create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]
    assert vpc["CidrBlock"] == "10.3.0.0/16"


def test_a_delay_passes_on_the_server(account: PreflightAws) -> None:
    with account.misbehave("ec2:DescribeVpcs", delay_s=0.3):
        began = time.monotonic()
        assert account.clients("ec2").describe_vpcs()["Vpcs"]
        assert time.monotonic() - began >= 0.3


def test_a_hang_ends_by_the_clients_own_time_out(account: PreflightAws) -> None:
    config = Config(read_timeout=0.4, retries={"total_max_attempts": 1})
    client = boto3.client("ec2", region_name=REGION, config=config)
    with account.misbehave("ec2:DescribeVpcs", hang=True), pytest.raises(ReadTimeoutError):
        client.describe_vpcs()


def test_a_reset_ends_every_misbehaviour(account: PreflightAws) -> None:
    account.misbehave("*", deny=True)
    account.reset()
    assert account.clients("ec2").describe_vpcs()["Vpcs"]


@pytest.mark.parametrize("name", ["ec2:DescribeNothing", "nosuchservice:DescribeVpcs"])
def test_what_aws_has_not_cannot_misbehave(account: PreflightAws, name: str) -> None:
    with pytest.raises(Exception, match=r"no such operation|nosuchservice"):
        account.misbehave(name, deny=True)
