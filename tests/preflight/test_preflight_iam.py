"""The printed IAM policy: all that the questions use, and of contents only what the settings name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
from preflight_cases import NOW, settings_of

from rehearsal.engine.account import seed_of
from slipway.aws.calls import Aws
from slipway.preflight.asking import run_questions
from slipway.preflight.iam import reading_policy
from slipway.preflight.questions import QUESTIONS
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws

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
    allowed = actions(reading_policy(settings_of({})))
    assert "ec2:DescribeVpcs" in allowed
    assert not any(action.startswith("secretsmanager:") for action in allowed)


def test_nothing_in_it_writes() -> None:
    names = {action.partition(":")[2] for action in actions(reading_policy(settings_of({"ngc_secret_arn": SECRET})))}
    assert {name for name in names if not name.startswith(("Describe", "Get", "List", "View", "Simulate"))} == set()


def test_the_command_prints_it_without_credentials() -> None:
    command = [str(ROOT / ".venv/bin/slipway"), "preflight", "clusters/existing-vpc.yaml", "--policy"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PATH": ""}, check=True)
    assert json.loads(done.stdout)["Statement"]


#: Granted by the policy and not used in the test below, each with its reason.
NOT_USED = {
    "sts:GetCallerIdentity": "STS answers it without any permission",
    "fsx:DescribeFileCaches": "asked for where a file system mounts a cache",
    "fsx:DescribeVolumes": "asked for where a volume is mounted",
    "iam:GetPolicyVersion": "asked for where the default key of EBS is one of the site's own",
    "kms:DescribeKey": "asked for where a bucket, a secret or EBS has a key of the site's own",
    "kms:GetKeyPolicy": "asked for where a bucket, a secret or EBS has a key of the site's own",
    "rds:DescribeDBClusters": "asked for where the database is one of RDS",
    "rds:DescribeDBInstances": "asked for where the database is one of RDS",
    "servicequotas:GetAWSDefaultServiceQuota": "asked for where the account has no value of its own",
}


def test_a_caller_with_exactly_this_policy_may_ask_everything(
    account: PreflightAws, boto_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question is asked with the role's own session; nothing is refused, and what is not used is few."""
    settings = load_settings(ROOT / "tests/stacks/site-parts.yaml")
    account.reset()
    account.seed(seed_of(settings))
    account.authority.denials.clear()
    iam, trust = account.clients("iam"), {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}
    iam.create_role(RoleName="asking", AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    document = json.dumps(reading_policy(settings))
    iam.put_role_policy(RoleName="asking", PolicyName="policy-preflight", PolicyDocument=document)
    for name, value in account.authority.session("asking", "ann").items():
        monkeypatch.setenv(name, value)
    results = run_questions(QUESTIONS, settings, Aws(boto3.Session(), settings.region, lambda: NOW))
    assert [str(denial.message) for denial in account.authority.denials] == []
    refused = [answer.text for result in results for answer in result.answers if "not allowed" in answer.text]
    assert [text for text in refused if "executing role" not in text] == []
    seen = {name for role, names in account.authority.seen.items() if role.endswith("/asking") for name in names}
    unused = {name for name in actions(reading_policy(settings)) if name not in seen}
    assert unused == set(NOT_USED)
