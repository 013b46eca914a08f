"""What serves `Custom::PclusterCluster` in the rehearsal: ParallelCluster's validators, then local hosts.

This replaces ParallelCluster's provider function and what the function builds. Like the real one it gets the
configuration as CloudFormation sends it, refuses what ParallelCluster's own validators refuse, boots a head node and
the static compute nodes, runs each custom action on them, and answers with the attributes of describe-cluster. Dynamic
nodes start and end later, as Slurm asks. Unlike the real one, its failure names the node, the script and the step.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rehearsal.cloud.clients import OWN_CREDENTIALS, aws_reasons
from rehearsal.cloud.cluster_stacks import ClusterStacks, physical_id_of_failure
from rehearsal.cloud.pcluster import ValidationMessage, validate
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult
from rehearsal.engine.configuration import planned_nodes
from rehearsal.engine.instances import Instance
from rehearsal.engine.local_cluster import ACTION_TIMEOUT_S, LocalCluster
from rehearsal.engine.progress import Progress
from rehearsal.engine.specification import Specification
from rehearsal.engine.update import update
from rehearsal.hosts import HostsError
from rehearsal.hosts.errors import failure_line
from rehearsal.permissions.parallelcluster import make_roles, remove_roles
from slipway.places import FILES
from slipway.settings import PARALLELCLUSTER_VERSION

PCLUSTER = FILES / ".venv-pcluster/bin/pcluster"

# ParallelCluster's provider (its repository: cloudformation/custom_resource/cluster.yaml): the properties that it takes
# or hands to create_cluster; the tag it adds; how many characters of the messages it answers.
PROPERTIES = {
    "ServiceToken",
    "DeletionPolicy",
    "ClusterName",
    "ClusterConfiguration",
    "RollbackOnFailure",
    "SuppressValidators",
    "ValidationFailureLevel",
}
VERSION_TAG = "parallelcluster:version"
RESOURCE_TAG = {"Key": "parallelcluster:custom_resource", "Value": "cluster"}
MESSAGE_CHARACTERS = 2048

ACCEPTED_WARNINGS = {
    "KeyPairValidator": "without a key pair users log in through Session Manager, which the head node's role allows",
    "EfaPlacementGroupValidator": "a reservation places its instances together itself; a group of our own would end in "
    "insufficient capacity, and without a reservation the settings choose",
    "EfaValidator": "a queue of one node gains nothing from EFA; where there are more, `slipway check` warns",
    "ExternalSlurmdbdTrafficNotEncrypted": "for an external slurmdbd, `slipway check` prints the same warning",
    "DetailedMonitoringValidator": "one-minute metrics are wanted; the message says what they cost",
}
"""Warnings of ParallelCluster's validators that we accept, each with the reason. Every other warning is a failure."""


class ClusterProvider:
    """Serves one cluster on `hosts`; with `cloud_only` in the specification no host is booted."""

    def __init__(self, aws: EmbeddedAws, progress: Progress, spec: Specification, hosts: LocalCluster) -> None:
        self._aws = aws
        self._progress = progress
        self._spec = spec
        self._hosts = hosts
        self._stacks = ClusterStacks(aws.stacks)
        self._result: ResourceResult | None = None  # what Create answered
        self._configuration: dict[str, Any] = {}  # that the nodes' roles were made for

    def handle(self, request: ResourceRequest) -> ResourceResult:
        """Create boots the cluster, Update runs what a running cluster can take, Delete ends it."""
        name = str(request.properties["ClusterName"])
        if request.request_type == "Delete":
            self._hosts.stop()
            self._remove_roles()
            self._stacks.delete(name)
            return ResourceResult(request.physical_id or name)
        if request.request_type == "Update":
            return self._update(name, request)
        try:
            return self._create(name, request)
        except ResourceFailed as error:
            raise ResourceFailed(str(error), physical_id_of_failure(request)) from error

    def _create(self, name: str, request: ResourceRequest) -> ResourceResult:
        self._stacks.refuse_taken(name)
        unknown = set(request.properties) - PROPERTIES
        if unknown:
            raise ResourceFailed(f"create_cluster() got unexpected arguments: {', '.join(sorted(unknown))}")
        configuration: dict[str, Any] = dict(request.properties["ClusterConfiguration"])
        configuration["Tags"] = [*configuration.get("Tags", []), RESOURCE_TAG]
        with self._progress.phase("ParallelCluster's validators", depth=1):
            messages = self._validate(name, configuration)
        self._stacks.create(name, {VERSION_TAG: PARALLELCLUSTER_VERSION, RESOURCE_TAG["Key"]: RESOURCE_TAG["Value"]})
        nodes = planned_nodes(configuration, self._spec.max_hosts)
        self._make_roles(name, configuration)
        running = {node.name: self._hosts.launch(node) for node in nodes if not node.dynamic}
        if not self._spec.cloud_only:
            try:
                self._hosts.boot(configuration, nodes, running)
            except HostsError as error:
                self._hosts.collect_logs()  # the rollback that follows ends the hosts
                raise ResourceFailed(failure_line(error)) from error
        head = nodes[0]
        self._result = ResourceResult(name, self._attributes(name, head.instance_type, running[head.name], messages))
        return self._result

    def _update(self, name: str, request: ResourceRequest) -> ResourceResult:
        """What ParallelCluster's own classes let through, as `pcluster update-cluster` does; the ids stay."""
        old, new = (dict(item["ClusterConfiguration"]) for item in (request.old_properties, request.properties))
        head = self._hosts.fleet.head if self._hosts.fleet is not None else None
        on_line = self._hosts.output_of(head.name if head is not None else "update")
        try:
            s3 = self._hosts.instances.client("s3", head.name if head is not None else "")
            update(old, new, head, s3, on_line, python=PCLUSTER.with_name("python"), timeout_s=ACTION_TIMEOUT_S)
        except HostsError as error:
            raise ResourceFailed(failure_line(error)) from error
        return self._result or ResourceResult(name)

    def _make_roles(self, name: str, configuration: dict[str, Any]) -> None:
        """The nodes' roles, with the credentials of the provider's role, as ParallelCluster's own stack makes them."""
        with aws_reasons():
            roles = make_roles(self._aws.clients("iam"), configuration, name, self._aws.region)
        self._hosts.instances.roles, self._configuration = roles, configuration

    def _remove_roles(self) -> None:
        instances = self._hosts.instances
        if instances.roles:
            with aws_reasons():
                remove_roles(self._aws.clients("iam"), self._configuration, instances.roles)
            instances.roles = {}

    def _validate(self, name: str, configuration: dict[str, Any]) -> list[ValidationMessage]:
        self._progress.update("check", "pcluster", "running", "create-cluster --dryrun")
        messages = validate(
            configuration,
            name=name,
            region=self._aws.region,
            credentials=self._aws.authority.current() or OWN_CREDENTIALS,
            endpoint=self._aws.address_endpoint,
            pcluster_bin=PCLUSTER,
            run_dir=self._spec.work / "pcluster",
        )
        warnings = [message for message in messages if message.level == "WARNING"]
        accepted = [message for message in warnings if message.type in ACCEPTED_WARNINGS]
        refused = [message for message in messages if message.level == "ERROR"]
        refused += [message for message in warnings if message.type not in ACCEPTED_WARNINGS]
        if refused:
            self._progress.update("check", "pcluster", "failed", refused[0].message)
            raise ResourceFailed(
                "ParallelCluster's validators refuse the configuration: "
                + "; ".join(f"{message.type}: {message.message}" for message in refused)
            )
        self._progress.update("check", "pcluster", "ok", f"validators passed, {len(accepted)} accepted warnings")
        return messages

    def _attributes(
        self, name: str, head_type: str, head: Instance, messages: list[ValidationMessage]
    ) -> dict[str, Any]:
        """describe-cluster, flattened as ParallelCluster's provider does."""
        return {
            "clusterName": name,
            "clusterStatus": "CREATE_COMPLETE",
            "region": self._aws.region,
            "version": "3.16.1",
            "computeFleetStatus": "RUNNING",
            "headNode.instanceId": head.id,
            "headNode.instanceType": head_type,
            "headNode.privateIpAddress": head.address,
            "headNode.state": "running",
            "validationMessages": _cut(json.dumps([dataclasses.asdict(message) for message in messages])),
        }


def _cut(text: str) -> str:
    """As ParallelCluster's provider shortens the messages, to stay below CloudFormation's limit."""
    return text if len(text) <= MESSAGE_CHARACTERS else f"TRUNCATED:{text[:MESSAGE_CHARACTERS]}"
