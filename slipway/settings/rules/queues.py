"""Rules of the queues: names, counts, EFA, reservations, placement."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.settings.model import Queue, Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, Rule
from slipway.settings.source import PathKey

CAPACITY_BLOCK_MAX_INSTANCES = 64  # EC2 user guide, Capacity Blocks
RANGE = ("min_count", "max_count")
RESERVATION = "queues.reservation"


def _names_differ(s: Settings) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, queue in enumerate(s.queues):
        if queue.name in seen:
            text = f"is also the name of queues[{seen[queue.name]}]"
            yield ("queues", index, "name"), text, "give each queue its own name"
        seen.setdefault(queue.name, index)


def _name_default(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.name == "default":
            yield ("queues", index, "name"), "is a name that ParallelCluster reserves", "take another name"


def _count_both(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.count is not None and not queue.model_fields_set.isdisjoint(RANGE):
            yield ("queues", index), "has both count and min_count/max_count", "give count, or the other two"


def _count_missing(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.count is None and "max_count" not in queue.model_fields_set:
            text = "needs count (static nodes) or max_count (dynamic nodes)"
            yield ("queues", index), text, "for example count: 2"


def _count_order(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        has_range = queue.count is None and "max_count" in queue.model_fields_set
        if has_range and queue.max_count < max(queue.min_count, 1):
            text = f"must be at least 1 and at least min_count ({queue.min_count})"
            yield ("queues", index, "max_count"), text, "raise max_count"


def _efa_missing(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.efa and not queue.instance.efa_interfaces:
            text = f"{queue.instance_type} has no EFA interface"
            yield ("queues", index, "efa"), text, "set efa: false, or take a type with EFA"


def _efa_off(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if not queue.efa and queue.instance.network_cards > 1:
            text = f"without EFA NCCL uses none of the {queue.instance.network_cards} network cards of the type"
            yield ("queues", index, "efa"), text, "set efa: true"


def _efa_unused(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        has_one = queue.instance.efa_interfaces == 1 and queue.instance.network_cards == 1
        if has_one and queue.instance.gpus and not queue.efa and queue.max_count > 1:
            text = f"{queue.instance_type} has an EFA interface, and the queue does not use it"
            yield ("queues", index, "efa"), text, "set efa: true"


def _efa_placement(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        alone = queue.max_count < 2 or queue.reservation or queue.placement_group
        if queue.efa and queue.instance.efa_interfaces and not alone:
            text = "nodes with EFA and no reservation may be far apart"
            yield ("queues", index, "placement_group"), text, "set placement_group: true"


def _spot_reservation(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.reservation and queue.spot:
            text = "spot instances cannot come from a reservation"
            yield ("queues", index, "spot"), text, "set spot: false, or drop the reservation"


def _placement_reservation(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        if queue.reservation and queue.reservation.kind == "on-demand" and queue.placement_group is True:
            text = "a placement group that the reservation was not made in ends in insufficient capacity"
            hint = "set placement_group: false, or name the group that the reservation was made in"
            yield ("queues", index, "placement_group"), text, hint


def _blocks(s: Settings) -> Iterator[tuple[int, Queue]]:
    for index, queue in enumerate(s.queues):
        if queue.reservation and queue.reservation.kind == "capacity-block":
            yield index, queue


def _block_placement(s: Settings) -> Iterator[Finding]:
    for index, queue in _blocks(s):
        if queue.placement_group:
            text = "a capacity block places its instances itself"
            yield ("queues", index, "placement_group"), text, "set placement_group: false"


def _block_static(s: Settings) -> Iterator[Finding]:
    for index, queue in _blocks(s):
        if queue.min_count != queue.max_count:
            text = "a capacity block needs min_count equal to max_count"
            yield ("queues", index, "max_count"), text, "give count instead"


def _block_size(s: Settings) -> Iterator[Finding]:
    total: dict[str, int] = {}
    for index, queue in _blocks(s):
        where: PathKey = "count" if queue.count is not None else "max_count"
        reservation = queue.reservation.id if queue.reservation else ""
        total[reservation] = before = total.get(reservation, 0) + queue.max_count
        if before > CAPACITY_BLOCK_MAX_INSTANCES:
            together = "" if before == queue.max_count else f"; the queues of {reservation} have {before} together"
            text = f"a capacity block holds at most {CAPACITY_BLOCK_MAX_INSTANCES} instances{together}"
            yield ("queues", index, where), text, "take several blocks, each with a queue"


def _block_type(s: Settings) -> Iterator[Finding]:
    for index, queue in _blocks(s):
        if not queue.instance.capacity_block:
            text = f"EC2 sells no capacity blocks of {queue.instance_type}"
            yield ("queues", index, "reservation", "kind"), text, "on-demand, or another instance type"


def _one_type(s: Settings) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, queue in enumerate(s.queues):
        if queue.reservation is None:
            continue
        other = seen.setdefault(queue.reservation.id, queue.instance_type)
        if other != queue.instance_type:
            text = f"is also used for {other}; a reservation has one instance type"
            yield ("queues", index, "reservation", "id"), text, "check the id"


def _one_kind(s: Settings) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, queue in enumerate(s.queues):
        if queue.reservation is None:
            continue
        other = seen.setdefault(queue.reservation.id, queue.reservation.kind)
        if other != queue.reservation.kind:
            text = f"another queue calls {queue.reservation.id} {other}"
            yield ("queues", index, "reservation", "kind"), text, "a reservation is of one kind"


RULES = (
    Rule(
        name="queue-names-differ",
        why="A queue is a Slurm partition; two with one name cannot be distinguished.",
        source=f"{PCLUSTER}, DuplicateNameValidator",
        keys=("queues.name",),
        find=_names_differ,
        across=True,
    ),
    Rule(
        name="queue-name-default",
        why="ParallelCluster forbids the name: DEFAULT has a special meaning in slurm.conf.",
        source=f"{PCLUSTER}, NameValidator",
        keys=("queues.name",),
        find=_name_default,
    ),
    Rule(
        name="count-both",
        why="One of them would be ignored, without a sign of which one.",
        source="Slipway: a value is set once",
        keys=COUNT_KEYS,
        find=_count_both,
    ),
    Rule(
        name="count-missing",
        why="How many nodes a queue has is what the cluster costs; it is never guessed.",
        source="Slipway: no default for what is paid for",
        keys=COUNT_KEYS,
        find=_count_missing,
    ),
    Rule(
        name="count-order",
        why="A queue has at least its static nodes, and at least one node.",
        source=f"{PCLUSTER}, ComputeResourceSizeValidator",
        keys=COUNT_KEYS,
        find=_count_order,
    ),
    Rule(
        name="efa-missing",
        why="EC2 refuses to start an instance with an interface that its type does not have.",
        source=f"{PCLUSTER}, EfaValidator; slipway/data/instance_types.json",
        keys=("queues.efa", "queues.instance_type"),
        find=_efa_missing,
    ),
    Rule(
        name="efa-off",
        why="Types with several cards are bought for EFA: without it a p5.48xlarge does 2 GB/s in all_reduce "
        "instead of 350 and more.",
        source="KeitaW/p5-nccl-test and awsome-distributed-training: measurements with and without EFA",
        keys=("queues.efa", "queues.instance_type"),
        find=_efa_off,
    ),
    Rule(
        name="efa-unused",
        severity="warning",
        why="EFA costs nothing, and jobs over several nodes are faster with it.",
        source=f"{PCLUSTER}, EfaValidator",
        keys=("queues.efa", "queues.instance_type", *COUNT_KEYS),
        find=_efa_unused,
    ),
    Rule(
        name="efa-placement",
        severity="warning",
        why="Without a placement group EC2 spreads instances over a zone; latency between them grows.",
        source=f"{PCLUSTER}, EfaPlacementGroupValidator",
        keys=("queues.efa", "queues.instance_type", "queues.placement_group", RESERVATION, *COUNT_KEYS),
        find=_efa_placement,
    ),
    Rule(
        name="spot-reservation",
        why="EC2 starts spot instances from spare capacity only, never from a reservation.",
        source="EC2 user guide, Capacity Reservations: not for spot instances",
        keys=("queues.spot", RESERVATION),
        find=_spot_reservation,
    ),
    Rule(
        name="placement-reservation",
        why="Instances of a new placement group and of a reservation made outside of it exclude each other: EC2 "
        "answers insufficient capacity though the reservation has room.",
        source=f"{PCLUSTER}, PlacementGroupCapacityReservationValidator; aws-parallelcluster issue 4342",
        keys=("queues.placement_group", RESERVATION),
        find=_placement_reservation,
    ),
    Rule(
        name="capacity-block-placement",
        why="A block's instances are close together already; with a placement group EC2 reports insufficient capacity.",
        source=f"{PCLUSTER}, PlacementGroupCapacityTypeValidator; aws-parallelcluster pull request 6311",
        keys=("queues.placement_group", RESERVATION),
        find=_block_placement,
    ),
    Rule(
        name="capacity-block-static",
        why="ParallelCluster keeps the nodes of a block in one Slurm reservation, from its start to its end.",
        source=f"{PCLUSTER}, ComputeResourceSizeValidator",
        keys=(*COUNT_KEYS, RESERVATION),
        find=_block_static,
    ),
    Rule(
        name="capacity-block-size",
        why="More instances than a block can hold never start, and creation waits for them until it fails.",
        source="EC2 user guide, Capacity Blocks for ML: at most 64 instances a block",
        keys=(*COUNT_KEYS, RESERVATION),
        find=_block_size,
        across=True,
    ),
    Rule(
        name="capacity-block-type",
        why="A reservation of this type is no block, and ParallelCluster refuses the capacity type.",
        source=f"{PCLUSTER}, CapacityTypeValidator; EC2 DescribeInstanceTypes, SupportedUsageClasses",
        keys=("queues.instance_type", RESERVATION),
        find=_block_type,
    ),
    Rule(
        name="reservation-one-type",
        why="A reservation is of one instance type: nodes of another type never start.",
        source="EC2 API reference, CreateCapacityReservation; " + f"{PCLUSTER}, CapacityReservationValidator",
        keys=("queues.instance_type", RESERVATION),
        find=_one_type,
        across=True,
    ),
    Rule(
        name="reservation-one-kind",
        why="EC2 refuses a start that calls a block an on-demand reservation, or the reverse.",
        source="EC2 API reference, InstanceMarketOptions: capacity-block",
        keys=(RESERVATION,),
        find=_one_kind,
        across=True,
    ),
)
