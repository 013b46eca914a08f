"""The dated data file: whole, unambiguous, and what its sources say."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from slipway.cost import Price, data_prices
from slipway.instances import INSTANCE_TYPES

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = json.loads((REPOSITORY / "slipway/data/prices.json").read_text(encoding="utf-8"))
TODAY = datetime.date.today()


def test_every_source_has_a_date_and_is_used() -> None:
    used = {table["source"] for table in FILE["tables"]}
    assert used == set(FILE["sources"])
    for source in FILE["sources"].values():
        assert datetime.date(2024, 1, 1) <= datetime.date.fromisoformat(source["date"]) <= TODAY
        assert len(source["what"]) > 20


def test_every_table_has_a_unit() -> None:
    assert all(table["unit"].startswith("USD per ") for table in FILE["tables"])


@pytest.mark.parametrize("table", FILE["tables"], ids=lambda table: f"{table['key']} {table['source']}")
def test_a_table_names_each_region_once_a_row(table: dict) -> None:
    for row, by_region in table["prices"].items():
        names = Counter(name for names in by_region for name in names.split())
        assert names.most_common(1)[0][1] == 1, row
        assert all(name == "*" or re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", name) for name in names), row


def test_rows_are_types_that_slipway_knows() -> None:
    families = {name.partition(".")[0] for name in INSTANCE_TYPES}
    for table in FILE["tables"]:
        known = {"instance:{}": set(INSTANCE_TYPES), "capacity-block:{}": set(INSTANCE_TYPES), "family:{}": families}
        assert set(table["prices"]) <= known.get(table["key"], set(table["prices"]))


def test_us_east_1_prices_every_type_that_is_sold_there_on_demand() -> None:
    prices = data_prices("us-east-1")
    # p5e is sold in capacity blocks alone, p6-b300 in us-west-2 alone.
    missing = {name for name in INSTANCE_TYPES if f"instance:{name}" not in prices}
    assert missing == {"p5e.48xlarge", "p6-b300.48xlarge"}


# Rows of karpenter-provider-aws zz_generated.pricing_aws.go, generated 2026-02-09 (m6i: 2026-01-19), us-east-1.
KARPENTER_TEXT = """
c5.12xlarge 2.04 c5.24xlarge 4.08 c5.2xlarge 0.34 c5.4xlarge 0.68 c5.large 0.085 c5.xlarge 0.17
c6i.12xlarge 2.04 c6i.16xlarge 2.72 c6i.24xlarge 4.08 c6i.2xlarge 0.34 c6i.4xlarge 0.68 c6i.8xlarge 1.36 c6i.large 0.085
c7i.12xlarge 2.142 c7i.16xlarge 2.856 c7i.24xlarge 4.284 c7i.2xlarge 0.357 c7i.4xlarge 0.714 c7i.8xlarge 1.428
c7i.large 0.08925 c7i.xlarge 0.1785
m5.12xlarge 2.304 m5.16xlarge 3.072 m5.24xlarge 4.608 m5.2xlarge 0.384 m5.4xlarge 0.768 m5.8xlarge 1.536 m5.large 0.096
m6i.12xlarge 2.304 m6i.16xlarge 3.072 m6i.24xlarge 4.608 m6i.2xlarge 0.384 m6i.4xlarge 0.768 m6i.8xlarge 1.536
m7i.12xlarge 2.4192 m7i.16xlarge 3.2256 m7i.24xlarge 4.8384 m7i.2xlarge 0.4032 m7i.4xlarge 0.8064 m7i.8xlarge 1.6128
m7i.large 0.1008 m7i.xlarge 0.2016
r6i.12xlarge 3.024 r6i.16xlarge 4.032 r6i.24xlarge 6.048 r6i.2xlarge 0.504 r6i.4xlarge 1.008 r6i.8xlarge 2.016 r6i.large 0.126
r7i.12xlarge 3.1752 r7i.16xlarge 4.2336 r7i.24xlarge 6.3504 r7i.2xlarge 0.5292 r7i.4xlarge 1.0584 r7i.8xlarge 2.1168
r7i.large 0.1323 r7i.xlarge 0.2646
p4d.24xlarge 21.957642 p4de.24xlarge 27.44705 p5.48xlarge 55.04 p5.4xlarge 6.88 p5en.48xlarge 63.296
p6-b200.48xlarge 113.9328 g6.xlarge 0.8048 g5.48xlarge 16.288 g6e.48xlarge 30.13118
"""
KARPENTER = KARPENTER_TEXT.split()


@pytest.mark.parametrize(("name", "usd"), list(zip(KARPENTER[::2], KARPENTER[1::2], strict=True)))
def test_us_east_1_agrees_with_the_generated_list(name: str, usd: str) -> None:
    assert data_prices("us-east-1")[f"instance:{name}"].usd == pytest.approx(float(usd), abs=1e-9)


# Other sizes and regions of skypilot-catalog catalogs/v9/aws/vms.csv: the families' rates hold there too.
@pytest.mark.parametrize(
    ("region", "name", "usd"),
    [
        ("eu-north-1", "c6i.24xlarge", 4.368),
        ("eu-west-1", "c6i.2xlarge", 0.3648),
        ("ap-northeast-1", "c6i.16xlarge", 3.424),
        ("eu-central-1", "m5.8xlarge", 1.84),
        ("ap-south-1", "m5.large", 0.101),
        ("us-west-2", "m5.4xlarge", 0.768),
        ("eu-north-1", "p5.48xlarge", 58.8928),
        ("ap-northeast-2", "p5en.48xlarge", 87.34848),
        ("us-west-2", "p6-b300.48xlarge", 142.416),
    ],
)
def test_other_regions_agree_with_the_catalog(region: str, name: str, usd: float) -> None:
    assert data_prices(region)[f"instance:{name}"].usd == pytest.approx(usd, abs=1e-9)


def test_a_region_without_data_has_only_what_costs_the_same_everywhere() -> None:
    assert set(data_prices("il-central-1")) == {"ipv4:hour", "prometheus:sample", "grafana:editor", "grafana:viewer"}


def test_a_newer_table_replaces_an_older_one() -> None:
    assert data_prices("us-east-1")["instance:c6i.large"].date == "2026-07-09"


@pytest.mark.parametrize(
    ("quantity", "usd"),
    [(0, 0), (40e6, 0), (50e6, 0.9), (2e9, 176.4), (3e9, 211.4)],
)
def test_tiers_add_up(quantity: float, usd: float) -> None:
    assert data_prices("us-east-1")["prometheus:sample"].of(quantity) == pytest.approx(usd)


def test_a_price_says_where_it_is_from() -> None:
    assert Price("a", "USD per hour", ((0.0, 1.0),), "data file", "2026-07-09").label == "data file 2026-07-09"
    assert Price("a", "USD per hour", ((0.0, 1.0),), "price list", "2026-11-27").label == "price list"


def test_loading_is_quick_and_brings_no_heavy_module() -> None:
    """`slipway check` may come to import this package; then it has to stay as quick as it is."""
    program = (
        "import sys, time; import slipway.settings; began = time.process_time(); import slipway.cost.command;"
        "from slipway.cost import data_prices; data_prices('us-east-1');"
        "print(time.process_time() - began, *(name for name in ('boto3', 'rich', 'jsonschema') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    seconds, *heavy = done.stdout.split()
    assert heavy == []
    assert float(seconds) < 0.2
