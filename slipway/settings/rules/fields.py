"""Rules of the file and of single fields. They are told where the file is read (``slipway.settings.source``) and where
its fields are validated (``slipway.settings``); the rows here say why.
"""

from __future__ import annotations

from slipway.settings.rules.rule import PCLUSTER, Rule

YAML = "YAML 1.2.2, core schema"
EC2_IDS = "EC2 API reference, resource ids: 8 or 17 hexadecimal digits"
OURS = "Slipway"

FILE_RULES = (
    Rule(
        name="file-missing",
        why="There is nothing to check.",
        source=OURS,
        example="no such file. Hint: look in clusters/ for examples",
    ),
    Rule(
        name="file-kind",
        why="A folder has no settings, and a device or a pipe may never end.",
        source=OURS,
        example="is a folder, not a settings file. Hint: name a .yaml file, e.g. clusters/rehearsal.yaml",
    ),
    Rule(
        name="file-size",
        why="A settings file is a page or two: this is another file.",
        source=OURS,
        example="is larger than 1048576 bytes. Hint: is this the right file?",
    ),
    Rule(
        name="file-unreadable",
        why="The operating system did not give the file's content.",
        source="open(2)",
        example="cannot be read: Not a directory. Hint: check the path and its permissions",
    ),
    Rule(
        name="file-encoding",
        why="YAML is read as UTF-8.",
        source="YAML 1.2.2, character encodings",
        example="is not UTF-8 text. Hint: save it as UTF-8",
    ),
    Rule(
        name="file-table",
        why="A settings file is a table of keys at the top.",
        source="docs/settings.md",
        example="the file is not a table of keys. Hint: start from one of clusters/*.yaml",
    ),
    Rule(
        name="yaml-syntax",
        why="What cannot be parsed is not guessed at.",
        source=YAML,
        example="is not valid YAML: found unexpected end of stream. Hint: check indentation, colons and quotes",
    ),
    Rule(
        name="yaml-alias",
        why="Aliases make ten lines into billions of values.",
        source="the billion laughs attack, known from XML (CVE-2003-1564)",
        example="uses a YAML alias (*name). Hint: write the value out",
    ),
    Rule(
        name="yaml-depth",
        why="The settings are five levels deep; endless depth stops a parser.",
        source=OURS,
        example="is nested deeper than 20 levels. Hint: see docs/settings.md",
    ),
    Rule(
        name="yaml-tag",
        why="Tags change what a value is behind its back; no setting needs one.",
        source=YAML,
        example="images: has a YAML tag. Hint: write the plain value; quotes make it text",
    ),
    Rule(
        name="yaml-key",
        why="Every key of the settings is a word.",
        source="docs/settings.md",
        example="has a list or a table as a key. Hint: a key is one word",
    ),
    Rule(
        name="yaml-key-twice",
        why="YAML wants keys unique; which of the two counts differs between programs.",
        source="YAML 1.2.2, mappings",
        example="name: stands twice, first on line 1. Hint: keep one of them",
    ),
    Rule(
        name="secret-value",
        why="A settings file lies in a repository and in CloudFormation's history; a key in it is no secret any "
        "more. It is not repeated in the message.",
        source="Secrets Manager user guide; forms of NVIDIA, AWS, Hugging Face, GitHub and GitLab keys",
        example="tags.ngc: looks like a secret. Hint: keep it in Secrets Manager, name its ARN here, and make a "
        "new key: this one is known",
    ),
)

FIELD_RULES = (
    Rule(
        name="unknown-key",
        why="A misspelled key would be a setting that silently is not made.",
        source=OURS,
        example="head_nod: is not a known key. Hint: did you mean head_node?",
    ),
    Rule(
        name="missing-key",
        why="The value has no default that would be right for most.",
        source=OURS,
        example="region: is missing. Hint: every cluster needs it; see clusters/*.yaml for examples",
    ),
    Rule(
        name="wrong-type",
        why='Text is never made into numbers or truth values: "yes", "010" and "1e3" mean different things to '
        "different programs.",
        source=YAML,
        example="queues[0].count = '4': must be a whole number",
    ),
    Rule(
        name="not-a-choice",
        why="The key takes these words only.",
        source="docs/settings.md",
        example="os = 'ubuntu2004': must be one of ubuntu2204, ubuntu2404 or alinux2023. Hint: did you mean "
        "ubuntu2404?",
    ),
    Rule(
        name="out-of-range",
        why="Below or above there is no such thing to make; docs/settings.md has each bound.",
        source=f"{PCLUSTER}, schemas/cluster_schema.py; EC2, FSx and CloudFormation quotas",
        example="head_node.root_volume_gib = 20: must be greater than or equal to 45",
    ),
    Rule(
        name="list-length",
        why="A cluster has at least one queue; ParallelCluster takes at most 50.",
        source=f"{PCLUSTER}, MaxCountValidator, MAX_NUMBER_OF_QUEUES",
        example="queues = []: must have at least 1 item",
    ),
    Rule(
        name="instance-type-unknown",
        why="Without a type's facts (GPUs, cards, EFA) nothing about its queue can be checked.",
        source="slipway/data/instance_types.json",
        example="queues[0].instance_type = 'p5.48xlage': is not an instance type that Slipway knows. Hint: did you "
        "mean p5.48xlarge?",
    ),
    Rule(
        name="cluster-name",
        why="With accounting ParallelCluster takes 40 characters: Slurm names database tables after the cluster. "
        "Lower case, because the bucket's name begins with it.",
        source=f"{PCLUSTER}, ClusterNameValidator; aws-parallelcluster pull request 7340",
        example="name = 'Demo_Cluster': must be 2 to 40 characters: a lower-case letter, then letters, digits or "
        "-, no - last",
    ),
    Rule(
        name="queue-name",
        why="Host names begin with the queue's name.",
        source=f"{PCLUSTER}, NameValidator: 25 characters, lower case",
        example="queues[0].name = 'Train': must be 2 to 25 characters: a lower-case letter, then letters, digits "
        "or -, no - last",
    ),
    Rule(
        name="region-form",
        why="Every AWS name and address holds the region.",
        source="EC2 user guide, regions",
        example="region = 'virginia': must be an AWS region such as us-east-1",
    ),
    Rule(
        name="zone-form",
        why="A zone is a region and one letter.",
        source="EC2 user guide, zones",
        example="zone = 'use1-az4': must be an availability zone such as us-east-1a",
    ),
    Rule(
        name="vpc-id",
        why="An id of another form names no VPC.",
        source=EC2_IDS,
        example="network.vpc_id = 'vpc-123': must be a VPC id such as vpc-0123456789abcdef0",
    ),
    Rule(
        name="subnet-id",
        why="An id of another form names no subnet.",
        source=EC2_IDS,
        example="network.head_node_subnet_id = 'subnet-head': must be a subnet id such as subnet-0123456789abcdef0",
    ),
    Rule(
        name="security-group-id",
        why="An id of another form names no security group.",
        source=EC2_IDS,
        example="network.security_group_id = 'sg-nodes': must be a security group id such as sg-0123456789abcdef0",
    ),
    Rule(
        name="reservation-id",
        why="An id of another form names no reservation.",
        source=EC2_IDS,
        example="queues[0].reservation.id = 'cr-1': must be a capacity reservation id such as cr-0123456789abcdef0",
    ),
    Rule(
        name="file-system-id",
        why="An id of another form names no FSx file system.",
        source=f"{PCLUSTER}, FsxLustreSettingsSchema",
        example="storage.fsx.file_system_id = 'fs-01234567': must be the id of an FSx file system such as "
        "fs-0123456789abcdef0",
    ),
    Rule(
        name="mount-id-form",
        why="An id of another form names no file system, volume or cache.",
        source=f"{PCLUSTER}, schemas/cluster_schema.py",
        example="storage.mounts[0].id = 'vol-0123456789abcdef0': must be the id of a file system (fs-...), an FSx "
        "volume (fsvol-...) or a file cache (fc-...)",
    ),
    Rule(
        name="policy-arn",
        why="IAM attaches managed policies by their ARN.",
        source=f"{PCLUSTER}, IAM_POLICY_REGEX",
        example="head_node.policy_arns[0] = 'AmazonS3ReadOnlyAccess': must be the ARN of a managed policy such as "
        "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    ),
    Rule(
        name="secret-arn",
        why="The settings name a secret; they never hold one. What stands there is not repeated in the message.",
        source="Secrets Manager user guide, secret ARNs",
        example="ngc_secret_arn = (not shown): must be the ARN of a Secrets Manager secret, never the secret itself",
    ),
    Rule(
        name="script-url",
        why="Nodes fetch a script from S3 with their own role; an open https address would be somebody else's code.",
        source=f"{PCLUSTER}, UrlValidator; Slipway: S3 only",
        example="head_node.scripts[0].url = 'https://example.com/setup.sh': must be a script in S3: s3://BUCKET/KEY",
    ),
    Rule(
        name="script-argument",
        why="ParallelCluster writes arguments into a shell command line.",
        source="Slipway: no quoting that could break",
        example="head_node.scripts[0].arguments[0] = '$(id)': must be text without blanks, quotes, $ and \\",
    ),
    Rule(
        name="mount-path",
        why="A path below / in plain characters; ParallelCluster refuses parts that begin with a dot.",
        source=f"{PCLUSTER}, ALLOWED_VALUES file_path",
        example="storage.mounts[0].path = 'shared': must be an absolute path on the nodes such as /shared",
    ),
    Rule(
        name="slurm-key",
        why="A parameter's name is letters and digits.",
        source="slurm.conf manual page",
        example="slurm.settings.Slurmd-Timeout = 600: must be a parameter of slurm.conf such as SlurmdTimeout",
    ),
    Rule(
        name="slurm-value",
        why="A line break, a quote or a # in slurm.conf begins something else.",
        source="slurm.conf manual page",
        example="slurm.settings.SlurmdTimeout = '600 # ten minutes': must be a whole number, or text of one line "
        "without # and quotes",
    ),
    Rule(
        name="host-name",
        why="ParallelCluster puts host and port together itself and refuses an address with mysql:// in front.",
        source=f"{PCLUSTER}, DatabaseUriValidator",
        example="slurm.database.host = 'mysql://db.example.com': must be a host name or an address",
    ),
    Rule(
        name="database-user",
        why="MySQL's user names have at most 32 characters.",
        source="MySQL manual, user names",
        example="slurm.database.user = 'slurm@head': must be 1 to 32 letters, digits or _",
    ),
    Rule(
        name="database-name",
        why="ParallelCluster takes 1 to 64 of [0-9a-z_].",
        source=f"{PCLUSTER}, DatabaseSchema",
        example="slurm.database.name = 'Slurm-Accounting': must be 1 to 64 lower-case letters, digits or _",
    ),
    Rule(
        name="tag-key",
        why="AWS takes these characters in a tag's key, 128 of them.",
        source="EC2 user guide, tag restrictions",
        example="tags.cost,center = 'research': must be a tag key of 1 to 128 characters, not starting with aws:",
    ),
    Rule(
        name="tag-value",
        why="AWS takes these characters in a tag's value, 256 of them.",
        source="EC2 user guide, tag restrictions",
        example="tags.team = 'research & development': must be a tag value of at most 256 characters",
    ),
    Rule(
        name="placement-group-name",
        why="true makes a group of the queue's own; a name is one that exists.",
        source="EC2 API reference, CreatePlacementGroup: up to 255 ASCII characters",
        example="queues[0].placement_group = ['together']: must be true, false or the name of an existing "
        "placement group",
    ),
    Rule(
        name="key-pair-name",
        why="EC2 finds a key pair by its name.",
        source="EC2 API reference, CreateKeyPair",
        example="head_node.key_pair = 'ops/team': must be the name of an EC2 key pair",
    ),
    Rule(
        name="bucket-name",
        why="S3 has no bucket of such a name.",
        source="S3 user guide, bucket naming rules",
        example="storage.bucket = 'Corp_Data': must be an S3 bucket name: 3 to 63 lower-case letters, digits, dots "
        "or -",
    ),
    Rule(
        name="email",
        why="Alerts to such an address arrive nowhere.",
        source="SNS: e-mail subscriptions",
        example="observability.alert_email = 'operators': must be an e-mail address",
    ),
    Rule(
        name="image-uri",
        why="enroot imports images by docker:// addresses in lower case.",
        source="enroot's documentation of import",
        example="images[0] = 'nvcr.io/nvidia/pytorch': must be an image such as "
        "docker://nvcr.io#nvidia/pytorch:24.01-py3",
    ),
    Rule(
        name="fsx-path",
        why="FSx takes absolute paths.",
        source="FSx API reference, FileSystemPath",
        example="storage.associations[0].path = 'datasets': must be an absolute path on the file system such as "
        "/datasets",
    ),
    Rule(
        name="prefix",
        why="Without the / at its end datasets also means datasets-old.",
        source="FSx user guide, linking to S3",
        example="storage.associations[0].prefix = 'datasets': must be an S3 prefix ending in /, such as datasets/",
    ),
    Rule(
        name="nccl-tag",
        why="The build fetches this tag of NVIDIA/nccl.",
        source="headnode/user/install-nccl-shared.sh",
        example="nccl.nccl_version = '2.28.7': must be an NCCL release tag such as v2.28.7-1",
    ),
    Rule(
        name="ofi-tag",
        why="The build fetches this tag of aws/aws-ofi-nccl.",
        source="headnode/user/install-nccl-shared.sh",
        example="nccl.ofi_version = '1.17.2': must be an aws-ofi-nccl release tag such as v1.17.2-aws",
    ),
    Rule(
        name="one-line",
        why="The text stands in one line of the report.",
        source="Slipway: acceptance/report",
        example="acceptance.limits[0].source = 'own\\nbaseline': must be one line of 1 to 300 characters",
    ),
    Rule(
        name="mirror",
        why="Nodes fetch software with the AWS CLI or curl.",
        source="nodes/lib/fetch.sh",
        example="software_mirror = 'http://mirror.example.com/slipway/': must be an s3:// or https:// prefix",
    ),
    Rule(
        name="size-form",
        why="1M is a million to some and 1048576 to others.",
        source="Slipway: units are spelled out",
        example="acceptance.max_bytes = '16GB': must be a size such as 16MiB (B, KiB, MiB, GiB, TiB) or a number "
        "of bytes",
    ),
    Rule(
        name="cidr-form",
        why="Host bits hide a mistake in the range.",
        source="RFC 4632",
        example="network.cidr = '10.0.0.1/16': must be an IPv4 network such as 10.0.0.0/16, with no host bits set",
    ),
    Rule(
        name="cidr-private",
        why="Addresses of the internet in a VPC cut the nodes off from whoever owns them.",
        source="VPC user guide, VPC CIDR blocks: RFC 1918 and RFC 6598",
        example="network.cidr = '198.51.100.0/24': must lie in a private range: 10.0.0.0/8, 172.16.0.0/12, "
        "192.168.0.0/16, 100.64.0.0/10",
    ),
)
RULES = (*FILE_RULES, *FIELD_RULES)
