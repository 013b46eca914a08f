"""A ParallelCluster configuration as settings: each function carries one part over and notes it in the ledger.

What no function carries is compared with the configuration that Slipway writes: an equal value is implied, another is
not carried, and `slipway/data/pcluster_import.yaml` has the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from slipway.cluster_config import CAPACITY_TYPES, MOUNT_KINDS, NOBODY, cluster_configuration, placeholder_facts
from slipway.exchange.ledger import Fate, Ledger
from slipway.exchange.pcluster_file import Configuration, is_placeholder, knowledge, pattern, spell
from slipway.instances import INSTANCE_TYPES
from slipway.settings import FSX_MOUNT, Settings
from slipway.settings.source import Place
from slipway.settings.write import get_at, set_at

FILL = "<fill in>"
MOST_QUEUES = 50  # of one settings file
ANYWHERE = {"name": "any", "region": "us-east-1", "zone": "us-east-1a"}  # of settings that exist only for their shape
QUEUES: Place = ("Scheduling", "SlurmQueues")
SLURM: Place = ("Scheduling", "SlurmSettings")
CONFIGURED: Place = ("CustomActions", "OnNodeConfigured")
POLICIES: Place = ("Iam", "AdditionalIamPolicies")
SESSION_MANAGER = re.compile(r"arn:aws[a-z-]*:iam::aws:policy/AmazonSSMManagedInstanceCore")
OWN_POLICY = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:policy/parallelcluster/[^/]+(/.+|-head-node|-compute)")
DEFAULT_MAX_COUNT = 10  # ParallelCluster 3.16.1, pcluster/constants.py
DATABASE_URI = re.compile(r"(.*?)(?::(\d{1,5}))?")
BUCKET_URL = re.compile(r"s3://([^/]+)/?(.*)")
RESERVATION_KINDS = {value: key for key, value in CAPACITY_TYPES.items()}
MOUNT_TYPES = {kind: (name, part, key) for name, (kind, part, key) in MOUNT_KINDS.items()}
LIKE_OS = {"alinux2": "alinux2023", "ubuntu2004": "ubuntu2204", "rhel8": "alinux2023", "rhel9": "alinux2023",
           "rocky8": "alinux2023", "rocky9": "alinux2023", "centos7": "alinux2023"}  # fmt: skip
SCALARS: tuple[tuple[Place, Place], ...] = (
    (("Region",), ("region",)),
    (("HeadNode", "InstanceType"), ("head_node", "instance_type")),
    (("HeadNode", "LocalStorage", "RootVolume", "Size"), ("head_node", "root_volume_gib")),
    (("HeadNode", "Ssh", "KeyName"), ("head_node", "key_pair")),
    ((*SLURM, "ScaledownIdletime"), ("slurm", "idle_minutes")),
    ((*SLURM, "Database", "UserName"), ("slurm", "database", "user")),
    ((*SLURM, "Database", "PasswordSecretArn"), ("slurm", "database", "password_secret_arn")),
    ((*SLURM, "Database", "DatabaseName"), ("slurm", "database", "name")),
    ((*SLURM, "ExternalSlurmdbd", "Host"), ("slurm", "external_slurmdbd", "host")),
    ((*SLURM, "ExternalSlurmdbd", "Port"), ("slurm", "external_slurmdbd", "port")),
    (("Monitoring", "Logs", "CloudWatch", "RetentionInDays"), ("observability", "retention_days")),
    (("Iam", "PermissionsBoundary"), ("iam", "permissions_boundary")),
    (("Iam", "ResourcePrefix"), ("iam", "name_prefix")),
)


class Translation:
    """The `settings` so far, the `ledger` of every value, and `comments` for the written file by settings path."""

    def __init__(self, configuration: Configuration) -> None:
        self.data = configuration.data
        self.ledger = Ledger(configuration.leaves, spell)
        self.settings: dict[str, Any] = {}
        self.comments: dict[Place, str] = {}
        self.notes: list[str] = []
        self.is_own = any(_is_own_action(action) for _, action in actions(self.data, ("HeadNode", *CONFIGURED)))

    def get(self, *path: str | int) -> Any:
        return get_at(self.data, path)

    def count(self, *path: str | int) -> int:
        """Return the length of the list at `path`."""
        value = self.get(*path)
        return len(value) if isinstance(value, list) else 0

    def carry(self, path: Place, to: Place) -> Any:
        """Put the value of `path` at `to` and return it; None if it is missing or an export's placeholder."""
        value = self.get(*path)
        if value is None or isinstance(value, (dict, list)):
            return None
        if value in _export_placeholders():
            self.ledger.decide(path, Fate.IMPLIED, "a placeholder of an export; the deployment gives the id")
            return None
        return self.put(path, to, value)

    def put(self, path: Place, to: Place, value: Any) -> Any:
        """Put `value`, which comes from `path`, at `to` and return it."""
        set_at(self.settings, to, value)
        if is_placeholder(value):
            self.comments[to] = f"fill in the value of {value}"
            self.ledger.decide(path, Fate.TO_FILL, f"fill in the value of {value}", to)
        else:
            self.ledger.decide(path, Fate.CARRIED, "", to)
        return value

    def need(self, to: Place, text: str) -> None:
        """Have `to` filled in: the settings need it, and the file does not have it."""
        set_at(self.settings, to, FILL)
        self.comments[to] = text
        self.ledger.add(Fate.TO_FILL, text, to)

    def drop(self, path: Place, text: str) -> None:
        self.ledger.decide(path, Fate.NOT_CARRIED, text)

    def imply(self, path: Place, text: str) -> None:
        self.ledger.decide(path, Fate.IMPLIED, text)


def translate(configuration: Configuration) -> Translation:
    """Return everything of `configuration` that settings have a key for, with an account of every value."""
    t = Translation(configuration)
    for path, to in SCALARS:
        t.carry(path, to)
    if t.get(*SLURM, "ExternalSlurmdbd") is not None:
        t.carry((*SLURM, "MungeKeySecretArn"), ("slurm", "external_slurmdbd", "munge_key_secret_arn"))
    for part in (_image, _ssh, _tags, _network, _groups, _head_node, _database, _slurm_settings, _queues, _storage):
        part(t)
    _rest(t)
    if t.is_own:
        t.notes.append(
            "Slipway wrote this configuration: what ParallelCluster has no key for (zone, new VPC, bucket, "
            "associations, images, NCCL, acceptance, budget, ...) is only in its block of comments"
        )
    return t


def actions(data: dict[str, Any], path: Place) -> list[tuple[Place, Any]]:
    """Return the scripts of a custom action, one or a sequence, each with its path."""
    sequence = get_at(data, (*path, "Sequence"))
    if isinstance(sequence, list):
        return [((*path, "Sequence", index), item) for index, item in enumerate(sequence)]
    action = get_at(data, path)
    return [(path, action)] if isinstance(action, dict) else []


def _image(t: Translation) -> None:
    path, os = ("Image", "Os"), t.get("Image", "Os")
    if os in LIKE_OS:
        t.settings["os"] = LIKE_OS[os]
        t.comments["os",] = f"the file has {os}, which Slipway does not deploy"
        t.drop(path, f"Slipway deploys ubuntu2204, ubuntu2404 and alinux2023; {LIKE_OS[os]} is written instead")
    else:
        t.carry(path, ("os",))


def _ssh(t: Translation) -> None:
    path: Place = ("HeadNode", "Ssh", "AllowedIps")
    if t.get(*path) == NOBODY:
        t.imply(path, "SSH is closed unless head_node.ssh_from opens it")
    elif t.carry(path, ("head_node", "ssh_from")) is None and t.get("HeadNode", "Ssh", "KeyName") is not None:
        t.notes.append(
            "HeadNode/Ssh has no AllowedIps: ParallelCluster then opens SSH to every address, Slipway to none; "
            "set head_node.ssh_from to the range that may log in"
        )


def _tags(t: Translation) -> None:
    for index in range(t.count("Tags")):
        path: Place = ("Tags", index)
        key, value = t.get(*path, "Key"), t.get(*path, "Value")
        if key == "project" and t.is_own:
            t.put(path, ("name",), value)
        elif key == "project":
            t.drop(path, "the tag project is always the cluster's name")
        elif isinstance(key, str) and isinstance(value, str) and key not in t.settings.get("tags", ()):
            t.put(path, ("tags", key), value)
        else:
            t.drop(path, "a tag needs a unique key and a value")


def _network(t: Translation) -> None:
    carried = [t.carry(("HeadNode", "Networking", "SubnetId"), ("network", "head_node_subnet_id"))]
    compute = ("network", "compute_subnet_id")
    for index in range(t.count(*QUEUES)):
        path: Place = (*QUEUES, index, "Networking", "SubnetIds", 0)
        if get_at(t.settings, compute) in (None, t.get(*path)):
            carried.append(t.carry(path, compute))
    if not any(carried):
        return
    for key in ("head_node_subnet_id", "compute_subnet_id"):
        if key not in t.settings["network"]:
            t.need(("network", key), "an existing network needs both subnets")
    subnet = t.settings["network"]["head_node_subnet_id"]
    query = f"aws ec2 describe-subnets --subnet-ids {subnet} --query Subnets[0].VpcId"
    t.need(("network", "vpc_id"), f"the VPC of the subnets: {query}")


def _groups(t: Translation) -> None:
    """Carry the security groups. The nodes' group is a group that all queues have, preferably the head node too."""
    lists = [
        (*QUEUES, index, "Networking", "AdditionalSecurityGroups") for index in range(t.count(*QUEUES))
    ]  # fmt: skip
    head: Place = ("HeadNode", "Networking", "AdditionalSecurityGroups")
    queues = [t.get(*path) or [] for path in lists]
    common = [group for group in queues[0] if group is not None and all(group in groups for groups in queues)]
    node = next((group for group in common if group in (t.get(*head) or [])), common[0] if common else None)
    for path in (head, *lists):
        for index, group in enumerate(t.get(*path) or []):
            if group == node and node is not None:
                t.carry((*path, index), ("network", "security_group_id"))
            elif path == head and group is not None:
                place = len(get_at(t.settings, ("head_node", "security_group_ids")) or [])
                t.carry((*path, index), ("head_node", "security_group_ids", place))


def _head_node(t: Translation) -> None:
    _scripts(t, ("HeadNode",), ("head_node",))
    _policies(t, ("HeadNode",), ("head_node",))


def _scripts(t: Translation, part: Place, to: Place) -> None:
    number = 0
    for path, action in actions(t.data, (*part, *CONFIGURED)):
        url = get_at(action, ("Script",))
        if _is_own_action(action):
            t.imply(path, "Slipway's own bootstrap action")
        elif isinstance(url, str) and (url.startswith("s3://") or is_placeholder(url)):
            t.put((*path, "Script"), (*to, "scripts", number, "url"), url)
            for index in range(t.count(*path, "Args")):
                t.carry((*path, "Args", index), (*to, "scripts", number, "arguments", index))
            number += 1
        else:
            t.drop(path, _instead_of(action, to))
    for event in ("OnNodeStart", "OnNodeUpdated"):
        for path, action in actions(t.data, (*part, "CustomActions", event)):
            if _is_own_action(action):
                t.imply(path, "Slipway's own bootstrap action")
                continue
            t.drop(
                path, _instead_of(action, to, f"no script of yours runs at {event}, only when the node is configured")
            )


def _instead_of(action: Any, to: Place, otherwise: str = "") -> str:
    """Return what replaces a script that cannot be carried over."""
    url, arguments = str(get_at(action, ("Script",))), get_at(action, ("Args",)) or []
    setting = "queues[].scripts" if to[0] == "queues" else f"{to[0]}.scripts"
    for known in knowledge()["scripts"]:
        if known["part"] in url:
            text: str = known["reason"]
            return text + (
                "; " + known["versions"].format(*arguments) if "versions" in known and len(arguments) >= 2 else ""
            )
    otherwise = otherwise or "scripts come from S3, where they cannot change in silence"
    return f"{otherwise}: copy it there and name it in {setting}"


def _is_own_action(action: Any) -> bool:
    arguments = get_at(action, ("Args",))
    if (
        not isinstance(arguments, list)
        or len(arguments) < 3
        or not all(isinstance(argument, str) for argument in arguments)
    ):
        return False
    kind, _, parameter = arguments[:3]
    return kind in ("head", "compute") and bool(re.fullmatch(r"/slipway/[a-z0-9-]+/bundle", parameter))


def _policies(t: Translation, part: Place, to: Place) -> None:
    number = 0
    for index in range(t.count(*part, *POLICIES)):
        path: Place = (*part, *POLICIES, index, "Policy")
        arn = t.get(*path)
        if t.is_own and isinstance(arn, str) and OWN_POLICY.fullmatch(arn):
            t.imply(path, "Slipway's own policy")
        elif part == ("HeadNode",) and isinstance(arn, str) and SESSION_MANAGER.fullmatch(arn):
            t.imply(path, "the head node's own policy allows what Session Manager needs, and no more")
        elif t.carry(path, (*to, "policy_arns", number)) is not None:
            number += 1


def _database(t: Translation) -> None:
    path: Place = (*SLURM, "Database", "Uri")
    uri = t.get(*path)
    match = DATABASE_URI.fullmatch(uri) if isinstance(uri, str) else None
    if match:
        t.put(path, ("slurm", "database", "host"), match[1])
        if match[2]:
            set_at(t.settings, ("slurm", "database", "port"), int(match[2]))


def _slurm_settings(t: Translation) -> None:
    for index in range(t.count(*SLURM, "CustomSlurmSettings")):
        path: Place = (*SLURM, "CustomSlurmSettings", index)
        entry = t.get(*path)
        if isinstance(entry, dict) and len(entry) == 1:
            _parameter(t, (*path, *entry), ("slurm", "settings", *entry))


def _parameter(t: Translation, path: Place, to: Place) -> None:
    value = t.get(*path)
    if get_at(t.settings, to) is not None:
        t.drop(path, f"{to[-1]} is given twice; the first one is carried")
    elif isinstance(value, (str, int, float)):
        t.put(path, to, str(value) if isinstance(value, float) else value)


def _queues(t: Translation) -> None:
    for index in range(t.count(*QUEUES)):
        _queue(t, (*QUEUES, index), ("queues", index))


def _queue(t: Translation, path: Place, to: Place) -> None:
    resource: Place = (*path, "ComputeResources", 0)
    if t.carry((*path, "Name"), (*to, "name")) is None:
        t.need((*to, "name"), "the file has no name for this queue")
    instance = (*to, "instance_type")
    if (
        t.carry((*resource, "InstanceType"), instance) is None
        and t.carry((*resource, "Instances", 0, "InstanceType"), instance) is None
    ):
        t.need(instance, "the file has no instance type for this queue")
    _counts(t, resource, to)
    _capacity(t, path, to)
    _placement_group(t, path, to)
    t.carry((*resource, "Efa", "Enabled"), (*to, "efa"))
    _scripts(t, path, to)
    _policies(t, path, to)
    for key in t.get(*path, "CustomSlurmSettings") or ():
        _parameter(t, (*path, "CustomSlurmSettings", key), (*to, "slurm_settings", key))
    for index in range(1, t.count(*path, "ComputeResources")):
        t.drop((*path, "ComputeResources", index), "a queue has one compute resource; make a separate queue for it")


def _counts(t: Translation, resource: Place, to: Place) -> None:
    least, most = t.get(*resource, "MinCount"), t.get(*resource, "MaxCount")
    if least and least == most:
        t.put((*resource, "MinCount"), (*to, "count"), least)
        t.put((*resource, "MaxCount"), (*to, "count"), most)
        return
    t.carry((*resource, "MinCount"), (*to, "min_count"))
    maximum: Place = (*to, "max_count")
    if t.carry((*resource, "MaxCount"), maximum) is None:
        set_at(t.settings, maximum, DEFAULT_MAX_COUNT)
        t.comments[maximum] = "ParallelCluster's default; the file has none"


def _capacity(t: Translation, path: Place, to: Place) -> None:
    kind = t.get(*path, "CapacityType") or "ONDEMAND"
    target: Place = ("CapacityReservationTarget", "CapacityReservationId")
    places = [(*path, "ComputeResources", 0, *target), (*path, *target)]
    reserved = [place for place in places if t.get(*place) is not None]
    if reserved or kind == "CAPACITY_BLOCK":
        spelled = RESERVATION_KINDS.get(kind, kind if is_placeholder(kind) else "on-demand")
        set_at(t.settings, (*to, "reservation", "kind"), spelled)
    if kind == "SPOT":
        t.put((*path, "CapacityType"), (*to, "spot"), True)
    elif reserved or kind == "CAPACITY_BLOCK":
        t.put((*path, "CapacityType"), (*to, "reservation", "kind"), spelled)
    elif kind == "ONDEMAND":
        t.imply((*path, "CapacityType"), "a queue is on demand unless it is spot or has a reservation")
    for place in reserved[:1]:
        t.carry(place, (*to, "reservation", "id"))
    for place in reserved[1:]:
        same = t.get(*place) == t.get(*reserved[0])
        decision = (Fate.IMPLIED, "the same again") if same else (Fate.NOT_CARRIED, "the compute resource has another")
        t.ledger.decide(place, *decision)
    if kind == "CAPACITY_BLOCK" and not reserved:
        t.need((*to, "reservation", "id"), "the id of the capacity block, cr-...")


def _placement_group(t: Translation, path: Place, to: Place) -> None:
    """Carry the placement group of the compute resource, else that of the queue."""
    setting: Place = (*to, "placement_group")
    for part in ((*path, "ComputeResources", 0), path):
        group: Place = (*part, "Networking", "PlacementGroup")
        table = t.get(*group)
        if not isinstance(table, dict):
            continue
        if setting[-1] in get_at(t.settings, to):
            t.drop(group, "the compute resource has another")
            continue
        name = next((key for key in ("Name", "Id") if key in table), None)
        if name and table.get("Enabled", True):
            t.carry((*group, name), setting)
            t.ledger.decide(group, Fate.CARRIED, "", setting)
        else:
            t.carry((*group, "Enabled"), setting)


def _storage(t: Translation) -> None:
    parts = [(("SharedStorage", index), t.get("SharedStorage", index)) for index in range(t.count("SharedStorage"))]
    tables = [(path, part) for path, part in parts if isinstance(part, dict)]
    main = _main_file_system(tables)
    for path, part in tables:
        known = MOUNT_TYPES.get(part.get("StorageType", ""))
        if path == main:
            _fsx(t, path, part)
        elif known and get_at(part, known[1:]) is not None:
            _mount(t, path, *known)
        elif part.get("StorageType") == "Ebs" and _mount_directory(part) == "/home":
            _home(t, path, part)
        else:
            t.drop(path, knowledge()["reasons"]["SharedStorage[]"])


def _mount_directory(part: dict[str, Any]) -> str:
    return "/" + str(part.get("MountDir", "")).strip("/")


def _main_file_system(parts: Sequence[tuple[Place, dict[str, Any]]]) -> Place | None:
    """Return the path of the FSx for Lustre at /fsx; without one, of the first that ParallelCluster would make."""
    lustre = [(path, part) for path, part in parts if part.get("StorageType") == "FsxLustre"]
    at_place = [path for path, part in lustre if _mount_directory(part) == FSX_MOUNT]
    managed = [path for path, part in lustre if get_at(part, ("FsxLustreSettings", "FileSystemId")) is None]
    return next(iter((*at_place, *managed)), None)


def _fsx(t: Translation, path: Place, part: dict[str, Any]) -> None:
    fsx: Place = ("storage", "fsx")
    t.imply((*path, "StorageType"), "Slipway's file system is FSx for Lustre")
    if _mount_directory(part) == FSX_MOUNT:
        t.imply((*path, "MountDir"), "Slipway mounts it there")
    else:
        t.drop((*path, "MountDir"), "Slipway mounts its file system at /fsx")
    table: Place = (*path, "FsxLustreSettings")
    if get_at(part, ("FsxLustreSettings", "FileSystemId")) is not None:
        t.carry((*table, "FileSystemId"), (*fsx, "file_system_id"))
        return
    deployment = str(t.get(*table, "DeploymentType") or "SCRATCH_2")
    compression = str(t.get(*table, "DataCompressionType") or "NONE")
    t.put((*table, "DeploymentType"), (*fsx, "deployment"), _spelled(deployment))
    t.carry((*table, "StorageCapacity"), (*fsx, "capacity_gib"))
    t.carry((*table, "PerUnitStorageThroughput"), (*fsx, "throughput_mb_s_per_tib"))
    t.put((*table, "DataCompressionType"), (*fsx, "compression"), _spelled(compression))
    for index in range(t.count(*table, "DataRepositoryAssociations")):
        _association(t, (*table, "DataRepositoryAssociations", index))


def _spelled(constant: str) -> str:
    """Return `PERSISTENT_2` as the settings write it; a placeholder is unchanged."""
    return constant if is_placeholder(constant) else constant.lower().replace("_", "-")


def _association(t: Translation, path: Place) -> None:
    match = BUCKET_URL.fullmatch(str(t.get(*path, "DataRepositoryPath") or ""))
    bucket = get_at(t.settings, ("storage", "bucket"))
    if not match or bucket not in (None, match[1]):
        t.drop(path, "all associations are with one bucket (storage.bucket), named as s3://BUCKET/PREFIX")
        return
    t.put((*path, "DataRepositoryPath"), ("storage", "bucket"), match[1])
    to: Place = ("storage", "associations", len(get_at(t.settings, ("storage", "associations")) or []))
    if t.carry((*path, "FileSystemPath"), (*to, "path")) is None:
        t.need((*to, "path"), "where on the file system the prefix is to appear")
    if match[2].strip("/"):
        set_at(t.settings, (*to, "prefix"), f"{match[2].rstrip('/')}/")
    for key, setting in (("AutoImportPolicy", "import_changes"), ("AutoExportPolicy", "export_changes")):
        t.put((*path, key), (*to, setting), bool(t.count(*path, key)))
    if t.get(*path, "BatchImportMetaDataOnCreate"):
        t.imply(
            (*path, "BatchImportMetaDataOnCreate"), "Slipway reads the bucket's names in when it makes the association"
        )
    t.imply((*path, "Name"), "Slipway names associations itself")


def _mount(t: Translation, path: Place, kind: str, part: str, key: str) -> None:
    to: Place = ("storage", "mounts", len(get_at(t.settings, ("storage", "mounts")) or []))
    directory = t.get(*path, "MountDir")
    value = directory if is_placeholder(directory) else _mount_directory(t.get(*path))
    t.put((*path, "MountDir"), (*to, "path"), value)
    t.put((*path, "StorageType"), (*to, "kind"), kind)
    t.put((*path, part, key), (*to, "id"), t.get(*path, part, key))


def _home(t: Translation, path: Place, part: dict[str, Any]) -> None:
    settings = part.get("EbsSettings", {})
    key, to = ("VolumeId", "volume_id") if "VolumeId" in settings else ("Size", "size_gib")
    if any(other in settings for other in ("SnapshotId", "Raid")) or settings.get(key) is None:
        t.drop(path, "an EBS home is a new volume with a size (storage.home.size_gib), or an existing one (volume_id)")
        return
    home: Place = ("storage", "home")
    for name in ("StorageType", "MountDir"):
        t.put((*path, name), (*home, "kind"), "ebs")
    t.carry((*path, "EbsSettings", key), (*home, to))


def _rest(t: Translation) -> None:
    """Decide what is left: Slipway writes it too, it is ParallelCluster's default, or it is not carried."""
    ours = _ours(t)
    for leaf in t.ledger.rest():
        value, written = t.ledger.leaves[leaf], get_at(ours, _aligned(leaf, t.data, ours))
        if value is None or (value == written and type(value) is type(written)):
            t.imply(leaf, "empty" if value is None else "Slipway writes it too")
        elif pattern(leaf) in knowledge()["defaults"] and value == knowledge()["defaults"][pattern(leaf)]:
            t.imply(leaf, "ParallelCluster's default")
        else:
            part, reason = _reason(leaf)
            if written is None:
                t.drop(part, reason or ("write out its value" if is_placeholder(value) else "no setting for it"))
            else:
                t.drop(leaf, ": ".join(filter(None, (f"Slipway writes {_shown(written)}", reason))))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(leaf: Place) -> tuple[Place, str]:
    """Return the longest part around `leaf` that has a reason, and the reason."""
    reasons = knowledge()["reasons"]
    for end in range(len(leaf), 0, -1):
        if pattern(leaf[:end]) in reasons:
            return leaf[:end], reasons[pattern(leaf[:end])]
    return leaf, ""


def _aligned(leaf: Place, data: dict[str, Any], ours: dict[str, Any]) -> Place:
    """Return the path of the same value in Slipway's configuration; shared storage is matched by directory."""
    if leaf[0] != "SharedStorage" or len(leaf) < 2:
        return leaf
    part = get_at(data, leaf[:2])
    directory = _mount_directory(part) if isinstance(part, dict) else ""
    for index, storage in enumerate(ours["SharedStorage"]):
        if (
            storage["MountDir"] == directory
            and isinstance(part, dict)
            and storage["StorageType"] == part.get("StorageType")
        ):
            return ("SharedStorage", index, *leaf[2:])
    return ("SharedStorage", -1, "nothing")


def _ours(t: Translation) -> dict[str, Any]:
    """Return what Slipway would write for a cluster of this shape. Unknown instance types count as GPU types."""
    types = [str(queue["instance_type"]) for queue in t.settings["queues"]]
    queues = [
        {"name": "any", "instance_type": name if name in INSTANCE_TYPES else "p5.48xlarge", "count": 1}
        for name in types
    ]
    mounts = get_at(t.settings, ("storage", "mounts")) or []
    stand_ins = [{**one, "path": f"/mount{number}", "id": "fs-00000000"} for number, one in enumerate(mounts)]
    home = {"home": {"kind": "ebs", "size_gib": 1}} if get_at(t.settings, ("storage", "home")) else {}
    parts = []
    for start in range(0, len(queues), MOST_QUEUES):  # a configuration of another tool may have more than ours
        some = {"queues": queues[start : start + MOST_QUEUES], "storage": {"mounts": stand_ins, **home}}
        settings = Settings.model_validate({**ANYWHERE, **some})
        parts.append(cluster_configuration(settings, placeholder_facts(settings)))
    ours = parts[0]
    ours["Scheduling"]["SlurmQueues"] = [queue for part in parts for queue in part["Scheduling"]["SlurmQueues"]]
    for table in (ours, ours["HeadNode"], *ours["Scheduling"]["SlurmQueues"]):
        for key in ("Tags", "Networking", "CustomActions", "Iam"):  # ids and stand-ins, carried one by one
            table.pop(key, None)
    for part in ours["SharedStorage"]:
        if part["MountDir"].startswith("/mount"):
            part["MountDir"] = mounts[int(part["MountDir"].removeprefix("/mount"))]["path"]
    return ours


@cache
def _export_placeholders() -> frozenset[str]:
    """Return the ids of zeros that an export before a deployment writes."""
    queue = {"name": "any", "instance_type": "p5.48xlarge", "count": 1}
    facts = placeholder_facts(Settings.model_validate({**ANYWHERE, "queues": [queue]}))
    return frozenset(
        (facts.head_node_subnet_id, facts.compute_subnet_id, facts.node_security_group_id, facts.file_system_id)
    )
