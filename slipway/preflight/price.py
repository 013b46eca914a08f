"""What the cluster costs in a month against the budget that the settings set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slipway.aws.calls import Aws, Unasked
from slipway.preflight.asking import could_not_ask
from slipway.preflight.model import Answer, Question, Status, ok, warning
from slipway.settings import Settings

if TYPE_CHECKING:
    from slipway.cost.live import LiveFacts

BUDGET = ("budget", "monthly_usd")


def _price(settings: Settings, aws: Aws) -> Iterator[Answer]:
    from slipway.cost import data_prices, estimate, needed_prices
    from slipway.cost.live import ask
    from slipway.cost.model import HOURS_A_MONTH

    answers = ask(settings, needed_prices(settings), connect_to=lambda _: aws)
    yield from _unasked(answers)
    result = estimate(settings, {**data_prices(settings.region), **answers.prices}, answers.reserved)
    cluster = result.cluster_per_hour.times(HOURS_A_MONTH).high
    reserved = result.reservations_per_hour.times(HOURS_A_MONTH).high
    facts = f"{cluster:,.0f} USD a month at most" + (f", {reserved:,.0f} more for the reservations" if reserved else "")
    facts += f", without {', '.join(result.unknown)}" if result.unknown else ""
    if result.above_budget:
        text = f"the cluster costs {facts}: above the budget of {result.budget_usd:,} USD"
        yield warning(BUDGET, text, "raise the budget, or see what costs most: slipway cost")
    else:
        yield ok(BUDGET, f"the cluster costs {facts}; the budget is {result.budget_usd:,} USD")


def _unasked(answers: LiveFacts) -> Iterator[Answer]:
    """Report each permission error once. A product that is missing from the price list is expected and not reported."""
    reasons = {**answers.why_not, **answers.why_not_reserved}.values()
    for text in dict.fromkeys(reason for reason in reasons if reason.endswith("is not allowed")):
        yield could_not_ask(Unasked(text, text.removesuffix(" is not allowed")))


QUESTIONS = (
    Question(
        name="budget",
        asks="Does what the cluster costs in a month fit the budget?",
        why="A budget below the cost sends alarms from the first week, and they are soon ignored.",
        source="Price List API, and slipway/data/prices.json where it does not answer; docs/cost.md",
        permissions=("pricing:GetProducts", "ec2:DescribeCapacityReservations"),
        finds=(Status.WARNING,),
        ask=_price,
        applies=lambda s: s.budget is not None,
    ),
)
