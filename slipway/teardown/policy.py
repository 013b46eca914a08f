"""The IAM policy for `slipway teardown --delete-data`."""

from __future__ import annotations

from typing import Any

from slipway.aws.policy import allow, document
from slipway.leftovers import READING
from slipway.regions import partition
from slipway.settings import Settings
from slipway.stack_names import stack_names

WATCHING = (
    "cloudformation:DescribeStacks",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeVpcEndpoints",
    "fsx:DescribeDataRepositoryAssociations",
)
OF_BUCKETS = (
    "s3:AbortMultipartUpload",
    "s3:DeleteBucket",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:ListBucketMultipartUploads",
    "s3:ListBucketVersions",
)
# Statement, actions, resources as SERVICE:RESOURCE; what has no name of ours is deleted only with the cluster's tag.
TAGGED = (
    (
        "DeleteFileSystem",
        ("fsx:DeleteBackup", "fsx:DeleteDataRepositoryAssociation", "fsx:DeleteFileSystem"),
        ("fsx:file-system/*", "fsx:association/*", "fsx:backup/*"),
    ),
    (
        "DeleteDisksAndGroups",
        ("ec2:DeleteSecurityGroup", "ec2:DeleteVolume"),
        ("ec2:security-group/*", "ec2:volume/*"),
    ),
    ("DeleteMetrics", ("aps:DeleteWorkspace",), ("aps:workspace/*",)),
)


def teardown_policy(settings: Settings) -> dict[str, Any]:
    """An identity policy for what teardown itself calls.

    CloudFormation deletes what is in the stacks with the role of the CDK's bootstrap stack, or without one with the
    caller's own permissions, which `slipway policy deploy` lists.
    """
    place, region, name = partition(settings.region), settings.region, settings.name
    ours = {"StringEquals": {"aws:ResourceTag/project": name}}

    def arns(*resources: str) -> list[str]:
        return [
            f"arn:{place}:{service}:{region}:*:{rest}" for service, _, rest in (r.partition(":") for r in resources)
        ]

    stacks = (f"cloudformation:stack/{stack}/*" for stack in (*stack_names(name).values(), name))
    groups = (
        f"logs:log-group:{prefix}*" for prefix in (f"/aws/parallelcluster/{name}-", f"/aws/lambda/{name}-", f"{name}-")
    )
    bucket = f"arn:{place}:s3:::{name}-storage-bucket*"
    return document(
        [
            allow("Read", [*READING, *WATCHING], ["*"]),
            allow("DeleteStacks", ["cloudformation:DeleteStack"], arns(*stacks)),
            *(allow(sid, actions, arns(*resources), Condition=ours) for sid, actions, resources in TAGGED),
            allow("DeleteSnapshots", ["ec2:DeleteSnapshot"], [f"arn:{place}:ec2:{region}::snapshot/*"], Condition=ours),
            allow(
                "RemoveRules",
                ["ec2:RevokeSecurityGroupEgress", "ec2:RevokeSecurityGroupIngress"],
                arns("ec2:security-group/*"),
            ),
            allow("EmptyBucket", OF_BUCKETS, [bucket, f"{bucket}/*"]),
            allow("DeleteLogs", ["logs:DeleteLogGroup"], arns(*groups)),
            allow("DeleteParameters", ["ssm:DeleteParameter"], arns(f"ssm:parameter/slipway/{name}/*")),
        ]
    )
