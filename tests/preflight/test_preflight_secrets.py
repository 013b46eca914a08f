"""The two secrets: there, readable, of the right form; and never told."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from arrange_services import KEY_ARN, KEY_ID, OTHER_ACCOUNT, key, policy, secret
from preflight_cases import REGION, Case, all_of, check, denied

from rehearsal.cloud_model import ACCOUNT
from slipway.aws.calls import Aws
from slipway.preflight.asking import run_questions
from slipway.preflight.model import Answer, Status
from slipway.preflight.secrets import QUESTIONS, judge_munge, judge_ngc, judge_password
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
NGC_ARN = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ngc-key-AbCdEf"
DB_ARN = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:slurm-password-AbCdEf"
PERSONAL = "nvapi-" + "Aa0_-" * 13
LEGACY = "Aa0b" * 21
NGC: dict[str, Any] = {"ngc_secret_arn": NGC_ARN}
DB: dict[str, Any] = {"slurm": {"database": {"host": "db.corp", "user": "slurm", "password_secret_arn": DB_ARN}}}
MUNGE_ARN = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:munge-key-AbCdEf"
MUNGE: dict[str, Any] = {
    "slurm": {"external_slurmdbd": {"host": "dbd.corp", "munge_key_secret_arn": MUNGE_ARN}},
}
MUNGE_KEY = base64.b64encode(bytes(range(128))).decode()
SAME: dict[str, Any] = {**NGC, "slurm": {"database": {**DB["slurm"]["database"], "password_secret_arn": NGC_ARN}}}
FOREIGN_KEY = KEY_ARN.replace(ACCOUNT, OTHER_ACCOUNT)
PUT = "aws secretsmanager put-secret-value --secret-id ngc-key --secret-string file://... (an NGC key alone)"
FORM = "the secret ngc-key has the form of an NGC key"
ALIAS = "alias/secrets"
CLOSED = f"the secret ngc-key is encrypted with the key {KEY_ARN}, whose policy leaves kms:Decrypt to no IAM policy"


def alias(aws: PreflightAws) -> None:
    aws.clients("kms").create_alias(AliasName=ALIAS, TargetKeyId=KEY_ID)


def closed(aws: PreflightAws) -> None:
    """A policy of the key that names one administrator and leaves nothing to the account's IAM."""
    who = {"AWS": f"arn:aws:iam::{ACCOUNT}:role/security"}
    document = policy({"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": who})
    aws.clients("kms").put_key_policy(KeyId=KEY_ID, PolicyName="default", Policy=document)


def deleted(aws: PreflightAws) -> None:
    aws.clients("secretsmanager").delete_secret(SecretId="ngc-key")


def ngc(name: str, status: Status, text: str, value: str | bytes | None, **more: Any) -> Case:
    keys = more.pop("secret", {})
    return Case("ngc-secret", name, status, text, ("ngc_secret_arn",), settings=more.pop("settings", NGC),
                arrange=all_of(secret(NGC_ARN, value, **keys), *more.pop("then", ())), **more)  # fmt: skip


def password(name: str, status: Status, text: str, value: str) -> Case:
    path = ("slurm", "database", "password_secret_arn")
    return Case("database-secret", name, status, text, path, settings=DB, arrange=secret(DB_ARN, value))


def munge(name: str, status: Status, text: str, value: str) -> Case:
    path = ("slurm", "external_slurmdbd", "munge_key_secret_arn")
    return Case("munge-secret", name, status, text, path, settings=MUNGE, arrange=secret(MUNGE_ARN, value))


CASES = [
    ngc("personal", OK, FORM, PERSONAL),
    ngc("legacy", OK, FORM, LEGACY),
    Case("ngc-secret", "missing", FAULT, f"there is no secret {NGC_ARN}", ("ngc_secret_arn",),
         "aws secretsmanager create-secret, with an NGC key as its text", settings=NGC),
    ngc("deleted", FAULT, "the secret ngc-key is scheduled for deletion", PERSONAL, then=(deleted,),
        hint="aws secretsmanager restore-secret --secret-id ngc-key"),
    ngc("no value", FAULT, "the secret ngc-key has no value", None, hint=PUT),
    ngc("binary", FAULT, "the secret ngc-key is binary, not text", b"\x00\x01"),
    ngc("empty", FAULT, "the secret ngc-key is empty", " \n"),
    ngc("JSON", FAULT, "the secret ngc-key is JSON: the download takes the whole text for the key",
        f'{{"key": "{PERSONAL}"}}', hint=PUT),
    ngc("blanks", FAULT, "the secret ngc-key has blanks or line breaks in or around the key", f" {PERSONAL}"),
    ngc("placeholder", FAULT, "the secret ngc-key is a placeholder", "<your NGC key>".replace(" ", "-")),
    ngc("unknown form", WARNING, "the secret ngc-key has no form of an NGC key (nvapi-..., or 84 letters and digits)",
        "hunter2"),
    ngc("line break", WARNING, "the secret ngc-key ends in a line break, which some tools take for a part of the key",
        f"{PERSONAL}\n"),
    ngc("foreign key", WARNING, f"the secret ngc-key is encrypted with a key of account {OTHER_ACCOUNT}", PERSONAL,
        secret={"KmsKeyId": FOREIGN_KEY}),
    ngc("own key", OK, FORM, PERSONAL, secret={"KmsKeyId": KEY_ARN}, then=(key(),)),
    ngc("own key by its alias", OK, FORM, PERSONAL, secret={"KmsKeyId": ALIAS}, then=(key(), alias)),
    ngc("own key, closed", WARNING, CLOSED, PERSONAL, secret={"KmsKeyId": KEY_ARN}, then=(key(), closed),
        hint=f"allow kms:Decrypt to arn:aws:iam::{ACCOUNT}:root in its policy"),
    denied("kms:GetKeyPolicy", "ngc-secret", settings=NGC,
           arrange=all_of(key(), secret(NGC_ARN, PERSONAL, KmsKeyId=KEY_ARN))),
    denied("kms:DescribeKey", "ngc-secret", settings=NGC,
           arrange=all_of(key(), alias, secret(NGC_ARN, PERSONAL, KmsKeyId=ALIAS))),
    ngc("a key that looks like a placeholder by chance", OK, FORM, f"{LEGACY}xxxTODO="),
    denied("secretsmanager:DescribeSecret", "ngc-secret", settings=NGC, arrange=secret(NGC_ARN, PERSONAL)),
    denied("secretsmanager:GetSecretValue", "ngc-secret", settings=NGC, arrange=secret(NGC_ARN, PERSONAL)),
    denied("sts:GetCallerIdentity", "ngc-secret", settings=NGC,
           arrange=secret(NGC_ARN, PERSONAL, KmsKeyId=FOREIGN_KEY)),
    password("good", OK, "the secret slurm-password has the form of a password", "correct-horse/battery"),
    password("sharp", FAULT, "the secret slurm-password has a #, where slurmdbd.conf begins a comment", "a#b"),
    password("JSON", FAULT, "the secret slurm-password is JSON: ParallelCluster takes the whole text for the password",
             '{"password": "a"}'),
    password("line break", FAULT, "the secret slurm-password has blanks or line breaks in it", "secret\n"),
    password("empty", FAULT, "the secret slurm-password is empty", " "),
    password("placeholder", FAULT, "the secret slurm-password is a placeholder", "changeme"),
    Case("database-secret", "missing", FAULT, f"there is no secret {DB_ARN}", settings=DB),
    Case("database-secret", "NGC's", FAULT, "the secret is the one of the NGC key",
         ("slurm", "database", "password_secret_arn"), "make one for the database's password", settings=SAME),
    denied("secretsmanager:DescribeSecret", "database-secret", settings=DB, arrange=secret(DB_ARN, "a")),
    denied("secretsmanager:GetSecretValue", "database-secret", settings=DB, arrange=secret(DB_ARN, "a")),
    denied("sts:GetCallerIdentity", "database-secret", settings=DB, arrange=secret(DB_ARN, "a", KmsKeyId=FOREIGN_KEY)),
    denied("kms:GetKeyPolicy", "database-secret", settings=DB,
           arrange=all_of(key(), secret(DB_ARN, "a", KmsKeyId=KEY_ARN))),
    denied("kms:DescribeKey", "database-secret", settings=DB,
           arrange=all_of(key(), alias, secret(DB_ARN, "a", KmsKeyId=ALIAS))),
    denied("kms:GetKeyPolicy", "munge-secret", settings=MUNGE,
           arrange=all_of(key(), secret(MUNGE_ARN, MUNGE_KEY, KmsKeyId=KEY_ARN))),
    denied("kms:DescribeKey", "munge-secret", settings=MUNGE,
           arrange=all_of(key(), alias, secret(MUNGE_ARN, MUNGE_KEY, KmsKeyId=ALIAS))),
    munge("good", OK, "the secret munge-key has the form of a munge key in base64", MUNGE_KEY),
    munge("text", FAULT, "the secret munge-key is no munge key in base64", "hunter2 again"),
    munge("JSON", FAULT, "the secret munge-key is no munge key in base64", '{"key": "abcd"}'),
    munge("short", FAULT, "the secret munge-key holds a key of 128 bits; munge takes 256 to 8192",
          base64.b64encode(bytes(16)).decode()),
    Case("munge-secret", "missing", FAULT, f"there is no secret {MUNGE_ARN}", settings=MUNGE),
    denied("secretsmanager:DescribeSecret", "munge-secret", settings=MUNGE, arrange=secret(MUNGE_ARN, MUNGE_KEY)),
    denied("secretsmanager:GetSecretValue", "munge-secret", settings=MUNGE, arrange=secret(MUNGE_ARN, MUNGE_KEY)),
    denied("sts:GetCallerIdentity", "munge-secret", settings=MUNGE,
           arrange=secret(MUNGE_ARN, MUNGE_KEY, KmsKeyId=FOREIGN_KEY)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_secrets(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


@pytest.mark.parametrize("value", ["hunter2", f"{PERSONAL} x", '{"key": "hunter2"}', "changeme-hunter2", "#hunter2"])
def test_no_verdict_tells_the_value(value: str) -> None:
    for judge in (judge_ngc, judge_password, judge_munge):
        verdict = judge(value)
        assert verdict is None or not {"hunter2", PERSONAL} & set(verdict[1].split())
        assert verdict is None or "hunter2" not in verdict[1]


def test_no_value_is_kept(aws: Aws, account: PreflightAws) -> None:
    from preflight_cases import settings_of

    secret(NGC_ARN, PERSONAL)(account)
    (result,) = run_questions(QUESTIONS[:1], settings_of(NGC), aws)
    assert [answer.text for answer in result.answers] == [FORM]
    assert aws._calls
    assert not any(PERSONAL in str(pending.result()) for pending in aws._calls.values())
