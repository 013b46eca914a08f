"""What exists of a cluster in AWS: its file system, volumes, buckets, logs and more, with what each costs a month.

`slipway status` lists it for a cluster that is not deployed, `slipway teardown` for what goes and what stays. A thing
is found by the tag `project`, which the CDK app sets on everything, or by a name that only this cluster's stacks give.
Any user can set that tag. The proof that a stack of the cluster made a thing is CloudFormation's own list of the
stack's resources, which exists for 90 days after the stack is deleted, or the tag that only CloudFormation sets.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.cost.model import HOURS_A_MONTH, Price
from slipway.cost.prices import data_prices
from slipway.settings import Settings
from slipway.stack_names import stack_names

STACK_TAG = "aws:cloudformation:stack-name"  # only CloudFormation can set it; not every type of resource gets it
PROJECT_TAG = "project"
BY_USE = "by use"  # costs by its content, which is not asked for

FILE_SYSTEM, BACKUP, VOLUME, SNAPSHOT = "file system", "backup", "volume", "snapshot"
BUCKET, LOG_GROUP, WORKSPACE = "bucket", "log group", "Prometheus workspace"
GROUP, PARAMETER = "security group", "parameter"
INSTANCE, NAT_GATEWAY, ADDRESS = "instance", "NAT gateway", "public address"
DATA = (FILE_SYSTEM, BACKUP, VOLUME, SNAPSHOT, BUCKET, LOG_GROUP, WORKSPACE)
"""Kinds that hold data of users or of the operation: they are deleted only on request."""

READING = (
    "aps:ListWorkspaces",
    "cloudformation:ListStackResources",
    "cloudformation:ListStacks",
    "ec2:DescribeAddresses",
    "ec2:DescribeInstances",
    "ec2:DescribeNatGateways",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSnapshots",
    "ec2:DescribeVolumes",
    "fsx:DescribeBackups",
    "fsx:DescribeFileSystems",
    "logs:DescribeLogGroups",
    "logs:ListTagsForResource",
    "s3:GetBucketTagging",
    "s3:ListAllMyBuckets",
    "ssm:GetParametersByPath",
)
"""The IAM actions of `Finder`."""


@dataclasses.dataclass(frozen=True)
class Leftover:
    """One thing in AWS.

    `stack` is the CloudFormation stack that made it. `usd_per_month` is None if the price is unknown or depends on use.
    `is_ours`: this cluster's stacks made it for certain; without that only the tag `project` has the cluster's name.
    """

    kind: str
    id: str
    text: str = ""
    usd_per_month: float | None = None
    stack: str = ""
    is_ours: bool = True

    @property
    def is_data(self) -> bool:
        """Whether it holds data."""
        return self.kind in DATA

    @property
    def line(self) -> str:
        """Kind, id, size and price on one line."""
        size = f" ({self.text})" if self.text else ""
        price = BY_USE if self.usd_per_month is None else f"{self.usd_per_month:,.2f} USD a month"
        if self.kind in (GROUP, PARAMETER):
            price = "costs nothing"
        doubt = "" if self.is_ours else "; only its tag project has the cluster's name"
        return f"{self.kind} {self.id}{size}: {price}{doubt}"


@dataclasses.dataclass(frozen=True)
class Found:
    """Everything that was found, and the questions that AWS did not answer.

    `is_cluster_proved`: each ParallelCluster stack of the name, deleted ones too, was created while the stack
    `NAME-cluster` existed, so that one created it. After an interrupted teardown both may be gone.
    """

    things: tuple[Leftover, ...]
    unasked: tuple[str, ...] = ()
    is_cluster_proved: bool = False

    @property
    def usd_per_month(self) -> float:
        """The sum of the known prices."""
        return sum(thing.usd_per_month or 0.0 for thing in self.things)


class Finder:
    """Begins all questions at once; `read` waits for the answers."""

    def __init__(self, settings: Settings, aws: Aws) -> None:
        self._name, self._region = settings.name, settings.region
        self._referred = referred(settings)
        self._stacks = {*stack_names(settings.name).values(), settings.name}
        self._prices = data_prices(settings.region)
        tagged = [{"Name": f"tag:{PROJECT_TAG}", "Values": [settings.name]}]
        live = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
        start = aws.start
        self._aws = aws
        self._made_by: dict[str, str] = {}
        self._stack_list = start("cloudformation", "list_stacks")
        self._asked: list[tuple[Pending, Callable[[dict[str, Any]], Iterator[Leftover]]]] = [
            (start("fsx", "describe_file_systems"), self._file_systems),
            (start("fsx", "describe_backups"), self._backups),
            (start("ec2", "describe_volumes", Filters=tagged), self._volumes),
            (start("ec2", "describe_snapshots", OwnerIds=["self"], Filters=tagged), self._snapshots),
            (start("ec2", "describe_security_groups", Filters=tagged), self._groups),
            (start("ec2", "describe_instances", Filters=[*tagged, live]), self._instances),
            (start("ec2", "describe_nat_gateways", Filters=tagged), self._nat_gateways),
            (start("ec2", "describe_addresses", Filters=tagged), self._addresses),
            (start("s3", "list_buckets"), self._buckets),
            *(
                (start("logs", "describe_log_groups", logGroupNamePrefix=prefix), self._log_groups)
                for prefix in (
                    f"/aws/parallelcluster/{settings.name}-",
                    f"/aws/lambda/{settings.name}-",
                    f"{settings.name}-",
                )
            ),
            (start("ssm", "get_parameters_by_path", Path=f"/slipway/{settings.name}"), self._parameters),
            (start("amp", "list_workspaces", alias=settings.name), self._workspaces),
        ]

    def read(self) -> Found:
        """Return everything that was found; a refused question is noted and hides nothing else."""
        things: dict[tuple[str, str], Leftover] = {}
        unasked: list[str] = []
        try:
            self._made_by = self._resources_of_stacks()
        except (Refused, Unasked) as error:
            unasked.append(str(error))
        for pending, found in self._asked:
            try:
                for thing in found(pending.result()):
                    things[thing.kind, thing.id] = thing
            except (Refused, Unasked) as error:
                unasked.append(str(error))
        kept = (thing for thing in things.values() if thing.id not in self._referred)
        order = (*DATA, GROUP, PARAMETER, INSTANCE, NAT_GATEWAY, ADDRESS)
        things_in_order = tuple(sorted(kept, key=lambda thing: order.index(thing.kind)))
        return Found(things_in_order, tuple(dict.fromkeys(unasked)), self._is_cluster_proved(unasked))

    def _is_cluster_proved(self, unasked: Sequence[str]) -> bool:
        if unasked:
            return False
        stacks = self._stack_list.result()["StackSummaries"]
        ours = [item for item in stacks if item["StackName"] == stack_names(self._name)["cluster"]]
        made = [item["CreationTime"] for item in stacks if item["StackName"] == self._name]
        return bool(made) and all(
            any(
                one["CreationTime"] <= time and ("DeletionTime" not in one or time <= one["DeletionTime"])
                for one in ours
            )
            for time in made
        )

    def _resources_of_stacks(self) -> dict[str, str]:
        """The stack of each physical id in the cluster's stacks, deleted ones too."""
        stacks = [item for item in self._stack_list.result()["StackSummaries"] if item["StackName"] in self._stacks]
        asked = [
            (item["StackName"], self._aws.start("cloudformation", "list_stack_resources", StackName=item["StackId"]))
            for item in stacks
        ]
        return {
            resource["PhysicalResourceId"]: name
            for name, pending in asked
            for resource in pending.result()["StackResourceSummaries"]
            if resource.get("PhysicalResourceId")
        }

    def _thing(
        self, kind: str, id: str, tags: Any, text: str = "", usd: float | None = None, physical_id: str = ""
    ) -> Iterator[Leftover]:
        """Yield the thing if its tag names this cluster."""
        by_key = tag_values(tags)
        if by_key.get(PROJECT_TAG) == self._name:
            stack = self._made_by.get(physical_id or id) or by_key.get(STACK_TAG, "")
            yield Leftover(kind, id, text, usd, stack, is_ours=stack in self._stacks)

    def _price(self, key: str, quantity: float) -> float | None:
        price: Price | None = self._prices.get(key)
        return price.of(quantity) if price else None

    # ---- one method for each kind ----

    def _file_systems(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["FileSystems"]:
            lustre = item.get("LustreConfiguration") or {}
            deployment = str(lustre.get("DeploymentType", "")).lower().replace("_", "-")
            throughput = lustre.get("PerUnitStorageThroughput")
            key = f"fsx:{deployment}:{throughput}" if throughput else f"fsx:{deployment}"
            size = int(item.get("StorageCapacity") or 0)
            text = f"{size} GiB {deployment or item.get('FileSystemType', '')}, {item.get('Lifecycle', '')}"
            yield from self._thing(FILE_SYSTEM, item["FileSystemId"], item.get("Tags"), text, self._price(key, size))

    def _backups(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["Backups"]:
            yield from self._thing(BACKUP, item["BackupId"], item.get("Tags"))

    def _volumes(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["Volumes"]:
            if any(attachment.get("DeleteOnTermination") for attachment in item.get("Attachments", ())):
                continue  # a node's own disk goes with the node
            size, kind = int(item["Size"]), item.get("VolumeType", "gp3")
            usd = self._price(f"ebs:{kind}", size)
            yield from self._thing(VOLUME, item["VolumeId"], item.get("Tags"), f"{size} GiB {kind}", usd)

    def _snapshots(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["Snapshots"]:
            text = f"of a volume of {item['VolumeSize']} GiB"
            yield from self._thing(SNAPSHOT, item["SnapshotId"], item.get("Tags"), text)

    def _groups(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["SecurityGroups"]:
            yield from self._thing(GROUP, item["GroupId"], item.get("Tags"), item.get("VpcId", ""), 0.0)

    def _instances(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in (instance for reservation in answer["Reservations"] for instance in reservation["Instances"]):
            kind, state = item["InstanceType"], item["State"]["Name"]
            usd = self._price(f"instance:{kind}", 1)
            month = usd * HOURS_A_MONTH if usd is not None and state != "stopped" else None
            yield from self._thing(INSTANCE, item["InstanceId"], item.get("Tags"), f"{kind}, {state}", month)

    def _nat_gateways(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["NatGateways"]:
            if item.get("State") not in ("deleted", "deleting"):
                usd = self._price("nat:hour", HOURS_A_MONTH)
                yield from self._thing(NAT_GATEWAY, item["NatGatewayId"], item.get("Tags"), item.get("VpcId", ""), usd)

    def _addresses(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["Addresses"]:
            usd = self._price("ipv4:hour", HOURS_A_MONTH)
            yield from self._thing(ADDRESS, item["PublicIp"], item.get("Tags"), "", usd)

    def _buckets(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        prefix = f"{self._name}-storage-bucket"  # CloudFormation's name: stack, logical id, suffix, in lower case
        asked = [
            (bucket["Name"], self._aws.start("s3", "get_bucket_tagging", Bucket=bucket["Name"]))
            for bucket in answer["Buckets"]
            if bucket["Name"].startswith(prefix)
        ]
        for name, pending in asked:
            try:
                yield from self._thing(BUCKET, name, pending.result()["TagSet"])
            except Refused as error:
                if error.code not in ("NoSuchTagSet", "NoSuchBucket"):
                    raise

    def _log_groups(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        """Lambda makes a function's group without any tag, so names count: they contain a stack's whole name."""
        name = re.escape(self._name)
        patterns = {
            rf"/aws/parallelcluster/{name}-\d{{12}}": self._name,
            rf"(/aws/lambda/)?{name}-acceptance-.+": f"{self._name}-acceptance",
            rf"(/aws/lambda/)?{name}-cluster-.+": f"{self._name}-cluster",
            rf"{name}-observability-LogGroup-\w+": f"{self._name}-observability",
        }
        for item in answer["logGroups"]:
            group = item["logGroupName"]
            stack = next((stack for pattern, stack in patterns.items() if re.fullmatch(pattern, group)), None)
            if stack is None:
                continue
            is_ours = stack != self._name or self._is_tagged(item["arn"].removesuffix(":*"))
            yield Leftover(LOG_GROUP, group, stack=stack, is_ours=is_ours)

    def _is_tagged(self, arn: str) -> bool:
        """Whether a log group of ParallelCluster has our tag: a cluster made by `pcluster` may have the same name."""
        try:
            tags = self._aws.call("logs", "list_tags_for_resource", resourceArn=arn)["tags"]
        except (Refused, Unasked):
            return False
        return bool(tags.get(PROJECT_TAG) == self._name)

    def _parameters(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["Parameters"]:
            yield Leftover(PARAMETER, item["Name"], usd_per_month=0.0, stack=f"{self._name}-cluster")

    def _workspaces(self, answer: dict[str, Any]) -> Iterator[Leftover]:
        for item in answer["workspaces"]:
            if item.get("alias") == self._name:  # AWS returns every alias that begins so
                yield from self._thing(WORKSPACE, item["workspaceId"], item.get("tags"), physical_id=item["arn"])


def tag_values(tags: Mapping[str, str] | Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """Return tags as a dictionary, from each of the two forms that AWS's services have."""
    if isinstance(tags, Mapping):
        return dict(tags)
    return {item["Key"]: item["Value"] for item in tags or ()}


def referred(settings: Settings) -> frozenset[str]:
    """Return the ids of what exists apart from this cluster: its settings only refer to it."""
    storage, network = settings.storage, settings.network
    ids = [
        storage.fsx.file_system_id,
        storage.bucket,
        network.vpc_id,
        network.head_node_subnet_id,
        network.compute_subnet_id,
        network.security_group_id,
        storage.home.volume_id,
        *(mount.id for mount in storage.mounts),
        *settings.head_node.security_group_ids,
    ]
    return frozenset(id for id in ids if id)
