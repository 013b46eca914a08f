"""The key that EBS encrypts with where no other is named: ParallelCluster encrypts every root volume and names none."""

from __future__ import annotations

import json
from collections.abc import Iterator

from slipway.aws.calls import Aws
from slipway.preflight.account import account_id
from slipway.preflight.asking import found
from slipway.preflight.model import EC2_GUIDE, Answer, Question, Status, fault, ok, warning
from slipway.preflight.policy import covers_action, is_left_to_iam, principals, statements
from slipway.settings import Settings
from slipway.settings.source import Place

POLICIES: Place = ("head_node", "policy_arns")
AWS_KEY = "alias/aws/ebs"
# What a role that starts instances with encrypted volumes has to be allowed. Source: EBS user guide, encryption.
ACTIONS = ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
NAMES = ", ".join((*ACTIONS, "kms:ReEncrypt*"))


def _default_key(settings: Settings, aws: Aws) -> Iterator[Answer]:
    id = str(aws.call("ec2", "get_ebs_default_kms_key_id")["KmsKeyId"])
    if id.endswith(AWS_KEY):
        yield ok(POLICIES, f"EBS encrypts with AWS's own key ({AWS_KEY}) by default")
        return
    account = account_id(aws)
    if id.startswith("arn:") and id.split(":")[4] != account:
        text = f"the default key of EBS, {id}, is another account's: its policy has to let the head node's role use it"
        yield warning(POLICIES, text, f"allow {NAMES} there")
        return
    answer = found(aws.start("kms", "describe_key", KeyId=id), "NotFoundException")
    if answer is None:
        yield fault(POLICIES, f"the default key of EBS, {id}, does not exist: no instance starts", _another(settings))
        return
    key = answer["KeyMetadata"]
    if key.get("KeyManager") == "AWS":
        yield ok(POLICIES, "EBS encrypts with AWS's own key by default")
    elif key["KeyState"] != "Enabled":
        text = f"the default key of EBS, {key['Arn']}, is {key['KeyState']}: no instance starts"
        yield fault(POLICIES, text, _another(settings))
    else:
        yield from _customer_key(settings, aws, account, key["Arn"])


def _another(settings: Settings) -> str:
    return f"enable the key, or name another: aws ec2 modify-ebs-default-kms-key-id --region {settings.region}"


def _customer_key(settings: Settings, aws: Aws, account: str, arn: str) -> Iterator[Answer]:
    document = aws.call("kms", "get_key_policy", KeyId=arn, PolicyName="default")["Policy"]
    if _is_open_to_the_account(document):
        yield ok(POLICIES, f"the policy of {arn}, EBS's default key, lets every role of the account use it")
        return
    through_iam = is_left_to_iam(document, account, ACTIONS)
    if through_iam and any(_allows(aws, policy) for policy in settings.head_node.policy_arns):
        yield ok(POLICIES, f"a policy of the head node lets it use {arn}, EBS's default key")
        return
    text = f"the default key of EBS, {arn}, is a customer's, and the head node may not use it: no compute node starts"
    condition = f"kms:ViaService ec2.{settings.region}.amazonaws.com"
    hint = f"allow {NAMES} to AWS: * in its policy, with kms:CallerAccount {account} and {condition}"
    yield fault(
        POLICIES, text, f"{hint}; or name a managed policy with them in head_node.policy_arns" if through_iam else hint
    )


def _is_open_to_the_account(document: str) -> bool:
    """The statement of a key that is open through EC2: for all principals, within conditions that name the account."""
    for item in statements(document):
        if (
            item.get("Effect") == "Allow"
            and "*" in principals(item)
            and len(covers_action(item, ACTIONS)) == len(ACTIONS)
        ):
            return True
    return False


def _allows(aws: Aws, policy_arn: str) -> bool:
    """Whether a managed policy allows the use of some key. Its resources and conditions are not compared."""
    policy = found(aws.start("iam", "get_policy", PolicyArn=policy_arn), "NoSuchEntity")
    if policy is None:
        return False
    version = policy["Policy"]["DefaultVersionId"]
    answer = aws.call("iam", "get_policy_version", PolicyArn=policy_arn, VersionId=version)
    allowed = [
        item for item in statements(json.dumps(answer["PolicyVersion"]["Document"])) if item["Effect"] == "Allow"
    ]
    return set(ACTIONS) <= {action for item in allowed for action in covers_action(item, ACTIONS)}


QUESTIONS = (
    Question(
        name="ebs-key",
        asks="May the head node use the key that EBS encrypts with by default?",
        why="The head node starts the compute nodes; with a customer's key that its role may not use, each of them "
        "ends at once with Client.InternalError.",
        source=f"aws-parallelcluster issue 3667; karpenter-provider-aws issue 1407; {EC2_GUIDE}/EBSEncryption.html",
        permissions=(
            "ec2:GetEbsDefaultKmsKeyId",
            "kms:DescribeKey",
            "kms:GetKeyPolicy",
            "sts:GetCallerIdentity",
            "iam:GetPolicy",
            "iam:GetPolicyVersion",
        ),
        finds=(Status.FAULT, Status.WARNING),
        ask=_default_key,
    ),
)
