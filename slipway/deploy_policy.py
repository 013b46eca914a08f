"""The IAM policies that a platform team gives for one settings file: to who deploys, and to CloudFormation.

`cdk deploy` and `cdk destroy` act through the roles of `cdk bootstrap`: who deploys assumes them, and CloudFormation
makes the resources with the bootstrap's executing role. The second policy is that role's, for
`cdk bootstrap --cloudformation-execution-policies ARN`; without one it may do everything (AdministratorAccess).

Sources: the handlers' permissions in CloudFormation's resource schemas (registry, November 2026); the CDK's bootstrap
template; aws-parallelcluster, cloudformation/custom_resource/cluster.yaml, for what its provider's stack makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slipway.aws.policy import allow, document
from slipway.preflight.actions import actions_needed
from slipway.preflight.bootstrap import QUALIFIER
from slipway.regions import partition
from slipway.settings import Settings

ASSUMED = ("deploy", "file-publishing", "lookup")  # the bootstrap's roles that the CDK CLI uses for these stacks

# What CloudFormation needs to read, change and delete what it made, and the provider's stack in addition to ours.
STANDING: dict[str, tuple[str, ...]] = {
    "ec2": (
        "ec2:Describe*", "ec2:CreateTags", "ec2:DeleteTags", "ec2:DeleteVpc", "ec2:DeleteSubnet",
        "ec2:DeleteInternetGateway", "ec2:DetachInternetGateway", "ec2:ReleaseAddress", "ec2:DeleteNatGateway",
        "ec2:DeleteRouteTable", "ec2:DeleteRoute", "ec2:DisassociateRouteTable", "ec2:DeleteVpcEndpoints",
        "ec2:ModifyVpcEndpoint", "ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress",
        "ec2:RevokeSecurityGroupEgress", "ec2:DisassociateAddress",
    ),
    "fsx": ("fsx:Describe*", "fsx:TagResource", "fsx:UpdateFileSystem", "fsx:DeleteFileSystem",
            "fsx:UpdateDataRepositoryAssociation", "fsx:DeleteDataRepositoryAssociation"),
    "s3": ("s3:DeleteBucket", "s3:DeleteBucketPolicy", "s3:GetBucketPolicy", "s3:PutBucketTagging", "s3:CreateBucket"),
    "logs": ("logs:DeleteLogGroup", "logs:DescribeLogGroups", "logs:TagResource", "logs:DeleteRetentionPolicy",
             "logs:DescribeMetricFilters", "logs:DeleteMetricFilter"),
    "events": ("events:DescribeRule", "events:RemoveTargets", "events:DeleteRule", "events:TagResource"),
    "sns": ("sns:DeleteTopic", "sns:GetTopicAttributes", "sns:TagResource", "sns:Unsubscribe",
            "sns:GetSubscriptionAttributes"),
    "cloudwatch": ("cloudwatch:DeleteAlarms", "cloudwatch:DescribeAlarms", "cloudwatch:TagResource"),
    "budgets": ("budgets:ViewBudget", "budgets:TagResource"),
    "ssm": ("ssm:DeleteParameter", "ssm:GetParameters"),
    "iam": ("iam:GetRole", "iam:GetRolePolicy", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies", "iam:TagRole",
            "iam:DeleteRole", "iam:DetachRolePolicy", "iam:DeleteRolePolicy", "iam:UpdateAssumeRolePolicy"),
    "lambda": ("lambda:GetFunction", "lambda:DeleteFunction", "lambda:TagResource", "lambda:UpdateFunctionCode",
               "lambda:UpdateFunctionConfiguration", "lambda:PublishLayerVersion", "lambda:GetLayerVersion",
               "lambda:DeleteLayerVersion", "lambda:InvokeFunction"),
    "states": ("states:DescribeStateMachine", "states:TagResource", "states:UpdateStateMachine",
               "states:DeleteStateMachine"),
    "aps": ("aps:DescribeWorkspace", "aps:DeleteWorkspace"),
    "grafana": ("grafana:DescribeWorkspace*", "grafana:UpdateWorkspace*", "grafana:DeleteWorkspace"),
    "cloudformation": ("cloudformation:DescribeStacks", "cloudformation:UpdateStack", "cloudformation:DeleteStack"),
}  # fmt: skip
POLICIES = ("iam:CreatePolicy", "iam:GetPolicy", "iam:ListPolicyVersions", "iam:CreatePolicyVersion",
            "iam:DeletePolicyVersion", "iam:DeletePolicy")  # fmt: skip
NOT_ON_ROLES = ("iam:CreateServiceLinkedRole", "iam:PassRole")
IDENTITY_CENTER = ("sso:DescribeRegisteredRegions", "sso:CreateManagedApplicationInstance",
                   "sso:DeleteManagedApplicationInstance", "organizations:DescribeOrganization")  # fmt: skip
LINKED = ("fsx.amazonaws.com", "s3.data-source.lustre.fsx.amazonaws.com", "grafana.amazonaws.com")
FSX_S3 = ("iam:CreateServiceLinkedRole", "iam:AttachRolePolicy", "iam:PutRolePolicy")


def deployer_policy(settings: Settings) -> dict[str, Any]:
    """The policy of the person or the pipeline that runs `cdk deploy`, `cdk destroy` and their like."""
    region, arn = settings.region, f"arn:{partition(settings.region)}"
    roles = [f"{arn}:iam::*:role/cdk-{QUALIFIER}-{kind}-role-*-{region}" for kind in ASSUMED]
    return document([allow("AssumeBootstrapRoles", ["sts:AssumeRole"], roles)])


def execution_policy(settings: Settings) -> dict[str, Any]:
    """The policy of the role with which CloudFormation makes, changes and deletes the stacks' resources."""
    created = set(actions_needed(settings))
    services = {action.partition(":")[0] for action in created}
    statements = [_of_service(settings, service, created) for service in sorted(services - {"iam"})]
    statements += _of_iam(settings, created)
    statements.append(_reading_artifacts(settings))
    if settings.observability.grafana:
        statements.append(allow("IdentityCenter", IDENTITY_CENTER, ["*"]))
    return document(statements)


def _of_service(settings: Settings, service: str, created: Iterable[str]) -> dict[str, Any]:
    actions = {action for action in created if action.startswith(f"{service}:")} | set(STANDING[service])
    return allow(service.capitalize(), _without_covered(actions), _resources(settings, service))


def _resources(settings: Settings, service: str) -> list[str]:
    """What the deployment makes is named after the stacks; where AWS generates ids, or a service has none: all."""
    name, region = settings.name, settings.region
    arn, here = f"arn:{partition(region)}", f"{region}:*"
    functions = (f"function:{name}-*", "function:pcluster-cfn-*", "layer:PCLayer-*")
    groups = (f"{name}-*", f"/aws/lambda/{name}-*", "/aws/lambda/pcluster-cfn-*")
    named: dict[str, tuple[str, ...]] = {
        "budgets": (f"budgets::*:budget/{name}-monthly",),
        "cloudformation": (f"cloudformation:{here}:stack/{name}-cluster-*",),
        "cloudwatch": (f"cloudwatch:{here}:alarm:{name}-*",),
        "lambda": tuple(f"lambda:{here}:{function}" for function in functions),
        "logs": tuple(f"logs:{here}:log-group:{group}" for group in groups),
        "s3": (f"s3:::{name}-*",),
        "sns": (f"sns:{here}:{name}-*",),
        "ssm": (f"ssm:{here}:parameter/slipway/{name}/*",),
        "states": (f"states:{here}:stateMachine:*",),
        "aps": (f"aps:{here}:*",),
        "grafana": (f"grafana:{here}:/workspaces*",),
        "fsx": (f"fsx:{here}:*",),
        "events": (f"events:{here}:rule/{name}-*",),
    }
    return [f"{arn}:{resource}" for resource in named[service]] if service in named else ["*"]


def _of_iam(settings: Settings, created: Iterable[str]) -> list[dict[str, Any]]:
    prefix = settings.iam.name_prefix or ""
    iam = f"arn:{partition(settings.region)}:iam::*"
    roles = [f"{iam}:role/{prefix}{settings.name}-*"]
    if settings.iam.is_site:
        roles.append(f"{iam}:role/{prefix}ParallelClusterLambdaRole-*")
    policies = [f"{iam}:policy/parallelcluster/{settings.name}/*", f"{iam}:policy/{prefix}{settings.name}-*"]
    linked = [f"{iam}:role/aws-service-role/{service}/*" for service in LINKED]
    making = {action for action in created if action.startswith("iam:")} - {*POLICIES, *NOT_ON_ROLES}
    statements = [
        allow("Roles", _without_covered(making | set(STANDING["iam"])), roles),
        allow("PassRoles", ["iam:PassRole"], roles),
        allow("Policies", POLICIES, [*policies, *_provider_policies(iam, prefix)]),
        allow("LinkedRoles", ["iam:CreateServiceLinkedRole"], linked),
    ]
    if settings.storage.associations:
        s3 = f"{iam}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
        statements.append(allow("FsxToS3", FSX_S3, [s3]))
    return statements


def _provider_policies(iam: str, prefix: str) -> list[str]:
    """ParallelCluster's own template names its policies so."""
    names = ("ParallelCluster*", "DefaultParallelClusterIamAdminPolicy-*")
    return [f"{iam}:policy/{prefix}{name}" for name in names]


def _reading_artifacts(settings: Settings) -> dict[str, Any]:
    """The functions' code and ParallelCluster's templates and layer; the bootstrap's version is a parameter."""
    s3 = f"arn:{partition(settings.region)}:s3:::"
    buckets = (f"cdk-{QUALIFIER}-assets-*-{settings.region}", f"{settings.region}-aws-parallelcluster")
    return allow("Artifacts", ["s3:GetObject", "s3:GetObjectVersion"], [f"{s3}{bucket}/*" for bucket in buckets])


def _without_covered(actions: Iterable[str]) -> list[str]:
    """Without the actions that a wildcard of the list covers."""
    chosen = sorted(set(actions))
    starts = tuple(action.rstrip("*") for action in chosen if action.endswith("*"))
    return [action for action in chosen if action.endswith("*") or not starts or not action.startswith(starts)]
