"""A cluster whose name is taken: the deployment fails, and the other cluster survives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.account import seed_of
from slipway.settings import Settings
from stacks.cluster import CLUSTER_RESOURCE
from tests.stacks.assembly import Assembly
from tests.stacks.standing import VERSION, Standing, changed

BASE: dict[str, Any] = {
    "name": "ml",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "queues": [{"name": "train", "instance_type": "g6.12xlarge", "max_count": 2}],
}
SETTINGS: Settings = changed(BASE, {})


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with EmbeddedAws("us-east-1", tmp_path / "aws") as aws:
        aws.seed(seed_of(SETTINGS))
        yield Standing(aws, tmp_path)


def names(standing: Standing) -> set[str]:
    return {stack.name for stack in standing.aws.stacks.stacks() if stack.status == "CREATE_COMPLETE"}


def test_the_provider_deletes_a_cluster_that_it_did_not_make(standing: Standing) -> None:
    """What the guard is for. Without it the first deployment under a taken name ends so."""
    standing.provider.clusters.create("ml", VERSION)
    template = {"Cluster": {"Type": "Custom::PclusterCluster", "Properties": {"ClusterName": "ml"}}}
    failure = standing._deploy("plain", {"Resources": template})
    assert "Cluster ml already exists" in failure
    assert "ml" not in names(standing)


def test_a_cluster_of_that_name_survives_a_failed_deployment(standing: Standing) -> None:
    standing.provider.clusters.create("ml", {**VERSION, "team": "vision"})
    for _ in range(2):  # the second time the stack is deleted before, as the CDK CLI does after a roll-back
        failure = standing.deploy(SETTINGS)
        assert failure.startswith("cluster: ")
        assert (
            "The name ml is taken in us-east-1 by a ParallelCluster cluster that this deployment did not make"
            in failure
        )
        assert "team=vision" in failure
        assert "pcluster delete-cluster --cluster-name ml --region us-east-1" in failure
        assert "ml" in names(standing)
    made = standing.aws.stacks.find("ml-cluster").events
    assert not [event for event in made if event.logical_id == "Provider"]  # the guard is before all that takes time
    standing.provider.clusters.delete("ml")
    assert standing.deploy(SETTINGS) == ""
    assert "ml" in names(standing)


def test_a_stack_that_is_no_cluster_is_named_so(standing: Standing) -> None:
    standing.provider.clusters.create("ml", {"owner": "web"})
    failure = standing.deploy(SETTINGS)
    assert "a stack that is no ParallelCluster cluster" in failure
    assert "aws cloudformation delete-stack --stack-name ml" in failure


def test_its_own_cluster_is_no_reason(standing: Standing) -> None:
    """After a creation that failed, at an update, and where a cluster is older than the guard."""
    standing.provider.fails = True
    assert "did not come up" in standing.deploy(SETTINGS)
    assert "ml" not in names(standing)  # ours: the roll-back deleted it
    standing.provider.fails = False
    assert standing.deploy(SETTINGS) == ""
    stack = standing.aws.stacks.find("ml-cluster")
    older = json.loads(stack.text)
    for name in [name for name in older["Resources"] if name.startswith(("NameGuard", "FunctionLogs"))]:
        del older["Resources"][name]
    for resource in older["Resources"].values():
        resource.pop("DependsOn", None)
    assert standing._deploy("ml-cluster", older) == ""
    assert standing.deploy(SETTINGS) == ""
    assert standing.deploy(changed(BASE, {"tags": {"team": "vision"}})) == ""
    assert standing.delete("ml-cluster") == "DELETE_COMPLETE"
    assert "ml" not in names(standing)


def test_an_error_is_an_answer_too(standing: Standing) -> None:
    """CloudFormation would wait for an hour."""
    assert standing.deploy(SETTINGS) == ""
    functions = standing.aws.clients("lambda").list_functions()["Functions"]
    (arn,) = [item["FunctionArn"] for item in functions if "NameGuard" in item["FunctionName"]]
    properties = {"ServiceToken": arn, "ClusterName": "ml"}  # no Region
    function = {"Type": "Custom::ClusterNameGuard", "Properties": properties}
    assert "could not ask whether the cluster's name is free: KeyError" in standing._deploy(
        "wrong", {"Resources": {"Guard": function}}
    )


def test_the_guard_may_look_at_two_stacks_and_do_nothing_else(rehearsal: Assembly) -> None:
    statements = [s for place, s in rehearsal.statements() if place.startswith("cluster/NameGuardFunction")]
    assert {s["Action"]: json.dumps(s["Resource"]) for s in statements} == {
        "cloudformation:DescribeStacks": json.dumps(statements[0]["Resource"]),
        "cloudformation:DescribeStackResource": json.dumps({"Ref": "AWS::StackId"}),
    }
    assert statements[0]["Resource"]["Fn::Join"][1][-1] == ":stack/rehearsal/*"
    assert CLUSTER_RESOURCE in rehearsal.templates["cluster"]["Resources"]
