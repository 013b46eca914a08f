"""What has to be there before the first stack: the CDK's bootstrap and ParallelCluster's provider template."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from slipway.aws.calls import Aws, Pending, Unasked
from slipway.cluster_config import PROVIDER_TEMPLATE
from slipway.places import cdk
from slipway.preflight.account import account_id
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.regions import partition
from slipway.settings import PARALLELCLUSTER_VERSION, Settings

QUALIFIER = "hnb659fds"  # the CDK's default; cdk.json sets no other
VERSION_PARAMETER = f"/cdk-bootstrap/{QUALIFIER}/version"
VERSION_NEEDED = 6  # requiresBootstrapStackVersion of every stack and asset of aws-cdk-lib 2.275.0's assemblies
VERSION_OF_LOOKUP = 8  # the same of the look-up role, without which the CLI uses the deploying role
ROLES = {
    "deploy": "creates the change sets",
    "file-publishing": "uploads the templates and the nodes' bundle",
    "cfn-exec": "makes the resources",
}


def role_name(kind: str, account: str, region: str) -> str:
    """Name of one of the bootstrap's roles."""
    return f"cdk-{QUALIFIER}-{kind}-role-{account}-{region}"


def role_arn(kind: str, account: str, region: str) -> str:
    """ARN of one of the bootstrap's roles."""
    return f"arn:{partition(region)}:iam::{account}:role/{role_name(kind, account, region)}"


def _bootstrap(settings: Settings, aws: Aws) -> Iterator[Answer]:
    version = aws.start("ssm", "get_parameter", Name=VERSION_PARAMETER)
    try:
        account = account_id(aws)
    except Unasked:
        yield from together(_version(version, "ACCOUNT", settings.region))
        raise
    bucket = aws.start("s3", "head_bucket", Bucket=f"cdk-{QUALIFIER}-assets-{account}-{settings.region}")
    roles = {kind: aws.start("iam", "get_role", RoleName=role_name(kind, account, settings.region)) for kind in ROLES}
    again = _command(account, settings.region)
    parts = (_version(version, account, settings.region), _assets(bucket, again), _roles(roles, account, aws.region))
    yield from together(*parts)


def _command(account: str, region: str) -> str:
    return shlex.join([cdk(), "bootstrap", f"aws://{account}/{region}"])


def _version(asked: Pending, account: str, region: str) -> Iterator[Answer]:
    again = _command(account, region)
    answer = found(asked, "ParameterNotFound")
    if answer is None:
        yield fault(("region",), f"the CDK is not bootstrapped in {region}", again)
        return
    version = int(answer["Parameter"]["Value"])
    if version < VERSION_NEEDED:
        yield fault(("region",), f"the CDK's bootstrap has version {version}, needed is {VERSION_NEEDED}", again)
    elif version < VERSION_OF_LOOKUP:
        yield warning(("region",), f"the CDK's bootstrap has version {version}: it has no look-up role yet", again)
    else:
        yield ok(("region",), f"the CDK's bootstrap has version {version}")


def _assets(asked: Pending, again: str) -> Iterator[Answer]:
    if found(asked, "404", "NoSuchBucket") is None:
        hint = f"delete the stack CDKToolkit, then {again}"
        yield fault(("region",), "the bucket of the CDK's bootstrap is gone", hint)


def _roles(asked: dict[str, Pending], account: str, region: str) -> Iterator[Answer]:
    for kind, pending in asked.items():
        name, answer = role_name(kind, account, region), found(pending, "NoSuchEntity")
        if answer is None:
            yield fault(("region",), f"the role {name} is not there: it {ROLES[kind]}", _command(account, region))
        elif answer["Role"]["Path"] != "/":
            path = answer["Role"]["Path"]
            text = f"the role {name} has the path {path}: the CDK names it without one, and cannot use it"
            yield fault(("region",), text, "bootstrap with a template whose roles have no Path")


def _provider(settings: Settings, aws: Aws) -> Iterator[Answer]:
    bucket = f"{settings.region}-aws-parallelcluster"
    if (
        found(aws.start("s3", "head_object", Bucket=bucket, Key=PROVIDER_TEMPLATE), "404", "NoSuchKey", "NoSuchBucket")
        is None
    ):
        text = f"ParallelCluster {PARALLELCLUSTER_VERSION} has no provider template in {settings.region}"
        yield fault(("region",), text, "take a region that ParallelCluster supports")
    else:
        yield ok(("region",), f"ParallelCluster {PARALLELCLUSTER_VERSION}'s provider template is at s3://{bucket}")


QUESTIONS = (
    Question(
        name="cdk-bootstrap",
        asks="Is the CDK bootstrapped in account and region: version, bucket and roles?",
        why="`cdk deploy` uploads to this bucket and acts through these roles; each can be deleted by hand.",
        source="CDK guide, bootstrapping; requiresBootstrapStackVersion in the assemblies of aws-cdk-lib 2.275.0; "
        "aws-cdk issue 24223",
        permissions=("ssm:GetParameter", "sts:GetCallerIdentity", "s3:ListBucket", "iam:GetRole"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_bootstrap,
    ),
    Question(
        name="provider-template",
        asks="Is ParallelCluster's custom resource offered in the region, in the version used here?",
        why="The cluster stack begins with AWS's own template; it is not in every region.",
        source="ParallelCluster user guide, custom resource for CloudFormation",
        permissions=("s3:GetObject",),
        ask=_provider,
    ),
)
