"""Emulated EC2 instances: one for each node, started and terminated as ParallelCluster would."""

from __future__ import annotations

import dataclasses

from botocore.exceptions import ClientError

from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.configuration import Node


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
    """The instances of one cluster."""

    def __init__(self, aws: EmbeddedAws, cluster: str) -> None:
        self.aws = aws
        self.cluster = cluster
        self._nodes: dict[str, str] = {}  # instance id -> name of the node

    def launch(self, node: Node) -> Instance:
        """Start an instance for a node. Raises LaunchFailed if EC2 refuses it."""
        ec2 = self.aws.clients("ec2")
        names = {"Name": node.name, "parallelcluster:cluster-name": self.cluster}
        tags = [{"Key": key, "Value": value} for key, value in names.items()]
        images = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": ["aws-parallelcluster-*"]}])
        try:
            started = ec2.run_instances(
                ImageId=images["Images"][0]["ImageId"],
                InstanceType=node.instance_type,
                SubnetId=node.subnet_id,
                MinCount=1,
                MaxCount=1,
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )["Instances"][0]
        except ClientError as error:
            raise LaunchFailed(str(error.response["Error"]["Code"])) from error
        instance = Instance(started["InstanceId"], started["PrivateIpAddress"])
        self._nodes[instance.id] = node.name
        self.aws.register_instance(instance.id, node.name, instance.address)
        return instance

    def terminate(self, instance: Instance) -> None:
        """End an instance."""
        self.aws.commands.unregister(instance.id)
        self._nodes.pop(instance.id, None)
        self.aws.clients("ec2").terminate_instances(InstanceIds=[instance.id])

    def node_of(self, instance_id: str) -> str:
        """The name of an instance's node, empty for an unknown instance."""
        return self._nodes.get(instance_id, "")
