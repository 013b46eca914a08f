"""Imports of large files and of files with secrets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slipway.errors import SettingsError
from slipway.exchange.env_import import import_env
from slipway.exchange.pcluster_import import import_pcluster

PASSWORD = "hunter2-Sup3rS3cret"
ACCESS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"
HEAD = """\
Region: us-east-1
Image: {Os: ubuntu2204}
HeadNode: {InstanceType: m5.8xlarge, Networking: {SubnetId: subnet-0123456789abcdef0}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
"""
QUEUE = """\
  - Name: q{number}
    Networking: {{SubnetIds: [subnet-0123456789abcdef1]}}
    ComputeResources: [{{Name: c, InstanceType: p5.48xlarge, MinCount: 2, MaxCount: 2, Efa: {{Enabled: true}}}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_more_queues_than_settings_can_have(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(HEAD + "".join(QUEUE.format(number=number) for number in range(61)), encoding="utf-8")
    assert import_pcluster(file) == 1
    assert "queues: must have at most 50 items" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_of_a_configuration_go_nowhere(file: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    tags = f"Tags:\n- {{Key: password, Value: {PASSWORD}}}\n- {{Key: team, Value: research}}\n"
    file.write_text(HEAD + QUEUE.format(number=1) + tags, encoding="utf-8")
    assert import_pcluster(file, as_json=as_json) == 1
    printed = capsys.readouterr()
    assert PASSWORD not in printed.out + printed.err
    assert "research" in printed.out
    assert "looks like a secret" in printed.out


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_of_a_runbook_go_nowhere(file: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    lines = f"export AWS_REGION={ACCESS_KEY}\nexport DB_PASSWORD={PASSWORD}\nmysql -p{PASSWORD}\ncurl https://u:{PASSWORD}@x\n"
    file.write_text(lines, encoding="utf-8")
    assert import_env(file, as_json=as_json) == 1
    printed = capsys.readouterr()
    assert PASSWORD not in printed.out + printed.err
    assert ACCESS_KEY not in printed.out + printed.err
    assert "'mysql ...' is no assignment" in printed.out


def test_thousands_of_variables_take_seconds(file: Path) -> None:
    file.write_text("".join(f"export V{number}=1\n" for number in range(20000)), encoding="utf-8")
    began = time.process_time()
    assert import_env(file) == 1
    assert time.process_time() - began < 20  # each variable against all others took minutes


def test_a_line_without_end_is_refused(file: Path) -> None:
    file.write_text("export INSTANCE=" + "x" * 900_000, encoding="utf-8")
    with pytest.raises(SettingsError, match="is longer than 8192 characters"):
        import_env(file)
