"""``slipway status`` against the embedded AWS: stacks made, failed and under way, and a head node that answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from moto.fsx.models import fsx_backends

from rehearsal.cloud_model import ACCOUNT
from slipway.errors import EnvironmentFault
from slipway.settings import load_settings
from slipway.settings.rules.place import STACKS
from slipway.status import command
from slipway.status.command import policy, status
from slipway.status.stacks import Stack
from tests.aws.deployed_site import HEAD, SETTINGS, Site


def shown(capsys: pytest.CaptureFixture[str], code: int, **options: Any) -> str:
    assert status(SETTINGS, **options) == code
    return capsys.readouterr().out


def test_the_screen_fits_a_narrow_terminal(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.deploy(*STACKS)
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown(capsys, 1).splitlines()
    assert max(map(len, lines)) <= 60
    at = lines.index("stacks      network, storage, observability, cluster,")
    assert lines[at + 1] == "            acceptance CREATE_COMPLETE"


def test_a_cluster_that_is_well(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy(*STACKS)
    out = shown(capsys, 1)  # images are still being imported
    lines = out.splitlines()
    assert lines[0] == "rehearsal in us-east-1a: busy"
    assert "stacks      network, storage, observability, cluster, acceptance CREATE_COMPLETE" in lines
    assert f"head node   {site.instance} m5.2xlarge running" in out
    assert "release aaaaaaaaaaaa; steps: 1 ok, 1.2 s" in out
    assert "fleet       train: 4 idle; jobs: 2 running" in lines
    assert "nodes       4 set up; steps: 36 ok; the slowest gpu-3 in 3.0 s" in lines
    assert "background  containers running, 38 %, 3 of 8 images, about 12 min left" in lines
    assert "acceptance  accepted (run r1): 4 nodes good" in lines
    assert "reservation cr-0123456789abcdef1 active, " in out
    assert "USD a month" in out
    assert site.commands == ["/opt/slipway/current/nodes/status/node_status.py --packed"]
    assert site.aws.tracebacks() == []

    done = {"name": "containers", "state": "done", "percent": 100, "detail": "8 of 8 images"}
    site.answer = (0, site.packed({**HEAD, "background": [done]}), "")
    found = json.loads(shown(capsys, 0, as_json=True))
    assert (found["state"], found["problems"], found["not_asked"]) == ("good", [], [])
    assert found["head_node"]["node"]["release"]["in_use"] == "aaaaaaaaaaaa"
    assert {stack["part"]: stack["status"] for stack in found["stacks"]} == dict.fromkeys(STACKS, "CREATE_COMPLETE")
    assert found["reservations"][0]["seconds_left"] > 0


def test_nothing_is_deployed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, 1)
    assert out.splitlines() == ["rehearsal in us-east-1a: absent", "stacks      none: it is not deployed"]


def test_a_deployment_under_way(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy("network", "storage", "observability")
    site.gate.clear()
    site.deploy("cluster", wait=False)
    out = shown(capsys, 1)
    assert out.startswith("rehearsal in us-east-1a: busy\n")
    assert "rehearsal-cluster: CREATE_IN_PROGRESS for " in out
    assert re.search(r"; now: Cluster [0-9]+ s", out), out  # as long as the command took
    assert "busy        rehearsal-acceptance: there is no such stack" in out


def test_a_creation_that_failed_says_what_failed_first_and_what_the_node_logged(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("network", "storage", "observability")
    logs = site.aws.clients("logs")
    logs.create_log_stream(logGroupName="nodes", logStreamName="head.i-1.slipway-setup")
    site.failure = "rehearsal: OnNodeConfiguredExecutionFailure"
    site.gate.clear()
    site.deploy("cluster", wait=False)
    line = "2026-11-28T05:00:00Z slipway: FAULT host=head step=headnode/20-prometheus exit=1 log=/l hint=mend it"
    events = [{"timestamp": _now_ms(), "message": text} for text in ("slipway: step a ok", line)]
    logs.put_log_events(logGroupName="nodes", logStreamName="head.i-1.slipway-setup", logEvents=events)
    site.gate.set()
    assert site.aws.stacks.wait_idle(120)
    out = shown(capsys, 1)
    assert "failed      rehearsal-cluster: ROLLBACK_COMPLETE; first failure: Cluster: rehearsal: OnNodeConf" in out
    assert "failed      log of the nodes: host=head step=headnode/20-prometheus exit=1 log=/l hint=mend it" in out
    assert "step a ok" not in out


GROUP = "/aws/parallelcluster/rehearsal-202611281530"
MOUNT = "mount.lustre: mount fs-1@tcp:/abc at /fsx failed: Connection timed out"


def put_boot_logs(site: Site) -> None:
    """Streams as ParallelCluster's agent makes them; most lines say nothing of a failure."""
    logs = site.aws.clients("logs")
    logs.create_log_group(logGroupName="/aws/parallelcluster/rehearsal-202601010000")  # of a cluster before
    logs.create_log_group(logGroupName=GROUP)
    streams = {
        "ip-10-0-0-4.i-1.chef-client": ["INFO: Processing mount[/fsx]", MOUNT, "FATAL: Chef run process exited"],
        "ip-10-0-0-4.i-1.cloud-init-output": ["Cloud-init finished"],
        "ip-10-0-0-4.i-1.clustermgtd": ["Could not resolve host: x"],
    }
    for stream, lines in streams.items():
        logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
        events = [{"timestamp": _now_ms() + number, "message": line} for number, line in enumerate(lines)]
        logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def test_a_creation_that_failed_before_our_scripts_names_the_cause(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy("network", "storage", "observability")
    site.failure = "WaitCondition timed out. Received 0 conditions when expecting 1"
    site.gate.clear()
    site.deploy("cluster", wait=False)
    put_boot_logs(site)
    site.gate.set()
    assert site.aws.stacks.wait_idle(120)
    out = " ".join(shown(capsys, 1).split())
    assert "WaitCondition timed out. Received 0 conditions" in out
    assert "failed boot of ip-10-0-0-4: the FSx for Lustre file system cannot be mounted: mount.lustre:" in out
    assert f"(log group {GROUP}, stream ip-10-0-0-4.i-1.chef-client). Hint: the file system's security group" in out
    assert "Could not resolve host" not in out


def test_nodes_that_fail_to_boot_later_are_explained_while_the_stacks_are_fine(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy(*STACKS)
    put_boot_logs(site)
    assert "boot of" not in shown(capsys, 1), "nothing says that a node failed"
    slurm = {**HEAD["slurm"], "partitions": {"train": "inact"}, "fleet": "PROTECTED"}
    site.answer = (0, site.packed({**HEAD, "slurm": slurm}), "")
    out = " ".join(shown(capsys, 1).split())
    assert "failed partition train: it is INACTIVE (ParallelCluster's protected mode)" in out
    assert "pcluster update-compute-fleet --cluster-name rehearsal --status START_REQUESTED" in out
    assert "degraded boot of ip-10-0-0-4: the FSx for Lustre file system cannot be mounted" in out


def test_an_association_that_is_misconfigured_is_said_with_fsxs_reason(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.deploy(*STACKS)
    fsx, ec2 = site.aws.clients("fsx"), site.aws.clients("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    made = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnet],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]
    identity = made["FileSystemId"]
    site.aws.clients("s3").create_bucket(Bucket="training-data-1")
    association = fsx.create_data_repository_association(
        FileSystemId=identity, FileSystemPath="/datasets", DataRepositoryPath="s3://training-data-1/d"
    )["Association"]["AssociationId"]
    monkeypatch.setattr(command, "_file_system_id", lambda _settings, _stacks: identity)
    assert "association" not in shown(capsys, 1)
    backend = fsx_backends[ACCOUNT][load_settings(SETTINGS).region]
    row = backend.__dict__["associations"][association]
    reason = "Amazon FSx cannot access the S3 bucket; check its policy"
    row |= {"Lifecycle": "MISCONFIGURED", "FailureDetails": {"Message": reason}}
    backend.file_systems[identity].__dict__["facts"] = {"Lifecycle": "MISCONFIGURED_UNAVAILABLE"}
    out = " ".join(shown(capsys, 1).split())
    assert f"association {association}: /datasets with s3://training-data-1/d is MISCONFIGURED: {reason}" in out
    assert f"update-data-repository-association --association-id {association}" in out
    assert f"failed file system {identity}: it is MISCONFIGURED_UNAVAILABLE" in out


def test_the_file_system_is_that_of_the_storage_stack() -> None:
    settings = load_settings(SETTINGS)
    stack = Stack("storage", "x", outputs={"FileSystemId": "fs-0123456789abcdef0"})
    assert command._file_system_id(settings, [stack]) == "fs-0123456789abcdef0"
    assert command._file_system_id(settings, [Stack("storage", "x")]) == ""


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)


ANSWERS = (
    ((127, "", "sh: not found"), "its bootstrap has not put Slipway's scripts there yet"),
    ((1, "", "Traceback\nKeyError: 'x'"), "the command ended with Failed: KeyError: 'x'"),
    ((0, "hello\n", ""), "its answer cannot be read"),
)


def test_a_head_node_that_gives_no_answer(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.deploy(*STACKS)
    for answer, said in ANSWERS:
        site.answer = answer
        assert f"degraded    the head node: does not say how it is: {said}" in shown(capsys, 1)
    site.aws.set_ssm_runner(lambda *_: (0, "", "") if site.gate.wait(120) else (1, "", ""))
    site.gate.clear()
    assert "it did not answer within 1 s" in shown(capsys, 1, timeout_s=1)
    site.aws.commands.unregister(site.instance)
    assert "its Systems Manager agent does not report" in shown(capsys, 1)


def test_without_permission_for_run_command_the_stacks_are_shown(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.deploy(*STACKS)
    site.aws.misbehave("ssm:SendCommand", deny=True)
    out = shown(capsys, 3)
    assert out.startswith("rehearsal in us-east-1a: unknown\n")
    assert "not asked   the head node: ssm:SendCommand is not allowed" in out
    assert "acceptance CREATE_COMPLETE" in out


def test_without_permission_for_the_stacks_there_is_nothing_to_show(site: Site) -> None:
    site.aws.misbehave("cloudformation:DescribeStacks", deny=True)
    with pytest.raises(EnvironmentFault, match="cloudformation:DescribeStacks is not allowed"):
        status(SETTINGS)


def test_the_policy_names_what_is_asked_and_nothing_else(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    statements = policy(load_settings(SETTINGS))["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert not [action for action in allowed if "*" in action]
    (sending,) = [one for one in statements if one["Sid"] == "AskHeadNode"]
    assert sending["Condition"]["StringEquals"]["ssm:resourceTag/parallelcluster:cluster-name"] == "rehearsal"
