"""The settings: what one file says about a cluster, validated and frozen.

``load_settings(file)`` gives a ``Settings`` or raises ``SettingsError`` with every fault at once. The rules that join
several fields stand in ``slipway.rules``; the rules of a single field stand with the field.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from slipway.errors import Fault, SettingsError, UsageError
from slipway.faults import faults_of
from slipway.instances import INSTANCE_TYPES, InstanceType
from slipway.rules import rule_faults
from slipway.source import PathKey, Source, read_source

PARALLELCLUSTER_VERSION = "3.16.1"
"""The ParallelCluster release the cluster configuration, the provider template and the images are made for."""

SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = re.compile(r"^([0-9]{1,16})\s*(|B|KiB|MiB|GiB|TiB)$")
GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,254}", re.ASCII)
SLURM_VALUE = re.compile(
    r"[A-Za-z0-9_.,:;/=+@%()\[\] -]{1,255}", re.ASCII
)  # nothing that ends a line or a word of slurm.conf
MAX_SIZE = 1 << 50  # bytes; what acceptance takes
PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")  # VPC user guide: RFC 1918 and 6598


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise PydanticCustomError("size", "must be a size such as 16MiB or a number of bytes")
    match = SIZE.match(str(value))
    if match is None:
        raise PydanticCustomError("size", "must be a size such as 16MiB (B, KiB, MiB, GiB, TiB) or a number of bytes")
    return int(match[1]) * SIZE_UNITS[match[2]]


def _instance_type(value: Any) -> Any:
    if isinstance(value, str) and value not in INSTANCE_TYPES:
        raise PydanticCustomError(
            "instance_type", "is not an instance type that Slipway knows", {"choices": sorted(INSTANCE_TYPES)}
        )
    return value


def _cidr(value: Any) -> Any:
    try:
        network = ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError:
        raise PydanticCustomError(
            "cidr", "must be an IPv4 network such as 10.0.0.0/16, with no host bits set"
        ) from None
    return str(network)


def _matches(pattern: str, rule: str) -> BeforeValidator:
    expression = re.compile(pattern, re.ASCII)

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise PydanticCustomError("pattern", rule)
        return value

    return BeforeValidator(check)


def _private_cidr(value: Any) -> Any:
    network = ipaddress.IPv4Network(_cidr(value))
    if not any(network.subnet_of(ipaddress.IPv4Network(private)) for private in PRIVATE_RANGES):
        raise PydanticCustomError("cidr", f"must lie in a private range: {', '.join(PRIVATE_RANGES)}")
    return str(network)


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("number", "must be a number")
    return float(value)


def _placement_group(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and GROUP_NAME.fullmatch(value)):
        return value
    raise PydanticCustomError("placement_group", "must be true, false or the name of an existing placement group")


def _slurm_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not SLURM_VALUE.fullmatch(str(value)):
        raise PydanticCustomError("slurm_value", "must be a whole number, or text of one line without # and quotes")
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "must be a whole number")
    return value


Size = Annotated[int, BeforeValidator(_size), Field(gt=0, le=MAX_SIZE)]
GbPerS = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1e6, allow_inf_nan=False)]
PrivateCidr = Annotated[str, BeforeValidator(_private_cidr)]
InstanceTypeName = Annotated[str, BeforeValidator(_instance_type)]
Cidr = Annotated[str, BeforeValidator(_cidr)]
ClusterName = Annotated[
    str,
    _matches(
        r"[a-z][a-z0-9-]{0,38}[a-z0-9]",
        "must be 2 to 40 characters: a lower-case letter, then letters, digits or -, no - last",
    ),
]
QueueName = Annotated[
    str,
    _matches(
        r"[a-z][a-z0-9-]{0,23}[a-z0-9]",
        "must be 2 to 25 characters: a lower-case letter, then letters, digits or -, no - last",
    ),
]
Region = Annotated[str, _matches(r"[a-z]{2}(-[a-z]+)+-\d", "must be an AWS region such as us-east-1")]
Zone = Annotated[str, _matches(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", "must be an availability zone such as us-east-1a")]
VpcId = Annotated[str, _matches(r"vpc-([0-9a-f]{8}|[0-9a-f]{17})", "must be a VPC id such as vpc-0123456789abcdef0")]
SubnetId = Annotated[
    str, _matches(r"subnet-([0-9a-f]{8}|[0-9a-f]{17})", "must be a subnet id such as subnet-0123456789abcdef0")
]
ReservationId = Annotated[
    str, _matches(r"cr-([0-9a-f]{8}|[0-9a-f]{17})", "must be a capacity reservation id such as cr-0123456789abcdef0")
]
SecurityGroupId = Annotated[
    str, _matches(r"sg-([0-9a-f]{8}|[0-9a-f]{17})", "must be a security group id such as sg-0123456789abcdef0")
]
FileSystemId = Annotated[
    str, _matches(r"fs-[0-9a-f]{17}", "must be the id of an FSx file system such as fs-0123456789abcdef0")
]
PolicyArn = Annotated[
    str,
    _matches(
        r"arn:aws[a-z-]*:iam::(aws|\d{12}):policy/[A-Za-z0-9_+=,.@/-]{1,512}",
        "must be the ARN of a managed policy such as arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    ),
]
ScriptUrl = Annotated[
    str,
    _matches(
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9_.=/-]{1,512}", "must be a script in S3: s3://BUCKET/KEY"
    ),
]
ScriptArgument = Annotated[
    str, _matches(r"[^\s\x00-\x1f'\"`$\\]{1,255}", "must be text without blanks, quotes, $ and \\")
]
MountPath = Annotated[
    str,
    _matches(r"(/(?!\.\.?(/|$))[A-Za-z0-9_.-]+)+", "must be an absolute path on the nodes such as /shared"),
]
MountId = Annotated[
    str,
    _matches(
        r"(fs-([0-9a-f]{8}|[0-9a-f]{17})|fsvol-[0-9a-f]{17}|fc-[0-9a-f]{17})",
        "must be the id of a file system (fs-...), an FSx volume (fsvol-...) or a file cache (fc-...)",
    ),
]
SlurmKey = Annotated[
    str, _matches(r"[A-Za-z][A-Za-z0-9]{0,63}", "must be a parameter of slurm.conf such as SlurmdTimeout")
]
SlurmValue = Annotated[int | str, BeforeValidator(_slurm_value)]
SlurmParameters = dict[SlurmKey, SlurmValue]
HostName = Annotated[
    str, _matches(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "must be a host name or an address")
]
DatabaseUser = Annotated[str, _matches(r"[A-Za-z0-9_]{1,32}", "must be 1 to 32 letters, digits or _")]
DatabaseName = Annotated[str, _matches(r"[0-9a-z_]{1,64}", "must be 1 to 64 lower-case letters, digits or _")]
TagKey = Annotated[
    str,
    _matches(
        r"(?!aws:)[A-Za-z0-9 _.:/=+@-]{1,128}", "must be a tag key of 1 to 128 characters, not starting with aws:"
    ),
]
TagValue = Annotated[str, _matches(r"[A-Za-z0-9 _.:/=+@-]{0,256}", "must be a tag value of at most 256 characters")]
PlacementGroup = Annotated[bool | str, BeforeValidator(_placement_group)]
KeyPair = Annotated[str, _matches(r"[A-Za-z0-9 ._@()+=-]{1,255}", "must be the name of an EC2 key pair")]
BucketName = Annotated[
    str,
    _matches(
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "must be an S3 bucket name: 3 to 63 lower-case letters, digits, dots or -"
    ),
]
SecretArn = Annotated[
    str,
    _matches(
        r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]+",
        "must be the ARN of a Secrets Manager secret, never the secret itself",
    ),
]
Email = Annotated[str, _matches(r"[^@\s]+@[^@\s]+\.[^@\s]+", "must be an e-mail address")]
ImageUri = Annotated[
    str,
    _matches(
        r"docker://([a-z0-9.-]+(:\d+)?[#/])?[a-z0-9._/-]+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?",
        "must be an image such as docker://nvcr.io#nvidia/pytorch:24.01-py3",
    ),
]
FsxPath = Annotated[
    str,
    _matches(
        r"/((?!\.\.?(/|$))[A-Za-z0-9_.-]+(/(?!\.\.?(/|$))[A-Za-z0-9_.-]+)*)?",
        "must be an absolute path on the file system such as /datasets",
    ),
]
Prefix = Annotated[str, _matches(r"([A-Za-z0-9!_.*'()-]+/)*", "must be an S3 prefix ending in /, such as datasets/")]
NcclTag = Annotated[str, _matches(r"v\d+\.\d+\.\d+-\d+", "must be an NCCL release tag such as v2.28.7-1")]
OfiTag = Annotated[str, _matches(r"v\d+\.\d+\.\d+(-aws)?", "must be an aws-ofi-nccl release tag such as v1.17.2-aws")]
OneLine = Annotated[str, _matches(r"[^\n]{1,300}", "must be one line of 1 to 300 characters")]
Mirror = Annotated[str, _matches(r"(s3|https)://[A-Za-z0-9./_:-]+", "must be an s3:// or https:// prefix")]


class Part(BaseModel):
    """A part of the settings: frozen, unknown keys are faults, and text is never turned into numbers or booleans."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


LIST = Field(strict=False)
"""YAML has lists where the frozen settings have tuples."""


class Network(Part):
    """A new VPC (``cidr``) or an existing one (the three ids, and the nodes' security group if there is one)."""

    cidr: PrivateCidr | None = None
    vpc_id: VpcId | None = None
    head_node_subnet_id: SubnetId | None = None
    compute_subnet_id: SubnetId | None = None
    security_group_id: SecurityGroupId | None = None

    @property
    def is_new(self) -> bool:
        """Whether Slipway makes the VPC."""
        return self.vpc_id is None


class Script(Part):
    """A bootstrap action of the site, run after Slipway's own; it has to end within ParallelCluster's time-out."""

    url: ScriptUrl
    arguments: Annotated[tuple[ScriptArgument, ...], LIST] = ()


class HeadNode(Part):
    """The head node: Slurm's controller, Prometheus, and where acceptance runs."""

    instance_type: InstanceTypeName = "m5.8xlarge"
    root_volume_gib: int = Field(200, ge=45, le=16384)  # ParallelCluster's images need 45 GiB
    key_pair: KeyPair | None = None
    ssh_from: Cidr | None = None
    security_group_ids: Annotated[tuple[SecurityGroupId, ...], LIST] = ()
    scripts: Annotated[tuple[Script, ...], LIST] = ()
    policy_arns: Annotated[tuple[PolicyArn, ...], LIST] = ()


class Reservation(Part):
    """An EC2 capacity reservation of either kind, paid for whether it runs or not."""

    kind: Literal["capacity-block", "on-demand"]
    id: ReservationId


class Queue(Part):
    """A Slurm partition of one instance type. After loading ``min_count`` and ``max_count`` are always filled."""

    name: QueueName
    instance_type: InstanceTypeName
    count: int | None = Field(None, ge=1, le=1000)
    min_count: int = Field(0, ge=0, le=1000)
    max_count: int = Field(0, ge=0, le=1000)
    reservation: Reservation | None = None
    spot: bool = False
    placement_group: PlacementGroup = False  # true: one of the queue's own; a name: one that exists
    efa: bool = False
    scripts: Annotated[tuple[Script, ...], LIST] = ()
    policy_arns: Annotated[tuple[PolicyArn, ...], LIST] = ()
    slurm_settings: SlurmParameters = {}

    @model_validator(mode="before")
    @classmethod
    def _fill_counts(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        has_range = "min_count" in data or "max_count" in data
        if "count" in data and has_range:
            raise PydanticCustomError("counts", "has both count and min_count/max_count; give count, or the other two")
        if "count" not in data and "max_count" not in data:
            raise PydanticCustomError("counts", "needs count (static nodes) or max_count (nodes that come and go)")
        if isinstance(data.get("count"), int) and data["count"] >= 1:
            return {**data, "min_count": data["count"], "max_count": data["count"]}
        return data

    @property
    def instance(self) -> InstanceType:
        """The facts of the queue's instance type."""
        return INSTANCE_TYPES[self.instance_type]


class Fsx(Part):
    """FSx for Lustre at /fsx: a new file system, or an existing one by its id alone.

    Capacity in GiB; throughput in MB/s per TiB (persistent types only).
    """

    file_system_id: FileSystemId | None = None
    deployment: Literal["persistent-2", "persistent-1", "scratch-2", "scratch-1"] = "persistent-2"
    capacity_gib: int = Field(4800, ge=1200, le=10**7)  # quotas end far below
    throughput_mb_s_per_tib: int | None = None
    compression: Literal["lz4", "none"] = "lz4"


class Association(Part):
    """A data repository association: ``path`` on the file system mirrors ``prefix`` of the bucket."""

    path: FsxPath
    prefix: Prefix = ""
    import_changes: bool = True
    export_changes: bool = False


class Home(Part):
    """/home: on the head node's root volume, or on an EBS volume of its own (GiB)."""

    kind: Literal["head-node", "ebs"] = "head-node"
    size_gib: int | None = Field(None, ge=1, le=16384)


class Mount(Part):
    """A file system that exists, mounted on every node at ``path``."""

    path: MountPath
    kind: Literal["fsx-lustre", "fsx-openzfs", "fsx-ontap", "file-cache", "efs"]
    id: MountId


class Storage(Part):
    """The shared file system, the bucket behind it, /home, and what else is mounted."""

    fsx: Fsx = Fsx(throughput_mb_s_per_tib=250)
    bucket: BucketName | None = None
    associations: Annotated[tuple[Association, ...], LIST] = ()
    home: Home = Home()
    mounts: Annotated[tuple[Mount, ...], LIST] = ()


class Observability(Part):
    """Amazon Managed Prometheus and Grafana, log retention in days, and where alerts go."""

    prometheus: bool = True
    grafana: bool = False  # it needs IAM Identity Center in the account
    retention_days: Annotated[
        Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653],
        BeforeValidator(_no_truth_value),
    ] = 30
    alert_email: Email | None = None


class Nccl(Part):
    """NCCL from the container image, or built once on /fsx and shared; and which environment variables are set."""

    source: Literal["image", "shared"] = "image"
    nccl_version: NcclTag = "v2.28.7-1"
    ofi_version: OfiTag = "v1.17.2-aws"
    environment: Literal["recommended", "legacy"] = "recommended"


class Database(Part):
    """Slurm's accounting in a MySQL database of the site; the secret holds the password of ``user``."""

    host: HostName
    port: int = Field(3306, ge=1, le=65535)
    user: DatabaseUser
    password_secret_arn: SecretArn
    name: DatabaseName | None = None


class Slurmdbd(Part):
    """Slurm's accounting by a slurmdbd that runs elsewhere."""

    host: HostName
    port: int = Field(6819, ge=1, le=65535)


class Slurm(Part):
    """The scheduler: minutes until idle dynamic nodes end, accounting, further parameters of slurm.conf."""

    idle_minutes: int = Field(10, ge=1, le=1440)
    database: Database | None = None
    external_slurmdbd: Slurmdbd | None = None
    settings: SlurmParameters = {}


class Limit(Part):
    """A number a measurement is held against: bus bandwidth in GB/s at one size (bytes) on that many nodes."""

    collective: Literal["all_reduce", "alltoall", "all_gather", "reduce_scatter"]
    nodes: int = Field(ge=1)
    size: Size
    fail_below_gb_per_s: GbPerS
    warn_below_gb_per_s: GbPerS | None = None
    source: OneLine
    date: datetime.date = Field(strict=False)


class Acceptance(Part):
    """The measured judgement of the cluster. Sizes in bytes after loading."""

    scenario: Literal["all-reduce", "none"] = "all-reduce"
    min_bytes: Size = 1 << 20
    max_bytes: Size = 16 << 30
    iterations: int = Field(20, ge=1, le=1000)
    timeout_minutes: int = Field(30, ge=10, le=50)  # CloudFormation gives a custom resource one hour
    limits: Annotated[tuple[Limit, ...], LIST] = ()


class Budget(Part):
    """A monthly budget in US dollars; alerts go to ``observability.alert_email``."""

    monthly_usd: int = Field(ge=1, le=10**9)


class Settings(Part):
    """Everything one settings file says."""

    name: ClusterName
    region: Region
    zone: Zone
    os: Literal["ubuntu2204", "ubuntu2404", "alinux2023"] = "ubuntu2204"
    network: Network = Network(cidr="10.0.0.0/16")
    head_node: HeadNode = HeadNode()
    queues: Annotated[tuple[Queue, ...], LIST] = Field(min_length=1, max_length=50)
    storage: Storage = Storage()
    slurm: Slurm = Slurm()
    observability: Observability = Observability()
    images: Annotated[tuple[ImageUri, ...], LIST] = ()
    ngc_secret_arn: SecretArn | None = None
    nccl: Nccl = Nccl()
    software_mirror: Mirror | None = None
    acceptance: Acceptance = Acceptance()
    budget: Budget | None = None
    tags: dict[TagKey, TagValue] = {}

    @property
    def gpu_queue(self) -> Queue | None:
        """The queue that acceptance judges: the first one with GPUs."""
        return next((queue for queue in self.queues if queue.instance.gpus), None)


def load_settings(file: str | Path | None) -> Settings:
    """Read, validate and freeze the settings in ``file``. Raises SettingsError with every fault found.

    Raises UsageError for None: which cluster is meant is never guessed.
    """
    if not file:
        raise UsageError("which cluster? Say it with --context settings=clusters/NAME.yaml")
    source = read_source(file)
    data = source.data
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        faults, bad_paths = faults_of(error, source, Settings)
        raise SettingsError([*faults, *_rules_of_the_rest(source, data, bad_paths)]) from None
    faults = rule_faults(settings, source)
    if faults:
        raise SettingsError(faults)
    return settings


# What takes the place of a value that is wrong and has no default, so that the rest can still be looked at.
STAND_INS: dict[PathKey, Any] = {
    "name": "stand-in",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p5.48xlarge",
    "count": 1,
    "max_count": 1,
    "kind": "on-demand",
    "id": "cr-00000000000000000",
    "path": "/stand-in",
    "collective": "all_reduce",
    "nodes": 1,
    "size": "1MiB",
    "fail_below_gb_per_s": 1.0,
    "source": "stand-in",
    "date": "2026-01-01",
    "monthly_usd": 1,
}


def _rules_of_the_rest(source: Source, data: dict[str, Any], bad_paths: list[tuple[PathKey, ...]]) -> list[Fault]:
    """The faults of the rules among what is valid by itself: defaults or stand-ins take the place of what is not.

    A rule that looks at a table with something wrong in it is left out; its turn comes when that is repaired.
    """
    for path in sorted(bad_paths, key=len, reverse=True):
        _replace(data, path, remove=True)
    for _ in range(2):  # what was removed and has no default is missing now
        try:
            settings = Settings.model_validate(data)
        except ValidationError as error:
            for path in faults_of(error, source, Settings)[1]:
                _replace(data, path, remove=False)
        else:
            return rule_faults(settings, source, bad_paths)
    return []


def _replace(data: dict[str, Any], path: tuple[PathKey, ...], *, remove: bool) -> None:
    table: Any = data
    for key in path[:-1]:
        try:
            table = table[key]
        except (KeyError, IndexError, TypeError):
            return
    is_queue = path[:1] == ("queues",) and len(path) == 2 and isinstance(table, list)
    if is_queue and not remove and isinstance(table[path[-1]], dict):
        table[path[-1]] = {**table[path[-1]], "count": STAND_INS["count"]}  # its counts were wrong together
    if not path or not isinstance(table, dict):
        return
    if remove:
        table.pop(path[-1], None)
    elif path[-1] in STAND_INS:
        table[path[-1]] = STAND_INS[path[-1]]
