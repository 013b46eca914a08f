"""The real CDK CLI against the embedded AWS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.cloud.seed import Seed
from rehearsal.cloud.server import EmbeddedAws

REPOSITORY = Path(__file__).resolve().parents[2]
CDK = REPOSITORY / "node_modules/.bin/cdk"
APP = Path(__file__).with_name("tiny_app") / "app.py"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup")]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[EmbeddedAws]:
    with EmbeddedAws("us-east-1", tmp_path / "aws", settle_s=3.0) as aws:
        aws.seed(Seed())
        yield aws


def cdk(aws: EmbeddedAws, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {"CDK_VALIDATION": "false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20", "HOME": str(folder)}
    cache = os.environ.get("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(REPOSITORY / ".cache/jsii"))
    return subprocess.run(
        [str(CDK), *arguments, "--app", f"{sys.executable} {APP}", "--output", str(folder / "cdk.out")],
        cwd=folder,
        env={**os.environ, **aws.env(), **quiet, "JSII_RUNTIME_PACKAGE_CACHE_ROOT": cache},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


DEPLOY = ("deploy", "--all", "--method=direct", "--require-approval=never")


def test_a_green_deployment_is_verified(cloud: EmbeddedAws, tmp_path: Path) -> None:
    done = cdk(cloud, tmp_path, *DEPLOY)
    assert done.returncode == 0, done.stderr
    assert cloud.verify(tmp_path / "cdk.out") == []
    outputs = cloud.clients("cloudformation").describe_stacks(StackName="second")["Stacks"][0]["Outputs"]
    where = {item["OutputKey"]: item["OutputValue"] for item in outputs}["Where"]
    bucket, _, key = where.removeprefix("s3://").partition("/")
    assert cloud.clients("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == APP.read_bytes()
    # What verify is for: take one resource of the nested stack away, and it must say so.
    nested = next(stack for stack in cloud.stacks.stacks() if stack.parent_id)
    nested.resources.clear()
    assert any("was never created" in problem for problem in cloud.verify(tmp_path / "cdk.out"))
    assert cloud.verify(tmp_path / "cdk.out", ["first"]) == []
    assert cloud.verify(tmp_path / "cdk.out", ["third"]) == [f"stack third: not in {tmp_path / 'cdk.out'}"]


def test_a_broken_deployment_is_red_and_named(cloud: EmbeddedAws, tmp_path: Path) -> None:
    done = cdk(cloud, tmp_path, *DEPLOY, "-c", "broken=yes")
    assert done.returncode == 1
    assert "AWS::Quantum::Computer is not emulated" in done.stdout + done.stderr
    assert any(problem.startswith("stack second: ROLLBACK_COMPLETE") for problem in cloud.verify(tmp_path / "cdk.out"))


def test_change_sets_cannot_give_a_false_green(cloud: EmbeddedAws, tmp_path: Path) -> None:
    done = cdk(cloud, tmp_path, "deploy", "--all", "--require-approval=never")
    assert done.returncode != 0
    assert "--method=direct" in done.stdout + done.stderr
