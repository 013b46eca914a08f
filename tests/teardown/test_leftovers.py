"""What `slipway status` lists of a cluster that is not deployed: nothing before it was, and what costs on after it."""

from __future__ import annotations

import json

import pytest

from tests.teardown.conftest import NAME, SETTINGS, Deployed, slipway


def test_nothing_is_left_where_nothing_was(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("status", SETTINGS) == 1
    out = capsys.readouterr().out.splitlines()
    assert out == [f"{NAME} in us-east-1a: absent", "stacks      none: it is not deployed"]


def test_what_a_destroy_left_is_listed_with_its_price(
    deployed: Deployed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    deployed.deploy("network", "storage", "observability")
    for part in ("storage", "observability"):
        deployed.delete(part)
    system = deployed.file_systems[0]["FileSystemId"]
    slipway("status", SETTINGS)
    out = capsys.readouterr().out
    assert f"left        file system {system} (4800 GiB persistent-2, AVAILABLE): 1,008.00 USD a month" in out
    assert f"bucket {deployed.buckets[0]}: by use" in out
    assert f"log group {NAME}-observability-LogGroup-" in out
    assert "security group sg-" in out
    assert "NAT gateway nat-" in out
    assert "together 1,084.50 USD a month at list prices, and what is paid by use. Hint: slipway teardown FILE" in out


def test_a_file_system_that_only_has_the_tag(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """19.2 TiB with the tag alone; no stack says that it made it, so it is listed with that doubt."""
    ec2, fsx = deployed.aws.clients("ec2"), deployed.aws.clients("fsx")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    configuration = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
    fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=19200,
        SubnetIds=[subnet],
        LustreConfiguration=configuration,
        Tags=[{"Key": "project", "Value": NAME}],
    )
    assert slipway("status", SETTINGS, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"] == "absent"
    left = answer["left"][0]
    assert (left["kind"], left["usd_per_month"], left["is_ours"]) == ("file system", 2784.0, False)
