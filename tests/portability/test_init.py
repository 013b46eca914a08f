"""`slipway init`: what it asks, what it offers, what it writes, and that it leaves nothing half-done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud.seed import Reservation, Seed
from rehearsal.cloud.server import EmbeddedAws
from slipway.errors import SettingsError, SlipwayError, UsageError
from slipway.exchange.create import Offer, init, live_reservations
from slipway.places import FILES
from slipway.settings import examine, load_settings
from slipway.settings.write import schema_line

BLOCK = Offer(
    "cr-0123456789abcdef1", "capacity-block", "p5.48xlarge", "us-east-1c", 4, 4, "active", "2026-12-01 11:30 UTC"
)
OTHER = Offer("cr-0123456789abcdef2", "on-demand", "p4d.24xlarge", "us-east-1a", 2, 1, "active", "")


def nothing(region: str) -> list[Offer]:
    return []


def silent(region: str) -> list[Offer]:
    raise LookupError("no AWS credentials were found")


def one_block(region: str) -> list[Offer]:
    return [BLOCK]


def two(region: str) -> list[Offer]:
    return [BLOCK, OTHER]


def stubborn(question: str, default: str) -> str:
    return "!"


class Person:
    """Answers questions by a word of theirs; an empty answer takes the default. Remembers what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}
        self.asked: list[str] = []

    def __call__(self, question: str, default: str) -> str:
        self.asked.append(question)
        for word, answers in self.answers.items():
            if word in question and answers:
                answer = answers.pop(0)
                if isinstance(answer, BaseException):
                    raise answer
                return answer or default
        return default


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_defaults_alone_give_a_valid_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(find=nothing) == 0
    made = load_settings("gpu.yaml")
    assert (made.name, made.region, made.zone, made.queues[0].count) == ("gpu", "us-east-1", "us-east-1a", 2)
    assert made.queues[0].efa
    captured = capsys.readouterr()
    assert captured.out == "gpu.yaml is written. Next: slipway check gpu.yaml\n"
    assert "No live capacity reservation in us-east-1." in captured.err


def test_the_next_command_can_be_typed_as_it_is_printed(tmp_path: Path) -> None:
    """By its name if that is on PATH, else by the path with which it was started."""
    program = Path(sys.executable).parent / "slipway"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}
    for path, expected in ((environment["PATH"], str(program)), (f"{program.parent}:/usr/bin:/bin", "slipway")):
        command = [str(program), "init", "--yes", "--force", "--output", "a b.yaml"]
        done = subprocess.run(
            command, env={**environment, "PATH": path}, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == f"a b.yaml is written. Next: {expected} check 'a b.yaml'\n"


def test_a_number_of_the_list_is_asked_for_only_where_there_is_a_list() -> None:
    asked: list[str] = []

    def person(text: str, default: str) -> str:
        asked.append(text)
        return default

    for find in (nothing, two):
        init(ask=person, force=True, find=find)
    questions = [text for text in asked if text.startswith("Reservation:")]
    assert ["a number of the list" in text for text in questions] == [False, True]


def test_empty_answers_take_the_defaults() -> None:
    person = Person()
    assert init(ask=person, find=nothing) == 0
    assert load_settings("gpu.yaml").queues[0].instance_type == "p5.48xlarge"
    words = ("Name", "region", "Reservation", "zone", "Instance type", "How many")
    assert all(word in question for word, question in zip(words, person.asked, strict=True))


def test_the_only_reservation_is_the_default_and_fills_in_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(ask=Person(), find=one_block) == 0
    made = load_settings("gpu.yaml")
    queue = made.queues[0]
    assert queue.reservation is not None
    assert (queue.reservation.kind, queue.reservation.id) == ("capacity-block", BLOCK.id)
    assert (queue.count, queue.instance_type, made.zone) == (4, "p5.48xlarge", "us-east-1c")
    assert "1. cr-0123456789abcdef1: 4 x p5.48xlarge in us-east-1c, 4 free" in capsys.readouterr().err
    assert "until 2026-12-01 11:30 UTC" in Path("gpu.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("answer", ["2", OTHER.id])
def test_a_reservation_by_its_number_or_id(answer: str) -> None:
    assert init(ask=Person(Reservation=answer), find=two) == 0
    queue = load_settings("gpu.yaml").queues[0]
    assert queue.reservation is not None
    assert (queue.reservation.id, queue.reservation.kind, queue.instance_type) == (
        OTHER.id,
        "on-demand",
        "p4d.24xlarge",
    )


def test_several_reservations_are_no_reason_to_take_one() -> None:
    assert init(find=two) == 0
    assert load_settings("gpu.yaml").queues[0].reservation is None


def test_a_reservation_that_is_not_in_the_list() -> None:
    person = Person(Reservation="cr-0123456789abcdef9", kind="on-demand")
    assert init(ask=person, find=nothing) == 0
    queue = load_settings("gpu.yaml").queues[0]
    assert queue.reservation is not None
    assert (queue.reservation.id, queue.reservation.kind) == ("cr-0123456789abcdef9", "on-demand")


def test_without_credentials_it_goes_on_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(find=silent) == 0
    printed = capsys.readouterr().err
    assert "Reservations cannot be looked up: no AWS credentials were found. Going on without." in printed


@pytest.mark.parametrize(
    ("word", "answers", "rule"),
    [
        ("Name", ["Not A Name", "fine"], "must be 2 to 40 characters"),
        ("region", ["mars", "us-west-2"], "must be an AWS region"),
        ("zone", ["eu-west-1a", "us-east-1b"], "is not a zone of the region us-east-1"),
        ("Instance", ["p5.48xlrge", "p5.48xlarge"], "did you mean p5.48xlarge?"),
        ("How many", ["many", "4"], "must be a whole number"),
        ("How many", ["0", "4"], "must be greater than or equal to 1"),
        ("How many", ["-1", "4"], "must be"),
        ("Reservation", ["cr-1", "cr-0123456789abcdef9"], "must be a capacity reservation id"),
    ],
)
def test_a_wrong_answer_is_asked_again_with_the_rule(
    capsys: pytest.CaptureFixture[str], word: str, answers: list[str], rule: str
) -> None:
    person = Person(**{word: answers})
    assert init(Path("out.yaml"), ask=person, find=nothing) == 0
    assert rule in capsys.readouterr().err
    assert sum(word in question for question in person.asked) == 2
    load_settings("out.yaml")


@pytest.mark.parametrize(("raised", "seen"), [(KeyboardInterrupt, KeyboardInterrupt), (EOFError, UsageError)])
@pytest.mark.parametrize("word", ["Name", "region", "Reservation", "zone", "Instance", "How many"])
def test_breaking_off_leaves_nothing(
    tmp_path: Path, raised: type[BaseException], seen: type[BaseException], word: str
) -> None:
    with pytest.raises(seen):
        init(ask=Person(**{word: raised()}), find=nothing)
    assert list(tmp_path.iterdir()) == []


def test_wrong_answers_are_not_asked_for_ever(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no valid answer after 20 tries"):
        init(ask=stubborn, find=nothing)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_unless_the_person_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    target = Path("gpu.yaml")
    target.write_text("mine", encoding="utf-8")
    assert init(ask=Person(Replace="no"), find=nothing) == 1
    assert "gpu.yaml is left as it is" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "mine"
    assert init(ask=Person(Replace="yes"), find=nothing) == 0
    assert load_settings(target).name == "gpu"


@pytest.mark.parametrize("output", [None, Path("gpu.yaml")])
def test_without_questions_an_existing_file_needs_force(output: Path | None) -> None:
    target = Path("gpu.yaml")
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"exists already\. Hint: --force"):
        init(output, find=nothing)
    assert target.read_text(encoding="utf-8") == "mine"
    assert init(output, force=True, find=nothing) == 0
    assert load_settings(target).name == "gpu"


def test_what_is_given_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "name": "g6-try", "region": "eu-west-1", "zone": "eu-west-1b", "os": "ubuntu2404", "instance_type": "g6.xlarge",
        "count": 3, "reservation": "none", "key_pair": "mine",
    }  # fmt: skip
    person = Person()
    assert init(Path("out.yaml"), ask=person, given=given, find=nothing) == 0
    assert person.asked == []
    made = load_settings("out.yaml")
    assert (made.name, made.zone, made.os, made.head_node.key_pair) == ("g6-try", "eu-west-1b", "ubuntu2404", "mine")
    assert (made.queues[0].instance_type, made.queues[0].count, made.queues[0].efa) == ("g6.xlarge", 3, False)
    assert made.acceptance.scenario == "none"  # no limits are known for this type
    assert "Acceptance is off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("name", "X", "--name: name = 'X': must be 2 to 40 characters"),
        ("instance_type", "p99", "--instance-type: queues[0].instance_type = 'p99'"),
        ("count", "no", "--count: queues[0].count = 'no': must be a whole number"),
        ("reservation", "cr-x", "--reservation: queues[0].reservation.id = 'cr-x'"),
        ("zone", "us-west-1a", "--zone: zone = 'us-west-1a': is not a zone of the region us-east-1"),
    ],
)
def test_a_wrong_option_is_told_and_nothing_written(tmp_path: Path, key: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        init(given={key: value}, find=nothing)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_is_too_large_is_told(tmp_path: Path) -> None:
    given = {"reservation": BLOCK.id, "reservation_kind": "capacity-block", "count": 65}
    with pytest.raises(SlipwayError, match="64 instances"):
        init(given=given, find=nothing)
    assert list(tmp_path.iterdir()) == []


def test_wrong_options_are_told_all_at_once(tmp_path: Path) -> None:
    given = {"name": "X", "region": "mars", "zone": "us-east-1a", "instance_type": "p99", "count": "no", "os": "dos"}
    with pytest.raises(SettingsError) as caught:
        init(given=given, find=one_block)
    assert {fault.file for fault in caught.value.faults} == {"--name", "--region", "--instance-type", "--count", "--os"}
    assert list(tmp_path.iterdir()) == []


def test_after_a_wrong_answer_the_default_none_is_taken() -> None:
    person = Person(Reservation=["cr-1", ""])
    assert init(ask=person, find=two) == 0
    assert load_settings("gpu.yaml").queues[0].reservation is None
    asked = [question for question in person.asked if "Reservation" in question]
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_after_a_wrong_answer_a_number_is_taken() -> None:
    assert init(ask=Person(Reservation=["cr-1", "2"]), find=two) == 0
    queue = load_settings("gpu.yaml").queues[0]
    assert queue.reservation is not None
    assert queue.reservation.id == OTHER.id


@pytest.mark.parametrize(
    "given",
    [
        {"instance_type": "p4d.24xlarge"},
        {"zone": "us-east-1a"},
        {"count": 8},
        {"reservation_kind": "on-demand"},
    ],
)
def test_a_reservation_that_does_not_fit_the_options(capsys: pytest.CaptureFixture[str], given: dict[str, Any]) -> None:
    assert init(given=given, find=one_block) == 0
    assert load_settings("gpu.yaml").queues[0].reservation is None
    assert "took no reservation: none fits what is asked for" in capsys.readouterr().err
    with pytest.raises(SettingsError) as caught:
        init(Path("other.yaml"), given={**given, "reservation": BLOCK.id}, find=one_block)
    (key,) = given
    assert f"--{key.replace('_', '-')} says {given[key]}" in str(caught.value)
    assert [fault.file for fault in caught.value.faults] == ["--reservation"]
    assert not Path("other.yaml").exists()


def test_a_contradiction_is_asked_again() -> None:
    person = Person(Reservation=["2"])
    assert init(ask=person, given={"zone": "us-east-1a", "reservation": BLOCK.id}, find=two) == 0
    queue = load_settings("gpu.yaml").queues[0]
    assert queue.reservation is not None
    assert queue.reservation.id == OTHER.id


def test_the_one_that_fits_of_several_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(given={"instance_type": "p4d.24xlarge"}, find=two) == 0
    queue = load_settings("gpu.yaml").queues[0]
    assert queue.reservation is not None
    assert (queue.reservation.id, queue.count) == (OTHER.id, 2)
    assert f"took reservation {OTHER.id}" in capsys.readouterr().err


@pytest.mark.parametrize("answers", [True, False])
def test_a_reservation_that_aws_does_not_list(capsys: pytest.CaptureFixture[str], answers: bool) -> None:
    given = {"reservation": "cr-0123456789abcdef9"}
    assert init(given=given, find=nothing if answers else silent) == 0
    printed = capsys.readouterr().err
    assert ("cr-0123456789abcdef9 is not among the live reservations of us-east-1" in printed) == answers
    assert "queues[0].reservation.kind: capacity-block, a guess" in printed
    assert "kind: capacity-block # a guess" in " ".join(Path("gpu.yaml").read_text(encoding="utf-8").split())


def test_a_kind_that_is_said_is_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"reservation": "cr-0123456789abcdef9", "reservation_kind": "on-demand"}
    assert init(given=given, find=silent) == 0
    assert "guess" not in capsys.readouterr().err + Path("gpu.yaml").read_text(encoding="utf-8")


def test_no_key_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(given={"key_pair": "none"}, find=nothing) == 0
    assert load_settings("gpu.yaml").head_node.key_pair is None


@pytest.mark.parametrize("find", [nothing, one_block])
def test_what_the_defaults_give_has_no_warning(find: Any) -> None:
    assert init(find=find) == 0
    found = examine("gpu.yaml")
    assert (found.faults, found.warnings) == ((), ())


def test_a_folder_that_is_not_there_is_told_before_any_question() -> None:
    person = Person()
    with pytest.raises(UsageError, match=r"there is no folder no dir\. Hint: mkdir -p 'no dir'"):
        init(Path("no dir/x.yaml"), ask=person, find=nothing)
    assert person.asked == []


def test_the_schema_is_named_inside_the_repository() -> None:
    assert schema_line(FILES / "clusters/x.yaml") == ("yaml-language-server: $schema=settings.schema.json",)
    assert schema_line(FILES / "x.yaml") == ("yaml-language-server: $schema=clusters/settings.schema.json",)
    assert schema_line(None) == ()
    assert schema_line(Path("x.yaml")) == ()  # a temporary folder


def test_the_schema_is_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = tmp_path / "clusters/settings.schema.json"
    schema.parent.mkdir()
    schema.touch()
    monkeypatch.setattr("slipway.settings.write.CHECKOUT", tmp_path)
    monkeypatch.setattr("slipway.settings.write.SCHEMA", schema)
    assert init(find=nothing) == 0
    first = Path("gpu.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=clusters/settings.schema.json"


def test_an_unknown_option_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="init knows no colour"):
        init(given={"colour": "red"}, find=nothing)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert init(Path("out.yaml"), as_json=True, find=nothing) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["file"] == "out.yaml"
    assert answer["settings"]["queues"][0]["count"] == 2


# ---- what AWS says ----


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws("us-east-1", tmp_path_factory.mktemp("aws")) as aws:
        block = Reservation("cr-0123456789abcdef1", "p5.48xlarge", 4, "us-east-1a", "capacity-block")
        plain = Reservation("cr-0123456789abcdef2", "p4d.24xlarge", 2, "us-east-1a", "on-demand")
        aws.seed(Seed(reservations=(block, plain)))
        yield aws


def test_live_reservations_are_offered(cloud: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in cloud.env().items():
        monkeypatch.setenv(key, value)
    offers = live_reservations("us-east-1")
    assert [(one.id, one.kind, one.instance_type, one.total, one.free) for one in offers] == [
        ("cr-0123456789abcdef1", "capacity-block", "p5.48xlarge", 4, 4),
        ("cr-0123456789abcdef2", "on-demand", "p4d.24xlarge", 2, 2),
    ]
    made = init(ask=Person(Reservation="1"))
    assert made == 0
    assert load_settings("gpu.yaml").queues[0].count == 4


@pytest.mark.parametrize("way", ["no-credentials", "no-answer"])
def test_aws_that_says_nothing_is_a_reason(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    if way == "no-answer":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    began = datetime.now(UTC)
    with pytest.raises(
        LookupError, match="no AWS credentials were found" if way == "no-credentials" else "cannot be reached"
    ):
        live_reservations("us-east-1")
    assert datetime.now(UTC) - began < timedelta(seconds=30)
