"""The whole life of a deployment, with exactly the policies that `slipway policy deploy` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest

from rehearsal.cloud.seed import DEPLOYER
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_model import ACCOUNT, ResourceRequest, ResourceResult
from rehearsal.engine.account import seed_of
from rehearsal.permissions import report
from slipway.settings import load_settings

REPOSITORY = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
CDK = REPOSITORY / "node_modules/.bin/cdk"


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[EmbeddedAws]:
    with EmbeddedAws(REGION, tmp_path / "aws", query_interval_s=0.05, settle_s=3.0) as running:
        yield running


def cdk(aws: EmbeddedAws, folder: Path, app: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {"CDK_VALIDATION": "false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20", "HOME": str(folder)}
    cache = os.environ.get("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(REPOSITORY / ".cache/jsii"))
    return subprocess.run(
        [str(CDK), *arguments, "--app", *app, "--output", str(folder / "out")],
        cwd=REPOSITORY,
        env={**os.environ, **aws.env(aws.authority.session(DEPLOYER, "test")), **quiet,
             "JSII_RUNTIME_PACKAGE_CACHE_ROOT": cache},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip


def cluster(request: ResourceRequest) -> ResourceResult:
    data = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.4",
            "validationMessages": "[]", "RunId": "1", "Summary": "good"}  # fmt: skip
    return ResourceResult("rehearsal", data)


@pytest.mark.slow
@pytest.mark.skipif(not CDK.exists(), reason="needs the CDK CLI: make setup")
@pytest.mark.parametrize("site", [False, True], ids=["plain", "boundary and prefix"])
def test_a_life_with_the_printed_policies(deployed: EmbeddedAws, tmp_path: Path, site: bool) -> None:
    """Deploy, change and destroy; nothing is refused. What is granted without a use here: test_cloud_reasons.py."""
    text = (REPOSITORY / "clusters/rehearsal.yaml").read_text(encoding="utf-8")
    text = text.replace("storage:\n", "storage:\n  home: {kind: ebs, size_gib: 50}\n")
    file = tmp_path / "rehearsal.yaml"
    asked = f"iam: {{permissions_boundary: 'arn:aws:iam::{ACCOUNT}:policy/bounds', name_prefix: team-}}\n"
    file.write_text(text + (asked if site else ""), encoding="utf-8")
    settings = load_settings(file)
    deployed.seed(seed_of(settings))
    for kind in ("Custom::PclusterCluster", "Custom::ClusterAcceptance"):
        deployed.register_custom_resource(kind, cluster)
    app = (f"{sys.executable} app.py", "--context", f"settings={file}")
    done = cdk(deployed, tmp_path, app, "deploy", "--all", "--method=direct", "--require-approval=never")
    assert [report.fault(denial) for denial in deployed.authority.denials] == []
    assert done.returncode == 0, done.stderr
    if site:
        made = [role for role in deployed.clients("iam").list_roles()["Roles"] if "rehearsal-" in role["RoleName"]]
        assert made
        assert all(role["RoleName"].startswith("team-") for role in made)
        bounds = {deployed.clients("iam").get_role(RoleName=role["RoleName"])["Role"]["PermissionsBoundary"]
                  ["PermissionsBoundaryArn"] for role in made}  # fmt: skip
        assert bounds == {settings.iam.permissions_boundary}
    change_stacks(deployed, tmp_path / "out")
    assert [report.fault(denial) for denial in deployed.authority.denials] == []
    stacks = [f"rehearsal-{part}" for part in ("acceptance", "cluster", "observability", "storage")]
    for named in (stacks, ["rehearsal-network"]):
        assembly = str(tmp_path / "out")  # what was deployed, not synthesised again
        done = cdk(deployed, tmp_path, [assembly], "destroy", *named, "--force", "--exclusively")
        assert [report.fault(denial) for denial in deployed.authority.denials] == []
        assert done.returncode == 0, done.stderr
        remove_kept(deployed)  # by hand: the network cannot go before the file system and its security group


def change_stacks(aws: EmbeddedAws, out: Path) -> None:
    """Update each stack with one other property for each type that changes in place, as the CDK CLI would do it."""
    bootstrap = f"role/cdk-hnb659fds-{{}}-role-{ACCOUNT}-{REGION}"
    deploy = aws.authority.session(bootstrap.format("deploy").removeprefix("role/"), "test")
    keys: dict[str, Any] = {key.lower(): value for key, value in deploy.items()}
    api: Any = boto3.client("cloudformation", REGION, endpoint_url=aws.address_endpoint, **keys)
    for part in ("network", "storage", "observability", "cluster"):
        template = json.loads((out / f"rehearsal-{part}.template.json").read_text(encoding="utf-8"))
        changed = {name for name, body in template["Resources"].items() if change(body)}
        assert changed or part == "network"
        role = f"arn:aws:iam::{ACCOUNT}:{bootstrap.format('cfn-exec')}"
        if changed:
            api.update_stack(StackName=f"rehearsal-{part}", TemplateBody=json.dumps(template), RoleARN=role,
                             Capabilities=["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"])  # fmt: skip
            assert aws.stacks.wait_idle(120)
            assert aws.stacks.find(f"rehearsal-{part}").status == "UPDATE_COMPLETE"


def change(resource: dict[str, Any]) -> bool:
    """Change one property of a resource in place; False for a type that is not changed here."""
    kind, properties = resource["Type"], resource.get("Properties", {})
    if kind == "AWS::EC2::Volume":
        properties["Size"] += 50
    elif kind == "AWS::FSx::FileSystem":
        properties["LustreConfiguration"]["DataCompressionType"] = "NONE"
    elif kind == "AWS::Logs::LogGroup":
        properties["RetentionInDays"] = 7
    elif kind == "AWS::SSM::Parameter":
        properties["Value"] = "changed"
    elif kind == "AWS::Lambda::Function":
        properties["MemorySize"] = 256
    elif kind in ("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"):
        properties["PolicyDocument"]["Statement"][0]["Sid"] = "Changed"
    elif kind == "AWS::IAM::Role" and "PermissionsBoundary" in properties:
        del properties["PermissionsBoundary"]
    else:
        return False
    return True


def remove_kept(aws: EmbeddedAws) -> None:
    fsx, ec2 = aws.clients("fsx"), aws.clients("ec2")
    for volume in ec2.describe_volumes()["Volumes"]:
        ec2.delete_volume(VolumeId=volume["VolumeId"])
    for system in fsx.describe_file_systems()["FileSystems"]:
        fsx.delete_file_system(FileSystemId=system["FileSystemId"])
    deadline = time.monotonic() + 120
    while fsx.describe_file_systems()["FileSystems"]:
        assert time.monotonic() < deadline, "the file system is not gone after 120 s"
        time.sleep(0.1)
    groups = ec2.describe_security_groups()["SecurityGroups"]
    for kept in [group["GroupId"] for group in groups if group["Description"] == "FSx for Lustre and its clients"]:
        for group in groups:
            rules = [
                rule
                for rule in group["IpPermissions"]
                if kept in [pair["GroupId"] for pair in rule["UserIdGroupPairs"]]
            ]
            if rules and group["GroupId"] != kept:
                mine = [
                    {**rule, "UserIdGroupPairs": [pair for pair in rule["UserIdGroupPairs"] if pair["GroupId"] == kept]}
                    for rule in rules
                ]
                ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=mine)
        ec2.delete_security_group(GroupId=kept)
