"""The dated data file (`slipway/data/prices.json`) as prices of one region."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from slipway.cost.model import DATA_FILE, Price
from slipway.instances import INSTANCE_TYPES

EVERYWHERE = "*"


def data_prices(region: str) -> dict[str, Price]:
    """Every price that the data file states for `region`, by key; empty for a region it does not know."""
    file = _file()
    found: dict[str, Price] = {}
    for table in file["tables"]:
        date = file["sources"][table["source"]]["date"]
        for row, by_region in table["prices"].items():
            for value in _values(by_region, region):
                key = table["key"].format(row)
                found[key] = Price(key, table["unit"], _tiers(value), DATA_FILE, date)
    return _with_types(found)


@functools.cache
def _file() -> Any:
    return json.loads(resources.files("slipway").joinpath("data/prices.json").read_text(encoding="utf-8"))


def _values(by_region: dict[str, Any], region: str) -> Iterator[Any]:
    return (value for names, value in by_region.items() if names == EVERYWHERE or region in names.split())


def _tiers(value: Any) -> tuple[tuple[float, float], ...]:
    if isinstance(value, list):
        return tuple((float(begin), float(usd)) for begin, usd in value)
    return ((0.0, float(value)),)


def _with_types(found: dict[str, Price]) -> dict[str, Price]:
    """The families' rates become a price for each type: its vCPUs times the rate."""
    prices = {key: price for key, price in found.items() if not key.startswith("family:")}
    for name, instance in INSTANCE_TYPES.items():
        rate = found.get(f"family:{name.partition('.')[0]}")
        key = f"instance:{name}"
        if rate and key not in prices:
            usd = round(rate.usd * instance.vcpus, 6)
            prices[key] = Price(key, "USD per hour", ((0.0, usd),), rate.source, rate.date)
    return prices
