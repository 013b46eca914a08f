"""After a deployment: the stacks are deployed with the CDK CLI into the embedded AWS, and the exports read them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from ruamel.yaml import YAML

from rehearsal.cloud import pcluster
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine import cdk
from rehearsal.engine.account import seed_of
from slipway.deployed import read_deployment
from slipway.errors import EnvironmentFault, SlipwayError
from slipway.exchange.export import export_env, export_pcluster
from slipway.exchange.pcluster_import import import_pcluster
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
PCLUSTER = ROOT / ".venv-pcluster/bin/pcluster"
CLUSTER = "portable"
SETTINGS = f"""
name: {CLUSTER}
region: us-east-1
zone: us-east-1a
head_node: {{instance_type: m5.2xlarge, policy_arns: ['arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly']}}
queues:
  - name: train
    instance_type: p5.48xlarge
    count: 4
    reservation: {{kind: capacity-block, id: cr-0123456789abcdef1}}
    efa: true
  - name: prepare
    instance_type: c6i.8xlarge
    max_count: 4
storage:
  fsx: {{capacity_gib: 1200, throughput_mb_s_per_tib: 125}}
  associations: [{{path: /datasets, prefix: datasets/}}]
images: ['docker://nvcr.io#nvidia/pytorch:24.01-py3']
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not cdk.CDK.exists(), reason="needs the CDK CLI: make setup")]
needs_pcluster = pytest.mark.skipif(not PCLUSTER.exists(), reason="needs pcluster: make setup-pcluster")


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "portable.yaml"
    file.write_text(SETTINGS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def cloud(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    folder = tmp_path_factory.mktemp("cloud")
    with EmbeddedAws("us-east-1", folder / "aws", settle_s=3.0) as aws:
        aws.register_custom_resource("Custom::PclusterCluster", _accepted)
        aws.seed(seed_of(load_settings(settings_file)))
        stacks = [f"{CLUSTER}-{part}" for part in ("network", "storage", "observability", "cluster")]
        try:
            cdk.deploy(settings_file, stacks, folder / "cdk.out", folder / "cdk.log", aws.env(), print)
        except cdk.DeployFailed as error:
            pytest.fail(f"{error}: {error.tail}")
        yield aws


GIVEN: list[Any] = []
"""The cluster configurations that ParallelCluster's custom resource received."""


def _accepted(request: ResourceRequest) -> ResourceResult:
    """ParallelCluster's custom resource: the cluster that it would make is not needed here."""
    GIVEN.append(request.properties["ClusterConfiguration"])
    attributes = {
        "headNode.instanceId": "i-0123456789abcdef0",
        "headNode.privateIpAddress": "10.0.0.9",
        "validationMessages": "[]",
    }
    return ResourceResult(str(request.properties["ClusterName"]), attributes)


def as_sent(node: Any) -> Any:
    """`node` as CloudFormation sends it to a custom resource: every scalar is text."""
    if isinstance(node, dict):
        return {key: as_sent(value) for key, value in node.items()}
    if isinstance(node, list):
        return [as_sent(value) for value in node]
    return node if isinstance(node, str) else json.dumps(node)


def outputs_of(cloud: EmbeddedAws, part: str) -> dict[str, str]:
    (stack,) = cloud.clients("cloudformation").describe_stacks(StackName=f"{CLUSTER}-{part}")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@pytest.fixture(autouse=True)
def as_user(cloud: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in cloud.env().items():
        monkeypatch.setenv(key, value)


def load(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def dry_run(cloud: EmbeddedAws, configuration: dict[str, Any], folder: Path) -> list[pcluster.ValidationMessage]:
    """The real `pcluster create-cluster --dryrun true`; a key pair is not what this is about."""
    return pcluster.validate(
        configuration,
        "another",
        "us-east-1",
        cloud.address_endpoint,
        PCLUSTER,
        folder,
        suppressed=("KeyPairValidator",),
    )


@needs_pcluster
def test_what_is_written_passes_the_dry_run(
    cloud: EmbeddedAws, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "cluster.yaml"
    assert export_pcluster(settings_file, target, deployed=True) == 0
    assert capsys.readouterr().err == ""
    configuration = load(target.read_text(encoding="utf-8"))
    messages = dry_run(cloud, configuration, tmp_path)
    assert [message for message in messages if message.level == "ERROR"] == []
    # The check bites: the same file with the placeholders of an export before the deployment is refused.
    assert export_pcluster(settings_file, target, force=True) == 0
    refused = dry_run(cloud, load(target.read_text(encoding="utf-8")), tmp_path)
    assert [message for message in refused if message.level == "ERROR"]


def test_it_is_what_the_cluster_stack_gave_parallelcluster(
    settings_file: Path, cloud: EmbeddedAws, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = read_deployment(load_settings(settings_file))
    export_pcluster(settings_file, deployed=True, as_json=True)
    configuration = json.loads(capsys.readouterr().out)
    assert as_sent(configuration) == GIVEN[-1]
    outputs = {part: outputs_of(cloud, part) for part in ("network", "storage")}
    group = configuration["HeadNode"]["Networking"]["AdditionalSecurityGroups"][0]
    found = cloud.clients("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
    assert found["VpcId"] == outputs["network"]["VpcId"] == deployment.vpc_id
    assert configuration["HeadNode"]["Networking"]["SubnetId"] == outputs["network"]["HeadNodeSubnetId"]
    assert configuration["SharedStorage"][0]["FsxLustreSettings"]["FileSystemId"] == outputs["storage"]["FileSystemId"]
    action = configuration["HeadNode"]["CustomActions"]["OnNodeConfigured"]
    parameter = cloud.clients("ssm").get_parameter(Name=action["Args"][2])["Parameter"]["Value"]
    bundle = dict(line.split("=", 1) for line in parameter.splitlines())
    assert configuration["HeadNode"]["CustomActions"]["OnNodeUpdated"]["Args"][3] == bundle["BUNDLE_SHA256"]
    for url in (action["Script"], bundle["BUNDLE_URL"]):
        bucket, _, key = url.removeprefix("s3://").partition("/")
        assert cloud.clients("s3").head_object(Bucket=bucket, Key=key)["ContentLength"] > 0


def test_it_comes_back_as_the_same_settings(settings_file: Path, tmp_path: Path) -> None:
    target, back = tmp_path / "cluster.yaml", tmp_path / "back.yaml"
    export_pcluster(settings_file, target, deployed=True)
    assert import_pcluster(target, back) == 0
    assert load_settings(back) == load_settings(settings_file)


def test_edited_ids_of_a_deployed_cluster_win(settings_file: Path, tmp_path: Path) -> None:
    target, back = tmp_path / "cluster.yaml", tmp_path / "back.yaml"
    export_pcluster(settings_file, target, deployed=True)
    text = target.read_text(encoding="utf-8")
    body, block = text.split("\n# What ParallelCluster", 1)
    old = load(body)["HeadNode"]["Networking"]["SubnetId"]
    target.write_text(
        body.replace(old, "subnet-0123456789abcdef0") + "\n# What ParallelCluster" + block, encoding="utf-8"
    )
    assert import_pcluster(target, back, vpc_id="vpc-0123456789abcdef0") == 0
    network = load_settings(back).network
    assert (network.head_node_subnet_id, network.vpc_id, network.cidr) == (
        "subnet-0123456789abcdef0",
        "vpc-0123456789abcdef0",
        None,
    )


def test_env_has_the_metrics_address(
    cloud: EmbeddedAws, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_env(settings_file, deployed=True) == 0
    captured = capsys.readouterr()
    values = dict(shlex.split(line)[1].split("=", 1) for line in captured.out.splitlines())
    outputs = {part: outputs_of(cloud, part) for part in ("network", "storage", "observability")}
    assert values["AMPREMOTEWRITEURL"] == outputs["observability"]["PrometheusEndpoint"] + "api/v1/remote_write"
    assert values["VPC_ID"] == outputs["network"]["VpcId"]
    assert values["FSX_ID"] == outputs["storage"]["FileSystemId"]
    assert "KEY_PAIR_NAME" not in values
    assert "KEY_PAIR_NAME: left out: the settings name no key pair" in captured.err


def changed(settings_file: Path, folder: Path, old: str, new: str) -> Path:
    file = folder / "changed.yaml"
    file.write_text(settings_file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return file


def test_nothing_deployed_names_the_stack(settings_file: Path, tmp_path: Path) -> None:
    other = changed(settings_file, tmp_path, f"name: {CLUSTER}", "name: nowhere")
    with pytest.raises(SlipwayError) as caught:
        export_pcluster(other, tmp_path / "out.yaml", deployed=True)
    assert caught.value.exit_code == 1
    assert "stack nowhere-cluster does not exist in us-east-1" in str(caught.value)
    assert not (tmp_path / "out.yaml").exists()


def test_another_region_says_which_the_shell_means(settings_file: Path, tmp_path: Path) -> None:
    other = changed(settings_file, tmp_path, "us-east-1", "us-west-2")  # the embedded AWS has one region: no such name
    other = changed(other, tmp_path, f"name: {CLUSTER}", "name: nowhere")
    with pytest.raises(SlipwayError, match="the settings say us-west-2, your shell says us-east-1"):
        export_pcluster(other, deployed=True)


def create(cloud: EmbeddedAws, name: str, **template: Any) -> None:
    group = {"Resources": {"Group": {"Type": "AWS::Logs::LogGroup"}}}
    cloud.clients("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps({**group, **template}))
    assert cloud.stacks.wait_idle(30)


@pytest.mark.parametrize(
    ("name", "template", "words"),
    [
        (
            "half",
            {"Resources": {"Queue": {"Type": "AWS::Quantum::Computer"}}},
            "stack half-cluster is ROLLBACK_COMPLETE",
        ),
        ("foreign", {}, "stack foreign-cluster has no output DeploymentFacts"),
        ("text", {"Outputs": {"DeploymentFacts": {"Value": "no JSON"}}}, "another release of Slipway"),
        ("older", {"Outputs": {"DeploymentFacts": {"Value": '{"vpc_id": "vpc-1", "facts": {}}'}}}, "another release"),
    ],
)
def test_a_cluster_stack_that_cannot_be_read(
    name: str, template: dict[str, Any], words: str, cloud: EmbeddedAws, settings_file: Path, tmp_path: Path
) -> None:
    other = changed(settings_file, tmp_path, f"name: {CLUSTER}", f"name: {name}")
    create(cloud, f"{name}-cluster", **template)
    with pytest.raises(SlipwayError, match=words):
        export_pcluster(other, deployed=True)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [("http://127.0.0.1:9", "cannot be reached"), (None, "no AWS credentials were found")],
)
def test_no_answer_is_a_fault_of_the_environment(
    settings_file: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, words: str
) -> None:
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    else:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(EnvironmentFault, match=words) as caught:
        export_pcluster(settings_file, deployed=True, session=boto3.session.Session())
    assert caught.value.exit_code == 3
