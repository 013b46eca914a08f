"""The cost of a month against the budget. The prices are the price list's, made from the dated data file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from preflight_cases import REGION, Case, check, denied

from rehearsal.cloud.capacity import add_reservation
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

DYNAMIC = "the cluster costs 20,978 USD a month at most: above the budget of 1,000 USD"
RESERVED = (
    "the cluster costs 1,615 USD a month at most, 91,875 more for the reservations: above the budget of 1,000 USD"
)
PATH = ("budget", "monthly_usd")
HINT = "raise the budget, or see what costs most: slipway cost"
SMALL: dict[str, Any] = {"budget": {"monthly_usd": 1000}}
LARGE: dict[str, Any] = {"budget": {"monthly_usd": 1_000_000}}
QUEUE: dict[str, Any] = {"queues": [{"name": "dev", "instance_type": "g6.48xlarge", "max_count": 2}]}


def reservation(_: PreflightAws) -> None:
    add_reservation(REGION, "cr-0123456789abcdef1", "p5.48xlarge", 4, f"{REGION}a", "on-demand")


CASES = [
    Case("budget", "enough", Status.OK, RESERVED.partition(":")[0] + "; the budget is 1,000,000 USD", PATH,
         settings=LARGE, arrange=reservation),
    Case("budget", "above", Status.WARNING, DYNAMIC, PATH, HINT, settings={**SMALL, **QUEUE}),
    Case("budget", "above, reserved", Status.WARNING, RESERVED, PATH, HINT, settings=SMALL, arrange=reservation),
    denied("pricing:GetProducts", "budget", settings=LARGE, arrange=reservation),
    denied("ec2:DescribeCapacityReservations", "budget", settings=LARGE, arrange=reservation),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_price(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_without_the_price_list_the_data_file_counts(ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    answers = ask(denied("pricing:GetProducts", "budget", settings={**SMALL, **QUEUE}))
    assert (Status.WARNING, DYNAMIC) in [(answer.status, answer.text) for answer in answers]
