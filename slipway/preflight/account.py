"""The account: who asks, whether its region is enabled, and which of AWS's services that region has."""

from __future__ import annotations

import datetime
import email.utils
from collections.abc import Callable, Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.preflight.asking import found
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.regions import partition
from slipway.settings import Settings

HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""Where the global services of a partition answer; these regions are enabled in every account of it."""
CLOCK_LIMIT = datetime.timedelta(minutes=5)  # a signature is good for so long; Signature Version 4, IAM user guide
CLOCK_WARNING = datetime.timedelta(minutes=1)
SERVICE_PARAMETER = "/aws/service/global-infrastructure/regions/{region}/services/{service}"


def home_region(region: str) -> str:
    """The region that is always enabled, in the partition of `region`; itself where none is known."""
    return HOME_REGIONS.get(partition(region), region)


def identity(aws: Aws) -> Pending:
    """Who asks; asked where the answer does not depend on the region of the settings."""
    return aws.start("sts", "get_caller_identity", region=home_region(aws.region))


def account_id(aws: Aws) -> str:
    """The twelve digits of the account. Waits."""
    account: str = identity(aws).result()["Account"]
    return account


def _credentials(_: Settings, aws: Aws) -> Iterator[Answer]:
    caller = identity(aws).result()
    now = aws.now()
    arn = caller["Arn"]
    if arn.endswith(":root"):
        text = f"the credentials are the root user's of account {caller['Account']}: it cannot assume the CDK's roles"
        yield warning((), text, "use an IAM Identity Center user or a role")
    else:
        yield ok((), f"account {caller['Account']} as {arn}")
    yield from _clock(caller, now)


def _clock(caller: dict[str, Any], now: datetime.datetime) -> Iterator[Answer]:
    date = caller["ResponseMetadata"]["HTTPHeaders"].get("date")
    skew = now - email.utils.parsedate_to_datetime(date) if date else datetime.timedelta()
    if abs(skew) < CLOCK_WARNING:
        return
    direction = "ahead of" if skew > datetime.timedelta() else "behind"
    text = f"this machine's clock is {abs(skew).total_seconds() / 60:.0f} min {direction} AWS's"
    hint = "set the clock (timedatectl set-ntp true): AWS refuses signatures that are 5 min off"
    yield (fault if abs(skew) >= CLOCK_LIMIT else warning)((), text, hint)


def _region(settings: Settings, aws: Aws) -> Iterator[Answer]:
    region = settings.region
    home = home_region(region)
    asked = aws.start("ec2", "describe_regions", region=home, RegionNames=[region], AllRegions=True)
    answer = found(asked, "InvalidParameterValue")
    known = answer["Regions"] if answer else []
    if not known:
        yield fault(("region",), f"{region} is no region of AWS's partition {partition(region)}", "correct region")
    elif known[0].get("OptInStatus") == "not-opted-in":
        hint = f"aws account enable-region --region-name {region}; it takes minutes to hours"
        yield fault(("region",), f"{region} is not enabled in this account", hint)
    else:
        yield ok(("region",), f"{region} is enabled")


Condition = Callable[[Settings], bool]


def _mounts(kind: str) -> Condition:
    return lambda s: any(mount.kind == kind for mount in s.storage.mounts)


# Service as Systems Manager's public parameters name it, its name for people, the key that asks for it, and when.
SERVICES: tuple[tuple[str, str, tuple[str, ...], Condition], ...] = (
    ("fsx-lustre", "FSx for Lustre", ("storage", "fsx"), lambda _: True),
    ("lambda", "Lambda", ("region",), lambda _: True),
    ("aps", "Managed Prometheus", ("observability", "prometheus"), lambda s: s.observability.prometheus),
    ("grafana", "Managed Grafana", ("observability", "grafana"), lambda s: s.observability.grafana),
    ("stepfunctions", "Step Functions", ("acceptance", "scenario"), lambda s: s.acceptance.scenario != "none"),
    ("efs", "EFS", ("storage", "mounts"), _mounts("efs")),
    ("fsx-openzfs", "FSx for OpenZFS", ("storage", "mounts"), _mounts("fsx-openzfs")),
    ("fsx-ontap", "FSx for NetApp ONTAP", ("storage", "mounts"), _mounts("fsx-ontap")),
    ("filecache", "File Cache", ("storage", "mounts"), _mounts("file-cache")),
)
WITHOUT = {
    "aps": "set observability.prometheus: false, or take another region",
    "grafana": "set observability.grafana: false, or take another region",
    "stepfunctions": "set acceptance.scenario: none, or take another region",
}


def _services(settings: Settings, aws: Aws) -> Iterator[Answer]:
    needed = [row for row in SERVICES if row[3](settings)]
    names = {row[0]: SERVICE_PARAMETER.format(region=settings.region, service=row[0]) for row in needed}
    answer = aws.call("ssm", "get_parameters", Names=list(names.values()))
    there = {parameter["Name"] for parameter in answer["Parameters"]}
    if not there:  # a region that Systems Manager does not describe: nothing can be concluded
        yield warning(("region",), f"AWS publishes no list of services of {settings.region}", "look them up by hand")
        return
    for service, title, path, _ in needed:
        if names[service] not in there:
            yield fault(
                path, f"{title} is not offered in {settings.region}", WITHOUT.get(service, "take another region")
            )
    yield ok(("region",), f"{len(there)} of {len(needed)} services needed are in {settings.region}")


QUESTIONS = (
    Question(
        name="credentials",
        asks="Are there credentials that AWS accepts, whose are they, and is this machine's clock right?",
        why="Nothing can be deployed without; a clock that is 5 min off makes every signature invalid.",
        source="IAM user guide, Signature Version 4; CDK bootstrapping guide (root cannot assume roles)",
        permissions=("sts:GetCallerIdentity",),
        finds=(Status.FAULT, Status.WARNING),
        ask=_credentials,
    ),
    Question(
        name="region-enabled",
        asks="Is the region there and enabled in this account?",
        why="Regions opened after March 2019 are off until they are enabled.",
        source="EC2 API reference, DescribeRegions; Account Management reference guide",
        permissions=("ec2:DescribeRegions",),
        ask=_region,
    ),
    Question(
        name="services-in-region",
        asks="Does the region have every service that the settings ask for?",
        why="Managed Grafana is in about ten regions; a stack with a type that is not there fails.",
        source="Systems Manager user guide, public parameters of the global infrastructure",
        permissions=("ssm:GetParameters",),
        finds=(Status.FAULT, Status.WARNING),
        ask=_services,
    ),
)
