"""Rules of the software: images, NCCL and its plugin, the head node, the time that a bootstrap may take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from slipway import node_steps
from slipway.instances import COMPUTE_CAPABILITIES, INSTANCE_TYPES
from slipway.places import ACCEPTANCE, FILES
from slipway.settings.model import Script, Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, repeated, rule, warning
from slipway.settings.source import Place

SOFTWARE_TABLE = FILES / "nodes/software.tsv"
BAD_RELEASES = ACCEPTANCE / "limits/bad_releases.json"
PAIRS_FILE = Path(__file__).resolve().parents[2] / "data/nccl_pairs.json"
INSTANCE_TYPE: Place = ("head_node", "instance_type")

HEAD_NODE_MIN_MEMORY_GIB = 8  # Slurm's controller, Prometheus and the exporters together
NODES_PER_GIB, OS_GIB, MOST_GIB = 25, 0.6, 16  # HeadNodeMemorySizeValidator
BUILD_GIB_PER_JOB = 2  # a CUDA library with 15 nvcc jobs peaked at 31.8 GiB: NVIDIA/cccl pull request 11160, 2026-09
BUILD_CPU_MINUTES = 63  # 16 jobs took 3.94 minutes for one GPU architecture: docs/measurements.md
NODES_START_MINUTES = 5  # compute nodes boot meanwhile; Slipway's own low estimate
# Share of acceptance.timeout_minutes for waiting until nccl-tests are built. Not added to the share of the queue: nodes
# boot meanwhile.
BUILD_SHARE = 0.20
MOST_SECURITY_GROUPS, OUR_SECURITY_GROUPS = 5, 2  # VPC quotas, per network interface; ParallelCluster's and Slipway's

PRIVATE_ECR = re.compile(r"docker://\d{12}\.dkr\.ecr\.")

NODE_TIMEOUT_S = 2100  # pcluster/constants.py NODE_BOOTSTRAP_TIMEOUT
PAIR_KEYS = ("nccl.source", "nccl.nccl_version", "nccl.ofi_version")
KNOWN_KEYS = (*PAIR_KEYS, "queues.instance_type", "queues.efa", "acceptance.scenario")
RELEASE_NOTES = "release notes of aws/aws-ofi-nccl, in slipway/data/nccl_pairs.json"


@rule(
    why="The head node runs Slurm's controller, Prometheus and the exporters; out of memory, the whole cluster fails.",
    source="Slipway: 8 GiB, what the smallest type of the examples' families has",
    keys=("head_node.instance_type",),
)
def head_node_memory(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    if head.memory_gib < HEAD_NODE_MIN_MEMORY_GIB:
        text = f"has {head.memory_gib} GiB of memory, the head node needs {HEAD_NODE_MIN_MEMORY_GIB}"
        yield INSTANCE_TYPE, text, "m5.2xlarge or larger"


@rule(
    why="Slurm's controller needs memory for every node it knows.",
    source=f"{PCLUSTER}, HeadNodeMemorySizeValidator: nodes / 25 + 0.6 GiB, at most 16",
    keys=("head_node.instance_type", *COUNT_KEYS),
)
def head_node_nodes(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    nodes = sum(queue.max_count for queue in s.queues)
    needed = min(nodes / NODES_PER_GIB + OS_GIB, MOST_GIB)
    if HEAD_NODE_MIN_MEMORY_GIB <= head.memory_gib < needed:
        text = f"has {head.memory_gib} GiB of memory, for {nodes} nodes the head node needs {needed:g}"
        yield INSTANCE_TYPE, text, "m5.2xlarge or larger"


@rule(
    why="Nothing on the head node uses a GPU, and it is paid for around the clock.",
    source="Slipway: headnode/steps",
    keys=("head_node.instance_type",),
)
def head_node_gpu(s: Settings) -> Iterator[Finding]:
    if INSTANCE_TYPES[s.head_node.instance_type].gpus:
        yield INSTANCE_TYPE, "the head node needs no GPU", "take a type such as m5.8xlarge"


@warning(
    why="ParallelCluster's images have no nccl-tests: the head node builds them, with NCCL, while the compute "
    "nodes start. Acceptance waits a fifth of its time for that and then ends without a measurement.",
    source="headnode/nccl/build.sh: one nvcc a vCPU, but 2 GiB each (NVIDIA/cccl pull request 11160: 31.8 GiB "
    "with 15 jobs); about 63 CPU minutes for each GPU architecture (docs/measurements.md)",
    keys=("head_node.instance_type", "queues.instance_type", "acceptance.scenario", "acceptance.timeout_minutes"),
)
def head_node_nccl_build(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    jobs = max(1, min(head.vcpus, (head.memory_gib - HEAD_NODE_MIN_MEMORY_GIB) // BUILD_GIB_PER_JOB))
    models = {queue.instance.gpu_model for queue in s.queues if queue.instance.gpu_model}
    targets = {COMPUTE_CAPABILITIES[model] for model in models}
    minutes = BUILD_CPU_MINUTES * len(targets) / jobs
    patience = NODES_START_MINUTES + BUILD_SHARE * s.acceptance.timeout_minutes
    if head.memory_gib >= HEAD_NODE_MIN_MEMORY_GIB and s.acceptance.scenario != "none" and minutes > patience:
        text = (
            f"has {head.vcpus} vCPUs and {head.memory_gib} GiB: NCCL and nccl-tests are built in about "
            f"{minutes:.0f} minutes, acceptance has {patience:.0f} for it"
        )
        yield INSTANCE_TYPE, text, "take a type with more vCPUs such as m5.2xlarge, or an image that has nccl-tests"


@warning(
    why="A network interface has at most 5 security groups unless the quota was raised; EC2 refuses the instance.",
    source="VPC quotas, security groups per network interface",
    keys=("head_node.security_group_ids",),
)
def head_node_security_groups(s: Settings) -> Iterator[Finding]:
    count = len(s.head_node.security_group_ids) + OUR_SECURITY_GROUPS
    if count > MOST_SECURITY_GROUPS:
        text = f"with those of ParallelCluster and Slipway there are {count}; the quota is {MOST_SECURITY_GROUPS}"
        yield ("head_node", "security_group_ids"), text, "join some, or have the quota raised"


def in_private_ecr(image: str) -> bool:
    """Whether an image lies in a private registry of ECR."""
    return bool(PRIVATE_ECR.match(image))


def _registry(image: str) -> tuple[str, str]:
    """The text before and after the first slash, without docker://."""
    first, _, rest = image.removeprefix("docker://").partition("/")
    return first, rest


@warning(
    why="enroot 3 takes everything after docker:// for a name on Docker Hub unless # ends the registry.",
    source="enroot's documentation of import; the release notes of enroot 4",
    keys=("images",),
)
def image_slash(s: Settings) -> Iterator[Finding]:
    for index, image in enumerate(s.images):
        first, rest = _registry(image)
        if "#" not in image and rest and ("." in first or ":" in first):
            text = "names its registry with a slash, which enroot reads since version 4 only"
            yield ("images", index), text, f"write docker://{first}#{rest}"


@warning(
    why="The import asks ECR for a password with the head node's role; without a policy for that, ECR answers 401.",
    source="enroot issue 59; headnode/containers/credentials.py",
    keys=("images", "head_node.policy_arns"),
)
def image_ecr(s: Settings) -> Iterator[Finding]:
    if any("ContainerRegistry" in arn for arn in s.head_node.policy_arns):
        return
    for index, image in enumerate(s.images):
        if in_private_ecr(image):
            text = "is in a private registry of ECR, and no policy of the head node allows it to pull from there"
            hint = "add arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly to head_node.policy_arns"
            yield ("images", index), text, hint


@warning(
    why="The import depends on the day, and later no record shows which image a job ran in.",
    source="Slipway: what a node runs is pinned",
    keys=("images",),
)
def image_tag(s: Settings) -> Iterator[Finding]:
    for index, image in enumerate(s.images):
        name = image.removeprefix("docker://").rpartition("/")[2].rpartition("#")[2]
        tag = name.partition("@")[0].partition(":")[2]
        if "@" not in name and tag in {"", "latest"}:
            text = "has no tag that stays the same: on another day it is another image"
            yield ("images", index), text, "name a version"


@rule(
    why="Both would be written to one file.",
    source="headnode/user/download-ngc-containers.sh",
    keys=("images",),
    across=True,
)
def image_twice(s: Settings) -> Iterator[Finding]:
    names = [image.removeprefix("docker://") for image in s.images]
    files = (re.sub("[:@]", "-", re.sub("[/#]", "_", name)) for name in names)  # headnode/containers/images.py
    for index, first in repeated(files):
        yield ("images", index), f"is also images[{first}]", "leave it out"


@lru_cache(maxsize=1)
def _pairs() -> dict[str, Any]:
    pairs: dict[str, Any] = json.loads(PAIRS_FILE.read_text(encoding="utf-8"))
    return pairs


def _version(text: str) -> tuple[int, ...]:
    plain = text.removeprefix("v").removesuffix("-aws").partition("-")[0]
    return tuple(int(part[:9]) for part in plain.split("."))


def _plugin(s: Settings) -> tuple[str, dict[str, Any] | None]:
    """The plugin's version as its release notes write it, and what they say; None for a release not known."""
    version = ".".join(map(str, _version(s.nccl.ofi_version)))
    return version, _pairs()["releases"].get(version)


@rule(
    why="NCCL does not load a plugin whose interfaces it does not know, and uses sockets without a message.",
    source=RELEASE_NOTES,
    keys=PAIR_KEYS,
)
def nccl_too_old(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release and _version(s.nccl.nccl_version) < _version(release["oldest"]):
        text = f"the plugin {version} works with NCCL {release['oldest']} and newer"
        yield ("nccl", "nccl_version"), text, f"take v{release['tested']}-1, which it was tested with"


@warning(
    why="A newer NCCL mostly works with an older plugin, but without its newer interfaces, and untested.",
    source=RELEASE_NOTES,
    keys=PAIR_KEYS,
)
def nccl_untested(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release and _version(s.nccl.nccl_version) > _version(release["tested"]):
        text = f"is newer than NCCL {release['tested']}, the newest that the plugin {version} was tested with"
        yield ("nccl", "nccl_version"), text, f"take v{release['tested']}-1, or a newer plugin"


@warning(
    why="Slipway has not seen the release notes that say whether it works with this NCCL.",
    source=RELEASE_NOTES,
    keys=PAIR_KEYS,
)
def plugin_unknown(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release is None:
        newest = max(_pairs()["releases"], key=_version)
        text = f"Slipway knows no release {version} of the plugin; the newest it knows is {newest}"
        yield ("nccl", "ofi_version"), text, "compare its release notes with your NCCL and instance type"


@lru_cache(maxsize=1)
def _pinned() -> frozenset[tuple[str, str]]:
    """Name and version of every line of nodes/software.tsv."""
    lines = SOFTWARE_TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return frozenset((row[0], row[1]) for row in rows)


@warning(
    why="Sources are built only when their checksum is known beforehand; the build ends, and nothing is measured.",
    source="headnode/nccl/sources.sh",
    keys=(
        "nccl.source",
        "nccl.nccl_version",
        "nccl.ofi_version",
        "software_mirror",
        "queues.instance_type",
        "acceptance.scenario",
    ),
)
def nccl_unpinned(s: Settings) -> Iterator[Finding]:
    if s.software_mirror or s.gpu_queue is None or (s.nccl.source == "image" and s.acceptance.scenario == "none"):
        return
    tags = [("nccl_version", "nccl", s.nccl.nccl_version)]
    if s.nccl.source == "shared":
        tags.append(("ofi_version", "aws-ofi-nccl", s.nccl.ofi_version))
    for key, name, tag in tags:
        version = tag.removeprefix("v").removesuffix("-aws")
        if (name, version) not in _pinned():
            text = f"has no checksum in nodes/software.tsv, so the head node does not build {name} {version}"
            yield ("nccl", key), text, "add its line there, or set software_mirror"


@lru_cache(maxsize=1)
def _bad_releases() -> list[dict[str, Any]]:
    """The releases that are known to be bad: a data file of acceptance, which compares it with a log."""
    entries: list[dict[str, Any]] = json.loads(BAD_RELEASES.read_text(encoding="utf-8"))["entries"]
    return entries


def _known(s: Settings, severity: str) -> Iterator[Finding]:
    """The plugin and Libfabric of an image are not in the settings: acceptance compares those that its log names."""
    if s.gpu_queue is None or (s.nccl.source == "image" and s.acceptance.scenario == "none"):
        return
    versions = {"nccl": s.nccl.nccl_version, "plugin": s.nccl.ofi_version if s.nccl.source == "shared" else None}
    types = {queue.instance_type for queue in s.queues if queue.efa}
    for entry in _bad_releases():
        ranges = {key: entry[key] for key in ("nccl", "plugin", "libfabric") if key in entry}
        if (
            entry["severity"] == severity
            and types.intersection(entry.get("instance_types", types))
            and all(_within(bounds, versions.get(key)) for key, bounds in ranges.items())
        ):
            key = "ofi_version" if "plugin" in ranges else "nccl_version"
            text = f"is known to be bad: {entry['symptom']} ({entry['source']}, {entry['date']})"
            yield ("nccl", key), text, entry["repair"]


def _within(bounds: list[str | None], version: str | None) -> bool:
    """Whether a release is in a range [first, last], both included; None is an open end."""
    if version is None:
        return False
    first, last = bounds
    return (first is None or _version(version) >= _version(first)) and (
        last is None or _version(version) <= _version(last)
    )


@rule(
    why="Jobs hang, crash or compute wrong results, often only with some sizes, and nothing names the cause.",
    source="acceptance/limits/bad_releases.json, where each entry has its source and date",
    keys=KNOWN_KEYS,
)
def nccl_known_bad(s: Settings) -> Iterator[Finding]:
    yield from _known(s, "fault")


@warning(
    why="A fault of the release shows in some jobs, and a later one has the repair.",
    source="acceptance/limits/bad_releases.json, where each entry has its source and date",
    keys=KNOWN_KEYS,
)
def nccl_known_flaw(s: Settings) -> Iterator[Finding]:
    yield from _known(s, "warning")


@rule(
    why="Without the type's settings the plugin finds neither its topology nor its protocol: a part of the speed.",
    source=RELEASE_NOTES,
    keys=(*PAIR_KEYS, "queues.instance_type", "queues.efa"),
)
def plugin_type(s: Settings) -> Iterator[Finding]:
    if s.nccl.source != "shared":
        return
    for name in sorted({queue.instance_type for queue in s.queues if queue.efa}):
        since = _pairs()["types"].get(name, {}).get("since")
        if since and _version(s.nccl.ofi_version) < _version(since):
            yield ("nccl", "ofi_version"), f"the plugin knows {name} since {since}", f"take v{since} or newer"


@warning(
    why="Jobs run with other variables than the settings say, and older figures are not reproduced.",
    source="compute/steps/30-nccl.sh",
    keys=("nccl.environment", "nccl.source"),
)
def nccl_environment_unused(s: Settings) -> Iterator[Finding]:
    if s.nccl.environment == "legacy" and s.nccl.source == "image":
        text = "has no effect: without a shared NCCL no environment is changed"
        yield ("nccl", "environment"), text, "set nccl.source: shared, or leave it out"


@warning(
    why="Readers of the settings expect that broken nodes are replaced.",
    source="nodes/health/slurm.py",
    keys=("health.replacements_per_day", "health.terminate_drained_nodes", "health.drain", "health.enabled"),
)
def health_replacements_unused(s: Settings) -> Iterator[Finding]:
    health = s.health
    drains = health.enabled and health.drain and health.terminate_drained_nodes
    if "replacements_per_day" in health.model_fields_set and not drains:
        text = "has no effect: the checks drain no node, or a drained node is not replaced"
        repair = "set health.enabled, health.drain and health.terminate_drained_nodes: true, or leave it out"
        yield ("health", "replacements_per_day"), text, repair


@warning(
    why="ParallelCluster waits 2100 s for a node. Slipway's own steps are bounded by their time-outs (images "
    "and NCCL are not among them: they run later); how long yours take it cannot know.",
    source=f"{PCLUSTER}, NODE_BOOTSTRAP_TIMEOUT; aws-parallelcluster issues 3939 and 5511; heads of "
    "headnode/steps and compute/steps",
    keys=("head_node.scripts", "queues.scripts"),
)
def scripts_time(s: Settings) -> Iterator[Finding]:
    tables: list[tuple[Place, tuple[Script, ...], str]] = [(("head_node", "scripts"), s.head_node.scripts, "headnode")]
    tables += [(("queues", index, "scripts"), queue.scripts, "compute") for index, queue in enumerate(s.queues)]
    for place, scripts, kind in tables:
        if scripts:
            left = NODE_TIMEOUT_S - node_steps.seconds(kind)
            text = f"runs before a node is ready: {left} s are left for it, then creation fails"
            yield (*place, 0), text, "start what is slow in the background"
