"""Names that the deployment takes: its stacks, and ParallelCluster's own stack of the cluster's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.settings import PARALLELCLUSTER_VERSION, Settings
from slipway.stack_names import stack_names
from slipway.stack_repairs import BEGUN_ANEW, REPAIRS, repair

NAME = ("name",)
VERSION_TAG = "parallelcluster:version"


def _stacks(settings: Settings, aws: Aws) -> Iterator[Answer]:
    names = stack_names(settings.name).values()
    asked = {name: aws.start("cloudformation", "describe_stacks", StackName=name) for name in (*names, settings.name)}
    parts = [_ours(settings, name, asked[name]) for name in names]
    yield from together(*parts, _cluster(settings, asked))
    free = sum(_stack(pending) is None for pending in asked.values())
    yield ok(NAME, f"{free} of {len(asked)} stack names are free")


def _stack(asked: Pending) -> dict[str, Any] | None:
    answer = found(asked, "ValidationError")  # CloudFormation's error for a stack that does not exist
    stack: dict[str, Any] | None = answer["Stacks"][0] if answer else None
    return stack


def _tags(stack: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}


def _ours(settings: Settings, name: str, asked: Pending) -> Iterator[Answer]:
    stack = _stack(asked)
    if stack is None:
        return
    status = stack["StackStatus"]
    if _tags(stack).get("project") != settings.name and status != "REVIEW_IN_PROGRESS":
        text = f"the stack {name} is there and has no tag project={settings.name}: it is not this cluster's"
        yield fault(NAME, text, "take another name")
    elif status in REPAIRS:
        yield fault(NAME, f"the stack {name} is {status}", repair(status, name))
    elif status in BEGUN_ANEW:
        text = f"the stack {name} is {status}: an earlier creation was not finished"
        yield warning(NAME, text, repair(status, name))
    elif status.endswith("_IN_PROGRESS"):
        yield fault(NAME, f"the stack {name} is {status}", "wait until it is done")
    else:
        yield ok(NAME, f"the stack {name} is {status}: it will be updated")


def _cluster(settings: Settings, asked: dict[str, Pending]) -> Iterator[Answer]:
    """ParallelCluster's stack has the cluster's own name; it is ours if our cluster stack exists too."""
    stack, ours = _stack(asked[settings.name]), _stack(asked[f"{settings.name}-cluster"])
    if stack is None:
        return
    status, name, version = stack["StackStatus"], settings.name, _tags(stack).get(VERSION_TAG)
    if version is None:
        text = f"a stack called {name} is there: ParallelCluster needs the name for the cluster"
        yield fault(NAME, text, "take another name")
    elif ours is None or ours["StackStatus"] in BEGUN_ANEW:
        text = f"a cluster called {name} is there ({status}), made without this deployment or left over from it"
        yield fault(NAME, text, f"take another name, or delete it: pcluster delete-cluster -n {name}")
    elif not status.endswith("_COMPLETE") or status in BEGUN_ANEW:
        text = f"the cluster {name} is {status}"
        yield fault(NAME, text, f"wait until it is done, or look at pcluster describe-cluster -n {name}")
    elif version != PARALLELCLUSTER_VERSION:
        text = f"the cluster {name} was made with ParallelCluster {version}"
        text += f", and this Slipway has {PARALLELCLUSTER_VERSION}"
        hint = f"deploy with the Slipway that has ParallelCluster {version}, or destroy the cluster and deploy it anew"
        yield fault(NAME, f"{text}, which refuses to update it", hint)
    else:
        yield ok(NAME, f"the cluster {name} is {status}: it will be updated")


QUESTIONS = (
    Question(
        name="stack-names",
        asks="Are the names of the stacks free, or stacks of this cluster that can be updated, by state and version?",
        why="A stack that is half made, or not this cluster's, stops the deployment; two clusters cannot share a name; "
        "ParallelCluster updates only clusters of exactly its own version.",
        source="CloudFormation user guide, stack states; CDK CLI 2.1148 (a failed creation is deleted and made anew; "
        "rollback takes a failed stack of --no-rollback, not ROLLBACK_FAILED); "
        "aws-parallelcluster 3.16.1 api/controllers/common.py, exact_match; aws-parallelcluster issue 5686",
        permissions=("cloudformation:DescribeStacks",),
        finds=(Status.FAULT, Status.WARNING),
        ask=_stacks,
    ),
)
