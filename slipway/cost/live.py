"""What AWS says: prices from the Price List API, and the reservations' size and duration from EC2. Read-only.

Every request is made at once and bounded in time (`slipway.aws.calls`); one without an answer hides no other.
What boto3 reads from the environment (profile, region's endpoint, AWS_ENDPOINT_URL) counts here as everywhere.

Source of service codes, attributes and usage types: infracost (AmazonGrafana) and public queries of AmazonEC2,
AmazonFSx, AmazonVPC and AmazonPrometheus. A product that AWS names otherwise is not found, and that is said.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.cost.model import PRICE_LIST, Price, Reserved
from slipway.regions import partition
from slipway.reservations import instance_count

if TYPE_CHECKING:
    from slipway.settings import Settings

FORMAT_VERSION = "aws_v1"
METADATA_TIMEOUT_S = 1  # the instance metadata service answers at once, or this is no instance
# The Price List API has endpoints in few regions (AWS Billing user guide); all of them know all regions.
ENDPOINT_REGIONS = {"ap": "ap-south-1", "eu": "eu-central-1", "me": "eu-central-1", "af": "eu-central-1"}
ENDPOINT_REGION = "us-east-1"

Attributes = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Product:
    """How a price is found: the service, what the API filters by, and which of the answers it is; `unit` per what."""

    service: str
    filters: tuple[tuple[str, str], ...]
    is_it: Callable[[Attributes], bool]
    unit: str


@dataclasses.dataclass
class LiveFacts:
    """What was asked and what came of it. The `why_not` tables say, by key or id, why there is no answer."""

    prices: dict[str, Price] = dataclasses.field(default_factory=dict)
    reserved: dict[str, Reserved] = dataclasses.field(default_factory=dict)
    why_not: dict[str, str] = dataclasses.field(default_factory=dict)
    why_not_reserved: dict[str, str] = dataclasses.field(default_factory=dict)


def connect(region: str, session: Any = None) -> Aws:
    """AWS in `region`, through a boto3 `session` or the default one.

    Raises Unasked without credentials, and in a partition whose price list is not in US dollars.
    """
    import boto3
    import botocore.session
    from botocore.exceptions import BotoCoreError

    if partition(region) != "aws":
        raise Unasked(f"the price list of {region}'s partition is not asked")
    if session is not None:
        return Aws(session, region)
    core = botocore.session.get_session()
    core.set_config_variable("metadata_service_timeout", METADATA_TIMEOUT_S)
    core.set_config_variable("metadata_service_num_attempts", 1)
    try:
        session = boto3.Session(botocore_session=core)
        if session.get_credentials() is None:
            raise Unasked("no AWS credentials were found")
    except BotoCoreError as error:
        raise Unasked(f"the credentials cannot be read: {error}") from None
    return Aws(session, region)


def ask(settings: Settings, keys: Iterable[str], connect_to: Callable[[str], Aws] = connect) -> LiveFacts:
    """Ask for every price of `keys` and for the settings' reservations, side by side."""
    answers, products = LiveFacts(), {key: product_of(key, settings.region) for key in keys}
    reservations = {queue.reservation.id for queue in settings.queues if queue.reservation}
    try:
        aws = connect_to(settings.region)
    except Unasked as error:
        answers.why_not = {key: error.text for key, product in products.items() if product}
        answers.why_not_reserved = dict.fromkeys(sorted(reservations), error.text)
        return answers
    prices = {key: (product, _start(aws, product)) for key, product in products.items() if product}
    windows = {
        one: aws.start("ec2", "describe_capacity_reservations", CapacityReservationIds=[one]) for one in reservations
    }
    for key, (product, pending) in prices.items():
        _collect(key, functools.partial(_price, key, product, pending), answers.prices, answers.why_not)
    for one, pending in sorted(windows.items()):
        _collect(one, functools.partial(_reserved, pending), answers.reserved, answers.why_not_reserved)
    return answers


def product_of(key: str, region: str) -> Product | None:
    """The product of `key` in `region`; None when the price list has no such price."""
    kind, _, rest = key.partition(":")
    make = PRODUCTS.get(kind)
    return make(rest, ("regionCode", region)) if make else None


def _start(aws: Aws, product: Product) -> Pending:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in product.filters]
    where = ENDPOINT_REGIONS.get(aws.region.partition("-")[0], ENDPOINT_REGION)
    return aws.start(
        "pricing",
        "get_products",
        region=where,
        ServiceCode=product.service,
        Filters=filters,
        FormatVersion=FORMAT_VERSION,
    )


def _collect(key: str, answer: Callable[[], Any], found: dict[str, Any], why_not: dict[str, str]) -> None:
    try:
        found[key] = answer()
    except Unasked as error:
        why_not[key] = error.text
    except Refused as error:
        why_not[key] = f"AWS answered: {error}"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        why_not[key] = "the answer was not understood"


def _price(key: str, product: Product, pending: Pending) -> Price:
    """The one price among the products of the answer. Raises Unasked for none or several, ValueError for garbage."""
    offers = [json.loads(text) for text in pending.result()["PriceList"]]
    offers = [offer for offer in offers if product.is_it(offer["product"]["attributes"])]
    found = {tiers: date for tiers, date in map(_on_demand, offers) if any(usd > 0 for _, usd in tiers)}
    if not found:
        raise Unasked("the price list has no such price")
    if len(found) > 1:
        raise Unasked("the price list has several such prices")
    (tiers, date) = next(iter(found.items()))
    return Price(key, product.unit, tiers, PRICE_LIST, date)


def _on_demand(offer: Any) -> tuple[tuple[tuple[float, float], ...], str]:
    """The tiers of an offer's on-demand term, and since when it holds."""
    term = next(iter(offer["terms"]["OnDemand"].values()), None) or {}
    tiers = sorted(
        (float(dimension.get("beginRange") or 0), float(dimension["pricePerUnit"]["USD"]))
        for dimension in term["priceDimensions"].values()
    )
    if not tiers or tiers[0][0] != 0 or not all(math.isfinite(usd) and usd >= 0 for _, usd in tiers):
        raise ValueError("no price, or tiers that do not begin at 0")
    return tuple(tiers), str(term.get("effectiveDate", ""))[:10]


def _reserved(pending: Pending) -> Reserved:
    shape = pending.result()["CapacityReservations"][0]
    end, start = shape.get("EndDate"), shape.get("StartDate")
    hours = (end - start).total_seconds() / 3600 if end and start else None
    return Reserved(instance_count(shape), hours)


def _usage(pattern: str) -> Callable[[Attributes], bool]:
    """Whether the usage type is `pattern`; most regions put their code and a dash before it."""
    expression = re.compile(rf"(.*-)?{pattern}")
    return lambda attributes: expression.fullmatch(attributes.get("usagetype", "")) is not None


def _instance(name: str, region: tuple[str, str]) -> Product:
    filters = {
        "instanceType": name,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    # The list holds capacity blocks as well, at nothing an hour: they are paid when they are bought.
    return Product(
        "AmazonEC2",
        (region, *filters.items()),
        lambda attributes: attributes.get("marketoption", "OnDemand") == "OnDemand",
        "USD per hour",
    )


def _volume(name: str, region: tuple[str, str]) -> Product:
    filters = (region, ("productFamily", "Storage"), ("volumeApiName", name))
    return Product("AmazonEC2", filters, _usage(rf"EBS:VolumeUsage\.{re.escape(name)}"), "USD per GiB-month")


def _nat(what: str, region: tuple[str, str]) -> Product:
    usage, unit = {"hour": ("Hours", "USD per hour"), "gb": ("Bytes", "USD per GB processed")}[what]
    return Product("AmazonEC2", (region, ("productFamily", "NAT Gateway")), _usage(f"NatGateway-{usage}"), unit)


def _address(_: str, region: tuple[str, str]) -> Product:
    return Product("AmazonVPC", (region,), _usage("PublicIPv4:InUseAddress"), "USD per address-hour")


def _lustre(rest: str, region: tuple[str, str]) -> Product:
    """`scratch-2` or `persistent-2:250`. The persistent kinds differ in throughput."""
    throughput = rest.partition(":")[2]

    def is_it(attributes: Attributes) -> bool:
        tier = re.match(r"\d+", attributes.get("throughputCapacity", ""))
        if throughput:
            return tier is not None and tier[0] == throughput
        return tier is None and _usage("Storage")(attributes)

    filters = (region, ("operation", "CreateFileSystem:Lustre"), ("storageType", "SSD"))
    return Product("AmazonFSx", filters, is_it, "USD per GiB-month")


def _samples(_: str, region: tuple[str, str]) -> Product:
    return Product("AmazonPrometheus", (region,), _usage("AMP:MetricSampleCount"), "USD per sample")


def _user(kind: str, region: tuple[str, str]) -> Product:
    return Product("AmazonGrafana", (region,), _usage(f"Grafana:{kind.capitalize()}User"), "USD per user-month")


PRODUCTS: Mapping[str, Callable[[str, tuple[str, str]], Product]] = {
    "instance": _instance,
    "ebs": _volume,
    "nat": _nat,
    "ipv4": _address,
    "fsx": _lustre,
    "prometheus": _samples,
    "grafana": _user,
}
"""What is in the price list. Capacity blocks are not: their price is on a web page, and on the invoice."""
