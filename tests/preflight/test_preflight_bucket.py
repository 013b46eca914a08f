"""The bucket: its place and owner, its policy and key, and what lies in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_services import KEY_ARN, KEY_ID, OTHER_ACCOUNT, bucket, bucket_policy, encrypted, key, objects, policy
from preflight_cases import REGION, Case, all_of, check, denied

from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
NAME = "corp-training-data"
PATH = ("storage", "bucket")
PLAIN: dict[str, Any] = {"storage": {"bucket": NAME}}
LINKED: dict[str, Any] = {"storage": {"bucket": NAME, "associations": [{"path": "/datasets", "prefix": "dataset/"}]}}
EXPORTED: dict[str, Any] = {"storage": {"bucket": NAME, "associations": [
    {"path": "/results", "prefix": "results/", "import_changes": False, "export_changes": True}]}}  # fmt: skip
THERE = bucket(NAME)
EXCEPT = "except aws:PrincipalArn */aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/* from the Deny"
ALIAS = f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/training"
MISSING_KEY = KEY_ARN.replace("11111111", "99999999")
FSX_STATEMENT = {
    "Effect": "Allow",
    "Principal": {"AWS": "*"},
    "Action": ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
    "Resource": "*",
    "Condition": {
        "StringEquals": {"kms:CallerAccount": ACCOUNT, "kms:ViaService": f"s3.{REGION}.amazonaws.com"},
        "StringLike": {"aws:userid": "*:FSx"},
    },
}
NODES_STATEMENT = {**FSX_STATEMENT, "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:role/nodes"}}


def deny(**more: Any) -> dict[str, Any]:
    """A statement that denies everything in the bucket to everybody."""
    arns = [f"arn:aws:s3:::{NAME}", f"arn:aws:s3:::{NAME}/*"]
    return {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": arns, **more}


def with_policy(*statements: dict[str, Any]) -> Callable[[PreflightAws], None]:
    return all_of(THERE, bucket_policy(NAME, *statements))


def with_key(*statements: dict[str, Any]) -> Callable[[PreflightAws], None]:
    return all_of(THERE, key(*statements), encrypted(NAME))


def disabled(aws: PreflightAws) -> None:
    aws.clients("kms").disable_key(KeyId=KEY_ID)


def closed(aws: PreflightAws) -> None:
    """A policy of the key that names one administrator and leaves nothing to the account's IAM."""
    statement = {**NODES_STATEMENT, "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:role/security"}}
    aws.clients("kms").put_key_policy(KeyId=KEY_ID, PolicyName="default", Policy=policy(statement))


def alias(aws: PreflightAws) -> None:
    aws.clients("kms").create_alias(AliasName="alias/training", TargetKeyId=KEY_ID)


def dying(aws: PreflightAws) -> None:
    aws.clients("kms").schedule_key_deletion(KeyId=KEY_ID)


def public(aws: PreflightAws) -> None:
    aws.clients("s3").delete_public_access_block(Bucket=NAME)


def access(name: str, status: Status, text: str, arrange: Callable[[PreflightAws], object], **more: Any) -> Case:
    return Case("bucket-access", name, status, text, PATH, arrange=arrange, **{"settings": PLAIN, **more})


DENIES = f"the policy of {NAME} denies s3:ListBucket, s3:GetObject"
NOTHING_DENIED = f"the policy of {NAME} denies nothing that FSx or the nodes do"
CASES = [
    Case("bucket", "there", OK, f"{NAME} is in {REGION} and belongs to {ACCOUNT}", PATH, settings=PLAIN, arrange=THERE),
    Case("bucket", "missing", FAULT, f"there is no bucket {NAME}", PATH,
         "correct the name, or leave it out to have one made", settings=PLAIN),
    Case("bucket", "elsewhere", FAULT, f"{NAME} is in eu-west-1, the cluster in {REGION}", PATH,
         "take a bucket of the cluster's region: FSx imports changes from no other (import_changes: false does without)",
         settings=LINKED, arrange=bucket(NAME, "eu-west-1")),
    Case("bucket", "elsewhere, only exported to", WARNING,
         f"{NAME} is in eu-west-1, the cluster in {REGION}: transfer between them is paid for", PATH,
         settings=EXPORTED, arrange=bucket(NAME, "eu-west-1")),
    Case("bucket", "elsewhere without links", WARNING,
         f"{NAME} is in eu-west-1, the cluster in {REGION}: transfer between them is paid for", PATH, settings=PLAIN,
         arrange=bucket(NAME, "eu-west-1")),
    Case("bucket", "foreign", WARNING, f"{NAME} belongs to another account than {ACCOUNT}", PATH,
         "its owner has to allow FSx's role and the head node's in the bucket's policy", settings=PLAIN,
         arrange=bucket(NAME, owner=OTHER_ACCOUNT)),
    denied("s3:HeadBucket", "bucket", "s3:ListBucket", settings=PLAIN, arrange=THERE),
    denied("sts:GetCallerIdentity", "bucket", settings=PLAIN, arrange=THERE),
    access("no policy", OK, f"{NAME} has no bucket policy", THERE),
    access("prefix of others", OK, NOTHING_DENIED, with_policy(deny(Resource=f"arn:aws:s3:::{NAME}/private/*")),
           settings=LINKED),
    access("prefix of a link", FAULT, f"the policy of {NAME} denies s3:GetObject, s3:PutObject to everybody"
           " (a statement without Sid)", with_policy(deny(Action=["s3:GetObject", "s3:PutObject"],
                                                          Resource=f"arn:aws:s3:::{NAME}/dataset/train/*")),
           settings=LINKED, hint=EXCEPT),
    access("nothing for FSx without links", OK, NOTHING_DENIED,
           with_policy(deny(Action=["s3:PutBucketNotification", "s3:GetObject"]))),
    access("everybody, without links", FAULT, f"the policy of {NAME} denies s3:PutObject, s3:AbortMultipartUpload to"
           " everybody (a statement without Sid)", with_policy(deny()),
           hint="except the role of the head node from the Deny"),
    access("endpoint only, without links", WARNING, f"the policy of {NAME} denies s3:PutObject,"
           " s3:AbortMultipartUpload under conditions: aws:sourcevpce (a statement without Sid)",
           with_policy(deny(Condition={"StringNotEquals": {"aws:SourceVpce": "vpce-1"}})),
           hint="make sure that the nodes' requests pass; if not, except the role of the head node from the Deny"),
    access("TLS only", OK, NOTHING_DENIED,
           with_policy(deny(Condition={"Bool": {"aws:SecureTransport": "false"}}),
                       deny(Condition={"NumericLessThan": {"s3:TlsVersion": "1.2"}}))),
    access("other prefix", OK, NOTHING_DENIED, with_policy(deny(Resource="arn:aws:s3:::other/*"))),
    access("other actions", OK, NOTHING_DENIED, with_policy(deny(Action=["s3:DeleteBucket"]))),
    access("one user", OK, NOTHING_DENIED, with_policy(deny(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:user/eve"}))),
    access("all but named", FAULT, f"{DENIES} to all but named principals (statement OnlyUs)",
           with_policy(deny(Sid="OnlyUs", Principal=None, NotPrincipal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"})),
           hint=EXCEPT, settings=LINKED),
    access("everybody", FAULT, f"{DENIES} to everybody (a statement without Sid)", with_policy(deny()), hint=EXCEPT,
           settings=LINKED),
    access("endpoint only", FAULT,
           f"{DENIES} by aws:sourcevpce: FSx comes from AWS's own network (statement OnlyEndpoint)",
           with_policy(deny(Sid="OnlyEndpoint", Condition={"StringNotEquals": {"aws:SourceVpce": "vpce-1"}})),
           hint=EXCEPT, settings=LINKED),
    access("roles only", WARNING, f"{DENIES} under conditions: aws:principalarn (statement OnlyRoles)",
           with_policy(deny(Sid="OnlyRoles", Condition={"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/ml"}})),
           settings=LINKED),
    access("key of S3", OK, f"{NAME} is encrypted with keys of S3", THERE),
    access("aws/s3", OK, f"{NAME} is encrypted with the account's aws/s3 key", all_of(THERE, encrypted(NAME, ""))),
    access("key for FSx", OK, f"the key of {NAME} is enabled, and its policy lets FSx in", with_key(FSX_STATEMENT),
           settings=LINKED),
    access("key by its alias", OK, f"the key of {NAME} is enabled, and its policy lets FSx in",
           all_of(with_key(FSX_STATEMENT), alias, encrypted(NAME, ALIAS)), settings=LINKED),
    access("key disabled", FAULT, f"the key of {NAME} is Disabled: {KEY_ARN}",
           all_of(with_key(FSX_STATEMENT), disabled), hint="enable it: aws kms enable-key"),
    access("key dying", FAULT, f"the key of {NAME} is PendingDeletion: {KEY_ARN}",
           all_of(with_key(FSX_STATEMENT), dying)),
    access("key missing", FAULT, f"the key of {NAME} is not there: {MISSING_KEY}",
           all_of(THERE, encrypted(NAME, MISSING_KEY))),
    access("key without FSx", FAULT, f"the policy of {NAME}'s key does not let FSx use it: {KEY_ARN}",
           with_key(NODES_STATEMENT), settings=LINKED,
           hint="allow kms:Decrypt and kms:GenerateDataKey* to * with kms:ViaService s3 and aws:userid *:FSx in its"
           " policy"),
    access("key without FSx or links", OK,
           f"the key of {NAME} is enabled, and its policy leaves it to IAM who uses it", with_key()),
    access("key that is closed", WARNING,
           f"the policy of {NAME}'s key leaves kms:Decrypt and kms:GenerateDataKey to no IAM policy: {KEY_ARN}",
           all_of(with_key(), closed),
           hint="let the head node's role use it: acceptance writes its reports to the bucket"),
    denied("sts:GetCallerIdentity", "bucket-access", settings=PLAIN, arrange=with_key()),
    access("blocked", OK, f"public access to {NAME} is blocked", THERE),
    access("public", WARNING, f"public access to {NAME} is not blocked: BlockPublicAcls, IgnorePublicAcls,"
           " BlockPublicPolicy, RestrictPublicBuckets", all_of(THERE, public)),
    denied("s3:HeadBucket", "bucket-access", "s3:ListBucket", settings=PLAIN, arrange=THERE),
    denied("s3:GetBucketPolicy", "bucket-access", settings=PLAIN, arrange=THERE),
    denied("s3:GetBucketEncryption", "bucket-access", "s3:GetEncryptionConfiguration", settings=PLAIN, arrange=THERE),
    denied("s3:GetPublicAccessBlock", "bucket-access", "s3:GetBucketPublicAccessBlock", settings=PLAIN, arrange=THERE),
    denied("kms:DescribeKey", "bucket-access", settings=PLAIN, arrange=with_key(FSX_STATEMENT)),
    denied("kms:GetKeyPolicy", "bucket-access", settings=PLAIN, arrange=with_key(FSX_STATEMENT)),
    Case("bucket-prefixes", "full", OK, f"s3://{NAME}/dataset/ has objects for /datasets",
         ("storage", "associations", 0, "prefix"), settings=LINKED,
         arrange=all_of(THERE, objects(NAME, dataset__a="1", dataset__b="2"))),
    Case("bucket-prefixes", "empty", WARNING, f"s3://{NAME}/dataset/ is empty: /datasets would be, too",
         ("storage", "associations", 0, "prefix"), "correct the prefix, unless the cluster is to fill it",
         settings=LINKED, arrange=all_of(THERE, objects(NAME, datasets__a="1"))),
    denied("s3:ListObjectsV2", "bucket-prefixes", "s3:ListBucket", settings=LINKED, arrange=THERE),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bucket(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
