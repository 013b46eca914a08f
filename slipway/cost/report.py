"""An estimate as one JSON object, or as a table and a summary line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.cost.model import HOURS_A_MONTH, PRICE_LIST, CostEstimate, Part, Price, Range, State, Window
from slipway.text import folded, screen_width, visible

NOT_ASKED = "the price list was not asked (--offline)"
TITLES = ("part", "quantity", "USD/h", "USD/month", "source")
Row = tuple[str, str, str, str, str]


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Why prices come from the data file: `reason`, the `parts` it is about, and their prices' dates."""

    reason: str
    parts: tuple[str, ...]
    dates: tuple[str, ...]


def fallbacks(result: CostEstimate, why_not: Mapping[str, str], asked: bool) -> tuple[Fallback, ...]:
    """The parts without a price of the price list, grouped by why. Prices it never has are none of them."""
    groups: dict[str, list[Part]] = {}
    for part in result.parts:
        if part.price is None or part.price.source == PRICE_LIST:
            continue
        if part.price_key in why_not or not asked:
            groups.setdefault(why_not.get(part.price_key, NOT_ASKED), []).append(part)
    return tuple(
        Fallback(
            reason,
            tuple(dict.fromkeys(part.name for part in parts)),
            tuple(sorted({part.price.date for part in parts if part.price})),
        )
        for reason, parts in groups.items()
    )


def as_dict(
    file: str, result: CostEstimate, why_not: Mapping[str, str], why_no_window: Mapping[str, str], asked: bool
) -> dict[str, Any]:
    """Every number with its unit and source. The form: `slipway/cost/cost.schema.json`."""
    cluster, reserved = result.cluster_per_hour, result.reservations_per_hour
    return {
        "file": file,
        "cluster": result.cluster,
        "region": result.region,
        "currency": "USD",
        "hours_a_month": HOURS_A_MONTH,
        "parts": [_part(part, why_not) for part in result.parts],
        "totals": {
            "cluster": _sums(cluster),
            "reservations": _sums(reserved),
            "together": _sums(cluster.plus(reserved)),
        },
        "windows": [_window(window, why_no_window) for window in result.windows],
        "unknown": list(result.unknown),
        "by_use": list(result.by_use),
        "price_list": {
            "asked": asked,
            "fallbacks": [dataclasses.asdict(one) for one in fallbacks(result, why_not, asked)],
        },
        "assumptions": list(result.assumptions),
        "budget": None
        if result.budget_usd is None
        else {"monthly_usd": result.budget_usd, "above": list(result.above_budget)},
    }


def _part(part: Part, why_not: Mapping[str, str]) -> dict[str, Any]:
    return {
        "group": part.group,
        "name": part.name,
        "quantity": part.quantity,
        "state": part.state.value,
        "reservation_id": part.reservation_id,
        "price": _price(part.price) if part.price else None,
        "why_no_list_price": why_not.get(part.price_key, ""),
        "usd_per_hour": _range(part.usd_per_hour),
        "usd_per_month": _range(part.usd_per_month),
        "note": part.note,
    }


def _price(price: Price) -> dict[str, Any]:
    tiers = [{"from": begin, "usd": usd} for begin, usd in price.tiers]
    return {"unit": price.unit, "tiers": tiers, "source": price.label, "date": price.date}


def _range(value: Range | None) -> dict[str, float] | None:
    return {"low": round(value.low, 6), "high": round(value.high, 6)} if value else None


def _sums(per_hour: Range) -> dict[str, Any]:
    return {"usd_per_hour": _range(per_hour), "usd_per_month": _range(per_hour.times(HOURS_A_MONTH))}


def _window(window: Window, why_no_window: Mapping[str, str]) -> dict[str, Any]:
    usd = window.reservation_usd
    return {
        "name": window.name,
        "reservation_id": window.reservation_id,
        "hours": window.hours,
        "source": window.source,
        "why_not_asked": why_no_window.get(window.reservation_id or "", ""),
        "reservation_usd": None if usd is None else round(usd, 6),
        "cluster_usd": _range(window.cluster_usd),
    }


def show(result: CostEstimate, why_not: Mapping[str, str], why_no_window: Mapping[str, str], asked: bool) -> None:
    """Print the table, the remarks on it and one summary line, all within the width of the terminal."""
    lines = [*_remarks(result, why_not, why_no_window, asked), summary(result)]
    for line in [*_table(result), *(folded(visible(line)) for line in lines)]:
        print(line)


def _table(result: CostEstimate) -> list[str]:
    """Return the lines of the table; where the terminal is too narrow for it, of a list with the same facts."""
    rows: list[Row] = [TITLES, *(_row(part) for part in result.parts if not part.reservation_id)]
    rows.append(("together", "", *_amounts(result.cluster_per_hour), ""))
    reserved = [_row(part) for part in result.parts if part.reservation_id]
    rows += [("", "", "", "", ""), *reserved] if reserved else []
    rows = [_visible(*row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(_cells(row, widths)).rstrip() for row in rows]
    width = screen_width()
    if width is None or max(map(len, lines)) <= width:
        return lines
    return [line for row in rows[1:] for line in _listed(*row)]


def _visible(part: str, quantity: str, per_hour: str, per_month: str, source: str) -> Row:
    return visible(part), visible(quantity), per_hour, per_month, source


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for title, cell, width in zip(TITLES, row, widths, strict=True):
        yield cell.rjust(width) if title.startswith("USD") else cell.ljust(width)


def _listed(part: str, quantity: str, per_hour: str, per_month: str, source: str) -> Iterator[str]:
    yield folded(f"{part}: {quantity}" if quantity else part)
    amount = f"{per_hour} USD/h, {per_month} USD/month" if per_month else per_hour
    if amount or source:
        yield folded("    " + amount + (f" ({source})" if source and amount else source), indent=4)


def _row(part: Part) -> Row:
    source = part.price.label if part.price else ""
    if part.state is State.KNOWN and part.usd_per_hour:
        return part.name, part.quantity, *_amounts(part.usd_per_hour), source
    if part.state is State.NOTHING and part.group == "compute":
        return part.name, "in the reservation below", "", "", ""
    unit = f"{part.price.usd:g} {part.price.unit}" if part.price else ""
    return part.name, part.quantity or unit, part.state.value, "", source


def _amounts(per_hour: Range) -> tuple[str, str]:
    return _money(per_hour, 4 if per_hour.high < 1 else 2), _money(per_hour.times(HOURS_A_MONTH), 2)


def _money(value: Range, digits: int = 2) -> str:
    low, high = (f"{usd:,.{digits}f}" for usd in value)
    return high if low == high else f"{low} to {high}"


def _remarks(
    result: CostEstimate, why_not: Mapping[str, str], why_no_window: Mapping[str, str], asked: bool
) -> list[str]:
    lines = [f"{window.name}: {_window_text(window, why_no_window)}" for window in result.windows]
    notes = [f"{part.name}: {part.note}" for part in result.parts if part.note]
    lines += ["", *notes, *(f"assumed: {text}" for text in result.assumptions)]
    fallen = fallbacks(result, why_not, asked)
    lines += [_fallback_text(one, result, several=len(fallen) > 1) for one in fallen]
    if result.by_use:
        lines.append(f"by use, not in the sums: {', '.join(result.by_use)}")
    for part in result.parts:
        if part.state is State.UNKNOWN:
            why = why_not.get(part.price_key, NOT_ASKED if not asked else "it is not in the price list")
            lines.append(
                f"unknown, not in the sums: {part.name}: the data file has no price for {result.region}; {why}"
            )
    return [*lines, *_budget(result)]


def _fallback_text(one: Fallback, result: CostEstimate, *, several: bool) -> str:
    from_list = any(part.price and part.price.source == PRICE_LIST for part in result.parts)
    which = ", ".join(one.parts) if from_list or several else "every price"
    dates = one.dates[0] if len(one.dates) == 1 else f"{one.dates[0]} to {one.dates[-1]}"
    return f"not today's price but the data file's ({dates}): {which}. Why: {one.reason}"


def _window_text(window: Window, why_no_window: Mapping[str, str]) -> str:
    if window.hours is None or window.cluster_usd is None:
        why = why_no_window.get(window.reservation_id or "", "AWS was not asked")
        return f"how long it lasts is unknown ({why}); say it with --hours"
    block = ""
    if window.reservation_id:
        usd = window.reservation_usd
        block = "the block at an unknown price, " if usd is None else f"the block {usd:,.2f} USD, "
    rest = _money(window.cluster_usd)
    return (
        f"over its {window.hours:g} h ({window.source}): {block}the cluster around it {rest} USD"
        if block
        else (f"{rest} USD")
    )


def _budget(result: CostEstimate) -> list[str]:
    if result.budget_usd is None:
        return []
    if not result.above_budget:
        return [f"budget: {result.budget_usd:,} USD a month, not exceeded"]
    which = " and ".join(result.above_budget)
    return [f"budget: the monthly sum is above {result.budget_usd:,} USD {which}"]


def summary(result: CostEstimate) -> str:
    """The whole in one line."""
    cluster = result.cluster_per_hour
    month = _money(cluster.times(HOURS_A_MONTH))
    least, without = ("at least ", f" without {', '.join(result.unknown)}") if result.unknown else ("", "")
    line = f"{result.cluster} in {result.region}: {least}{_money(cluster)} USD/h, {month} USD/month{without}"
    reserved = result.reservations_per_hour
    if reserved.high:
        month = _money(reserved.times(HOURS_A_MONTH))
        line += f"; in addition, paid anyway: reservations {_money(reserved)} USD/h, {month} USD/month"
    return f"{line}; above budget" if result.above_budget else line
