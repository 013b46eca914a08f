"""Rules of the name, the region, the zone, the tags and the ARNs."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.regions import regions
from slipway.settings.model import Settings
from slipway.settings.rules.rule import PCLUSTER, Finding, rule, warning
from slipway.settings.source import Place
from slipway.stack_names import STACKS
from slipway.text import did_you_mean

MAX_TAGS = 40  # pcluster/constants.py MAX_TAGS_COUNT; one of them is ours
OWN_TAG = "project"
RESERVED_TAGS = ("aws:", "parallelcluster:")
LETTERS_EVERYWHERE = "abc"  # which letters an account sees differs from account to account
# pcluster/constants.py UNSUPPORTED_FEATURES_MAP, by the beginning of the region's name
UNSUPPORTED = {
    "capacity-block": ("us-iso",),
    "file-cache": ("us-iso",),
    "fsx-openzfs": ("us-iso",),
    "fsx-ontap": ("us-iso-w",),
}
ARN_KEYS = (
    "region",
    "ngc_secret_arn",
    "slurm.database.password_secret_arn",
    "slurm.external_slurmdbd.munge_key_secret_arn",
)


@warning(
    why="ParallelCluster makes a CloudFormation stack with the cluster's name. Two clusters whose names differ "
    "only in such an ending get in each other's way.",
    source="Slipway: the names of its stacks in app.py",
    keys=("name",),
)
def name_like_a_stack(s: Settings) -> Iterator[Finding]:
    for stack in STACKS:
        if s.name.endswith(f"-{stack}"):
            other = s.name.removesuffix(f"-{stack}")
            yield ("name",), f"is the name of the {stack} stack of a cluster called {other}", f"leave out -{stack}"


@rule(
    why="Nothing can be created in a region that does not exist.",
    source="botocore's list of regions, in slipway/data/regions.json",
    keys=("region",),
)
def region_unknown(s: Settings) -> Iterator[Finding]:
    if s.region not in regions():
        yield ("region",), "is not an AWS region", did_you_mean(s.region, regions())


@warning(
    why="ParallelCluster refuses regions that it does not support. Its list comes from S3 and can be newer "
    "than the one of the release.",
    source=f"{PCLUSTER}, RegionValidator and resources/supported-regions",
    keys=("region",),
)
def region_not_listed(s: Settings) -> Iterator[Finding]:
    if s.region in regions() and not regions()[s.region]["listed"]:
        text = "is not in ParallelCluster's list of regions"
        yield ("region",), text, "look for it in the release notes of ParallelCluster"


@rule(
    why="ParallelCluster refuses features that the isolated regions do not have.",
    source=f"{PCLUSTER}, FeatureRegionValidator and UNSUPPORTED_FEATURES_MAP",
    keys=("region", "queues.reservation", "storage.mounts"),
)
def region_feature(s: Settings) -> Iterator[Finding]:
    used: list[tuple[Place, str]] = [
        (("queues", index, "reservation", "kind"), queue.reservation.kind)
        for index, queue in enumerate(s.queues)
        if queue.reservation
    ]
    used += [(("storage", "mounts", index, "kind"), mount.kind) for index, mount in enumerate(s.storage.mounts)]
    for path, kind in used:
        if s.region.startswith(UNSUPPORTED.get(kind, ("-",))):
            yield path, f"ParallelCluster has no {kind} in {s.region}", "take another region, or another kind"


@rule(
    why="A zone's name begins with its region; a whole cluster is in one zone.",
    source="EC2 user guide, regions and zones",
    keys=("region", "zone"),
)
def zone_in_region(s: Settings) -> Iterator[Finding]:
    if s.zone[:-1] != s.region:
        hint = f"write {s.region}{s.zone[-1]}, or change the region"
        yield ("zone",), f"is not a zone of the region {s.region}", hint


@warning(
    why="A zone that the region does not have fails when the subnets are made. AWS adds new zones now and then.",
    source="EC2 DescribeAvailabilityZones, in slipway/data/regions.json",
    keys=("region", "zone"),
)
def zone_letter(s: Settings) -> Iterator[Finding]:
    letters = regions().get(s.region, {}).get("zones", "")
    if s.zone[:-1] == s.region and letters and s.zone[-1] not in {*letters, *LETTERS_EVERYWHERE}:
        known = ", ".join(f"{s.region}{letter}" for letter in letters)
        yield ("zone",), f"is not a zone that {s.region} is known for", f"known are {known}"


def _arns(s: Settings) -> Iterator[tuple[Place, str]]:
    if s.ngc_secret_arn:
        yield ("ngc_secret_arn",), s.ngc_secret_arn
    if s.slurm.database:
        yield ("slurm", "database", "password_secret_arn"), s.slurm.database.password_secret_arn
    if s.slurm.external_slurmdbd and s.slurm.external_slurmdbd.munge_key_secret_arn:
        yield ("slurm", "external_slurmdbd", "munge_key_secret_arn"), s.slurm.external_slurmdbd.munge_key_secret_arn


@warning(
    why="The observability stack fails in a region without Managed Grafana. AWS adds regions now and then: "
    "preflight asks AWS itself.",
    source="AWS General Reference, endpoints of Amazon Managed Grafana, in slipway/data/regions.json",
    keys=("region", "observability.grafana"),
)
def grafana_region(s: Settings) -> Iterator[Finding]:
    if s.observability.grafana and s.region in regions() and not regions()[s.region].get("grafana"):
        names = ", ".join(name for name, facts in regions().items() if facts.get("grafana"))
        text = f"Managed Grafana is not in {s.region}"
        yield ("observability", "grafana"), text, f"leave it out, or take one of {names}"


@rule(
    why="Nodes read a secret from Secrets Manager of their own region; one of another region is not found at boot.",
    source="Secrets Manager user guide: a secret belongs to one region",
    keys=ARN_KEYS,
)
def secret_region(s: Settings) -> Iterator[Finding]:
    for path, arn in _arns(s):
        if arn.split(":")[3] != s.region:
            yield path, f"is not in the region {s.region}", "make the secret in the cluster's region"


@rule(
    why="ARNs of another partition (China, GovCloud) name nothing here.",
    source="IAM user guide, ARN format; slipway/data/regions.json",
    keys=(*ARN_KEYS, "head_node.policy_arns", "queues.policy_arns", "iam.permissions_boundary"),
)
def arn_partition(s: Settings) -> Iterator[Finding]:
    arns = list(_arns(s))
    arns += [(("head_node", "policy_arns", index), arn) for index, arn in enumerate(s.head_node.policy_arns)]
    for number, queue in enumerate(s.queues):
        arns += [(("queues", number, "policy_arns", index), arn) for index, arn in enumerate(queue.policy_arns)]
    arns += [(("iam", "permissions_boundary"), arn) for arn in (s.iam.permissions_boundary,) if arn]
    partition = regions().get(s.region, {}).get("partition")
    for path, arn in arns:
        if partition and arn.split(":")[1] != partition:
            yield path, f"is not in the partition of {s.region}", f"an ARN there begins with arn:{partition}:"


@rule(
    why="AWS and ParallelCluster refuse tags with their own prefixes; budget and clean-up rely on the tag project.",
    source=f"{PCLUSTER}, validate_no_reserved_tag; tagging rules of AWS; app.py",
    keys=("tags",),
)
def tag_reserved(s: Settings) -> Iterator[Finding]:
    for key in s.tags:
        if key.lower().startswith(RESERVED_TAGS):
            prefix = key[: key.index(":") + 1]
            yield ("tags", key), f"tags that begin with {prefix} are reserved", "take another key"
        if key == OWN_TAG:
            yield ("tags", key), "Slipway sets this tag to the cluster's name", "leave it out, or take another key"


@rule(
    why="A resource has at most 50 tags, and ParallelCluster keeps ten of them for itself.",
    source=f"{PCLUSTER}, ComputeResourceTagsValidator, MAX_TAGS_COUNT = 40",
    keys=("tags",),
)
def tag_count(s: Settings) -> Iterator[Finding]:
    if len(s.tags) > MAX_TAGS - 1:
        text = f"has {len(s.tags)} tags; there can be {MAX_TAGS - 1} in addition to Slipway's"
        yield ("tags",), text, "leave some out"
