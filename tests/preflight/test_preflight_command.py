"""``slipway preflight`` as a user meets it: lines, faults with their place, exit codes, JSON, and no credentials."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from preflight_cases import REGION

from rehearsal.cloud.capacity import add_reservation
from slipway.errors import EnvironmentFault, SettingsError, UsageError
from slipway.preflight.command import preflight
from tests.aws.preflight_aws import PreflightAws

ROOT = Path(__file__).parents[2]
TEXT = """\
name: p5
region: us-east-1
zone: us-east-1a

queues:
  - name: train
    instance_type: p5.48xlarge
    count: 4
    reservation:
      kind: capacity-block
      id: cr-0123456789abcdef1
    efa: true
"""
LOG_IN = "log in (aws sso login, aws configure) or name a profile with --profile"
LOG_IN_AGAIN = "log in (aws sso login, or new keys), or name another profile with --profile"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p5.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def block(account: PreflightAws) -> PreflightAws:
    add_reservation(REGION, "cr-0123456789abcdef1", "p5.48xlarge", 4, f"{REGION}a", "capacity-block")
    return account


@pytest.fixture
def no_credentials(account: PreflightAws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


def test_a_good_account(block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight(file) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    where = lines.index("reservation")
    assert lines[where + 1].startswith("  ok       cr-0123456789abcdef1 is active until ")
    assert lines[where + 1].endswith(", 4 of 4 instances available")
    assert lines[-1].startswith("preflight: ")
    assert " 0 warnings, 0 faults, 0 could not be asked in " in lines[-1]
    assert " s (slowest call " in lines[-1]
    assert told.err == ""


def test_faults_end_with_place_repair_and_question(
    account: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_reservation(REGION, "cr-0123456789abcdef1", "p5.48xlarge", 3, f"{REGION}a", "on-demand")
    assert preflight(file) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        f"{file}:10:13: queues[0].reservation.kind: cr-0123456789abcdef1 is an on-demand reservation, the settings say "
        "capacity-block. Hint: write kind: on-demand [reservation]",
        "   10 | kind: capacity-block",
        "      |       ^^^^^^^^^^^^^^",
        f"{file}:11:11: queues[0].reservation.id: cr-0123456789abcdef1 holds 3 instances, the queues want 4 (train). "
        "Hint: lower the count to 3 [reservation]",
        "   11 | id: cr-0123456789abcdef1",
        "      |     ^^^^^^^^^^^^^^^^^^^^",
    ]
    assert " 2 faults, 0 could not be asked in " in told.out


def test_what_could_not_be_asked_is_said_and_is_no_fault(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block.misbehave("ec2:DescribeImages", deny=True)
    assert preflight(file) == 0
    out = capsys.readouterr().out
    assert (
        "image\n  ?        ec2:DescribeImages is not allowed. Hint: allow ec2:DescribeImages, or ask an administrator\n"
        in out
    )
    assert " 0 faults, 1 could not be asked in " in out
    assert out.splitlines()[-2] == "not asked: image"


def test_without_the_reservations_answer_nothing_is_good(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block.misbehave("ec2:DescribeCapacityReservations", deny=True)
    assert preflight(file) == 3
    told = capsys.readouterr()
    assert "  ok       us-east-1 is enabled" in told.out.splitlines()
    assert told.out.splitlines()[-2].startswith("not asked: reservation")
    assert told.err == ""


def test_without_knowing_who_asks_nothing_is_good(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block.misbehave("sts:GetCallerIdentity", error=(500, "InternalFailure", "try again"))
    assert preflight(file) == 3
    assert "not asked: credentials, " in capsys.readouterr().out


def test_a_price_of_the_data_file_is_no_answer_of_aws(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unused: int
) -> None:
    file.write_text(f"{TEXT}\nbudget:\n  monthly_usd: 500000\nobservability:\n  alert_email: a@example.com\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused}")
    assert preflight(file) == 3
    told = capsys.readouterr()
    assert told.err.startswith("nothing could be asked: ")
    assert "USD" not in told.err
    assert told.out.count("\n") == 1


def test_what_is_missing_is_told_once(block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bucket and a subnet that do not exist have no policy and no routes to report."""
    file.write_text(
        f"{TEXT}\nnetwork:\n  vpc_id: vpc-0123456789abcdef0\n  head_node_subnet_id: subnet-0123456789abcdef0\n"
        "  compute_subnet_id: subnet-0123456789abcdef0\nstorage:\n  bucket: no-such-bucket-here\n"
    )
    assert preflight(file) == 1
    told = capsys.readouterr()
    assert "[bucket]" in told.err
    assert "[subnets]" in told.err
    for name in ("bucket-access", "compute-routes", "head-routes", "network-acls"):
        assert name not in told.out + told.err


def test_nothing_could_be_asked_is_said_once(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block.misbehave("*", error=(403, "ExpiredToken", "The security token included in the request is expired"))
    assert preflight(file) == 3
    told = capsys.readouterr()
    assert told.err == (
        "nothing could be asked: the credentials are not accepted: The security token included in the request is "
        f"expired (ExpiredToken). Hint: {LOG_IN_AGAIN}\n"
    )
    assert told.out.count("\n") == 1


def test_nobody_answers(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unused: int
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused}")
    assert preflight(file) == 3
    told = capsys.readouterr()
    assert told.err.startswith("nothing could be asked: ")
    assert told.err.endswith(" more. Hint: look at the region, the network and a proxy\n")
    assert f"cannot be reached in {REGION}" in told.err
    assert told.err.count("\n") == 1


def test_json(block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block.misbehave("ec2:DescribeImages", deny=True)
    assert preflight(file, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["name"], found["region"], found["good"]) == (str(file), "p5", REGION, True)
    by_name = {question["name"]: question for question in found["questions"]}
    answers = [answer for question in found["questions"] for answer in question["answers"]]
    assert found["counts"]["ok"] == sum(answer["status"] == "ok" for answer in answers)
    assert found["counts"]["could_not_ask"] == 1
    assert by_name["image"]["answers"] == [
        {
            "status": "could-not-ask",
            "path": "",
            "line": 0,
            "text": "ec2:DescribeImages is not allowed",
            "hint": "allow ec2:DescribeImages, or ask an administrator",
        }
    ]
    assert by_name["reservation"]["answers"][0]["path"] == "queues[0].reservation.id"
    assert by_name["reservation"]["answers"][0]["line"] == 11
    assert 0 < found["slowest_call"]["seconds"] <= found["seconds"]


def test_json_with_a_fault(account: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight(file, as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is False
    assert found["counts"]["fault"] == 1


def test_json_without_an_answer(block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block.misbehave("*", error=(403, "ExpiredToken", "expired"))
    assert preflight(file, as_json=True) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is False
    assert found["counts"]["ok"] == 0


def test_what_aws_says_does_not_steer_the_terminal(
    block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block.misbehave("ec2:DescribeImages", error=(400, "Strange", "red &#27;[31m and \u009b31m"))
    preflight(file)
    told = capsys.readouterr()
    assert "AWS answered: red " in told.out
    assert "\x1b" not in told.out
    assert "\u009b" not in told.out


# ---- what stops it before it asks ----


def test_the_faults_of_check_come_first(block: PreflightAws, file: Path) -> None:
    file.write_text(TEXT.replace("count: 4", "count: 4\n    placement_group: true"))
    with pytest.raises(SettingsError, match="placement_group"):
        preflight(file)


def test_the_faults_of_check_as_json(block: PreflightAws, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("count: 4", "count: 4\n    colour: red"))
    assert preflight(file, as_json=True) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is False
    assert [fault["path"] for fault in found["settings_faults"]] == ["queues[0].colour"]


def test_no_credentials_is_said_once_and_soon(no_credentials: None, file: Path) -> None:
    began = time.monotonic()
    with pytest.raises(EnvironmentFault) as caught:
        preflight(file)
    assert time.monotonic() - began < 30
    assert str(caught.value) == f"no AWS credentials were found, so nothing was asked. Hint: {LOG_IN}"
    assert caught.value.exit_code == 3


def test_an_instance_service_that_hangs_is_not_waited_for(
    no_credentials: None, file: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """On a workstation nobody answers at the address of the instance metadata service."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", silent)
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match="no AWS credentials were found"):
        preflight(file)
    assert time.monotonic() - began < 60


def test_an_unknown_profile(block: PreflightAws, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[profile training]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(UsageError) as caught:
        preflight(file, profile="trainig")
    assert str(caught.value) == "--profile trainig: there is no such profile. Hint: the profiles are: training"


def test_a_profile_is_used(block: PreflightAws, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "credentials"
    config.write_text("[training]\naws_access_key_id = rehearsal\naws_secret_access_key = rehearsal\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert preflight(file, profile="training") == 0


def test_a_log_in_that_has_ended(
    no_credentials: None,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile sso]\nsso_start_url = https://example.com/start\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = Training\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))  # where the tokens of a log in would lie
    assert preflight(file, profile="sso") == 3
    told = capsys.readouterr().err
    assert told.startswith("nothing could be asked: the credentials cannot be read: ")
    assert told.endswith(f". Hint: {LOG_IN_AGAIN}\n")
    assert told.count("\n") == 1


def test_a_broken_configuration(
    no_credentials: None, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[profile broken\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(EnvironmentFault, match="the AWS configuration cannot be used"):
        preflight(file)


# ---- the whole ----


def test_it_ends_while_a_call_still_hangs(block: PreflightAws, file: Path) -> None:
    """Threads that wait do not keep the process."""
    block.misbehave("ec2:DescribeImages", hang=True)
    code = (
        f"import sys; from slipway.preflight.command import preflight; sys.exit(preflight({str(file)!r}, timeout_s=5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no answer within 5 s" in done.stdout
    assert done.stderr == ""


def test_nothing_heavy_is_imported_for_the_questions() -> None:
    """`slipway check --explain` reads the questions, and stays quick."""
    code = (
        "import sys, slipway.preflight.questions; print([n for n in ('boto3', 'botocore', 'rich') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
