"""The printed IAM policy: all that the questions use, and of contents only what the settings name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from preflight_cases import settings_of

from slipway.preflight.iam import reading_policy
from slipway.preflight.questions import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:ngc-AbCdEf"


def actions(policy: dict[str, Any]) -> dict[str, list[str]]:
    return {action: item["Resource"] for item in policy["Statement"] for action in item["Action"]}


def test_it_allows_what_the_questions_use() -> None:
    settings = settings_of({"ngc_secret_arn": SECRET, "storage": {"bucket": "corp-data"}})
    allowed = actions(reading_policy(settings))
    assert set(allowed) == {one for item in QUESTIONS if item.applies(settings) for one in item.permissions}
    assert allowed["secretsmanager:GetSecretValue"] == [SECRET]
    assert "arn:aws:s3:::corp-data/*" in allowed["s3:GetObject"]
    assert "*" not in allowed["s3:GetObject"]


def test_without_secrets_none_can_be_read() -> None:
    assert not any(action.startswith("secretsmanager:") for action in actions(reading_policy(settings_of({}))))


def test_nothing_in_it_writes() -> None:
    names = {action.partition(":")[2] for action in actions(reading_policy(settings_of({"ngc_secret_arn": SECRET})))}
    assert {name for name in names if not name.startswith(("Describe", "Get", "List", "View", "Simulate"))} == set()


def test_the_command_prints_it_without_credentials() -> None:
    command = [str(ROOT / ".venv/bin/slipway"), "preflight", "clusters/existing-vpc.yaml", "--policy"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PATH": ""}, check=True)
    assert json.loads(done.stdout)["Statement"]
