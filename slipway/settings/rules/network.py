"""Rules of the network and of who may log in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from slipway.settings.model import Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, rule, warning

AWS_RESERVED_ADDRESSES = 5  # per subnet, VPC user guide
OTHER_ADDRESSES = 2  # the file system's metadata server and at least one object server have theirs in the same subnet
LARGEST_PREFIX, SMALLEST_PREFIX = 16, 24  # VPC user guide: /16 is the largest; a head node's /26 and half of a /24
DOCKER_BRIDGE = IPv4Network("172.17.0.0/16")
IDS = ("vpc_id", "head_node_subnet_id", "compute_subnet_id")
NETWORK_KEYS = ("network.cidr", "network.vpc_id", "network.head_node_subnet_id", "network.compute_subnet_id")


def _given(s: Settings) -> list[str]:
    ids = (s.network.vpc_id, s.network.head_node_subnet_id, s.network.compute_subnet_id)
    return [name for name, value in zip(IDS, ids, strict=True) if value]


@rule(
    why="A VPC is either made or used: with half of the ids Slipway would have to guess the rest.",
    source="Slipway: stacks/network.py",
    keys=NETWORK_KEYS,
)
def network_new_or_existing(s: Settings) -> Iterator[Finding]:
    given = _given(s)
    if s.network.cidr and given:
        text = f"has both cidr and {', '.join(given)}"
        yield ("network",), text, "give cidr for a new VPC, or the three ids for an existing one"
    elif given and len(given) < len(IDS):
        missing = [name for name in IDS if name not in given]
        yield ("network",), f"an existing VPC also needs {', '.join(missing)}", "give all three ids"
    elif not given and not s.network.cidr:
        yield ("network",), "needs cidr, or the three ids of an existing VPC", "for example cidr: 10.0.0.0/16"


@rule(
    why="A VPC has at most a /16; below a /24 the head node's subnet and the compute nodes' half do not fit.",
    source="VPC user guide, VPC CIDR blocks; stacks/network.py",
    keys=("network.cidr",),
)
def network_prefix(s: Settings) -> Iterator[Finding]:
    if s.network.cidr and not LARGEST_PREFIX <= IPv4Network(s.network.cidr).prefixlen <= SMALLEST_PREFIX:
        text = f"a new VPC needs a prefix of /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}"
        yield ("network", "cidr"), text, "for example 10.0.0.0/16"


@rule(
    why="A node with EFA takes one address of the private subnet, one without an address for each network card; "
    "without room the last nodes never start.",
    source="VPC user guide: AWS keeps 5 addresses of a subnet; aws-parallelcluster pull request 7262: efa-only "
    "interfaces have none",
    keys=("network.cidr", "queues.instance_type", "queues.efa", *COUNT_KEYS),
)
def network_room(s: Settings) -> Iterator[Finding]:
    network = IPv4Network(s.network.cidr) if s.network.cidr else None
    if network is None or not LARGEST_PREFIX <= network.prefixlen <= SMALLEST_PREFIX:
        return
    room = network.num_addresses // 2 - AWS_RESERVED_ADDRESSES  # the private subnet is one half of the VPC
    needed = sum(queue.max_count * queue.addresses for queue in s.queues) + OTHER_ADDRESSES
    if needed > room:
        text = f"has {room} addresses for compute nodes, the queues can need {needed}"
        yield ("network", "cidr"), text, "take a larger network, e.g. /16"


@warning(
    why="Docker's bridge has 172.17.0.0/16 unless configured otherwise: nodes in that range cannot be reached "
    "from containers, and some AWS services use the range too.",
    source="VPC user guide, VPC CIDR blocks, on 172.17.0.0/16",
    keys=("network.cidr",),
)
def network_docker(s: Settings) -> Iterator[Finding]:
    if s.network.cidr and IPv4Network(s.network.cidr).overlaps(DOCKER_BRIDGE):
        yield ("network", "cidr"), f"overlaps {DOCKER_BRIDGE}, Docker's own network", "for example 10.0.0.0/16"


@rule(
    why="A security group belongs to one VPC; nodes of another cannot use it.",
    source="VPC user guide, security groups",
    keys=("network.security_group_id", "network.vpc_id"),
)
def security_group_new_vpc(s: Settings) -> Iterator[Finding]:
    if s.network.security_group_id and not s.network.vpc_id:
        text = "belongs to an existing VPC, and Slipway makes a new one"
        yield ("network", "security_group_id"), text, "leave it out, or give the ids of the VPC and its subnets"


@warning(
    why="EC2 gives instances with several network interfaces no public address: in a public subnet they reach "
    "neither S3 nor the head node's services, and creation ends in a time-out. One private subnet for all is "
    "fine.",
    source=f"{PCLUSTER}, MultiNetworkInterfacesInstancesValidator; libfabric issue 6",
    keys=("network.compute_subnet_id", "network.head_node_subnet_id", "queues.instance_type", "queues.efa"),
)
def one_subnet(s: Settings) -> Iterator[Finding]:
    if not s.network.compute_subnet_id or s.network.compute_subnet_id != s.network.head_node_subnet_id:
        return
    queue = next((queue for queue in s.queues if queue.interfaces > 1), None)
    if queue:
        text = f"is the head node's subnet too; {queue.instance_type} has several interfaces and gets no public address"
        yield ("network", "compute_subnet_id"), text, "take a private subnet with a route to AWS's services"


@rule(
    why="The port would be open, and no user could log in.",
    source="EC2 user guide, key pairs",
    keys=("head_node.ssh_from", "head_node.key_pair"),
)
def ssh_without_key(s: Settings) -> Iterator[Finding]:
    if s.head_node.ssh_from and not s.head_node.key_pair:
        text = "opens SSH, but there is no key_pair to log in with"
        yield ("head_node", "ssh_from"), text, "name a key pair, or leave both out and use Session Manager"


@warning(
    why="Every open port 22 is tried within minutes; the head node holds the cluster's rights.",
    source="EC2 user guide, security group rules for SSH",
    keys=("head_node.ssh_from",),
)
def ssh_from_everywhere(s: Settings) -> Iterator[Finding]:
    if s.head_node.ssh_from and IPv4Network(s.head_node.ssh_from).prefixlen == 0:
        text = "opens SSH to the whole internet"
        yield ("head_node", "ssh_from"), text, "name your own range, or use Session Manager"
