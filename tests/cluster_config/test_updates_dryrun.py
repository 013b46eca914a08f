"""The real `pcluster update-cluster --dryrun true` for a cluster in the embedded AWS."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.account import seed_of
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.settings import PARALLELCLUSTER_VERSION, Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
PCLUSTER = ROOT / ".venv-pcluster/bin/pcluster"
ARTIFACTS = f"parallelcluster/{PARALLELCLUSTER_VERSION}/clusters/rehearsal-0000000000000000"

pytestmark = pytest.mark.skipif(not PCLUSTER.exists(), reason="needs pcluster: make setup-pcluster")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(ROOT / "clusters/rehearsal.yaml")


class Cluster:
    """A cluster in `aws`, in a separate subnet."""

    def __init__(self, aws: EmbeddedAws, settings: Settings) -> None:
        self.aws, self.settings, self.name = aws, settings, settings.name
        aws.seed(seed_of(settings))
        ec2 = aws.clients("ec2")
        images = ec2.describe_images(Filters=[{"Name": "name", "Values": ["aws-parallelcluster-*"]}])["Images"]
        self.image = images[0]["ImageId"]
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self._subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=settings.zone)["Subnet"]
        system = aws.clients("fsx").create_file_system(
            FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[self._subnet["SubnetId"]]
        )
        self._file_system_id = system["FileSystem"]["FileSystemId"]

    def configuration(self, sha256: str) -> dict[str, Any]:
        subnet = self._subnet["SubnetId"]
        facts = dataclasses.replace(
            placeholder_facts(self.settings),
            head_node_subnet_id=subnet,
            compute_subnet_id=subnet,
            file_system_id=self._file_system_id,
            bundle_sha256=sha256,
        )
        return cluster_configuration(self.settings, facts)


@pytest.fixture(scope="module")
def cluster(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What `pcluster create-cluster` leaves: a stack, its configuration in S3, a head node, a fleet that runs."""
    with EmbeddedAws(settings.region, tmp_path_factory.mktemp("aws")) as aws:
        made = Cluster(aws, settings)
        s3 = aws.clients("s3")
        s3.create_bucket(Bucket="artifacts")
        s3.put_bucket_versioning(Bucket="artifacts", VersioningConfiguration={"Status": "Enabled"})
        version = s3.put_object(
            Bucket="artifacts",
            Key=f"{ARTIFACTS}/configs/cluster-config.yaml",
            Body=yaml.safe_dump(made.configuration("0" * 64)).encode(),
        )["VersionId"]
        values = {
            "ResourcesS3Bucket": "artifacts",
            "ArtifactS3RootDirectory": ARTIFACTS,
            "ConfigVersion": version,
            "Scheduler": "slurm",
            "OfficialAmi": made.image,
        }
        template = {
            "Parameters": {name: {"Type": "String"} for name in values},
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}},
        }
        aws.clients("cloudformation").create_stack(
            StackName=settings.name,
            TemplateBody=json.dumps(template),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
            Tags=[
                {"Key": "parallelcluster:version", "Value": PARALLELCLUSTER_VERSION},
                {"Key": "parallelcluster:cluster-name", "Value": settings.name},
            ],
        )
        assert aws.stacks.wait_idle(120)
        start_head_node(made)
        start_fleet(aws, settings.name)
        yield made


def start_head_node(cluster: Cluster) -> None:
    tags = {"parallelcluster:cluster-name": cluster.name, "parallelcluster:node-type": "HeadNode"}
    specification = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    cluster.aws.clients("ec2").run_instances(
        ImageId=cluster.image, InstanceType="m5.2xlarge", MinCount=1, MaxCount=1, TagSpecifications=[specification]
    )


def start_fleet(aws: EmbeddedAws, name: str) -> None:
    table = f"parallelcluster-slurm-{name}"
    dynamodb = aws.clients("dynamodb")
    dynamodb.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    status = json.dumps({"status": "RUNNING", "lastStatusUpdatedTime": "2026-11-28T00:00:00Z"})
    dynamodb.put_item(TableName=table, Item={"Id": {"S": "COMPUTE_FLEET"}, "Data": {"S": status}})


def update(cluster: Cluster, wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    """pcluster's answer; its validators are left out, they judge the same configuration as in a creation."""
    aws, file = cluster.aws, folder / "wanted.yaml"
    file.write_text(yaml.safe_dump(wanted), encoding="utf-8")
    command = [str(PCLUSTER), "update-cluster", "--cluster-name", cluster.name, "--cluster-configuration", str(file)]
    command += ["--region", aws.region, "--dryrun", "true", "--suppress-validators", "ALL"]
    environment = {
        **aws.env(),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AWS_ENDPOINT_URL": aws.address_endpoint,
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_another_bundle_is_taken_while_the_fleet_runs(cluster: Cluster, tmp_path: Path) -> None:
    answer = update(cluster, cluster.configuration("1" * 64), tmp_path)
    assert answer["message"] == "Request would have succeeded, but DryRun flag is set.", answer
    assert [change["parameter"] for change in answer["changeSet"]] == ["HeadNode.CustomActions.OnNodeUpdated.Args"]


def test_the_same_bundle_is_no_change(cluster: Cluster, tmp_path: Path) -> None:
    answer = update(cluster, cluster.configuration("0" * 64), tmp_path)
    assert "No changes found" in answer["message"]


def test_another_bootstrap_action_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    wanted = cluster.configuration("1" * 64)
    wanted["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Script"] = "s3://bucket/other.sh"
    answer = update(cluster, wanted, tmp_path)
    (refused,) = answer["updateValidationErrors"]
    assert refused["parameter"] == "HeadNode.CustomActions.OnNodeConfigured.Script"
    assert "not currently supported" in refused["message"]
