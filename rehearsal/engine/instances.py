"""Emulated EC2 instances: one for each node, started and terminated as ParallelCluster would."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from rehearsal.cloud.metadata import Identity
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.configuration import Node
from rehearsal.permissions.authority import Credentials


@dataclasses.dataclass(frozen=True)
class Instance:
    """An emulated EC2 instance: its id and its private address."""

    id: str
    address: str


class LaunchFailed(Exception):
    """EC2 starts no instance. `code` is its error code."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


class Instances:
    """The instances of one cluster.

    `roles`: the names of the nodes' roles by kind of node (`HeadNode`, else the queue), once the cluster has them.
    """

    def __init__(self, aws: EmbeddedAws, cluster: str) -> None:
        self.aws = aws
        self.cluster = cluster
        self.roles: Mapping[str, str] = {}
        self._nodes: dict[str, tuple[Node, Instance]] = {}  # by instance id

    def launch(self, node: Node) -> Instance:
        """Start an instance for a node. Raises LaunchFailed if EC2 refuses it.

        The head node's with the credentials of this thread, as CloudFormation does; the others' with the head node's.
        """
        names = {"Name": node.name, "parallelcluster:cluster-name": self.cluster}
        tags = [{"Key": key, "Value": value} for key, value in names.items()]
        profile = {"IamInstanceProfile": {"Name": self.roles[_kind(node)]}} if self.roles else {}
        image = self._image()
        try:
            with self.aws.authority.as_role(self._launching(node)):
                started = self.aws.clients("ec2").run_instances(
                    ImageId=image,
                    InstanceType=node.instance_type,
                    SubnetId=node.subnet_id,
                    MinCount=1,
                    MaxCount=1,
                    TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
                    **profile,
                )["Instances"][0]
        except ClientError as error:
            raise LaunchFailed(str(error.response["Error"]["Code"])) from error
        instance = Instance(started["InstanceId"], started["PrivateIpAddress"])
        self._nodes[instance.id] = node, instance
        self.aws.register_instance(instance.id, node.name, instance.address, self._credentials(node, instance))
        return instance

    def terminate(self, instance: Instance) -> None:
        """End an instance."""
        self.aws.commands.unregister(instance.id)
        node, _ = self._nodes.pop(instance.id, (None, None))
        with self.aws.authority.as_role(self._launching(node) if node else None):
            self.aws.clients("ec2").terminate_instances(InstanceIds=[instance.id])

    def node_of(self, instance_id: str) -> str:
        """The name of an instance's node, empty for an unknown instance."""
        known = self._nodes.get(instance_id)
        return known[0].name if known else ""

    def client(self, service: str, node: str) -> Any:
        """A client that acts with the role of a node, as a program on its host does."""
        for known, instance in list(self._nodes.values()):
            if known.name == node:
                with self.aws.authority.as_role(self._credentials(known, instance)):
                    return self.aws.clients(service)
        return self.aws.clients(service)

    def at(self, address: str) -> Identity | None:
        """The instance at a private address, for the metadata service."""
        for node, instance in list(self._nodes.values()):
            if instance.address == address and (credentials := self._credentials(node, instance)):
                zone = f"{self.aws.region}a"
                return Identity(instance.id, node.instance_type, zone, address, self.roles[_kind(node)], credentials)
        return None

    def credentials_at(self, address: str) -> Credentials | None:
        """The credentials of the instance at a private address."""
        identity = self.at(address)
        return identity.credentials if identity else None

    def _image(self) -> str:
        """ParallelCluster's launch template names the image."""
        wanted = {"Name": "name", "Values": ["aws-parallelcluster-*"]}
        with self.aws.authority.as_role(None):
            images = self.aws.clients("ec2").describe_images(Owners=["amazon"], Filters=[wanted])["Images"]
        return str(images[0]["ImageId"])

    def _launching(self, node: Node) -> Credentials | None:
        head = next((known for known in list(self._nodes.values()) if known[0].role == "head"), None)
        if node.role == "head" or head is None:
            return self.aws.authority.current()
        return self._credentials(*head)

    def _credentials(self, node: Node, instance: Instance) -> Credentials | None:
        role = self.roles.get(_kind(node))
        return self.aws.authority.session(role, instance.id) if role else None


def _kind(node: Node) -> str:
    return "HeadNode" if node.role == "head" else node.queue
