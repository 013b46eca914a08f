"""The network: a new VPC or an existing one, and the security group that joins the nodes."""

from __future__ import annotations

import ipaddress
from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from slipway.settings import Network, Settings
from stacks.checks import accept, accept_empty

PUBLIC_PREFIX = 26  # the head node and the NAT gateway


class NetworkStack(Stack):
    """Where the nodes live: `vpc`, the two subnet ids, and `node_security_group`."""

    def __init__(self, scope: Construct, id: str, *, settings: Settings, **kwargs: Any) -> None:
        super().__init__(scope, id, **kwargs)
        network, zone = settings.network, settings.zone
        self.vpc: ec2.IVpc = self._new_vpc(network, zone) if network.is_new else self._existing_vpc(network, zone)
        self.head_node_subnet_id = network.head_node_subnet_id or self.vpc.public_subnets[0].subnet_id
        self.compute_subnet_id = network.compute_subnet_id or self.vpc.private_subnets[0].subnet_id
        self.has_existing_security_group = network.security_group_id is not None
        self.node_security_group = self._node_security_group(network.security_group_id)
        if self.has_existing_security_group:  # only in an existing VPC, by the settings' rules
            accept_empty(self)
        CfnOutput(self, "VpcId", value=self.vpc.vpc_id)
        CfnOutput(self, "HeadNodeSubnetId", value=self.head_node_subnet_id)
        CfnOutput(self, "ComputeSubnetId", value=self.compute_subnet_id)
        CfnOutput(self, "NodeSecurityGroupId", value=self.node_security_group.security_group_id)

    def _new_vpc(self, network: Network, zone: str) -> ec2.Vpc:
        """One zone: EFA does not leave it. Instances with several network cards cannot have a public address."""
        assert network.cidr, "the settings' rules ask for cidr, or for an existing VPC"  # noqa: S101 (for mypy)
        half = ipaddress.IPv4Network(network.cidr).prefixlen + 1
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(network.cidr),
            availability_zones=[zone],
            nat_gateways=1,
            restrict_default_security_group=False,  # would need a custom resource; nothing uses the default group
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Compute", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=half),
                ec2.SubnetConfiguration(name="HeadNode", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=PUBLIC_PREFIX),
            ],
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        accept(
            vpc,
            "VPC7",
            "flow logs of training traffic cost more than they are worth; sites that need them add them",
        )
        return vpc

    def _existing_vpc(self, network: Network, zone: str) -> ec2.IVpc:
        """By its id alone: a look-up would need credentials at synth."""
        assert network.vpc_id, "is_new says otherwise"  # noqa: S101 (for mypy)
        return ec2.Vpc.from_vpc_attributes(self, "Vpc", vpc_id=network.vpc_id, availability_zones=[zone])

    def _node_security_group(self, existing_id: str | None) -> ec2.ISecurityGroup:
        """All traffic between nodes. EFA needs the rule to the group itself, both ways; a CIDR does not count.

        An existing group stays as it is: whether it has these rules is a question of preflight.
        """
        if existing_id:
            return ec2.SecurityGroup.from_security_group_id(self, "NodeSecurityGroup", existing_id, mutable=False)
        group = ec2.SecurityGroup(
            self,
            "NodeSecurityGroup",
            vpc=self.vpc,
            description="Between the nodes of the cluster: EFA, MPI, Slurm, node exporters",
            allow_all_outbound=False,  # ParallelCluster's own groups open the way out
        )
        close_egress(group)
        group.add_ingress_rule(group, ec2.Port.all_traffic(), "EFA from the other nodes")
        group.add_egress_rule(group, ec2.Port.all_traffic(), "EFA to the other nodes")
        return group


def close_egress(group: ec2.SecurityGroup) -> None:
    """Without one egress rule in the group itself EC2 adds "all traffic to everywhere"; this rule matches nothing."""
    inner = group.node.default_child
    assert isinstance(inner, ec2.CfnSecurityGroup)  # noqa: S101 (for mypy: default_child has no narrower type)
    inner.security_group_egress = [
        ec2.CfnSecurityGroup.EgressProperty(
            ip_protocol="icmp", from_port=252, to_port=86, cidr_ip="255.255.255.255/32", description="No other traffic"
        )
    ]
