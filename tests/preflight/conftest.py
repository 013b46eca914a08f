"""One embedded AWS for each module, a fresh account for each test, and a way to ask one question of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.session
import pytest
from preflight_cases import NOW, REGION, Case, settings_of

from rehearsal.cloud.seed import Seed
from slipway.aws.calls import ACTIONS, Aws
from slipway.preflight.asking import run_questions
from slipway.preflight.model import Answer
from slipway.preflight.questions import QUESTIONS
from tests.aws.preflight_aws import PreflightAws


@pytest.fixture(scope="session")
def botocore_session() -> Any:
    """One for all: it keeps the service models it has read."""
    return botocore.session.get_session()


@pytest.fixture(scope="session")
def boto_session(botocore_session: Any) -> boto3.Session:
    """One for all, too: boto3 adds its methods to the clients of a botocore session once, and fails the second time."""
    return boto3.Session(botocore_session=botocore_session)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreflightAws]:
    with PreflightAws(REGION, tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture
def account(cloud: PreflightAws, monkeypatch: pytest.MonkeyPatch) -> PreflightAws:
    """A healthy account as the rehearsal's seed makes it, and an environment that leads boto3 there."""
    cloud.reset()
    cloud.seed(Seed())
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**cloud.env(), "AWS_ENDPOINT_URL": cloud.address_endpoint}.items():
        monkeypatch.setenv(name, value)
    return cloud


@pytest.fixture
def aws(account: PreflightAws, boto_session: Any) -> Aws:
    """The account as the questions see it, at the moment that counts as now."""
    return Aws(boto_session, REGION, lambda: NOW)


class RecordingAws(Aws):
    """Notes the IAM action of every call that reached AWS."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actions: set[str] = set()

    def _note(self, seconds: float, name: str) -> None:
        super()._note(seconds, name)
        self.actions.add(ACTIONS.get(name, name))


@pytest.fixture
def ask(account: PreflightAws, boto_session: Any) -> Callable[[Case], tuple[Answer, ...]]:
    """Arrange a case in the account and ask its question; every answer it gives."""

    def run(case: Case) -> tuple[Answer, ...]:
        case.arrange(account)
        clock = case.now
        aws = RecordingAws(boto_session, case.region, clock)
        question = next(question for question in QUESTIONS if question.name == case.question)
        results = run_questions([question], settings_of(case.settings), aws)
        assert aws.actions <= set(question.permissions), "asks what it does not declare"
        return results[0].answers if results else ()

    return run


@pytest.fixture
def unused() -> Iterator[int]:
    """A port that is bound and does not listen: every connection is refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
