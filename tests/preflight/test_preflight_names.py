"""The names that the stacks take, in every state that a stack can be in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from arrange_services import stack
from preflight_cases import Case, all_of, check, denied

from slipway.places import cdk
from slipway.preflight.model import Answer, Status
from slipway.stack_names import STACKS
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
OURS = {"project": "p5"}
CLUSTER = {"parallelcluster__version": "3.16.1", "parallelcluster__cluster-name": "p5"}
FREE = ("name",)


def ours(part: str, status: str) -> Callable[[PreflightAws], None]:
    return stack(f"p5-{part}", status, **OURS)


def state(part: str, status: str, outcome: Status, text: str, hint: str | None = None) -> Case:
    return Case("stack-names", status, outcome, text, FREE, hint, arrange=ours(part, status))


CASES = [
    Case("stack-names", "free", OK, "6 of 6 stack names are free", FREE),
    Case("stack-names", "deployed", OK, "the stack p5-network is CREATE_COMPLETE: it will be updated", FREE,
         arrange=all_of(*(ours(part, "CREATE_COMPLETE") for part in STACKS), stack("p5", "CREATE_COMPLETE", **CLUSTER))),
    state("storage", "UPDATE_ROLLBACK_COMPLETE", OK,
          "the stack p5-storage is UPDATE_ROLLBACK_COMPLETE: it will be updated"),
    Case("stack-names", "foreign", FAULT,
         "the stack p5-network is there and has no tag project=p5: it is not this cluster's", FREE, "take another name",
         arrange=stack("p5-network", "CREATE_COMPLETE", project="other")),
    state("storage", "UPDATE_IN_PROGRESS", FAULT, "the stack p5-storage is UPDATE_IN_PROGRESS", "wait until it is done"),
    state("storage", "DELETE_FAILED", FAULT, "the stack p5-storage is DELETE_FAILED",
          "delete it again, and keep what it cannot delete: aws cloudformation delete-stack --stack-name p5-storage"
          " --retain-resources ..."),
    state("network", "CREATE_FAILED", FAULT, "the stack p5-network is CREATE_FAILED",
          f"{cdk()} rollback p5-network --context settings=FILE takes it back; after a repair"
          f" {cdk()} deploy p5-network --no-rollback --context settings=FILE goes on"),
    state("cluster", "UPDATE_FAILED", FAULT, "the stack p5-cluster is UPDATE_FAILED",
          f"{cdk()} rollback p5-cluster --context settings=FILE takes it back; after a repair"
          f" {cdk()} deploy p5-cluster --no-rollback --context settings=FILE goes on"),
    state("network", "ROLLBACK_FAILED", WARNING,
          "the stack p5-network is ROLLBACK_FAILED: an earlier creation was not finished",
          "cdk deploy deletes it and begins it anew; aws cloudformation describe-stack-events --stack-name p5-network"
          " names what could not be deleted before: repair that first"),
    state("cluster", "UPDATE_ROLLBACK_FAILED", FAULT, "the stack p5-cluster is UPDATE_ROLLBACK_FAILED",
          "repair what the roll-back stopped at (slipway status FILE names it), then"
          f" {cdk()} rollback p5-cluster --context settings=FILE"),
    state("cluster", "ROLLBACK_COMPLETE", WARNING,
          "the stack p5-cluster is ROLLBACK_COMPLETE: an earlier creation was not finished",
          "cdk deploy begins it anew"),
    state("network", "REVIEW_IN_PROGRESS", WARNING,
          "the stack p5-network is REVIEW_IN_PROGRESS: an earlier creation was not finished"),
    Case("stack-names", "name taken", FAULT,
         "a stack called p5 is there: ParallelCluster needs the name for the cluster", FREE, "take another name",
         arrange=stack("p5", "CREATE_COMPLETE")),
    Case("stack-names", "foreign cluster", FAULT,
         "a cluster called p5 is there (CREATE_COMPLETE), made without this deployment or left over from it", FREE,
         "take another name, or delete it: pcluster delete-cluster -n p5",
         arrange=stack("p5", "CREATE_COMPLETE", **CLUSTER)),
    Case("stack-names", "left over", FAULT,
         "a cluster called p5 is there (CREATE_FAILED), made without this deployment or left over from it", FREE,
         arrange=all_of(stack("p5", "CREATE_FAILED", **CLUSTER), ours("cluster", "ROLLBACK_COMPLETE")), alone=False),
    Case("stack-names", "another ParallelCluster", FAULT,
         "the cluster p5 was made with ParallelCluster 3.15.1, and this Slipway has 3.16.1, which refuses to update it",
         FREE, "deploy with the Slipway that has ParallelCluster 3.15.1, or destroy the cluster and deploy it anew",
         arrange=all_of(stack("p5", "CREATE_COMPLETE", **{**CLUSTER, "parallelcluster__version": "3.15.1"}),
                        *(ours(part, "CREATE_COMPLETE") for part in STACKS))),
    Case("stack-names", "cluster busy", FAULT, "the cluster p5 is UPDATE_IN_PROGRESS", FREE,
         "wait until it is done, or look at pcluster describe-cluster -n p5",
         arrange=all_of(stack("p5", "UPDATE_IN_PROGRESS", **CLUSTER), ours("cluster", "UPDATE_COMPLETE"))),
    denied("cloudformation:DescribeStacks", "stack-names"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_stacks(account: PreflightAws) -> Iterator[None]:
    yield
    account.stacks._stacks.clear()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_names(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
