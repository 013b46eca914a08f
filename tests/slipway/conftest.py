"""The embedded account of the commands that ask about a deployed cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.status import head
from tests.aws.deployed_site import Site
from tests.aws.preflight_aws import PreflightAws


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    with PreflightAws("us-east-1", tmp_path / "aws") as aws:
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.address_endpoint)
        monkeypatch.setattr(head, "POLL_S", 0.02)
        made = Site(aws)
        yield made
        made.gate.set()
