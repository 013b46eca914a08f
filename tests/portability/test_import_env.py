"""The runbook's variables become settings; the file is read and never run."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.errors import SettingsError, SlipwayError, UsageError
from slipway.exchange.env_import import import_env, read_variables
from slipway.exchange.export import export_env
from slipway.settings import load_settings

WHOLE = """
# written by create_config.sh
export AWS_REGION=us-east-2
export INSTANCE="p5.48xlarge"
export NUM_INSTANCES='4'   # all of the block
export KEY_PAIR_NAME=operators
VPC_ID=vpc-0123456789abcdef0
declare -x PRIVATE_SUBNET_ID=subnet-0123456789abcdef1
export PUBLIC_SUBNET_ID=subnet-0123456789abcdef0
export FSX_ID=fs-0123456789abcdef0
export FSX_MOUNTNAME=abcdefgh
export FSXO_ID=fsvol-0123456789abcdef0
export SECURITY_GROUP=sg-0123456789abcdef0
export CAPACITY_RESERVATION_ID=cr-0123456789abcdef0
"""


def bring(folder: Path, text: str, capsys: pytest.CaptureFixture[str], **options: str) -> tuple[int, dict[str, Any]]:
    file = folder / "env_vars"
    file.write_text(text, encoding="utf-8")
    code = import_env(file, as_json=True, **options)
    return code, json.loads(capsys.readouterr().out)


def settings_of(report: dict[str, Any], folder: Path) -> Any:
    file = folder / "settings.yaml"
    file.write_text(report["settings"], encoding="utf-8")
    return load_settings(file)


def test_everything_that_the_runbook_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = bring(tmp_path, WHOLE, capsys, name="moved", zone="us-east-2b")
    assert (report["not_carried"], report["to_fill"]) == ([], [])
    assert (code, report["faults"]) == (0, [])
    made = settings_of(report, tmp_path)
    queue = made.queues[0]
    assert (made.name, made.region, made.zone) == ("moved", "us-east-2", "us-east-2b")
    assert (queue.instance_type, queue.count, queue.efa) == ("p5.48xlarge", 4, True)
    assert (queue.reservation.kind, queue.reservation.id) == ("on-demand", "cr-0123456789abcdef0")
    assert made.head_node.key_pair == "operators"
    assert made.network.vpc_id == "vpc-0123456789abcdef0"
    assert made.network.head_node_subnet_id == "subnet-0123456789abcdef0"
    assert made.network.compute_subnet_id == "subnet-0123456789abcdef1"
    assert made.network.security_group_id == "sg-0123456789abcdef0"
    assert made.storage.fsx.file_system_id == "fs-0123456789abcdef0"
    assert [(one.path, one.kind, one.id) for one in made.storage.mounts] == [
        ("/home", "fsx-openzfs", "fsvol-0123456789abcdef0")
    ]


def test_the_runbook_as_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
export KEY_PAIR_NAME=<your keypair name without .pem>
export CAPACITY_RESERVATION_ID=cr-<YOUR CRID>
export INSTANCE=p5.48xlarge
export NUM_INSTANCES=4
export AMPREMOTEWRITEURL=https://aps-workspaces.example.com/api/v1/remote_write
bash create_config.sh
"""
    code, report = bring(tmp_path, text, capsys)
    assert code == 1
    fills = {entry["setting"] for entry in report["to_fill"]}
    assert fills == {"name", "region", "zone", "head_node.key_pair", "queues[0].reservation.id"}
    reasons = {entry["path"]: entry["text"] for entry in report["not_carried"]}
    assert "a new workspace" in reasons["AMPREMOTEWRITEURL"]
    assert "'bash ...' is no assignment, and nothing is run" in reasons["line 7"]
    with pytest.raises(SettingsError) as caught:
        settings_of(report, tmp_path)
    assert fills <= {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize(
    "value",
    [
        "${AWS_REGION:-us-east-1}",
        "$OTHER",
        "$(aws configure get region)",
        "`touch {marker}`",
        '"${A}b"',
        "$(touch {marker})",
    ],
)
def test_expansions_are_told_and_never_done(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    marker = tmp_path / "run"
    text = WHOLE.replace("AWS_REGION=us-east-2", f"AWS_REGION={value.replace('{marker}', str(marker))}")
    code, report = bring(tmp_path, text, capsys, name="moved", zone="us-east-2b")
    assert code == 1
    assert [entry["path"] for entry in report["to_fill"]] == ["AWS_REGION"]
    assert not marker.exists()


@pytest.mark.parametrize(
    "value", ["$(aws ec2 -pSecretWord)", "`aws ec2 -pSecretWord`", '"$(aws ec2 -pSecretWord)"', "$1"]
)
@pytest.mark.parametrize("name", ["CAPACITY_RESERVATION_ID", "KEY_PAIR_NAME", "FSX_ID", "VPC_ID"])
def test_the_output_of_a_command_is_filled_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    text = "".join(f"{line}\n" for line in WHOLE.splitlines() if f"{name}=" not in line)
    code, report = bring(tmp_path, f"{text}export {name}={value}\n", capsys, name="moved", zone="us-east-2b")
    assert code == 1
    assert [entry["path"] for entry in report["to_fill"]] == [name]
    assert report["not_carried"] == []
    assert "SecretWord" not in report["settings"]
    assert ("<$1>" if value == "$1" else "<output of aws>") in report["settings"]


def test_nothing_is_said_of_a_reservation_that_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = WHOLE.replace("cr-0123456789abcdef0", "none-of-it")
    _, report = bring(tmp_path, text, capsys, name="moved", zone="us-east-2b")
    assert [entry["path"] for entry in report["not_carried"]] == ["CAPACITY_RESERVATION_ID"]
    assert "reservation" not in report["settings"].split("queues:")[1]
    assert report["notes"] == []


def test_single_quotes_are_no_expansion(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("export A='$b'\nexport C=\"x y\" # z\nexport D=e#f\nexport E=4 # it's\n", encoding="utf-8")
    variables = read_variables(file)
    assert variables.values == {"A": "$b", "C": "x y", "D": "e#f", "E": "4"}
    assert variables.expansions == frozenset()


def test_names_that_say_the_same_and_names_that_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        WHOLE
        + "export PrimaryPrivateSubnet=subnet-0123456789abcdef1\nexport PublicSubnet=subnet-0123456789abcdef9\nexport COLOUR=red\n"
    )
    code, report = bring(tmp_path, text, capsys, name="moved", zone="us-east-2b")
    assert code == 1
    reasons = {entry["path"]: entry["text"] for entry in report["not_carried"]}
    assert reasons == {
        "PublicSubnet": "PUBLIC_SUBNET_ID has another value",
        "COLOUR": "no setting for this variable",
    }


def test_what_the_script_writes_for_no_key_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = WHOLE.replace("operators", "REMOVE_THIS_LINE_AND_A_LINE_BEFORE")
    _, report = bring(tmp_path, text, capsys, name="moved", zone="us-east-2b")
    assert "key_pair" not in report["settings"]
    assert report["not_carried"] == []


@pytest.mark.parametrize(
    ("text", "words"), [("", "has no line"), ("just words\n", "has no line"), (None, "no such file")]
)
def test_files_without_variables(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "env_vars"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=words):
        import_env(file)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "env_vars"
    file.write_bytes(b"export A=\xff\xfe\n")
    with pytest.raises(SettingsError, match="UTF-8"):
        import_env(file)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    file, target = tmp_path / "env_vars", tmp_path / "settings.yaml"
    file.write_text(WHOLE, encoding="utf-8")
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists already"):
        import_env(file, target)
    assert target.read_text(encoding="utf-8") == "mine"


def test_export_and_import_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, variables, back = tmp_path / "s.yaml", tmp_path / "env_vars", tmp_path / "back.yaml"
    file.write_text(
        "name: there\nregion: us-east-1\nzone: us-east-1a\nhead_node: {key_pair: my key (1)}\n"
        "network: {vpc_id: vpc-0123456789abcdef0, head_node_subnet_id: subnet-0123456789abcdef0, compute_subnet_id: subnet-0123456789abcdef1}\n"
        "queues: [{name: compute-gpu, instance_type: p5.48xlarge, count: 2, efa: true, reservation: {kind: on-demand, id: cr-0123456789abcdef0}}]\n",
        encoding="utf-8",
    )
    assert export_env(file, variables) == 0
    assert "export KEY_PAIR_NAME='my key (1)'" in variables.read_text(encoding="utf-8")
    assert import_env(variables, back, name="there", zone="us-east-1a") == 0
    assert load_settings(back) == load_settings(file)
    assert "AMPREMOTEWRITEURL: left out" in capsys.readouterr().err


def test_the_queue_of_the_variables_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: there\nregion: us-east-1\nzone: us-east-1a\nacceptance: {scenario: none}\n"
        "queues: [{name: cpu, instance_type: c6i.8xlarge, max_count: 8}, {name: train, instance_type: g6.xlarge, count: 2}]\n",
        encoding="utf-8",
    )
    export_env(file)
    assert "export INSTANCE=g6.xlarge\nexport NUM_INSTANCES=2\n" in capsys.readouterr().out
    export_env(file, queue="cpu", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["variables"]["INSTANCE"] == "c6i.8xlarge"
    assert answer["unknown"]["CAPACITY_RESERVATION_ID"] == "left out: the queue has no reservation"
    with pytest.raises(UsageError, match=r"--queue gpu: the settings have no such queue\. Hint: one of cpu, train"):
        export_env(file, queue="gpu")


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=200) | st.lists(st.tuples(st.sampled_from(["INSTANCE", "NUM_INSTANCES", "AWS_REGION", "X"]), st.text(max_size=20)), max_size=5).map(lambda pairs: "".join(f"export {name}={value}\n" for name, value in pairs)))  # fmt: skip
def test_no_text_is_a_traceback(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SlipwayError):
        code, report = bring(tmp_path, text, capsys)
        assert code in (0, 1)
        assert report["settings"]


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), min_size=1, max_size=20))
def test_a_quoted_value_is_read_as_the_shell_reads_it(value: str, tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text(f"export A={shlex.quote(value)}\n", encoding="utf-8", newline="\n")
    assert read_variables(file).values == {"A": value}
