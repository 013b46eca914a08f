"""`cdk deploy` twice, with other images the second time: what reaches ParallelCluster is an update that it takes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine import cdk
from rehearsal.engine.account import seed_of
from rehearsal.engine.update import Change, update
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-pcluster/bin/python"
PARTS = ("network", "storage", "observability", "cluster")
IMAGE = "docker://nvcr.io#nvidia/pytorch:24.01-py3"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not cdk.CDK.exists(), reason="needs the CDK CLI: make setup"),
    pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-pcluster (make setup-rehearsal)"),
]


class Provider:
    """ParallelCluster's, as far as the update: its classes judge what CloudFormation sends."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self._aws = aws
        self.updates: list[list[str]] = []

    def handle(self, request: ResourceRequest) -> ResourceResult:
        if request.request_type == "Update":
            old, new = (both["ClusterConfiguration"] for both in (request.old_properties, request.properties))
            s3 = self._aws.clients("s3")
            changes: list[Change] = [*update(old, new, None, s3, print, python=PYTHON, timeout_s=60)]
            self.updates.append([change.name for change in changes])
        attributes = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.9"}
        return ResourceResult(str(request.properties["ClusterName"]), {**attributes, "validationMessages": "[]"})


def test_other_images_reach_a_standing_cluster(tmp_path: Path) -> None:
    file = tmp_path / "ml.yaml"
    text = (ROOT / "clusters/rehearsal.yaml").read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    stacks = [f"rehearsal-{part}" for part in PARTS]
    with EmbeddedAws("us-east-1", tmp_path / "aws", settle_s=3.0) as aws:
        provider = Provider(aws)
        aws.register_custom_resource("Custom::PclusterCluster", provider.handle)
        aws.seed(seed_of(load_settings(file)))
        cdk.deploy(file, stacks, tmp_path / "one", tmp_path / "one.log", aws.env(), print)
        first = parameter(aws)
        file.write_text(f"{text}\nimages: ['{IMAGE}']\n", encoding="utf-8")
        cdk.deploy(file, stacks, tmp_path / "two", tmp_path / "two.log", aws.env(), print)
        second = parameter(aws)
        bundle = aws.clients("s3").get_object(**place(second["BUNDLE_URL"]))["Body"].read()
    assert provider.updates == [["HeadNode.CustomActions.OnNodeUpdated.Args"]]
    assert first["BUNDLE_SHA256"] != second["BUNDLE_SHA256"] == hashlib.sha256(bundle).hexdigest()
    assert first["RESULTS_BUCKET"] == second["RESULTS_BUCKET"]


def parameter(aws: EmbeddedAws) -> dict[str, str]:
    value = aws.clients("ssm").get_parameter(Name="/slipway/rehearsal/bundle")["Parameter"]["Value"]
    return dict(line.split("=", 1) for line in value.splitlines())


def place(url: str) -> dict[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return {"Bucket": bucket, "Key": key}
