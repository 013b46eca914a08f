"""`slipway destroy`: name what is deleted and what stays, then print the CDK command that deletes it, and run it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slipway.aws.session import open_aws
from slipway.cdk_command import cdk_command, run
from slipway.errors import EXIT_GOOD, SlipwayError, UsageError
from slipway.settings import Settings, load_settings
from slipway.status.stacks import Stack, deployed_stacks


def destroy(
    file: Path,
    *,
    ask: Callable[[str], str] | None,
    profile: str | None = None,
    extra: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Delete the stacks of the cluster: acceptance, cluster, observability, storage, and network if nothing is in it.

    Prints before what is deleted and what stays, and `ask`s for the cluster's name (None: asks nothing). Return 0 when
    everything is deleted or nothing was deployed, 1 when the CDK CLI failed. Raises UsageError for another name.
    """
    settings = load_settings(file)
    stacks = deployed_stacks(settings.name, open_aws(settings.region, profile))
    if not stacks:
        print(f"nothing of {settings.name} is deployed in {settings.region}", file=sys.stderr)
        if as_json:
            print(json.dumps({"name": settings.name, "command": None, "cdk_exit_code": None, "stacks": []}))
        return EXIT_GOOD
    _refuse_stray_acceptance(settings, stacks)
    file_system_stays = "storage" in stacks and settings.storage.fsx.file_system_id is None
    network = stacks.pop("network", None) if file_system_stays else None
    for line in _plan(settings, stacks, network):
        print(line, file=sys.stderr)
    if ask is not None and ask(f"Type {settings.name} to delete it") != settings.name:
        raise UsageError(f"not the name {settings.name}: nothing was deleted. Hint: --yes asks nothing")
    names = [stack.name for stack in stacks.values()]
    command = cdk_command("destroy", file, profile=profile, extra=["--force", *extra], stacks=names)
    return run(command, settings, as_json=as_json)


def _refuse_stray_acceptance(settings: Settings, stacks: dict[str, Stack]) -> None:
    """Without a scenario the app has no acceptance stack, and the CDK CLI deletes only what the app has."""
    if "acceptance" in stacks and settings.acceptance.scenario == "none":
        stack = f"--region {settings.region} --stack-name {stacks['acceptance'].name}"
        raise SlipwayError(
            f"{stacks['acceptance'].name} is deployed, but acceptance.scenario is 'none': the CDK app lacks it. "
            f"Hint: aws cloudformation delete-stack {stack}; aws cloudformation wait stack-delete-complete {stack}"
        )


def _plan(settings: Settings, stacks: dict[str, Stack], network: Stack | None) -> list[str]:
    """Return what is deleted and what stays. The file system that stays keeps the `network` that it is in."""
    kept = _kept(settings, stacks)
    if network:
        kept.append(f"{network.name}: the file system is in its subnets. Delete both after you have saved the data")
    if kept:
        kept.append("slipway teardown deletes in order what stays, with --delete-data the data too")
    return [
        f"These stacks of {settings.name} in {settings.region} are deleted, in this order:",
        *(f"  {stack.name} ({stack.status})" for stack in stacks.values()),
        "All nodes end, and their own disks and the metrics in Amazon Managed Prometheus are lost. These stay:",
        *(f"  {line}" for line in kept or ["nothing"]),
    ]


def _kept(settings: Settings, stacks: dict[str, Stack]) -> list[str]:
    """Return what stays of the stacks that are deleted: the resources whose removal policy is to retain them."""
    kept = []
    storage = stacks["storage"].outputs if "storage" in stacks else {}
    if "FileSystemId" in storage:
        group = "" if settings.storage.fsx.file_system_id else " and its security group"
        kept.append(f"the FSx for Lustre file system{group}: {storage['FileSystemId']}")
    if "HomeVolumeId" in storage:
        kept.append(f"the EBS volume of /home: {storage['HomeVolumeId']}; it costs until you delete it")
    if "BucketName" in storage:
        kept.append(f"the bucket {storage['BucketName']}")
    if "cluster" in stacks:
        if settings.storage.home.kind == "ebs" and "HomeVolumeId" not in storage:  # ParallelCluster made it
            kept.append(f"the EBS volume of /home ({settings.storage.home.size_gib} GiB): it costs until you delete it")
        kept.append(f"ParallelCluster's log group /aws/parallelcluster/{settings.name}-...")
    if "observability" in stacks and "LogGroupName" in stacks["observability"].outputs:
        kept.append(f"the log group {stacks['observability'].outputs['LogGroupName']}")
    return kept
