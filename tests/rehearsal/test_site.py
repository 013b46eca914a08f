"""What a site has already: made in the embedded account, deployed around, and taken over by the local hosts."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine import cdk
from rehearsal.engine.account import STAND_IN_SCRIPT, seed_of
from rehearsal.engine.configuration import mounts_of, parameters_of
from rehearsal.hosts import HostsError, HostSpec, NodeFailed, slurm
from rehearsal.hosts.actions import run_custom_actions
from rehearsal.hosts.errors import failure_line
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.deployed import read_deployment
from slipway.errors import SlipwayError
from slipway.preflight.command import preflight
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws

ROOT = Path(__file__).resolve().parents[2]
SITE_PARTS = ROOT / "tests/stacks/site-parts.yaml"
EVERY_KIND = ROOT / "tests/rehearsal/every-kind.yaml"
GROUP = "sg-0123456789abcdef0"
needs_slurm = pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs the Debian packages of Slurm")


# ---- the account ----


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreflightAws]:
    settings = load_settings(EVERY_KIND)
    with PreflightAws(settings.region, tmp_path / "aws") as aws:
        aws.seed(seed_of(settings))
        for name, value in {**aws.env(), "AWS_ENDPOINT_URL": aws.address_endpoint}.items():
            monkeypatch.setenv(name, value)
        yield aws
        assert aws.tracebacks() == []


def test_every_kind_of_part_is_there_and_well(account: PreflightAws, capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight(EVERY_KIND) == 0
    told = capsys.readouterr()
    # A slurmdbd of the site's own, which AWS cannot be asked about, is the only warning.
    assert " 1 warning, 0 faults, 0 could not be asked in " in told.out, told.out
    assert "whether the head node reaches it on TCP 6819, AWS cannot say" in " ".join(told.out.split())


def test_what_is_missing_is_a_fault_of_the_same_question(
    account: PreflightAws, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test above would also pass if nothing looked."""
    account.clients("iam").delete_policy(PolicyArn="arn:aws:iam::123456789012:policy/site/data")
    account.clients("secretsmanager").put_secret_value(SecretId="munge", SecretString="no key")
    assert preflight(EVERY_KIND) == 1
    told = capsys.readouterr().err
    assert "there is no policy arn:aws:iam::123456789012:policy/site/data" in told
    assert "the secret munge is no munge key in base64" in told


def test_names_agree_in_all_that_a_file_system_says_of_itself(account: PreflightAws) -> None:
    (system,) = account.clients("fsx").describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"])["FileSystems"]
    assert system["FileSystemTypeVersion"] == "2.15"
    assert system["LustreConfiguration"]["DeploymentType"] == "PERSISTENT_2"
    assert "fs-0123456789abcdef0" in system["DNSName"]
    assert system["ResourceARN"].endswith("file-system/fs-0123456789abcdef0")
    (volume,) = account.clients("fsx").describe_volumes(VolumeIds=["fsvol-0123456789abcdef1"])["Volumes"]
    assert volume["VolumeType"] == "ONTAP"


def test_secrets_have_the_form_that_slurm_takes() -> None:
    ((_, key),) = seed_of(load_settings(EVERY_KIND)).secrets
    assert len(base64.b64decode(key, validate=True)) >= 32
    ((arn, password),) = seed_of(load_settings(SITE_PARTS)).secrets
    assert arn.endswith(":secret:slurm-AbCdEf")
    assert "#" not in password


def test_scripts_lie_beside_the_settings_or_are_stand_ins(tmp_path: Path) -> None:
    own = tmp_path / "s3/site-scripts/harden.sh"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"#!/bin/sh\ntrue\n")
    scripts = {key: text for _, key, text in seed_of(load_settings(SITE_PARTS), tmp_path).scripts}
    assert scripts == {"harden.sh": b"#!/bin/sh\ntrue\n", "compute/limits.sh": STAND_IN_SCRIPT}


def test_a_key_with_dots_leads_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("of the user", encoding="utf-8")
    text = SITE_PARTS.read_text(encoding="utf-8").replace("site-scripts/harden.sh", "site-scripts/../../private")
    (tmp_path / "site.yaml").write_text(text, encoding="utf-8")
    scripts = seed_of(load_settings(tmp_path / "site.yaml"), tmp_path).scripts
    assert {body for *_, body in scripts} == {STAND_IN_SCRIPT}


# ---- the deployment ----


def _accepted(request: ResourceRequest) -> ResourceResult:
    """ParallelCluster's custom resource: the cluster that it would make is not needed here."""
    attributes = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.9"}
    return ResourceResult(str(request.properties["ClusterName"]), {**attributes, "validationMessages": "[]"})


@pytest.mark.slow
@pytest.mark.skipif(not cdk.CDK.exists(), reason="needs the CDK CLI: make setup")
def test_a_network_with_nothing_to_make_is_no_stack_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(SITE_PARTS)
    parts = ("network", "storage", "observability", "cluster")
    stacks = [f"{settings.name}-{part}" for part in parts]
    with PreflightAws(settings.region, tmp_path / "aws", settle_s=3.0) as aws:
        aws.register_custom_resource("Custom::PclusterCluster", _accepted)
        aws.seed(seed_of(settings))
        before = group_of(aws)
        cdk.deploy(SITE_PARTS, stacks, tmp_path / "cdk.out", tmp_path / "cdk.log", aws.env(), print)
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        made = {stack["StackName"] for stack in aws.clients("cloudformation").describe_stacks()["Stacks"]}
        assert made & set(stacks) == set(stacks[1:])
        assert aws.verify(tmp_path / "cdk.out", stacks) == []
        deployment = read_deployment(settings)
        aws.clients("cloudformation").delete_stack(StackName=stacks[-1])
        assert aws.stacks.wait_idle(120)
        assert f"stack {stacks[-1]}: never deployed" in aws.verify(tmp_path / "cdk.out", stacks)
        with pytest.raises(SlipwayError, match=r"is not deployed: stack site-parts-cluster does not exist"):
            read_deployment(settings)
        assert group_of(aws) == before
    assert deployment.facts.node_security_group_id == GROUP
    assert deployment.vpc_id == settings.network.vpc_id


def group_of(aws: PreflightAws) -> dict[str, Any]:
    (group,) = aws.clients("ec2").describe_security_groups(GroupIds=[GROUP])["SecurityGroups"]
    assert isinstance(group, dict)
    return {key: group[key] for key in ("IpPermissions", "IpPermissionsEgress")}


# ---- the local hosts ----


def configuration(file: Path) -> dict[str, Any]:
    settings = load_settings(file)
    return cluster_configuration(settings, placeholder_facts(settings))


def test_mounts_of_the_site_are_those_that_no_host_has_anyway() -> None:
    assert mounts_of(configuration(EVERY_KIND)) == ["/efs", "/lustre", "/zfs", "/cache"]


def test_parameters_come_from_the_cluster_and_from_each_queue() -> None:
    found = parameters_of(configuration(SITE_PARTS))
    assert found == slurm.Parameters({"SlurmdTimeout": "600"}, {"train": {"GraceTime": "60"}})


HEAD = HostSpec("head", "10.0.0.10", "head", "m5.8xlarge", 32, 131072)
NODE = HostSpec("train-st-gpu-1", "10.0.1.1", "compute", "p5.48xlarge", 192, 2097152, queue="train")


@needs_slurm
def test_parameters_land_in_slurm_conf_once(tmp_path: Path) -> None:
    wanted = slurm.Parameters({"slurmdtimeout": "600"}, {"train": {"MaxTime": "60", "GraceTime": "60"}})
    slurm.write_tree(tmp_path, "ml", HEAD, [NODE], wanted)
    main = (tmp_path / "etc/slurm.conf").read_text(encoding="utf-8")
    part = (tmp_path / "etc/slurm_parallelcluster.conf").read_text(encoding="utf-8")
    assert (main + part).lower().count("slurmdtimeout=") == 1
    assert "slurmdtimeout=600\n" in part
    partition = (tmp_path / "etc/pcluster/slurm_parallelcluster_train_partition.conf").read_text(encoding="utf-8")
    assert partition.endswith("PartitionName=train Nodes=train_nodes State=UP Default=YES MaxTime=60 GraceTime=60\n")


@needs_slurm
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("NoSuchParameter", "1", "does not know it"),
        ("AccountingStorageEnforce", "limits", "no slurmdbd"),
        ("ProctrackType", "proctrack/cgroup", "no control groups"),
        ("TopologyPlugin", "topology/flying", "has no plugin topology/flying"),
    ],
)
def test_parameters_that_cannot_be_tried_are_told(key: str, value: str, reason: str) -> None:
    chosen, left_out = slurm.choose(slurm.Parameters({key: value, "KillWait": "9"}, {"q": {"NoSuch": "1"}}))
    assert chosen == slurm.Parameters({"KillWait": "9"}, {"q": {}})
    assert f"slurm.conf: {key}={value} is not tried: " in left_out[0]
    assert reason in left_out[0]
    assert left_out[1].startswith("partition q: NoSuch=1 is not tried: ")


@needs_slurm
def test_a_value_that_slurm_refuses_is_a_failure() -> None:
    with pytest.raises(HostsError, match=r'slurm\.conf: KillWait=soon: Slurm refuses it: .*"soon"'):
        slurm.choose(slurm.Parameters({"KillWait": "soon"}))


class Scripts:
    """A store that holds these scripts."""

    def __init__(self, **texts: bytes) -> None:
        self.texts = texts

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        body = self.texts[Key]
        return {"Body": type("Body", (), {"read": lambda _: body})()}


class Recorder:
    """A host that takes scripts and runs none."""

    name = "gpu-1"

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], dict[str, str]]] = []

    def put(self, *_: object) -> None:
        """Nothing is kept."""

    def stream(self, argv: list[str], _on_line: object, *, env: dict[str, str], timeout_s: float) -> Any:
        self.ran.append((argv[1:], env))
        return type("Done", (), {"ok": timeout_s > 0})()


def actions(*keys: str) -> dict[str, Any]:
    return {"OnNodeConfigured": {"Sequence": [{"Script": f"s3://b/{key}", "Args": [key, "x"]} for key in keys]}}


def test_a_script_that_is_missing_stops_the_node_before_any_runs() -> None:
    host: Any = Recorder()
    with pytest.raises(NodeFailed, match="s3://b/second"):
        run_custom_actions(host, actions("first", "second"), Scripts(first=b"#!/bin/sh\n"), print)
    assert host.ran == []


def test_a_script_without_interpreter_fails_as_it_does_on_a_node() -> None:
    host: Any = Recorder()
    with pytest.raises(NodeFailed) as caught:
        run_custom_actions(host, actions("first", "bare"), Scripts(first=b"#!/bin/sh\n", bare=b"echo\n"), print)
    assert [arguments for arguments, _ in host.ran] == [["first", "x"]]
    assert failure_line(caught.value) == (
        "gpu-1: s3://b/bare: the kernel cannot run it (Exec format error): its first line is not #!INTERPRETER"
        " (exit 1); its logs: hosts/gpu-1.log"
    )


def test_scripts_get_their_arguments_and_parallelclusters_variables() -> None:
    host: Any = Recorder()
    run_custom_actions(host, actions("first"), Scripts(first=b"#!/bin/sh\n"), print)
    assert host.ran == [
        (["first", "x"], {"cfn_postinstall": '"s3://b/first"', "cfn_postinstall_args": '("first" "x")'})
    ]
