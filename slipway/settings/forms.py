"""The forms of single fields: what a value must look like, what to write instead, why, and an example of it.

A form is an annotation of a type: `VpcId` is text that `Form("vpc-id", ...)` accepts. The JSON Schema, docs/checks.md
and `slipway check --explain` are made from the same object.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticCustomError, core_schema

from slipway.instances import INSTANCE_TYPES
from slipway.regions import regions
from slipway.settings.source import Reason

SIZE_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = re.compile(r"^([0-9]{1,16})\s*(|B|KiB|MiB|GiB|TiB)$")
MAX_SIZE = 1 << 50  # bytes; the largest size that acceptance accepts
PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")  # VPC user guide: RFC 1918 and 6598
CIDR_SCHEMA = {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?$"}

PCLUSTER = "ParallelCluster 3.16.1"
EC2_IDS = "EC2 API reference, resource ids: 8 or 17 hexadecimal digits"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Form(Reason):
    """What a value of a field must be.

    `must` is the message for a value that is not. `example` is a valid value; it takes the place of a wrong one so that
    the rest of the file can be checked. `read` returns the value as the model stores it, or raises ValueError; without
    it the value is text that matches `pattern`. `schema` is its JSON Schema. A wrong value can be one of `choices`
    misspelled.
    """

    must: str
    example: Any
    pattern: str = ""
    read: Callable[[Any], Any] | None = None
    schema: dict[str, Any] | None = None
    choices: Callable[[], list[str]] | None = None

    def __call__(self, value: Any) -> Any:
        """Return the value as the model stores it. Raises the error that pydantic collects."""
        try:
            if self.read is not None:
                return self.read(value)
            if isinstance(value, str) and re.fullmatch(self.pattern, value, re.ASCII):
                return value
        except ValueError:
            pass
        raise PydanticCustomError(self.name, self.must)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Read the value before pydantic checks its type."""
        return core_schema.no_info_before_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        """Return the JSON Schema of the field, for editors."""
        return dict(self.schema) if self.schema else {"type": "string", "pattern": f"^(?:{self.pattern})$"}


def _only_if(condition: object, value: Any) -> Any:
    if not condition:
        raise ValueError
    return value


def _size(value: Any) -> int:
    match = SIZE.match(str(_only_if(isinstance(value, (int, str)) and not isinstance(value, bool), value)))
    return int(match[1]) * SIZE_UNITS[match[2]] if match else _only_if(False, 0)


def size_text(size: Any) -> Any:
    """Return 16777216 as 16MiB; a value that is not a number of bytes, or that no unit fits, is returned as it is."""
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        return size
    unit = max((unit for unit in SIZE_UNITS if size % SIZE_UNITS[unit] == 0), key=lambda unit: SIZE_UNITS[unit])
    return f"{size // SIZE_UNITS[unit]}{unit}" if SIZE_UNITS[unit] > 1 else size


def _cidr(value: Any) -> str:
    return str(ipaddress.IPv4Network(value if isinstance(value, str) else ""))


def _private(value: str) -> str:
    network = ipaddress.IPv4Network(value)
    return str(_only_if(any(network.subnet_of(ipaddress.IPv4Network(private)) for private in PRIVATE_RANGES), value))


GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,254}", re.ASCII)
# No character that ends a line or a word of slurm.conf.
SLURM_VALUE = re.compile(r"[A-Za-z0-9_.,:;/=+@%()\[\] -]{1,255}", re.ASCII)


def _placement_group(value: Any) -> Any:
    return _only_if(isinstance(value, bool) or (isinstance(value, str) and GROUP_NAME.fullmatch(value)), value)


def _slurm_value(value: Any) -> Any:
    is_value = isinstance(value, (int, str)) and not isinstance(value, bool)
    return _only_if(is_value and SLURM_VALUE.fullmatch(str(value)), value)


def _matching(pattern: re.Pattern[str], other: str) -> dict[str, Any]:
    return {"anyOf": [{"type": other}, {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}]}


def _text(name: str, pattern: str, must: str, example: str, why: str, source: str) -> Form:
    return Form(name=name, pattern=pattern, must=must, example=example, why=why, source=source)


def _ec2_id(name: str, prefix: str, noun: str) -> Form:
    example = f"{prefix}-0123456789abcdef0"
    must, why = f"must be a {noun} id such as {example}", f"An id of another form is not that of a {noun}."
    return _text(name, rf"{prefix}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", must, example, why, EC2_IDS)


CIDR_FORM = Form(
    name="cidr-form",
    must="must be an IPv4 network such as 10.0.0.0/16, with no host bits set",
    example="10.0.0.0/16",
    why="Host bits hide a mistake in the range.",
    source="RFC 4632",
    read=_cidr,
    schema=CIDR_SCHEMA,
)
Cidr = Annotated[str, CIDR_FORM]
PrivateCidr = Annotated[
    str,
    Form(
        name="cidr-private",
        must=f"must be in a private range: {', '.join(PRIVATE_RANGES)}",
        example="10.0.0.0/16",
        why="A VPC with public addresses cuts its nodes off from the internet hosts that own these addresses.",
        source="VPC user guide, VPC CIDR blocks: RFC 1918 and RFC 6598",
        read=_private,
        schema=CIDR_SCHEMA,
    ),
    CIDR_FORM,
]
Size = Annotated[
    int,
    Field(gt=0, le=MAX_SIZE),
    Form(
        name="size-form",
        must="must be a size such as 16MiB (B, KiB, MiB, GiB, TiB) or a number of bytes",
        example="1MiB",
        why="1M means a million to some programs and 1048576 to others.",
        source="Slipway: units are written out",
        read=_size,
        schema={"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": SIZE.pattern}]},
    ),
]
GbPerS = Annotated[float, Field(gt=0, le=1e6)]
InstanceTypeName = Annotated[
    str,
    Form(
        name="instance-type-unknown",
        must="is not an instance type that Slipway knows",
        example="p5.48xlarge",
        why="Without a type's facts (GPUs, cards, EFA) its queue cannot be checked.",
        source="slipway/data/instance_types.json",
        read=lambda value: _only_if(not isinstance(value, str) or value in INSTANCE_TYPES, value),
        schema={"type": "string", "enum": sorted(INSTANCE_TYPES)},
        choices=lambda: sorted(INSTANCE_TYPES),
    ),
]
PlacementGroup = Annotated[
    bool | str,
    Form(
        name="placement-group-name",
        must="must be true, false or the name of an existing placement group",
        example=False,
        why="`true` makes a new group for the queue; a name is that of an existing group.",
        source="EC2 API reference, CreatePlacementGroup: up to 255 ASCII characters",
        read=_placement_group,
        schema=_matching(GROUP_NAME, "boolean"),
    ),
]
SlurmValue = Annotated[
    int | str,
    Form(
        name="slurm-value",
        must="must be a whole number, or text of one line without # and quotes",
        example=1,
        why="A line break, a quote or a # ends the value in slurm.conf.",
        source="slurm.conf manual page",
        read=_slurm_value,
        schema=_matching(SLURM_VALUE, "integer"),
    ),
]
Region = Annotated[
    str,
    Form(
        name="region-form",
        pattern=r"[a-z]{2,4}(-[a-z]+)+-\d",
        must="must be an AWS region such as us-east-1",
        example="us-east-1",
        why="Every AWS name and address contains the region.",
        source="EC2 user guide, regions",
        schema={"type": "string", "enum": sorted(regions())},
    ),
]
Zone = Annotated[
    str,
    _text(
        "zone-form",
        r"[a-z]{2,4}(-[a-z]+)+-\d[a-z]",
        "must be an availability zone such as us-east-1a",
        "us-east-1a",
        "A zone's name is that of its region and one letter.",
        "EC2 user guide, zones",
    ),
]
ClusterName = Annotated[
    str,
    _text(
        "cluster-name",
        r"[a-z][a-z0-9-]{0,38}[a-z0-9]",
        "must be 2 to 40 characters: a lower-case letter, then letters, digits or -, no - last",
        "stand-in",
        "With accounting ParallelCluster accepts 40 characters: Slurm names database tables after the cluster. Lower "
        "case, because the bucket's name begins with it.",
        f"{PCLUSTER}, ClusterNameValidator; aws-parallelcluster pull request 7340",
    ),
]
QueueName = Annotated[
    str,
    _text(
        "queue-name",
        r"[a-z][a-z0-9-]{0,23}[a-z0-9]",
        "must be 2 to 25 characters: a lower-case letter, then letters, digits or -, no - last",
        "stand-in",
        "The host names of its nodes begin with the queue's name.",
        f"{PCLUSTER}, NameValidator: 25 characters, lower case",
    ),
]
VpcId = Annotated[str, _ec2_id("vpc-id", "vpc", "VPC")]
SubnetId = Annotated[str, _ec2_id("subnet-id", "subnet", "subnet")]
VolumeId = Annotated[str, _ec2_id("volume-id", "vol", "volume")]
SecurityGroupId = Annotated[str, _ec2_id("security-group-id", "sg", "security group")]
ReservationId = Annotated[
    str,
    _text(
        "reservation-id",
        r"cr-([0-9a-f]{8}|[0-9a-f]{17})",
        "must be a capacity reservation id such as cr-0123456789abcdef0",
        "cr-00000000000000000",
        "An id of another form is not that of a reservation.",
        EC2_IDS,
    ),
]
FileSystemId = Annotated[
    str,
    _text(
        "file-system-id",
        r"fs-[0-9a-f]{17}",
        "must be the id of an FSx file system such as fs-0123456789abcdef0",
        "fs-0123456789abcdef0",
        "An id of another form is not that of an FSx file system.",
        f"{PCLUSTER}, FsxLustreSettingsSchema",
    ),
]
MountId = Annotated[
    str,
    _text(
        "mount-id-form",
        r"(fs-([0-9a-f]{8}|[0-9a-f]{17})|fsvol-[0-9a-f]{17}|fc-[0-9a-f]{17})",
        "must be the id of a file system (fs-...), an FSx volume (fsvol-...) or a file cache (fc-...)",
        "fs-00000000000000000",
        "An id of another form is not that of a file system, a volume or a cache.",
        f"{PCLUSTER}, schemas/cluster_schema.py",
    ),
]
PolicyArn = Annotated[
    str,
    _text(
        "policy-arn",
        r"arn:aws[a-z-]*:iam::(aws|\d{12}):policy/[A-Za-z0-9_+=,.@/-]{1,512}",
        "must be the ARN of a managed policy such as arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
        "arn:aws:iam::aws:policy/stand-in",
        "IAM attaches managed policies by their ARN.",
        f"{PCLUSTER}, IAM_POLICY_REGEX",
    ),
]
BoundaryArn = Annotated[
    str,
    _text(
        "boundary-arn",
        r"arn:aws[a-z-]*:iam::(aws|\d{12}):policy/[A-Za-z0-9_-]{1,128}",
        "must be the ARN of a managed policy without a path, such as arn:aws:iam::123456789012:policy/boundary",
        "arn:aws:iam::123456789012:policy/stand-in",
        "ParallelCluster's template for its provider's role takes no boundary with a path in its ARN.",
        "aws-parallelcluster, cloudformation/policies/parallelcluster-policies.yaml, PermissionsBoundaryPolicy",
    ),
]
IamNamePrefix = Annotated[
    str,
    _text(
        "iam-name-prefix",
        r"[A-Za-z0-9_-]{1,10}",
        "must be 1 to 10 letters, digits, _ or -, such as team-",
        "team-",
        "ParallelCluster's template for its provider's role takes at most 10 characters.",
        "aws-parallelcluster, cloudformation/policies/parallelcluster-policies.yaml, IAMRoleAndPolicyPrefix",
    ),
]
SecretArn = Annotated[
    str,
    _text(
        "secret-arn",
        r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]+",
        "must be the ARN of a Secrets Manager secret, never the secret itself",
        "arn:aws:secretsmanager:us-east-1:000000000000:secret:stand-in",
        "The settings name a secret; they never contain one. The wrong value is not repeated in the message.",
        "Secrets Manager user guide, secret ARNs",
    ),
]
ScriptUrl = Annotated[
    str,
    _text(
        "script-url",
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9_.=/-]{1,512}",
        "must be a script in S3: s3://BUCKET/KEY",
        "s3://stand-in/script",
        "Nodes fetch a script from S3 with their own role; code at a public https address can be changed by others.",
        f"{PCLUSTER}, UrlValidator; Slipway: S3 only",
    ),
]
ScriptArgument = Annotated[
    str,
    _text(
        "script-argument",
        r"[^\s\x00-\x1f'\"`$\\]{1,255}",
        "must be text without blanks, quotes, $ and \\",
        "stand-in",
        "ParallelCluster writes arguments into a shell command line.",
        "Slipway: no quoting that could break",
    ),
]
MountPath = Annotated[
    str,
    _text(
        "mount-path",
        r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+",
        "must be an absolute path on the nodes such as /shared",
        "/stand-in",
        "Only letters, digits, _, - and dots: ParallelCluster refuses parts that begin with a dot.",
        f"{PCLUSTER}, ALLOWED_VALUES file_path",
    ),
]
FsxPath = Annotated[
    str,
    _text(
        "fsx-path",
        r"/((?!\.\.?(/|$))[A-Za-z0-9_.-]+(/(?!\.\.?(/|$))[A-Za-z0-9_.-]+)*)?",
        "must be an absolute path on the file system such as /datasets",
        "/stand-in",
        "FSx accepts absolute paths only.",
        "FSx API reference, FileSystemPath",
    ),
]
Prefix = Annotated[
    str,
    _text(
        "prefix",
        r"([A-Za-z0-9!_.*'()-]+/)*",
        "must be an S3 prefix ending in /, such as datasets/",
        "stand-in/",
        "Without the / at its end `datasets` also means `datasets-old`.",
        "FSx user guide, linking to S3",
    ),
]
BucketName = Annotated[
    str,
    _text(
        "bucket-name",
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "must be an S3 bucket name: 3 to 63 lower-case letters, digits, dots or -",
        "stand-in",
        "S3 has no bucket with such a name.",
        "S3 user guide, bucket naming rules",
    ),
]
SlurmKey = Annotated[
    str,
    _text(
        "slurm-key",
        r"[A-Za-z][A-Za-z0-9]{0,63}",
        "must be a parameter of slurm.conf such as SlurmdTimeout",
        "SlurmdTimeout",
        "A parameter's name consists of letters and digits.",
        "slurm.conf manual page",
    ),
]
HostName = Annotated[
    str,
    _text(
        "host-name",
        r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?",
        "must be a host name or an address",
        "stand-in",
        "ParallelCluster joins host and port itself and refuses an address that begins with mysql://.",
        f"{PCLUSTER}, DatabaseUriValidator",
    ),
]
DatabaseUser = Annotated[
    str,
    _text(
        "database-user",
        r"[A-Za-z0-9_]{1,32}",
        "must be 1 to 32 letters, digits or _",
        "stand_in",
        "MySQL's user names have at most 32 characters.",
        "MySQL manual, user names",
    ),
]
DatabaseName = Annotated[
    str,
    _text(
        "database-name",
        r"[0-9a-z_]{1,64}",
        "must be 1 to 64 lower-case letters, digits or _",
        "stand_in",
        "ParallelCluster accepts 1 to 64 of [0-9a-z_].",
        f"{PCLUSTER}, DatabaseSchema",
    ),
]
TagKey = Annotated[
    str,
    _text(
        "tag-key",
        r"(?!aws:)[A-Za-z0-9 _.:/=+@-]{1,128}",
        "must be a tag key of 1 to 128 characters, not starting with aws:",
        "team",
        "AWS accepts these characters in a tag's key, at most 128.",
        "EC2 user guide, tag restrictions",
    ),
]
TagValue = Annotated[
    str,
    _text(
        "tag-value",
        r"[A-Za-z0-9 _.:/=+@-]{0,256}",
        "must be a tag value of at most 256 characters",
        "research",
        "AWS accepts these characters in a tag's value, at most 256.",
        "EC2 user guide, tag restrictions",
    ),
]
KeyPair = Annotated[
    str,
    _text(
        "key-pair-name",
        r"[A-Za-z0-9 ._@()+=-]{1,255}",
        "must be the name of an EC2 key pair",
        "stand-in",
        "EC2 finds a key pair by its name.",
        "EC2 API reference, CreateKeyPair",
    ),
]
Email = Annotated[
    str,
    _text(
        "email",
        r"[^@\s]+@[^@\s]+\.[^@\s]+",
        "must be an e-mail address",
        "operators@example.com",
        "Alerts to such an address never arrive.",
        "SNS: e-mail subscriptions",
    ),
]
ImageUri = Annotated[
    str,
    _text(
        "image-uri",
        # Only what the import accepts: headnode/containers/images.py.
        r"docker://([a-z0-9][a-z0-9.-]*(:\d+)?#|([a-z0-9][a-z0-9-]*\.[a-z0-9.-]*|[a-z0-9][a-z0-9.-]*:\d+|localhost)/)?"
        r"[a-z0-9]+(([._/]|__|-+)[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?",
        "must be an image such as docker://nvcr.io#nvidia/pytorch:24.01-py3",
        "docker://stand-in:1",
        "enroot imports images by docker:// addresses in lower case.",
        "enroot's documentation of import",
    ),
]
NcclTag = Annotated[
    str,
    _text(
        "nccl-tag",
        r"v\d+\.\d+\.\d+-\d+",
        "must be an NCCL release tag such as v2.28.7-1",
        "v2.28.7-1",
        "The build fetches this tag of NVIDIA/nccl.",
        "headnode/user/install-nccl-shared.sh",
    ),
]
OfiTag = Annotated[
    str,
    _text(
        "ofi-tag",
        r"v\d+\.\d+\.\d+(-aws)?",
        "must be an aws-ofi-nccl release tag such as v1.17.2-aws",
        "v1.17.2-aws",
        "The build fetches this tag of aws/aws-ofi-nccl.",
        "headnode/user/install-nccl-shared.sh",
    ),
]
SCENARIO_WORDS = ("all-reduce", "full", "none")
AcceptanceScenario = Annotated[
    str,
    Form(
        name="acceptance-scenario",
        pattern=r"all-reduce|full|none|(?!.*//)[A-Za-z0-9_./@+-]{0,200}[A-Za-z0-9_@+-][.]toml",
        must="must be all-reduce, full, none, or the path of a CloudAI scenario such as conf/scenario/nightly.toml",
        example="all-reduce",
        why="The head node knows these words; a path is that of a TOML file, in letters that need no quoting.",
        source="docs/cloudai.md",
        choices=lambda: list(SCENARIO_WORDS),
    ),
]
OneLine = Annotated[
    str,
    _text(
        "one-line",
        r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,300}",
        "must be one line of 1 to 300 characters",
        "stand-in",
        "The report prints the text in one line.",
        "Slipway: acceptance/report",
    ),
]
Mirror = Annotated[
    str,
    _text(
        "mirror",
        r"(s3|https)://[A-Za-z0-9./_:-]+",
        "must be an s3:// or https:// prefix",
        "https://stand-in/",
        "Nodes fetch software with the AWS CLI or curl.",
        "nodes/lib/fetch.sh",
    ),
]

FORMS: tuple[Form, ...] = tuple(
    {
        form.name: form
        for alias in list(globals().values())
        for form in getattr(alias, "__metadata__", ())
        if isinstance(form, Form)
    }.values()
)
"""Every form, in the order of this file."""
