"""Rules that join several fields of the settings. Each rule is one small function that yields its faults.

Rules without a source are Slipway's own; the others name where the limit comes from.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.errors import Fault
from slipway.instances import INSTANCE_TYPES
from slipway.source import PathKey, Source, path_text

if TYPE_CHECKING:
    from slipway.settings import Queue, Settings

Finding = tuple[tuple[PathKey, ...], str, str]
"""Where (path), which rule is broken, how to repair it."""

CAPACITY_BLOCK_MAX_INSTANCES = 64  # EC2 user guide, Capacity Blocks
MAX_ASSOCIATIONS = 8  # FSx API reference, CreateDataRepositoryAssociation
THROUGHPUT_MB_S_PER_TIB = {
    "persistent-2": (125, 250, 500, 1000),
    "persistent-1": (50, 100, 200),
}  # ParallelCluster 3.16 constants
CAPACITY_STEP_GIB = 2400  # FSx for Lustre: 1200 or a multiple of 2400 GiB
AWS_RESERVED_ADDRESSES = 5  # per subnet, VPC user guide
LIMITS_FILE = Path(__file__).resolve().parent.parent / "acceptance/limits/limits.json"
HEAD_NODE_MIN_MEMORY_GIB = 8  # Slurm's controller, Prometheus and the NCCL build beside each other


def rule_faults(settings: Settings, source: Source, bad_paths: Collection[tuple[PathKey, ...]] = ()) -> list[Fault]:
    """Every broken rule as a Fault. Findings that depend on one of ``bad_paths`` (told already) are left out."""
    faults = []
    for rule in RULES:
        for path, text, hint in rule(settings):
            if not any(_depends(path, bad) for bad in bad_paths):
                faults.append(Fault(source.file, source.line(path), path_text(path), source.value(path), text, hint))
    return faults


def _depends(path: tuple[PathKey, ...], bad: tuple[PathKey, ...]) -> bool:
    """Whether a finding at ``path`` may come from the wrong value at ``bad``: the same table, or one it looks at."""
    if path[:1] == ("zone",):
        return bad in {("zone",), ("region",)}
    if path[:1] in {("acceptance",), ("network",)} and bad[:1] == ("queues",):
        return True
    common = 2 if path[:1] == ("queues",) or path[:1] == ("storage",) else 1
    return path[:common] == bad[:common]


def _zone_in_region(s: Settings) -> Iterator[Finding]:
    if s.zone[:-1] != s.region:
        yield (
            ("zone",),
            f"is not a zone of the region {s.region}",
            f"write {s.region}{s.zone[-1]}, or change the region",
        )


def _network_is_new_or_existing(s: Settings) -> Iterator[Finding]:
    ids = {
        "vpc_id": s.network.vpc_id,
        "head_node_subnet_id": s.network.head_node_subnet_id,
        "compute_subnet_id": s.network.compute_subnet_id,
    }
    given = [name for name, value in ids.items() if value]
    if s.network.cidr and given:
        yield (
            ("network",),
            f"has both cidr and {', '.join(given)}",
            "give cidr for a new VPC, or the three ids for an existing one",
        )
    elif given and len(given) < len(ids):
        missing = [name for name in ids if name not in given]
        yield ("network",), f"an existing VPC also needs {', '.join(missing)}", "give all three ids"
    elif not given and not s.network.cidr:
        yield ("network",), "needs cidr, or the three ids of an existing VPC", "for example cidr: 10.0.0.0/16"


def _network_has_room(s: Settings) -> Iterator[Finding]:
    if not s.network.cidr:
        return
    network = ipaddress.IPv4Network(s.network.cidr)
    if not 16 <= network.prefixlen <= 24:
        yield ("network", "cidr"), "a new VPC needs a prefix of /16 to /24", "for example 10.0.0.0/16"
        return
    room = network.num_addresses // 2 - AWS_RESERVED_ADDRESSES  # the private subnet is one half of the VPC
    # One address an instance since ParallelCluster 3.15: the other network cards are EFA-only and have none.
    needed = sum(queue.max_count for queue in s.queues) + 2  # FSx and the interface endpoints have theirs too
    if needed > room:
        yield (
            ("network", "cidr"),
            f"has {room} addresses for compute nodes, the queues can need {needed}",
            "take a larger network, e.g. /16",
        )


def _queue_names_differ(s: Settings) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, queue in enumerate(s.queues):
        if queue.name in seen:
            yield (
                ("queues", index, "name"),
                f"is also the name of queues[{seen[queue.name]}]",
                "give each queue its own name",
            )
        seen.setdefault(queue.name, index)


def _counts(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.count is None and queue.max_count < max(queue.min_count, 1):
            yield (
                ("queues", index, "max_count"),
                f"must be at least 1 and at least min_count ({queue.min_count})",
                "raise max_count",
            )


def _efa_needs_the_type(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.efa and not queue.instance.efa_interfaces:
            yield (
                ("queues", index, "efa"),
                f"{queue.instance_type} has no EFA interface",
                "set efa: false, or take a type with EFA",
            )


def _network_cards_need_efa(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if not queue.efa and queue.instance.network_cards > 1:
            yield (
                ("queues", index, "efa"),
                f"without EFA NCCL uses none of the {queue.instance.network_cards} network cards of the type",
                "set efa: true",
            )


def _reservations(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.reservation is None:
            continue
        if queue.spot:
            yield (
                ("queues", index, "spot"),
                "spot instances cannot come from a reservation",
                "set spot: false, or drop the reservation",
            )
        if queue.placement_group:
            yield (
                ("queues", index, "placement_group"),
                "a placement group that the reservation was not made in ends in insufficient capacity",
                "set placement_group: false; the reservation already places its instances together",
            )
        if queue.reservation.kind == "capacity-block":
            yield from _capacity_block(index, queue)


def _capacity_block(index: int, queue: Queue) -> Iterator[Finding]:
    """ParallelCluster's rules for CAPACITY_BLOCK, and EC2's limit."""
    where: PathKey = "count" if queue.count is not None else "max_count"
    if queue.min_count != queue.max_count:
        yield (
            ("queues", index, "max_count"),
            "a capacity block needs min_count equal to max_count",
            "give count instead",
        )
    if queue.max_count > CAPACITY_BLOCK_MAX_INSTANCES:
        yield (
            ("queues", index, where),
            f"a capacity block holds at most {CAPACITY_BLOCK_MAX_INSTANCES} instances",
            "use several queues",
        )


def _reservations_are_used_once(s: Settings) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, queue in enumerate(s.queues):
        if queue.reservation is None:
            continue
        other = seen.setdefault(queue.reservation.id, queue.instance_type)
        if other != queue.instance_type:
            yield (
                ("queues", index, "reservation", "id"),
                f"is also used for {other}; a reservation has one instance type",
                "check the id",
            )


def _head_node_is_large_enough(s: Settings) -> Iterator[Finding]:
    head = INSTANCE_TYPES[s.head_node.instance_type]
    if head.gpus:
        yield ("head_node", "instance_type"), "the head node needs no GPU", "take a type such as m5.8xlarge"
    if head.memory_gib < HEAD_NODE_MIN_MEMORY_GIB:
        yield (
            ("head_node", "instance_type"),
            f"has {head.memory_gib} GiB of memory, the head node needs {HEAD_NODE_MIN_MEMORY_GIB}",
            "m5.2xlarge or larger",
        )
    if s.head_node.ssh_from and not s.head_node.key_pair:
        yield (
            ("head_node", "ssh_from"),
            "opens SSH, but there is no key_pair to log in with",
            "name a key pair, or leave both out and use Session Manager",
        )


def _fsx(s: Settings) -> Iterator[Finding]:
    fsx = s.storage.fsx
    place: tuple[PathKey, ...] = ("storage", "fsx")
    if fsx.capacity_gib != 1200 and fsx.capacity_gib % CAPACITY_STEP_GIB:
        lower = max(fsx.capacity_gib // CAPACITY_STEP_GIB * CAPACITY_STEP_GIB, 1200)
        upper = (fsx.capacity_gib // CAPACITY_STEP_GIB + 1) * CAPACITY_STEP_GIB
        yield (
            (*place, "capacity_gib"),
            f"must be 1200 or a multiple of {CAPACITY_STEP_GIB} GiB",
            f"the nearest are {lower} and {upper}",
        )
    allowed = THROUGHPUT_MB_S_PER_TIB.get(fsx.deployment)
    if allowed is None and fsx.throughput_mb_s_per_tib is not None:
        yield (*place, "throughput_mb_s_per_tib"), f"{fsx.deployment} has a fixed throughput", "leave it out"
    if allowed is not None and fsx.throughput_mb_s_per_tib not in allowed:
        yield (
            (*place, "throughput_mb_s_per_tib"),
            f"must be one of {', '.join(map(str, allowed))} MB/s per TiB for {fsx.deployment}",
            f"for example {allowed[1]}",
        )


def _associations(s: Settings) -> Iterator[Finding]:
    """FSx's rules for data repository associations."""
    associations = s.storage.associations
    place: tuple[PathKey, ...] = ("storage", "associations")
    if len(associations) > MAX_ASSOCIATIONS:
        yield (
            place,
            f"a file system has at most {MAX_ASSOCIATIONS} associations, here are {len(associations)}",
            "join some under one prefix",
        )
    for index, one in enumerate(associations):
        if one.path == "/" and index > 0:
            yield (
                (*place, index, "path"),
                "/ can only be the first association",
                "move it to the front, or give it a folder",
            )
        for earlier, other in enumerate(associations[:index]):
            if "/" not in (one.path, other.path) and _inside(one.path, other.path):
                yield (
                    (*place, index, "path"),
                    f"overlaps {other.path} of associations[{earlier}]",
                    "give each association a tree of its own",
                )
            if _inside(one.prefix or "/", other.prefix or "/"):
                yield (
                    (*place, index, "prefix"),
                    f"overlaps {other.prefix!r} of associations[{earlier}]",
                    "give each association a prefix of its own",
                )


def _inside(one: str, other: str) -> bool:
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


def _home(s: Settings) -> Iterator[Finding]:
    home = s.storage.home
    if home.kind == "ebs" and home.size_gib is None:
        yield ("storage", "home"), "an EBS home needs size_gib", "for example size_gib: 500"
    if home.kind == "head-node" and home.size_gib is not None:
        yield ("storage", "home", "size_gib"), "only an EBS home has a size", "set kind: ebs, or leave size_gib out"


def _secrets(s: Settings) -> Iterator[Finding]:
    if s.ngc_secret_arn and f":secretsmanager:{s.region}:" not in s.ngc_secret_arn:
        yield ("ngc_secret_arn",), f"is not in the region {s.region}", "make the secret in the cluster's region"


def _acceptance(s: Settings) -> Iterator[Finding]:
    acceptance = s.acceptance
    if acceptance.min_bytes > acceptance.max_bytes:
        yield ("acceptance", "min_bytes"), "is larger than max_bytes", "swap them"
    if acceptance.scenario == "none":
        return
    queue = s.gpu_queue
    if queue is None:
        yield ("acceptance", "scenario"), "needs a queue with GPUs", "set scenario: none for a cluster without GPUs"
        return
    if queue.min_count < 1:
        yield (
            ("acceptance", "scenario"),
            f"queue {queue.name} has no static node to judge",
            "give it count or min_count, or set scenario: none",
        )
    for index, limit in enumerate(acceptance.limits):
        place: tuple[PathKey, ...] = ("acceptance", "limits", index)
        if limit.nodes > queue.max_count:
            yield (
                (*place, "nodes"),
                f"is more than the {queue.max_count} nodes of queue {queue.name}",
                "limits are for this cluster's node counts",
            )
        if limit.nodes == queue.min_count and not _visited(s, limit.size):
            yield (
                (*place, "size"),
                "is not a size that the sweep visits: min_bytes doubled again and again",
                "take such a size",
            )
        if limit.warn_below_gb_per_s is not None and limit.warn_below_gb_per_s < limit.fail_below_gb_per_s:
            yield (
                (*place, "warn_below_gb_per_s"),
                f"is below fail_below_gb_per_s ({limit.fail_below_gb_per_s})",
                "a warning comes before a failure",
            )


def _limits_are_known(s: Settings) -> Iterator[Finding]:
    """A measurement that nothing is held against is not accepted, and that would be found out at the very end."""
    queue = s.gpu_queue
    if s.acceptance.scenario == "none" or queue is None or queue.min_count < 1:
        return
    own = any(limit.nodes == queue.min_count and _visited(s, limit.size) for limit in s.acceptance.limits)
    known = [
        row
        for row in known_limits()
        if row["instance_type"] == queue.instance_type and row["collective"] == "all_reduce"
    ]
    if own or any(
        row["nodes"][0] <= queue.min_count <= row["nodes"][1] and _visited(s, row["size_bytes"]) for row in known
    ):
        return
    counts = ", ".join(
        f"{row['nodes'][0]}" if row["nodes"][0] == row["nodes"][1] else f"{row['nodes'][0]}-{row['nodes'][1]}"
        for row in known
    )
    yield (
        ("acceptance", "limits") if s.acceptance.limits else ("acceptance",),
        f"no limit is known for an all_reduce on {queue.min_count} x {queue.instance_type} at a size of this sweep",
        f"give acceptance.limits one for {queue.min_count} nodes, or set scenario: none"
        + (f" (known are {counts} nodes of this type)" if known else ""),
    )


def _swept(s: Settings, size: int) -> bool:
    return s.acceptance.min_bytes <= size <= s.acceptance.max_bytes


def _visited(s: Settings, size: int) -> bool:
    steps, rest = divmod(size, s.acceptance.min_bytes)
    return rest == 0 and _swept(s, size) and steps & (steps - 1) == 0


def known_limits() -> list[dict[str, Any]]:
    """The limits that acceptance brings along, read as data: ``acceptance`` itself is the head node's program."""
    text = LIMITS_FILE.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["limits"]
    return rows


def _budget(s: Settings) -> Iterator[Finding]:
    if s.budget and not s.observability.alert_email:
        yield ("budget",), "needs somebody to tell", "set observability.alert_email"


RULES: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _zone_in_region,
    _network_is_new_or_existing,
    _network_has_room,
    _queue_names_differ,
    _counts,
    _efa_needs_the_type,
    _network_cards_need_efa,
    _reservations,
    _reservations_are_used_once,
    _head_node_is_large_enough,
    _fsx,
    _associations,
    _home,
    _secrets,
    _acceptance,
    _limits_are_known,
    _budget,
)
