"""The bucket behind the file system: there, in the region, open to FSx, and what lies under the prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.account import account_id
from slipway.preflight.asking import found, together
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.preflight.policy import (
    Statement,
    condition_keys,
    covers_action,
    covers_resource,
    is_left_to_iam,
    principals,
    statements,
)
from slipway.regions import partition
from slipway.settings import RESULTS_PREFIX, Settings

BUCKET = ("storage", "bucket")
ONE = {"MaxItems": 1, "PageSize": 1}
FSX_ACTIONS = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:GetBucketAcl", "s3:PutBucketNotification")
"""What FSx's service-linked role does to a linked bucket. Source: FSx for Lustre user guide, service-linked roles."""
NODE_ACTIONS = ("s3:PutObject", "s3:AbortMultipartUpload")
"""What the head node does to it, below RESULTS_PREFIX (stacks/storage.py)."""
KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
FSX_ROLE = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
TRANSPORT_KEYS = {"aws:securetransport", "s3:tlsversion"}  # FSx, the CLI and the SDKs speak TLS 1.2 and newer
WAYS_IN = {"aws:sourcevpce", "aws:sourcevpc", "aws:sourceip", "aws:vpcsourceip"}  # FSx comes by none of these
CALLER_KEYS = {
    "aws:principalarn", "aws:userid", "aws:principalaccount", "aws:principalorgid", "aws:principalorgpaths",
    "aws:principaltype", "aws:principalisawsservice", "aws:viaawsservice", "aws:principaltag",
}  # fmt: skip
EXCEPT_FSX = "except aws:PrincipalArn */aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/* from the Deny"
KEY_STATES = {
    "Disabled": "enable it: aws kms enable-key",
    "PendingDeletion": "keep it: aws kms cancel-key-deletion, then aws kms enable-key",
    "PendingImport": "import its key material",
    "Unavailable": "connect its key store",
}


def _name(settings: Settings) -> str:
    return settings.storage.bucket or ""


def _bucket(settings: Settings, aws: Aws) -> Iterator[Answer]:
    name = _name(settings)
    asked = aws.start("s3", "head_bucket", Bucket=name)
    account = account_id(aws)
    own = aws.start("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=account)
    answer = found(asked, "404", "NoSuchBucket")
    if answer is None:
        yield fault(BUCKET, f"there is no bucket {name}", "correct the name, or leave it out to have one made")
        return
    region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", "")
    if region and region != settings.region:
        text = f"{name} is in {region}, the cluster in {settings.region}"
        if any(link.import_changes for link in settings.storage.associations):
            hint = "take a bucket of the cluster's region: FSx imports changes from no other"
            yield fault(BUCKET, text, f"{hint} (import_changes: false does without)")
        else:
            yield warning(BUCKET, f"{text}: transfer between them is paid for", "take a bucket of the cluster's region")
    elif _is_foreign(own):
        text = f"{name} belongs to another account than {account}"
        yield warning(BUCKET, text, "its owner has to allow FSx's role and the head node's in the bucket's policy")
    else:
        yield ok(BUCKET, f"{name} is in {region or settings.region} and belongs to {account}")


def _is_foreign(own: Pending) -> bool:
    """Whether S3 denies to whom names this account as the owner, what it allows otherwise."""
    try:
        own.result()
    except Unasked as error:
        return bool(error.permission)
    return False


def _if_there(settings: Settings, aws: Aws, *parts: Iterator[Answer]) -> Iterator[Answer]:
    """The answers of `parts`, or no answer if the bucket does not exist: another question reports that."""
    asked = aws.start("s3", "head_bucket", Bucket=_name(settings))
    try:
        if found(asked, "404", "NoSuchBucket") is None:
            return
    except (Refused, Unasked):
        parts = (*parts, _nothing(asked))  # after the answers that do not need the bucket
    yield from together(*parts)


def _nothing(asked: Pending) -> Iterator[Answer]:
    """No answer; raises what the call raises."""
    asked.result()
    yield from ()


def _access(settings: Settings, aws: Aws) -> Iterator[Answer]:
    name = _name(settings)
    policy = aws.start("s3", "get_bucket_policy", Bucket=name)
    encryption = aws.start("s3", "get_bucket_encryption", Bucket=name)
    public = aws.start("s3", "get_public_access_block", Bucket=name)
    parts = (_policy(settings, policy), _encryption(settings, aws, encryption), _public(name, public))
    yield from _if_there(settings, aws, *parts)


def _policy(settings: Settings, asked: Pending) -> Iterator[Answer]:
    name = _name(settings)
    answer = found(asked, "NoSuchBucketPolicy", "NoSuchBucket")
    if answer is None:
        yield ok(BUCKET, f"{name} has no bucket policy")
        return
    denied = [(item, _denied(item, settings)) for item in statements(answer["Policy"])]
    for statement, actions in denied:
        if actions:
            yield _judged(settings, statement, ", ".join(actions[:2]))
    if not any(actions for _, actions in denied):
        yield ok(BUCKET, f"the policy of {name} denies nothing that FSx or the nodes do")


def _denied(statement: Statement, settings: Settings) -> list[str]:
    """What of that which FSx and the nodes do it denies to everybody but some."""
    keys = condition_keys(statement)
    everybody = "NotPrincipal" in statement or "*" in principals(statement)
    if statement.get("Effect") != "Deny" or not everybody or (keys and keys <= TRANSPORT_KEYS):
        return []
    arn = f"arn:{partition(settings.region)}:s3:::{_name(settings)}"
    links = settings.storage.associations
    fsx = (arn, *(f"{arn}/{link.prefix}*" for link in links)) if links else ()
    denied = covers_action(statement, FSX_ACTIONS) if covers_resource(statement, fsx) else []
    results = (
        covers_action(statement, NODE_ACTIONS) if covers_resource(statement, (f"{arn}/{RESULTS_PREFIX}*",)) else []
    )
    return list(dict.fromkeys([*denied, *results]))


def _judged(settings: Settings, statement: Statement, actions: str) -> Answer:
    label = f"statement {statement['Sid']}" if statement.get("Sid") else "a statement without Sid"
    denies = f"the policy of {_name(settings)} denies {actions}"
    keys, links = condition_keys(statement), settings.storage.associations
    hint = EXCEPT_FSX if links else "except the role of the head node from the Deny"
    if "NotPrincipal" in statement:
        return fault(BUCKET, f"{denies} to all but named principals ({label})", hint)
    if not keys:
        return fault(BUCKET, f"{denies} to everybody ({label})", hint)
    if links and keys & WAYS_IN and not keys & CALLER_KEYS:
        text = f"{denies} by {', '.join(sorted(keys & WAYS_IN))}: FSx comes from AWS's own network ({label})"
        return fault(BUCKET, text, hint)
    who = "FSx's role and the nodes'" if links else "the nodes' requests"
    text = f"{denies} under conditions: {', '.join(sorted(keys))} ({label})"
    return warning(BUCKET, text, f"make sure that {who} pass; if not, {hint}")


def _encryption(settings: Settings, aws: Aws, asked: Pending) -> Iterator[Answer]:
    name = _name(settings)
    answer = found(asked, "ServerSideEncryptionConfigurationNotFoundError", "NoSuchBucket")
    rules = answer["ServerSideEncryptionConfiguration"]["Rules"] if answer else []
    default = rules[0].get("ApplyServerSideEncryptionByDefault", {}) if rules else {}
    key = default.get("KMSMasterKeyID", "")
    if not default.get("SSEAlgorithm", "AES256").startswith("aws:kms"):
        yield ok(BUCKET, f"{name} is encrypted with keys of S3")
    elif not key or key.endswith("alias/aws/s3"):
        yield ok(BUCKET, f"{name} is encrypted with the account's aws/s3 key")
    else:
        yield from _key(settings, aws, key)


def _key(settings: Settings, aws: Aws, key: str) -> Iterator[Answer]:
    described = aws.start("kms", "describe_key", KeyId=key)
    if ":alias/" not in key and not key.startswith("alias/"):  # the policy is not to be had by an alias
        aws.start("kms", "get_key_policy", KeyId=key, PolicyName="default")
    answer = found(described, "NotFoundException")
    if answer is None:
        text = f"the key of {_name(settings)} is not there: {key}"
        yield fault(BUCKET, text, "give the bucket another key: aws s3api put-bucket-encryption")
        return
    facts = answer["KeyMetadata"]
    state = facts.get("KeyState", "Enabled")
    if facts.get("KeyManager") == "AWS":
        yield ok(BUCKET, f"{_name(settings)} is encrypted with the account's aws/s3 key")
    elif state != "Enabled":
        yield fault(BUCKET, f"the key of {_name(settings)} is {state}: {key}", KEY_STATES.get(state, "repair it"))
    else:
        yield from _key_policy(settings, aws, key if "alias/" not in key else facts["Arn"])


def _key_policy(settings: Settings, aws: Aws, key: str) -> Iterator[Answer]:
    document = aws.call("kms", "get_key_policy", KeyId=key, PolicyName="default")["Policy"]
    if settings.storage.associations:
        yield _key_for_fsx(_name(settings), key, document)
    if is_left_to_iam(document, account_id(aws), KEY_ACTIONS):
        yield ok(BUCKET, f"the key of {_name(settings)} is enabled, and its policy leaves it to IAM who uses it")
    else:
        text = f"the policy of {_name(settings)}'s key leaves {' and '.join(KEY_ACTIONS)} to no IAM policy: {key}"
        yield warning(BUCKET, text, "let the head node's role use it: acceptance writes its reports to the bucket")


def _key_for_fsx(bucket: str, key: str, document: str) -> Answer:
    """FSx's role has no permission for keys: the key's policy has to name the role, delegation is not enough."""
    allowing = [item for item in statements(document) if item.get("Effect") == "Allow"]
    allowed = {action for item in allowing if _names_fsx(item) for action in covers_action(item, KEY_ACTIONS)}
    if allowed >= set(KEY_ACTIONS):
        return ok(BUCKET, f"the key of {bucket} is enabled, and its policy lets FSx in")
    text = f"the policy of {bucket}'s key does not let FSx use it: {key}"
    hint = "allow kms:Decrypt and kms:GenerateDataKey* to * with kms:ViaService s3 and aws:userid *:FSx in its policy"
    return fault(BUCKET, text, hint)


def _names_fsx(statement: Statement) -> bool:
    who = principals(statement)
    return "*" in who or any(FSX_ROLE in principal for principal in who)


def _public(name: str, asked: Pending) -> Iterator[Answer]:
    answer = found(asked, "NoSuchPublicAccessBlockConfiguration", "NoSuchBucket")
    block: dict[str, Any] = answer["PublicAccessBlockConfiguration"] if answer else {}
    off = [key for key in ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
           if not block.get(key)]  # fmt: skip
    if off:
        text = f"public access to {name} is not blocked: {', '.join(off)}"
        yield warning(BUCKET, text, f"aws s3api put-public-access-block --bucket {name} with all four true")
    else:
        yield ok(BUCKET, f"public access to {name} is blocked")


def _prefixes(settings: Settings, aws: Aws) -> Iterator[Answer]:
    name = _name(settings)
    links = settings.storage.associations
    asked = {
        link.prefix: aws.start("s3", "list_objects_v2", Bucket=name, Prefix=link.prefix, PaginationConfig=ONE)
        for link in links
    }
    parts = [_prefix(name, link.prefix, link.path, number, asked[link.prefix]) for number, link in enumerate(links)]
    yield from _if_there(settings, aws, *parts)


def _prefix(bucket: str, prefix: str, path: str, number: int, asked: Pending) -> Iterator[Answer]:
    where = ("storage", "associations", number, "prefix")
    answer = found(asked, "NoSuchBucket")
    if answer is None:
        return  # the question about the bucket says it
    if answer.get("Contents"):
        yield ok(where, f"s3://{bucket}/{prefix} has objects for {path}")
    else:
        text = f"s3://{bucket}/{prefix} is empty: {path} would be, too"
        yield warning(where, text, "correct the prefix, unless the cluster is to fill it")


QUESTIONS = (
    Question(
        name="bucket",
        asks="Is the existing bucket there, in the cluster's region, and this account's?",
        why="FSx links only buckets in its region; a wrong name fails after the file system was made.",
        source="FSx for Lustre user guide, linking to a bucket",
        permissions=("s3:ListBucket", "sts:GetCallerIdentity"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_bucket,
        applies=lambda s: s.storage.bucket is not None,
    ),
    Question(
        name="bucket-access",
        asks="Do the bucket's policy, its key and its block of public access fit FSx and the nodes?",
        why='"Unable to validate access to the S3 bucket" is the usual end of an association, 15 min in.',
        source="FSx for Lustre user guide, server-side encrypted buckets and service-linked roles",
        permissions=(
            "s3:ListBucket",
            "s3:GetBucketPolicy",
            "s3:GetEncryptionConfiguration",
            "s3:GetBucketPublicAccessBlock",
            "kms:DescribeKey",
            "kms:GetKeyPolicy",
            "sts:GetCallerIdentity",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=_access,
        applies=lambda s: s.storage.bucket is not None,
    ),
    Question(
        name="bucket-prefixes",
        asks="Is there anything under the prefixes that the file system is to mirror?",
        why="A mistyped prefix gives an empty folder and no error.",
        source="S3 API reference, ListObjectsV2: a prefix without objects is no error",
        permissions=("s3:ListBucket",),
        finds=(Status.WARNING,),
        ask=_prefixes,
        applies=lambda s: s.storage.bucket is not None and bool(s.storage.associations),
    ),
)
