"""The command: what it prints, as text and as JSON, and how it ends."""

from __future__ import annotations

import datetime
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cost_cases import CPU, EXAMPLES, block, json_error, write

from slipway.cost.command import cost
from slipway.errors import SettingsError, UsageError
from slipway.settings import Settings
from slipway.text import visible

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((REPOSITORY / "slipway/cost/cost.schema.json").read_text(encoding="utf-8"))
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(file: Path, *, live: bool = False, hours: float | None = None, as_json: bool = True) -> tuple[int, Any]:
        code = cost(file, live=live, as_json=as_json, hours=hours)
        text = capsys.readouterr().out
        if not as_json:
            return code, text
        answer = json.loads(text)
        jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(answer)
        return code, answer

    return call


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_of_every_example(run: Run, name: str) -> None:
    code, answer = run(REPOSITORY / "clusters" / name)
    assert code == 0
    assert answer["price_list"]["asked"] is False
    assert [one["reason"] for one in answer["price_list"]["fallbacks"]] == ["the price list was not asked (--offline)"]
    sums = answer["totals"]["cluster"]["usd_per_month"], answer["totals"]["reservations"]["usd_per_month"]
    assert answer["totals"]["together"]["usd_per_month"]["high"] == pytest.approx(
        sum(one["high"] for one in sums), abs=1e-5
    )
    for part in answer["parts"]:
        assert (part["usd_per_hour"] is not None) == (part["state"] in {"known", "nothing"})
        assert part["price"] is None or part["price"]["source"].startswith("data file 20")


def test_the_schema_refuses_what_it_does_not_know() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"file": "x"}, SCHEMA)


def test_live_json_says_price_list(run: Run, aws: Any) -> None:
    aws.reservations["cr-0123456789abcdef1"] = (
        4,
        datetime.datetime(2026, 12, 1),
        datetime.datetime(2026, 12, 3),
    )
    code, answer = run(REPOSITORY / "clusters/p5-capacity-block.yaml", live=True)
    assert code == 0
    assert answer["price_list"] == {"asked": True, "fallbacks": []}
    sources = {part["name"]: part["price"]["source"] for part in answer["parts"] if part["price"]}
    assert sources.pop("capacity block cr-0123456789abcdef1") == "data file 2026-02-01"
    assert set(sources.values()) == {"price list"}
    (window,) = answer["windows"]
    assert (window["hours"], window["source"]) == (48, "DescribeCapacityReservations")
    assert window["reservation_usd"] == pytest.approx(48 * 4 * 31.464)


def test_json_names_what_fell_back_and_why(run: Run, aws: Any, tmp_path: Path) -> None:
    aws.before = [json_error("AccessDeniedException")]
    _, answer = run(write(tmp_path, CPU), live=True)
    (fallen,) = answer["price_list"]["fallbacks"]
    assert fallen["reason"] == "pricing:GetProducts is not allowed"
    assert "FSx for Lustre" in fallen["parts"]
    assert fallen["dates"] == sorted(fallen["dates"])


def test_text_names_what_fell_back_and_why(run: Run, no_credentials: None, tmp_path: Path) -> None:
    _, text = run(write(tmp_path, CPU), live=True, as_json=False)
    assert "not today's price but the data file's (2024-02-01 to 2026-09-06): every price." in text
    assert "Why: no AWS credentials were found" in text


def test_text_of_some_prices_from_each(run: Run, aws: Any, tmp_path: Path) -> None:
    file = write(tmp_path, CPU, **{"us-east-1": "eu-north-1"})
    _, text = run(file, live=True, as_json=False)
    assert "price list" in text
    assert "unknown" not in text
    _, text = run(write(tmp_path, CPU, **{"us-east-1": "eu-central-1"}), live=True, as_json=False)
    assert (
        "unknown, not in the sums: FSx for Lustre: the data file has no price for eu-central-1; the price list has no such"
        in text
    )
    last = text.splitlines()[-1]
    assert " in eu-central-1: at least " in last
    assert last.endswith(" USD/month without FSx for Lustre")


def test_text_of_a_block(run: Run) -> None:
    code, text = run(REPOSITORY / "clusters/p5-capacity-block.yaml", as_json=False)
    lines = text.splitlines()
    assert code == 0
    assert lines[0].split() == ["part", "quantity", "USD/h", "USD/month", "source"]
    assert (
        "capacity block cr-0123456789abcdef1: how long it lasts is unknown (AWS was not asked); say it with --hours"
        in text
    )
    assert lines[-1] == (
        "p5-sandbox in us-east-1: 3.43 USD/h, 2,507.23 USD/month;"
        " in addition, paid anyway: reservations 125.86 USD/h, 91,874.88 USD/month"
    )


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_text_fits_the_terminal(columns: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, text = run(REPOSITORY / "clusters/p5-capacity-block.yaml", as_json=False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert not [line for line in lines if line != line.rstrip()]
    assert ("FSx for Lustre: 4800 GiB persistent-2, 250 MB/s per TiB" in lines) is (columns < 119)
    assert "1.38 USD/h, 1,008.00 USD/month (data file 2026-02-17)" in text or columns >= 119
    assert "reservations 125.86 USD/h, 91,874.88 USD/month" in " ".join(text.split())


def test_text_in_a_pipe_is_not_folded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    _, text = run(REPOSITORY / "clusters/p5-capacity-block.yaml", as_json=False)
    assert max(map(len, text.splitlines())) > 120
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_text_of_a_block_with_hours(run: Run) -> None:
    _, text = run(REPOSITORY / "clusters/p5-capacity-block.yaml", as_json=False, hours=72)
    assert "over its 72 h (--hours): the block 9,061.63 USD, the cluster around it 247.29 USD" in text


def test_text_of_hours_without_a_block(run: Run) -> None:
    _, text = run(REPOSITORY / "clusters/g6-sandbox.yaml", as_json=False, hours=72)
    assert "72 hours: 171.58 to 292.37 USD" in text
    assert "spot changes hourly" in text


def test_text_of_an_unknown_reservation_says_what_aws_said(run: Run, aws: Any) -> None:
    _, text = run(REPOSITORY / "clusters/p5-capacity-block.yaml", live=True, as_json=False)
    assert (
        "how long it lasts is unknown (AWS answered: The capacity reservation 'cr-0123456789abcdef1' does not exist"
        in text
    )


def test_above_budget_ends_in_1_and_says_so(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, block(), "budget: {monthly_usd: 20000}\n")
    code, text = run(file, as_json=False)
    assert code == 1
    assert "budget: the monthly sum is above 20,000 USD with the reservations" in text
    assert text.splitlines()[-1].endswith("; above budget")
    assert run(file)[1]["budget"] == {"monthly_usd": 20000, "above": ["with the reservations"]}


def test_within_budget_ends_in_0(run: Run, tmp_path: Path) -> None:
    code, text = run(write(tmp_path, CPU, "budget: {monthly_usd: 20000}\n"), as_json=False)
    assert code == 0
    assert "budget: 20,000 USD a month, not exceeded" in text


@pytest.mark.parametrize("hours", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_impossible_hours(hours: float) -> None:
    with pytest.raises(UsageError, match="--hours"):
        cost(REPOSITORY / "clusters/p5en.yaml", live=False, as_json=False, hours=hours)


def test_a_wrong_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        cost(write(tmp_path, "  []"), live=False, as_json=False, hours=None)


def test_offline_makes_no_connection(run: Run, aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection, with --offline")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run(REPOSITORY / "clusters/p5-capacity-block.yaml")
    assert aws.requests == []


def test_offline_does_not_even_load_boto3() -> None:
    program = (
        "import sys, pathlib; from slipway.cost.command import cost;"
        "cost(pathlib.Path('clusters/p5en.yaml'), live=False, as_json=True, hours=None);"
        "print('boto3' in sys.modules or 'botocore' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stderr == "False\n"


def test_piped_text_is_plain() -> None:
    program = (
        "import pathlib; from slipway.cost.command import cost;"
        "cost(pathlib.Path('clusters/p5-reservation.yaml'), live=False, as_json=False, hours=None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    assert "16 x p5.48xlarge" in done.stdout


def test_what_aws_says_does_not_steer_the_terminal(run: Run, aws: Any, tmp_path: Path) -> None:
    aws.before = [json_error("Odd", message="\\u001b[2Jgone")]
    _, text = run(write(tmp_path, CPU), live=True, as_json=False)
    assert "\x1b" not in text
    assert "?[2Jgone (Odd)" in text
    assert visible("a\x1bb") == "a?b"


def test_estimate_is_ready_for_preflight(settings_of: Callable[..., Settings]) -> None:
    """The budget question needs no more than this."""
    from slipway.cost import data_prices, estimate

    settings = settings_of(block(), "budget: {monthly_usd: 20000}\n")
    assert estimate(settings, data_prices(settings.region)).above_budget == ("with the reservations",)
