"""An account with the stacks of clusters/rehearsal.yaml, for the commands that ask about a deployed cluster."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from pathlib import Path
from typing import Any

from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine.account import seed_of
from slipway import command_line
from slipway.cli import app
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "clusters/rehearsal.yaml"
HEAD: dict[str, Any] = {
    "kind": "headnode",
    "release": {"in_use": "aaaaaaaaaaaa", "good": "aaaaaaaaaaaa", "failed": None},
    "steps": [{"step": "headnode/10-fsx-layout", "status": "ok", "seconds": 1.25}],
    "background": [{"name": "containers", "state": "running", "percent": 38, "detail": "3 of 8 images", "eta_s": 720}],
    "health": None,
    "slurm": {
        "error": "",
        "nodes": [{"name": f"gpu-{number}", "partition": "train", "state": "idle"} for number in range(4)],
        "jobs": {"running": 2},
        "updating": [],
    },
    "nodes": [
        {"host": f"gpu-{number}", "release": "aaaaaaaaaaaa", "steps": {"ok": 9}, "seconds": number}
        for number in range(4)
    ],
    "acceptance": {"run_id": "r1", "verdict": "accepted", "summary": "4 nodes good", "directory": "/fsx/results/r1"},
}


def slipway(*arguments: str | Path) -> int:
    """Run a command in this process and return its exit code."""
    return command_line.run(app, [str(argument) for argument in arguments])


class Site:
    """An account with the stacks of clusters/rehearsal.yaml, each with one resource."""

    def __init__(self, aws: PreflightAws) -> None:
        self.aws = aws
        self.failure = ""
        self.gate = threading.Event()
        self.gate.set()
        self.answer: tuple[int, str, str] = (0, self.packed(HEAD), "")
        self.commands: list[str] = []
        aws.seed(seed_of(load_settings(SETTINGS)))
        aws.register_custom_resource("Custom::PclusterCluster", self.serve)
        aws.set_ssm_runner(self.run)
        self.instance = aws.clients("ec2").run_instances(
            ImageId=self._image(), InstanceType="m5.2xlarge", MinCount=1, MaxCount=1
        )["Instances"][0]["InstanceId"]
        aws.register_instance(self.instance, "head", "10.0.0.4")

    def _image(self) -> str:
        images = self.aws.clients("ec2").describe_images(Owners=["amazon"])["Images"]
        return str(images[0]["ImageId"])

    @staticmethod
    def packed(value: Any) -> str:
        return "slipway-status:" + base64.b64encode(zlib.compress(json.dumps(value).encode())).decode() + "\n"

    def serve(self, request: ResourceRequest) -> ResourceResult:
        self.gate.wait(120)
        if self.failure and request.request_type != "Delete":
            raise ResourceFailed(self.failure)
        return ResourceResult("rehearsal", {"headNode.instanceId": self.instance})

    def run(self, _instance: str, commands: list[str], _timeout_s: float) -> tuple[int, str, str]:
        self.commands += commands
        return self.answer

    def deploy(self, *parts: str, wait: bool = True) -> None:
        for part in parts:
            template: dict[str, Any] = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}}}
            if part == "cluster":
                properties = {"ServiceToken": "x", "ClusterName": "rehearsal"}
                template["Resources"]["Cluster"] = {"Type": "Custom::PclusterCluster", "Properties": properties}
                identity = {"Fn::GetAtt": ["Cluster", "headNode.instanceId"]}
                template["Outputs"] = {"HeadNodeInstanceId": {"Value": identity}}
            if part == "observability":
                template["Resources"]["Group"] = {
                    "Type": "AWS::Logs::LogGroup",
                    "Properties": {"LogGroupName": "nodes"},
                }
                template["Outputs"] = {"LogGroupName": {"Value": {"Ref": "Group"}}}
            body = json.dumps(template)
            self.aws.clients("cloudformation").create_stack(StackName=f"rehearsal-{part}", TemplateBody=body)
            if wait:
                assert self.aws.stacks.wait_idle(120)
