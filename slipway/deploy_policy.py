"""The IAM policies that a platform team gives for one settings file: to who deploys, and to CloudFormation.

`cdk deploy` and `cdk destroy` act through the roles of `cdk bootstrap`: who deploys assumes them, and CloudFormation
makes the resources with the bootstrap's executing role. The second policy is that role's, for
`cdk bootstrap --cloudformation-execution-policies ARN`; without one it may do everything (AdministratorAccess).

Every action has its reason in slipway/execution_actions.py. Sources of the rest: the CDK's bootstrap template;
aws-parallelcluster, cloudformation/custom_resource/cluster.yaml, for what its provider's stack makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from slipway.aws.policy import allow, document
from slipway.execution_actions import reasons
from slipway.preflight.bootstrap import QUALIFIER
from slipway.regions import partition
from slipway.settings import Settings

ASSUMED = ("deploy", "file-publishing", "lookup")  # the bootstrap's roles that the CDK CLI uses for these stacks

# Actions of IAM on policies; all others of IAM are on roles.
POLICIES = ("iam:CreatePolicy", "iam:GetPolicy", "iam:ListPolicyVersions", "iam:CreatePolicyVersion",
            "iam:DeletePolicyVersion", "iam:DeletePolicy", "iam:ListEntitiesForPolicy")  # fmt: skip
NOT_ON_ROLES = ("iam:CreateServiceLinkedRole", "iam:PassRole")
IDENTITY_CENTER = ("sso", "organizations")
ARTIFACTS = ("s3:GetObject", "s3:GetObjectVersion")
LINKED = ("fsx.amazonaws.com", "s3.data-source.lustre.fsx.amazonaws.com", "grafana.amazonaws.com")
FSX_S3 = ("iam:CreateServiceLinkedRole", "iam:AttachRolePolicy", "iam:PutRolePolicy")


def deployer_policy(settings: Settings) -> dict[str, Any]:
    """The policy of the person or the pipeline that runs `cdk deploy`, `cdk destroy` and their like."""
    region, arn = settings.region, f"arn:{partition(settings.region)}"
    roles = [f"{arn}:iam::*:role/cdk-{QUALIFIER}-{kind}-role-*-{region}" for kind in ASSUMED]
    return document([allow("AssumeBootstrapRoles", ["sts:AssumeRole"], roles)])


def execution_policy(settings: Settings) -> dict[str, Any]:
    """The policy of the role with which CloudFormation makes, changes and deletes the stacks' resources."""
    needed = set(reasons(settings))
    services = sorted({action.partition(":")[0] for action in needed} - {"iam", *IDENTITY_CENTER})
    statements = [_of_service(settings, service, needed - set(ARTIFACTS)) for service in services]
    statements += _of_iam(settings, needed)
    statements.append(_reading_artifacts(settings))
    site = [action for action in needed if action.startswith(tuple(f"{service}:" for service in IDENTITY_CENTER))]
    if site:
        statements.append(allow("IdentityCenter", site, ["*"]))
    return document(statements)


def _of_service(settings: Settings, service: str, needed: Iterable[str]) -> dict[str, Any]:
    actions = {action for action in needed if action.startswith(f"{service}:")}
    return allow(service.capitalize(), _without_covered(actions), _resources(settings, service))


def _resources(settings: Settings, service: str) -> list[str]:
    """What the deployment makes is named after the stacks; where AWS generates ids, or a service has none: all."""
    name, region = settings.name, settings.region
    arn, here = f"arn:{partition(region)}", f"{region}:*"
    functions = (f"function:{name}-*", "function:pcluster-cfn-*", "layer:PCLayer-*")
    groups = (f"{name}-*", f"/aws/lambda/{name}-*", "/aws/lambda/pcluster-cfn-*")
    named: dict[str, tuple[str, ...]] = {
        "budgets": (f"budgets::*:budget/{name}-monthly",),
        "cloudformation": (
            f"cloudformation:{here}:stack/{name}-cluster-*",
            f"cloudformation:{region}:aws:transform/Serverless-2016-10-31",
        ),
        "cloudwatch": (f"cloudwatch:{here}:alarm:{name}-*",),
        "lambda": tuple(f"lambda:{here}:{function}" for function in functions),
        "logs": tuple(f"logs:{here}:log-group:{group}" for group in groups),
        "s3": (f"s3:::{name}-*",),
        "sns": (f"sns:{here}:{name}-*",),
        "ssm": (f"ssm:{here}:parameter/slipway/{name}/*", f"ssm:{here}:parameter/cdk-bootstrap/{QUALIFIER}/version"),
        "states": (f"states:{here}:stateMachine:*",),
        "aps": (f"aps:{here}:*",),
        "grafana": (f"grafana:{here}:/workspaces*",),
        "fsx": (f"fsx:{here}:*",),
        "events": (f"events:{here}:rule/{name}-*",),
    }
    return [f"{arn}:{resource}" for resource in named[service]] if service in named else ["*"]


def _of_iam(settings: Settings, needed: Iterable[str]) -> list[dict[str, Any]]:
    prefix = settings.iam.name_prefix or ""
    iam = f"arn:{partition(settings.region)}:iam::*"
    roles = [f"{iam}:role/{prefix}{settings.name}-*"]
    if settings.iam.is_site:
        roles.append(f"{iam}:role/{prefix}ParallelClusterLambdaRole-*")
    policies = [f"{iam}:policy/parallelcluster/{settings.name}/*", f"{iam}:policy/{prefix}{settings.name}-*"]
    linked = [f"{iam}:role/aws-service-role/{service}/*" for service in LINKED]
    on_roles = {action for action in needed if action.startswith("iam:")} - {*POLICIES, *NOT_ON_ROLES}
    statements = [
        allow("Roles", on_roles, roles),
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
    """Without the actions that a wildcard of the list covers. IAM ignores the case of actions."""
    chosen = sorted(set(actions))
    patterns = [action.lower() for action in chosen if "*" in action]
    return [
        action for action in chosen if "*" in action or not any(fnmatchcase(action.lower(), item) for item in patterns)
    ]
