"""The stand-in of the Price List API, asked by boto3 and by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud.capacity import add_reservation
from rehearsal.cloud.server import EmbeddedAws
from slipway.cost import data_prices
from slipway.cost.command import cost
from slipway.regions import regions
from tests.aws.pricing import Offer, PriceList, offers_of

REPOSITORY = Path(__file__).resolve().parents[2]
MATCH = {"Type": "TERM_MATCH"}


@pytest.fixture
def client(aws: Any) -> Any:
    return boto3.client("pricing", region_name="us-east-1")


def match(**fields: str) -> list[dict[str, str]]:
    return [{**MATCH, "Field": field, "Value": value} for field, value in fields.items()]


def test_a_product_has_the_api_s_shape(client: Any) -> None:
    filters = match(instanceType="p5.48xlarge", regionCode="us-west-2", marketoption="OnDemand")
    answer = client.get_products(ServiceCode="AmazonEC2", Filters=filters)
    assert answer["FormatVersion"] == "aws_v1"
    assert "NextToken" not in answer
    (text,) = answer["PriceList"]
    offer = json.loads(text)
    assert offer["serviceCode"] == "AmazonEC2"
    assert offer["product"]["productFamily"] == "Compute Instance"
    assert offer["product"]["attributes"]["usagetype"] == "USW2-BoxUsage:p5.48xlarge"
    ((code, term),) = offer["terms"]["OnDemand"].items()
    assert code.startswith(offer["product"]["sku"])
    ((_, dimension),) = term["priceDimensions"].items()
    assert (dimension["unit"], dimension["beginRange"], dimension["endRange"]) == ("Hrs", "0", "Inf")
    assert float(dimension["pricePerUnit"]["USD"]) == 55.04


def test_tiers_join_without_a_gap(client: Any) -> None:
    answer = client.get_products(ServiceCode="AmazonPrometheus", Filters=match(regionCode="us-east-1"))
    offers = [json.loads(text) for text in answer["PriceList"]]
    (samples,) = [one for one in offers if one["product"]["attributes"]["usagetype"] == "USE1-AMP:MetricSampleCount"]
    (term,) = samples["terms"]["OnDemand"].values()
    tiers = [
        (dimension["beginRange"], dimension["endRange"], float(dimension["pricePerUnit"]["USD"]))
        for dimension in term["priceDimensions"].values()
    ]
    assert tiers == [("0", "40000000", 0.0), ("40000000", "2000000000", 9e-8), ("2000000000", "Inf", 3.5e-8)]


def test_every_filter_counts(client: Any) -> None:
    def found(**fields: str) -> int:
        return len(client.get_products(ServiceCode="AmazonEC2", Filters=match(**fields))["PriceList"])

    assert found(instanceType="p5.48xlarge", regionCode="us-east-1") == 2  # on demand, and the capacity block
    assert found(instanceType="p5.48xlarge", regionCode="us-east-1", operatingSystem="Windows") == 0
    assert found(instanceType="p5.48xlarge", regionCode="il-central-1") == 0
    assert found(noSuchField="x") == 0


def test_pages_are_complete_and_do_not_overlap(client: Any) -> None:
    paginator = client.get_paginator("get_products")
    filters = match(regionCode="us-east-1")
    sizes = {"PageSize": 7}
    pages = list(paginator.paginate(ServiceCode="AmazonEC2", Filters=filters, PaginationConfig=sizes))
    texts = [text for page in pages for text in page["PriceList"]]
    assert len(pages) > 5
    assert all(len(page["PriceList"]) == 7 for page in pages[:-1])
    assert len(set(texts)) == len(texts) == len([one for one in offers_of("us-east-1") if one.service == "AmazonEC2"])


def test_a_page_holds_at_most_a_hundred(client: Any) -> None:
    answer = client.get_products(ServiceCode="AmazonEC2", Filters=match(regionCode="us-east-1"))
    assert len(answer["PriceList"]) == 100
    assert answer["NextToken"]


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"FormatVersion": "aws_v2"}, "InvalidParameterException"),
        ({"NextToken": "???"}, "InvalidNextTokenException"),
        ({"NextToken": "bm8="}, "InvalidNextTokenException"),
        ({"MaxResults": 101}, "InvalidParameterException"),
        ({"Filters": [{"Type": "CONTAINS", "Field": "a", "Value": "b"}]}, "InvalidParameterException"),
    ],
)
def test_wrong_requests_are_refused_as_the_api_does(client: Any, parameters: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.get_products(ServiceCode="AmazonEC2", **parameters)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_services_and_their_attributes(client: Any) -> None:
    services = {one["ServiceCode"]: one["AttributeNames"] for one in client.describe_services()["Services"]}
    assert set(services) == {"AmazonEC2", "AmazonFSx", "AmazonVPC", "AmazonPrometheus", "AmazonGrafana"}
    assert "throughputCapacity" in services["AmazonFSx"]
    (one,) = client.describe_services(ServiceCode="AmazonFSx")["Services"]
    assert one["ServiceCode"] == "AmazonFSx"
    with pytest.raises(ClientError, match="NotFoundException"):
        client.describe_services(ServiceCode="AmazonNothing")


def test_values_of_an_attribute(client: Any) -> None:
    values = client.get_attribute_values(ServiceCode="AmazonFSx", AttributeName="storageType")["AttributeValues"]
    assert values == [{"Value": "HDD"}, {"Value": "SSD"}]
    with pytest.raises(ClientError, match="NotFoundException"):
        client.get_attribute_values(ServiceCode="AmazonFSx", AttributeName="colour")


def test_planted_products_come_beside_or_instead(aws: Any, client: Any) -> None:
    one = Offer("AmazonVPC", {"regionCode": "us-east-1", "usagetype": "USE1-PublicIPv4:InUseAddress"}, ((0, 1),), "Hrs")

    def count() -> int:
        return len(client.get_products(ServiceCode="AmazonVPC", Filters=match(regionCode="us-east-1"))["PriceList"])

    before = count()
    aws.price_list.plant(one)
    assert count() == before + 1
    aws.price_list.plant(instead=True)
    assert count() == 1
    aws.price_list.clear()
    assert count() == before


def call(target: str, body: bytes = b"{}") -> tuple[str, Any] | None:
    statuses: list[str] = []
    environ = {"HTTP_X_AMZ_TARGET": target, "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    answer = PriceList().answer(environ, lambda status, _headers: statuses.append(status))
    return None if answer is None else (statuses[0], json.loads(b"".join(answer)))


@pytest.mark.parametrize("target", ["", "AmazonSSM.SendCommand", "awspricelistservice.GetProducts"])
def test_other_requests_are_left_to_others(target: str) -> None:
    assert call(target) is None


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("AWSPriceListService.GetProducts", b"{", "SerializationException"),
        ("AWSPriceListService.GetProducts", b"[]", "SerializationException"),
        ("AWSPriceListService.GetProducts", b"{}", "InvalidParameterException"),
        ("AWSPriceListService.GetPriceListFileUrl", b"{}", "UnknownOperationException"),
    ],
)
def test_broken_requests_are_no_traceback(target: str, body: bytes, code: str) -> None:
    answer = call(target, body)
    assert answer is not None
    assert (answer[0], answer[1]["__type"]) == ("400 Bad Request", code)


def test_the_look_alikes_are_there(client: Any) -> None:
    """What a careless query would take: the block at nothing, the regional gateway, the idle address, HDD."""
    usages = {offer.attributes["usagetype"] for offer in offers_of("us-west-2")}
    assert {
        "USW2-CapacityBlock:p5.48xlarge",
        "USW2-RegionalNatGateway-Hours",
        "USW2-PublicIPv4:IdleAddress",
        "USW2-Storage.HDD.250",
    } <= usages


def test_every_region_of_the_data_file_can_be_asked(client: Any) -> None:
    priced = {region: [key for key in data_prices(region) if key.startswith("instance:")] for region in regions()}
    asked = {region: wanted for region, wanted in priced.items() if wanted}
    assert {"us-east-1", "us-west-2", "eu-north-1"} <= set(asked)
    for region, wanted in asked.items():
        offers = [one for one in offers_of(region) if one.attributes.get("marketoption") == "OnDemand"]
        assert len(offers) == len(wanted)


class Priced(EmbeddedAws):
    """The embedded AWS with the price list before everything else."""

    price_list = PriceList()

    def _dispatch(self, environ: dict[str, Any], start_response: Any) -> Any:
        answer = self.price_list.answer(environ, start_response)
        return super()._dispatch(environ, start_response) if answer is None else answer


def test_the_whole_embedded_aws_prices_a_block(
    no_credentials: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reservation from moto's EC2, prices from here: what `slipway cost` finds in a rehearsal."""
    with Priced("us-east-1", tmp_path) as running:
        add_reservation("us-east-1", "cr-0123456789abcdef1", "p5.48xlarge", 6, "us-east-1a", "capacity-block")
        for name, value in {**running.env(), "AWS_ENDPOINT_URL": running.address_endpoint}.items():
            monkeypatch.setenv(name, value)
        code = cost(REPOSITORY / "clusters/p5-capacity-block.yaml", live=True, as_json=True, hours=None)
        answer = json.loads(capsys.readouterr().out)
        assert running.tracebacks() == []
    assert code == 0
    assert answer["price_list"]["fallbacks"] == []
    (window,) = answer["windows"]
    assert (window["hours"], window["source"]) == (336, "DescribeCapacityReservations")
    assert window["reservation_usd"] == pytest.approx(336 * 6 * 31.464)
