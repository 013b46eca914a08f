"""How questions are asked: side by side, each call once and bounded, and none hides or holds up the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from preflight_cases import NOW, REGION, settings_of

from slipway.aws import calls as aws_module
from slipway.aws.calls import Aws, Refused, Unasked
from slipway.preflight import groups, machines, network, quota, reservation
from slipway.preflight.asking import run_questions
from slipway.preflight.model import Answer, Question, Status, ok
from slipway.settings import Settings
from tests.aws.preflight_aws import PreflightAws

EC2_SIDE = [
    question
    for module in (reservation, machines, quota, network, groups)
    for question in module.QUESTIONS
    if question.name != "reservation"
]
ZONE = next(question for question in EC2_SIDE if question.name == "zone")
OTHERS = [question for question in EC2_SIDE if question is not ZONE]
SETTINGS = settings_of({"queues": [{"name": "cpu", "instance_type": "c6i.8xlarge", "max_count": 2}]})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a time-out of three seconds, which leaves time for the other calls: eight are too long for a test."""
    monkeypatch.setattr(aws_module, "READ_TIMEOUT_S", 3)


def question(name: str, ask: Callable[[Settings, Aws], Iterator[Answer]], **more: Any) -> Question:
    return Question(name, "Is it so?", "Because.", "here", ("ec2:DescribeVpcs",), ask, **more)


def statuses(results: list[Any]) -> dict[str, set[Status]]:
    return {result.question.name: {answer.status for answer in result.answers} for result in results}


def open_texts(results: list[Any]) -> list[str]:
    return [answer.text for result in results for answer in result.answers if answer.status is Status.COULD_NOT_ASK]


def asked(aws: Aws, questions: list[Question] | None = None, **more: Any) -> list[Any]:
    return run_questions(questions or [*EC2_SIDE], SETTINGS, aws, **more)


# ---- one bad call ----


def test_a_healthy_account_answers_everything(aws: Aws) -> None:
    assert statuses(asked(aws)) == {item.name: {Status.OK} for item in EC2_SIDE if item.applies(SETTINGS)}


def test_a_hanging_call_hides_no_other(account: PreflightAws, aws: Aws, short: None) -> None:
    account.misbehave("ec2:DescribeAvailabilityZones", hang=True)
    results = asked(aws)
    assert open_texts(results) == ["ec2:DescribeAvailabilityZones did not answer in time"]
    assert all(
        statuses([result])[result.question.name] == {Status.OK} for result in results[1:] if result.question is not ZONE
    )


def test_a_denied_call_hides_no_other(account: PreflightAws, aws: Aws) -> None:
    account.misbehave("ec2:DescribeVolumes", deny=True)
    results = asked(aws)
    answers = next(result.answers for result in results if result.question.name == "node-quotas")
    assert [answer.status for answer in answers] == [Status.OK, Status.OK, Status.COULD_NOT_ASK]
    assert answers[2].text == "ec2:DescribeVolumes is not allowed"
    assert answers[2].hint == "allow ec2:DescribeVolumes, or ask an administrator"


def test_a_throttled_call_is_tried_again(account: PreflightAws, aws: Aws) -> None:
    made = account.misbehave("ec2:DescribeAvailabilityZones", throttle=True, times=1)
    assert statuses(asked(aws, [ZONE])) == {"zone": {Status.OK}}
    assert made.requests == 2


def test_a_call_that_stays_throttled_could_not_be_asked(account: PreflightAws, aws: Aws) -> None:
    made = account.misbehave("ec2:DescribeAvailabilityZones", throttle=True)
    results = asked(aws, [ZONE])
    assert open_texts(results) == ["AWS answered: Request limit exceeded. (RequestLimitExceeded)"]
    assert made.requests == aws_module.ATTEMPTS * (len(aws_module.THROTTLE_PAUSES_S) + 1)


def test_a_burst_of_throttling_is_waited_out(account: PreflightAws, aws: Aws) -> None:
    made = account.misbehave("ec2:DescribeAvailabilityZones", throttle=True, times=aws_module.ATTEMPTS + 1)
    assert statuses(asked(aws, [ZONE])) == {"zone": {Status.OK}}
    assert made.requests == aws_module.ATTEMPTS + 2


def test_a_broken_service_could_not_be_asked(account: PreflightAws, aws: Aws) -> None:
    account.misbehave("ec2:DescribeAvailabilityZones", error=(500, "InternalError", "An internal error has occurred"))
    assert open_texts(asked(aws, [ZONE])) == ["AWS answered: An internal error has occurred (InternalError)"]


# ---- one bad question ----


def test_a_question_that_raises_hides_no_other(aws: Aws) -> None:
    def broken(settings: Settings, aws: Aws) -> Iterator[Answer]:
        yield ok((), "so far")
        raise KeyError("Vpcs")

    results = asked(aws, [question("broken", broken), ZONE])
    assert [answer.text for answer in results[0].answers] == ["so far", "unexpected answer: KeyError: 'Vpcs'"]
    assert statuses(results)["zone"] == {Status.OK}


def test_a_question_that_takes_too_long_keeps_what_it_found(account: PreflightAws, aws: Aws) -> None:
    def slow(settings: Settings, aws: Aws) -> Iterator[Answer]:
        yield ok((), "found at once")
        aws.call("ec2", "describe_vpcs")
        yield ok((), "found too late")

    with account.misbehave("ec2:DescribeVpcs", hang=True):
        began = time.monotonic()
        results = asked(aws, [question("slow", slow), ZONE], timeout_s=5)
        assert 5 <= time.monotonic() - began < 5 + 2 * aws_module.READ_TIMEOUT_S
    assert [answer.text for answer in results[0].answers] == ["found at once", "no answer within 5 s"]
    assert statuses(results)["zone"] == {Status.OK}


def test_what_does_not_apply_is_not_asked(aws: Aws) -> None:
    assert asked(aws, [question("never", lambda *_: iter(()), applies=lambda _: False)]) == []


# ---- bad credentials, bad addresses ----


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId", "AuthFailure", "UnrecognizedClientException"])
def test_credentials_that_are_not_accepted(account: PreflightAws, aws: Aws, code: str) -> None:
    account.misbehave("*", error=(403, code, "The security token included in the request is invalid"))
    texts = open_texts(asked(aws))
    refused = f"the credentials are not accepted: The security token included in the request is invalid ({code})"
    assert set(texts) == {refused}


def test_an_address_where_nobody_answers(aws: Aws, monkeypatch: pytest.MonkeyPatch, unused: int) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused}")
    assert open_texts(asked(aws, [ZONE])) == [f"ec2:DescribeAvailabilityZones cannot be reached in {REGION}"]


def test_a_region_that_has_no_form(account: PreflightAws, boto_session: Any) -> None:
    wrong = Aws(boto_session, "us east 1", lambda: NOW)
    texts = open_texts(asked(wrong, [ZONE]))
    assert len(texts) == 1
    assert "us east 1" in texts[0]


# ---- calls ----


def test_the_same_call_is_made_once(account: PreflightAws, aws: Aws) -> None:
    seen = account.misbehave("ec2:DescribeVpcs", delay_s=0.1)
    calls = [aws.start("ec2", "describe_vpcs") for _ in range(5)]
    assert len({id(call.result()["Vpcs"]) for call in calls}) == 1
    aws.call("ec2", "describe_vpcs", Filters=[{"Name": "state", "Values": ["available"]}])
    assert seen.requests == 2


def test_calls_run_side_by_side(account: PreflightAws, aws: Aws) -> None:
    """The EC2 side of preflight waits for its slowest call, and for no two in a row."""
    asked(aws)  # what is made at first use, on either side
    fresh = Aws(aws._session, REGION, lambda: NOW)
    with account.misbehave("*", delay_s=4):
        began = time.monotonic()
        results = asked(fresh)
        seconds = time.monotonic() - began
    assert open_texts(results) == []
    assert 4 <= fresh.slowest_call[0] <= seconds < 2 * 4


def test_lists_are_read_to_their_end(aws: Aws) -> None:
    quotas = aws.call("service-quotas", "list_service_quotas", ServiceCode="vpc", MaxResults=10)["Quotas"]
    assert len(quotas) == len({item["QuotaCode"] for item in quotas}) == 25


def test_a_list_without_end_is_no_answer(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_module, "MAX_PAGES", 2)
    with pytest.raises(Unasked, match="the list has more than 2 pages"):
        aws.call("service-quotas", "list_service_quotas", ServiceCode="vpc", MaxResults=10)


def test_errors_with_a_meaning_keep_their_code(aws: Aws) -> None:
    with pytest.raises(Refused) as caught:
        aws.call("ec2", "describe_vpcs", VpcIds=["vpc-0123456789abcdef0"])
    assert caught.value.code == "InvalidVpcID.NotFound"


def test_a_denial_names_the_iam_action(account: PreflightAws, aws: Aws) -> None:
    account.misbehave("service-quotas:GetServiceQuota", deny=True)
    with pytest.raises(Unasked) as caught:
        aws.call("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode="L-1216C47A")
    assert caught.value.permission == "servicequotas:GetServiceQuota"
