"""What the nodes are made from: zone, instance types, image, key pair, placement groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.instances import INSTANCE_TYPES, InstanceType
from slipway.preflight.asking import found, together
from slipway.preflight.model import EC2_GUIDE, Answer, Question, Status, fault, ok, warning
from slipway.settings import PARALLELCLUSTER_VERSION, Queue, Settings
from slipway.settings.source import Place
from slipway.text import listed

ARCHITECTURES = ("x86_64", "arm64")
# How ParallelCluster's images are called. Source: aws-parallelcluster 3.16.1 OS_TO_IMAGE_NAME_PART_MAP.
IMAGE_SYSTEMS = {
    "alinux2023": "amzn2023-hvm",
    "ubuntu2204": "ubuntu-2204-lts-hvm",
    "ubuntu2404": "ubuntu-2404-lts-hvm",
}
NO_RSA = ("ubuntu2204", "ubuntu2404")  # their sshd refuses it: aws-parallelcluster 3.16.1 KeyPairValidator


def _types(settings: Settings) -> dict[str, Place]:
    """Every instance type, and where it is named first."""
    types: dict[str, Place] = {settings.head_node.instance_type: ("head_node", "instance_type")}
    for index, queue in enumerate(settings.queues):
        types.setdefault(queue.instance_type, ("queues", index, "instance_type"))
    return types


# ---- zone and types ----


def ask_zone(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The zone is one of the account's, and in order."""
    zone, path = settings.zone, ("zone",)
    known = aws.call("ec2", "describe_availability_zones", AllAvailabilityZones=True)["AvailabilityZones"]
    mine = next((item for item in known if item["ZoneName"] == zone), None)
    if mine is None:
        names = sorted(item["ZoneName"] for item in known if item.get("ZoneType") == "availability-zone")
        yield fault(path, f"the account has no {zone}", f"it has {listed(names, most=8)}")
    elif mine["State"] != "available":
        messages = "; ".join(item["Message"] for item in mine.get("Messages", ()))
        yield fault(path, f"{zone} is {mine['State']}", messages or "name another zone, or wait")
    else:
        yield ok(path, f"{zone} ({mine['ZoneId']}) is available")


def ask_offerings(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """EC2 has each instance type in the zone."""
    types = _types(settings)
    filters = [{"Name": "instance-type", "Values": sorted(types)}]
    by_zone = "availability-zone"
    response = aws.call("ec2", "describe_instance_type_offerings", LocationType=by_zone, Filters=filters)
    offerings = response["InstanceTypeOfferings"]
    for name, path in types.items():
        zones = sorted(item["Location"] for item in offerings if item["InstanceType"] == name)
        if settings.zone in zones:
            yield ok(path, f"{name} is offered in {settings.zone}")
        else:
            hint = f"zones that have it: {listed(zones, most=8)}" if zones else "name another type, or another region"
            yield fault(path, f"{name} is not offered in {settings.zone}", hint)


# ---- facts of types ----

# field of InstanceType -> what EC2 calls it in its answer, in words
FACTS = {
    "vcpus": "vCPUs",
    "memory_mib": "MiB of memory",
    "gpus": "GPUs",
    "efa_interfaces": "EFA interfaces",
    "network_cards": "network cards",
}


def ask_facts(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """EC2's facts of the types against those that Slipway counts with, and what each type can be bought as."""
    types = _types(settings)
    filters = [{"Name": "instance-type", "Values": sorted(types)}]
    described = aws.call("ec2", "describe_instance_types", Filters=filters)["InstanceTypes"]
    by_name = {item["InstanceType"]: item for item in described}
    for name, path in types.items():
        if name in by_name:  # another question reports a type that is not offered
            yield from _facts(path, INSTANCE_TYPES[name], by_name[name])
    for index, queue in enumerate(settings.queues):
        if queue.instance_type in by_name:
            yield from _usage(index, queue, by_name[queue.instance_type])


def _facts_of(item: dict[str, Any]) -> dict[str, int]:
    network = item["NetworkInfo"]
    gpus = item.get("GpuInfo", {}).get("Gpus", ())
    return {
        "vcpus": item["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": item["MemoryInfo"]["SizeInMiB"],
        "gpus": sum(gpu["Count"] for gpu in gpus),
        "efa_interfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "network_cards": network.get("MaximumNetworkCards", 1),
    }


def _facts(path: Place, known: InstanceType, item: dict[str, Any]) -> Iterator[Answer]:
    facts = _facts_of(item)
    other = [field for field in FACTS if facts[field] != getattr(known, field)]
    for field in other:
        text = f"{known.name} has {facts[field]} {FACTS[field]}, Slipway counts with {getattr(known, field)}"
        yield warning(path, text, "update Slipway, or report it to its maintainers")
    if not other:
        yield ok(path, f"{known.name} is as Slipway knows it")


def _usage(index: int, queue: Queue, item: dict[str, Any]) -> Iterator[Answer]:
    classes = item.get("SupportedUsageClasses", ())
    if queue.spot and "spot" not in classes:
        text = f"{queue.instance_type} is not sold as spot"
        yield fault(("queues", index, "spot"), text, "leave spot out")
    block = queue.reservation is not None and queue.reservation.kind == "capacity-block"
    if block and "capacity-block" not in classes:
        text = f"{queue.instance_type} is not sold in capacity blocks"
        yield fault(("queues", index, "reservation", "kind"), text, "write kind: on-demand")


# ---- the image ----


def ask_image(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """ParallelCluster's image for the version, the OS and the architecture of each node."""
    filters = [{"Name": "instance-type", "Values": sorted(_types(settings))}]
    described = aws.start("ec2", "describe_instance_types", Filters=filters)
    images = {architecture: _start_image(settings, aws, architecture) for architecture in ARCHITECTURES}
    needed = sorted({_architecture(item) for item in described.result()["InstanceTypes"]})
    yield from together(*(_image(settings, name, images[name], aws) for name in needed if name in images))


def _start_image(settings: Settings, aws: Aws, architecture: str) -> Pending:
    name = f"aws-parallelcluster-{PARALLELCLUSTER_VERSION}-{IMAGE_SYSTEMS[settings.os]}-{architecture}*"
    filters = [{"Name": "name", "Values": [name]}, {"Name": "state", "Values": ["available"]}]
    return aws.start("ec2", "describe_images", Owners=["amazon"], IncludeDeprecated=True, Filters=filters)


def _architecture(item: dict[str, Any]) -> str:
    known = [name for name in ARCHITECTURES if name in item["ProcessorInfo"]["SupportedArchitectures"]]
    return known[0] if known else ""


def _image(settings: Settings, architecture: str, pending: Pending, aws: Aws) -> Iterator[Answer]:
    images = sorted(pending.result()["Images"], key=lambda image: str(image["CreationDate"]))
    what = f"ParallelCluster {PARALLELCLUSTER_VERSION} for {settings.os} on {architecture}"
    if not images:
        hint = "name another os, or another region: ParallelCluster publishes its images region by region"
        yield fault(("os",), f"there is no image of {what} in {settings.region}", hint)
        return
    newest = images[-1]
    yield ok(("os",), f"{newest['ImageId']} is the image of {what}")
    deprecated = str(newest.get("DeprecationTime") or "")
    if deprecated and deprecated[:10] <= aws.now().strftime("%Y-%m-%d"):
        text = f"{newest['ImageId']}, the image of {what}, is deprecated since {deprecated[:10]}"
        yield warning(("os",), text, "plan to move to a newer Slipway: AWS stops mending it and may take it away")


# ---- key pair and placement groups ----


def ask_key_pair(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The key pair is there, and of a kind that the OS takes."""
    name, path = settings.head_node.key_pair or "", ("head_node", "key_pair")
    response = found(aws.start("ec2", "describe_key_pairs", KeyNames=[name]), "InvalidKeyPair.NotFound")
    if response is None:
        hint = f"aws ec2 describe-key-pairs --region {settings.region} lists those there are"
        yield fault(path, f"there is no key pair {name} in {settings.region}", hint)
        return
    kind = response["KeyPairs"][0].get("KeyType", "rsa")
    if kind == "rsa" and settings.os in NO_RSA:
        hint = f"aws ec2 create-key-pair --key-type ed25519 --region {settings.region} --key-name NAME"
        yield fault(path, f"the key pair {name} is RSA, which {settings.os} refuses", hint)
    else:
        yield ok(path, f"the key pair {name} is there ({kind})")


def _groups(settings: Settings) -> dict[int, str]:
    return {
        index: queue.placement_group
        for index, queue in enumerate(settings.queues)
        if isinstance(queue.placement_group, str)
    }


def ask_placement_groups(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Each placement group that is named is there, and of the kind that puts instances close together."""
    groups = _groups(settings)
    pending = {name: aws.start("ec2", "describe_placement_groups", GroupNames=[name]) for name in groups.values()}
    yield from together(*(_group(settings, index, name, pending[name]) for index, name in groups.items()))


def _group(settings: Settings, index: int, name: str, pending: Pending) -> Iterator[Answer]:
    path = ("queues", index, "placement_group")
    response = found(pending, "InvalidPlacementGroup.Unknown")
    if response is None:
        hint = f"aws ec2 create-placement-group --strategy cluster --region {settings.region} --group-name {name}"
        yield fault(path, f"there is no placement group {name} in {settings.region}", hint)
        return
    group = response["PlacementGroups"][0]
    if group["Strategy"] != "cluster":
        text = f"the placement group {name} has the strategy {group['Strategy']}, which keeps instances apart"
        yield fault(path, text, "name one with the strategy cluster")
    elif group["State"] != "available":
        yield fault(path, f"the placement group {name} is {group['State']}", "name one that is available")
    else:
        yield ok(path, f"the placement group {name} is available (cluster)")


QUESTIONS = (
    Question(
        name="zone",
        asks="Is the zone one of the account's, and available?",
        why="Which zones an account sees, and which letters they have, differs from account to account.",
        source=f"{EC2_GUIDE}/using-regions-availability-zones.html",
        permissions=("ec2:DescribeAvailabilityZones",),
        ask=ask_zone,
    ),
    Question(
        name="instance-offerings",
        asks="Does EC2 offer each instance type in the zone?",
        why="The large GPU types are in a few zones only; elsewhere nothing starts.",
        source=f"{EC2_GUIDE}/instance-discovery.html",
        permissions=("ec2:DescribeInstanceTypeOfferings",),
        ask=ask_offerings,
    ),
    Question(
        name="instance-facts",
        asks="Are the instance types as Slipway knows them, and sold as the settings want?",
        why="Node definitions, EFA and the checks count with a data file; where EC2 says otherwise the file is old.",
        source="https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypes.html; "
        "aws-parallelcluster CapacityTypeValidator",
        permissions=("ec2:DescribeInstanceTypes",),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_facts,
    ),
    Question(
        name="image",
        asks="Is ParallelCluster's image for the version and the OS in the region?",
        why="ParallelCluster picks its image by name; a region that has none yet fails after the network and the "
        "storage were made.",
        source="aws-parallelcluster 3.16.1 get_official_image_id",
        permissions=("ec2:DescribeImages", "ec2:DescribeInstanceTypes"),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_image,
    ),
    Question(
        name="key-pair",
        asks="Is the key pair there, and of a kind that the OS takes?",
        why="A head node with a missing key pair does not start; one with an RSA key gives no access on Ubuntu 22.04 "
        "and newer.",
        source="aws-parallelcluster 3.16.1 KeyPairValidator",
        permissions=("ec2:DescribeKeyPairs",),
        ask=ask_key_pair,
        applies=lambda settings: bool(settings.head_node.key_pair),
    ),
    Question(
        name="placement-groups",
        asks="Is each placement group there, with the strategy cluster?",
        why="The other strategies put instances on different racks, which is what training must not have.",
        source=f"{EC2_GUIDE}/placement-strategies.html",
        permissions=("ec2:DescribePlacementGroups",),
        ask=ask_placement_groups,
        applies=lambda settings: bool(_groups(settings)),
    ),
)
