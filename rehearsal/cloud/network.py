"""EC2 networking types of CloudFormation, through the EC2 API of the embedded AWS.

moto has models for most of them, but they ignore properties that ParallelCluster's validators look at (DNS host names,
public addresses of a subnet) and cannot be deleted in order. Each type here makes and removes through the API.

moto deletes what EC2 refuses to delete: a security group that another one refers to or that an interface has, a subnet
with interfaces, a VPC with groups. EC2's answer is DependencyViolation (EC2 API reference, DeleteSecurityGroup,
DeleteSubnet, DeleteVpc; its words as in the public reports of terraform-provider-aws issue 265).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.security_groups import SecurityGroup

from rehearsal.cloud.clients import Clients, aws_reasons
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ResourceRequest, ResourceResult, ResourceType

Create = Callable[[Any, ResourceRequest], ResourceResult]
Delete = Callable[[Any, ResourceRequest, str], None]


@dataclass
class ApiType:
    """A type made and removed with one client.

    `mutable`: properties that may change without an effect here; `replacing`: properties whose change makes a new
    resource ("Update requires: Replacement" in the template reference), before the old one is deleted.
    """

    clients: Clients
    service: str
    make: Create
    remove: Delete
    change: Create | None = None
    mutable: tuple[str, ...] = ("Tags",)
    replacing: tuple[str, ...] = ()

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Make it through the API."""
        with aws_reasons():
            return self.make(self.clients(self.service), request)

    def update(self, request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Change it where an update is emulated; a failure that says so elsewhere."""
        keys = {*request.properties, *request.old_properties}
        changed = {key for key in keys if request.properties.get(key) != request.old_properties.get(key)}
        if not changed - set(self.mutable):
            return current
        if changed & set(self.replacing):
            return self.create(replace(request, physical_id=""))
        if self.change is None:
            names = ", ".join(sorted(changed))
            raise ResourceFailed(f"the rehearsal's cloud cannot update {request.resource_type}: {names}")
        with aws_reasons():
            return self.change(self.clients(self.service), request)

    def delete(self, request: ResourceRequest, current: ResourceResult) -> None:
        """Remove it through the API."""
        with aws_reasons():
            self.remove(self.clients(self.service), request, current.physical_id)


def tags(request: ResourceRequest) -> list[dict[str, str]]:
    """Tags of a resource: the stack's, its own, and CloudFormation's three."""
    own = {item["Key"]: str(item["Value"]) for item in request.properties.get("Tags", [])}
    system = {
        "aws:cloudformation:stack-name": request.stack_name,
        "aws:cloudformation:stack-id": request.stack_id,
        "aws:cloudformation:logical-id": request.logical_id,
    }
    return [{"Key": key, "Value": value} for key, value in {**request.tags, **own, **system}.items()]


def _tag(ec2: Any, request: ResourceRequest, resource_id: str) -> None:
    # The API refuses the aws: prefix, as AWS's does; the rehearsal does not need CloudFormation's own tags.
    wanted = [item for item in tags(request) if not item["Key"].startswith("aws:")]
    if wanted:
        ec2.create_tags(Resources=[resource_id], Tags=wanted)


def _vpc(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    tenancy = properties.get("InstanceTenancy", "default")
    vpc_id = ec2.create_vpc(CidrBlock=properties["CidrBlock"], InstanceTenancy=tenancy)["Vpc"]["VpcId"]
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        if name in properties:
            ec2.modify_vpc_attribute(VpcId=vpc_id, **{name: {"Value": _true(properties[name])}})
    _tag(ec2, request, vpc_id)
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["SecurityGroups"]
    attributes = {
        "VpcId": vpc_id,
        "CidrBlock": properties["CidrBlock"],
        "CidrBlockAssociations": [],
        "DefaultSecurityGroup": next(group["GroupId"] for group in groups if group["GroupName"] == "default"),
        "Ipv6CidrBlocks": [],
    }
    return ResourceResult(vpc_id, attributes)


def _subnet(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    extra = {"AvailabilityZone": properties["AvailabilityZone"]} if "AvailabilityZone" in properties else {}
    subnet = ec2.create_subnet(VpcId=properties["VpcId"], CidrBlock=properties["CidrBlock"], **extra)["Subnet"]
    subnet_id = subnet["SubnetId"]
    if _true(properties.get("MapPublicIpOnLaunch", False)):
        ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": True})
    _tag(ec2, request, subnet_id)
    attributes = {
        "SubnetId": subnet_id,
        "AvailabilityZone": subnet["AvailabilityZone"],
        "VpcId": properties["VpcId"],
        "CidrBlock": properties["CidrBlock"],
        "Ipv6CidrBlocks": [],
    }
    return ResourceResult(subnet_id, attributes)


def _internet_gateway(ec2: Any, request: ResourceRequest) -> ResourceResult:
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    _tag(ec2, request, gateway)
    return ResourceResult(gateway, {"InternetGatewayId": gateway})


def _attachment(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    ec2.attach_internet_gateway(InternetGatewayId=properties["InternetGatewayId"], VpcId=properties["VpcId"])
    return ResourceResult(f"IGW|{properties['VpcId']}", {"AttachmentType": "IGW"})


def _detach(ec2: Any, request: ResourceRequest, _: str) -> None:
    properties = request.properties
    ec2.detach_internet_gateway(InternetGatewayId=properties["InternetGatewayId"], VpcId=properties["VpcId"])


def _route_table(ec2: Any, request: ResourceRequest) -> ResourceResult:
    table = ec2.create_route_table(VpcId=request.properties["VpcId"])["RouteTable"]["RouteTableId"]
    _tag(ec2, request, table)
    return ResourceResult(table, {"RouteTableId": table})


_ROUTE_KEYS = (
    "DestinationCidrBlock",
    "GatewayId",
    "NatGatewayId",
    "TransitGatewayId",
    "NetworkInterfaceId",
    "VpcPeeringConnectionId",
)


def _route(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    arguments = {key: properties[key] for key in _ROUTE_KEYS if key in properties}
    ec2.create_route(RouteTableId=properties["RouteTableId"], **arguments)
    destination = properties["DestinationCidrBlock"]
    return ResourceResult(f"{properties['RouteTableId']}|{destination}", {"CidrBlock": destination})


def _unroute(ec2: Any, request: ResourceRequest, _: str) -> None:
    properties = request.properties
    ec2.delete_route(RouteTableId=properties["RouteTableId"], DestinationCidrBlock=properties["DestinationCidrBlock"])


def _association(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    made = ec2.associate_route_table(RouteTableId=properties["RouteTableId"], SubnetId=properties["SubnetId"])
    return ResourceResult(made["AssociationId"], {"Id": made["AssociationId"]})


def _address(ec2: Any, request: ResourceRequest) -> ResourceResult:
    made = ec2.allocate_address(Domain="vpc")
    _tag(ec2, request, made["AllocationId"])
    return ResourceResult(made["PublicIp"], {"AllocationId": made["AllocationId"], "PublicIp": made["PublicIp"]})


def _release(ec2: Any, _: ResourceRequest, public_ip: str) -> None:
    for address in ec2.describe_addresses(PublicIps=[public_ip])["Addresses"]:
        ec2.release_address(AllocationId=address["AllocationId"])


def _nat_gateway(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    made = ec2.create_nat_gateway(SubnetId=properties["SubnetId"], AllocationId=properties["AllocationId"])
    gateway = made["NatGateway"]["NatGatewayId"]
    _tag(ec2, request, gateway)
    return ResourceResult(gateway, {"NatGatewayId": gateway})


_ENDPOINT_KEYS = ("VpcEndpointType", "RouteTableIds", "SubnetIds", "SecurityGroupIds", "PrivateDnsEnabled")


def _endpoint(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    arguments: dict[str, Any] = {"VpcEndpointType": "Gateway"}  # AWS's default
    arguments.update({key: properties[key] for key in _ENDPOINT_KEYS if key in properties})
    if "PrivateDnsEnabled" in arguments:
        arguments["PrivateDnsEnabled"] = _true(arguments["PrivateDnsEnabled"])
    made = ec2.create_vpc_endpoint(VpcId=properties["VpcId"], ServiceName=properties["ServiceName"], **arguments)
    endpoint = made["VpcEndpoint"]
    attributes = {
        "Id": endpoint["VpcEndpointId"],
        "DnsEntries": [entry.get("DnsName", "") for entry in endpoint.get("DnsEntries", [])],
        "NetworkInterfaceIds": endpoint.get("NetworkInterfaceIds", []),
    }
    return ResourceResult(endpoint["VpcEndpointId"], attributes)


def permission(rule: Mapping[str, Any], peer: str) -> dict[str, Any]:
    """An IpPermission of the API from a rule of CloudFormation; `peer` is Source or Destination."""
    made: dict[str, Any] = {"IpProtocol": str(rule["IpProtocol"])}
    for key in ("FromPort", "ToPort"):
        if key in rule:
            made[key] = int(rule[key])
    note = {"Description": rule["Description"]} if rule.get("Description") else {}
    group = rule.get(f"{peer}SecurityGroupId")
    prefix = rule.get(f"{peer}PrefixListId")
    if group:
        made["UserIdGroupPairs"] = [{"GroupId": group, **note}]
    elif "CidrIp" in rule:
        made["IpRanges"] = [{"CidrIp": rule["CidrIp"], **note}]
    elif "CidrIpv6" in rule:
        made["Ipv6Ranges"] = [{"CidrIpv6": rule["CidrIpv6"], **note}]
    elif prefix:
        made["PrefixListIds"] = [{"PrefixListId": prefix, **note}]
    else:
        raise ResourceFailed(f"Properties validation failed: a security group rule without a {peer.lower()}")
    return made


def _security_group(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = properties.get("GroupName") or f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12]}"
    vpc_id = properties["VpcId"]
    group = ec2.create_security_group(GroupName=name, Description=properties["GroupDescription"], VpcId=vpc_id)
    group_id = group["GroupId"]
    _tag(ec2, request, group_id)
    for rule in properties.get("SecurityGroupIngress", []):
        ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[permission(rule, "Source")])
    if "SecurityGroupEgress" in properties:
        _replace_egress(ec2, group_id, properties["SecurityGroupEgress"])
    return ResourceResult(group_id, {"GroupId": group_id, "Id": group_id, "VpcId": vpc_id})


def _replace_egress(ec2: Any, group_id: str, rules: list[Mapping[str, Any]]) -> None:
    """AWS drops the default allow-all rule as soon as a template states its own egress rules."""
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.revoke_security_group_egress(GroupId=group_id, IpPermissions=[everything])
    for rule in rules:
        ec2.authorize_security_group_egress(GroupId=group_id, IpPermissions=[permission(rule, "Destination")])


def _empty_and_delete_group(ec2: Any, _: ResourceRequest, group_id: str) -> None:
    ec2.delete_security_group(GroupId=group_id)


_RULE_KEYS = (
    "CidrIp",
    "DestinationSecurityGroupId",
    "FromPort",
    "GroupId",
    "IpProtocol",
    "SourceSecurityGroupId",
    "ToPort",
)


def _ingress(ec2: Any, request: ResourceRequest) -> ResourceResult:
    rule = permission(request.properties, "Source")
    made = ec2.authorize_security_group_ingress(GroupId=request.properties["GroupId"], IpPermissions=[rule])
    return _rule_result(made, request)


def _egress(ec2: Any, request: ResourceRequest) -> ResourceResult:
    rule = permission(request.properties, "Destination")
    made = ec2.authorize_security_group_egress(GroupId=request.properties["GroupId"], IpPermissions=[rule])
    return _rule_result(made, request)


def _rule_result(made: Mapping[str, Any], request: ResourceRequest) -> ResourceResult:
    rules = made.get("SecurityGroupRules") or [{}]
    rule_id = rules[0].get("SecurityGroupRuleId", request.logical_id)
    return ResourceResult(rule_id, {"Id": rule_id})


def _revoke_ingress(ec2: Any, request: ResourceRequest, _: str) -> None:
    rule = permission(request.properties, "Source")
    ec2.revoke_security_group_ingress(GroupId=request.properties["GroupId"], IpPermissions=[rule])


def _revoke_egress(ec2: Any, request: ResourceRequest, _: str) -> None:
    rule = permission(request.properties, "Destination")
    ec2.revoke_security_group_egress(GroupId=request.properties["GroupId"], IpPermissions=[rule])


_delete_security_group = EC2Backend._delete_security_group
_delete_subnet = EC2Backend.delete_subnet
_delete_vpc = EC2Backend.delete_vpc


def _interfaces(ec2: EC2Backend) -> Iterator[NetworkInterface]:
    """Interfaces that exist: moto keeps those of instances and NAT gateways that have ended."""
    ended = {gateway._eni.id for gateway in ec2.nat_gateways.values() if gateway.state == "deleted"}
    for interface in ec2.enis.values():
        instance = interface.instance
        if interface.id not in ended and (instance is None or instance.state != "terminated"):
            yield interface


def _refers(group: SecurityGroup, group_id: str) -> bool:
    rules = [*group.ingress_rules, *group.egress_rules]
    return any((rule.source_group or {}).get("GroupId") == group_id for rule in rules)


def _guarded_delete_group(self: EC2Backend, vpc_id: str | None, group_id: str) -> None:
    others = [group for groups in self.groups.values() for group in groups.values() if group.id != group_id]
    used = any(group_id in (group.id for group in interface.group_set) for interface in _interfaces(self))
    if used or any(_refers(other, group_id) for other in others):
        raise DependencyViolationError(f"resource {group_id} has a dependent object")
    _delete_security_group(self, vpc_id, group_id)


def _guarded_delete_subnet(self: EC2Backend, subnet_id: str) -> Any:
    if any(interface.subnet.id == subnet_id for interface in _interfaces(self)):
        raise DependencyViolationError(f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")
    return _delete_subnet(self, subnet_id)


def _guarded_delete_vpc(self: EC2Backend, vpc_id: str) -> Any:
    if any(group.name != "default" for group in self.groups[vpc_id].values()):
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
    return _delete_vpc(self, vpc_id)


def install_network() -> None:
    """Let moto's EC2 refuse deletions as EC2 does."""
    EC2Backend._delete_security_group = _guarded_delete_group
    EC2Backend.delete_subnet = _guarded_delete_subnet
    EC2Backend.delete_vpc = _guarded_delete_vpc


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


def network_types(clients: Clients) -> dict[str, ResourceType]:
    """The types of this module by name."""

    def ec2(make: Create, remove: Delete, replacing: tuple[str, ...] = ()) -> ApiType:
        return ApiType(clients, "ec2", make, remove, replacing=replacing)

    return {
        "AWS::EC2::VPC": ec2(_vpc, lambda c, _, i: c.delete_vpc(VpcId=i), ("CidrBlock",)),
        "AWS::EC2::Subnet": ec2(
            _subnet, lambda c, _, i: c.delete_subnet(SubnetId=i), ("AvailabilityZone", "CidrBlock", "VpcId")
        ),
        "AWS::EC2::InternetGateway": ec2(
            _internet_gateway, lambda c, _, i: c.delete_internet_gateway(InternetGatewayId=i)
        ),
        "AWS::EC2::VPCGatewayAttachment": ec2(_attachment, _detach, ("VpcId",)),
        "AWS::EC2::RouteTable": ec2(_route_table, lambda c, _, i: c.delete_route_table(RouteTableId=i), ("VpcId",)),
        "AWS::EC2::Route": ec2(_route, _unroute, ("DestinationCidrBlock", "RouteTableId")),
        "AWS::EC2::SubnetRouteTableAssociation": ec2(
            _association,
            lambda c, _, i: c.disassociate_route_table(AssociationId=i),
            ("RouteTableId", "SubnetId"),
        ),
        "AWS::EC2::EIP": ec2(_address, _release),
        "AWS::EC2::NatGateway": ec2(
            _nat_gateway, lambda c, _, i: c.delete_nat_gateway(NatGatewayId=i), ("AllocationId", "SubnetId")
        ),
        "AWS::EC2::VPCEndpoint": ec2(
            _endpoint, lambda c, _, i: c.delete_vpc_endpoints(VpcEndpointIds=[i]), ("ServiceName", "VpcId")
        ),
        "AWS::EC2::SecurityGroup": ec2(_security_group, _empty_and_delete_group, ("GroupDescription", "VpcId")),
        "AWS::EC2::SecurityGroupIngress": ec2(_ingress, _revoke_ingress, _RULE_KEYS),
        "AWS::EC2::SecurityGroupEgress": ec2(_egress, _revoke_egress, _RULE_KEYS),
    }
