"""Fails a deployment whose cluster name belongs to another stack. Runs in Lambda, before ParallelCluster's resource.

ParallelCluster's custom resource creates and deletes clusters by their name. A Create for a name that is taken fails;
CloudFormation then sends Delete for the failed resource, and that Delete removes the other cluster with its file
systems. This resource fails first, so that CloudFormation never sends the one to ParallelCluster or the other.

Source: aws-parallelcluster, cloudformation/custom_resource/cluster.yaml (3.13.1), delete().
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3
from botocore.exceptions import ClientError

VERSION_TAG = "parallelcluster:version"  # on every stack of a cluster
ANSWER_TIMEOUT_S = 20
REASON_CHARACTERS = 900  # CloudFormation cuts reasons


def handler(event: dict[str, Any], context: Any) -> None:
    """Answer a request of CloudFormation. Without an answer it would wait for an hour, so every error is one."""
    try:
        refusal = "" if event["RequestType"] == "Delete" else reason_to_refuse(event, boto3.client("cloudformation"))
    except Exception as error:
        refusal = f"Slipway could not ask whether the cluster's name is free: {type(error).__name__}: {error}"
    _answer(event, context.log_stream_name, refusal)


def reason_to_refuse(event: dict[str, Any], cloudformation: Any) -> str:
    """Return why the cluster may not be made; empty if its name is free or its stack belongs to this deployment."""
    name, region = event["ResourceProperties"]["ClusterName"], event["ResourceProperties"]["Region"]
    stack = _asked(cloudformation.describe_stacks, StackName=name)
    if stack is None or _is_ours(event, cloudformation):
        return ""
    stack = stack["Stacks"][0]
    tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
    shown = ", ".join(f"{key}={value}" for key, value in sorted(tags.items()) if not key.startswith("aws:"))
    facts = f"{stack['StackStatus']}, created {stack['CreationTime']:%Y-%m-%d %H:%M} UTC, tags: {shown or 'none'}"
    if VERSION_TAG in tags:
        what, command = "a ParallelCluster cluster", "pcluster delete-cluster --cluster-name"
    else:
        what, command = "a stack that is no ParallelCluster cluster", "aws cloudformation delete-stack --stack-name"
    return (
        f"The name {name} is taken in {region} by {what} that this deployment did not make ({facts})."
        f" It stays as it is. Give the new cluster another `name` in its settings file. Or, if the other one is not"
        f" needed any more: {command} {name} --region {region}, wait until it is deleted, and deploy again."
    )


def _is_ours(event: dict[str, Any], cloudformation: Any) -> bool:
    """Whether this stack made the cluster: then its resource has the cluster's name as physical id."""
    properties = event["ResourceProperties"]
    found = _asked(
        cloudformation.describe_stack_resource,
        StackName=event["StackId"],
        LogicalResourceId=properties["ClusterResource"],
    )
    return found is not None and found["StackResourceDetail"].get("PhysicalResourceId") == properties["ClusterName"]


def _asked(ask: Any, **arguments: str) -> Any:
    """Return AWS's answer; None if there is no such stack or resource."""
    try:
        return ask(**arguments)
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return None
        raise


def _answer(event: dict[str, Any], log_stream: str, refusal: str) -> None:
    body = {
        "Status": "FAILED" if refusal else "SUCCESS",
        "Reason": refusal[:REASON_CHARACTERS] or f"log stream {log_stream}",
        "PhysicalResourceId": f"name-{event['ResourceProperties']['ClusterName']}",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    data = json.dumps(body).encode()
    request = urllib.request.Request(event["ResponseURL"], data, {"Content-Type": ""}, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S):  # noqa: S310 (CloudFormation's address)
        pass
