"""Settings and prices -> what the cluster costs, by part. Pure: no file, no network, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from slipway.cluster_config import COMPUTE_ROOT_VOLUME_GIB
from slipway.cost.metrics import METRICS_ASSUMPTION, samples_a_month
from slipway.cost.model import HOURS_A_MONTH, CostEstimate, Part, Price, Range, Reserved, State, Window, total

if TYPE_CHECKING:
    from slipway.settings import Fsx, Queue, Settings

PUBLIC_ADDRESSES = 2  # of a new VPC: the NAT gateway's and the head node's
EDITORS = 1  # every Grafana workspace has one, even if no user logs in
SPOT_NOTE = "spot changes hourly; the on-demand price is its upper bound"
KIND_WORDS = {"capacity-block": "capacity block", "on-demand": "on-demand reservation"}
PRICE_KINDS = {"capacity-block": "capacity-block", "on-demand": "instance"}

PRICES_ASSUMPTION = f"list prices in USD without tax and discounts; a month has {HOURS_A_MONTH} hours"
NODES_ASSUMPTION = "low: the nodes that are always there (min_count); high: all nodes there can be (max_count)"
BLOCK_ASSUMPTION = (
    "a capacity block is paid up front: its price here is what AWS asks for a new one, yours is on its invoice;"
    " the operating system's fee is not counted"
)
GRAFANA_ASSUMPTION = f"Grafana: {EDITORS} editor, which every workspace has; further active users cost extra"


def needed_prices(settings: Settings) -> tuple[str, ...]:
    """The keys of every price that `estimate` looks up for these settings."""
    return tuple(dict.fromkeys(_keys(settings)))


def estimate(
    settings: Settings,
    prices: Mapping[str, Price],
    reserved: Mapping[str, Reserved] | None = None,
    hours: float | None = None,
) -> CostEstimate:
    """What `settings` cost at `prices` (by key, of the settings' region); a price that is missing is unknown.

    `reserved` holds what AWS says of the reservations, by id; `hours` is how long a capacity block lasts where AWS
    was not asked, or without a block the time to add up.
    """
    reserved = reserved or {}
    parts = tuple(_parts(settings, prices, reserved))
    return CostEstimate(
        cluster=settings.name,
        region=settings.region,
        parts=parts,
        windows=tuple(_windows(settings, parts, reserved, hours)),
        assumptions=tuple(_assumptions(settings)),
        budget_usd=settings.budget.monthly_usd if settings.budget else None,
    )


def _keys(s: Settings) -> Iterator[str]:
    for queue in s.queues:
        kind = PRICE_KINDS[queue.reservation.kind] if queue.reservation else "instance"
        yield f"{kind}:{queue.instance_type}"
    yield f"instance:{s.head_node.instance_type}"
    yield "ebs:gp3"
    if s.storage.fsx.file_system_id is None:
        yield _fsx_key(s.storage.fsx)
    if s.network.is_new:
        yield from ("nat:hour", "nat:gb")
    yield "ipv4:hour"
    if s.observability.prometheus:
        yield "prometheus:sample"
    if s.observability.grafana:
        yield from ("grafana:editor", "grafana:viewer")


def _parts(s: Settings, prices: Mapping[str, Price], reserved: Mapping[str, Reserved]) -> Iterator[Part]:
    yield from _compute(s, prices)
    yield from _reservations(s, prices, reserved)
    yield _head_node(s, prices)
    yield from _volumes(s, prices)
    yield _file_system(s.storage.fsx, prices)
    yield from _network(s, prices)
    yield from _observability(s, prices)
    yield _by_use("storage", "S3", "storage and requests of the bucket")
    yield _by_use("observability", "CloudWatch", "logs and metrics that the nodes write")


def _priced(
    group: str,
    name: str,
    quantity: str,
    looked_up: tuple[str, Price | None],
    monthly: Range,
    note: str = "",
    reservation_id: str | None = None,
) -> Part:
    """A part of `monthly` units a month, from always to at most; unknown without a price."""
    key, price = looked_up
    state, cost = State.UNKNOWN, None
    if price:
        state, cost = State.KNOWN, Range(price.of(monthly.low), price.of(monthly.high)).times(1 / HOURS_A_MONTH)
    return Part(
        group=group,
        name=name,
        quantity=quantity,
        state=state,
        usd_per_hour=cost,
        price=price,
        price_key=key,
        note=note,
        reservation_id=reservation_id,
    )


def _look_up(prices: Mapping[str, Price], key: str) -> tuple[str, Price | None]:
    return key, prices.get(key)


def _by_use(group: str, name: str, note: str, looked_up: tuple[str, Price | None] = ("", None)) -> Part:
    key, price = looked_up
    return Part(group=group, name=name, state=State.BY_USE, price=price, price_key=key, note=note)


def _nothing(group: str, name: str, note: str) -> Part:
    return Part(group=group, name=name, state=State.NOTHING, usd_per_hour=Range(0.0, 0.0), note=note)


def _hours(low: float, high: float) -> Range:
    """Hours a month of that many things that run all the time."""
    return Range(low, high).times(HOURS_A_MONTH)


def _count(low: int, high: int) -> str:
    return f"{high}" if low == high else f"{low} to {high}"


def _compute(s: Settings, prices: Mapping[str, Price]) -> Iterator[Part]:
    for queue in s.queues:
        if queue.reservation:
            yield _nothing("compute", f"queue {queue.name}", f"runs in {queue.reservation.id}, which is counted apart")
            continue
        yield _priced(
            "compute",
            f"queue {queue.name}",
            f"{_count(queue.min_count, queue.max_count)} x {queue.instance_type}",
            _look_up(prices, f"instance:{queue.instance_type}"),
            _hours(queue.min_count, queue.max_count),
            SPOT_NOTE if queue.spot else "",
        )


def _reservations(s: Settings, prices: Mapping[str, Price], reserved: Mapping[str, Reserved]) -> Iterator[Part]:
    """Each reservation once, whichever queues use it: all its instances are paid for."""
    for reservation_id, queues in _by_reservation(s).items():
        assert queues[0].reservation, "grouped by it"  # noqa: S101 (for mypy)
        kind, instance_type = queues[0].reservation.kind, queues[0].instance_type
        used = sum(queue.max_count for queue in queues)
        count = reserved[reservation_id].total if reservation_id in reserved else used
        yield _priced(
            "reservation",
            f"{KIND_WORDS[kind]} {reservation_id}",
            f"{count} x {instance_type}",
            _look_up(prices, f"{PRICE_KINDS[kind]}:{instance_type}"),
            _hours(count, count),
            f"the queues use {used} of its {count} instances" if count > used else "paid whether it is used or not",
            reservation_id=reservation_id,
        )


def _by_reservation(s: Settings) -> dict[str, list[Queue]]:
    groups: dict[str, list[Queue]] = {}
    for queue in s.queues:
        if queue.reservation:
            groups.setdefault(queue.reservation.id, []).append(queue)
    return groups


def _head_node(s: Settings, prices: Mapping[str, Price]) -> Part:
    kind = s.head_node.instance_type
    return _priced("head node", "head node", f"1 x {kind}", _look_up(prices, f"instance:{kind}"), _hours(1, 1))


def _volumes(s: Settings, prices: Mapping[str, Price]) -> Iterator[Part]:
    gp3 = _look_up(prices, "ebs:gp3")
    head, size = s.head_node.root_volume_gib, COMPUTE_ROOT_VOLUME_GIB
    low, high = sum(queue.min_count for queue in s.queues), sum(queue.max_count for queue in s.queues)
    yield _priced("storage", "EBS root volume of the head node", f"{head} GiB gp3", gp3, Range(head, head))
    name, quantity = "EBS root volumes of the compute nodes", f"{_count(low, high)} x {size} GiB gp3"
    yield _priced("storage", name, quantity, gp3, Range(low, high).times(size))
    home = s.storage.home.size_gib
    if home:  # an existing volume costs the same with the cluster and without it, and its size is not in the settings
        yield _priced("storage", "EBS /home", f"{home} GiB gp3", gp3, Range(home, home))


def _fsx_key(fsx: Fsx) -> str:
    throughput = f":{fsx.throughput_mb_s_per_tib}" if fsx.throughput_mb_s_per_tib else ""
    return f"fsx:{fsx.deployment}{throughput}"


def _file_system(fsx: Fsx, prices: Mapping[str, Price]) -> Part:
    name = "FSx for Lustre"
    if fsx.file_system_id:
        return _nothing("storage", name, f"{fsx.file_system_id} exists: nothing new")
    size = fsx.capacity_gib
    throughput = f", {fsx.throughput_mb_s_per_tib} MB/s per TiB" if fsx.throughput_mb_s_per_tib else ""
    quantity = f"{size} GiB {fsx.deployment}{throughput}"
    return _priced("storage", name, quantity, _look_up(prices, _fsx_key(fsx)), Range(size, size))


def _network(s: Settings, prices: Mapping[str, Price]) -> Iterator[Part]:
    if not s.network.is_new:
        yield _nothing("network", "network", f"{s.network.vpc_id} exists: nothing new")
        address = "of the head node, if its subnet gives it one"
        yield _by_use("network", "public IPv4 address", address, _look_up(prices, "ipv4:hour"))
        return
    yield _priced("network", "NAT gateway", "1", _look_up(prices, "nat:hour"), _hours(1, 1))
    addresses = PUBLIC_ADDRESSES
    yield _priced(
        "network", "public IPv4 addresses", f"{addresses}", _look_up(prices, "ipv4:hour"), _hours(addresses, addresses)
    )
    yield _by_use("network", "NAT traffic", "per GB that leaves through it", _look_up(prices, "nat:gb"))


def _observability(s: Settings, prices: Mapping[str, Price]) -> Iterator[Part]:
    if s.observability.prometheus:
        samples = samples_a_month(s)
        yield _priced(
            "observability",
            "Amazon Managed Prometheus",
            _millions(samples),
            _look_up(prices, "prometheus:sample"),
            samples,
            "estimate; queries and storage are extra",
        )
    if s.observability.grafana:
        viewer = prices.get("grafana:viewer")
        note = f"each further active viewer {viewer.usd:g} USD a month" if viewer else ""
        editor, users = _look_up(prices, "grafana:editor"), Range(EDITORS, EDITORS)
        yield _priced("observability", "Amazon Managed Grafana", f"{EDITORS} editor", editor, users, note)


def _millions(samples: Range) -> str:
    low, high = (f"{round(count / 1e6):,}" for count in samples)
    return f"{high if low == high else f'{low} to {high}'} million samples a month"


def _windows(
    s: Settings, parts: tuple[Part, ...], reserved: Mapping[str, Reserved], hours: float | None
) -> Iterator[Window]:
    """One for each capacity block; without one, the hours that were asked for."""
    cluster = total(part for part in parts if part.reservation_id is None)
    blocks = [
        queues[0].reservation
        for queues in _by_reservation(s).values()
        if queues[0].reservation and queues[0].reservation.kind == "capacity-block"
    ]
    for block in blocks:
        known = reserved[block.id].hours if block.id in reserved else None
        length, source = (known, "DescribeCapacityReservations") if known else (hours, "--hours" if hours else "")
        yield _window(f"capacity block {block.id}", block.id, length, source, parts, cluster)
    if not blocks and hours:
        yield _window(f"{hours:g} hours", None, hours, "--hours", parts, cluster)


def _window(
    name: str, reservation_id: str | None, hours: float | None, source: str, parts: tuple[Part, ...], cluster: Range
) -> Window:
    part = next((one for one in parts if reservation_id and one.reservation_id == reservation_id), None)
    rate = part.usd_per_hour.high if part and part.usd_per_hour else None
    return Window(
        name=name,
        reservation_id=reservation_id,
        hours=hours,
        source=source,
        reservation_usd=rate * hours if rate is not None and hours else None,
        cluster_usd=cluster.times(hours) if hours else None,
    )


def _assumptions(s: Settings) -> Iterator[str]:
    yield PRICES_ASSUMPTION
    if any(queue.max_count > queue.min_count for queue in s.queues):
        yield NODES_ASSUMPTION
    if any(queue.reservation and queue.reservation.kind == "capacity-block" for queue in s.queues):
        yield BLOCK_ASSUMPTION
    if s.observability.prometheus:
        yield METRICS_ASSUMPTION
    if s.observability.grafana:
        yield GRAFANA_ASSUMPTION
