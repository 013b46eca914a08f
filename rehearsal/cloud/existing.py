"""What a site has already, each with exactly the id that settings name: groups, file systems, policies, secrets.

All of it is healthy: security groups are open to the nodes, file systems are available, secrets have the right form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from moto.ec2.models import elastic_block_store, security_groups
from moto.efs.models import efs_backends
from moto.fsx.models import fsx_backends
from moto.secretsmanager.models import secretsmanager_backends

from rehearsal.cloud.clients import Clients
from rehearsal.cloud.volumes import add_cache, add_volume
from rehearsal.cloud_model import ACCOUNT, PARTITION

Kind = Literal["fsx-lustre", "fsx-openzfs", "fsx-ontap", "file-cache", "efs"]
_CAPACITY_GIB = 4800
_VOLUME_GIB = 500
_LUSTRE = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
_LUSTRE_VERSION = "2.15"
_FILE_SYSTEM_GROUP = "file-systems"


@dataclass(frozen=True)
class SecurityGroup:
    """A security group that settings name; `vpc_id` None: in the default VPC.

    `open_to_itself`: all traffic from and to its members.
    """

    id: str
    vpc_id: str | None = None
    open_to_itself: bool = False


@dataclass(frozen=True)
class FileSystem:
    """A file system, volume or cache that settings name, of AWS's recommended kind.

    `subnet_id` None: in the zone's default subnet; `group_id` None: in a group of its own, open to its whole VPC.
    """

    id: str
    kind: Kind
    zone: str
    subnet_id: str | None = None
    group_id: str | None = None


@contextmanager
def next_id(module: Any, function: str, wanted: str) -> Iterator[None]:
    """Make moto give the next resource the id that settings name."""
    original = getattr(module, function)
    setattr(module, function, lambda: wanted)
    try:
        yield
    finally:
        setattr(module, function, original)


def make_security_group(clients: Clients, group: SecurityGroup) -> None:
    """With EC2's default rule that allows all outgoing traffic."""
    ec2 = clients("ec2")
    with next_id(security_groups, "random_security_group_id", group.id):
        _make_group(ec2, f"site-{group.id}", group.vpc_id or _default_vpc(ec2))
    if group.open_to_itself:
        itself = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group.id}]}]
        ec2.authorize_security_group_ingress(GroupId=group.id, IpPermissions=itself)
        ec2.authorize_security_group_egress(GroupId=group.id, IpPermissions=itself)


def _make_group(ec2: Any, name: str, vpc_id: str) -> str:
    made: str = ec2.create_security_group(GroupName=name, Description="the site's", VpcId=vpc_id)["GroupId"]
    return made


def _default_vpc(ec2: Any) -> str:
    found: str = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    return found


def make_volume(clients: Clients, volume_id: str, zone: str) -> None:
    """An EBS volume, as a cluster that is gone left it."""
    with next_id(elastic_block_store, "random_volume_id", volume_id):
        clients("ec2").create_volume(AvailabilityZone=zone, Size=_VOLUME_GIB, VolumeType="gp3", Encrypted=True)


def make_file_system(clients: Clients, system: FileSystem) -> None:
    """The file system, and for a volume the one that it lies on."""
    ec2 = clients("ec2")
    subnet = _subnet(ec2, system)
    group = system.group_id or _file_system_group(ec2, subnet["VpcId"])
    if system.kind == "efs":
        _efs(clients, system.id, subnet["SubnetId"], group)
    elif system.kind == "fsx-lustre":
        made = _fsx(clients, subnet["SubnetId"], group, "LUSTRE")
        _rename(clients.region, made, system.id)
    elif system.kind == "file-cache":
        interface = ec2.create_network_interface(SubnetId=subnet["SubnetId"], Groups=[group])["NetworkInterface"]
        add_cache(clients.region, system.id, subnet["VpcId"], interfaces=(interface["NetworkInterfaceId"],))
    else:
        volume_type = system.kind.removeprefix("fsx-").upper()
        add_volume(clients.region, system.id, volume_type, _fsx(clients, subnet["SubnetId"], group, volume_type))


def _subnet(ec2: Any, system: FileSystem) -> dict[str, Any]:
    if system.subnet_id:
        found = ec2.describe_subnets(SubnetIds=[system.subnet_id])
    else:
        wanted = {"default-for-az": "true", "availability-zone": system.zone}
        found = ec2.describe_subnets(Filters=[{"Name": key, "Values": [value]} for key, value in wanted.items()])
    subnet: dict[str, Any] = found["Subnets"][0]
    return subnet


def _file_system_group(ec2: Any, vpc_id: str) -> str:
    """One group for all file systems of a VPC: everything from the VPC may come in."""
    filters = {"vpc-id": vpc_id, "group-name": _FILE_SYSTEM_GROUP}
    found = ec2.describe_security_groups(Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()])
    if found["SecurityGroups"]:
        return str(found["SecurityGroups"][0]["GroupId"])
    group = _make_group(ec2, _FILE_SYSTEM_GROUP, vpc_id)
    cidr = ec2.describe_vpcs(VpcIds=[vpc_id])["Vpcs"][0]["CidrBlock"]
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "IpRanges": [{"CidrIp": cidr}]}]
    )
    return group


def _efs(clients: Clients, system_id: str, subnet_id: str, group: str) -> None:
    efs = clients("efs")
    made = efs.create_file_system(CreationToken=system_id, Encrypted=True)["FileSystemId"]
    known = efs_backends[ACCOUNT][clients.region].file_systems_by_id
    system = known[system_id] = known.pop(made)
    system.file_system_id = system_id
    system.file_system_arn = system.file_system_arn.replace(made, system_id)
    efs.create_mount_target(FileSystemId=system_id, SubnetId=subnet_id, SecurityGroups=[group])


def _fsx(clients: Clients, subnet_id: str, group: str, kind: str) -> str:
    lustre = {"FileSystemTypeVersion": _LUSTRE_VERSION, "LustreConfiguration": _LUSTRE} if kind == "LUSTRE" else {}
    made = clients("fsx").create_file_system(
        FileSystemType=kind,
        StorageCapacity=_CAPACITY_GIB,
        SubnetIds=[subnet_id],
        SecurityGroupIds=[group],
        **lustre,
    )
    file_system_id: str = made["FileSystem"]["FileSystemId"]
    return file_system_id


def _rename(region: str, made: str, wanted: str) -> None:
    """moto chooses the id of a file system where nothing can be put in its place."""
    known = fsx_backends[ACCOUNT][region].file_systems
    system = known[wanted] = known.pop(made)
    for name in ("file_system_id", "dns_name", "resource_arn"):
        setattr(system, name, getattr(system, name).replace(made, wanted))


def make_policy(clients: Clients, arn: str, actions: str = "sts:GetCallerIdentity") -> None:
    """A managed policy of the account; AWS's own are there, and another account's cannot be attached in any case.

    It has to allow something: by default what every caller may do in any case.
    """
    prefix = f"arn:{PARTITION}:iam::{ACCOUNT}:policy"
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}
    if arn.startswith(f"{prefix}/"):
        path, _, name = arn.removeprefix(prefix).rpartition("/")
        clients("iam").create_policy(PolicyName=name, Path=f"{path}/", PolicyDocument=json.dumps(document))


def make_placement_group(clients: Clients, name: str) -> None:
    """Of the kind that puts instances close together."""
    clients("ec2").create_placement_group(GroupName=name, Strategy="cluster")


def make_secret(clients: Clients, arn: str, text: str) -> None:
    """A secret with exactly that ARN: its last seven characters are AWS's random suffix, not part of the name."""
    name = arn.split(":secret:", 1)[1][:-7]
    clients("secretsmanager").create_secret(Name=name, SecretString=text)
    for secret in secretsmanager_backends[ACCOUNT][clients.region].secrets.values():
        if secret.name == name:
            secret.arn = arn
