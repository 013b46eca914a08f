"""The settings: what one file says about a cluster, validated and frozen. Every key is described here.

docs/settings.md and the JSON Schema are made from this module. `slipway.settings.rules` has the rules that join several
keys, `slipway.settings.forms` the forms of single values.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from slipway.instances import INSTANCE_TYPES, InstanceType
from slipway.settings.forms import (
    SCENARIO_WORDS,
    AcceptanceScenario,
    BoundaryArn,
    BucketName,
    Cidr,
    ClusterName,
    DatabaseName,
    DatabaseUser,
    Email,
    FileSystemId,
    Form,
    FsxPath,
    GbPerS,
    HostName,
    IamNamePrefix,
    ImageUri,
    InstanceTypeName,
    KeyPair,
    Mirror,
    MountId,
    MountPath,
    NcclTag,
    OfiTag,
    OneLine,
    PlacementGroup,
    PolicyArn,
    Prefix,
    PrivateCidr,
    QueueName,
    Region,
    ReservationId,
    ScriptArgument,
    ScriptUrl,
    SecretArn,
    SecurityGroupId,
    Size,
    SlurmKey,
    SlurmValue,
    SubnetId,
    TagKey,
    TagValue,
    VolumeId,
    VpcId,
    Zone,
)
from slipway.settings.source import Place

PARALLELCLUSTER_VERSION = "3.16.1"
"""The ParallelCluster release that the cluster configuration, the provider template and the images are made for."""

FSX_MOUNT = "/fsx"  # where every node has the FSx for Lustre file system

RESULTS_PREFIX = "acceptance/"
"""Where in the bucket the head node writes the reports of acceptance."""

SlurmParameters = dict[SlurmKey, SlurmValue]


def key(what: str = "", *, default: Any = PydanticUndefined, shown: str = "", **bounds: Any) -> Any:
    """A key of the settings file.

    `what` describes it; a key that is a separate table is described by the docstring of its class instead. `shown`
    is the default in docs/settings.md where the value alone does not say it; `bounds` are those of pydantic's Field.
    """
    return Field(default, description=what or None, json_schema_extra={"shown": shown}, **bounds)


def keys(what: str, *, shown: str = "none", **bounds: Any) -> Any:
    """A key with a list of values, which may be left out. YAML has lists where the frozen settings have tuples."""
    return key(what, default=(), shown=shown, strict=False, **bounds)


class Part(BaseModel):
    """A part of the settings: frozen, unknown keys are faults, and text is never turned into numbers or booleans."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Network(Part):
    """A new VPC, or an existing one by its ids."""

    cidr: PrivateCidr | None = key("a new VPC of this private range, /16 to /24", default=None, shown="`10.0.0.0/16`")
    vpc_id: VpcId | None = key("an existing VPC instead; needs both subnets too", default=None)
    head_node_subnet_id: SubnetId | None = key("the subnet of the head node in the existing VPC", default=None)
    compute_subnet_id: SubnetId | None = key(
        "the private subnet of the compute nodes, with a route to AWS's services", default=None
    )
    security_group_id: SecurityGroupId | None = key(
        "an existing group of all nodes, with rules to itself in both directions (EFA); only in an existing VPC",
        default=None,
        shown="a new group",
    )

    @property
    def is_new(self) -> bool:
        """Whether Slipway creates the VPC."""
        return self.vpc_id is None


class Script(Part):
    """A bootstrap action of the site, run after Slipway's own; it has to end within ParallelCluster's time-out."""

    url: ScriptUrl = key("the script: `s3://BUCKET/KEY`")
    arguments: tuple[ScriptArgument, ...] = keys("words without blanks and quotes")


class HeadNode(Part):
    """Slurm's controller, Prometheus, and where acceptance runs."""

    instance_type: InstanceTypeName = key("at least 8 GiB of memory, no GPU", default="m5.8xlarge")
    # ParallelCluster's images need 45 GiB.
    root_volume_gib: int = key("size of the root volume in GiB", default=200, ge=45, le=16384)
    key_pair: KeyPair | None = key(
        "an EC2 key pair for SSH; without it users log in through Session Manager", default=None
    )
    ssh_from: Cidr | None = key("the range that may use SSH, such as `10.0.0.0/8`", default=None)
    security_group_ids: tuple[SecurityGroupId, ...] = keys("further security groups of the head node")
    scripts: tuple[Script, ...] = keys("your own scripts, run in this order after Slipway's; a node waits for them")
    policy_arns: tuple[PolicyArn, ...] = keys("further managed policies of the head node's role")


class Reservation(Part):
    """An EC2 capacity reservation to take the nodes from; it is paid for whether they run or not."""

    kind: Literal["capacity-block", "on-demand"] = key("which kind of reservation it is")
    id: ReservationId = key("`cr-...`")
    hold_minutes: int = key(
        "so long before EC2 ends the instances of a capacity block, Slurm begins to hold jobs whose time limit passes "
        "that time; a job without a limit is held too",
        default=60,
        ge=0,
        le=10_080,
    )


class Queue(Part):
    """A Slurm partition of one instance type. After loading `min_count` and `max_count` are always filled."""

    name: QueueName = key("the partition's name: 2 to 25 lower-case letters, digits, `-`")
    instance_type: InstanceTypeName = key("a type of `slipway/data/instance_types.json`")
    count: int | None = key(
        "static nodes, which start with the cluster and stay; for dynamic nodes `max_count` instead",
        default=None,
        ge=1,
        le=1000,
    )
    min_count: int = key("dynamic nodes: how many of them always run", default=0, ge=0, le=1000)
    max_count: int = key("how many nodes there can be", default=0, shown="none", ge=0, le=1000)
    reservation: Reservation | None = key(default=None)
    spot: bool = key("spot instances; not with a reservation", default=False)
    placement_group: PlacementGroup = key(
        "`true`: a new group for the queue, not with a reservation; or the name of an existing group; never with a "
        "capacity block",
        default=False,
    )
    efa: bool = key(
        "EFA on every interface that the type has; needed for types with several network cards", default=False
    )
    scripts: tuple[Script, ...] = keys("your own scripts on the compute nodes, as for the head node")
    policy_arns: tuple[PolicyArn, ...] = keys("further managed policies of the nodes' role")
    slurm_settings: SlurmParameters = key(
        "further parameters of the partition's line in slurm.conf, such as `MaxTime: 2-00:00:00`", default={}
    )

    @model_validator(mode="after")
    def _fill_counts(self) -> Queue:
        """`count` is both counts. `model_fields_set` keeps the keys that are in the file, for the rules of counts."""
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
        """Network interfaces of one node: with more than one, EC2 assigns no public address. The same source."""
        return 1 + self.instance.efa_interfaces if self.efa else self.instance.network_cards


class Fsx(Part):
    """FSx for Lustre at /fsx: a new file system, or an existing one by its id alone.

    The nodes use it over TCP, an EFA-enabled one too: Slipway makes none, and sets up no EFA for Lustre.
    """

    file_system_id: FileSystemId | None = key(
        "an existing file system; the other keys are left out then", default=None, shown="a new file system"
    )
    deployment: Literal["persistent-2", "persistent-1", "scratch-2", "scratch-1"] = key(
        "the deployment type", default="persistent-2"
    )
    capacity_gib: int = key(  # quotas end far below this upper bound
        "1200 or a multiple of 2400 GiB; scratch-1: 1200, 2400 or a multiple of 3600",
        default=4800,
        ge=1200,
        le=10**7,
    )
    throughput_mb_s_per_tib: int | None = key(
        "MB/s per TiB: 125, 250, 500, 1000 (persistent-2); 50, 100, 200 (persistent-1); none (scratch)",
        default=None,
        shown="none; 250 if all of `storage.fsx` is left out",
    )
    compression: Literal["lz4", "none"] = key("compression of the data", default="lz4")


class Association(Part):
    """A data repository association: `path` on the file system mirrors `prefix` of the bucket."""

    path: FsxPath = key("the folder, such as `/datasets`; `/` only for a single association")
    prefix: Prefix = key("the prefix, ending in `/`", default="", shown="the whole bucket")
    import_changes: bool = key("new and changed objects appear in the folder", default=True)
    export_changes: bool = key("new and changed files are copied to the bucket", default=False)


class Home(Part):
    """Where /home is: on the head node's root volume, or on a separate EBS volume, which outlives the cluster."""

    kind: Literal["head-node", "ebs"] = key(
        "on the head node's root volume (`head-node`) or on a separate volume (`ebs`)", default="head-node"
    )
    size_gib: int | None = key("size of a new `ebs` volume in GiB, at least 6", default=None, ge=1, le=16384)
    volume_id: VolumeId | None = key(
        "an existing volume in the cluster's zone, such as that of a cluster which is gone; without `size_gib`",
        default=None,
        shown="a new volume",
    )


class Mount(Part):
    """An existing file system, mounted on every node at `path`."""

    path: MountPath = key("where, such as `/shared`; not below /fsx, /scratch or a folder of the system")
    kind: Literal["fsx-lustre", "fsx-openzfs", "fsx-ontap", "file-cache", "efs"] = key("the kind of file system")
    id: MountId = key("`fs-...` (Lustre, EFS), `fsvol-...` (OpenZFS, ONTAP) or `fc-...` (file cache)")


class Storage(Part):
    """The shared file system, the bucket behind it, /home, and other file systems to mount."""

    fsx: Fsx = key(default=Fsx(throughput_mb_s_per_tib=250))
    bucket: BucketName | None = key(
        "an existing bucket, never deleted by Slipway", default=None, shown="a new bucket, never deleted either"
    )
    associations: tuple[Association, ...] = keys(
        "at most 8 links between a folder of the file system and a prefix of the bucket; not on scratch-1"
    )
    home: Home = key(default=Home())
    mounts: tuple[Mount, ...] = keys("existing file systems, mounted on every node")


RETENTION_DAYS = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653]
"""The periods that CloudWatch Logs offers."""


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):  # to Python True is 1, which is a choice
        raise PydanticCustomError("wrong-type", "must be a whole number")
    return value


class Iam(Part):
    """What the account asks of every role and policy that the deployment makes ([permissions.md](permissions.md))."""

    permissions_boundary: BoundaryArn | None = key(
        "the ARN of the managed policy that bounds every role; for accounts that refuse roles without it", default=None
    )
    name_prefix: IamNamePrefix | None = key(
        "what the name of every role and policy begins with, such as `team-`; 1 to 10 characters", default=None
    )

    @property
    def is_site(self) -> bool:
        """Whether the account asks for anything: then ParallelCluster's provider gets a role that fulfils it."""
        return bool(self.permissions_boundary or self.name_prefix)


class Observability(Part):
    """Metrics, dashboards, logs, alerts."""

    prometheus: bool = key("Amazon Managed Prometheus", default=True)
    grafana: bool = key("Amazon Managed Grafana; needs IAM Identity Center in the account", default=False)
    retention_days: Annotated[RETENTION_DAYS, BeforeValidator(_no_truth_value)] = key(
        "how long CloudWatch keeps logs and Prometheus on the head node keeps metrics, in days", default=30
    )
    alert_email: Email | None = key("the address that alerts are sent to", default=None)


class Nccl(Part):
    """NCCL and its plugin for EFA."""

    source: Literal["image", "shared"] = key(
        "`image`: the NCCL of containers and AMI; `shared`: one build on /fsx, which the head node makes in the "
        "background ([nccl.md](nccl.md))",
        default="image",
    )
    nccl_version: NcclTag = key(
        "tag of NVIDIA/nccl for `shared`, and for acceptance's nccl-tests where the image has none",
        default="v2.28.7-1",
    )
    ofi_version: OfiTag = key("tag of aws/aws-ofi-nccl for `shared`", default="v1.17.3")
    environment: Literal["recommended", "legacy"] = key(
        "the variables for today's EFA, or those of older guides", default="recommended"
    )


class Containers(Part):
    """How the images are imported and run ([containers.md](containers.md))."""

    imports_at_once: int | None = key(
        "imports at a time", default=None, shown="a quarter of the head node's vCPUs, 2 to 8", ge=1, le=32
    )
    format: Literal["enroot", "apptainer", "both"] = key(
        "`enroot`: .sqsh files; `apptainer`: .sif files; `both`", default="enroot"
    )
    compressed: bool = key(
        "images of enroot are compressed with zstd when they are imported: 2.5 times smaller on /fsx", default=False
    )
    pyxis: bool = key("`srun --container-image`: enroot and pyxis are configured on every node", default=True)


class Health(Part):
    """The checks of the compute nodes ([health.md](health.md))."""

    enabled: bool = key("a timer checks every compute node", default=True)
    drain: bool = key("a broken node is drained in Slurm, with the reason", default=True)
    terminate_drained_nodes: bool = key(
        "ParallelCluster replaces the instance of a drained node, also of one that you drain; `false`: it stays, and "
        "`scontrol update nodename=NODE state=power_down_force` replaces it",
        default=True,
    )
    replacements_per_day: int = key(
        "after so many drains in 24 hours the checks drain no more nodes, they report", default=4, ge=1, le=1000
    )
    interval_seconds: int = key("seconds between two runs", default=60, ge=60, le=3600)


class Database(Part):
    """Accounting in a MySQL database of yours."""

    host: HostName = key("host name or address, without `mysql://`")
    port: int = key("the database's port", default=3306, ge=1, le=65535)
    user: DatabaseUser = key("the database's user")
    password_secret_arn: SecretArn = key(
        "the ARN of the secret with the user's password, in the cluster's region; never the password"
    )
    name: DatabaseName | None = key("the database's name", default=None, shown="the cluster's name")


class Slurmdbd(Part):
    """Accounting by a slurmdbd that runs elsewhere; not together with `slurm.database`."""

    host: HostName = key("host name or address")
    port: int = key("the port of slurmdbd", default=6819, ge=1, le=65535)
    munge_key_secret_arn: SecretArn | None = key(
        "the ARN of the secret with the MUNGE key of that host, in Base64", default=None, shown="**needed**"
    )  # the rule slurmdbd-munge-key reports its absence with a better hint


class Slurm(Part):
    """The scheduler."""

    idle_minutes: int = key("an idle dynamic node ends after this time", default=10, ge=1, le=1440)
    database: Database | None = key(default=None)
    external_slurmdbd: Slurmdbd | None = key(default=None)
    settings: SlurmParameters = key(
        "further parameters of slurm.conf, such as `SlurmdTimeout: 600`; not those that ParallelCluster sets",
        default={},
    )


class Limit(Part):
    """A number that a measurement is compared with: bus bandwidth at one size on that many nodes."""

    collective: Literal["all_reduce", "alltoall", "all_gather", "reduce_scatter"] = key("the collective measured")
    nodes: int = key("the limit applies to a cluster of this many nodes", ge=1)
    size: Size = key("the limit applies at this size, which the sweep must visit")
    fail_below_gb_per_s: GbPerS = key("bus bandwidth in GB/s below which a cluster has failed")
    warn_below_gb_per_s: GbPerS | None = key(
        "bus bandwidth in GB/s below which the test gets a warning; the cluster is still accepted", default=None
    )
    source: OneLine = key("where the number comes from, one line")
    date: datetime.date = key("of the number, such as `2026-11-27`", strict=False)


class Acceptance(Part):
    """The measured judgement of the cluster: an all_reduce of the first queue with GPUs.

    With EFA on several nodes an alltoall is measured too. Sizes are in bytes after loading.
    """

    scenario: AcceptanceScenario = key(
        "what is measured: `all-reduce`; `full`: then the [GPU suite](gpu-suite.md) and storage; `none`; or the path "
        "of a CloudAI scenario ([cloudai.md](cloudai.md)) from the folder of this file, or below /fsx on the cluster",
        default="all-reduce",
    )
    nodes: int | None = key(
        "how many nodes are measured; dynamic ones among them start, and cost, for it",
        default=None,
        shown="the static nodes of that queue",
        ge=1,
        le=1000,
    )
    min_bytes: Size = key("the sweep's first size; it is doubled up to `max_bytes`", default=1 << 20)
    max_bytes: Size = key("the sweep's last size, at most a third of a GPU's memory", default=16 << 30)
    iterations: int = key("measurements of each size", default=20, ge=1, le=1000)
    # CloudFormation gives a custom resource one hour.
    timeout_minutes: int = key("for the whole acceptance", default=30, ge=10, le=50)
    drain_percent: int = key(
        "`--drain` of `acceptance run` and `locate` drains at most so many percent of the measured nodes, one at least",
        default=10,
        ge=1,
        le=100,
    )
    limits: tuple[Limit, ...] = keys("your own limits", shown="those of `acceptance/limits/limits.json`")


class Budget(Part):
    """A monthly budget in US dollars; nothing is stopped."""

    monthly_usd: int = key("alerts at shares of this sum go to `observability.alert_email`", ge=1, le=10**9)


class Settings(Part):
    """Everything that one settings file says."""

    name: ClusterName = key(
        "the cluster's name: 2 to 40 lower-case letters, digits, `-`; also the first part of every stack's name"
    )
    region: Region = key("the AWS region of everything, such as `us-east-1`")
    zone: Zone = key("the availability zone of the reservation and of the whole cluster")
    os: Literal["ubuntu2204", "ubuntu2404", "alinux2023"] = key(
        "the operating system of all nodes", default="ubuntu2204"
    )
    network: Network = key(default=Network(cidr="10.0.0.0/16"), shown="a new VPC")
    head_node: HeadNode = key(default=HeadNode())
    queues: tuple[Queue, ...] = key("1 to 50 Slurm partitions", strict=False, min_length=1, max_length=50)
    storage: Storage = key(default=Storage())
    slurm: Slurm = key(default=Slurm())
    observability: Observability = key(default=Observability())
    iam: Iam = key(default=Iam())
    images: tuple[ImageUri, ...] = keys(
        "container images to import in the background: `docker://nvcr.io#nvidia/pytorch:24.01-py3`"
    )
    ngc_secret_arn: SecretArn | None = key(
        "the ARN of the secret with the NGC key, in the cluster's region; never the key", default=None
    )
    containers: Containers = key(default=Containers())
    nccl: Nccl = key(default=Nccl())
    health: Health = key(default=Health())
    software_mirror: Mirror | None = key(
        "`s3://` or `https://` prefix with the files of `nodes/software.tsv` and a `SHA256SUMS`", default=None
    )
    acceptance: Acceptance = key(default=Acceptance())
    budget: Budget | None = key(default=None)
    tags: dict[TagKey, TagValue] = key(
        "further tags of every resource, at most 39; Slipway sets the tag `project`", default={}
    )

    _folder: Path = PrivateAttr(default=Path())  # only set where a relative path needs it: settings are compared

    def in_folder(self, folder: Path) -> Settings:
        """Return these settings as those of a file in `folder`."""
        if self.scenario_file is not None:
            self._folder = folder
        return self

    @property
    def folder(self) -> Path:
        """The folder of the settings file, from which a relative path goes."""
        return self._folder

    @property
    def scenario_file(self) -> Path | None:
        """The CloudAI scenario that acceptance runs: a file of this machine or, below /fsx, of the cluster."""
        name = self.acceptance.scenario
        return None if name in SCENARIO_WORDS else self._folder / name

    @property
    def measures_network(self) -> bool:
        """Whether acceptance measures the collectives of the settings, which have limits."""
        return self.acceptance.scenario in ("all-reduce", "full")

    @property
    def gpu_queue(self) -> Queue | None:
        """The queue that acceptance judges: the first one with GPUs."""
        return next((queue for queue in self.queues if queue.instance.gpus), None)

    @property
    def judged_nodes(self) -> int:
        """How many nodes of that queue acceptance measures: the number in the settings, or the static ones."""
        return self.acceptance.nodes or (self.gpu_queue.min_count if self.gpu_queue else 0)

    @property
    def scripts(self) -> tuple[Script, ...]:
        """Every bootstrap action of the site, on head node and compute nodes."""
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


# ---- the keys as data: for "did you mean", for pages, and to repair a wrong value ----


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: its path as docs/settings.md writes it (`queues[].efa`), its field, and the part that it holds."""

    path: str
    field: FieldInfo
    part: type[Part] | None


def all_keys(part: type[Part] = Settings, path: str = "") -> Iterator[Key]:
    """Return every key of `part` and of the parts in it, in the order of the model."""
    for name, field in part.model_fields.items():
        inner = part_in(field.annotation)
        here = f"{path}.{name}" if path else name
        yield Key(here, field, inner)
        if inner is not None:
            yield from all_keys(inner, f"{here}[]" if _is_list(field.annotation) else here)


def part_in(annotation: Any) -> type[Part] | None:
    """Return the part that a field's annotation contains, if any."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next((part for argument in typing.get_args(annotation) if (part := part_in(argument))), None)


def part_at(place: Place, part: type[Part] = Settings) -> type[Part] | None:
    """Return the part whose keys the table at `place` may have; None for a table of free keys."""
    inner: type[Part] | None = part
    for name in place:
        if isinstance(name, str):
            field = inner.model_fields.get(name) if inner else None
            inner = part_in(field.annotation) if field else None
    return inner


def _is_list(annotation: Any) -> bool:
    return typing.get_origin(annotation) is tuple


def example_of(annotation: Any, metadata: Any = ()) -> Any:
    """Return a valid value of a field, as a file would have it."""
    for form in metadata:
        if isinstance(form, Form):
            return form.example
    if isinstance(annotation, type) and issubclass(annotation, Part):
        fields = annotation.model_fields.items()
        return {name: example_of(field.annotation, field.metadata) for name, field in fields if field.is_required()}
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return example_of(arguments[0], arguments[1:])
    if origin is tuple:
        return [example_of(arguments[0])]
    if origin is Literal:
        return arguments[0]
    return example_of(arguments[0]) if arguments else {datetime.date: "2026-01-01"}.get(annotation, 1)
