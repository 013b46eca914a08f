"""FSx for Lustre with data repository associations, and S3 bucket policies.

FSx: moto keeps file systems but gives them ids of 11 characters (pcluster refuses those), no life cycle, no mount name,
no associations and no rules. The rules below are those of the FSx for Lustre user guide and API reference, as gathered
in the project's facts: capacity 1200 or a multiple of 2400 GiB; throughput by deployment type; at most 8 associations a
file system; no overlapping paths; none on SCRATCH_1; no inline import or export path on PERSISTENT_2. A file system
whose security groups do not permit Lustre at the moment of its creation is refused in the words of aws-parallelcluster
issue 6181 (repaired there by PR 6342).
"""

from __future__ import annotations

import ipaddress
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.ec2.models import ec2_backends
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.fsx.exceptions import FileSystemNotFound
from moto.fsx.models import FileSystem, FSxBackend, fsx_backends
from moto.fsx.responses import FSxResponse
from moto.s3.models import s3_backends

from rehearsal.cloud.clients import Clients
from rehearsal.cloud.network import ApiType
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, PARTITION, ResourceRequest, ResourceResult, ResourceType

MAX_ASSOCIATIONS = 8
GONE_WITHIN_S = 10.0
DELETING_S = 0.2  # how long a deletion takes here; FSx needs minutes
#: MB/s per TiB by deployment type (FSx API reference, PerUnitStorageThroughput).
_THROUGHPUT: Mapping[str, tuple[int, ...]] = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
_SCRATCH = ("SCRATCH_1", "SCRATCH_2")
_MOUNT_NAME = "fsxmnt01"
_LUSTRE_PORTS = (988, 1018, 1023)

_original_init = FileSystem.__init__
_original_to_dict = FileSystem.to_dict
_original_delete = FSxBackend.delete_file_system


def _bad_request(message: str) -> Exception:
    error: Exception = JsonRESTError("BadRequest", message)
    return error


def _association_not_found(association_id: str) -> Exception:
    code = "DataRepositoryAssociationNotFound"
    error: Exception = JsonRESTError(code, f"Data repository association {association_id} not found")
    return error


def check_lustre(capacity_gib: int, lustre: Mapping[str, Any]) -> None:
    """Raise what AWS answers to a Lustre file system that cannot be: wrong capacity, throughput or repository path."""
    deployment = lustre.get("DeploymentType", "SCRATCH_1")
    if capacity_gib != 1200 and (capacity_gib <= 0 or capacity_gib % 2400):
        raise _bad_request(f"StorageCapacity {capacity_gib} GiB is invalid: it must be 1200 or a multiple of 2400")
    throughput = lustre.get("PerUnitStorageThroughput")
    if deployment in _SCRATCH and throughput is not None:
        raise _bad_request(f"PerUnitStorageThroughput is not allowed for deployment type {deployment}")
    allowed = _THROUGHPUT.get(deployment, ())
    if allowed and (throughput is None or int(throughput) not in allowed):
        raise _bad_request(f"PerUnitStorageThroughput {throughput} is invalid for {deployment}: one of {list(allowed)}")
    if deployment == "PERSISTENT_2" and {"ImportPath", "ExportPath"} & set(lustre):
        raise _bad_request("PERSISTENT_2 does not take ImportPath or ExportPath: use a data repository association")


def check_network(region: str, subnet_ids: Sequence[str], group_ids: Sequence[str]) -> None:
    """Raise ResourceFailed if the groups do not let Lustre's ports pass among themselves, in and out, by now."""
    ec2 = ec2_backends[ACCOUNT][region]
    groups = [group for group in (ec2.get_security_group_from_id(id) for id in group_ids) if group]
    subnet = ipaddress.ip_network(ec2.get_subnet(subnet_ids[0]).cidr_block)
    for direction in ("ingress_rules", "egress_rules"):
        rules = [rule for group in groups for rule in getattr(group, direction)]
        if groups and not all(any(_permits(rule, port, group_ids, subnet) for rule in rules) for port in _LUSTRE_PORTS):
            raise ResourceFailed(
                "The file system cannot be created because the default security group in the subnet provided or the"
                " provided security groups do not permit Lustre LNET network traffic on port 988 (Service: AmazonFSx;"
                " Status Code: 400; Error Code: InvalidNetworkSettings)"
            )


def _permits(rule: SecurityGroupRule, port: int, group_ids: Sequence[str], subnet: Any) -> bool:
    is_open = rule.ip_protocol == "-1" or (
        rule.ip_protocol == "tcp" and int(rule.from_port or 0) <= port <= int(rule.to_port or 0)
    )
    if not is_open:
        return False
    if (rule.source_group or {}).get("GroupId") in group_ids:
        return True
    cidr = (rule.ip_range or {}).get("CidrIp")
    return cidr is not None and subnet.subnet_of(ipaddress.ip_network(cidr))


def _init(self: FileSystem, *arguments: Any, **keywords: Any) -> None:
    backend = keywords["backend"]
    lustre = keywords.get("lustre_configuration")
    if keywords["file_system_type"] == "LUSTRE":
        check_lustre(int(keywords["storage_capacity"]), lustre or {})
    wanted_tags, keywords["tags"] = keywords.get("tags"), None
    _original_init(self, *arguments, **keywords)
    self.file_system_id = f"fs-{uuid.uuid4().hex[:17]}"
    self.dns_name = f"{self.file_system_id}.fsx.{backend.region_name}.amazonaws.com"
    prefix = f"arn:{PARTITION}:fsx:{backend.region_name}:{backend.account_id}"
    self.resource_arn = f"{prefix}:file-system/{self.file_system_id}"
    self.creation_time = time.time()
    self.network_interface_ids = _network_interfaces(self)
    if wanted_tags:
        backend.tagger.tag_resource(self.resource_arn, wanted_tags)


def _network_interfaces(system: FileSystem) -> list[str]:
    """An interface in each subnet with the file system's groups: ParallelCluster's validators look at their rules."""
    ec2 = ec2_backends[ACCOUNT][system.backend.region_name]
    groups = list(system.security_group_ids or [])
    made = [
        ec2.create_network_interface(
            ec2.get_subnet(subnet_id), None, group_ids=groups, description=system.file_system_id
        )
        for subnet_id in system.subnet_ids
    ]
    return [interface.id for interface in made]


def _to_dict(self: FileSystem) -> dict[str, Any]:
    shape: dict[str, Any] = _original_to_dict(self)
    subnets = ec2_backends[ACCOUNT][self.backend.region_name].describe_subnets(subnet_ids=list(self.subnet_ids))
    shape.update(
        {"CreationTime": self.creation_time, "OwnerId": ACCOUNT, "Lifecycle": "AVAILABLE", "VpcId": subnets[0].vpc_id}
    )
    shape["NetworkInterfaceIds"] = self.network_interface_ids
    shape["FileSystemTypeVersion"] = "2.15"
    if self.file_system_type == "LUSTRE":
        lustre = dict(shape.get("LustreConfiguration") or {})
        mount = "fsx" if lustre.get("DeploymentType", "SCRATCH_1") == "SCRATCH_1" else _MOUNT_NAME
        shape["LustreConfiguration"] = {"DeploymentType": "SCRATCH_1", "MountName": mount, **lustre}
    shape.update(self.__dict__.get("facts", {}))  # what tests say of one that is not well
    return shape


def _delete(self: FSxBackend, file_system_id: str, *arguments: Any, **keywords: Any) -> Any:
    """DELETING for a while, in which its interfaces still hold subnet and security group; then it is gone."""
    system = self.file_systems.get(file_system_id)
    if system is None:
        return _original_delete(self, file_system_id, *arguments, **keywords)
    system.facts = {**system.__dict__.get("facts", {}), "Lifecycle": "DELETING"}
    _later(lambda: _delete_finally(self, system))
    return file_system_id, "DELETING", None, {"FinalBackUpId": "", "FinalBackUpTags": []}, None


def _delete_finally(backend: FSxBackend, system: FileSystem) -> None:
    if backend.file_systems.pop(system.file_system_id, None) is None:  # a reset was faster
        return
    for association_id, item in list(_associations(backend).items()):
        if item["FileSystemId"] == system.file_system_id:
            del _associations(backend)[association_id]
    for interface_id in system.network_interface_ids:
        ec2_backends[ACCOUNT][backend.region_name].delete_network_interface(interface_id)


def _later(work: Callable[[], object]) -> None:
    timer = threading.Timer(DELETING_S, work)
    timer.daemon = True
    timer.start()


def _describe(self: FSxResponse) -> str:
    wanted = json.loads(self.body).get("FileSystemIds") or []
    systems = dict(self.fsx_backend.file_systems)  # as of now: a deletion ends in a thread of its own
    for file_system_id in wanted:
        if file_system_id not in systems:
            raise FileSystemNotFound(file_system_id)
    found = [system.to_dict() for key, system in systems.items() if not wanted or key in wanted]
    return json.dumps({"FileSystems": found})


def _associations(backend: FSxBackend) -> dict[str, dict[str, Any]]:
    """The associations of a region, kept on moto's backend so that they vanish with it on a reset."""
    kept: dict[str, dict[str, Any]] = backend.__dict__.setdefault("associations", {})
    return kept


def _overlap(one: str, other: str) -> bool:
    first, second = (f"{path.rstrip('/')}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


def check_association(backend: FSxBackend, wanted: Mapping[str, Any]) -> None:
    """Raise what AWS answers to an association that cannot be."""
    system = backend.file_systems.get(wanted["FileSystemId"])
    if system is None:
        raise FileSystemNotFound(wanted["FileSystemId"])
    deployment = (system.lustre_configuration or {}).get("DeploymentType", "SCRATCH_1")
    if system.file_system_type != "LUSTRE" or deployment == "SCRATCH_1":
        raise _bad_request(f"Data repository associations are not supported on {system.file_system_type} {deployment}")
    path, repository = wanted["FileSystemPath"], wanted["DataRepositoryPath"]
    if not path.startswith("/"):
        raise _bad_request(f"FileSystemPath {path} must start with /")
    found = re.fullmatch(r"s3://([a-z0-9.-]{3,63})(/.*)?", repository)
    if not found:
        raise _bad_request(f"DataRepositoryPath {repository} must be s3://bucket/prefix")
    known = list(_associations(backend).values())
    siblings = [item for item in known if item["FileSystemId"] == wanted["FileSystemId"]]
    if len(siblings) >= MAX_ASSOCIATIONS:
        raise _bad_request(f"At most {MAX_ASSOCIATIONS} data repository associations per file system")
    for item in siblings:
        for key in ("FileSystemPath", "DataRepositoryPath"):
            if _overlap(item[key], wanted[key]):
                raise _bad_request(f"{key} {wanted[key]} overlaps {item[key]} of {item['AssociationId']}")
    if found.group(1) not in s3_backends[ACCOUNT][PARTITION].buckets:
        raise _bad_request(f"Unable to validate access to the S3 bucket {found.group(1)}: it does not exist")


def _create_association(self: FSxResponse) -> str:
    wanted = json.loads(self.body)
    backend = self.fsx_backend
    check_association(backend, wanted)
    association_id = f"dra-{uuid.uuid4().hex[:17]}"
    prefix = f"arn:{PARTITION}:fsx:{self.region}:{ACCOUNT}"
    made = {
        "AssociationId": association_id,
        "ResourceARN": f"{prefix}:association/{wanted['FileSystemId']}/{association_id}",
        "FileSystemId": wanted["FileSystemId"],
        "Lifecycle": "AVAILABLE",
        "FileSystemPath": wanted["FileSystemPath"],
        "DataRepositoryPath": wanted["DataRepositoryPath"],
        "BatchImportMetaDataOnCreate": bool(wanted.get("BatchImportMetaDataOnCreate", False)),
        "ImportedFileChunkSize": wanted.get("ImportedFileChunkSize", 1024),
        "S3": wanted.get("S3", {}),
        "Tags": wanted.get("Tags", []),
        "CreationTime": time.time(),
    }
    _associations(backend)[association_id] = made
    return json.dumps({"Association": made})


def _describe_associations(self: FSxResponse) -> str:
    body = json.loads(self.body)
    filters = {item["Name"]: item["Values"] for item in body.get("Filters", [])}
    known = dict(_associations(self.fsx_backend))  # as of now: a deletion ends in a thread of its own
    for association_id in body.get("AssociationIds", []):
        if association_id not in known:
            raise _association_not_found(association_id)
    wanted = body.get("AssociationIds") or list(known)
    systems = filters.get("file-system-id")
    found = [known[key] for key in wanted if systems is None or known[key]["FileSystemId"] in systems]
    return json.dumps({"Associations": found})


def _delete_association(self: FSxResponse) -> str:
    association_id = json.loads(self.body)["AssociationId"]
    known = _associations(self.fsx_backend)
    if association_id not in known:
        raise _association_not_found(association_id)
    known[association_id]["Lifecycle"] = "DELETING"
    _later(lambda: known.pop(association_id, None))
    return json.dumps({"AssociationId": association_id, "Lifecycle": "DELETING", "DeleteDataInFileSystem": False})


def install_fsx() -> None:
    """Put the rules, ids, life cycle and associations into moto's FSx."""
    FileSystem.__init__ = _init
    FileSystem.to_dict = _to_dict
    FSxBackend.delete_file_system = _delete
    FSxResponse.describe_file_systems = _describe
    FSxResponse.create_data_repository_association = _create_association
    FSxResponse.describe_data_repository_associations = _describe_associations
    FSxResponse.delete_data_repository_association = _delete_association


_FILE_SYSTEM_KEYS = (
    "FileSystemType",
    "StorageType",
    "SubnetIds",
    "SecurityGroupIds",
    "KmsKeyId",
    "FileSystemTypeVersion",
)
_BOOLEANS = ("CopyTagsToBackups", "EfaEnabled")
_INTEGERS = ("PerUnitStorageThroughput", "ImportedFileChunkSize", "AutomaticBackupRetentionDays", "ThroughputCapacity")


def _typed(lustre: Mapping[str, Any]) -> dict[str, Any]:
    """CloudFormation takes "250" and "true" for numbers and booleans; the API does not."""
    typed = dict(lustre)
    typed.update({key: int(typed[key]) for key in _INTEGERS if key in typed})
    typed.update({key: str(typed[key]).lower() == "true" for key in _BOOLEANS if key in typed})
    return typed


def _file_system(fsx: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    check_network(request.region, properties["SubnetIds"], properties.get("SecurityGroupIds", []))
    arguments = {key: properties[key] for key in _FILE_SYSTEM_KEYS if key in properties}
    own = [{"Key": item["Key"], "Value": str(item["Value"])} for item in properties.get("Tags", [])]
    made = fsx.create_file_system(
        StorageCapacity=int(properties["StorageCapacity"]),
        LustreConfiguration=_typed(properties.get("LustreConfiguration", {})),
        **arguments,
        **({"Tags": own} if own else {}),
    )["FileSystem"]
    return _file_system_result(made)


def _file_system_result(made: Mapping[str, Any]) -> ResourceResult:
    attributes = {
        "DNSName": made["DNSName"],
        "LustreMountName": made["LustreConfiguration"]["MountName"],
        "ResourceARN": made["ResourceARN"],
        "FileSystemId": made["FileSystemId"],
    }
    return ResourceResult(made["FileSystemId"], attributes)


#: Immutable in CloudFormation's resource specification, as the CDK CLI 2.1148.1 has it (db.json.gz). FSx itself
#: changes the throughput in place (API reference, UpdateFileSystem): CloudFormation does not ask it to.
_REPLACING_LUSTRE = (
    "CopyTagsToBackups",
    "DeploymentType",
    "DriveCacheType",
    "ExportPath",
    "ImportPath",
    "ImportedFileChunkSize",
    "PerUnitStorageThroughput",
)


class FileSystemType(ApiType):
    """Some of Lustre's properties change in place."""

    def update(self, request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Replace for an immutable property of Lustre, else as every type does."""
        before, after = (
            {key: str(item.get("LustreConfiguration", {}).get(key)) for key in _REPLACING_LUSTRE}
            for item in (request.old_properties, request.properties)
        )
        return super().update(request, current) if before == after else self.create(request)


def _grow(fsx: Any, request: ResourceRequest) -> ResourceResult:
    """FSx grows and changes the compression in place; it refuses to shrink."""
    system = fsx_backends[ACCOUNT][request.region].file_systems[request.physical_id]
    capacity = int(request.properties["StorageCapacity"])
    if capacity < int(system.storage_capacity):
        raise ResourceFailed(f"StorageCapacity {capacity} must be greater than the current {system.storage_capacity}")
    lustre = _typed(request.properties.get("LustreConfiguration", {}))
    try:
        check_lustre(capacity, lustre)
    except JsonRESTError as error:
        raise ResourceFailed(str(error.message)) from None
    system.storage_capacity = capacity
    system.lustre_configuration = {**system.lustre_configuration, **lustre}
    made = fsx.describe_file_systems(FileSystemIds=[request.physical_id])["FileSystems"][0]
    return _file_system_result(made)


def _volume(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    arguments = {key: properties[key] for key in ("KmsKeyId", "SnapshotId", "VolumeType") if key in properties}
    made = ec2.create_volume(
        AvailabilityZone=properties["AvailabilityZone"],
        Size=int(properties["Size"]),
        Encrypted=str(properties.get("Encrypted", False)).lower() == "true",
        TagSpecifications=[{"ResourceType": "volume", "Tags": properties["Tags"]}] if properties.get("Tags") else [],
        **arguments,
    )
    return ResourceResult(made["VolumeId"], {"VolumeId": made["VolumeId"]})


def _grow_volume(ec2: Any, request: ResourceRequest) -> ResourceResult:
    """EBS grows in place. EC2 API reference, ModifyVolume: the target size cannot be less than the current one."""
    volume = ec2.describe_volumes(VolumeIds=[request.physical_id])["Volumes"][0]
    size = int(request.properties["Size"])
    if size < volume["Size"]:
        raise ResourceFailed(f"New size cannot be smaller than existing size (InvalidParameterValue): {size} GiB")
    if size > volume["Size"]:
        ec2.modify_volume(VolumeId=request.physical_id, Size=size)
    return ResourceResult(request.physical_id, {"VolumeId": request.physical_id})


_ASSOCIATION_KEYS = ("FileSystemId", "FileSystemPath", "DataRepositoryPath", "S3")


def _association(fsx: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    arguments: dict[str, Any] = {key: properties[key] for key in _ASSOCIATION_KEYS if key in properties}
    if "BatchImportMetaDataOnCreate" in properties:
        arguments["BatchImportMetaDataOnCreate"] = str(properties["BatchImportMetaDataOnCreate"]).lower() == "true"
    if "ImportedFileChunkSize" in properties:
        arguments["ImportedFileChunkSize"] = int(properties["ImportedFileChunkSize"])
    made = fsx.create_data_repository_association(**arguments)["Association"]
    return ResourceResult(made["AssociationId"], {key: made[key] for key in ("AssociationId", "ResourceARN")})


def _change_association(_: Any, request: ResourceRequest) -> ResourceResult:
    """The policies of import and export change in place."""
    association = _associations(fsx_backends[ACCOUNT][request.region])[request.physical_id]
    association["S3"] = request.properties.get("S3", {})
    return ResourceResult(request.physical_id, {key: association[key] for key in ("AssociationId", "ResourceARN")})


def _remove_file_system(fsx: Any, _: ResourceRequest, file_system_id: str) -> None:
    """As CloudFormation does: wait until it is gone, because the security group cannot go before."""
    fsx.delete_file_system(FileSystemId=file_system_id)
    _wait(lambda: file_system_id in (item["FileSystemId"] for item in fsx.describe_file_systems()["FileSystems"]))


def _remove_association(fsx: Any, _: ResourceRequest, association_id: str) -> None:
    fsx.delete_data_repository_association(AssociationId=association_id)
    describe = fsx.describe_data_repository_associations
    _wait(lambda: association_id in (item["AssociationId"] for item in describe()["Associations"]))


def _wait(is_there: Callable[[], bool]) -> None:
    ends = time.monotonic() + DELETING_S + GONE_WITHIN_S
    while is_there() and time.monotonic() < ends:
        time.sleep(DELETING_S / 4)


def _bucket_policy(s3: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    s3.put_bucket_policy(Bucket=properties["Bucket"], Policy=json.dumps(properties["PolicyDocument"]))
    return ResourceResult(properties["Bucket"], {})


def storage_types(clients: Clients) -> dict[str, ResourceType]:
    """The types of this module by name."""
    return {
        "AWS::FSx::FileSystem": FileSystemType(
            clients,
            "fsx",
            _file_system,
            _remove_file_system,
            change=_grow,
            replacing=(
                "BackupId",
                "FileSystemType",
                "FileSystemTypeVersion",
                "KmsKeyId",
                "SecurityGroupIds",
                "StorageType",
                "SubnetIds",
            ),
        ),
        "AWS::FSx::DataRepositoryAssociation": ApiType(
            clients,
            "fsx",
            _association,
            _remove_association,
            change=_change_association,
            replacing=("BatchImportMetaDataOnCreate", "DataRepositoryPath", "FileSystemId", "FileSystemPath"),
        ),
        "AWS::EC2::Volume": ApiType(
            clients,
            "ec2",
            _volume,
            lambda c, _, i: c.delete_volume(VolumeId=i),
            change=_grow_volume,
            replacing=("AvailabilityZone", "Encrypted", "KmsKeyId", "SnapshotId"),
        ),
        "AWS::S3::BucketPolicy": ApiType(
            clients, "s3", _bucket_policy, lambda c, _, i: c.delete_bucket_policy(Bucket=i), change=_bucket_policy
        ),
    }
