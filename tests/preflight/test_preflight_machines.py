"""Zone, instance types, image, key pair and placement groups, each as it should be and as it should not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from moto.ec2.models import ec2_backends
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPES as MOTO_TYPES
from preflight_cases import REGION, Case, check, denied

from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
ZONE = f"{REGION}a"
IMAGE = "ami-00000000000000003"
IMAGE_OF = "ParallelCluster 3.16.1 for ubuntu2204 on x86_64"
KEY = {"head_node": {"key_pair": "platform"}}


def queue(**keys: Any) -> dict[str, Any]:
    return {"queues": [{"name": "dev", "count": 1, **keys}]}


def key_pair(kind: str) -> Callable[[PreflightAws], object]:
    return lambda aws: aws.clients("ec2").create_key_pair(KeyName="platform", KeyType=kind)


def placement_group(strategy: str, state: str = "available") -> Callable[[PreflightAws], None]:
    def arrange(aws: PreflightAws) -> None:
        made = aws.clients("ec2").create_placement_group(GroupName="training", Strategy=strategy)
        name = made["PlacementGroup"]["GroupName"]
        ec2_backends[ACCOUNT][REGION].__dict__["rehearsal_placement_groups"][name]["State"] = state

    return arrange


def without_images(_: PreflightAws) -> None:
    ec2_backends[ACCOUNT][REGION].amis.clear()


def deprecated(time: str) -> Callable[[PreflightAws], None]:
    def arrange(_: PreflightAws) -> None:
        ec2_backends[ACCOUNT][REGION].amis[IMAGE].deprecation_time = time

    return arrange


GROUPED = {
    "queues": [{"name": "dev", "instance_type": "g6.12xlarge", "count": 1, "placement_group": "training"}],
}
KEY_PATH, GROUP_PATH = ("head_node", "key_pair"), ("queues", 0, "placement_group")
NO_BLOCK = queue(instance_type="g6.12xlarge", reservation={"kind": "capacity-block", "id": "cr-0123456789abcdef1"})

CASES = [
    Case("zone", "there", OK, f"{ZONE} (use1-az6) is available", ("zone",)),
    Case("zone", "not there", FAULT, f"the account has no {REGION}g", ("zone",),
         f"it has {', '.join(REGION + letter for letter in 'abcdef')}", {"zone": f"{REGION}g"}),
    denied("ec2:DescribeAvailabilityZones", "zone"),

    Case("instance-offerings", "offered", OK, f"p5.48xlarge is offered in {ZONE}", ("queues", 0, "instance_type")),
    Case("instance-offerings", "the head node's", OK, f"m5.2xlarge is offered in {ZONE}", ("head_node", "instance_type")),
    Case("instance-offerings", "elsewhere", FAULT, f"p6-b200.48xlarge is not offered in {ZONE}",
         ("queues", 0, "instance_type"), f"zones that have it: {REGION}c", queue(instance_type="p6-b200.48xlarge")),
    denied("ec2:DescribeInstanceTypeOfferings", "instance-offerings"),

    Case("instance-facts", "as known", OK, "p5.48xlarge is as Slipway knows it", ("queues", 0, "instance_type")),
    Case("instance-facts", "no block", FAULT, "g6.12xlarge is not sold in capacity blocks",
         ("queues", 0, "reservation", "kind"), "write kind: on-demand", NO_BLOCK),
    denied("ec2:DescribeInstanceTypes", "instance-facts"),

    Case("image", "there", OK, f"{IMAGE} is the image of {IMAGE_OF}", ("os",)),
    Case("image", "none", FAULT, f"there is no image of {IMAGE_OF} in {REGION}", ("os",), arrange=without_images),
    Case("image", "deprecated", WARNING, f"{IMAGE}, the image of {IMAGE_OF}, is deprecated since 2026-11-01", ("os",),
         arrange=deprecated("2026-11-01T00:00:00.000Z")),
    Case("image", "deprecated one day", OK, f"{IMAGE} is the image of {IMAGE_OF}",
         arrange=deprecated("2028-08-08T00:00:00.000Z")),
    denied("ec2:DescribeImages", "image"),
    denied("ec2:DescribeInstanceTypes", "image"),

    Case("key-pair", "there", OK, "the key pair platform is there (ed25519)", KEY_PATH, settings=KEY,
         arrange=key_pair("ed25519")),
    Case("key-pair", "not there", FAULT, f"there is no key pair platform in {REGION}", KEY_PATH,
         f"aws ec2 describe-key-pairs --region {REGION} lists those there are", KEY),
    Case("key-pair", "RSA", FAULT, "the key pair platform is RSA, which ubuntu2204 refuses", KEY_PATH,
         f"aws ec2 create-key-pair --key-type ed25519 --region {REGION} --key-name NAME", KEY, key_pair("rsa")),
    Case("key-pair", "RSA on Amazon Linux", OK, "the key pair platform is there (rsa)", KEY_PATH,
         settings={**KEY, "os": "alinux2023"}, arrange=key_pair("rsa")),
    denied("ec2:DescribeKeyPairs", "key-pair", settings=KEY),

    Case("placement-groups", "there", OK, "the placement group training is available (cluster)", GROUP_PATH,
         settings=GROUPED, arrange=placement_group("cluster")),
    Case("placement-groups", "not there", FAULT, f"there is no placement group training in {REGION}", GROUP_PATH,
         f"aws ec2 create-placement-group --strategy cluster --region {REGION} --group-name training", GROUPED),
    Case("placement-groups", "spread", FAULT,
         "the placement group training has the strategy spread, which keeps instances apart", GROUP_PATH,
         "name one with the strategy cluster", GROUPED, placement_group("spread")),
    Case("placement-groups", "going", FAULT, "the placement group training is deleting", GROUP_PATH,
         settings=GROUPED, arrange=placement_group("cluster", "deleting")),
    denied("ec2:DescribePlacementGroups", "placement-groups", settings=GROUPED),
]  # fmt: skip

# What moto holds in tables of its own, and so is put back after the test.
IMPAIRED = Case("zone", "impaired", FAULT, f"{ZONE} is impaired", ("zone",), "name another zone, or wait")
FEWER = Case("instance-facts", "fewer EFA interfaces", WARNING,
             "p5.48xlarge has 16 EFA interfaces, Slipway counts with 32", ("queues", 0, "instance_type"))  # fmt: skip
NO_SPOT = Case("instance-facts", "no spot", FAULT, "p5.48xlarge is not sold as spot", ("queues", 0, "spot"),
               "leave spot out", queue(instance_type="p5.48xlarge", spot=True))  # fmt: skip
SPOILT = [IMPAIRED, FEWER, NO_SPOT]
ALL_CASES = CASES
CASES = [*ALL_CASES, *SPOILT]


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_machines(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_an_impaired_zone(ask: Callable[[Case], tuple[Answer, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    zone = next(zone for zone in RegionsAndZonesBackend.zones[REGION] if zone.name == ZONE)
    monkeypatch.setattr(zone, "state", "impaired", raising=False)
    check(IMPAIRED, ask(IMPAIRED))


def test_facts_that_differ(ask: Callable[[Case], tuple[Answer, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    efa = MOTO_TYPES["p5.48xlarge"]["NetworkInfo"]["EfaInfo"]
    monkeypatch.setitem(efa, "MaximumEfaInterfaces", 16)
    check(FEWER, ask(FEWER))


def test_a_type_without_spot(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    classes = MOTO_TYPES["p5.48xlarge"]["SupportedUsageClasses"]
    classes.remove("spot")
    try:
        check(NO_SPOT, ask(NO_SPOT))
    finally:
        classes.append("spot")
