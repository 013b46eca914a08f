"""What is between a user and AWS and answers instead of it: nothing hangs, nothing is a traceback, nothing is good."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slipway.aws import calls
from slipway.aws.session import session_of
from slipway.cost.command import cost
from slipway.errors import EXIT_ENVIRONMENT, EnvironmentFault, UsageError
from slipway.exchange.create import live_reservations
from slipway.exchange.export import export_env
from slipway.preflight.command import preflight

SETTINGS = Path(__file__).parents[2] / "clusters/p5-capacity-block.yaml"
Proxy = Callable[[int, bytes, bool], list[str]]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Answers every request with a status and a body; ``drip``: a byte each tenth of a second, without an end.

    Returns the list of the requests, which grows: the service, the path, the operation and its parameters.
    """
    servers = []

    def serve(status: int, body: bytes, drip: bool = False) -> list[str]:
        requests: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service = self.headers.get("Authorization", "").split(",")[0]
                requests.append(f"{service} {self.path} {self.headers.get('X-Amz-Target')} {asked!r}")
                self.send_response(status)
                self.send_header("Content-Length", "100000" if drip else str(len(body)))
                self.end_headers()
                while drip:
                    self.wfile.write(b"x")
                    time.sleep(0.1)
                self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST

            def log_message(self, *_: object) -> None:
                """Quiet."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "rehearsal")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "rehearsal")
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        return requests

    yield serve
    for server in servers:
        server.shutdown()


def test_a_proxys_refusal_is_told_and_ends_at_once(proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    """An HTML page with status 403 has no error of AWS's in it; nothing is asked a second time."""
    requests = proxy(403, b"<html>Forbidden</html>", False)
    assert preflight(SETTINGS) == EXIT_ENVIRONMENT
    assert [one for one in requests if requests.count(one) > 1] == []
    assert cost(SETTINGS, live=True, as_json=True, hours=None) in (0, 1)
    with pytest.raises(EnvironmentFault, match=r"HTTP 403 without a reason of AWS's \(a proxy in between\?\)"):
        export_env(SETTINGS, deployed=True)
    assert "Traceback" not in capsys.readouterr().err


PAGE = (
    "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n"
    "<hr><center>nginx</center>\r\n</body></html>\n"
)
PAGES = [
    # code and message as botocore makes them of the answer, status, content type; what is reported
    (
        "502",
        PAGE,
        502,
        "",
        "HTTP 502 without a reason of AWS's (a proxy in between?): '502 Bad Gateway nginx'; look at",
    ),
    ("503", "Service Unavailable", 503, "", "HTTP 503 without a reason of AWS's (a proxy in between?): 'Service Unav"),
    (
        "500",
        "",
        500,
        "",
        "HTTP 500 without a reason of AWS's (a proxy in between?); look at HTTPS_PROXY, or run it again",
    ),
    ("403", PAGE, 403, "", "HTTP 403 without a reason of AWS's"),
    ("403", "Forbidden", 403, "text/html", "HTTP 403 without a reason of AWS's"),
    ("403", "Forbidden", 403, "application/xml", "s3:ListBucket is not allowed"),  # a HEAD request has no other code
    ("404", "Not Found", 404, "", "Not Found (404)"),
    ("404", "Not Found", 404, "of AWS", "Not Found (404)"),
    ("InternalError", "try\nagain", 500, "", "try again (InternalError)"),
]


@pytest.mark.parametrize(("code", "message", "status", "kind", "reported"), PAGES)
def test_a_page_instead_of_aws_is_one_line(code: str, message: str, status: int, kind: str, reported: str) -> None:
    metadata: Any = {"HTTPStatusCode": status, "HTTPHeaders": {"content-type": kind}}
    if kind == "of AWS":
        metadata["HTTPHeaders"] = {"content-type": "text/html", "x-amz-request-id": "4442587FB7D0A2F9"}
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}
    text = str(calls.explained(ClientError(answer, "HeadBucket"), "s3:HeadBucket", "us-east-1"))
    assert reported in text
    assert "\n" not in text
    assert "<" not in text


@pytest.mark.parametrize("page", [PAGE, PAGE.replace("<html>", "<!DOCTYPE html>\n<html>")], ids=["html", "doctype"])
def test_every_protocol_reports_a_page_on_one_line(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """A query protocol with XML (EC2), JSON (FSx), and S3: botocore reads the page in three ways."""
    proxy(502, page.encode(), False)
    monkeypatch.setattr(calls, "ATTEMPTS", 1)
    aws = calls.Aws(session_of(None, "us-east-1"), "us-east-1")
    asked = [("ec2", "describe_vpcs"), ("fsx", "describe_file_systems"), ("s3", "list_buckets")]
    for service, operation in asked:
        with pytest.raises(calls.Unasked) as caught:
            aws.act(service, operation)
        text = str(caught.value)
        assert text.startswith(f"{service}:")
        assert "(a proxy in between?)" in text
        assert "run it again in a minute" in text
        assert "\n" not in text


def test_a_log_in_page_is_no_good_account(proxy: Proxy) -> None:
    """Status 200 for everything: a bucket seems to be there, and nobody knows who asked."""
    proxy(200, b"<html>Welcome, please log in</html>", False)
    assert preflight(SETTINGS) == EXIT_ENVIRONMENT


def test_reasons_are_one_short_line(proxy: Proxy) -> None:
    proxy(200, b"<html>\n" + b"long " * 2000, False)
    with pytest.raises(EnvironmentFault) as caught:
        export_env(SETTINGS, deployed=True)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2 * calls.LONGEST_REASON


def test_a_byte_now_and_then_is_not_waited_for(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte starts the time-out of a read anew; the whole call has a bound of its own."""
    monkeypatch.setattr(calls, "CALL_TIMEOUT_S", 1)
    proxy(200, b"", True)
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match="did not answer within 1 s"):
        export_env(SETTINGS, deployed=True)
    assert cost(SETTINGS, live=True, as_json=True, hours=None) in (0, 1)
    assert time.monotonic() - began < 120  # the whole body would take hours


def test_an_unknown_profile_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UsageError, match="AWS_PROFILE nobody: there is no such profile"):
        preflight(SETTINGS)
    with pytest.raises(UsageError, match="AWS_PROFILE nobody: there is no such profile"):
        export_env(SETTINGS, deployed=True)
    with pytest.raises(LookupError, match="the AWS configuration cannot be used"):
        live_reservations("us-east-1")
