"""Who asks, whether the region can be used, and what has to be there before the first stack."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from arrange_services import role_with_path, without_role
from moto.sts.models import STSBackend
from preflight_cases import REGION, Case, check, denied

from rehearsal.cloud_model import ACCOUNT
from slipway.cluster_config import PROVIDER_TEMPLATE
from slipway.places import cdk
from slipway.preflight.account import home_region
from slipway.preflight.model import Answer, Status
from slipway.regions import partition
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
AGAIN = f"{cdk()} bootstrap aws://{ACCOUNT}/{REGION}"
CALLER = f"account {ACCOUNT} as arn:aws:sts::{ACCOUNT}:user/moto"
SET_CLOCK = "set the clock (timedatectl set-ntp true): AWS refuses signatures that are 5 min off"
EXPIRED = (403, "ExpiredToken", "The security token included in the request is expired")


def clock(minutes: float) -> Callable[[], datetime.datetime]:
    """The real clock, set wrong by so much."""
    return lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)


def in_region(region: str) -> dict[str, str]:
    return {"region": region, "zone": f"{region}a"}


def bootstrap_version(version: str) -> Callable[[PreflightAws], object]:
    name = "/cdk-bootstrap/hnb659fds/version"
    return lambda aws: aws.clients("ssm").put_parameter(Name=name, Value=version, Type="String", Overwrite=True)


def not_bootstrapped(aws: PreflightAws) -> None:
    aws.clients("ssm").delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    without_bucket(aws)
    for kind in ("deploy", "file-publishing", "cfn-exec"):
        without_role(kind)(aws)


def without_bucket(aws: PreflightAws) -> None:
    aws.clients("s3").delete_bucket(Bucket=f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}")


def without_template(aws: PreflightAws) -> None:
    aws.clients("s3").delete_object(Bucket=f"{REGION}-aws-parallelcluster", Key=PROVIDER_TEMPLATE)


BOOTSTRAPPED = "the CDK's bootstrap has version 30"
GRAFANA = {"observability": {"grafana": True}}
CASES = [
    Case("credentials", "accepted", OK, CALLER, (), now=clock(0)),
    Case("credentials", "fast clock", FAULT, "this machine's clock is 12 min ahead of AWS's", (), SET_CLOCK,
         now=clock(12.1)),
    Case("credentials", "slow clock", WARNING, "this machine's clock is 2 min behind AWS's", (), SET_CLOCK,
         now=clock(-2.1)),
    denied("sts:GetCallerIdentity", "credentials", now=clock(0)),
    Case("credentials", "expired", Status.COULD_NOT_ASK,
         f"the credentials are not accepted: {EXPIRED[2]} ({EXPIRED[1]})",
         arrange=lambda aws: aws.misbehave("sts:GetCallerIdentity", error=EXPIRED)),
    Case("region-enabled", "enabled", OK, "us-east-1 is enabled", ("region",)),
    Case("region-enabled", "off", FAULT, "eu-south-2 is not enabled in this account", ("region",),
         "aws account enable-region --region-name eu-south-2; it takes minutes to hours",
         settings=in_region("eu-south-2"), region="eu-south-2"),
    Case("region-enabled", "unknown", FAULT, "eu-north-9 is no region of AWS's partition aws", ("region",),
         settings=in_region("eu-north-9"), region="eu-north-9"),
    denied("ec2:DescribeRegions", "region-enabled"),
    Case("services-in-region", "all", OK, "5 of 5 services needed are in us-east-1", ("region",), settings=GRAFANA),
    Case("services-in-region", "no Grafana", FAULT, "Managed Grafana is not offered in eu-north-1",
         ("observability", "grafana"), "set observability.grafana: false, or take another region",
         settings={**GRAFANA, **in_region("eu-north-1")}, region="eu-north-1"),
    Case("services-in-region", "no File Cache", FAULT, "File Cache is not offered in eu-north-1", ("storage", "mounts"),
         "take another region", region="eu-north-1",
         settings={**in_region("eu-north-1"),
                   "storage": {"mounts": [{"path": "/c", "kind": "file-cache", "id": "fc-0123456789abcdef0"}]}}),
    Case("services-in-region", "no list", WARNING, "AWS publishes no list of services of us-east-9", ("region",),
         settings=in_region("us-east-9")),
    denied("ssm:GetParameters", "services-in-region"),
    Case("cdk-bootstrap", "there", OK, BOOTSTRAPPED, ("region",)),
    Case("cdk-bootstrap", "none", FAULT, f"the CDK is not bootstrapped in {REGION}", ("region",), AGAIN,
         arrange=not_bootstrapped, alone=False),
    Case("cdk-bootstrap", "too old", FAULT, "the CDK's bootstrap has version 5, needed is 6", ("region",), AGAIN,
         arrange=bootstrap_version("5")),
    Case("cdk-bootstrap", "old", WARNING, "the CDK's bootstrap has version 7: it has no look-up role yet", ("region",),
         AGAIN, arrange=bootstrap_version("7")),
    Case("cdk-bootstrap", "bucket gone", FAULT, "the bucket of the CDK's bootstrap is gone", ("region",),
         f"delete the stack CDKToolkit, then {AGAIN}", arrange=without_bucket),
    Case("cdk-bootstrap", "role gone", FAULT,
         f"the role cdk-hnb659fds-deploy-role-{ACCOUNT}-{REGION} is not there: it creates the change sets", ("region",),
         AGAIN, arrange=without_role("deploy")),
    Case("cdk-bootstrap", "role with a path", FAULT,
         f"the role cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-{REGION} has the path /team/: the CDK names it without one, and "
         "cannot use it", ("region",), "bootstrap with a template whose roles have no Path",
         arrange=role_with_path("cfn-exec")),
    denied("ssm:GetParameter", "cdk-bootstrap"),
    denied("sts:GetCallerIdentity", "cdk-bootstrap"),
    denied("s3:HeadBucket", "cdk-bootstrap", "s3:ListBucket"),
    denied("iam:GetRole", "cdk-bootstrap"),
    Case("provider-template", "there", OK,
         f"ParallelCluster 3.16.1's provider template is at s3://{REGION}-aws-parallelcluster", ("region",)),
    Case("provider-template", "not there", FAULT, f"ParallelCluster 3.16.1 has no provider template in {REGION}",
         ("region",), "take a region that ParallelCluster supports", arrange=without_template),
    denied("s3:HeadObject", "provider-template", "s3:GetObject"),
]  # fmt: skip
ROOT = Case("credentials", "root", WARNING,
            f"the credentials are the root user's of account {ACCOUNT}: it cannot assume the CDK's roles", (),
            "use an IAM Identity Center user or a role", now=clock(0))  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_account(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_the_root_user(ask: Callable[[Case], tuple[Answer, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    root = (ACCOUNT, f"arn:aws:iam::{ACCOUNT}:root", ACCOUNT)
    monkeypatch.setattr(STSBackend, "get_caller_identity", lambda *_: root)
    check(ROOT, ask(ROOT))


def test_what_is_not_there_is_told_at_once(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    case = next(case for case in CASES if case.name == "none")
    assert len([answer.text for answer in ask(case)]) == 5  # version, bucket, three roles


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-east-1", ("aws", "us-east-1")),
        ("cn-northwest-1", ("aws-cn", "cn-north-1")),
        ("us-gov-east-1", ("aws-us-gov", "us-gov-west-1")),
        ("us-iso-east-1", ("aws-iso", "us-iso-east-1")),
    ],
)
def test_partitions(region: str, expected: tuple[str, str]) -> None:
    assert (partition(region), home_region(region)) == expected
