"""The database of Slurm's accounting: whether the head node can reach it, as far as AWS can be asked."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.preflight.asking import together
from slipway.preflight.groups import lets_in, named_groups
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.settings import PRIVATE_RANGES, Settings
from slipway.settings.rules.slurm import rds_region
from slipway.settings.source import Place

ENGINES = ("mysql", "mariadb", "aurora-mysql", "aurora")
# States of RDS and Aurora in which a database answers. Source: RDS user guide, status of an instance and of a cluster.
ANSWERING = (
    "available", "backing-up", "backtracking", "configuring-enhanced-monitoring", "configuring-iam-database-auth",
    "configuring-log-exports", "converting-to-vpc", "maintenance", "modifying", "moving-to-vpc",
    "resetting-master-credentials", "renaming", "storage-config-upgrade", "storage-initialization",
    "storage-optimization",
)  # fmt: skip
OWN_VPC = "set network.vpc_id and its subnets: the database's VPC, or one that is joined with it"
BY_HAND = "from a host in the head node's subnet: nc -vz {host} {port}; without an answer the head node's boot fails"


@dataclasses.dataclass(frozen=True)
class Server:
    """Where slurmdbd connects to: `place` is the table of the settings."""

    place: Place
    host: str
    port: int


@dataclasses.dataclass(frozen=True)
class Known:
    """A database of this account: what RDS says of the endpoint that has the host's name."""

    id: str
    engine: str
    status: str
    port: int
    vpc_id: str
    groups: list[str]
    is_public: bool
    takes_writes: bool


def _server(settings: Settings) -> Server | None:
    slurm = settings.slurm
    if slurm.database:
        return Server(("slurm", "database"), slurm.database.host.lower(), slurm.database.port)
    if slurm.external_slurmdbd:
        external = slurm.external_slurmdbd
        return Server(("slurm", "external_slurmdbd"), external.host.lower(), external.port)
    return None


def _reach(settings: Settings, aws: Aws) -> Iterator[Answer]:
    server = _server(settings)
    if server is None:
        return
    region = rds_region(server.host)
    if region is None:
        yield from _of_the_site(settings, server)
    elif region != settings.region:
        text = f"{server.host} is in {region}, the cluster in {settings.region}"
        if settings.network.is_new:
            yield fault((*server.place, "host"), f"{text}: no way leads there from the new VPC", OWN_VPC)
        else:
            hint = "make sure that peering or a transit gateway joins both, with routes both ways"
            yield warning((*server.place, "host"), text, hint)
    else:
        yield from _in_rds(settings, aws, server)


def _of_the_site(settings: Settings, server: Server) -> Iterator[Answer]:
    """A host that RDS does not know: an address says at least whether it is private."""
    place = (*server.place, "host")
    if settings.network.is_new and _is_private(server.host):
        yield fault(place, f"{server.host} is private: no way leads there from the new VPC", OWN_VPC)
        return
    text = f"{server.host} is not RDS's: whether the head node reaches it on TCP {server.port}, AWS cannot say"
    yield warning(place, text, f"ask {BY_HAND.format(host=server.host, port=server.port)}")


def _is_private(host: str) -> bool:
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return any(address in ipaddress.IPv4Network(private) for private in PRIVATE_RANGES)


def _in_rds(settings: Settings, aws: Aws, server: Server) -> Iterator[Answer]:
    instances, clusters = aws.start("rds", "describe_db_instances"), aws.start("rds", "describe_db_clusters")
    groups = aws.start("ec2", "describe_security_groups")
    subnet_id = settings.network.head_node_subnet_id
    subnet = aws.start("ec2", "describe_subnets", SubnetIds=[subnet_id]) if subnet_id else None
    known = _find(server.host, instances.result()["DBInstances"], clusters)
    if known is None:
        text = f"no database of this account in {settings.region} has the endpoint {server.host}"
        hint = f"correct the host; if it is another account's, ask {BY_HAND.format(host=server.host, port=server.port)}"
        yield warning((*server.place, "host"), text, hint)
        return
    yield from together(
        _usable(server, known), _place(settings, server, known), _way(settings, server, known, groups, subnet)
    )


def _find(host: str, instances: list[dict[str, Any]], asked: Pending) -> Known | None:
    for item in instances:
        if (item.get("Endpoint") or {}).get("Address", "").lower() == host:
            return _known(
                item, item, str(item["DBInstanceStatus"]), not item.get("ReadReplicaSourceDBInstanceIdentifier")
            )
    for cluster in asked.result()["DBClusters"]:
        writer, reader = str(cluster.get("Endpoint", "")).lower(), str(cluster.get("ReaderEndpoint", "")).lower()
        if host in (writer, reader, *map(str.lower, cluster.get("CustomEndpoints", ()))):
            members = {member["DBInstanceIdentifier"] for member in cluster.get("DBClusterMembers", ())}
            member = next((item for item in instances if item["DBInstanceIdentifier"] in members), {})
            return _known(cluster, member, str(cluster["Status"]), host != reader)
    return None


def _known(item: dict[str, Any], instance: dict[str, Any], status: str, takes_writes: bool) -> Known:
    """`instance`: the database itself, or one of the cluster, which has the VPC; empty for a cluster without any."""
    return Known(
        id=str(item.get("DBClusterIdentifier") if item is not instance else item["DBInstanceIdentifier"]),
        engine=str(item["Engine"]),
        status=status,
        port=int(item.get("Port") or (item.get("Endpoint") or {}).get("Port") or 0),
        vpc_id=str((instance.get("DBSubnetGroup") or {}).get("VpcId", "")),
        groups=[group["VpcSecurityGroupId"] for group in item.get("VpcSecurityGroups", ())],
        is_public=bool(instance.get("PubliclyAccessible")),
        takes_writes=takes_writes,
    )


def _usable(server: Server, known: Known) -> Iterator[Answer]:
    host, port = (*server.place, "host"), (*server.place, "port")
    if known.engine not in ENGINES:
        yield fault(host, f"{known.id} is {known.engine}; slurmdbd needs MySQL or MariaDB", "name another database")
    if known.status not in ANSWERING:
        yield fault(host, f"{known.id} is {known.status}", "start it, or wait until it is available")
    if not known.takes_writes:
        yield fault(host, f"{server.host} only reads, and slurmdbd writes", f"name the writer's endpoint of {known.id}")
    if known.port and known.port != server.port:
        yield fault(port, f"{known.id} listens on TCP {known.port}, not {server.port}", f"write port: {known.port}")


def _place(settings: Settings, server: Server, known: Known) -> Iterator[Answer]:
    place, vpc_id = (*server.place, "host"), settings.network.vpc_id
    if not known.vpc_id or known.vpc_id == vpc_id:
        return
    if vpc_id:
        text = f"{known.id} is in {known.vpc_id}, the head node in {vpc_id}"
        yield warning(place, text, "make sure that peering or a transit gateway joins them, with routes both ways")
    elif known.is_public:
        text = f"{known.id} is in {known.vpc_id}: from the new VPC the way to it is the internet"
        yield warning(place, text, f"let the head node's public address in, or {OWN_VPC}")
    else:
        text = f"{known.id} is in {known.vpc_id}: no way leads there from the new VPC"
        yield fault(place, text, f"set network.vpc_id: {known.vpc_id} and its subnets")


def _way(settings: Settings, server: Server, known: Known, groups: Pending, subnet: Pending | None) -> Iterator[Answer]:
    """Whether the database's security groups let the head node in."""
    if subnet is None or not known.groups:
        return
    network = subnet.result()["Subnets"][0]["CidrBlock"]
    rules = [
        rule
        for group in groups.result()["SecurityGroups"]
        if group["GroupId"] in known.groups
        for rule in group.get("IpPermissions", ())
    ]
    place, who = (*server.place, "host"), f"{', '.join(known.groups)} of {known.id}"
    if lets_in(rules, (server.port, server.port), named_groups(settings), network):
        yield ok(place, f"{who} lets the head node in on TCP {server.port}")
    else:
        hint = f"aws ec2 authorize-security-group-ingress --group-id {known.groups[0]} --protocol tcp"
        text = f"{who} does not let the head node in on TCP {server.port}"
        yield fault(place, text, f"{hint} --port {server.port} --cidr {network}")


QUESTIONS = (
    Question(
        name="database",
        asks="Is the database of Slurm's accounting where the head node reaches it: region, VPC, group, port?",
        why="slurmdbd does not start without its database, and the head node's boot fails after 35 minutes.",
        source="aws-parallelcluster-hpc-quickstart issue 119; ParallelCluster user guide, Slurm accounting",
        permissions=(
            "rds:DescribeDBInstances",
            "rds:DescribeDBClusters",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=_reach,
        applies=lambda s: _server(s) is not None,
    ),
)
