"""The stacks of a cluster as CloudFormation has them now, and whether they are this cluster's."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.aws.calls import Aws, Refused
from slipway.leftovers import PROJECT_TAG, tag_values
from slipway.settings import Settings
from slipway.stack_names import stack_names

PARALLELCLUSTER = "ParallelCluster"  # the part's name of the stack that ParallelCluster makes

CLUSTER_TYPE = "Custom::PclusterCluster"


@dataclasses.dataclass(frozen=True)
class LiveStack:
    """One stack that exists.

    `foreign` is the reason why it is not this cluster's, else empty. `has_cluster`: deleting the stack deletes the
    ParallelCluster cluster.
    """

    part: str
    name: str
    id: str
    status: str
    created: datetime.datetime
    foreign: str = ""
    has_cluster: bool = False


def describe(aws: Aws, name_or_id: str) -> dict[str, Any] | None:
    """Return CloudFormation's description of a stack, None if it does not exist or is deleted."""
    try:
        stack: dict[str, Any] = aws.act("cloudformation", "describe_stacks", StackName=name_or_id)["Stacks"][0]
    except Refused as error:
        if "does not exist" in error.message:
            return None
        raise
    return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack


def read_stacks(settings: Settings, aws: Aws) -> dict[str, LiveStack]:
    """Return the existing stacks by part. Raises Refused or Unasked when AWS does not answer."""
    names = stack_names(settings.name) | {PARALLELCLUSTER: settings.name}
    described = {part: stack for part, name in names.items() if (stack := describe(aws, name))}
    cluster = described.get("cluster")
    has_cluster = cluster is not None and _has_cluster(aws, cluster["StackId"])
    stacks = {part: _live(settings, part, described) for part in described}
    return {
        part: dataclasses.replace(stack, has_cluster=part == "cluster" and has_cluster)
        for part, stack in stacks.items()
    }


def _has_cluster(aws: Aws, stack_id: str) -> bool:
    """Whether the stack still has its ParallelCluster cluster; after a rollback it has not."""
    resources = aws.act("cloudformation", "list_stack_resources", StackName=stack_id)["StackResourceSummaries"]
    return any(
        resource["ResourceType"] == CLUSTER_TYPE and resource["ResourceStatus"] != "DELETE_COMPLETE"
        for resource in resources
    )


def _live(settings: Settings, part: str, described: Mapping[str, dict[str, Any]]) -> LiveStack:
    stack = described[part]
    return LiveStack(
        part=part,
        name=stack["StackName"],
        id=stack["StackId"],
        status=stack["StackStatus"],
        created=stack["CreationTime"],
        foreign="; ".join(_doubts(settings, part, described)),
    )


def _doubts(settings: Settings, part: str, described: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Why the stack is not, or not for certain, this cluster's.

    ParallelCluster's provider deletes a cluster by its name alone, also one that it did not create. Only a cluster
    that is younger than our stack was created by it.
    """
    stack = described[part]
    if tag_values(stack.get("Tags")).get(PROJECT_TAG) != settings.name:
        yield f"it has no tag {PROJECT_TAG}={settings.name}"
    cluster = described.get("cluster")
    if part == PARALLELCLUSTER and cluster is None:
        yield f"there is no stack {stack_names(settings.name)['cluster']} that created it"
    if part == PARALLELCLUSTER and cluster and stack["CreationTime"] < cluster["CreationTime"]:
        yield f"it is older than {cluster['StackName']}, so another tool created it"
