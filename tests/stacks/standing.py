"""A cluster that exists: its stacks synthesised in this process and deployed to the embedded AWS, without the CDK CLI.

The stacks are deployed in the CLI's order, one after the other, up to the first that fails. ParallelCluster's provider
makes and deletes its stack by name and accepts every update: what ParallelCluster says of one is another test's
subject (tests/cluster_config/test_updates.py).
"""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rehearsal.cloud.cluster_stacks import ClusterStacks, physical_id_of_failure
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud.stack import StackOptions
from rehearsal.cloud_errors import ResourceFailed, StackNotFound, TemplateInvalid
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from slipway.settings import Settings
from tests.stacks.assembly import synthesised

REGION = "us-east-1"
WAIT_S = 120.0
PARTS = ("network", "storage", "observability", "cluster", "acceptance")
VERSION = {"parallelcluster:version": "3.16.1"}


class Provider:
    """ParallelCluster's provider, as far as CloudFormation sees it."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.clusters = ClusterStacks(aws.stacks)
        self.fails = False

    def handle(self, request: ResourceRequest) -> ResourceResult:
        name = str(request.properties["ClusterName"])
        if request.request_type == "Delete":
            self.clusters.delete(name)
            return ResourceResult(request.physical_id)
        if self.fails and request.request_type == "Update":
            self.fails = False  # ParallelCluster accepts the way back
            raise ResourceFailed("ACTION NEEDED")
        if request.request_type == "Create":
            try:
                self.clusters.create(name, {**VERSION, "parallelcluster:custom_resource": "cluster"})
                if self.fails:
                    raise ResourceFailed("the head node did not come up")
            except ResourceFailed as error:
                raise ResourceFailed(str(error), physical_id_of_failure(request)) from error
        attributes = {"headNode.instanceId": "i-0123456789abcdef0", "headNode.privateIpAddress": "10.0.0.9"}
        return ResourceResult(name, {**attributes, "validationMessages": "[]"})


class Standing:
    """One cluster of the embedded AWS."""

    def __init__(self, aws: EmbeddedAws, folder: Path) -> None:
        self.aws = aws
        self.provider = Provider(aws)
        self._folder = folder
        self._templates: dict[str, dict[str, dict[str, Any]]] = {}  # of what was synthesised before, by the settings
        aws.register_custom_resource("Custom::PclusterCluster", self.provider.handle)
        accepted = {"RunId": "run", "Summary": "accepted"}  # nothing is measured
        aws.register_custom_resource("Custom::ClusterAcceptance", lambda _: ResourceResult("run", accepted))

    def deploy(self, settings: Settings) -> str:
        """Deploy the stacks; the first failure as `part: reason`, empty if all is well."""
        templates = self._synthesised(settings)
        for part in (part for part in PARTS if part in templates):
            is_empty = not templates[part].get("Resources")
            failure = (
                self._give_up(f"{settings.name}-{part}")
                if is_empty
                else self._deploy(f"{settings.name}-{part}", templates[part])
            )
            if failure:
                return f"{part}: {failure}"
        return ""

    def _give_up(self, name: str) -> str:
        """The CDK CLI deletes a stack that has no resources any more, and deploys no new one without any."""
        try:
            return "" if self.delete(name) == "DELETE_COMPLETE" else "not deleted"
        except StackNotFound:
            return ""
        except TemplateInvalid as error:
            return str(error)

    def _synthesised(self, settings: Settings) -> dict[str, dict[str, Any]]:
        key = settings.model_dump_json()
        if key not in self._templates:
            out = self._folder / str(len(self._templates))
            self._templates[key] = synthesised(settings, out).templates
            self._publish(out)
        return self._templates[key]

    def _deploy(self, name: str, template: Mapping[str, Any]) -> str:
        """CreateStack or UpdateStack, as the CDK CLI does: a stack that was rolled back is deleted first."""
        stacks, text, before = self.aws.stacks, json.dumps(template), 0
        try:
            stack = stacks.find(name)
            before = len(stack.events)
        except StackNotFound:
            stacks.create(name, text, {}, StackOptions())
        else:
            if stack.status == "ROLLBACK_COMPLETE":
                self.delete(name)
                stacks.create(name, text, {}, StackOptions())
                before = 0  # the new stack's events begin anew
            elif json.loads(stack.text) == template:
                return ""
            else:
                stacks.update(name, text, {}, StackOptions())
        assert stacks.wait_idle(WAIT_S), f"{name} did not end"
        stack = stacks.find(name)
        if stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return ""
        if stack.status.endswith("ROLLBACK_FAILED"):
            return f"{stack.status}: {[event.reason for event in stack.events[before:] if 'FAILED' in event.status]}"
        failed = [event.reason for event in stack.events[before:] if event.status.endswith("_FAILED")]
        refused = [event.reason for event in stack.events[before:] if event.status.endswith("ROLLBACK_IN_PROGRESS")]
        return (failed[-1:] or refused[-1:] or [stack.reason])[0]

    def delete(self, name: str) -> str:
        stack = self.aws.stacks.find(name)
        self.aws.stacks.delete(name)
        assert self.aws.stacks.wait_idle(WAIT_S), f"{name} did not end"
        return stack.status

    def resources(self, settings: Settings) -> dict[str, str]:
        """`part/logical id` -> physical id of all stacks."""
        return {
            f"{part}/{resource.logical_id}": resource.result.physical_id
            for part in PARTS
            for resource in self._stack_resources(f"{settings.name}-{part}")
        }

    def _stack_resources(self, name: str) -> list[Any]:
        try:
            return list(self.aws.stacks.find(name).resources.values())
        except StackNotFound:
            return []

    def _publish(self, out: Path) -> None:
        """What the CLI uploads: a directory as an archive, a file as it is."""
        s3 = self.aws.clients("s3")
        for manifest in out.glob("*.assets.json"):
            for asset in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
                path = out / asset["source"]["path"]
                body = _archive(path) if asset["source"]["packaging"] == "zip" else path.read_bytes()
                for place in asset["destinations"].values():
                    bucket = place["bucketName"].replace("${AWS::AccountId}", "123456789012")
                    s3.put_object(Bucket=bucket.replace("${AWS::Region}", REGION), Key=place["objectKey"], Body=body)


def _archive(folder: Path) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, str(file.relative_to(folder)))
    return made.getvalue()


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Settings of `base` with `changes` by dotted key; None takes the key away."""
    data = copy.deepcopy(dict(base))
    for path, value in changes.items():
        node: Any = data
        *parents, last = path.split(".")
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return Settings.model_validate(data)
