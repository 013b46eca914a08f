"""The reservations: are they there, whose, of what kind, how many are free, from when until when."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.account import identity
from slipway.preflight.asking import found, together
from slipway.preflight.model import EC2_GUIDE, Answer, Question, Status, fault, ok, warning
from slipway.preflight.running_instances import Instances
from slipway.reservations import instance_count
from slipway.settings import Queue, Settings
from slipway.settings.source import Place
from slipway.text import duration, listed, moment

PLATFORM = "Linux/UNIX"  # of every OS that the settings know (aws-parallelcluster 3.16.1, CAPACITY_RESERVATION_OS_MAP)
TERMINATION_LEAD = datetime.timedelta(minutes=30)  # before a block's end EC2 terminates what runs (EC2 user guide)
DEPLOYMENT = datetime.timedelta(minutes=40)  # 35 minutes is ParallelCluster's own limit for a node; the rest is ours
SHORT = datetime.timedelta(hours=24)  # the shortest block there is: less is left only of one that runs
NOT_FOUND = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")
KINDS = {"capacity-block": "capacity-block", "default": "on-demand"}  # ReservationType -> the settings' word

# State -> (status, what it means, repair). Source: EC2 API reference, CapacityReservation.State.
STATES: dict[str, tuple[Status, str, str]] = {
    "scheduled": (Status.OK, "", ""),  # reported with its start
    "active": (Status.OK, "", ""),
    "payment-pending": (Status.WARNING, "is not paid yet", "wait until its state is scheduled or active"),
    "payment-failed": (Status.FAULT, "could not be paid, and AWS does not hold it", "buy another capacity block"),
    "pending": (Status.WARNING, "is still being made", "wait until its state is active"),
    "assessing": (Status.WARNING, "is still being assessed by AWS", "wait until AWS has accepted it"),
    "delayed": (Status.WARNING, "is late: AWS has not delivered it yet", "wait until its state is active"),
    "failed": (Status.FAULT, "could not be made: no capacity, or no quota", "make another reservation"),
    "unsupported": (Status.FAULT, "was refused by AWS", "make another reservation"),
    "unavailable": (Status.FAULT, "is unavailable", "make another reservation"),
    "expired": (Status.FAULT, "has expired", "name a reservation that is active"),
    "cancelled": (Status.FAULT, "was cancelled", "name a reservation that is active"),
}


@dataclasses.dataclass(frozen=True)
class Use:
    """One reservation as the settings use it: the queues that name it, with their place in the file."""

    id: str
    queues: tuple[tuple[int, Queue], ...]

    @property
    def nodes(self) -> int:
        """How many instances the queues can take out of it together."""
        return sum(queue.max_count for _, queue in self.queues)

    @property
    def path(self) -> Place:
        """Where the reservation is named first."""
        return ("queues", self.queues[0][0], "reservation", "id")


def uses_of(settings: Settings) -> list[Use]:
    """Every reservation of the settings once."""
    uses: dict[str, list[tuple[int, Queue]]] = {}
    for index, queue in enumerate(settings.queues):
        if queue.reservation:
            uses.setdefault(queue.reservation.id, []).append((index, queue))
    return [Use(id, tuple(queues)) for id, queues in uses.items()]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A reservation as EC2 describes it, and what it is compared with."""

    use: Use
    item: dict[str, Any]
    settings: Settings
    now: datetime.datetime
    others: Pending
    instances: Instances
    caller: Pending

    @property
    def is_block(self) -> bool:
        return bool(self.item.get("ReservationType") == "capacity-block")

    @property
    def state(self) -> str:
        return str(self.item["State"])

    def fault(self, text: str, repair: str, path: Place | None = None) -> Answer:
        """A fault whose hint names the reservations that would do, if there are any."""
        return fault(path or self.use.path, f"{self.use.id} {text}", f"{repair}{_others_that_fit(self)}")

    def warning(self, text: str, repair: str) -> Answer:
        return warning(self.use.path, f"{self.use.id} {text}", repair)


def ask_reservations(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """Yield everything about each reservation that EC2 reports."""
    uses = uses_of(settings)
    named = [aws.start("ec2", "describe_capacity_reservations", CapacityReservationIds=[use.id]) for use in uses]
    others = aws.start("ec2", "describe_capacity_reservations")
    instances, caller = Instances(aws), identity(aws)
    for use, pending in zip(uses, named, strict=True):
        seen = Seen(use, {}, settings, aws.now(), others, instances, caller)
        yield from together(_one(seen, pending))


def _one(seen: Seen, pending: Pending) -> Iterator[Answer]:
    region = seen.settings.region
    response = found(pending, *NOT_FOUND)
    items = response["CapacityReservations"] if response else []
    if not items:
        text = f"does not exist in {region}, or is not shared with this account"
        yield seen.fault(text, f"aws ec2 describe-capacity-reservations --region {region} lists those there are")
        return
    seen = dataclasses.replace(seen, item=items[0])
    yield from together(*(check(seen) for check in CHECKS))


def _others_that_fit(seen: Seen) -> str:
    """`; these fit: ...`: reservations of the queue's type and zone with enough free instances."""
    queue = seen.use.queues[0][1]
    try:
        items = reservations_that_fit(seen.others, queue.instance_type, seen.settings.zone, seen.use.nodes)
    except (Unasked, Refused):
        return ""  # a list that does not come must not hide the fault
    fitting = [
        f"{item['CapacityReservationId']} ({item['AvailableInstanceCount']} free, {_kind(item)})"
        for item in items
        if item["CapacityReservationId"] != seen.use.id
    ]
    return f"; these fit: {listed(fitting)}" if fitting else ""


def reservations_that_fit(everything: Pending, instance_type: str, zone: str, nodes: int) -> list[dict[str, Any]]:
    """The account's active reservations of that type and zone that have `nodes` instances free."""
    return [
        item
        for item in everything.result()["CapacityReservations"]
        if item["State"] == "active"
        and item["InstanceType"] == instance_type
        and item.get("AvailabilityZone") == zone
        and item["InstancePlatform"] == PLATFORM
        and item["AvailableInstanceCount"] >= nodes
    ]


def _kind(item: dict[str, Any]) -> str:
    return KINDS.get(item.get("ReservationType", "default"), "on-demand")


# ---- what is compared with the settings, one thing each ----


def _kinds(seen: Seen) -> Iterator[Answer]:
    kind = _kind(seen.item)
    words = {"capacity-block": "a capacity block", "on-demand": "an on-demand reservation"}
    for index, queue in seen.use.queues:
        named = queue.reservation.kind if queue.reservation else ""
        if named != kind:
            path = ("queues", index, "reservation", "kind")
            yield fault(path, f"{seen.use.id} is {words[kind]}, the settings say {named}", f"write kind: {kind}")


def _types(seen: Seen) -> Iterator[Answer]:
    held = seen.item["InstanceType"]
    for index, queue in seen.use.queues:
        if queue.instance_type != held:
            path = ("queues", index, "instance_type")
            yield seen.fault(f"holds {held}, the queue wants {queue.instance_type}", f"write {held}", path)


def _zone(seen: Seen) -> Iterator[Answer]:
    zone = seen.item.get("AvailabilityZone")
    if zone and zone != seen.settings.zone:
        repair = f"write zone: {zone}; an existing VPC needs subnets there"
        yield seen.fault(f"is in {zone}, the cluster in {seen.settings.zone}", repair)


def _platform(seen: Seen) -> Iterator[Answer]:
    platform = seen.item["InstancePlatform"]
    if platform != PLATFORM:
        yield seen.fault(f"is for {platform}, the nodes run {PLATFORM}", f"reserve for {PLATFORM}")
    tenancy = seen.item.get("Tenancy", "default")
    if tenancy != "default":
        yield seen.fault(f"has tenancy {tenancy}, the nodes start with default", "reserve with tenancy default")


def _owner(seen: Seen) -> Iterator[Answer]:
    owner = seen.item.get("OwnerId")
    if owner and owner != seen.caller.result()["Account"]:
        text = f"belongs to account {owner}, which can take it back or use it up"
        yield seen.warning(text, "agree with its owner that it stays shared as long as the cluster runs")


def _match(seen: Seen) -> Iterator[Answer]:
    if seen.item.get("InstanceMatchCriteria") == "open":
        text = f"is open: any {seen.item['InstanceType']} that starts in the account takes a place in it"
        command = "aws ec2 modify-capacity-reservation --instance-match-criteria targeted"
        yield seen.warning(text, f"{command} --region {seen.settings.region} --capacity-reservation-id {seen.use.id}")


def _placement(seen: Seen) -> Iterator[Answer]:
    arn = seen.item.get("PlacementGroupArn") or ""
    group = arn.rpartition("/")[2]
    for index, queue in seen.use.queues:
        path = ("queues", index, "placement_group")
        if group and queue.placement_group != group:
            text = f"{seen.use.id} was made in placement group {group}: only instances of that group can use it"
            yield fault(path, text, f"write placement_group: {group}")
        elif not group and queue.placement_group and not seen.is_block:
            text = (
                f"{seen.use.id} was made in no placement group: instances that start in one may find no capacity in it"
            )
            yield warning(path, text, "leave placement_group out")


def _state(seen: Seen) -> Iterator[Answer]:
    state, start = seen.state, seen.item.get("StartDate")
    unknown = (Status.WARNING, f"is in the state {state}, which Slipway does not know", "look at it by hand")
    status, text, repair = STATES.get(state, unknown)
    if status is Status.FAULT:
        yield seen.fault(text, repair)
    elif status is Status.WARNING:
        yield seen.warning(text, repair)
    elif state == "scheduled" and start:
        wait = duration(start - seen.now)
        text = (
            f"starts in {wait}, on {moment(start)}: the cluster can be made before, its nodes wait in Slurm until then"
        )
        yield seen.warning(text, "nothing to repair; acceptance cannot measure before the start")


def _counts(seen: Seen) -> Iterator[Answer]:
    total, available, wanted = instance_count(seen.item), seen.item["AvailableInstanceCount"], seen.use.nodes
    if total == 0 and seen.state != "active":
        return  # the number of a reservation that has not started, or has ended, is in a tag at best
    if total < wanted:
        names = listed([queue.name for _, queue in seen.use.queues])
        yield seen.fault(f"holds {total} instances, the queues want {wanted} ({names})", f"lower the count to {total}")
    elif seen.state == "active" and available < wanted:
        own = seen.instances.of_cluster(seen.settings.name)
        available += sum(instance.reservation_id == seen.use.id for instance in own)
        if available < wanted:
            text = f"has {available} of {total} instances free, the queues want {wanted}"
            yield seen.fault(text, "end what runs in it, or lower the count")


def _end(seen: Seen) -> Iterator[Answer]:
    end = seen.item.get("EndDate")
    if not end or STATES.get(seen.state, (Status.OK,))[0] is Status.FAULT:
        return
    left = end - seen.now
    lead = TERMINATION_LEAD if seen.is_block else datetime.timedelta()
    if left <= datetime.timedelta():
        yield seen.fault(f"ended on {moment(end)}", "name a reservation that is active")
        return
    when = f"in {duration(left)}, on {moment(end)}"
    if left < lead + DEPLOYMENT:
        text = f"ends {when}: a deployment takes up to {duration(DEPLOYMENT)}"
        yield seen.fault(f"{text}{_what_ends(seen)}", "extend it, or name another one")
    elif left < SHORT:
        yield seen.warning(f"ends {when}{_what_ends(seen)}", "extend it now if the work takes longer")


def _what_ends(seen: Seen) -> str:
    if seen.is_block:
        return ", and EC2 warns 40 min and terminates the nodes from 30 min before the end"
    return ", and nodes that are replaced after the end may find no capacity"


def _good(seen: Seen) -> Iterator[Answer]:
    """What was seen, for the record."""
    item, end = seen.item, seen.item.get("EndDate")
    until = f" until {moment(end)} (in {duration(end - seen.now)})" if end else ""
    if seen.state == "active" and (not end or end > seen.now):
        free = f"{item['AvailableInstanceCount']} of {instance_count(item)} instances available"
        yield ok(seen.use.path, f"{seen.use.id} is active{until}, {free}")


CHECKS: tuple[Callable[[Seen], Iterator[Answer]], ...] = (
    _good, _kinds, _types, _zone, _platform, _state, _counts, _end, _placement, _match, _owner,
)  # fmt: skip


# ---- GPUs without a reservation ----


def _unreserved(settings: Settings) -> list[tuple[int, Queue]]:
    return [
        (index, queue)
        for index, queue in enumerate(settings.queues)
        if queue.instance.gpus and queue.reservation is None
    ]


def _is_scarce(queue: Queue) -> bool:
    """Types that AWS sells as capacity blocks; of the others on-demand capacity is usually there."""
    return queue.instance_type.startswith("p")


def ask_unreserved(settings: Settings, aws: Aws) -> Iterator[Answer]:
    """What could be reserved for GPU queues that name no reservation: the account's own, and blocks on offer."""
    everything = aws.start("ec2", "describe_capacity_reservations")
    queues = _unreserved(settings)
    offers = [_start_offers(aws, queue) if _is_scarce(queue) else None for _, queue in queues]
    for (index, queue), offer in zip(queues, offers, strict=True):
        yield from together(_reserved_elsewhere(settings, index, queue, everything))
        if offer is not None:
            yield from together(_on_offer(index, queue, offer))


def _start_offers(aws: Aws, queue: Queue) -> Pending:
    return aws.start(
        "ec2",
        "describe_capacity_block_offerings",
        InstanceType=queue.instance_type,
        InstanceCount=queue.max_count,
        CapacityDurationHours=24,
    )


def _reserved_elsewhere(settings: Settings, index: int, queue: Queue, everything: Pending) -> Iterator[Answer]:
    path = ("queues", index, "reservation")
    fitting = reservations_that_fit(everything, queue.instance_type, settings.zone, queue.max_count)
    if fitting:
        first = fitting[0]
        name = first["CapacityReservationId"]
        text = f"{name} has {first['AvailableInstanceCount']} {queue.instance_type} free, and the queue does not use it"
        yield warning(path, text, f"write reservation: {{kind: {_kind(first)}, id: {name}}}")
    elif not _is_scarce(queue):
        how = "spot" if queue.spot else "on demand"
        yield ok(path, f"{queue.name}: {queue.instance_type} {how}, as no reservation of the account holds it")


def _block(item: dict[str, Any]) -> str:
    price = f"{item['UpfrontFee']} {item['CurrencyCode']}"
    return f"from {moment(item['StartDate'])} in {item['AvailabilityZone']} for {price}"


def _on_offer(index: int, queue: Queue, offer: Pending) -> Iterator[Answer]:
    """A block is named, never bought: a purchase cannot be undone. The warning does not depend on offers."""
    text = f"{queue.max_count} {queue.instance_type} without a reservation: EC2 rarely has them to spare"
    path: Place = ("queues", index, "reservation")
    try:
        blocks = _blocks(offer)
    except Unasked:
        yield warning(path, text, "reserve before you deploy")
        raise
    sold = f"capacity blocks for 24 h: {listed(blocks)}" if blocks else "no capacity block is on offer for it either"
    yield warning(path, text, f"reserve before you deploy; {sold}")


def _blocks(offer: Pending) -> list[str]:
    """What is on sale; nothing for a type that EC2 sells no blocks of, which it refuses to answer about."""
    try:
        offers = offer.result()["CapacityBlockOfferings"]
    except Refused:
        return []
    return [_block(item) for item in sorted(offers, key=lambda item: item["StartDate"])]


QUESTIONS = (
    Question(
        name="reservation",
        asks="Is each reservation there, active long enough, of the right kind, type and zone, and free?",
        why="A reservation that does not fit is paid for and gives no node; ParallelCluster looks at its type, zone, "
        "platform and size only, and a creation without nodes fails after 35 minutes.",
        source=f"{EC2_GUIDE}/capacity-blocks-using.html; {EC2_GUIDE}/capacity-reservations-using.html; "
        "aws-parallelcluster 3.16.1 CapacityReservationValidator and issue 6870",
        permissions=("ec2:DescribeCapacityReservations", "ec2:DescribeInstances", "sts:GetCallerIdentity"),
        finds=(Status.FAULT, Status.WARNING),
        ask=ask_reservations,
        applies=lambda settings: bool(uses_of(settings)),
    ),
    Question(
        name="unreserved-gpus",
        asks="Which reservation could a GPU queue use that names none?",
        why="On-demand and spot capacity of the large GPU types is rarely there; static nodes that cannot start make "
        "the creation fail after 35 minutes.",
        source=f"{EC2_GUIDE}/ec2-capacity-blocks.html; aws-parallelcluster issues 2447 and 4342",
        permissions=("ec2:DescribeCapacityReservations", "ec2:DescribeCapacityBlockOfferings"),
        finds=(Status.WARNING,),
        ask=ask_unreserved,
        applies=lambda settings: bool(_unreserved(settings)),
    ),
)
