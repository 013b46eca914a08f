"""Rules of the queues: names, counts, EFA, reservations, placement."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.settings.model import Queue, Reservation, Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, repeated, rule, warning

CAPACITY_BLOCK_MAX_INSTANCES = 64  # EC2 user guide, Capacity Blocks
RANGE = ("min_count", "max_count")
RESERVATION = "queues.reservation"


def _reserved(s: Settings, kind: str | None = None) -> Iterator[tuple[int, Queue, Reservation]]:
    """The queues with a reservation, with their numbers; only those with one of `kind` if that is not None."""
    for index, queue in enumerate(s.queues):
        if queue.reservation and kind in (None, queue.reservation.kind):
            yield index, queue, queue.reservation


@rule(
    why="A queue is a Slurm partition; two with one name cannot be distinguished.",
    source=f"{PCLUSTER}, DuplicateNameValidator",
    keys=("queues.name",),
    across=True,
)
def queue_names_differ(s: Settings) -> Iterator[Finding]:
    for index, first in repeated(queue.name for queue in s.queues):
        yield ("queues", index, "name"), f"is also the name of queues[{first}]", "give each queue its own name"


@rule(
    why="ParallelCluster forbids the name: DEFAULT has a special meaning in slurm.conf.",
    source=f"{PCLUSTER}, NameValidator",
    keys=("queues.name",),
)
def queue_name_default(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.name == "default":
            yield ("queues", index, "name"), "is a name that ParallelCluster reserves", "take another name"


@warning(
    why="EC2 ends the instances of a capacity block; those of an on-demand reservation run on after its end.",
    source="headnode/block-end.py",
    keys=("queues.reservation.hold_minutes", "queues.reservation.kind"),
)
def reservation_hold_unused(s: Settings) -> Iterator[Finding]:
    for index, _, reservation in _reserved(s, "on-demand"):
        if "hold_minutes" in reservation.model_fields_set:
            text = "has no effect: only the instances of a capacity block are ended"
            yield ("queues", index, "reservation", "hold_minutes"), text, "leave it out, or set kind: capacity-block"


@rule(
    why="One of them would be ignored, without a sign of which one.",
    source="Slipway: a value is set once",
    keys=COUNT_KEYS,
)
def count_both(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.count is not None and not queue.model_fields_set.isdisjoint(RANGE):
            yield ("queues", index), "has both count and min_count/max_count", "give count, or the other two"


@rule(
    why="How many nodes a queue has is what the cluster costs; it is never guessed.",
    source="Slipway: no default for what is paid for",
    keys=COUNT_KEYS,
)
def count_missing(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.count is None and "max_count" not in queue.model_fields_set:
            text = "needs count (static nodes) or max_count (dynamic nodes)"
            yield ("queues", index), text, "for example count: 2"


@rule(
    why="A queue has at least its static nodes, and at least one node.",
    source=f"{PCLUSTER}, ComputeResourceSizeValidator",
    keys=COUNT_KEYS,
)
def count_order(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        has_range = queue.count is None and "max_count" in queue.model_fields_set
        if has_range and queue.max_count < max(queue.min_count, 1):
            text = f"must be at least 1 and at least min_count ({queue.min_count})"
            yield ("queues", index, "max_count"), text, "raise max_count"


@rule(
    why="EC2 refuses to start an instance with an interface that its type does not have.",
    source=f"{PCLUSTER}, EfaValidator; slipway/data/instance_types.json",
    keys=("queues.efa", "queues.instance_type"),
)
def efa_missing(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.efa and not queue.instance.efa_interfaces:
            text = f"{queue.instance_type} has no EFA interface"
            yield ("queues", index, "efa"), text, "set efa: false, or take a type with EFA"


@rule(
    why="Types with several cards are bought for EFA: without it a p5.48xlarge does 2 GB/s in all_reduce "
    "instead of 350 and more.",
    source="KeitaW/p5-nccl-test and awsome-distributed-training: measurements with and without EFA",
    keys=("queues.efa", "queues.instance_type"),
)
def efa_off(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if not queue.efa and queue.instance.network_cards > 1:
            text = f"without EFA NCCL uses none of the {queue.instance.network_cards} network cards of the type"
            yield ("queues", index, "efa"), text, "set efa: true"


@warning(
    why="EFA costs nothing, and jobs over several nodes are faster with it.",
    source=f"{PCLUSTER}, EfaValidator",
    keys=("queues.efa", "queues.instance_type", *COUNT_KEYS),
)
def efa_unused(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        has_one = queue.instance.efa_interfaces == 1 and queue.instance.network_cards == 1
        if has_one and queue.instance.gpus and not queue.efa and queue.max_count > 1:
            text = f"{queue.instance_type} has an EFA interface, and the queue does not use it"
            yield ("queues", index, "efa"), text, "set efa: true"


@warning(
    why="Without a placement group EC2 spreads instances over a zone; latency between them grows.",
    source=f"{PCLUSTER}, EfaPlacementGroupValidator",
    keys=("queues.efa", "queues.instance_type", "queues.placement_group", RESERVATION, *COUNT_KEYS),
)
def efa_placement(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        alone = queue.max_count < 2 or queue.reservation or queue.placement_group
        if queue.efa and queue.instance.efa_interfaces and not alone:
            text = "nodes with EFA and no reservation may be far apart"
            yield ("queues", index, "placement_group"), text, "set placement_group: true"


@rule(
    why="EC2 starts spot instances from spare capacity only, never from a reservation.",
    source="EC2 user guide, Capacity Reservations: not for spot instances",
    keys=("queues.spot", RESERVATION),
)
def spot_reservation(s: Settings) -> Iterator[Finding]:
    for index, queue, _ in _reserved(s):
        if queue.spot:
            text = "spot instances cannot come from a reservation"
            yield ("queues", index, "spot"), text, "set spot: false, or drop the reservation"


@rule(
    why="Instances of a new placement group and of a reservation made outside of it exclude each other: EC2 "
    "answers insufficient capacity though the reservation has room.",
    source=f"{PCLUSTER}, PlacementGroupCapacityReservationValidator; aws-parallelcluster issue 4342",
    keys=("queues.placement_group", RESERVATION),
)
def placement_reservation(s: Settings) -> Iterator[Finding]:
    for index, queue, _ in _reserved(s, "on-demand"):
        if queue.placement_group is True:
            text = "a placement group that the reservation was not made in ends in insufficient capacity"
            hint = "set placement_group: false, or name the group that the reservation was made in"
            yield ("queues", index, "placement_group"), text, hint


@rule(
    why="A block's instances are close together already; with a placement group EC2 reports insufficient capacity.",
    source=f"{PCLUSTER}, PlacementGroupCapacityTypeValidator; aws-parallelcluster pull request 6311",
    keys=("queues.placement_group", RESERVATION),
)
def capacity_block_placement(s: Settings) -> Iterator[Finding]:
    for index, queue, _ in _reserved(s, "capacity-block"):
        if queue.placement_group:
            text = "a capacity block places its instances itself"
            yield ("queues", index, "placement_group"), text, "set placement_group: false"


@rule(
    why="ParallelCluster keeps the nodes of a block in one Slurm reservation, from its start to its end.",
    source=f"{PCLUSTER}, ComputeResourceSizeValidator",
    keys=(*COUNT_KEYS, RESERVATION),
)
def capacity_block_static(s: Settings) -> Iterator[Finding]:
    for index, queue, _ in _reserved(s, "capacity-block"):
        if queue.min_count != queue.max_count:
            text = "a capacity block needs min_count equal to max_count"
            yield ("queues", index, "max_count"), text, "give count instead"


@rule(
    why="More instances than a block can hold never start, and creation waits for them until it fails.",
    source="EC2 user guide, Capacity Blocks for ML: at most 64 instances a block",
    keys=(*COUNT_KEYS, RESERVATION),
    across=True,
)
def capacity_block_size(s: Settings) -> Iterator[Finding]:
    total: dict[str, int] = {}
    for index, queue, reservation in _reserved(s, "capacity-block"):
        key = "count" if queue.count is not None else "max_count"
        total[reservation.id] = count = total.get(reservation.id, 0) + queue.max_count
        if count > CAPACITY_BLOCK_MAX_INSTANCES:
            together = "" if count == queue.max_count else f"; the queues of {reservation.id} have {count} together"
            text = f"a capacity block holds at most {CAPACITY_BLOCK_MAX_INSTANCES} instances{together}"
            yield ("queues", index, key), text, "take several blocks, each with a queue"


@rule(
    why="A reservation of this type is no block, and ParallelCluster refuses the capacity type.",
    source=f"{PCLUSTER}, CapacityTypeValidator; EC2 DescribeInstanceTypes, SupportedUsageClasses",
    keys=("queues.instance_type", RESERVATION),
)
def capacity_block_type(s: Settings) -> Iterator[Finding]:
    for index, queue, _ in _reserved(s, "capacity-block"):
        if not queue.instance.capacity_block:
            text = f"EC2 sells no capacity blocks of {queue.instance_type}"
            yield ("queues", index, "reservation", "kind"), text, "on-demand, or another instance type"


@rule(
    why="A reservation is of one instance type: nodes of another type never start.",
    source=f"EC2 API reference, CreateCapacityReservation; {PCLUSTER}, CapacityReservationValidator",
    keys=("queues.instance_type", RESERVATION),
    across=True,
)
def reservation_one_type(s: Settings) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, queue, reservation in _reserved(s):
        other = seen.setdefault(reservation.id, queue.instance_type)
        if other != queue.instance_type:
            text = f"is also used for {other}; a reservation has one instance type"
            yield ("queues", index, "reservation", "id"), text, "check the id"


@rule(
    why="EC2 refuses a start that calls a block an on-demand reservation, or the reverse.",
    source="EC2 API reference, InstanceMarketOptions: capacity-block",
    keys=(RESERVATION,),
    across=True,
)
def reservation_one_kind(s: Settings) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, _, reservation in _reserved(s):
        other = seen.setdefault(reservation.id, reservation.kind)
        if other != reservation.kind:
            text = f"another queue calls {reservation.id} {other}"
            yield ("queues", index, "reservation", "kind"), text, "a reservation is of one kind"
