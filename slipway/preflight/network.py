"""An existing VPC: its names, the subnets, their way out, and what their network ACLs let through."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.asking import found, together
from slipway.preflight.endpoints import Endpoints
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.preflight.running_instances import Instances
from slipway.preflight.software import built_software
from slipway.settings import PRIVATE_RANGES, Settings
from slipway.settings.rules.software import in_private_ecr
from slipway.settings.source import Place
from slipway.text import listed

PCLUSTER_GUIDE = "https://docs.aws.amazon.com/parallelcluster/latest/ug"
VPC_GUIDE = "https://docs.aws.amazon.com/vpc/latest/userguide"
NO_VPC = ("InvalidVpcID.NotFound", "InvalidVpcID.Malformed")
NO_SUBNET = ("InvalidSubnetID.NotFound", "InvalidSubnetID.Malformed", "InvalidSubnetId.Malformed")
EVERYWHERE = "0.0.0.0/0"
HEAD: Place = ("network", "head_node_subnet_id")
COMPUTE: Place = ("network", "compute_subnet_id")

# What nodes without a way to the internet call. Source: ParallelCluster user guide, "AWS ParallelCluster in a single
# subnet with no internet access"; Systems Manager user guide, "Create VPC endpoints"; Managed Service for Prometheus.
# The last one of the first row is for the parameter that names the nodes' bundle.
NODE_ENDPOINTS = ("logs", "cloudformation", "ec2", "s3", "dynamodb", "ssm")
SESSION_ENDPOINTS = ("ssmmessages",)
MIRROR_HINT = "copy it to a bucket and name that: software_mirror: s3://BUCKET/PREFIX"
ECR_ENDPOINTS = ("ecr.api", "ecr.dkr")  # passwords, then manifests; layers come from S3. Source: ECR user guide


def _has_own_vpc(settings: Settings) -> bool:
    return not settings.network.is_new


# ---- the VPC ----


def ask_vpc(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The VPC is there, and names are resolved and given in it."""
    vpc_id = settings.network.vpc_id or ""
    path = ("network", "vpc_id")
    vpc = aws.start("ec2", "describe_vpcs", VpcIds=[vpc_id])
    names = ("enableDnsSupport", "enableDnsHostnames")
    pending = [aws.start("ec2", "describe_vpc_attribute", VpcId=vpc_id, Attribute=name) for name in names]
    if not found(vpc, *NO_VPC):
        hint = f"aws ec2 describe-vpcs --region {aws.region} lists those there are"
        yield fault(path, f"{vpc_id} does not exist in {aws.region}", hint)
        return
    yield from together(*(_dns(path, vpc_id, name, call) for name, call in zip(names, pending, strict=True)))


def _dns(path: Place, vpc_id: str, name: str, pending: Pending) -> Iterator[Answer]:
    key = name[0].upper() + name[1:]
    if pending.result()[key]["Value"]:
        yield ok(path, f"{vpc_id} has {name}")
        return
    option = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}[name]
    hint = f"aws ec2 modify-vpc-attribute --vpc-id {vpc_id} {option}"
    yield fault(path, f"{vpc_id} has {name} off: the nodes find neither each other nor the file system by name", hint)


# ---- the subnets ----


def _subnet_ids(settings: Settings) -> dict[Place, str]:
    network = settings.network
    return {HEAD: network.head_node_subnet_id or "", COMPUTE: network.compute_subnet_id or ""}


def ask_subnets(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Both subnets are there, in the VPC and the zone, and have an address for every node."""
    ids = _subnet_ids(settings)
    pending = {path: aws.start("ec2", "describe_subnets", SubnetIds=[id]) for path, id in ids.items()}
    instances = Instances(aws)
    needs = _addresses(settings)
    parts = (_subnet(settings, path, ids[path], pending[path], need, instances) for path, need in needs.items())
    yield from together(*parts)


def _addresses(settings: Settings) -> dict[Place, tuple[int, int]]:
    """How many addresses each subnet has to have: for the static nodes, and when every queue is full."""
    least = sum(queue.min_count * queue.addresses for queue in settings.queues)
    most = sum(queue.max_count * queue.addresses for queue in settings.queues)
    if settings.network.head_node_subnet_id == settings.network.compute_subnet_id:
        return {COMPUTE: (least + 1, most + 1)}
    return {HEAD: (1, 1), COMPUTE: (least, most)}


def _subnet(
    settings: Settings, path: Place, id: str, pending: Pending, need: tuple[int, int], instances: Instances
) -> Iterator[Answer]:
    response = found(pending, *NO_SUBNET)
    if response is None:
        hint = f"aws ec2 describe-subnets --region {settings.region} lists those there are"
        yield fault(path, f"{id} does not exist in {settings.region}", hint)
        return
    subnet = response["Subnets"][0]
    faults = list(_misplaced(settings, path, subnet))
    yield from faults
    free, (least, most) = subnet["AvailableIpAddressCount"], need
    if free < most:  # an update finds the cluster's own nodes in their places
        free += sum(instance.subnets.count(id) for instance in instances.of_cluster(settings.name))
    if free < least:
        text = f"{id} has {free} free addresses, the static nodes need {least}"
        yield fault(path, text, "name a larger subnet, or lower count")
    elif free < most:
        text = f"{id} has {free} free addresses, the nodes can need {most}"
        yield warning(path, text, "name a larger subnet, or lower max_count")
    elif not faults:
        yield ok(path, f"{id} is in {subnet['VpcId']} and {subnet['AvailabilityZone']}, {free} addresses free")


def _misplaced(settings: Settings, path: Place, subnet: dict[str, Any]) -> Iterator[Answer]:
    id, vpc_id = subnet["SubnetId"], settings.network.vpc_id
    if subnet["VpcId"] != vpc_id:
        yield fault(path, f"{id} is in {subnet['VpcId']}, not in {vpc_id}", "name subnets of one VPC")
    if subnet["AvailabilityZone"] != settings.zone:
        text = f"{id} is in {subnet['AvailabilityZone']}, the cluster in {settings.zone}"
        yield fault(path, text, f"name a subnet in {settings.zone}: EFA and FSx for Lustre do not leave the zone")
    if subnet.get("State", "available") != "available":
        yield fault(path, f"{id} is {subnet['State']}", "wait until it is available")


# ---- the way out ----


@dataclasses.dataclass(frozen=True)
class WayOut:
    """Where a subnet sends what is for the internet: `kind` is internet, other or none."""

    kind: str
    target: str
    is_dead: bool


class Routes:
    """Route tables of the VPC; the calls are on their way as soon as this is made."""

    def __init__(self, settings: Settings, aws: Aws) -> None:
        in_vpc = [{"Name": "vpc-id", "Values": [settings.network.vpc_id]}]
        self._tables = aws.start("ec2", "describe_route_tables", Filters=in_vpc)
        self._subnets = {
            id: aws.start("ec2", "describe_subnets", SubnetIds=[id]) for id in _subnet_ids(settings).values()
        }

    def table(self, subnet_id: str) -> dict[str, Any]:
        """The subnet's own route table, or else the main one."""
        main: dict[str, Any] = {}
        for table in self._tables.result()["RouteTables"]:
            for association in table["Associations"]:
                if association.get("SubnetId") == subnet_id:
                    return dict(table)
                if association.get("Main"):
                    main = table
        return main

    def way_out(self, subnet_id: str) -> WayOut:
        """The default route. Raises Unasked."""
        for route in self.table(subnet_id).get("Routes", ()):
            if route.get("DestinationCidrBlock") == EVERYWHERE:
                target = _target(route)
                kind = "internet" if target.startswith("igw-") else "other"
                return WayOut(kind, target, route.get("State") == "blackhole")
        return WayOut("none", "", False)

    def gives_public_addresses(self, subnet_id: str) -> bool:
        """MapPublicIpOnLaunch; true for a subnet that is not there, which another question reports."""
        response = found(self._subnets[subnet_id], *NO_SUBNET)
        return bool(response is None or response["Subnets"][0]["MapPublicIpOnLaunch"])


def _target(route: dict[str, Any]) -> str:
    keys = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "LocalGatewayId")
    names = (*keys, "VpcPeeringConnectionId", "CarrierGatewayId", "CoreNetworkArn", "EgressOnlyInternetGatewayId")
    return next((str(route[key]) for key in names if route.get(key)), "")


def _is_elsewhere(settings: Settings, aws: Aws, subnet_id: str) -> bool:
    """Whether the VPC has no such subnet, which other questions report: then its routes are not judged."""
    try:
        response = found(aws.start("ec2", "describe_subnets", SubnetIds=[subnet_id]), *NO_SUBNET)
    except (Refused, Unasked):
        return False
    return response is None or response["Subnets"][0]["VpcId"] != settings.network.vpc_id


def ask_compute_routes(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The compute nodes reach AWS: through a NAT or transit gateway, or through VPC endpoints."""
    routes, subnet_id = Routes(settings, aws), settings.network.compute_subnet_id or ""
    endpoints = Endpoints(settings, aws, subnet_id, NODE_ENDPOINTS)
    if _is_elsewhere(settings, aws, subnet_id):
        return
    way = routes.way_out(subnet_id)
    if way.is_dead:
        yield _dead(COMPUTE, subnet_id, way)
    elif way.kind == "other":
        yield ok(COMPUTE, f"{subnet_id} has a way out through {way.target}")
    elif way.kind == "internet":
        yield _public_compute(settings, routes, subnet_id, way)
    else:
        yield from _isolated(settings, routes, COMPUTE, subnet_id, endpoints)
    if not way.is_dead:
        yield from endpoints.closed(COMPUTE)


def _dead(path: Place, subnet_id: str, way: WayOut) -> Answer:
    text = f"{subnet_id} sends what is for the internet to {way.target}, which is gone (blackhole)"
    return fault(path, text, "point its default route to a NAT gateway that is there")


def _public_compute(settings: Settings, routes: Routes, subnet_id: str, way: WayOut) -> Answer:
    queue = next((queue for queue in settings.queues if queue.interfaces > 1), None)
    if queue:
        text = (
            f"{subnet_id} is public (its way out is {way.target}), and {queue.instance_type} with {queue.interfaces} "
            "network interfaces cannot have a public address: the nodes would reach nothing"
        )
        return fault(COMPUTE, text, "name a private subnet whose default route is a NAT gateway")
    if not routes.gives_public_addresses(subnet_id):
        text = (
            f"{subnet_id} has {way.target} as its way out and gives no public addresses: the nodes would reach nothing"
        )
        return fault(COMPUTE, text, "name a private subnet whose default route is a NAT gateway")
    text = f"{subnet_id} is public: every compute node gets a public address"
    return warning(COMPUTE, text, "name a private subnet whose default route is a NAT gateway")


def _isolated(
    settings: Settings, routes: Routes, path: Place, subnet_id: str, endpoints: Endpoints
) -> Iterator[Answer]:
    missing = endpoints.missing(str(routes.table(subnet_id).get("RouteTableId")))
    if missing:
        text = f"{subnet_id} has no way to the internet and no VPC endpoint for {listed(missing, most=len(missing))}"
        yield fault(path, text, "give it a default route to a NAT gateway, or make the endpoints")
        return
    unnamed = list(endpoints.without_names(path))
    yield from unnamed
    if not unnamed:
        yield ok(path, f"{subnet_id} has no way to the internet, and VPC endpoints for all that the nodes call")
    if not (settings.software_mirror or "").startswith("s3://"):
        text = f"{subnet_id} has no way to the internet, and the nodes' software comes from there"
        yield warning(path, f"{text}: {_not_installed(settings)}", MIRROR_HINT)


def _not_installed(settings: Settings) -> str:
    """What a cluster lacks whose nodes cannot fetch their software: no step of a node fails for it."""
    lost = "the exporters and Prometheus are missing, and no metric is recorded"
    if built_software(settings):
        built = "NCCL and its plugin" if settings.nccl.source == "shared" else "nccl-tests"
        lost += f"; {built} {'are' if settings.nccl.source == 'shared' else 'is'} not built"
        lost += ", and acceptance measures nothing" if settings.acceptance.scenario != "none" else ""
    return lost


def _images_from_outside(settings: Settings, subnet_id: str) -> Iterator[Answer]:
    """Images of registries that no VPC endpoint leads to."""
    for index, image in enumerate(settings.images):
        if not in_private_ecr(image):
            text = f"{subnet_id} has no way to the internet, and {image} comes from there"
            yield warning(("images", index), text, "copy the image to a private repository of ECR, and name that")


def ask_head_routes(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """The head node reaches AWS, and can be reached as the settings want."""
    routes, subnet_id = Routes(settings, aws), settings.network.head_node_subnet_id or ""
    endpoints = Endpoints(settings, aws, subnet_id, _head_endpoints(settings))
    if _is_elsewhere(settings, aws, subnet_id):
        return
    way = routes.way_out(subnet_id)
    public = way.kind == "internet" and routes.gives_public_addresses(subnet_id)
    if way.is_dead:
        yield _dead(HEAD, subnet_id, way)
    elif way.kind == "internet" and not public:
        closed = f"{subnet_id} has {way.target} as its way out and gives no public addresses"
        hint = f"aws ec2 modify-subnet-attribute --subnet-id {subnet_id} --map-public-ip-on-launch"
        yield fault(HEAD, f"{closed}: the head node would reach nothing", hint)
    elif way.kind == "none":
        yield from _isolated(settings, routes, HEAD, subnet_id, endpoints)
        yield from _images_from_outside(settings, subnet_id)
    else:
        address = "a public address" if public else "no public address"
        yield ok(HEAD, f"{subnet_id} has a way out through {way.target}; the head node gets {address}")
    if not public:
        yield from _reached_from_outside(settings)
    if not way.is_dead:
        yield from endpoints.closed(HEAD)


def _head_endpoints(settings: Settings) -> tuple[str, ...]:
    metrics = ("aps-workspaces",) if settings.observability.prometheus else ()
    slurm = settings.slurm
    named = settings.ngc_secret_arn or slurm.database or slurm.external_slurmdbd
    secrets = ("secretsmanager",) if named else ()
    images = ECR_ENDPOINTS if any(map(in_private_ecr, settings.images)) else ()
    return (*NODE_ENDPOINTS, *SESSION_ENDPOINTS, *metrics, *secrets, *images)


def _reached_from_outside(settings: Settings) -> Iterator[Answer]:
    ssh_from = settings.head_node.ssh_from
    if not ssh_from:
        return
    network = ipaddress.IPv4Network(ssh_from)
    if not any(network.subnet_of(ipaddress.IPv4Network(private)) for private in PRIVATE_RANGES):
        text = f"SSH is allowed from {ssh_from}, and the head node has no public address to reach it at"
        yield warning(("head_node", "ssh_from"), text, "name the private range you come from, or use Session Manager")


# ---- network ACLs ----


def ask_acls(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """What the subnets' network ACLs let through: security groups cannot open what these close."""
    ids = _subnet_ids(settings)
    filters = [{"Name": "association.subnet-id", "Values": sorted(set(ids.values()))}]
    acls = aws.call("ec2", "describe_network_acls", Filters=filters)["NetworkAcls"]
    for path, id in ids.items():
        for acl in acls:
            if any(association["SubnetId"] == id for association in acl["Associations"]):
                yield from _acl(path, id, acl)


def _acl(path: Place, subnet_id: str, acl: dict[str, Any]) -> Iterator[Answer]:
    name = acl["NetworkAclId"]
    open_ways = 0
    for direction, egress in (("in", False), ("out", True)):
        entries = sorted(
            (entry for entry in acl["Entries"] if entry["Egress"] is egress), key=lambda entry: entry["RuleNumber"]
        )
        if all(entry["RuleAction"] == "deny" for entry in entries):
            text = f"{name} of {subnet_id} lets nothing {direction}"
            yield fault(path, text, f"allow the VPC's range and what the nodes call, {direction}")
        elif _all_allowed(entries):
            open_ways += 1
        else:
            text = f"{name} of {subnet_id} lets only some traffic {direction}"
            yield warning(path, text, "make sure that it has EFA, Lustre (988, 1018-1023), Slurm and HTTPS in it")
    if open_ways == 2:
        yield ok(path, f"{name} of {subnet_id} lets everything through")


def _all_allowed(entries: list[dict[str, Any]]) -> bool:
    """The first rule for everything allows it, and none before it denies anything."""
    for entry in entries:
        if entry["RuleAction"] == "deny":
            return False
        if str(entry["Protocol"]) == "-1" and entry.get("CidrBlock") == EVERYWHERE:
            return True
    return False


ROUTE_PERMISSIONS = (
    "ec2:DescribeRouteTables",
    "ec2:DescribeVpcEndpoints",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
)
QUESTIONS = (
    Question(
        name="vpc",
        asks="Is the VPC there, with DNS support and DNS host names?",
        why="Without names the nodes find neither the head node nor the file system, and the creation ends at the "
        "time-out of the bootstrap.",
        source=f"{PCLUSTER_GUIDE}/network-configuration-v3.html",
        permissions=("ec2:DescribeVpcs", "ec2:DescribeVpcAttribute"),
        ask=ask_vpc,
        applies=_has_own_vpc,
    ),
    Question(
        name="subnets",
        asks="Are the subnets there, in the VPC and the zone, with an address for every node?",
        why="EFA and FSx for Lustre do not leave a zone, a reservation holds in one only, and a node without a free "
        "address does not start.",
        source=f"{VPC_GUIDE}/subnet-sizing.html; aws-parallelcluster SubnetsValidator",
        permissions=("ec2:DescribeSubnets", "ec2:DescribeInstances"),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_subnets,
        applies=_has_own_vpc,
    ),
    Question(
        name="compute-routes",
        asks="Do the compute nodes have a way to the AWS services they call, and do the VPC's endpoints let them in?",
        why="Nodes with several network interfaces get no public address: in a public subnet they reach nothing, "
        "and the creation ends at the time-out of the bootstrap.",
        source=f"{PCLUSTER_GUIDE}/network-configuration-v3.html; "
        f"{PCLUSTER_GUIDE}/aws-parallelcluster-in-a-single-public-subnet-no-internet-v3.html; libfabric issue 6; "
        "dstack issues 1804 and 2270",
        permissions=ROUTE_PERMISSIONS,
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_compute_routes,
        applies=_has_own_vpc,
    ),
    Question(
        name="head-routes",
        asks="Does the head node have a way to the AWS services it calls, and can it be reached?",
        why="A head node that reaches no AWS service never signals that it is ready: the creation fails after 35 "
        "minutes.",
        source=f"{PCLUSTER_GUIDE}/network-configuration-v3.html; aws-parallelcluster issue 2447",
        permissions=ROUTE_PERMISSIONS,
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_head_routes,
        applies=_has_own_vpc,
    ),
    Question(
        name="network-acls",
        asks="Do the subnets' network ACLs let the nodes' traffic through?",
        why="What an ACL drops no security group can open; EFA then hangs without a word.",
        source=f"{VPC_GUIDE}/vpc-network-acls.html; https://docs.aws.amazon.com/fsx/latest/LustreGuide/"
        "limit-access-security-groups.html",
        permissions=("ec2:DescribeNetworkAcls",),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_acls,
        applies=_has_own_vpc,
    ),
)
