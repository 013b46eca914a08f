"""Secrets: they exist, can be read, and have the form that the nodes expect. Values are neither kept nor printed."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending
from slipway.preflight.account import account_id
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.preflight.policy import is_left_to_iam
from slipway.regions import partition
from slipway.settings import Settings
from slipway.settings.source import Place

Judge = Callable[[str], "tuple[str, str] | None"]
NGC: Place = ("ngc_secret_arn",)
DATABASE: Place = ("slurm", "database", "password_secret_arn")
MUNGE: Place = ("slurm", "external_slurmdbd", "munge_key_secret_arn")
MUNGE_BITS = (256, 8192)  # of the decoded key; ParallelCluster 3.16.1, secret_validators.py
# Forms of NGC keys. Source: NGC user guide, API keys; a legacy key is 84 characters of base64.
PERSONAL_KEY = re.compile(r"nvapi-[A-Za-z0-9_-]{20,}")
LEGACY_KEY = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
PLACEHOLDER = re.compile(r"(?i)(change.?me|placeholder|example|your[-_ ]|todo|xxx+|dummy|rehearsal|<.*>|\*{3,})")


def _read(path: Place, arn: str, what: str, judge: Judge, aws: Aws) -> Iterator[Answer]:
    described = aws.start("secretsmanager", "describe_secret", SecretId=arn)
    value = aws.start("secretsmanager", "get_secret_value", SecretId=arn)
    answer = found(described, "ResourceNotFoundException")
    if answer is None:
        yield fault(path, f"there is no secret {arn}", f"aws secretsmanager create-secret, with {what} as its text")
        return
    name = answer["Name"]
    if answer.get("DeletedDate"):
        hint = f"aws secretsmanager restore-secret --secret-id {name}"
        yield fault(path, f"the secret {name} is scheduled for deletion", hint)
        return
    yield from together(_value(path, name, what, judge, value), _key(path, name, answer, aws))


def _value(path: Place, name: str, what: str, judge: Judge, asked: Pending) -> Iterator[Answer]:
    answer = found(asked, "ResourceNotFoundException")  # a secret without a current version
    if answer is None:
        yield fault(path, f"the secret {name} has no value", _put(name, what))
        return
    text = answer.pop("SecretString", None)  # out of the answer, which lives as long as the questions
    binary = answer.pop("SecretBinary", None)
    if text is None:
        reason = "is binary, not text" if binary else "was read already"
        yield fault(path, f"the secret {name} {reason}", _put(name, what))
        return
    verdict = judge(text)
    if verdict is None:
        yield ok(path, f"the secret {name} has the form of {what}")
    else:
        level, problem = verdict
        make = fault if level == "fault" else warning
        yield make(path, f"the secret {name} {problem}", _put(name, what))


def _put(name: str, what: str) -> str:
    return f"aws secretsmanager put-secret-value --secret-id {name} --secret-string file://... ({what} alone)"


def _key(path: Place, name: str, answer: dict[str, Any], aws: Aws) -> Iterator[Answer]:
    """The head node's own policy lets it decrypt its secrets with any key (stacks/cluster.py); the key has to agree."""
    key = answer.get("KmsKeyId", "")
    if not key or key.endswith("alias/aws/secretsmanager"):
        return
    account, owner = account_id(aws), key.split(":")[4] if key.startswith("arn:") else ""
    if owner and owner != account:
        text = f"the secret {name} is encrypted with a key of account {owner}"
        yield warning(path, text, "the key's policy has to let the head node's role decrypt")
        return
    if "alias/" in key:  # the policy is not to be had by an alias
        key = aws.call("kms", "describe_key", KeyId=key)["KeyMetadata"]["Arn"]
    document = aws.call("kms", "get_key_policy", KeyId=key, PolicyName="default")["Policy"]
    if not is_left_to_iam(document, account, ["kms:Decrypt"]):
        text = f"the secret {name} is encrypted with the key {key}, whose policy leaves kms:Decrypt to no IAM policy"
        yield warning(path, text, f"allow kms:Decrypt to arn:{partition(aws.region)}:iam::{account}:root in its policy")


def judge_ngc(text: str) -> tuple[str, str] | None:
    """What is wrong with an NGC key, as (level, problem); None when nothing is. The problem never quotes the key."""
    key = text.rstrip("\r\n")
    if not key.strip():
        return "fault", "is empty"
    if key.lstrip().startswith("{"):
        return "fault", "is JSON: the download takes the whole text for the key"
    if key != key.strip() or any(sign.isspace() for sign in key):
        return "fault", "has blanks or line breaks in or around the key"
    has_form = PERSONAL_KEY.fullmatch(key) or LEGACY_KEY.fullmatch(key)
    if PLACEHOLDER.search(key) and not has_form:  # a real key may hold such letters by chance
        return "fault", "is a placeholder"
    if not has_form:
        return "warning", "has no form of an NGC key (nvapi-..., or 84 letters and digits)"
    return ("warning", "ends in a line break, which some tools take for a part of the key") if text != key else None


def judge_password(text: str) -> tuple[str, str] | None:
    """The same for a database password; the problem never quotes it."""
    if not text.strip():
        return "fault", "is empty"
    if text.lstrip().startswith("{"):
        return "fault", "is JSON: ParallelCluster takes the whole text for the password"
    if "#" in text:
        return "fault", "has a #, where slurmdbd.conf begins a comment"
    if any(sign.isspace() for sign in text):
        return "fault", "has blanks or line breaks in it"
    if PLACEHOLDER.fullmatch(text):
        return "fault", "is a placeholder"
    return None


def judge_munge(text: str) -> tuple[str, str] | None:
    """The same for a munge key; the problem never quotes it."""
    try:
        bits = 8 * len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return "fault", "is no munge key in base64"
    if not MUNGE_BITS[0] <= bits <= MUNGE_BITS[1]:
        return "fault", f"holds a key of {bits} bits; munge takes 256 to 8192"
    return None


def _ngc(settings: Settings, aws: Aws) -> Iterator[Answer]:
    arn = settings.ngc_secret_arn or ""
    yield from _read(NGC, arn, "an NGC key", judge_ngc, aws)


def _database(settings: Settings, aws: Aws) -> Iterator[Answer]:
    database = settings.slurm.database
    if database is None:
        return
    if database.password_secret_arn == settings.ngc_secret_arn:
        yield fault(DATABASE, "the secret is the one of the NGC key", "make one for the database's password")
        return
    yield from _read(DATABASE, database.password_secret_arn, "a password", judge_password, aws)


def _munge(settings: Settings, aws: Aws) -> Iterator[Answer]:
    external = settings.slurm.external_slurmdbd
    arn = external.munge_key_secret_arn if external else None
    if arn:
        yield from _read(MUNGE, arn, "a munge key in base64", judge_munge, aws)


def _has_munge_key(settings: Settings) -> bool:
    external = settings.slurm.external_slurmdbd
    return external is not None and external.munge_key_secret_arn is not None


PERMISSIONS = (
    "secretsmanager:DescribeSecret",
    "secretsmanager:GetSecretValue",
    "sts:GetCallerIdentity",
    "kms:DescribeKey",
    "kms:GetKeyPolicy",
)
QUESTIONS = (
    Question(
        name="ngc-secret",
        asks="Is the secret there, can it be read, and does it look like an NGC key?",
        why="A wrong key shows as 401 from the registry, hours later, in a log on the head node.",
        source="enroot issues 161 and 241; NGC user guide, API keys",
        permissions=PERMISSIONS,
        finds=(Status.FAULT, Status.WARNING),
        ask=_ngc,
        applies=lambda s: s.ngc_secret_arn is not None,
    ),
    Question(
        name="database-secret",
        asks="Is the database's password there, can it be read, and can slurmdbd use it?",
        why="A # ends the line in slurmdbd.conf: accounting fails, and the head node's boot with it.",
        source="slurmdbd.conf manual; ParallelCluster user guide, SlurmSettings / Database",
        permissions=PERMISSIONS,
        ask=_database,
        applies=lambda s: s.slurm.database is not None,
    ),
    Question(
        name="munge-secret",
        asks="Is the munge key of the external slurmdbd there, can it be read, and is it a key?",
        why="With another key slurmctld and slurmdbd do not believe each other, and accounting stays empty.",
        source="ParallelCluster 3.16.1, secret_validators.py; aws-parallelcluster issue 6398",
        permissions=PERMISSIONS,
        ask=_munge,
        applies=_has_munge_key,
    ),
)
