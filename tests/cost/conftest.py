"""Settings to price, and a small AWS for one test: the Price List API and one action of EC2."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cost_cases import Handler, write
from werkzeug.serving import make_server

from slipway.settings import Settings, load_settings
from tests.aws.pricing import PriceList

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[..., Settings]:
    """Settings from the lines of their queues and whatever else; `edit` are replacements in the whole text."""

    def make(queues: str, more: str = "", **edit: str) -> Settings:
        return load_settings(write(tmp_path, queues, more, **edit))

    return make


class SmallAws:
    """Answers pricing with `price_list`, unless one of `before` does; and EC2's DescribeCapacityReservations."""

    def __init__(self) -> None:
        self.price_list = PriceList()
        self.before: list[Handler] = []
        self.reservations: dict[str, tuple[int, datetime.datetime, datetime.datetime | None]] = {}
        self.requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.requests.append(environ.get("HTTP_X_AMZ_TARGET", environ["PATH_INFO"]))
        for handler in (*self.before, self.price_list.answer):
            answer = handler(environ, start_response)
            if answer is not None:
                return answer
        return self._ec2(environ, start_response)

    def _ec2(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
        wanted = parse_qs(body).get("CapacityReservationId.1", [""])[0]
        if wanted not in self.reservations:
            return _error(
                start_response,
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation '{wanted}' does not exist",
            )
        count, start, end = self.reservations[wanted]
        ends = f"<endDate>{end:%Y-%m-%dT%H:%M:%S.000Z}</endDate>" if end else ""
        text = (
            '<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><capacityReservationSet>'
            f"<item><capacityReservationId>{wanted}</capacityReservationId><totalInstanceCount>{count}</totalInstanceCount>"
            f"<startDate>{start:%Y-%m-%dT%H:%M:%S.000Z}</startDate>{ends}<state>active</state></item>"
            "</capacityReservationSet></DescribeCapacityReservationsResponse>"
        )
        start_response("200 OK", [("Content-Type", "text/xml")])
        return [text.encode()]


def _error(start_response: Callable[..., Any], code: str, message: str) -> Iterable[bytes]:
    start_response("400 Bad Request", [("Content-Type", "text/xml")])
    return [
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>".encode()
    ]


def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's AWS configuration counts."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    no_environment(monkeypatch)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallAws]:
    """A small AWS that boto3 finds by AWS_ENDPOINT_URL, with credentials that it takes."""
    application = SmallAws()
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    no_environment(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield application
    server.shutdown()
    server.server_close()
    thread.join(5)
