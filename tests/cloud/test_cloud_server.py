"""The server as such: its port, its environment, one at a time, its log."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.parsers import ResponseParserError
from moto.sns.responses import SNSResponse

from rehearsal.cloud.seed import Seed
from rehearsal.cloud.server import Address, EmbeddedAws
from rehearsal.cloud.stack_api import bucket_and_key
from rehearsal.cloud.verify import find_tracebacks
from rehearsal.cloud_errors import CloudError


def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CloudError, match=f"127.0.0.1:{port}: cannot listen"):
            EmbeddedAws("us-east-1", tmp_path, address=Address(port=port)).start()


def test_one_at_a_time_and_each_starts_empty(tmp_path: Path) -> None:
    with EmbeddedAws("us-east-1", tmp_path / "a") as first:
        first.clients("s3").create_bucket(Bucket="left-over")
        with pytest.raises(CloudError, match="already runs"):
            EmbeddedAws("us-east-1", tmp_path / "b").start()
    with EmbeddedAws("us-east-1", tmp_path / "c") as second:
        assert second.clients("s3").list_buckets()["Buckets"] == []


def test_stop_is_safe_twice_and_frees_the_port(tmp_path: Path) -> None:
    aws = EmbeddedAws("us-east-1", tmp_path)
    aws.start()
    port = aws.port
    aws.stop()
    aws.stop()
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


def test_another_region_can_be_seeded(tmp_path: Path) -> None:
    with EmbeddedAws("eu-west-1", tmp_path) as aws:
        aws.seed(Seed(buckets=("mine",)))
        buckets = {item["Name"] for item in aws.clients("s3").list_buckets()["Buckets"]}
        assert {"mine", "eu-west-1-aws-parallelcluster", "cdk-hnb659fds-assets-123456789012-eu-west-1"} <= buckets


def test_the_environment_leads_nowhere_else(tmp_path: Path) -> None:
    with EmbeddedAws("us-east-1", tmp_path) as aws:
        environment = aws.env()
    assert environment["AWS_ENDPOINT_URL"].startswith("http://localhost:")
    assert environment["AWS_EC2_METADATA_DISABLED"] == "true"
    assert environment["AWS_CONFIG_FILE"] == environment["AWS_SHARED_CREDENTIALS_FILE"] == "/dev/null"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://s3.us-east-1.amazonaws.com/bucket/a/b.json", ("bucket", "a/b.json")),
        ("https://bucket.s3.us-east-1.amazonaws.com/a/b.json", ("bucket", "a/b.json")),
        ("http://localhost:5000/bucket/b.json", ("bucket", "b.json")),
        ("s3://bucket/a/b.json", ("bucket", "a/b.json")),
    ],
)
def test_addresses_of_templates(url: str, expected: tuple[str, str]) -> None:
    assert bucket_and_key(url) == expected


def test_a_traceback_in_the_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "cloud.log"
    log.write_text('INFO fine\nTraceback (most recent call last):\n  File "x"\nValueError: bad\nINFO fine\n')
    assert [problem.split(": ", 1)[1] for problem in find_tracebacks(log)] == [
        "the embedded AWS raised: ValueError: bad"
    ]


def test_an_exception_in_a_service_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a bug of moto")

    monkeypatch.setattr(SNSResponse, "list_topics", broken)
    with EmbeddedAws("us-east-1", tmp_path) as aws:
        assert aws.tracebacks() == []
        with pytest.raises(ResponseParserError):
            aws.clients("sns").list_topics()
        eventually(lambda: bool(aws.tracebacks()))  # the log is written after the answer
        assert aws.tracebacks()[0].endswith("ZeroDivisionError: a bug of moto")
