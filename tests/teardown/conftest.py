"""A cluster of clusters/p5-capacity-block.yaml in the embedded AWS: its own templates, synthesised once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rehearsal.cloud import storage
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from slipway import command_line
from slipway.aws.calls import Aws
from slipway.cli import app
from slipway.settings import load_settings
from slipway.teardown import command, work
from tests.stacks.assembly import ROOT, Assembly, synthesised

SETTINGS = ROOT / "clusters/p5-capacity-block.yaml"
NAME = "p5-sandbox"
TAGS = [{"Key": "project", "Value": NAME}]
WAIT_S = 120.0
LIKE_PARALLELCLUSTER = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}}}


class Deployed:
    """The account. `provider` does what ParallelCluster's does: it makes and deletes the stack `NAME` by its name."""

    def __init__(self, aws: EmbeddedAws, assembly: Assembly) -> None:
        self.aws = aws
        self._assembly = assembly
        self.cfn = aws.clients("cloudformation")
        self.refuse_delete = ""
        aws.register_custom_resource("Custom::PclusterCluster", self.provider)

    def provider(self, request: ResourceRequest) -> ResourceResult:
        name = request.properties["ClusterName"]
        if request.request_type == "Create":
            self.make(name, LIKE_PARALLELCLUSTER, wait=False)
        if request.request_type == "Delete":
            if self.refuse_delete not in ("", "answer"):  # with "answer" the cluster goes, only the answer is missing
                raise ResourceFailed(self.refuse_delete, name)
            self.cfn.delete_stack(StackName=name)
            if self.refuse_delete:
                raise ResourceFailed("the provider did not answer", name)
        return ResourceResult(name, {"headNode.instanceId": "i-0123456789abcdef0"})

    def make(self, name: str, template: dict[str, Any], *, tags: Any = TAGS, wait: bool = True, **more: Any) -> None:
        self.cfn.create_stack(StackName=name, TemplateBody=json.dumps(template), Tags=tags, **more)
        if wait:
            assert self.aws.stacks.wait_idle(WAIT_S)

    def deploy(self, *parts: str) -> None:
        for part in parts:
            self.make(f"{NAME}-{part}", self.template(part))
            assert self.status(part) == "CREATE_COMPLETE", self.aws.stacks.find(f"{NAME}-{part}").reason

    def template(self, part: str) -> dict[str, Any]:
        if part == "acceptance":
            return LIKE_PARALLELCLUSTER
        if part != "cluster":
            template = json.loads(json.dumps(self._assembly.templates[part]))
            template.pop("Rules", None)
            template.pop("Parameters", None)
            return template
        properties = {"ServiceToken": "x", "ClusterName": NAME}
        parameter = {"Name": f"/slipway/{NAME}/bundle", "Type": "String", "Value": "{}"}
        return {
            "Resources": {
                "Cluster": {"Type": "Custom::PclusterCluster", "Properties": properties},
                "Bundle": {"Type": "AWS::SSM::Parameter", "Properties": parameter},
            }
        }

    def status(self, part: str = "") -> str:
        name = f"{NAME}-{part}" if part else NAME
        try:
            return str(self.cfn.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])
        except self.cfn.exceptions.ClientError:
            return ""

    def statuses(self) -> dict[str, str]:
        """The existing stacks of the account, by name."""
        return {stack["StackName"]: stack["StackStatus"] for stack in self.cfn.describe_stacks()["Stacks"]}

    def delete(self, part: str) -> None:
        self.cfn.delete_stack(StackName=f"{NAME}-{part}")
        assert self.aws.stacks.wait_idle(WAIT_S)

    @property
    def file_systems(self) -> list[dict[str, Any]]:
        return list(self.aws.clients("fsx").describe_file_systems()["FileSystems"])

    @property
    def buckets(self) -> list[str]:
        return [item["Name"] for item in self.aws.clients("s3").list_buckets()["Buckets"]]

    @property
    def vpcs(self) -> list[str]:
        """The VPCs except the account's default one."""
        return [v["VpcId"] for v in self.aws.clients("ec2").describe_vpcs()["Vpcs"] if not v["IsDefault"]]


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesised(load_settings(SETTINGS), tmp_path_factory.mktemp("p5"))


class OneSetOfClients(Aws):
    """Making boto3's clients takes longer than a teardown; the commands of one test share them."""

    made: ClassVar[dict[tuple[str, str], Any]] = {}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._clients = self.made


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, assembly: Assembly) -> Iterator[Deployed]:
    monkeypatch.setattr(work, "POLL_S", 0.02)
    monkeypatch.setattr(storage, "DELETING_S", 0.1)
    monkeypatch.setattr(OneSetOfClients, "made", {})
    monkeypatch.setattr(command, "Aws", OneSetOfClients)
    with EmbeddedAws("us-east-1", tmp_path / "aws", settle_s=0.0) as aws:
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.address_endpoint)
        yield Deployed(aws, assembly)


def slipway(*arguments: str | Path) -> int:
    return command_line.run(app, [str(argument) for argument in arguments])
