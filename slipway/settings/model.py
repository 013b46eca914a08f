"""The settings: what one file says about a cluster, validated and frozen.

``load_settings(file)`` gives a ``Settings`` or raises ``SettingsError`` with every fault at once; ``examine(file)``
gives warnings too. ``slipway.settings.rules`` has the rules that join several fields; the rules of a single field stand
with the field, and the reason of each in ``slipway.settings.rules.fields``.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from slipway.errors import Fault, SettingsError, UsageError
from slipway.instances import INSTANCE_TYPES, InstanceType
from slipway.settings.faults import faults_of, secret_faults
from slipway.settings.rules import rule_faults
from slipway.settings.source import Place, Source, read_source

PARALLELCLUSTER_VERSION = "3.16.1"
"""The ParallelCluster release the cluster configuration, the provider template and the images are made for."""

RESULTS_PREFIX = "acceptance/"
"""Where in the bucket the head node writes the reports of acceptance."""

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
        raise PydanticCustomError("size-form", "must be a size such as 16MiB or a number of bytes")
    match = SIZE.match(str(value))
    if match is None:
        raise PydanticCustomError(
            "size-form", "must be a size such as 16MiB (B, KiB, MiB, GiB, TiB) or a number of bytes"
        )
    return int(match[1]) * SIZE_UNITS[match[2]]


def _instance_type(value: Any) -> Any:
    if isinstance(value, str) and value not in INSTANCE_TYPES:
        raise PydanticCustomError(
            "instance-type-unknown", "is not an instance type that Slipway knows", {"choices": sorted(INSTANCE_TYPES)}
        )
    return value


def _cidr(value: Any) -> Any:
    try:
        network = ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError:
        raise PydanticCustomError(
            "cidr-form", "must be an IPv4 network such as 10.0.0.0/16, with no host bits set"
        ) from None
    return str(network)


@dataclasses.dataclass(frozen=True)
class Form:
    """A check that text has one form. ``rule_name`` is its row in ``slipway.settings.rules.fields``."""

    rule_name: str
    pattern: re.Pattern[str]
    rule: str

    def __call__(self, value: Any) -> Any:
        """Give ``value`` back, or raise what pydantic collects."""
        if not isinstance(value, str) or not self.pattern.fullmatch(value):
            raise PydanticCustomError(self.rule_name, self.rule)
        return value


def _matches(rule_name: str, pattern: str, rule: str) -> BeforeValidator:
    return BeforeValidator(Form(rule_name, re.compile(pattern, re.ASCII), rule))


def _private_cidr(value: Any) -> Any:
    network = ipaddress.IPv4Network(_cidr(value))
    if not any(network.subnet_of(ipaddress.IPv4Network(private)) for private in PRIVATE_RANGES):
        raise PydanticCustomError("cidr-private", f"must lie in a private range: {', '.join(PRIVATE_RANGES)}")
    return str(network)


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("wrong-type", "must be a number")
    return float(value)


def _placement_group(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and GROUP_NAME.fullmatch(value)):
        return value
    raise PydanticCustomError("placement-group-name", "must be true, false or the name of an existing placement group")


def _slurm_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not SLURM_VALUE.fullmatch(str(value)):
        raise PydanticCustomError("slurm-value", "must be a whole number, or text of one line without # and quotes")
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("wrong-type", "must be a whole number")
    return value


Size = Annotated[int, BeforeValidator(_size), Field(gt=0, le=MAX_SIZE)]
GbPerS = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1e6, allow_inf_nan=False)]
PrivateCidr = Annotated[str, BeforeValidator(_private_cidr)]
InstanceTypeName = Annotated[str, BeforeValidator(_instance_type)]
Cidr = Annotated[str, BeforeValidator(_cidr)]
ClusterName = Annotated[
    str,
    _matches(
        "cluster-name",
        r"[a-z][a-z0-9-]{0,38}[a-z0-9]",
        "must be 2 to 40 characters: a lower-case letter, then letters, digits or -, no - last",
    ),
]
QueueName = Annotated[
    str,
    _matches(
        "queue-name",
        r"[a-z][a-z0-9-]{0,23}[a-z0-9]",
        "must be 2 to 25 characters: a lower-case letter, then letters, digits or -, no - last",
    ),
]
Region = Annotated[str, _matches("region-form", r"[a-z]{2,4}(-[a-z]+)+-\d", "must be an AWS region such as us-east-1")]
Zone = Annotated[
    str, _matches("zone-form", r"[a-z]{2,4}(-[a-z]+)+-\d[a-z]", "must be an availability zone such as us-east-1a")
]
VpcId = Annotated[
    str, _matches("vpc-id", r"vpc-([0-9a-f]{8}|[0-9a-f]{17})", "must be a VPC id such as vpc-0123456789abcdef0")
]
SubnetId = Annotated[
    str,
    _matches("subnet-id", r"subnet-([0-9a-f]{8}|[0-9a-f]{17})", "must be a subnet id such as subnet-0123456789abcdef0"),
]
ReservationId = Annotated[
    str,
    _matches(
        "reservation-id",
        r"cr-([0-9a-f]{8}|[0-9a-f]{17})",
        "must be a capacity reservation id such as cr-0123456789abcdef0",
    ),
]
SecurityGroupId = Annotated[
    str,
    _matches(
        "security-group-id",
        r"sg-([0-9a-f]{8}|[0-9a-f]{17})",
        "must be a security group id such as sg-0123456789abcdef0",
    ),
]
FileSystemId = Annotated[
    str,
    _matches("file-system-id", r"fs-[0-9a-f]{17}", "must be the id of an FSx file system such as fs-0123456789abcdef0"),
]
PolicyArn = Annotated[
    str,
    _matches(
        "policy-arn",
        r"arn:aws[a-z-]*:iam::(aws|\d{12}):policy/[A-Za-z0-9_+=,.@/-]{1,512}",
        "must be the ARN of a managed policy such as arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    ),
]
ScriptUrl = Annotated[
    str,
    _matches(
        "script-url",
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9_.=/-]{1,512}",
        "must be a script in S3: s3://BUCKET/KEY",
    ),
]
ScriptArgument = Annotated[
    str, _matches("script-argument", r"[^\s\x00-\x1f'\"`$\\]{1,255}", "must be text without blanks, quotes, $ and \\")
]
MountPath = Annotated[
    str,
    _matches(
        "mount-path", r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+", "must be an absolute path on the nodes such as /shared"
    ),
]
MountId = Annotated[
    str,
    _matches(
        "mount-id-form",
        r"(fs-([0-9a-f]{8}|[0-9a-f]{17})|fsvol-[0-9a-f]{17}|fc-[0-9a-f]{17})",
        "must be the id of a file system (fs-...), an FSx volume (fsvol-...) or a file cache (fc-...)",
    ),
]
SlurmKey = Annotated[
    str, _matches("slurm-key", r"[A-Za-z][A-Za-z0-9]{0,63}", "must be a parameter of slurm.conf such as SlurmdTimeout")
]
SlurmValue = Annotated[int | str, BeforeValidator(_slurm_value)]
SlurmParameters = dict[SlurmKey, SlurmValue]
HostName = Annotated[
    str, _matches("host-name", r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "must be a host name or an address")
]
DatabaseUser = Annotated[str, _matches("database-user", r"[A-Za-z0-9_]{1,32}", "must be 1 to 32 letters, digits or _")]
DatabaseName = Annotated[
    str, _matches("database-name", r"[0-9a-z_]{1,64}", "must be 1 to 64 lower-case letters, digits or _")
]
TagKey = Annotated[
    str,
    _matches(
        "tag-key",
        r"(?!aws:)[A-Za-z0-9 _.:/=+@-]{1,128}",
        "must be a tag key of 1 to 128 characters, not starting with aws:",
    ),
]
TagValue = Annotated[
    str, _matches("tag-value", r"[A-Za-z0-9 _.:/=+@-]{0,256}", "must be a tag value of at most 256 characters")
]
PlacementGroup = Annotated[bool | str, BeforeValidator(_placement_group)]
KeyPair = Annotated[
    str, _matches("key-pair-name", r"[A-Za-z0-9 ._@()+=-]{1,255}", "must be the name of an EC2 key pair")
]
BucketName = Annotated[
    str,
    _matches(
        "bucket-name",
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "must be an S3 bucket name: 3 to 63 lower-case letters, digits, dots or -",
    ),
]
SecretArn = Annotated[
    str,
    _matches(
        "secret-arn",
        r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]+",
        "must be the ARN of a Secrets Manager secret, never the secret itself",
    ),
]
Email = Annotated[str, _matches("email", r"[^@\s]+@[^@\s]+\.[^@\s]+", "must be an e-mail address")]
ImageUri = Annotated[
    str,
    _matches(
        "image-uri",
        # Nothing that the import would leave out: headnode/containers/images.py.
        r"docker://([a-z0-9][a-z0-9.-]*(:\d+)?#|([a-z0-9][a-z0-9-]*\.[a-z0-9.-]*|[a-z0-9][a-z0-9.-]*:\d+|localhost)/)?"
        r"[a-z0-9]+(([._/]|__|-+)[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?",
        "must be an image such as docker://nvcr.io#nvidia/pytorch:24.01-py3",
    ),
]
FsxPath = Annotated[
    str,
    _matches(
        "fsx-path",
        r"/((?!\.\.?(/|$))[A-Za-z0-9_.-]+(/(?!\.\.?(/|$))[A-Za-z0-9_.-]+)*)?",
        "must be an absolute path on the file system such as /datasets",
    ),
]
Prefix = Annotated[
    str, _matches("prefix", r"([A-Za-z0-9!_.*'()-]+/)*", "must be an S3 prefix ending in /, such as datasets/")
]
NcclTag = Annotated[str, _matches("nccl-tag", r"v\d+\.\d+\.\d+-\d+", "must be an NCCL release tag such as v2.28.7-1")]
OfiTag = Annotated[
    str, _matches("ofi-tag", r"v\d+\.\d+\.\d+(-aws)?", "must be an aws-ofi-nccl release tag such as v1.17.2-aws")
]
OneLine = Annotated[
    str, _matches("one-line", r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,300}", "must be one line of 1 to 300 characters")
]
Mirror = Annotated[str, _matches("mirror", r"(s3|https)://[A-Za-z0-9./_:-]+", "must be an s3:// or https:// prefix")]


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

    @model_validator(mode="after")
    def _fill_counts(self) -> Queue:
        """``count`` is both counts. ``model_fields_set`` keeps what was written: the rules of counts look at it."""
        if self.count is not None:
            object.__setattr__(self, "min_count", self.count)
            object.__setattr__(self, "max_count", self.count)
        return self

    @property
    def instance(self) -> InstanceType:
        """The facts of the queue's instance type."""
        return INSTANCE_TYPES[self.instance_type]

    @property
    def addresses(self) -> int:
        """Private addresses that one node takes: efa-only interfaces have none; without EFA each network card has one.

        Source: ParallelCluster 3.16.1, templates/queues_stack.py, add_network_interfaces.
        """
        return 1 if self.efa else self.instance.network_cards

    @property
    def interfaces(self) -> int:
        """Network interfaces that one node has: with more than one EC2 gives it no public address. The same source."""
        return 1 + self.instance.efa_interfaces if self.efa else self.instance.network_cards


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
    nccl_version: NcclTag = "v2.27.7-1"
    ofi_version: OfiTag = "v1.17.2"
    environment: Literal["recommended", "legacy"] = "recommended"


class Containers(Part):
    """How the images are imported, and whether Slurm runs jobs in them (pyxis)."""

    imports_at_once: int | None = Field(None, ge=1, le=32)
    format: Literal["enroot", "apptainer", "both"] = "enroot"
    pyxis: bool = True


class Health(Part):
    """The checks of the compute nodes: whether a broken node is drained, and the seconds between two runs."""

    enabled: bool = True
    drain: bool = True
    resume: bool = False
    interval_seconds: int = Field(60, ge=60, le=3600)


class Database(Part):
    """Slurm's accounting in a MySQL database of the site; the secret holds the password of ``user``."""

    host: HostName
    port: int = Field(3306, ge=1, le=65535)
    user: DatabaseUser
    password_secret_arn: SecretArn
    name: DatabaseName | None = None


class Slurmdbd(Part):
    """Slurm's accounting by a slurmdbd that runs elsewhere; the secret holds the MUNGE key of both sides."""

    host: HostName
    port: int = Field(6819, ge=1, le=65535)
    munge_key_secret_arn: SecretArn | None = None  # needed, and asked for by a rule of its own


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
    nodes: int | None = Field(None, ge=1, le=1000)  # None: the static nodes of the queue
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
    containers: Containers = Containers()
    nccl: Nccl = Nccl()
    health: Health = Health()
    software_mirror: Mirror | None = None
    acceptance: Acceptance = Acceptance()
    budget: Budget | None = None
    tags: dict[TagKey, TagValue] = {}

    @property
    def gpu_queue(self) -> Queue | None:
        """The queue that acceptance judges: the first one with GPUs."""
        return next((queue for queue in self.queues if queue.instance.gpus), None)

    @property
    def judged_nodes(self) -> int:
        """How many nodes of that queue acceptance measures: as many as it says, else the static ones."""
        return self.acceptance.nodes or (self.gpu_queue.min_count if self.gpu_queue else 0)

    @property
    def scripts(self) -> tuple[Script, ...]:
        """Every bootstrap action of the site, on whichever nodes."""
        return (*self.head_node.scripts, *(script for queue in self.queues for script in queue.scripts))

    @property
    def policy_arns(self) -> tuple[str, ...]:
        """Every managed policy that the site attaches, each once."""
        queues = (arn for queue in self.queues for arn in queue.policy_arns)
        return tuple(dict.fromkeys((*self.head_node.policy_arns, *queues)))

    @property
    def secret_arns(self) -> tuple[str, ...]:
        """Every secret that the head node reads, each once."""
        database, external = self.slurm.database, self.slurm.external_slurmdbd
        arns = (
            self.ngc_secret_arn,
            database.password_secret_arn if database else None,
            external.munge_key_secret_arn if external else None,
        )
        return tuple(dict.fromkeys(arn for arn in arns if arn))


@dataclasses.dataclass(frozen=True)
class Examination:
    """What a look at one file gave. ``settings`` is None when there are faults; warnings alone leave it."""

    settings: Settings | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def load_settings(file: str | Path | None) -> Settings:
    """Read, validate and freeze the settings in ``file``. Raises SettingsError with every fault found.

    Raises UsageError for None: which cluster is meant is never guessed.
    """
    if not file:
        raise UsageError("which cluster? Say it with --context settings=clusters/NAME.yaml")
    found = examine(file)
    if found.settings is None:
        raise SettingsError(found.faults)
    return found.settings


def examine(file: str | Path) -> Examination:
    """Everything there is to say about ``file``, in the order of its lines; raises nothing for what it holds."""
    try:
        source = read_source(file)
    except SettingsError as error:
        return Examination(None, error.faults, ())
    return examine_source(source)


def examine_source(source: Source) -> Examination:
    """``examine`` for a file that is parsed already."""
    told = [*source.faults, *secret_faults(source)]
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(source.data)
        told += rule_faults(settings, source)
    except ValidationError as error:
        faults, bad_paths = faults_of(error, source, Settings)
        told += [*faults, *_rules_of_the_rest(source, bad_paths)]
    told.sort(key=lambda fault: (fault.line, fault.path))
    faults = [fault for fault in told if fault.severity == "fault"]
    warnings = tuple(fault for fault in told if fault.severity == "warning")
    return Examination(None if faults else settings, tuple(faults), warnings)


# What takes the place of a value that is wrong and has no default, so that the rest can still be looked at.
STAND_INS: dict[str, Any] = {
    "name": "stand-in",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p5.48xlarge",
    "queues": [{"name": "stand-in", "instance_type": "p5.48xlarge", "count": 1}],
    "kind": "on-demand",
    "id": "cr-00000000000000000",
    "mounts.kind": "efs",
    "mounts.id": "fs-00000000000000000",
    "path": "/stand-in",
    "url": "s3://stand-in/script",
    "host": "stand-in",
    "user": "stand_in",
    "password_secret_arn": "arn:aws:secretsmanager:us-east-1:000000000000:secret:stand-in",
    "collective": "all_reduce",
    "nodes": 1,
    "size": "1MiB",
    "fail_below_gb_per_s": 1.0,
    "source": "stand-in",
    "date": "2026-01-01",
    "monthly_usd": 1,
}
# The same for a whole item of a list: taking it out would move the others.
STAND_IN_ITEMS: dict[str, Any] = {
    "queues": STAND_INS["queues"][0],
    "scripts": {"url": STAND_INS["url"]},
    "arguments": "stand-in",
    "security_group_ids": "sg-00000000000000000",
    "policy_arns": "arn:aws:iam::aws:policy/stand-in",
    "associations": {"path": "/stand-in"},
    "mounts": {"path": "/stand-in", "kind": "efs", "id": STAND_INS["mounts.id"]},
    "images": "docker://stand-in:1",
    "limits": {key: STAND_INS[key] for key in ("collective", "nodes", "size", "fail_below_gb_per_s", "source", "date")},
}
ROUNDS = 4  # what was taken out may leave a table without a key that it needs, and so on up


def _rules_of_the_rest(source: Source, bad_paths: list[Place]) -> list[Fault]:
    """The faults of the rules among what is valid by itself: defaults or stand-ins take the place of what is not.

    A finding that depends on something wrong is left out; its turn comes when that is repaired.
    """
    data = copy.deepcopy(source.data)
    for path in sorted(bad_paths, key=len, reverse=True):
        _replace(data, path)
    for _ in range(ROUNDS):
        try:
            settings = Settings.model_validate(data)
        except ValidationError as error:
            for path in _deepest(error):
                _replace(data, path, missing=True)
        else:
            return rule_faults(settings, source, bad_paths)
    return []


def _deepest(error: ValidationError) -> list[Place]:
    """Where the errors are, without those that only say that something inside is wrong."""
    places = [tuple(part for part in detail["loc"] if part != "[key]") for detail in error.errors(include_url=False)]
    return [one for one in places if not any(other[: len(one)] == one for other in places if other != one)]


def _replace(data: dict[str, Any], path: Place, *, missing: bool = False) -> None:
    """Take out what stands at ``path``, or put a stand-in there: for an item of a list, or for a key that is needed."""
    table: Any = data
    for key in path[:-1]:
        try:
            table = table[key]
        except (KeyError, IndexError, TypeError):
            return
    if not path:
        return
    last = path[-1]
    words = [part for part in path if isinstance(part, str)]
    if isinstance(table, list) and isinstance(last, int) and last < len(table):
        table[last] = copy.deepcopy(STAND_IN_ITEMS.get(words[-1] if words else "", "stand-in"))
    elif isinstance(table, dict) and isinstance(last, str):
        table.pop(last, None)
        stand_in = STAND_INS.get(".".join(words[-2:]), STAND_INS.get(last))
        if missing and stand_in is not None:
            table[last] = copy.deepcopy(stand_in)
