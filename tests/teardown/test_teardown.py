"""`slipway teardown` on the embedded AWS, whose EC2, FSx and CloudFormation refuse what the real ones refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rehearsal.cloud import storage
from slipway.settings import load_settings
from slipway.teardown.policy import teardown_policy
from tests.teardown.conftest import LIKE_PARALLELCLUSTER, NAME, SETTINGS, TAGS, Deployed, slipway

PARTS = ("network", "storage", "observability", "cluster", "acceptance")
SURE = ("--confirm", NAME)


def last_lines(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_data_stays_without_being_asked_for(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.deploy(*PARTS)
    assert slipway("teardown", SETTINGS, *SURE) == 0
    assert sorted(deployed.statuses()) == [f"{NAME}-{part}" for part in ("network", "observability", "storage")]
    assert len(deployed.file_systems) == len(deployed.buckets) == len(deployed.vpcs) == 1
    err = last_lines(capsys)
    system = deployed.file_systems[0]["FileSystemId"]
    assert f"1. stack {NAME}-acceptance (CREATE_COMPLETE" in err
    assert f"2. stack {NAME}-cluster (CREATE_COMPLETE: head node, compute nodes and their disks)" in err
    assert f"stack {NAME}-storage (CREATE_COMPLETE): it holds file system {system}, " in err
    assert f"stack {NAME}-network (CREATE_COMPLETE): the file system {system} is in its subnet" in err
    assert f"file system {system} (4800 GiB persistent-2, AVAILABLE): 1,008.00 USD a month" in err
    assert "NAT gateway nat-" in err
    assert ": 32.85 USD a month" in err
    assert f"{NAME} is taken down; what stays costs " in err


def test_all_of_it_with_its_data(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.deploy(*PARTS)
    bucket = deployed.buckets[0]
    s3 = deployed.aws.clients("s3")
    for text in (b"old", b"new"):  # two versions
        s3.put_object(Bucket=bucket, Key="datasets/a", Body=text)
    s3.delete_object(Bucket=bucket, Key="datasets/a")  # and a delete marker
    s3.create_multipart_upload(Bucket=bucket, Key="broken")
    logs = deployed.aws.clients("logs")
    logs.create_log_group(logGroupName=f"/aws/lambda/{NAME}-acceptance-Start1A2B-xyz")
    logs.create_log_group(logGroupName=f"/aws/parallelcluster/{NAME}-202611280900", tags={"project": NAME})
    logs.create_log_group(logGroupName=f"{NAME}-2-observability-LogGroup-other")
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE, "--json") == 0
    out, err = capsys.readouterr()
    assert deployed.statuses() == {}
    assert (deployed.file_systems, deployed.buckets, deployed.vpcs) == ([], [], [])
    assert [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]] == [
        f"{NAME}-2-observability-LogGroup-other"
    ]
    answer = json.loads(out)
    kinds = [(step["kind"], step["state"]) for step in answer["steps"]]
    assert {state for _, state in kinds} == {"gone"}
    order = [step["id"].removeprefix(f"{NAME}-") for step in answer["steps"] if step["kind"] == "stack"]
    assert order == ["acceptance", "cluster", "storage", "observability", "network"]
    assert (answer["stays"], answer["usd_per_month"]) == ([], 0)
    assert f"{NAME} is taken down; nothing is left" in err
    assert deployed.aws.tracebacks() == []

    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 0  # twice
    assert "nothing is left to delete" in last_lines(capsys)


def test_the_stacks_alone_cannot_be_deleted_in_this_way(deployed: Deployed) -> None:
    """Why teardown is needed: the retained file system and its group hold the network."""
    deployed.deploy("network", "storage")
    deployed.delete("storage")
    deployed.delete("network")
    assert deployed.status("network") == "DELETE_FAILED"
    assert len(deployed.file_systems) == 1


def test_what_an_earlier_destroy_left(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.deploy("network", "storage")
    deployed.delete("storage")
    deployed.delete("network")
    assert slipway("teardown", SETTINGS, *SURE) == 0
    err = last_lines(capsys)
    assert "the file system fs-" in err
    assert deployed.status("network") == "DELETE_FAILED"
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 0
    assert (deployed.statuses(), deployed.file_systems, deployed.buckets, deployed.vpcs) == ({}, [], [], [])


def test_parts_are_gone_and_a_stack_is_rolled_back(deployed: Deployed) -> None:
    deployed.deploy("network")
    bad = deployed.template("storage")
    bad["Resources"]["FileSystem"]["Properties"]["StorageCapacity"] = 1300
    deployed.make(f"{NAME}-storage", bad)
    assert deployed.status("storage") == "ROLLBACK_COMPLETE"
    assert slipway("teardown", SETTINGS, *SURE) == 0
    assert (deployed.statuses(), deployed.vpcs) == ({}, [])


def test_a_deletion_that_takes_too_long_is_resumed(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.deploy("network", "storage")
    monkeypatch.setattr(storage, "DELETING_S", 12.0)
    monkeypatch.setattr("slipway.teardown.command.STEP_MINUTES", 0.01)
    from slipway.teardown.command import teardown

    arguments: Any = {"ask": lambda _: "", "confirm": NAME, "delete_data": True}
    with pytest.raises(Exception, match="Hint: run the same command again, it goes on from there"):
        teardown(SETTINGS, minutes=0.005, **arguments)
    assert deployed.file_systems  # FSx has not deleted it yet
    assert teardown(SETTINGS, minutes=5, **arguments) == 0
    assert ": DELETING (" in capsys.readouterr().err.rpartition("teardown of")[2]
    assert (deployed.statuses(), deployed.file_systems, deployed.vpcs) == ({}, [], [])


def test_another_name_deletes_nothing(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.deploy("network", "storage")
    asked: list[str] = []

    def prompt(text: str, **_: Any) -> str:
        asked.append(text)
        return "p5"

    monkeypatch.setattr("typer.prompt", prompt)
    assert slipway("teardown", SETTINGS, "--delete-data", "--confirm", "another") == 2
    deployed.deploy("cluster")
    assert slipway("teardown", SETTINGS) == 2
    assert asked == [f"Type {NAME} to delete {NAME}"]
    assert slipway("teardown", SETTINGS, "--delete-data") == 2
    assert asked[1] == f"Type {NAME} to delete {NAME} AND ITS DATA"
    assert "'p5' is not the name p5-sandbox: nothing was deleted" in last_lines(capsys)
    assert (len(deployed.statuses()), len(deployed.file_systems)) == (4, 1)


def test_a_foreign_cluster_of_the_same_name_is_not_touched(
    deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made by `pcluster` before; our stack then failed and is still there with its half-made cluster."""
    deployed.make(NAME, LIKE_PARALLELCLUSTER)
    deployed.deploy("network")
    deployed.make(f"{NAME}-cluster", deployed.template("cluster"), DisableRollback=True)
    assert deployed.status("cluster") == "CREATE_FAILED"
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 1
    err = last_lines(capsys)
    assert f"it is older than {NAME}-cluster, so another tool created it" in err
    assert "because ParallelCluster deletes a cluster by its name. Nothing was deleted" in err
    assert len(deployed.statuses()) == 3


def test_a_foreign_cluster_alone_and_a_foreign_stack(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.make(NAME, LIKE_PARALLELCLUSTER)
    deployed.make(f"{NAME}-storage", LIKE_PARALLELCLUSTER, tags=[{"Key": "project", "Value": "other"}])
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 0
    assert sorted(deployed.statuses()) == [NAME, f"{NAME}-storage"]
    err = last_lines(capsys)
    assert f"stack {NAME} (CREATE_COMPLETE): not this cluster's: there is no stack {NAME}-cluster" in err
    assert f"stack {NAME}-storage (CREATE_COMPLETE): not this cluster's: it has no tag project={NAME}" in err


def test_what_only_carries_the_tag_is_named_and_stays(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    ec2 = deployed.aws.clients("ec2")
    tags = [{"ResourceType": "volume", "Tags": TAGS}]
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=100, VolumeType="gp3", TagSpecifications=tags)
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 0
    assert len(ec2.describe_volumes(VolumeIds=[volume["VolumeId"]])["Volumes"]) == 1
    line = f"volume {volume['VolumeId']} (100 GiB gp3): 8.00 USD a month; only its tag project has the cluster's name"
    assert line in last_lines(capsys)


def test_what_the_settings_refer_to_stays(
    deployed: Deployed, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file system of an earlier deployment, used again by its id: the stack made it, but the settings own it now."""
    deployed.deploy("network", "storage")
    system, bucket = deployed.file_systems[0]["FileSystemId"], deployed.buckets[0]
    text = SETTINGS.read_text(encoding="utf-8")
    start, _, rest = text.partition("  fsx:\n")
    lines = rest.splitlines(keepends=True)
    body = "".join(line for line in lines if not line.startswith("    ") or "- path" in line or "prefix" in line)
    file = tmp_path / "again.yaml"
    file.write_text(f"{start}  bucket: {bucket}\n  fsx: {{file_system_id: {system}}}\n", encoding="utf-8")
    assert body  # the rest of the file is not needed
    assert slipway("teardown", file, "--delete-data", *SURE) in (0, 1)
    assert [item["FileSystemId"] for item in deployed.file_systems] == [system]
    assert deployed.buckets == [bucket]
    assert f"the settings only refer to it: {system}, {bucket}" in last_lines(capsys)


def test_a_protected_stack_is_held(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.make(f"{NAME}-cluster", deployed.template("cluster"), EnableTerminationProtection=True)
    deployed.deploy("network")
    assert slipway("teardown", SETTINGS, *SURE) == 1
    err = last_lines(capsys)
    assert "update-termination-protection --no-enable-termination-protection --stack-name p5-sandbox-cluster" in err
    assert f"not begun: {NAME}-network" in err
    assert len(deployed.statuses()) == 3


def test_a_cluster_that_is_gone_but_not_reported(deployed: Deployed) -> None:
    """ParallelCluster's stack is deleted, its function's answer was lost: the stack's own deletion fails for ever."""
    deployed.deploy("cluster")
    deployed.refuse_delete = "answer"
    assert slipway("teardown", SETTINGS, *SURE) == 0
    assert deployed.statuses() == {}


def test_a_cluster_that_cannot_be_deleted(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.deploy("network", "cluster")
    deployed.refuse_delete = "Cluster p5-sandbox is in UPDATE_IN_PROGRESS"
    assert slipway("teardown", SETTINGS, *SURE) == 1
    err = last_lines(capsys)
    assert f"held: stack {NAME}-cluster: {NAME}-cluster is DELETE_FAILED: Cluster: " in err
    assert "is in UPDATE_IN_PROGRESS. Hint: repair the reason" in err
    assert f"not begun: {NAME}-network" in err


def test_something_foreign_in_the_network(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.deploy("network")
    ec2 = deployed.aws.clients("ec2")
    vpc = deployed.vpcs[0]
    group = ec2.create_security_group(GroupName="jump-host", Description="of a person", VpcId=vpc)["GroupId"]
    assert slipway("teardown", SETTINGS, *SURE) == 1
    err = last_lines(capsys)
    assert "Hint: delete what is not this cluster's first (" in err
    assert f"{group} (jump-host)), then run the same command again" in err
    ec2.delete_security_group(GroupId=group)
    assert slipway("teardown", SETTINGS, *SURE) == 0
    assert (deployed.statuses(), deployed.vpcs) == ({}, [])


def test_a_bucket_that_is_locked_holds_only_itself(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.deploy("network", "storage")
    from slipway.aws.calls import Aws, Refused

    act = Aws.act

    def locked(self: Aws, service: str, operation: str, **more: Any) -> dict[str, Any]:
        if operation == "delete_bucket":
            raise Refused("BucketNotEmpty", "The bucket you tried to delete is not empty")
        return act(self, service, operation, **more)

    monkeypatch.setattr(Aws, "act", locked)
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 1
    assert "held: bucket " in last_lines(capsys)
    assert (deployed.statuses(), deployed.file_systems, deployed.vpcs) == ({}, [], [])


def test_without_permission_to_look_nothing_is_deleted(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.deploy("network")
    from slipway.aws.calls import Aws, Pending, Unasked

    call = Aws.start

    def denied(self: Aws, service: str, operation: str, *more: Any, **parameters: Any) -> Any:
        if operation == "describe_file_systems":
            raise_later: Any = Pending.__new__(Pending)
            raise_later.result = _raise(Unasked("fsx:DescribeFileSystems is not allowed", "fsx:DescribeFileSystems"))
            return raise_later
        return call(self, service, operation, *more, **parameters)

    monkeypatch.setattr(Aws, "start", denied)
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 3
    assert "fsx:DescribeFileSystems is not allowed. Nothing was deleted" in last_lines(capsys)
    assert deployed.status("network") == "CREATE_COMPLETE"


def _raise(error: Exception) -> Any:
    def result() -> dict[str, Any]:
        raise error

    return result


def test_the_policy_names_every_action_that_is_used(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    from slipway.aws import calls

    used: set[str] = set()
    read = calls._read_patiently

    def note(client: Any, operation: str, parameters: Any, **more: Any) -> dict[str, Any]:
        name = f"{client.meta.service_model.service_name}:{client.meta.method_to_api_mapping[operation]}"
        used.add(calls.ACTIONS.get(name, name))
        return read(client, operation, parameters, **more)

    monkeypatch.setattr(calls, "_read_patiently", note)
    deployed.deploy(*PARTS)
    logs = deployed.aws.clients("logs")
    logs.create_log_group(logGroupName=f"/aws/parallelcluster/{NAME}-202611280900", tags={"project": NAME})
    assert slipway("teardown", SETTINGS, "--delete-data", *SURE) == 0
    allowed = {
        action for statement in teardown_policy(load_settings(SETTINGS))["Statement"] for action in statement["Action"]
    }
    assert used - allowed == set()
