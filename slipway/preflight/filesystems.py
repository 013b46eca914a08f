"""Path systems: room for a new one in the quotas, and whether those that exist can be mounted by the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Unasked
from slipway.preflight.asking import found, together
from slipway.preflight.groups import DIRECTIONS, is_open, lets_in, names_itself
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.preflight.quota import QUOTA_PERMISSIONS, Quota
from slipway.settings import Mount, Settings
from slipway.settings.rules.storage import MAX_ASSOCIATIONS
from slipway.settings.source import Place

EXISTING: Place = ("storage", "fsx", "file_system_id")
HOME_VOLUME: Place = ("storage", "home", "volume_id")
HEAD_NODE_TAG, CLUSTER_TAG = "parallelcluster:node-type", "parallelcluster:cluster-name"
# Deployment -> codes of the quotas: capacity in GiB, number of file systems. Source: Service Quotas, fsx, as listed in
# gruntwork-io/terraform-aws-utilities docs/quotas.md (read in November 2026).
QUOTAS = {
    "persistent-2": ("Persistent_2", "L-8F1B9C74", "L-FD6F2F22"),
    "persistent-1": ("Persistent_1", "L-C8640C82", "L-9AFA1F09"),
    "scratch-2": ("Scratch", "L-AD2FC696", "L-C48231E5"),
    "scratch-1": ("Scratch", "L-AD2FC696", "L-C48231E5"),
}
MOUNT_PORTS = (988, 988)  # the only port that ParallelCluster 3.16.1 looks for (FSX_PORTS)
LUSTRE_PORTS = (MOUNT_PORTS, (1018, 1023))  # FSx for Lustre user guide, access control
USABLE = ("AVAILABLE", "UPDATING")
VOLUME_KINDS = {"fsx-openzfs": "OPENZFS", "fsx-ontap": "ONTAP"}


def _quota(settings: Settings, aws: Aws) -> Iterator[Answer]:
    fsx = settings.storage.fsx
    family, capacity_code, count_code = QUOTAS[fsx.deployment]
    capacity, count = Quota(aws, "fsx", capacity_code), Quota(aws, "fsx", count_code)
    systems = [item for item in aws.call("fsx", "describe_file_systems")["FileSystems"] if _family(item) == family]
    if any(_tag(item, "project") == settings.name for item in systems):
        yield ok(("storage", "fsx"), f"the cluster {settings.name} has a {family} file system already")
        return
    used = sum(item["StorageCapacity"] for item in systems)
    yield from together(_capacity(settings, family, used, capacity), _count(family, len(systems), count))


def _family(system: dict[str, Any]) -> str:
    kind = (system.get("LustreConfiguration") or {}).get("DeploymentType", "")
    return "Scratch" if kind.startswith("SCRATCH") else str(kind.capitalize())


def _tag(resource: dict[str, Any], key: str) -> str:
    return next((str(tag["Value"]) for tag in resource.get("Tags", []) if tag["Key"] == key), "")


def _capacity(settings: Settings, family: str, used: int, quota: Quota) -> Iterator[Answer]:
    needed, granted = settings.storage.fsx.capacity_gib, quota.value()
    path = ("storage", "fsx", "capacity_gib")
    facts = f"{needed} GiB of Lustre {family}; of the quota's {granted:.0f} GiB {used} are used"
    if used + needed > granted:
        yield fault(path, f"no room for {facts}", quota.repair(used + needed))
    else:
        yield ok(path, f"room for {facts}")


def _count(family: str, used: int, quota: Quota) -> Iterator[Answer]:
    granted = quota.value()
    if used + 1 > granted:
        text = f"the quota of {granted:.0f} Lustre {family} file systems is used up"
        yield fault(("storage", "fsx"), text, quota.repair(used + 1))


def _existing(settings: Settings, aws: Aws) -> Iterator[Answer]:
    system_id = settings.storage.fsx.file_system_id or ""
    asked = aws.start("fsx", "describe_file_systems", FileSystemIds=[system_id])
    filters = [{"Name": "file-system-id", "Values": [system_id]}]
    links = aws.start("fsx", "describe_data_repository_associations", Filters=filters)
    nodes = _start_nodes(settings, aws)
    # All of them, as the quotas ask for too: waiting for the ids first would take three calls one after the other.
    interfaces, groups = aws.start("ec2", "describe_network_interfaces"), aws.start("ec2", "describe_security_groups")
    answer = found(asked, "FileSystemNotFound")
    if answer is None:
        yield fault(EXISTING, f"there is no file system {system_id} in {settings.region}", "correct the id")
        return
    system = answer["FileSystems"][0]
    subnets = aws.start("ec2", "describe_subnets", SubnetIds=system["SubnetIds"])
    yield from together(
        _lustre(EXISTING, system, system_id),
        _place(settings, EXISTING, system_id, system["VpcId"]),
        _zone(settings, system_id, subnets),
        _ports(settings, system, interfaces, groups, nodes),
        _links(settings, system, links),
        _efa(system, groups, interfaces),
    )


def _start_nodes(settings: Settings, aws: Aws) -> Pending | None:
    subnet = settings.network.compute_subnet_id
    return aws.start("ec2", "describe_subnets", SubnetIds=[subnet]) if subnet else None


def _lustre(path: Place, system: dict[str, Any], system_id: str) -> Iterator[Answer]:
    if system["FileSystemType"] != "LUSTRE":
        yield fault(path, f"{system_id} is of type {system['FileSystemType']}, not LUSTRE", "name a Lustre file system")
    elif system["Lifecycle"] not in USABLE:
        yield fault(path, f"{system_id} is {system['Lifecycle']}", "repair it, or name another one")
    else:
        version = system.get("FileSystemTypeVersion", "2.10")
        facts = f"{system_id} is {system['Lifecycle']}: Lustre {version}, {system['StorageCapacity']} GiB"
        if version == "2.10":
            yield warning(path, facts, "2.10 knows no associations, and today's clients are made for 2.12 and 2.15")
        else:
            yield ok(path, facts)


def _place(settings: Settings, path: Place, what: str, vpc_id: str) -> Iterator[Answer]:
    """In the VPC of the nodes, or at least in a VPC that can be joined with it."""
    wanted = settings.network.vpc_id
    if wanted == vpc_id:
        return
    if wanted is None:
        text = f"{what} is in {vpc_id}: no way leads there from the new VPC"
        yield fault(path, text, f"set network.vpc_id: {vpc_id} and its subnets")
    else:
        text = f"{what} is in {vpc_id}, the nodes in {wanted}"
        yield warning(path, text, "make sure that peering or a transit gateway joins them, with routes both ways")


def _zone(settings: Settings, system_id: str, asked: Pending) -> Iterator[Answer]:
    zone = asked.result()["Subnets"][0]["AvailabilityZone"]
    if zone != settings.zone:
        text = f"{system_id} is in {zone}, the nodes in {settings.zone}"
        yield warning(EXISTING, text, "every byte crosses zones: slower, and paid for per GB")


def _groups_of(system: dict[str, Any], interfaces: Pending) -> list[str]:
    """The security groups of the file system's network interfaces."""
    own = [
        item
        for item in interfaces.result()["NetworkInterfaces"]
        if item["NetworkInterfaceId"] in system["NetworkInterfaceIds"]
    ]
    return sorted({group["GroupId"] for item in own for group in item["Groups"]})


def _ports(
    settings: Settings, system: dict[str, Any], interfaces: Pending, groups: Pending, nodes: Pending | None
) -> Iterator[Answer]:
    """Without 988 nothing is mounted. The others are for what servers begin; many file systems do without for long."""
    names = _groups_of(system, interfaces)
    if not names:
        raise Unasked(f"the network interfaces of {system['FileSystemId']} are not to be seen")
    rules = [
        rule
        for group in groups.result()["SecurityGroups"]
        if group["GroupId"] in names
        for rule in group.get("IpPermissions", [])
    ]
    network = nodes.result()["Subnets"][0]["CidrBlock"] if nodes else settings.network.cidr or ""
    node_group = settings.network.security_group_id or ""
    closed = [ports for ports in LUSTRE_PORTS if not lets_in(rules, ports, {node_group}, network)]
    who = f"{', '.join(names)} of {system['FileSystemId']}"
    if not closed:
        yield ok(EXISTING, f"{who} lets the nodes in")
        return
    hint = f"add an inbound rule to {', '.join(names)}: TCP 988 and 1018-1023 from {node_group or network}"
    by_list = any(is_open(rule, ports) and rule.get("PrefixListIds") for rule in rules for ports in closed)
    if by_list:
        text = f"{who} lets prefix lists in on TCP {_range_list(closed)}: the nodes may be in them or not"
        yield warning(EXISTING, text, "look whether they have the nodes' addresses")
    else:
        text = f"{who} does not let the nodes in on TCP {_range_list(closed)}"
        yield (fault if MOUNT_PORTS in closed else warning)(EXISTING, text, hint)


def _range_list(ranges: list[tuple[int, int]]) -> str:
    return " and ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _efa(system: dict[str, Any], groups: Pending, interfaces: Pending) -> Iterator[Answer]:
    """An EFA-enabled file system is mounted over TCP: no step configures Lustre's network (LNet) for EFA."""
    if not (system.get("LustreConfiguration") or {}).get("EfaEnabled"):
        return
    names = _groups_of(system, interfaces)
    closed = [
        group["GroupId"]
        for group in groups.result()["SecurityGroups"]
        if group["GroupId"] in names and not all(_to_itself(group, key) for key in DIRECTIONS)
    ]
    text = f"{system['FileSystemId']} is EFA-enabled, and the nodes use it over TCP"
    text += ": Slipway does not set up EFA for Lustre"
    hint = "expect TCP's throughput, or run the client set-up of the FSx for Lustre user guide in queues[].scripts"
    if closed:
        text += f"; {', '.join(closed)} also has no rules for all traffic to itself, without which EFA does not pass"
        hint += ", and add these rules, inbound and outbound"
    yield warning(EXISTING, text, hint)


def _to_itself(group: dict[str, Any], key: str) -> bool:
    return any(names_itself(rule, group["GroupId"]) for rule in group.get(key, ()))


def _links(settings: Settings, system: dict[str, Any], asked: Pending) -> Iterator[Answer]:
    """The associations that are there: whether they work, and how they go with those that the settings add."""
    known = [item for item in asked.result()["Associations"] if item["Lifecycle"] != "DELETING"]
    for item in known:
        yield from _broken_link(item)
    there = [item["FileSystemPath"] for item in known]
    wanted = settings.storage.associations
    for number, link in enumerate(wanted):
        over = [path for path in there if _overlaps(path, link.path)]
        if over:
            text = f"{link.path} overlaps the association {over[0]} that the file system has already"
            yield fault(("storage", "associations", number, "path"), text, "take another path, or leave it out")
    if wanted and len(there) + len(wanted) > MAX_ASSOCIATIONS:
        text = (
            f"{len(there)} associations are there and {len(wanted)} are to come; a file system takes {MAX_ASSOCIATIONS}"
        )
        yield fault(("storage", "associations"), text, "leave some out, or delete some of the old")
    if wanted and (system.get("LustreConfiguration") or {}).get("DeploymentType") == "SCRATCH_1":
        yield fault(("storage", "associations"), "a SCRATCH_1 file system takes no associations", "leave them out")


def _broken_link(item: dict[str, Any]) -> Iterator[Answer]:
    """MISCONFIGURED: FSx imports and exports nothing until bucket, key and policy let it; FAILED: it was never made."""
    if item["Lifecycle"] not in ("MISCONFIGURED", "FAILED"):
        return
    reason = (item.get("FailureDetails") or {}).get("Message", "FSx gives no reason")
    id, path, bucket = item["AssociationId"], item["FileSystemPath"], item["DataRepositoryPath"]
    text = f"the association {id} of {path} with {bucket} is {item['Lifecycle']}: {reason}"
    repair = "let FSx read and write the bucket (policy, KMS key, region): FSx then goes on by itself"
    remove = f"remove it: aws fsx delete-data-repository-association --association-id {id}"
    yield fault(EXISTING, text, f"{repair}; or {remove}" if item["Lifecycle"] == "MISCONFIGURED" else remove)


def _overlaps(one: str, other: str) -> bool:
    first, second = (f"{path.rstrip('/')}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


def _mounts(settings: Settings, aws: Aws) -> Iterator[Answer]:
    parts = [_mount(settings, aws, number, mount) for number, mount in enumerate(settings.storage.mounts)]
    for mount in settings.storage.mounts:
        _start_mount(aws, mount)  # all before the first is waited for
    yield from together(*parts)


def _start_mount(aws: Aws, mount: Mount) -> Pending:
    if mount.kind == "efs":
        aws.start("efs", "describe_mount_targets", FileSystemId=mount.id)  # waited for later
        return aws.start("efs", "describe_file_systems", FileSystemId=mount.id)
    if mount.kind == "file-cache":
        return aws.start("fsx", "describe_file_caches", FileCacheIds=[mount.id])
    if mount.kind == "fsx-lustre":
        return aws.start("fsx", "describe_file_systems", FileSystemIds=[mount.id])
    aws.start("fsx", "describe_file_systems")
    return aws.start("fsx", "describe_volumes", VolumeIds=[mount.id])


NOT_FOUND = ("FileSystemNotFound", "VolumeNotFound", "FileCacheNotFound", "BadRequest")


def _mount(settings: Settings, aws: Aws, number: int, mount: Mount) -> Iterator[Answer]:
    path: Place = ("storage", "mounts", number, "id")
    answer = found(_start_mount(aws, mount), *NOT_FOUND)
    if answer is None:
        yield fault(path, f"there is no {mount.kind} {mount.id} in {settings.region}", "correct the id")
    elif mount.kind == "efs":
        yield from _efs(settings, aws, path, answer["FileSystems"][0])
    elif mount.kind == "fsx-lustre":
        yield from together(
            _lustre(path, answer["FileSystems"][0], mount.id),
            _place(settings, path, mount.id, answer["FileSystems"][0]["VpcId"]),
        )
    elif mount.kind == "file-cache":
        cache = answer["FileCaches"][0]
        yield from together(_usable(path, mount.id, cache), _place(settings, path, mount.id, cache["VpcId"]))
    else:
        yield from _volume(settings, aws, path, mount, answer["Volumes"][0])


def _usable(path: Place, what: str, facts: dict[str, Any], usable: tuple[str, ...] = USABLE) -> Iterator[Answer]:
    if facts["Lifecycle"] in usable:
        yield ok(path, f"{what} is {facts['Lifecycle']}")
    else:
        yield fault(path, f"{what} is {facts['Lifecycle']}", "repair it, or leave the mount out")


def _volume(settings: Settings, aws: Aws, path: Place, mount: Mount, volume: dict[str, Any]) -> Iterator[Answer]:
    if volume["VolumeType"] != VOLUME_KINDS[mount.kind]:
        text = f"{mount.id} is a volume of {volume['VolumeType']}, not of {VOLUME_KINDS[mount.kind]}"
        yield fault(path, text, "correct the id, or the kind of the mount")
        return
    yield from _usable(path, mount.id, volume, ("CREATED", "AVAILABLE"))
    systems = aws.call("fsx", "describe_file_systems")["FileSystems"]
    for system in systems:
        if system["FileSystemId"] == volume["FileSystemId"]:
            yield from _place(settings, path, mount.id, system["VpcId"])


def _efs(settings: Settings, aws: Aws, path: Place, system: dict[str, Any]) -> Iterator[Answer]:
    system_id = system["FileSystemId"]
    if system["LifeCycleState"] != "available":
        yield fault(path, f"{system_id} is {system['LifeCycleState']}", "repair it, or leave the mount out")
        return
    targets = aws.call("efs", "describe_mount_targets", FileSystemId=system_id)["MountTargets"]
    here = [item for item in targets if item["AvailabilityZoneName"] == settings.zone]
    if not here:
        text = f"{system_id} has no mount target in {settings.zone}"
        hint = f"aws efs create-mount-target --file-system-id {system_id} --subnet-id (one in {settings.zone})"
        yield fault(path, text, hint)
        return
    yield ok(path, f"{system_id} is available, with a mount target in {settings.zone}")
    yield from _place(settings, path, system_id, here[0]["VpcId"])


def _home_volume(settings: Settings, aws: Aws) -> Iterator[Answer]:
    volume_id = settings.storage.home.volume_id or ""
    answer = found(aws.start("ec2", "describe_volumes", VolumeIds=[volume_id]), "InvalidVolume.NotFound")
    if answer is None:
        yield fault(HOME_VOLUME, f"there is no volume {volume_id} in {settings.region}", "correct the id")
        return
    volume = answer["Volumes"][0]
    facts = f"{volume_id}: {volume['Size']} GiB {volume['VolumeType']} in {volume['AvailabilityZone']}"
    if volume["AvailabilityZone"] != settings.zone:
        hint = f"make a snapshot of it and from that a volume in {settings.zone}: aws ec2 create-volume"
        yield fault(HOME_VOLUME, f"{facts}; the head node is in {settings.zone}", hint)
        return
    users = [item["InstanceId"] for item in volume.get("Attachments", []) if item.get("State") != "detached"]
    if volume["State"] == "available":
        yield ok(HOME_VOLUME, f"{facts}, available")
    elif users:
        yield from _attached(settings, aws, facts, users)
    else:
        yield fault(HOME_VOLUME, f"{facts} is {volume['State']}", "wait until it is available, or name another one")
    if not volume["Encrypted"]:
        hint = (
            "copy its snapshot with --encrypted and make the volume from the copy; Slipway's own volumes are encrypted"
        )
        yield warning(HOME_VOLUME, f"{volume_id} is not encrypted", hint)


def _attached(settings: Settings, aws: Aws, facts: str, instance_ids: list[str]) -> Iterator[Answer]:
    """Attached is right for the head node of this cluster alone."""
    answer = aws.call("ec2", "describe_instances", InstanceIds=instance_ids)
    instances = [instance for part in answer["Reservations"] for instance in part["Instances"]]
    ours = {HEAD_NODE_TAG: "HeadNode", CLUSTER_TAG: settings.name}
    if all(_tag(instance, key) == value for instance in instances for key, value in ours.items()):
        yield ok(HOME_VOLUME, f"{facts}, attached to the head node of {settings.name}")
    else:
        hint = "detach it, or end the other cluster first; two hosts cannot write to it"
        yield fault(HOME_VOLUME, f"{facts} is attached to {', '.join(instance_ids)}", hint)


QUESTIONS = (
    Question(
        name="file-system-quota",
        asks="Is there room for the new file system in the account's quotas?",
        why="The storage stack fails on it, and a capacity block runs on meanwhile.",
        source="Service Quotas, fsx: Lustre storage capacity and number of file systems",
        permissions=(*QUOTA_PERMISSIONS, "fsx:DescribeFileSystems"),
        ask=_quota,
        applies=lambda s: s.storage.fsx.file_system_id is None,
    ),
    Question(
        name="file-system",
        asks="Can the nodes mount the existing file system, and does it take the associations?",
        why="ParallelCluster looks at it 10 min in; a group that lets no node in fails the head node's boot after 35.",
        source="FSx for Lustre user guide and API reference; ParallelCluster 3.16.1, fsx_validators.py",
        permissions=(
            "fsx:DescribeFileSystems",
            "fsx:DescribeDataRepositoryAssociations",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:DescribeSecurityGroups",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=_existing,
        applies=lambda s: s.storage.fsx.file_system_id is not None,
    ),
    Question(
        name="existing-home",
        asks="Can the head node attach the existing volume of /home?",
        why="ParallelCluster refuses a volume that is missing or attached; one of another zone fails the head node.",
        source="ParallelCluster 3.16.1, SharedEbsVolumeIdValidator; EBS user guide, attach a volume",
        permissions=("ec2:DescribeVolumes", "ec2:DescribeInstances"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_home_volume,
        applies=lambda s: s.storage.home.volume_id is not None,
    ),
    Question(
        name="mounts",
        asks="Are the file systems there that the settings mount besides /fsx, and can the nodes reach them?",
        why="A mount that hangs keeps every node from starting until ParallelCluster gives up after 35 min.",
        source="ParallelCluster user guide, SharedStorage; EFS user guide, mount targets",
        permissions=(
            "fsx:DescribeFileSystems",
            "fsx:DescribeVolumes",
            "fsx:DescribeFileCaches",
            "elasticfilesystem:DescribeFileSystems",
            "elasticfilesystem:DescribeMountTargets",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=_mounts,
        applies=lambda s: bool(s.storage.mounts),
    ),
)
