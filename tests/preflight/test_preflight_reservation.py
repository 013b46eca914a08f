"""Reservations in every state and of every wrong kind, and what is offered to queues without one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from preflight_cases import NOW, REGION, Case, all_of, check, denied, settings_of

from rehearsal.cloud.capacity import add_reservation
from slipway.aws.calls import Pending, Unasked
from slipway.preflight.model import Answer, Status
from slipway.preflight.reservation import Seen, uses_of
from slipway.preflight.running_instances import Instances
from slipway.reservations import QUANTITY_TAG, instance_count
from tests.aws.block_offerings import add_block_offering
from tests.aws.preflight_aws import PreflightAws

ID = "cr-0123456789abcdef1"
ZONE = f"{REGION}a"
PATH = ("queues", 0, "reservation", "id")
GROUP = f"arn:aws:ec2:{REGION}:123456789012:placement-group/training"
UNTIL = "ends in 55 min, on 2026-12-01 12:55 UTC: a deployment takes up to 40 min"
LISTS = f"aws ec2 describe-capacity-reservations --region {REGION} lists those there are"
ON_DEMAND = {"kind": "on-demand", "id": ID}


def after(**time: float) -> datetime.datetime:
    """A moment so long after now."""
    return NOW + datetime.timedelta(**time)


def reserve(
    id: str = ID, instance_type: str = "p5.48xlarge", count: int = 4, kind: str = "capacity-block", **more: Any
) -> Callable[[PreflightAws], None]:
    """A reservation in us-east-1a that is active, and ends in six days and more when it is a block."""
    times: dict[str, Any] = {"StartDate": after(days=-1), "CreateDate": after(days=-9)}
    if kind == "capacity-block":
        times["EndDate"] = after(days=6, hours=21)

    def arrange(_: PreflightAws) -> None:
        add_reservation(REGION, id, instance_type, count, more.get("AvailabilityZone", ZONE), kind, **{**times, **more})

    return arrange


def use(count: int, *, of_cluster: str = "") -> Callable[[PreflightAws], None]:
    """Instances that run in the reservation."""

    def arrange(aws: PreflightAws) -> None:
        tags = [{"Key": "parallelcluster:cluster-name", "Value": of_cluster}]
        tagged = {"TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]} if of_cluster else {}
        aws.clients("ec2").run_instances(
            ImageId="ami-00000000000000003",
            InstanceType="p5.48xlarge",
            MinCount=count,
            MaxCount=count,
            InstanceMarketOptions={"MarketType": "capacity-block"},
            CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": ID}},
            **tagged,
        )

    return arrange


def queue(**changes: Any) -> dict[str, Any]:
    """Settings with one queue of four p5.48xlarge from the reservation, changed."""
    plain = {
        "name": "train",
        "instance_type": "p5.48xlarge",
        "count": 4,
        "reservation": {"kind": "capacity-block", "id": ID},
        "efa": True,
    }
    merged = {**plain, **changes}
    return {"queues": [{key: value for key, value in merged.items() if value is not None}]}


def asked_for(count: int) -> list[dict[str, str]]:
    """The tag in which EC2 reports how many instances a reservation will have."""
    return [{"Key": "aws:ec2capacityreservation:incrementalRequestedQuantity", "Value": str(count)}]


def case(name: str, status: Status, text: str, arrange: Callable[[PreflightAws], object], **more: Any) -> Case:
    return Case("reservation", name, status, f"{ID} {text}", arrange=arrange, **{"path": PATH, **more})


def in_state(state: str, status: Status, meaning: str, hint: str) -> Case:
    return case(f"state {state}", status, meaning, reserve(State=state), hint=hint)


OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
OWNED = "belongs to account 210987654321, which can take it back or use it up"
CASES = [
    case(
        "active block", OK, "is active until 2026-12-08 09:00 UTC (in 6 d 21 h), 4 of 4 instances available", reserve()
    ),
    case(
        "active on-demand reservation",
        OK,
        "is active, 6 of 6 instances available",
        reserve(kind="on-demand", count=6),
        settings=queue(reservation=ON_DEMAND),
    ),
    case(
        "own nodes run in it",
        OK,
        "is active until 2026-12-08 09:00 UTC (in 6 d 21 h), 1 of 4 instances available",
        all_of(reserve(), use(3, of_cluster="p5")),
    ),
    case("not there", FAULT, "does not exist in us-east-1, or is not shared with this account", all_of(), hint=LISTS),
    case(
        "not there, another fits",
        FAULT,
        "does not exist in us-east-1, or is not shared with this account",
        all_of(
            reserve("cr-0aaaaaaaaaaaaaaa1", count=8, kind="on-demand"),
            reserve("cr-0aaaaaaaaaaaaaaa2", count=2),
            reserve("cr-0aaaaaaaaaaaaaaa3", count=8, AvailabilityZone=f"{REGION}b"),
            reserve("cr-0aaaaaaaaaaaaaaa4", "p4d.24xlarge", count=8),
            reserve("cr-0aaaaaaaaaaaaaaa5", count=8, State="scheduled"),
        ),
        hint=f"{LISTS}; these fit: cr-0aaaaaaaaaaaaaaa1 (8 free, on-demand)",
    ),
    Case(
        "reservation",
        "block, said to be on-demand",
        FAULT,
        f"{ID} is a capacity block, the settings say on-demand",
        ("queues", 0, "reservation", "kind"),
        "write kind: capacity-block",
        queue(reservation=ON_DEMAND),
        reserve(),
    ),
    Case(
        "reservation",
        "on-demand, said to be a block",
        FAULT,
        f"{ID} is an on-demand reservation, the settings say capacity-block",
        ("queues", 0, "reservation", "kind"),
        "write kind: on-demand",
        arrange=reserve(kind="on-demand"),
    ),
    case(
        "another type",
        FAULT,
        "holds p4d.24xlarge, the queue wants p5.48xlarge",
        reserve(instance_type="p4d.24xlarge"),
        path=("queues", 0, "instance_type"),
        hint="write p4d.24xlarge",
    ),
    case(
        "another zone",
        FAULT,
        "is in us-east-1b, the cluster in us-east-1a",
        reserve(AvailabilityZone=f"{REGION}b"),
        hint="write zone: us-east-1b; an existing VPC needs subnets there",
    ),
    case("Windows", FAULT, "is for Windows, the nodes run Linux/UNIX", reserve(InstancePlatform="Windows")),
    case("dedicated", FAULT, "has tenancy dedicated, the nodes start with default", reserve(Tenancy="dedicated")),
    case("shared", WARNING, OWNED, reserve(OwnerId="210987654321")),
    case(
        "open",
        WARNING,
        "is open: any p5.48xlarge that starts in the account takes a place in it",
        reserve(kind="on-demand", InstanceMatchCriteria="open"),
        settings=queue(reservation=ON_DEMAND),
        hint="aws ec2 modify-capacity-reservation --instance-match-criteria targeted --region us-east-1 "
        f"--capacity-reservation-id {ID}",
    ),
    case(
        "in a placement group",
        FAULT,
        "was made in placement group training: only instances of that group can use it",
        reserve(kind="on-demand", PlacementGroupArn=GROUP),
        settings=queue(reservation=ON_DEMAND),
        path=("queues", 0, "placement_group"),
        hint="write placement_group: training",
    ),
    case(
        "in the queue's placement group",
        OK,
        "is active, 4 of 4 instances available",
        reserve(kind="on-demand", PlacementGroupArn=GROUP),
        settings=queue(reservation=ON_DEMAND, placement_group="training"),
    ),
    case(
        "in no placement group",
        WARNING,
        "was made in no placement group: instances that start in one may find no capacity in it",
        reserve(kind="on-demand"),
        settings=queue(reservation=ON_DEMAND, placement_group="training"),
        path=("queues", 0, "placement_group"),
    ),
    case("too small", FAULT, "holds 3 instances, the queues want 4 (train)", reserve(count=3)),
    case(
        "too small for two queues",
        FAULT,
        "holds 4 instances, the queues want 6 (train, dev)",
        reserve(kind="on-demand"),
        settings={
            "queues": [
                {"name": "train", "instance_type": "p5.48xlarge", "count": 4, "reservation": ON_DEMAND},
                {"name": "dev", "instance_type": "p5.48xlarge", "count": 2, "reservation": ON_DEMAND},
            ]
        },
    ),
    case(
        "not free",
        FAULT,
        "has 1 of 4 instances free, the queues want 4",
        all_of(reserve(), use(3)),
        hint="end what runs in it, or lower the count",
    ),
    case(
        "not free for another cluster",
        FAULT,
        "has 2 of 4 instances free, the queues want 4",
        all_of(reserve(), use(2, of_cluster="other")),
    ),
    case(
        "starts tomorrow",
        WARNING,
        "starts in 21 h 30 min, on 2026-12-02 09:30 UTC: the cluster can be made before, its nodes wait in Slurm "
        "until then",
        reserve(State="scheduled", StartDate=after(hours=21, minutes=30)),
    ),
    case(
        "starts tomorrow, as EC2 reports it: no instance yet, and their number in a tag",
        WARNING,
        "starts in 21 h 30 min, on 2026-12-02 09:30 UTC: the cluster can be made before, its nodes wait in Slurm "
        "until then",
        reserve(State="scheduled", StartDate=after(hours=21, minutes=30), TotalInstanceCount=0, Tags=asked_for(4)),
    ),
    case(
        "starts tomorrow, too small",
        FAULT,
        "holds 3 instances, the queues want 4 (train)",
        reserve(State="scheduled", StartDate=after(hours=21, minutes=30), TotalInstanceCount=0, Tags=asked_for(3)),
        alone=False,  # and when it starts
    ),
    case(
        "not started, and no number reported",
        WARNING,
        "is not paid yet",
        reserve(State="payment-pending", TotalInstanceCount=0),
    ),
    case(
        "ends in an hour",
        FAULT,
        f"{UNTIL}, and EC2 warns 40 min and terminates the nodes from 30 min before the end",
        reserve(EndDate=after(minutes=55)),
        hint="extend it, or name another one",
    ),
    case(
        "ends today",
        WARNING,
        "ends in 5 h 10 min, on 2026-12-01 17:10 UTC, and EC2 warns 40 min and terminates the nodes from 30 min "
        "before the end",
        reserve(EndDate=after(hours=5, minutes=10)),
        hint="extend it now if the work takes longer",
    ),
    case(
        "on-demand reservation ends today",
        WARNING,
        "ends in 55 min, on 2026-12-01 12:55 UTC, and nodes that are replaced after the end may find no capacity",
        reserve(kind="on-demand", EndDate=after(minutes=55), EndDateType="limited"),
        settings=queue(reservation=ON_DEMAND),
    ),
    case(
        "has ended and is not marked so yet",
        FAULT,
        "ended on 2026-12-01 11:55 UTC",
        reserve(EndDate=after(minutes=-5)),
    ),
    in_state("payment-pending", WARNING, "is not paid yet", "wait until its state is scheduled or active"),
    in_state("payment-failed", FAULT, "could not be paid, and AWS does not hold it", "buy another capacity block"),
    in_state("pending", WARNING, "is still being made", "wait until its state is active"),
    in_state("assessing", WARNING, "is still being assessed by AWS", "wait until AWS has accepted it"),
    in_state("delayed", WARNING, "is late: AWS has not delivered it yet", "wait until its state is active"),
    in_state("failed", FAULT, "could not be made: no capacity, or no quota", "make another reservation"),
    in_state("unsupported", FAULT, "was refused by AWS", "make another reservation"),
    in_state("unavailable", FAULT, "is unavailable", "make another reservation"),
    in_state("expired", FAULT, "has expired", "name a reservation that is active"),
    in_state("cancelled", FAULT, "was cancelled", "name a reservation that is active"),
    in_state(
        "dreaming", WARNING, "is in the state dreaming, which Slipway does not know", "look at it by hand"
    ),
    denied("ec2:DescribeCapacityReservations", "reservation", arrange=reserve()),
    denied("sts:GetCallerIdentity", "reservation", arrange=reserve()),
    denied("ec2:DescribeInstances", "reservation", arrange=all_of(reserve(), use(3))),
]  # fmt: skip

UNRESERVED = queue(reservation=None)
OFFERS = ("queues", 0, "reservation")
CASES += [
    Case(
        "unreserved-gpus",
        "nothing anywhere",
        WARNING,
        "4 p5.48xlarge without a reservation: EC2 rarely has them to spare",
        OFFERS,
        "reserve before you deploy; no capacity block is on offer for it either",
        UNRESERVED,
    ),
    Case(
        "unreserved-gpus",
        "blocks on offer",
        WARNING,
        "4 p5.48xlarge without a reservation: EC2 rarely has them to spare",
        OFFERS,
        "reserve before you deploy; capacity blocks for 24 h: from 2026-12-03 11:30 UTC in us-east-1a for 4155.00 USD",
        UNRESERVED,
        all_of(
            lambda _: add_block_offering(
                REGION, "p5.48xlarge", 4, ZONE, 24, StartDate=after(days=1, hours=23.5), UpfrontFee="4155.00"
            ),
            lambda _: add_block_offering(REGION, "p5.48xlarge", 8, ZONE, 24),
            lambda _: add_block_offering(REGION, "p5.48xlarge", 4, ZONE, 48),
        ),
    ),
    Case(
        "unreserved-gpus",
        "an own reservation is free",
        WARNING,
        "cr-0aaaaaaaaaaaaaaa1 has 8 p5.48xlarge free, and the queue does not use it",
        OFFERS,
        "write reservation: {kind: on-demand, id: cr-0aaaaaaaaaaaaaaa1}",
        UNRESERVED,
        reserve("cr-0aaaaaaaaaaaaaaa1", count=8, kind="on-demand"),
        alone=False,  # and what is on offer
    ),
    Case(
        "unreserved-gpus",
        "a type that is usually there",
        OK,
        "train: g6.12xlarge on demand, as no reservation of the account holds it",
        OFFERS,
        settings=queue(instance_type="g6.12xlarge", reservation=None),
    ),
    Case(
        "unreserved-gpus",
        "a type that EC2 sells no blocks of",
        WARNING,
        "4 p5.48xlarge without a reservation: EC2 rarely has them to spare",
        OFFERS,
        "reserve before you deploy; no capacity block is on offer for it either",
        UNRESERVED,
        lambda aws: aws.misbehave(
            "ec2:DescribeCapacityBlockOfferings", error=(400, "InvalidParameterValue", "Unsupported instance type")
        ),
    ),
    Case(
        "unreserved-gpus",
        "the warning stays when offers cannot be asked for",
        WARNING,
        "4 p5.48xlarge without a reservation: EC2 rarely has them to spare",
        OFFERS,
        "reserve before you deploy",
        UNRESERVED,
        lambda aws: aws.misbehave("ec2:DescribeCapacityBlockOfferings", deny=True),
        alone=False,
    ),
    denied("ec2:DescribeCapacityReservations", "unreserved-gpus", settings=UNRESERVED, alone=False),
    denied("ec2:DescribeCapacityBlockOfferings", "unreserved-gpus", settings=UNRESERVED, alone=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reservations(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_a_list_that_does_not_come_hides_no_fault() -> None:
    """The list only adds a hint: which other reservations would do."""
    silent: Future[dict[str, Any]] = Future()
    silent.set_exception(Unasked("ec2:DescribeCapacityReservations did not answer in time"))
    settings = settings_of({})
    pending = Pending(silent, "ec2:DescribeCapacityReservations")
    seen = Seen(uses_of(settings)[0], {}, settings, NOW, pending, Instances.__new__(Instances), pending)
    assert seen.fault("is gone", "make another").hint == "make another"


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({"TotalInstanceCount": 4}, 4),
        ({"TotalInstanceCount": 0, "Tags": asked_for(4)}, 4),
        ({"TotalInstanceCount": 3, "Tags": asked_for(4)}, 3),
        ({"TotalInstanceCount": 0, "Tags": [{"Key": QUANTITY_TAG, "Value": "four"}]}, 0),
        ({"TotalInstanceCount": 0, "Tags": None}, 0),
        ({}, 0),
    ],
)
def test_how_many_instances(told: dict[str, Any], count: int) -> None:
    assert instance_count(told) == count
