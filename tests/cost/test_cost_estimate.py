"""The arithmetic: exact sums of every example, and each rule of what is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cost_cases import CPU, EXAMPLES, block

from slipway.cost import Reserved, data_prices, estimate, needed_prices
from slipway.cost.model import HOURS_A_MONTH, CostEstimate, Part, State
from slipway.settings import Fsx, Settings, load_settings

REPOSITORY = Path(__file__).resolve().parents[2]
Make = Callable[..., Settings]


def priced(settings: Settings, **more: object) -> CostEstimate:
    return estimate(settings, data_prices(settings.region), **more)  # type: ignore[arg-type]


def part(result: CostEstimate, name: str) -> Part:
    return next(one for one in result.parts if name in one.name)


def monthly(result: CostEstimate, name: str) -> tuple[float, float]:
    usd = part(result, name).usd_per_month
    assert usd is not None
    return usd


def test_every_example_has_its_sums_here() -> None:
    assert set(EXAMPLES) == {file.name for file in (REPOSITORY / "clusters").glob("*.yaml")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_exact_sums_of_an_example(name: str) -> None:
    """Month by part, reckoned by hand from the data file's prices; no part is left out and none is added."""
    expected = EXAMPLES[name]
    result = priced(load_settings(REPOSITORY / "clusters" / name))
    known = {
        one.name: tuple(one.usd_per_month) for one in result.parts if one.state is State.KNOWN and one.usd_per_month
    }
    assert {key: pytest.approx(value) for key, value in expected.items()} == known
    cluster = [usd for key, usd in expected.items() if " cr-" not in key]
    reserved = [usd for key, usd in expected.items() if " cr-" in key]
    assert result.cluster_per_hour.low == pytest.approx(sum(low for low, _ in cluster) / HOURS_A_MONTH)
    assert result.cluster_per_hour.high == pytest.approx(sum(high for _, high in cluster) / HOURS_A_MONTH)
    assert result.reservations_per_hour.high == pytest.approx(sum(high for _, high in reserved) / HOURS_A_MONTH)
    assert result.unknown == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_needed_prices_are_all_that_is_looked_up(name: str) -> None:
    settings = load_settings(REPOSITORY / "clusters" / name)
    needed = needed_prices(settings)
    prices = {key: price for key, price in data_prices(settings.region).items() if key in needed}
    assert estimate(settings, prices) == priced(settings)


def test_dynamic_queue_is_shown_from_always_to_at_most(settings_of: Make) -> None:
    result = priced(settings_of("  - {name: cpu, instance_type: c6i.8xlarge, max_count: 8}\n"))
    assert monthly(result, "queue cpu") == (0, pytest.approx(8 * 1.36 * 730))
    assert part(result, "queue cpu").quantity == "0 to 8 x c6i.8xlarge"
    assert monthly(result, "compute nodes") == (0, pytest.approx(8 * 200 * 0.08))


def test_spot_is_bounded_by_the_on_demand_price(settings_of: Make) -> None:
    result = priced(settings_of("  - {name: try, instance_type: g6.xlarge, count: 2, spot: true}\n"))
    assert "changes hourly" in part(result, "queue try").note
    assert monthly(result, "queue try")[1] == pytest.approx(2 * 0.8048 * 730)


def test_a_reserved_queue_is_counted_once_and_apart(settings_of: Make) -> None:
    result = priced(settings_of(block()))
    assert part(result, "queue train1").state is State.NOTHING
    assert result.reservations_per_hour.high == pytest.approx(4 * 31.464)
    assert part(result, "capacity block").reservation_id == "cr-0123456789abcdef1"


def test_a_block_costs_its_own_price_and_an_on_demand_reservation_the_on_demand_price(settings_of: Make) -> None:
    queue = block()
    assert priced(settings_of(queue)).reservations_per_hour.high == pytest.approx(4 * 31.464)
    on_demand = settings_of(queue.replace("capacity-block", "on-demand"))
    assert priced(on_demand).reservations_per_hour.high == pytest.approx(4 * 55.04)


def test_two_queues_of_one_reservation_are_one_line(settings_of: Make) -> None:
    queues = block(1, 2) + block(1, 3).replace("train1", "other")
    result = priced(settings_of(queues))
    assert part(result, "cr-0123456789abcdef1").quantity == "5 x p5.48xlarge"
    assert len([one for one in result.parts if one.reservation_id]) == 1


def test_the_whole_reservation_is_paid_for(settings_of: Make) -> None:
    result = priced(settings_of(block(1, 2)), reserved={"cr-0123456789abcdef1": Reserved(6, 48.0)})
    line = part(result, "capacity block")
    assert line.quantity == "6 x p5.48xlarge"
    assert line.note == "the queues use 2 of its 6 instances"
    assert result.reservations_per_hour.high == pytest.approx(6 * 31.464)


def test_window_of_a_block_comes_from_aws_first(settings_of: Make) -> None:
    result = priced(settings_of(block()), reserved={"cr-0123456789abcdef1": Reserved(4, 336.0)}, hours=10)
    (window,) = result.windows
    assert (window.hours, window.source) == (336.0, "DescribeCapacityReservations")
    assert window.reservation_usd == pytest.approx(336 * 4 * 31.464)
    assert window.cluster_usd is not None
    assert window.cluster_usd.high == pytest.approx(336 * result.cluster_per_hour.high)


def test_window_of_a_block_from_the_user(settings_of: Make) -> None:
    (window,) = priced(settings_of(block()), hours=24).windows
    assert (window.hours, window.source) == (24, "--hours")
    assert window.reservation_usd == pytest.approx(24 * 4 * 31.464)


def test_window_of_a_block_that_nobody_knows(settings_of: Make) -> None:
    (window,) = priced(settings_of(block())).windows
    assert (window.hours, window.source, window.reservation_usd, window.cluster_usd) == (None, "", None, None)


def test_each_block_has_its_window(settings_of: Make) -> None:
    told = {"cr-0123456789abcdef2": Reserved(4, 48.0)}
    windows = priced(settings_of(block(1) + block(2)), reserved=told, hours=24).windows
    assert [(one.reservation_id, one.hours) for one in windows] == [
        ("cr-0123456789abcdef1", 24),
        ("cr-0123456789abcdef2", 48.0),
    ]


def test_an_on_demand_reservation_has_no_window_of_its_own(settings_of: Make) -> None:
    settings = settings_of(block().replace("capacity-block", "on-demand"))
    assert priced(settings, reserved={"cr-0123456789abcdef1": Reserved(4, None)}).windows == ()
    (window,) = priced(settings, hours=100).windows
    assert (window.reservation_id, window.hours, window.reservation_usd) == (None, 100, None)


def test_an_existing_file_system_costs_nothing_new(settings_of: Make) -> None:
    settings = settings_of(CPU)
    storage = settings.storage.model_copy(update={"fsx": Fsx(file_system_id="fs-0123456789abcdef0")})
    existing = settings.model_copy(update={"storage": storage})
    assert monthly(priced(settings), "FSx") == (pytest.approx(2400 * 0.21),) * 2
    line = part(priced(existing), "FSx")
    assert (line.state, line.note) == (State.NOTHING, "fs-0123456789abcdef0 exists: nothing new")
    assert not any(key.startswith("fsx:") for key in needed_prices(existing))


@pytest.mark.parametrize(
    ("fsx", "usd"),
    [
        ("{deployment: scratch-1, capacity_gib: 1200}", 1200 * 0.14),
        ("{deployment: scratch-2, capacity_gib: 2400}", 2400 * 0.14),
        ("{deployment: persistent-1, capacity_gib: 2400, throughput_mb_s_per_tib: 50}", 2400 * 0.14),
        ("{deployment: persistent-1, capacity_gib: 2400, throughput_mb_s_per_tib: 200}", 2400 * 0.29),
        ("{capacity_gib: 2400, throughput_mb_s_per_tib: 125}", 2400 * 0.145),
        ("{capacity_gib: 4800, throughput_mb_s_per_tib: 1000}", 4800 * 0.6),
    ],
)
def test_a_file_system_costs_by_deployment_and_throughput(settings_of: Make, fsx: str, usd: float) -> None:
    text = {"{capacity_gib: 2400, throughput_mb_s_per_tib: 250}": fsx}
    assert monthly(priced(settings_of(CPU, **text)), "FSx") == (pytest.approx(usd),) * 2


def test_an_existing_network_costs_nothing_new(settings_of: Make) -> None:
    ids = "{vpc_id: vpc-0123456789abcdef0, head_node_subnet_id: subnet-0123456789abcdef0, compute_subnet_id: subnet-0123456789abcdef1}"
    result = priced(settings_of(CPU, f"network: {ids}\n"))
    assert part(result, "network").state is State.NOTHING
    assert part(result, "public IPv4 address").state is State.BY_USE
    assert not any("NAT" in one.name for one in result.parts)


def test_a_region_without_data_names_what_is_unknown(settings_of: Make) -> None:
    settings = settings_of(CPU, **{"us-east-1": "il-central-1"})
    result = priced(settings)
    assert result.unknown == (
        "queue cpu",
        "head node",
        "EBS root volume of the head node",
        "EBS root volumes of the compute nodes",
        "FSx for Lustre",
        "NAT gateway",
    )
    assert result.cluster_per_hour.high == pytest.approx(2 * 0.005)


def test_what_costs_by_use_is_named_and_not_in_the_sums(settings_of: Make) -> None:
    result = priced(settings_of(block()))
    assert result.by_use == ("NAT traffic", "S3", "CloudWatch")
    assert all(one.usd_per_hour is None for one in result.parts if one.state is State.BY_USE)


@pytest.mark.parametrize(
    ("budget", "above"),
    [
        (200_000, ()),
        (20_000, ("with the reservations",)),
        (1_000, ("without the reservations", "with the reservations")),
    ],
)
def test_budget_against_both_sums(settings_of: Make, budget: int, above: tuple[str, ...]) -> None:
    more = f"budget: {{monthly_usd: {budget}}}\n"
    assert priced(settings_of(block(), more)).above_budget == above


@pytest.mark.parametrize(("budget", "above"), [(20_000, ()), (5_000, ("at most",))])
def test_budget_holds_for_the_most_there_can_be(settings_of: Make, budget: int, above: tuple[str, ...]) -> None:
    """None of the eight nodes is always there: it is the sum at most that counts."""
    more = f"budget: {{monthly_usd: {budget}}}\n"
    queue = "  - {name: cpu, instance_type: c6i.8xlarge, max_count: 8}\n"
    assert priced(settings_of(queue, more)).above_budget == above


def test_assumptions_are_said_where_they_are_made(settings_of: Make) -> None:
    plain = priced(settings_of(CPU)).assumptions
    assert len(plain) == 1
    elastic = priced(load_settings(REPOSITORY / "clusters/g6-sandbox.yaml")).assumptions
    assert [text for text in elastic if text.startswith("low: ")]
    full = priced(load_settings(REPOSITORY / "clusters/p5-capacity-block.yaml")).assumptions
    assert [
        word for word in ("capacity block", "series a node", "editor") if not any(word in text for text in full)
    ] == []
