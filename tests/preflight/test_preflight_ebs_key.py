"""The default key of EBS: AWS's own, and a customer's in each state and with each policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_services import KEY_ARN, KEY_ID, OTHER_ACCOUNT, allow, key, policy
from moto.ec2.models import ec2_backends
from preflight_cases import REGION, Case, all_of, check, denied

from rehearsal.cloud_model import ACCOUNT
from slipway.preflight.model import Answer, Status
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
PATH = ("head_node", "policy_arns")
THEIRS = KEY_ARN.replace(ACCOUNT, OTHER_ACCOUNT)
POLICY_ARN = f"arn:aws:iam::{ACCOUNT}:policy/ebs-key"
NAMES = "kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext, kms:ReEncrypt*"
WITH_POLICY = {"head_node": {"policy_arns": [POLICY_ARN]}}
CLOSED = f"the default key of EBS, {KEY_ARN}, is a customer's, and the head node may not use it: no compute node starts"
OPEN = (
    f"allow {NAMES} to AWS: * in its policy, with kms:CallerAccount {ACCOUNT} and "
    f"kms:ViaService ec2.{REGION}.amazonaws.com"
)
ANOTHER = f"enable the key, or name another: aws ec2 modify-ebs-default-kms-key-id --region {REGION}"
THROUGH_EC2: dict[str, Any] = {
    "Effect": "Allow",
    "Principal": {"AWS": "*"},
    "Action": ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
    "Resource": "*",
    "Condition": {"StringEquals": {"kms:CallerAccount": ACCOUNT, "kms:ViaService": f"ec2.{REGION}.amazonaws.com"}},
}


def default(arn: str = KEY_ARN) -> Callable[[PreflightAws], None]:
    def arrange(_: PreflightAws) -> None:
        ec2_backends[ACCOUNT][REGION].default_kms_key_id = arn

    return arrange


def managed(*actions: str) -> Callable[[PreflightAws], None]:
    return lambda aws: aws.clients("iam").create_policy(PolicyName="ebs-key", PolicyDocument=policy(allow(*actions)))


def disabled(aws: PreflightAws) -> None:
    aws.clients("kms").disable_key(KeyId=KEY_ID)


def without_delegation(aws: PreflightAws) -> None:
    """A policy that names one user alone: no IAM policy of the account counts."""
    user = {"AWS": f"arn:aws:iam::{ACCOUNT}:user/keeper"}
    document = policy({"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": user})
    aws.clients("kms").put_key_policy(KeyId=KEY_ARN, PolicyName="default", Policy=document)


CUSTOMER = all_of(key(), default())
ALLOWED = all_of(CUSTOMER, managed("kms:*"))


def ebs(name: str, status: Status, text: str, **more: Any) -> Case:
    return Case("ebs-key", name, status, text, PATH, **more)


CASES = [
    ebs("AWS's", OK, "EBS encrypts with AWS's own key (alias/aws/ebs) by default"),
    ebs("customer's", FAULT, CLOSED, arrange=CUSTOMER,
        hint=f"{OPEN}; or name a managed policy with them in head_node.policy_arns"),
    ebs("customer's, open through EC2", OK,
        f"the policy of {KEY_ARN}, EBS's default key, lets every role of the account use it",
        arrange=all_of(key(THROUGH_EC2), default())),
    ebs("customer's, with a policy of the head node", OK, f"a policy of the head node lets it use {KEY_ARN}, EBS's default key",
        settings=WITH_POLICY, arrange=ALLOWED),
    ebs("customer's, with another policy", FAULT, CLOSED, settings=WITH_POLICY,
        arrange=all_of(CUSTOMER, managed("kms:Decrypt"))),
    ebs("customer's, with a policy that is not there", FAULT, CLOSED, settings=WITH_POLICY, arrange=CUSTOMER),
    ebs("closed to IAM", FAULT, CLOSED, settings=WITH_POLICY, arrange=all_of(ALLOWED, without_delegation), hint=OPEN),
    ebs("disabled", FAULT, f"the default key of EBS, {KEY_ARN}, is Disabled: no instance starts", hint=ANOTHER,
        arrange=all_of(CUSTOMER, disabled)),
    ebs("gone", FAULT, f"the default key of EBS, {KEY_ARN}, does not exist: no instance starts", hint=ANOTHER,
        arrange=default()),
    ebs("another account's", WARNING,
        f"the default key of EBS, {THEIRS}, is another account's: its policy has to let the head node's role use it",
        hint=f"allow {NAMES} there", arrange=default(THEIRS)),
    denied("ec2:GetEbsDefaultKmsKeyId", "ebs-key"),
    denied("kms:DescribeKey", "ebs-key", arrange=CUSTOMER),
    denied("kms:GetKeyPolicy", "ebs-key", arrange=CUSTOMER),
    denied("sts:GetCallerIdentity", "ebs-key", arrange=CUSTOMER),
    denied("iam:GetPolicy", "ebs-key", arrange=ALLOWED, settings=WITH_POLICY),
    denied("iam:GetPolicyVersion", "ebs-key", arrange=ALLOWED, settings=WITH_POLICY),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ebs_key(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))
