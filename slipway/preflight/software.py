"""What the nodes fetch from S3: the site's scripts, and a mirror of the pinned software."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipway.aws.calls import Aws, Pending
from slipway.places import FILES
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.settings import Script, Settings
from slipway.settings.source import Place

MIRROR: Place = ("software_mirror",)
ABSENT = ("404", "NoSuchKey", "NoSuchBucket")
SUM_LINE = re.compile(r"([0-9a-f]{64})\s+\*?(?:\./)?(.+)")  # as nodes/lib/software.sh reads it
TABLE = FILES / "nodes/software.tsv"
SUMS = "SHA256SUMS"
GPU_CONTAINERS = "libnvidia-container"  # packages that only nodes with GPUs fetch
SUMS_LIMIT_BYTES = 1 << 20


def _split(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key


def scripts_of(settings: Settings) -> list[tuple[Place, Script]]:
    """Every script of the settings with its place."""
    head: list[tuple[Place, Script]] = [
        (("head_node", "scripts", number, "url"), script) for number, script in enumerate(settings.head_node.scripts)
    ]
    return head + [
        (("queues", index, "scripts", number, "url"), script)
        for index, queue in enumerate(settings.queues)
        for number, script in enumerate(queue.scripts)
    ]


def _scripts(settings: Settings, aws: Aws) -> Iterator[Answer]:
    asked = []
    for path, script in scripts_of(settings):
        bucket, key = _split(script.url)
        head = aws.start("s3", "head_bucket", Bucket=bucket)
        asked.append(_script(settings, path, script, aws.start("s3", "head_object", Bucket=bucket, Key=key), head))
    yield from together(*asked)


def _script(settings: Settings, path: Place, script: Script, asked: Pending, bucket: Pending) -> Iterator[Answer]:
    answer = found(asked, *ABSENT)
    if answer is None:
        yield fault(path, f"there is no {script.url}", f"upload it: aws s3 cp SCRIPT {script.url}")
        return
    if answer["ContentLength"] == 0:
        yield fault(path, f"{script.url} is empty", f"upload it: aws s3 cp SCRIPT {script.url}")
        return
    region = bucket.result().get("BucketRegion", settings.region)
    if region != settings.region:
        text = f"{script.url} is in {region}, the cluster in {settings.region}"
        yield warning(
            path, text, "copy it to a bucket of the cluster's region: an endpoint of the VPC reaches no other"
        )
    else:
        yield ok(path, f"{script.url} is there")


def pinned_files(settings: Settings) -> dict[str, str]:
    """Path -> sha256 of what the nodes fetch, from nodes/software.tsv; empty for a version that it does not pin."""
    tags = {"nccl": settings.nccl.nccl_version, "aws-ofi-nccl": settings.nccl.ofi_version, "nccl-tests": ""}
    built = built_software(settings)
    files = {}
    for name, version, sha256, url in _table():
        if name.startswith(GPU_CONTAINERS) and settings.gpu_queue is None:
            continue
        if name not in tags:
            files[url.rpartition("/")[2]] = sha256
        elif name in built:  # in a mirror an archive of GitHub's is NAME-VERSION.tar.gz
            wanted = tags[name].removeprefix("v").removesuffix("-aws") or version
            archive = f"{name}-{wanted}.tar.gz"
            files[archive] = sha256 if wanted == version else files.get(archive, "")
    return files


def built_software(settings: Settings) -> tuple[str, ...]:
    """What the head node builds from source: NCCL for all nodes, or nccl-tests for acceptance alone."""
    if settings.gpu_queue is None:
        return ()
    if settings.nccl.source == "shared":
        return ("nccl", "aws-ofi-nccl", "nccl-tests")
    return ("nccl", "nccl-tests") if settings.acceptance.scenario != "none" else ()


def _table() -> Iterator[list[str]]:
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def _mirror(settings: Settings, aws: Aws) -> Iterator[Answer]:
    url = (settings.software_mirror or "").rstrip("/")
    bucket, prefix = _split(url)
    key = f"{prefix}/" if prefix else ""
    files = pinned_files(settings)
    sums = aws.start("s3", "get_object", Bucket=bucket, Key=f"{key}{SUMS}")
    asked = {file: aws.start("s3", "head_object", Bucket=bucket, Key=f"{key}{file}") for file in files}
    yield from together(_sums(url, files, sums), *(_file(url, file, asked[file]) for file in files))


def _sums(url: str, files: dict[str, str], asked: Pending) -> Iterator[Answer]:
    answer = found(asked, *ABSENT)
    hint = f"in the folder that is mirrored: sha256sum * > {SUMS}, then aws s3 cp {SUMS} {url}/"
    if answer is None:
        yield fault(MIRROR, f"there is no {url}/{SUMS}", hint)
        return
    text = answer["Body"].read(SUMS_LIMIT_BYTES).decode("utf-8", "replace")
    sums = {match[2]: match[1] for line in text.splitlines() if (match := SUM_LINE.fullmatch(line.strip()))}
    for file, sha256 in files.items():
        if file not in sums:
            yield fault(MIRROR, f"{url}/{SUMS} has no line of {file}", hint)
        elif sha256 and sums[file] != sha256:
            text = f"{url}/{SUMS} has another sum for {file} than nodes/software.tsv"
            yield warning(MIRROR, text, "mirror the release itself, or mean it: the nodes go by the mirror's sum")
    if all(file in sums for file in files):
        yield ok(MIRROR, f"{url}/{SUMS} has all {len(files)} files")


def _file(url: str, file: str, asked: Pending) -> Iterator[Answer]:
    if found(asked, *ABSENT) is None:
        yield fault(MIRROR, f"there is no {url}/{file}", "upload the release that nodes/software.tsv names")


QUESTIONS = (
    Question(
        name="scripts",
        asks="Are the site's scripts where the settings say?",
        why="A node whose script cannot be fetched does not start, and the head node's failure ends the creation.",
        source="ParallelCluster user guide, CustomActions; aws-parallelcluster issues 3939 and 5511",
        permissions=("s3:GetObject", "s3:ListBucket"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_scripts,
        applies=lambda s: bool(scripts_of(s)),
    ),
    Question(
        name="software-mirror",
        asks="Does the mirror hold every pinned file, and the sums?",
        why="Nodes without a way to the internet fetch from it alone; a file that is missing stops their set-up.",
        source="nodes/lib/software.sh, software::use_mirror",
        permissions=("s3:GetObject",),
        finds=(Status.FAULT, Status.WARNING),
        ask=_mirror,
        applies=lambda s: (s.software_mirror or "").startswith("s3://"),
    ),
)
