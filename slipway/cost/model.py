"""What an estimate is made of. Money is US dollars, list prices without tax and discounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

HOURS_A_MONTH = 730
"""How AWS's own price pages turn hours into months."""

PRICE_LIST = "price list"
DATA_FILE = "data file"


class Range(NamedTuple):
    """From what is always on to what there can be at most."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Both ends multiplied."""
        return Range(self.low * factor, self.high * factor)

    def plus(self, other: Range) -> Range:
        """Both ends added."""
        return Range(self.low + other.low, self.high + other.high)


NOTHING = Range(0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Price:
    """One price. `key` is what is priced (`instance:p5.48xlarge`), `unit` says per what.

    `tiers` are (from, USD) of the quantity used in a month, rising; a flat price has one, from 0. `source` is
    "price list" or "data file", `date` (ISO) the day from which it is known.
    """

    key: str
    unit: str
    tiers: tuple[tuple[float, float], ...]
    source: str
    date: str

    @property
    def usd(self) -> float:
        """The price of one; of tiers the dearest."""
        return max(usd for _, usd in self.tiers)

    @property
    def label(self) -> str:
        """The source as it is shown; a fallback says its date."""
        return self.source if self.source == PRICE_LIST else f"{self.source} {self.date}"

    def of(self, quantity: float) -> float:
        """US dollars for that many in one month."""
        ends = [begin for begin, _ in self.tiers[1:]] + [float("inf")]
        return sum(
            usd * max(min(quantity, end) - begin, 0.0) for (begin, usd), end in zip(self.tiers, ends, strict=True)
        )


class State(StrEnum):
    """What is known of a part's cost."""

    KNOWN = "known"
    UNKNOWN = "unknown"  # it costs, and no source gives the price
    BY_USE = "by use"  # it costs by what is done with the cluster
    NOTHING = "nothing"  # it exists already, or costs nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the estimate. `usd_per_hour` is there only for what is known.

    `price_key` is what was looked up, whether there is such a price or not. `reservation_id` marks what is paid for
    whether the cluster exists or not.
    """

    group: str
    name: str
    quantity: str = ""
    state: State
    usd_per_hour: Range | None = None
    price: Price | None = None
    price_key: str = ""
    note: str = ""
    reservation_id: str | None = None

    @property
    def usd_per_month(self) -> Range | None:
        """For a month of 730 hours."""
        return self.usd_per_hour.times(HOURS_A_MONTH) if self.usd_per_hour else None


@dataclasses.dataclass(frozen=True)
class Reserved:
    """What AWS says of a reservation: how many instances, and its whole duration in hours (None: without an end)."""

    total: int
    hours: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A stretch of time and what it costs. `hours` is None if its length is unknown.

    `source` is where the length is from: "DescribeCapacityReservations" or "--hours". `reservation_usd` is None without
    a reservation, or when its price or its length is unknown.
    """

    name: str
    reservation_id: str | None
    hours: float | None
    source: str
    reservation_usd: float | None
    cluster_usd: Range | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """What a cluster costs, by part. Sums hold what is known; `unknown` and `by_use` name the rest."""

    cluster: str
    region: str
    parts: tuple[Part, ...]
    windows: tuple[Window, ...]
    assumptions: tuple[str, ...]
    budget_usd: int | None

    @property
    def cluster_per_hour(self) -> Range:
        """Everything but the reservations."""
        return total(part for part in self.parts if part.reservation_id is None)

    @property
    def reservations_per_hour(self) -> Range:
        """What is paid anyway."""
        return total(part for part in self.parts if part.reservation_id is not None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The parts whose cost is unknown."""
        return tuple(part.name for part in self.parts if part.state is State.UNKNOWN)

    @property
    def by_use(self) -> tuple[str, ...]:
        """The parts that cost by what is done with the cluster."""
        return tuple(part.name for part in self.parts if part.state is State.BY_USE)

    @property
    def above_budget(self) -> tuple[str, ...]:
        """Which monthly sums, at most, are above the budget: "without the reservations", "with the reservations"."""
        if self.budget_usd is None:
            return ()
        cluster = self.cluster_per_hour.times(HOURS_A_MONTH).high
        reserved = self.reservations_per_hour.times(HOURS_A_MONTH).high
        sums = {"without the reservations": cluster, "with the reservations": cluster + reserved}
        if not any(part.reservation_id for part in self.parts):
            sums = {"at most": cluster}
        return tuple(name for name, usd in sums.items() if usd > self.budget_usd)


def total(parts: Iterable[Part]) -> Range:
    """The sum of the known parts' USD per hour."""
    result = NOTHING
    for part in parts:
        result = result.plus(part.usd_per_hour or NOTHING)
    return result
