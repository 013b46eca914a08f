"""The Price List API, which moto has not: GetProducts, DescribeServices and GetAttributeValues.

Its products are made from Slipway's dated data file, so that a rehearsal and the fallback have the same prices; a test
adds others. Next to each product that is asked for are those that are easily mistaken for it, as on AWS: the capacity
block at nothing an hour, the regional NAT gateway, the idle address.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.cost import Price, data_prices

TARGET = "AWSPriceListService."
FORMAT_VERSION = "aws_v1"
MAX_RESULTS = 100  # the API's own limit and default
PUBLICATION_DATE = "2026-11-27T00:00:00Z"
_BODY_LIMIT_BYTES = 1 << 20
# How usage types begin in a region; us-east-1's older services have no such beginning.
_PREFIXES = {
    "us-east-1": "USE1", "us-east-2": "USE2", "us-west-1": "USW1", "us-west-2": "USW2", "ca-central-1": "CAN1",
    "eu-north-1": "EUN1", "eu-west-1": "EU", "eu-west-2": "EUW2", "eu-central-1": "EUC1", "sa-east-1": "SAE1",
    "ap-northeast-1": "APN1", "ap-northeast-2": "APN2", "ap-south-1": "APS3", "ap-southeast-1": "APS1",
    "ap-southeast-2": "APS2",
}  # fmt: skip

Tiers = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Offer:
    """One product with its on-demand price. `tiers` are (from, USD), `unit` is the API's (Hrs, GB-Mo)."""

    service: str
    attributes: Mapping[str, str]
    tiers: Tiers
    unit: str
    family: str | None = None

    @property
    def sku(self) -> str:
        """Sixteen letters and digits that stay the same for the same product."""
        text = json.dumps([self.service, sorted(self.attributes.items())])
        return f"{zlib.crc32(text.encode()):08X}{zlib.adler32(text.encode()):08X}"

    def field(self, name: str) -> str | None:
        """What a filter compares."""
        return {"ServiceCode": self.service, "productFamily": self.family}.get(name, self.attributes.get(name))

    def document(self) -> str:
        """The item of PriceList: JSON as text."""
        term = f"{self.sku}.JRTCKXETXF"  # the code of every on-demand term
        ends = [_bound(begin) for begin, _ in self.tiers[1:]] + ["Inf"]
        dimensions = {
            f"{term}.{number}": {
                "unit": self.unit,
                "beginRange": _bound(begin),
                "endRange": end,
                "description": f"${usd:g} per {self.unit}",
                "appliesTo": [],
                "rateCode": f"{term}.{number}",
                "pricePerUnit": {"USD": f"{usd:.10f}"},
            }
            for number, ((begin, usd), end) in enumerate(zip(self.tiers, ends, strict=True))
        }
        product: dict[str, Any] = {"attributes": dict(self.attributes), "sku": self.sku}
        if self.family:
            product["productFamily"] = self.family
        on_demand = {
            term: {
                "priceDimensions": dimensions,
                "sku": self.sku,
                "effectiveDate": PUBLICATION_DATE,
                "offerTermCode": "JRTCKXETXF",
                "termAttributes": {},
            }
        }
        return json.dumps(
            {
                "product": product,
                "serviceCode": self.service,
                "terms": {"OnDemand": on_demand},
                "version": "20261127000000",
                "publicationDate": PUBLICATION_DATE,
            }
        )


def _bound(quantity: float) -> str:
    """A tier's end, without an exponent."""
    return f"{quantity:.10f}".rstrip("0").rstrip(".")


def offers_of(region: str) -> list[Offer]:
    """What the data file knows of a region, in the form of the price list, with the look-alikes."""
    return [offer for key, price in data_prices(region).items() for offer in _offers(key, price, region)]


def _offers(key: str, price: Price, region: str) -> Iterator[Offer]:
    kind, _, rest = key.partition(":")
    make = _MAKERS.get(kind)
    if make:
        yield from make(rest, price.tiers, region)


def _place(region: str, usage: str, *, bare_in_us_east_1: bool = False, **more: str) -> dict[str, str]:
    bare = bare_in_us_east_1 and region == "us-east-1"
    prefix = "" if bare else f"{_PREFIXES.get(region, region.upper())}-"
    return {"regionCode": region, "locationType": "AWS Region", "usagetype": prefix + usage, **more}


def _instance(name: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    shape = {
        "instanceType": name,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
    }
    place = _place(region, f"BoxUsage:{name}", bare_in_us_east_1=True)
    yield Offer("AmazonEC2", {**place, **shape, "marketoption": "OnDemand"}, tiers, "Hrs", "Compute Instance")
    block = _place(region, f"CapacityBlock:{name}", bare_in_us_east_1=True)
    yield Offer("AmazonEC2", {**block, **shape, "marketoption": "CapacityBlock"}, ((0, 0),), "Hrs", "Compute Instance")


def _volume(name: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    place = _place(region, f"EBS:VolumeUsage.{name}", bare_in_us_east_1=True, volumeApiName=name)
    yield Offer("AmazonEC2", place, tiers, "GB-Mo", "Storage")


def _nat(what: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    usage, unit = {"hour": ("Hours", "Hrs"), "gb": ("Bytes", "GB")}[what]
    for kind in ("NatGateway", "RegionalNatGateway"):
        place = _place(region, f"{kind}-{usage}", bare_in_us_east_1=True, group=f"NGW:{kind}", operation=kind)
        yield Offer("AmazonEC2", place, tiers, unit, "NAT Gateway")


def _address(_: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    for usage in ("PublicIPv4:InUseAddress", "PublicIPv4:IdleAddress"):
        yield Offer("AmazonVPC", _place(region, usage, group="VPCPublicIPv4Address"), tiers, "Hrs")


def _lustre(rest: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    deployment, _, throughput = rest.partition(":")
    if deployment == "scratch-1":
        return  # the same product as scratch-2
    shape = {"fileSystemType": "Lustre", "operation": "CreateFileSystem:Lustre", "deploymentOption": "Single-AZ"}
    for storage in ("SSD", "HDD"):
        usage = f"Storage.{storage}.{throughput}" if throughput else "Storage"
        place = _place(region, usage, storageType=storage, throughputCapacity=throughput or "N/A")
        yield Offer("AmazonFSx", {**place, **shape}, tiers if storage == "SSD" else ((0, 0.025),), "GB-Mo", "Storage")


def _samples(_: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    yield Offer("AmazonPrometheus", _place(region, "AMP:MetricSampleCount"), tiers, "Metric Datapoints")
    yield Offer("AmazonPrometheus", _place(region, "AMP:MetricStorageByteHrs"), ((0, 0.03),), "GB-Mo")


def _user(kind: str, tiers: Tiers, region: str) -> Iterator[Offer]:
    place = _place(region, f"Grafana:{kind.capitalize()}User")
    yield Offer("AmazonGrafana", place, tiers, "users", "User Fees")


_MAKERS: Mapping[str, Callable[[str, Tiers, str], Iterator[Offer]]] = {
    "instance": _instance,
    "ebs": _volume,
    "nat": _nat,
    "ipv4": _address,
    "fsx": _lustre,
    "prometheus": _samples,
    "grafana": _user,
}


class _ApiError(Exception):
    """An answer of the API that is an error: its code and its message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class PriceList:
    """Answers the Price List API. `plant` adds products for a region, in addition to the data file's or in place of them."""

    def __init__(self) -> None:
        self._planted: list[Offer] = []
        self._without_data_file = False
        self._lock = threading.Lock()

    def plant(self, *offers: Offer, instead: bool = False) -> None:
        """Add products; ``instead`` leaves the data file's out from now on."""
        with self._lock:
            self._planted += offers
            self._without_data_file = self._without_data_file or instead

    def clear(self) -> None:
        """Back to the data file's products."""
        with self._lock:
            self._planted = []
            self._without_data_file = False

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """Answer a request to the Price List API; None for any other."""
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if not target.startswith(TARGET):
            return None
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(min(length, _BODY_LIMIT_BYTES)) if length else b""
        status, told = self._respond(target.removeprefix(TARGET), body)
        text = json.dumps(told).encode()
        headers = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))]
        start_response(status, headers)
        return [text]

    def _respond(self, operation: str, body: bytes) -> tuple[str, dict[str, Any]]:
        operations = {
            "GetProducts": self._get_products,
            "DescribeServices": self._describe_services,
            "GetAttributeValues": self._get_attribute_values,
        }
        try:
            if operation not in operations:
                raise _ApiError("UnknownOperationException", f"the rehearsal's price list has no {operation}")
            return "200 OK", operations[operation](_request(body))
        except _ApiError as error:
            return "400 Bad Request", {"__type": error.code, "message": error.message}

    def _get_products(self, request: dict[str, Any]) -> dict[str, Any]:
        service = request.get("ServiceCode")
        if not service:
            raise _ApiError("InvalidParameterException", "ServiceCode is required")
        filters = [_filter(one) for one in request.get("Filters", [])]
        regions = [value for field, value in filters if field == "regionCode"]
        found = [
            offer
            for offer in self._offers(regions)
            if offer.service == service and all(offer.field(field) == value for field, value in filters)
        ]
        page, token = _page([offer.document() for offer in found], request)
        return {"FormatVersion": FORMAT_VERSION, "PriceList": page, **token}

    def _describe_services(self, request: dict[str, Any]) -> dict[str, Any]:
        names: dict[str, set[str]] = {}
        for offer in self._offers([]):
            names.setdefault(offer.service, {"productFamily"}).update(offer.attributes)
        wanted = request.get("ServiceCode")
        if wanted and wanted not in names:
            raise _ApiError("NotFoundException", f"Unknown service code: {wanted}")
        services = [
            {"ServiceCode": service, "AttributeNames": sorted(names[service])}
            for service in sorted(names)
            if wanted in (None, service)
        ]
        page, token = _page(services, request)
        return {"FormatVersion": FORMAT_VERSION, "Services": page, **token}

    def _get_attribute_values(self, request: dict[str, Any]) -> dict[str, Any]:
        service, name = request.get("ServiceCode"), request.get("AttributeName", "")
        values = {offer.field(name) for offer in self._offers([]) if offer.service == service}
        if not service or not name or values <= {None}:
            raise _ApiError("NotFoundException", f"Unknown service code or attribute name: {service}, {name}")
        page, token = _page([{"Value": value} for value in sorted(filter(None, values))], request)
        return {"AttributeValues": page, **token}

    def _offers(self, regions: Sequence[str]) -> list[Offer]:
        """The planted products and the data file's, of the regions asked for, else of one."""
        with self._lock:
            planted, own = list(self._planted), not self._without_data_file
        return planted + [offer for region in regions or ["us-east-1"] for offer in (offers_of(region) if own else [])]


def _request(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        raise _ApiError("SerializationException", "the request is no JSON") from None
    if not isinstance(request, dict):
        raise _ApiError("SerializationException", "the request is no JSON object")
    version = request.get("FormatVersion", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise _ApiError("InvalidParameterException", f"Invalid format version: {version}")
    return request


def _filter(one: Any) -> tuple[str, str]:
    if one.get("Type") != "TERM_MATCH":
        raise _ApiError(
            "InvalidParameterException", f"the rehearsal's price list knows TERM_MATCH, not {one.get('Type')}"
        )
    return str(one.get("Field")), str(one.get("Value"))


def _page(items: list[Any], request: dict[str, Any]) -> tuple[list[Any], dict[str, str]]:
    size = request.get("MaxResults", MAX_RESULTS)
    if not 1 <= size <= MAX_RESULTS:
        raise _ApiError("InvalidParameterException", f"MaxResults must be 1 to {MAX_RESULTS}")
    begin = _begin(request.get("NextToken"))
    end = begin + size
    token = {"NextToken": base64.b64encode(str(end).encode()).decode()} if end < len(items) else {}
    return items[begin:end], token


def _begin(token: Any) -> int:
    if not token:
        return 0
    try:
        return int(base64.b64decode(str(token), validate=True))
    except (binascii.Error, ValueError):
        message = "The pagination token is invalid. Try again without a pagination token."
        raise _ApiError("InvalidNextTokenException", message) from None
