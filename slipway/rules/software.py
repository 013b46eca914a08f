"""Rules of the software: images, NCCL and its plugin, the head node, the time that a bootstrap may take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.instances import INSTANCE_TYPES
from slipway.rules.rule import PCLUSTER, Finding, Rule
from slipway.source import Place

if TYPE_CHECKING:
    from slipway.settings import Script, Settings

PAIRS_FILE = Path(__file__).resolve().parents[1] / "data/nccl_pairs.json"
INSTANCE_TYPE: Place = ("head_node", "instance_type")
COUNT_KEYS = ("queues.count", "queues.min_count", "queues.max_count")

HEAD_NODE_MIN_MEMORY_GIB = 8  # Slurm's controller, Prometheus and the exporters beside each other
NODES_PER_GIB, OS_GIB, MOST_GIB = 25, 0.6, 16  # HeadNodeMemorySizeValidator
BUILD_GIB_PER_VCPU = 2  # a CUDA library with 15 nvcc jobs peaked at 31.8 GiB: NVIDIA/cccl pull request 11160, 2026-09
MOST_SECURITY_GROUPS, OUR_SECURITY_GROUPS = 5, 2  # VPC quotas, per network interface; ParallelCluster's and Slipway's

PRIVATE_ECR = re.compile(r"\d{12}\.dkr\.ecr\.")

NODE_TIMEOUT_S = 2100  # pcluster/constants.py NODE_BOOTSTRAP_TIMEOUT
HEAD_STEPS_S = 1020  # sum of the time-outs in the heads of headnode/steps: the most that they can take
COMPUTE_STEPS_S = 630  # of compute/steps


def _head_memory(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    if head.memory_gib < HEAD_NODE_MIN_MEMORY_GIB:
        text = f"has {head.memory_gib} GiB of memory, the head node needs {HEAD_NODE_MIN_MEMORY_GIB}"
        yield INSTANCE_TYPE, text, "m5.2xlarge or larger"


def _head_nodes(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    nodes = sum(queue.max_count for queue in s.queues)
    needed = min(nodes / NODES_PER_GIB + OS_GIB, MOST_GIB)
    if HEAD_NODE_MIN_MEMORY_GIB <= head.memory_gib < needed:
        text = f"has {head.memory_gib} GiB of memory, for {nodes} nodes the head node needs {needed:g}"
        yield INSTANCE_TYPE, text, "m5.2xlarge or larger"


def _head_gpu(s: Settings) -> Iterator[Finding]:
    if INSTANCE_TYPES[s.head_node.instance_type].gpus:
        yield INSTANCE_TYPE, "the head node needs no GPU", "take a type such as m5.8xlarge"


def _head_build(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    needed = HEAD_NODE_MIN_MEMORY_GIB + BUILD_GIB_PER_VCPU * head.vcpus
    if s.nccl.source == "shared" and head.memory_gib < needed:
        text = (
            f"has {head.memory_gib} GiB of memory, the NCCL build with {head.vcpus} jobs beside Slurm may need {needed}"
        )
        yield INSTANCE_TYPE, text, "take a type with 4 GiB a vCPU such as m5.2xlarge"


def _head_groups(s: Settings) -> Iterator[Finding]:
    count = len(s.head_node.security_group_ids) + OUR_SECURITY_GROUPS
    if count > MOST_SECURITY_GROUPS:
        text = f"with those of ParallelCluster and Slipway these are {count}; the quota is {MOST_SECURITY_GROUPS}"
        yield ("head_node", "security_group_ids"), text, "join some, or have the quota raised"


def _registry(image: str) -> tuple[str, str]:
    """What stands before and after the first slash, without docker://."""
    first, _, rest = image.removeprefix("docker://").partition("/")
    return first, rest


def _image_slash(s: Settings) -> Iterator[Finding]:
    for index, image in enumerate(s.images):
        first, rest = _registry(image)
        if "#" not in image and rest and ("." in first or ":" in first):
            text = "names its registry with a slash, which enroot reads since version 4 only"
            yield ("images", index), text, f"write docker://{first}#{rest}"


def _image_ecr(s: Settings) -> Iterator[Finding]:
    for index, image in enumerate(s.images):
        if PRIVATE_ECR.match(image.removeprefix("docker://")):
            yield (
                ("images", index),
                "is in a private registry of ECR, for which the import has no credentials",
                "import it by hand on the head node, or keep it in nvcr.io or a public registry",
            )


def _image_tag(s: Settings) -> Iterator[Finding]:
    for index, image in enumerate(s.images):
        name = image.removeprefix("docker://").rpartition("/")[2].rpartition("#")[2]
        tag = name.partition("@")[0].partition(":")[2]
        if "@" not in name and tag in {"", "latest"}:
            yield ("images", index), "has no tag that stays the same: another day it is another image", "name a version"


def _image_twice(s: Settings) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, image in enumerate(s.images):
        key = image.replace("#", "/")
        if key in seen:
            yield ("images", index), f"is also images[{seen[key]}]", "leave it out"
        seen.setdefault(key, index)


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


def _nccl_too_old(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release and _version(s.nccl.nccl_version) < _version(release["oldest"]):
        text = f"the plugin {version} works with NCCL {release['oldest']} and newer"
        yield ("nccl", "nccl_version"), text, f"take v{release['tested']}-1, which it was tested with"


def _nccl_untested(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release and _version(s.nccl.nccl_version) > _version(release["tested"]):
        text = f"is newer than NCCL {release['tested']}, the newest that the plugin {version} was tested with"
        yield ("nccl", "nccl_version"), text, f"take v{release['tested']}-1, or a newer plugin"


def _plugin_unknown(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release is None:
        newest = max(_pairs()["releases"], key=_version)
        text = f"Slipway knows no release {version} of the plugin; the newest it knows is {newest}"
        yield ("nccl", "ofi_version"), text, "compare its release notes with your NCCL and instance type"


def _plugin_bad(s: Settings) -> Iterator[Finding]:
    version, release = _plugin(s)
    if s.nccl.source == "shared" and release and "bad" in release:
        yield ("nccl", "ofi_version"), f"{version} is known to be bad: {release['bad']}", "take another release"


def _plugin_type(s: Settings) -> Iterator[Finding]:
    if s.nccl.source != "shared":
        return
    for name in sorted({queue.instance_type for queue in s.queues if queue.efa}):
        since = _pairs()["types"].get(name, {}).get("since")
        if since and _version(s.nccl.ofi_version) < _version(since):
            yield ("nccl", "ofi_version"), f"the plugin knows {name} since {since}", f"take v{since} or newer"


def _scripts(s: Settings) -> Iterator[Finding]:
    tables: list[tuple[Place, tuple[Script, ...], int]] = [
        (("head_node", "scripts"), s.head_node.scripts, HEAD_STEPS_S)
    ]
    tables += [(("queues", index, "scripts"), queue.scripts, COMPUTE_STEPS_S) for index, queue in enumerate(s.queues)]
    for place, scripts, own in tables:
        if scripts:
            text = f"runs before a node is ready: {NODE_TIMEOUT_S - own} s are left for it, then creation fails"
            yield (*place, 0), text, "start what is slow in the background"


PAIR_KEYS = ("nccl.source", "nccl.nccl_version", "nccl.ofi_version")
RELEASE_NOTES = "release notes of aws/aws-ofi-nccl, in slipway/data/nccl_pairs.json"
RULES = (
    Rule(
        name="head-node-memory",
        why="The head node runs Slurm's controller, Prometheus and the exporters; out of memory, it takes the "
        "cluster along.",
        source="Slipway: 8 GiB, what the smallest type of the examples' families has",
        example="head_node.instance_type = 'c5.large': has 4 GiB of memory, the head node needs 8. Hint: "
        "m5.2xlarge or larger",
        keys=("head_node.instance_type",),
        find=_head_memory,
    ),
    Rule(
        name="head-node-nodes",
        why="Slurm's controller needs memory for every node it knows.",
        source=f"{PCLUSTER}, HeadNodeMemorySizeValidator: nodes / 25 + 0.6 GiB, at most 16",
        example="head_node.instance_type = 'm5.large': has 8 GiB of memory, for 250 nodes the head node needs "
        "10.6. Hint: m5.2xlarge or larger",
        keys=("head_node.instance_type", *COUNT_KEYS),
        find=_head_nodes,
    ),
    Rule(
        name="head-node-gpu",
        why="Nothing on the head node uses a GPU, and it is paid for around the clock.",
        source="Slipway: headnode/steps",
        example="head_node.instance_type = 'p5.4xlarge': the head node needs no GPU. Hint: take a type such as "
        "m5.8xlarge",
        keys=("head_node.instance_type",),
        find=_head_gpu,
    ),
    Rule(
        name="head-node-nccl-build",
        severity="warning",
        why="The build starts one nvcc a vCPU, about 2 GiB each, beside Slurm and Prometheus; the kernel kills "
        "what does not fit.",
        source="headnode/user/install-nccl-shared.sh (make -j nproc); NVIDIA/cccl pull request 11160: 31.8 GiB "
        "with 15 jobs; NVIDIA/nccl issue 760",
        example="head_node.instance_type = 'c6i.8xlarge': has 64 GiB of memory, the NCCL build with 32 jobs beside "
        "Slurm may need 72. Hint: take a type with 4 GiB a vCPU such as m5.2xlarge",
        keys=("head_node.instance_type", "nccl.source"),
        find=_head_build,
    ),
    Rule(
        name="head-node-security-groups",
        severity="warning",
        why="A network interface has at most 5 security groups unless the quota was raised; EC2 refuses the instance.",
        source="VPC quotas, security groups per network interface",
        example="head_node.security_group_ids = ['sg-0123456789abcdef0', 'sg-0123456789abcdef1', "
        "'sg-0123456789abcdef2', 'sg-...: with those of ParallelCluster and Slipway these are 6; the quota is 5. "
        "Hint: join some, or have the quota raised",
        keys=("head_node.security_group_ids",),
        find=_head_groups,
    ),
    Rule(
        name="image-slash",
        severity="warning",
        why="enroot 3 takes everything after docker:// for a name on Docker Hub unless # ends the registry.",
        source="enroot's documentation of import; the release notes of enroot 4",
        example="images[0] = 'docker://nvcr.io/nvidia/pytorch:24.01-py3': names its registry with a slash, which "
        "enroot reads since version 4 only. Hint: write docker://nvcr.io#nvidia/pytorch:24.01-py3",
        keys=("images",),
        find=_image_slash,
    ),
    Rule(
        name="image-ecr",
        severity="warning",
        why="The import knows the key of NVIDIA's registry alone; ECR answers 401 to whoever has no token of the day.",
        source="enroot issue 59; headnode/user/download-ngc-containers.sh",
        example="images[0] = 'docker://123456789012.dkr.ecr.us-east-1.amazonaws.com#train:1.0': is in a private "
        "registry of ECR, for which the import has no credentials. Hint: import it by hand on the head node, or keep "
        "it in nvcr.io or a public registry",
        keys=("images",),
        find=_image_ecr,
    ),
    Rule(
        name="image-tag",
        severity="warning",
        why="What is imported changes with the day, and nobody can say later what a job ran in.",
        source="Slipway: what a node runs is pinned",
        example="images[0] = 'docker://nvcr.io#nvidia/pytorch': has no tag that stays the same: another day it is "
        "another image. Hint: name a version",
        keys=("images",),
        find=_image_tag,
    ),
    Rule(
        name="image-twice",
        why="Both would be written to one file.",
        source="headnode/user/download-ngc-containers.sh",
        example="images[1] = 'docker://nvcr.io#nvidia/pytorch:24.01-py3': is also images[0]. Hint: leave it out",
        keys=("images",),
        find=_image_twice,
        across=True,
    ),
    Rule(
        name="nccl-too-old",
        why="NCCL does not load a plugin whose interfaces it does not know, and falls back to sockets in silence.",
        source=RELEASE_NOTES,
        example="nccl.nccl_version = 'v2.16.5-1': the plugin 1.17.2 works with NCCL 2.17.1 and newer. Hint: take "
        "v2.28.7-1, which it was tested with",
        keys=PAIR_KEYS,
        find=_nccl_too_old,
    ),
    Rule(
        name="nccl-untested",
        severity="warning",
        why="A newer NCCL mostly works with an older plugin, without its newer interfaces and without anyone's test.",
        source=RELEASE_NOTES,
        example="nccl.nccl_version = 'v2.31.2-1': is newer than NCCL 2.28.7, the newest that the plugin 1.17.2 was "
        "tested with. Hint: take v2.28.7-1, or a newer plugin",
        keys=PAIR_KEYS,
        find=_nccl_untested,
    ),
    Rule(
        name="plugin-unknown",
        severity="warning",
        why="Whether it goes with this NCCL stands in release notes that Slipway has not seen.",
        source=RELEASE_NOTES,
        example="nccl.ofi_version = 'v1.23.0': Slipway knows no release 1.23.0 of the plugin; the newest it knows "
        "is 1.21.1. Hint: compare its release notes with your NCCL and instance type",
        keys=PAIR_KEYS,
        find=_plugin_unknown,
    ),
    Rule(
        name="plugin-bad",
        why="Its authors tell its users to leave it, in the notes of the release that followed.",
        source=RELEASE_NOTES,
        example="nccl.ofi_version = 'v1.12.0-aws': 1.12.0 is known to be bad: its sorting of virtual functions "
        "crashes or slows down on EFA installer 1.35.0 and newer. Hint: take another release",
        keys=PAIR_KEYS,
        find=_plugin_bad,
    ),
    Rule(
        name="plugin-type",
        why="Without the type's settings the plugin finds neither its topology nor its protocol: a part of the speed.",
        source=RELEASE_NOTES,
        example="nccl.ofi_version = 'v1.13.2-aws': the plugin knows p6-b200.48xlarge since 1.15.0. Hint: take "
        "v1.15.0 or newer",
        keys=(*PAIR_KEYS, "queues.instance_type", "queues.efa"),
        find=_plugin_type,
    ),
    Rule(
        name="scripts-time",
        severity="warning",
        why="ParallelCluster waits 2100 s for a node. Slipway's own steps are bounded by their time-outs (images "
        "and NCCL are not among them: they run later); how long yours take it cannot know.",
        source=f"{PCLUSTER}, NODE_BOOTSTRAP_TIMEOUT; aws-parallelcluster issues 3939 and 5511; heads of "
        "headnode/steps and compute/steps",
        example="head_node.scripts[0]: runs before a node is ready: 1080 s are left for it, then creation fails. "
        "Hint: start what is slow in the background",
        keys=("head_node.scripts", "queues.scripts"),
        find=_scripts,
    ),
)
