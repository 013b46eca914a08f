"""Permission for keys that the settings cannot name: of secrets and buckets that are there already."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam

from stacks.checks import accept


def grant_any_key(
    policy: iam.ManagedPolicy, service: str, actions: Sequence[str], context: dict[str, list[str]]
) -> None:
    """Let `policy` use any key, yet through `service` only, and only for what `context` names.

    Secrets Manager and S3 put the ARN of the secret or of the object into the encryption context of each request
    (KMS developer guide, encryption context), so the key's own ARN need not be known. The key's policy has to agree.
    """
    region = Stack.of(policy).region
    via = {"kms:ViaService": f"{service}.{region}.{Aws.URL_SUFFIX}"}
    iam.Grant.add_to_principal(
        grantee=policy,
        actions=list(actions),
        resource_arns=[f"arn:{Aws.PARTITION}:kms:{region}:*:key/*"],
        conditions={"StringEquals": via, "StringLike": context},
    )
    finding = f"IAM5[Resource::arn:<AWS::Partition>:kms:{region}:*:key/*]"
    accept(policy, finding, "the encryption context allows the named secrets or objects alone")
