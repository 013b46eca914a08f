"""The live path: today's prices where AWS returns them, and a reason wherever it does not."""

from __future__ import annotations

import datetime
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cost_cases import CPU, block

from slipway.aws import calls as preflight_aws
from slipway.aws.calls import Unasked
from slipway.cost import data_prices, estimate, needed_prices
from slipway.cost.live import LiveFacts, ask, connect, product_of
from slipway.settings import Settings, load_settings
from tests.aws.pricing import Offer

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPOSITORY / "clusters").glob("*.yaml"))
Make = Callable[..., Settings]


def asked(settings: Settings) -> LiveFacts:
    return ask(settings, needed_prices(settings))


def in_the_list(settings: Settings) -> set[str]:
    return {key for key in needed_prices(settings) if product_of(key, settings.region)}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_both_ways_agree(aws: Any, file: Path) -> None:
    """The stand-in is made from the data file: what the price list tells has to come back as the same numbers."""
    settings = load_settings(file)
    answers = asked(settings)
    known = data_prices(settings.region)
    assert set(answers.prices) | set(answers.why_not) == in_the_list(settings)
    assert dict.fromkeys(answers.why_not, "the price list has no such price") == answers.why_not
    assert all(key not in known for key in answers.why_not)
    for key, price in answers.prices.items():
        assert (price.source, price.date) == ("price list", "2026-11-27")
        assert price.unit == known[key].unit
        assert price.tiers == known[key].tiers
    assert any(key.startswith("instance:") for key in answers.prices)


@pytest.mark.parametrize(
    "key", sorted(key for key in data_prices("us-west-2") if not key.startswith("capacity-block:"))
)
def test_every_key_of_the_data_file_is_found_in_the_price_list(key: str) -> None:
    """Without a server: the product's filters and its test pick one of the stand-in's offers, and the right one."""
    from tests.aws.pricing import offers_of

    product = product_of(key, "us-west-2")
    assert product is not None
    found = [
        offer
        for offer in offers_of("us-west-2")
        if offer.service == product.service
        and all(offer.field(name) == value for name, value in product.filters)
        and product.is_it(offer.attributes)
    ]
    assert {tuple(offer.tiers) for offer in found} == {data_prices("us-west-2")[key].tiers}


def test_capacity_blocks_are_not_asked_for() -> None:
    assert product_of("capacity-block:p5.48xlarge", "us-east-1") is None


def test_a_new_price_replaces_the_data_file_s(aws: Any, settings_of: Make) -> None:
    settings = settings_of(CPU)
    shape = {
        "regionCode": "us-east-1",
        "instanceType": "c6i.8xlarge",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "usagetype": "BoxUsage:c6i.8xlarge",
    }
    aws.price_list.plant(Offer("AmazonEC2", shape, ((0, 9.99),), "Hrs", "Compute Instance"), instead=True)
    answers = asked(settings)
    assert answers.prices["instance:c6i.8xlarge"].usd == 9.99
    result = estimate(settings, {**data_prices("us-east-1"), **answers.prices})
    queue = next(part for part in result.parts if part.name == "queue cpu")
    assert queue.usd_per_hour is not None
    assert queue.usd_per_hour.high == pytest.approx(9.99)


def test_a_price_list_with_one_region_more_than_the_data_file(aws: Any, settings_of: Make) -> None:
    settings = settings_of(CPU, **{"us-east-1": "il-central-1"})
    shape = {"regionCode": "il-central-1", "volumeApiName": "gp3", "usagetype": "ILC1-EBS:VolumeUsage.gp3"}
    aws.price_list.plant(Offer("AmazonEC2", shape, ((0, 0.0968),), "GB-Mo", "Storage"))
    answers = asked(settings)
    assert answers.prices["ebs:gp3"].usd == 0.0968
    assert answers.why_not["instance:c6i.8xlarge"] == "the price list has no such price"


def test_several_prices_are_no_price(aws: Any, settings_of: Make) -> None:
    shape = {"regionCode": "us-east-1", "volumeApiName": "gp3", "usagetype": "USE1-EBS:VolumeUsage.gp3"}
    aws.price_list.plant(Offer("AmazonEC2", shape, ((0, 0.5),), "GB-Mo", "Storage"))
    assert asked(settings_of(CPU)).why_not["ebs:gp3"] == "the price list has several such prices"


# ---- why there is no answer ----


def answer_with(status: str, body: bytes) -> Callable[..., Iterable[bytes] | None]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        if "AWSPriceListService" not in environ.get("HTTP_X_AMZ_TARGET", ""):
            return None
        start_response(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
        return [body]

    return answer


def error(code: str) -> Callable[..., Iterable[bytes] | None]:
    return answer_with("400 Bad Request", json.dumps({"__type": code, "message": "no"}).encode())


def price_list(*items: Any) -> Callable[..., Iterable[bytes] | None]:
    return answer_with("200 OK", json.dumps({"FormatVersion": "aws_v1", "PriceList": items}).encode())


def offer_text(**replaced: Any) -> str:
    """A product that every query takes for its own, with parts of its term replaced."""
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": "1.0"}, **replaced}
    attributes = {"usagetype": "EBS:VolumeUsage.gp3", "volumeApiName": "gp3", "regionCode": "us-east-1"}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": dimension}, "effectiveDate": "2026-11-01T00:00:00Z"}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


NOT_UNDERSTOOD = "the answer was not understood"
NOT_FOUND = "the price list has no such price"
REFUSALS = [
    ("denied", error("AccessDeniedException"), "pricing:GetProducts is not allowed"),
    ("expired", error("ExpiredTokenException"), "the credentials are not accepted: no (ExpiredTokenException)"),
    ("throttled", error("InvalidParameterException"), "AWS answered: no (InvalidParameterException)"),
    ("empty list", price_list(), NOT_FOUND),
    ("garbage", price_list("{"), NOT_UNDERSTOOD),
    ("a number", price_list("7"), NOT_UNDERSTOOD),
    ("not even text", price_list({"product": {}}), NOT_UNDERSTOOD),
    ("no product", price_list("{}"), NOT_UNDERSTOOD),
    ("deep", price_list("[" * 100_000), NOT_UNDERSTOOD),
    ("no term", price_list(json.dumps({**json.loads(offer_text()), "terms": {"OnDemand": {}}})), NOT_UNDERSTOOD),
    ("another currency", price_list(offer_text(pricePerUnit={"CNY": "1.0"})), NOT_UNDERSTOOD),
    ("no number", price_list(offer_text(pricePerUnit={"USD": "one"})), NOT_UNDERSTOOD),
    ("infinite", price_list(offer_text(pricePerUnit={"USD": "1e999"})), NOT_UNDERSTOOD),
    ("negative", price_list(offer_text(pricePerUnit={"USD": "-1"})), NOT_UNDERSTOOD),
    ("a tier that begins later", price_list(offer_text(beginRange="10")), NOT_UNDERSTOOD),
    ("nothing", price_list(offer_text(pricePerUnit={"USD": "0.0"})), NOT_FOUND),
]


@pytest.mark.parametrize(("handler", "why"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_no_answer_says_why_and_the_data_file_stands_in(aws: Any, settings_of: Make, handler: Any, why: str) -> None:
    aws.before = [handler]
    settings = settings_of(CPU)
    answers = asked(settings)
    assert answers.prices == {}
    assert set(answers.why_not) == in_the_list(settings)
    assert answers.why_not["ebs:gp3"] == why
    assert estimate(settings, data_prices(settings.region)).unknown == ()


def test_a_good_answer_is_not_lost_among_bad_ones(aws: Any, settings_of: Make) -> None:
    def denied(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if b"AmazonFSx" in body:
            return error("AccessDeniedException")(environ, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        return None

    aws.before = [denied]
    answers = asked(settings_of(CPU))
    assert answers.why_not == {"fsx:persistent-2:250": "pricing:GetProducts is not allowed"}
    assert answers.prices["instance:c6i.8xlarge"].usd == pytest.approx(1.36)


def test_silence_ends_in_time(aws: Any, settings_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = threading.Event()

    def silent(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        quiet.wait(120)
        return error("TooLate")(environ, start_response)

    aws.before = [silent]
    monkeypatch.setattr(preflight_aws, "READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr(preflight_aws, "ATTEMPTS", 1)
    began = time.monotonic()
    answers = asked(settings_of(CPU))
    quiet.set()
    assert time.monotonic() - began < 60
    assert answers.why_not["ebs:gp3"] == "pricing:GetProducts did not answer in time"


def test_all_questions_are_asked_at_once(aws: Any, settings_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is answered before the last one has come."""
    settings = settings_of(CPU, "")
    assert len(asked(settings).prices) >= 7
    all_have_come = threading.Barrier(len(aws.requests), timeout=60)

    def wait(environ: dict[str, Any], start_response: Callable[..., Any]) -> None:
        all_have_come.wait()

    monkeypatch.setattr(preflight_aws, "READ_TIMEOUT_S", 90)
    monkeypatch.setattr(preflight_aws, "CALL_TIMEOUT_S", 90)
    aws.before = [wait]
    assert len(asked(settings).prices) >= 7
    assert not all_have_come.broken


def test_nobody_there(no_credentials: None, settings_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setattr(preflight_aws, "ATTEMPTS", 1)
        answers = asked(settings_of(block()))
    assert answers.why_not["ebs:gp3"] == "pricing:GetProducts cannot be reached in us-east-1"
    assert set(answers.why_not_reserved) == {"cr-0123456789abcdef1"}


def test_without_credentials(no_credentials: None, settings_of: Make) -> None:
    settings = settings_of(block())
    answers = asked(settings)
    assert set(answers.why_not.values()) == {"no AWS credentials were found"}
    assert set(answers.why_not) == in_the_list(settings)
    assert answers.why_not_reserved == {"cr-0123456789abcdef1": "no AWS credentials were found"}


@pytest.fixture
def silent_metadata_service(no_credentials: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An instance metadata service that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "30")  # what a site may have set for its instances
        monkeypatch.setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "5")
        yield


def test_without_credentials_the_metadata_service_holds_nobody_up(silent_metadata_service: None) -> None:
    began = time.monotonic()
    with pytest.raises(Unasked, match="no AWS credentials were found"):
        connect("us-east-1")
    assert time.monotonic() - began < 25  # a single try of the site's takes 30 s


def test_a_profile_that_does_not_exist(no_credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(Unasked, match="nowhere"):
        connect("us-east-1")


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1"])
def test_other_partitions_are_not_asked(aws: Any, region: str) -> None:
    with pytest.raises(Unasked, match=f"the price list of {region}'s partition is not asked"):
        connect(region)


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("us-west-2", "us-east-1"),
        ("eu-north-1", "eu-central-1"),
        ("ap-northeast-1", "ap-south-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_the_price_list_s_own_regions_are_used(
    aws: Any, settings_of: Make, monkeypatch: pytest.MonkeyPatch, region: str, endpoint: str
) -> None:
    made = []
    original = preflight_aws.Aws._make
    monkeypatch.setattr(preflight_aws.Aws, "_make", lambda self, *where: made.append(where) or original(self, *where))
    asked(settings_of(CPU, **{"us-east-1": region}))
    assert made == [("pricing", endpoint)]


# ---- reservations ----

START = datetime.datetime(2026, 12, 1, 11, 30, tzinfo=datetime.UTC)


def test_a_block_s_size_and_duration_are_asked(aws: Any, settings_of: Make) -> None:
    aws.reservations["cr-0123456789abcdef1"] = (6, START, START + datetime.timedelta(days=14))
    answers = asked(settings_of(block()))
    assert answers.reserved["cr-0123456789abcdef1"].total == 6
    assert answers.reserved["cr-0123456789abcdef1"].hours == 336
    assert answers.why_not_reserved == {}


def test_an_unknown_reservation_hides_no_other(aws: Any, settings_of: Make) -> None:
    aws.reservations["cr-0123456789abcdef2"] = (4, START, None)
    answers = asked(settings_of(block(1) + block(2)))
    assert answers.reserved["cr-0123456789abcdef2"].hours is None
    (why,) = answers.why_not_reserved.items()
    assert why[0] == "cr-0123456789abcdef1"
    assert "does not exist" in why[1]
