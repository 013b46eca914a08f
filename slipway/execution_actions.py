"""What CloudFormation does to a resource after its creation, as data: by type, the actions and the work they are for.

The creation is in slipway/preflight/actions.py. Together they are the reason of every action of the executing role's
policy: `reasons`. Source: the handlers' permissions in CloudFormation's resource schemas (registry, October 2026),
as far as the properties that these stacks set need them; tests/cloud/test_cloud_reasons.py compares them with the
schemas that cfn-lint brings. An action that no schema has is in `OTHER_SOURCES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from slipway.preflight.actions import making
from slipway.settings import Settings

# A type of resource (or a pattern of types), the work, the actions. `read`: each handler waits with it. IAM ignores the
# case of actions: `*TagResource` is UntagResource too, and keeps the policy below IAM's limit of characters.
HANDLERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("AWS::EC2::*", "read", ("ec2:Describe*",)),
    ("AWS::EC2::*", "tags", ("ec2:CreateTags", "ec2:DeleteTags")),
    ("AWS::EC2::VPC", "delete", ("ec2:DeleteVpc",)),
    ("AWS::EC2::Subnet", "delete", ("ec2:DeleteSubnet",)),
    ("AWS::EC2::InternetGateway", "delete", ("ec2:DeleteInternetGateway",)),
    ("AWS::EC2::VPCGatewayAttachment", "delete", ("ec2:DetachInternetGateway",)),
    ("AWS::EC2::EIP", "delete", ("ec2:ReleaseAddress", "ec2:DisassociateAddress")),
    ("AWS::EC2::NatGateway", "delete", ("ec2:DeleteNatGateway",)),
    ("AWS::EC2::RouteTable", "delete", ("ec2:DeleteRouteTable",)),
    ("AWS::EC2::Route", "delete", ("ec2:DeleteRoute",)),
    ("AWS::EC2::SubnetRouteTableAssociation", "delete", ("ec2:DisassociateRouteTable",)),
    ("AWS::EC2::VPCEndpoint", "update", ("ec2:ModifyVpcEndpoint",)),
    ("AWS::EC2::VPCEndpoint", "delete", ("ec2:DeleteVpcEndpoints",)),
    ("AWS::EC2::SecurityGroup", "create", ("ec2:RevokeSecurityGroupEgress",)),
    ("AWS::EC2::SecurityGroup", "delete", ("ec2:DeleteSecurityGroup",)),
    ("AWS::EC2::SecurityGroupIngress", "delete", ("ec2:RevokeSecurityGroupIngress",)),
    ("AWS::EC2::SecurityGroupEgress", "delete", ("ec2:RevokeSecurityGroupEgress",)),
    ("AWS::EC2::Volume", "update", ("ec2:ModifyVolume",)),
    ("AWS::EC2::Volume", "delete", ("ec2:DeleteVolume",)),
    ("AWS::FSx::FileSystem", "read", ("fsx:DescribeFileSystems",)),
    ("AWS::FSx::FileSystem", "update", ("fsx:UpdateFileSystem",)),
    ("AWS::FSx::FileSystem", "tags", ("fsx:*TagResource",)),
    ("AWS::FSx::FileSystem", "delete", ("fsx:DeleteFileSystem",)),
    ("AWS::FSx::DataRepositoryAssociation", "read", ("fsx:DescribeDataRepositoryAssociations",)),
    ("AWS::FSx::DataRepositoryAssociation", "update", ("fsx:UpdateDataRepositoryAssociation",)),
    ("AWS::FSx::DataRepositoryAssociation", "tags", ("fsx:*TagResource",)),
    ("AWS::FSx::DataRepositoryAssociation", "delete", ("fsx:DeleteDataRepositoryAssociation",)),
    ("AWS::S3::Bucket", "tags", ("s3:PutBucketTagging",)),
    ("AWS::S3::Bucket", "delete", ("s3:DeleteBucket",)),
    ("AWS::S3::BucketPolicy", "read", ("s3:GetBucketPolicy",)),
    ("AWS::S3::BucketPolicy", "delete", ("s3:DeleteBucketPolicy",)),
    ("AWS::APS::Workspace", "read", ("aps:DescribeWorkspace",)),
    ("AWS::APS::Workspace", "tags", ("aps:*TagResource",)),
    ("AWS::APS::Workspace", "delete", ("aps:DeleteWorkspace",)),
    ("AWS::Grafana::Workspace", "read", ("grafana:DescribeWorkspace*",)),
    ("AWS::Grafana::Workspace", "create", ("sso:DescribeRegisteredRegions", "sso:CreateManagedApplicationInstance",
                                           "organizations:DescribeOrganization", "iam:CreateServiceLinkedRole",
                                           "iam:PassRole")),
    ("AWS::Grafana::Workspace", "update", ("grafana:UpdateWorkspace*",)),
    ("AWS::Grafana::Workspace", "tags", ("grafana:*TagResource",)),
    ("AWS::Grafana::Workspace", "delete", ("grafana:DeleteWorkspace", "sso:DeleteManagedApplicationInstance")),
    ("AWS::Logs::LogGroup", "read", ("logs:DescribeLogGroups",)),
    ("AWS::Logs::LogGroup", "update", ("logs:PutRetentionPolicy", "logs:DeleteRetentionPolicy")),
    ("AWS::Logs::LogGroup", "tags", ("logs:*TagResource",)),
    ("AWS::Logs::LogGroup", "delete", ("logs:DeleteLogGroup",)),
    ("AWS::Logs::MetricFilter", "read", ("logs:DescribeMetricFilters",)),
    ("AWS::Logs::MetricFilter", "delete", ("logs:DeleteMetricFilter",)),
    ("AWS::SNS::Topic", "read", ("sns:GetTopicAttributes",)),
    ("AWS::SNS::Topic", "tags", ("sns:*TagResource",)),
    ("AWS::SNS::Topic", "delete", ("sns:DeleteTopic",)),
    ("AWS::SNS::Subscription", "delete", ("sns:Unsubscribe", "sns:GetSubscriptionAttributes")),
    ("AWS::CloudWatch::Alarm", "read", ("cloudwatch:DescribeAlarms",)),
    ("AWS::CloudWatch::Alarm", "tags", ("cloudwatch:*TagResource",)),
    ("AWS::CloudWatch::Alarm", "delete", ("cloudwatch:DeleteAlarms",)),
    ("AWS::Events::Rule", "read", ("events:DescribeRule",)),
    ("AWS::Events::Rule", "tags", ("events:*TagResource",)),
    ("AWS::Events::Rule", "delete", ("events:ListTargetsByRule", "events:RemoveTargets", "events:DeleteRule")),
    ("AWS::Budgets::Budget", "read", ("budgets:ViewBudget",)),
    ("AWS::Budgets::Budget", "tags", ("budgets:*TagResource", "budgets:ListTagsForResource")),
    ("AWS::SSM::Parameter", "read", ("ssm:GetParameters",)),
    ("AWS::SSM::Parameter", "tags", ("ssm:AddTagsToResource", "ssm:RemoveTagsFromResource")),
    ("AWS::SSM::Parameter", "delete", ("ssm:DeleteParameter",)),
    ("AWS::IAM::ManagedPolicy", "update", ("iam:GetPolicy", "iam:ListPolicyVersions", "iam:CreatePolicyVersion",
                                           "iam:DeletePolicyVersion", "iam:DetachRolePolicy")),
    ("AWS::IAM::ManagedPolicy", "delete", ("iam:ListEntitiesForPolicy", "iam:DeletePolicy")),
    ("AWS::IAM::Policy", "read", ("iam:GetRolePolicy",)),
    ("AWS::IAM::Policy", "delete", ("iam:DeleteRolePolicy",)),
    ("AWS::IAM::Role", "read", ("iam:GetRole", "iam:ListRolePolicies", "iam:ListAttachedRolePolicies")),
    ("AWS::IAM::Role", "update", ("iam:UpdateAssumeRolePolicy", "iam:PutRolePermissionsBoundary",
                                  "iam:DeleteRolePermissionsBoundary")),
    ("AWS::IAM::Role", "tags", ("iam:*TagRole",)),
    ("AWS::IAM::Role", "delete", ("iam:DeleteRole", "iam:DetachRolePolicy", "iam:DeleteRolePolicy")),
    ("AWS::Lambda::Function", "read", ("lambda:GetFunction",)),
    ("AWS::Lambda::Function", "create", ("s3:GetObject", "s3:GetObjectVersion", "lambda:GetLayerVersion")),
    ("AWS::Lambda::Function", "update", ("lambda:UpdateFunctionCode", "lambda:UpdateFunctionConfiguration")),
    ("AWS::Lambda::Function", "tags", ("lambda:*TagResource",)),
    ("AWS::Lambda::Function", "delete", ("lambda:DeleteFunction",)),
    ("AWS::Lambda::LayerVersion", "create", ("s3:GetObject", "s3:GetObjectVersion")),
    ("AWS::Lambda::LayerVersion", "delete", ("lambda:GetLayerVersion", "lambda:DeleteLayerVersion")),
    ("AWS::StepFunctions::StateMachine", "read", ("states:DescribeStateMachine",)),
    ("AWS::StepFunctions::StateMachine", "create", ("iam:PassRole",)),
    ("AWS::StepFunctions::StateMachine", "update", ("states:UpdateStateMachine",)),
    ("AWS::StepFunctions::StateMachine", "tags", ("states:*TagResource",)),
    ("AWS::StepFunctions::StateMachine", "delete", ("states:DeleteStateMachine",)),
    ("AWS::CloudFormation::Stack", "read", ("cloudformation:DescribeStacks",)),
    ("AWS::CloudFormation::Stack", "update", ("cloudformation:UpdateStack",)),
    ("AWS::CloudFormation::Stack", "delete", ("cloudformation:DeleteStack",)),
)  # fmt: skip

# A pattern of type and action, and where it is said that the type needs the action although no schema does.
OTHER_SOURCES: tuple[tuple[str, str, str], ...] = (
    ("AWS::FSx::FileSystem", "fsx:*", "FSx API reference: the type has no handlers in the registry"),
    ("AWS::FSx::FileSystem", "iam:CreateServiceLinkedRole", "FSx for Lustre user guide, service-linked roles"),
    ("AWS::FSx::DataRepositoryAssociation", "iam:AttachRolePolicy",
     "FSx for Lustre user guide, Adding permissions to use data repositories in Amazon S3"),
    ("Custom::*", "lambda:InvokeFunction", "CloudFormation user guide, custom resources"),
    ("AWS::CloudFormation::Stack", "cloudformation:CreateChangeSet",
     "the provider's template has the transform Serverless-2016-10-31; CloudFormation user guide, using-iam-template"),
    ("AWS::IAM::ManagedPolicy", "iam:CreatePolicy", "IAM API reference"),
    ("the template", "ssm:GetParameters", "the parameter BootstrapVersion of each CDK template; aws-cdk issue 20959"),
)  # fmt: skip


def reasons(settings: Settings) -> dict[str, list[str]]:
    """Each action that CloudFormation needs for these stacks, with what needs it: `TYPE WORK`."""
    collected: dict[str, set[str]] = {}
    for action, reason in _reasons(settings):
        collected.setdefault(action, set()).add(reason)
    return {action: sorted(collected[action]) for action in sorted(collected)}


def _reasons(settings: Settings) -> Iterator[tuple[str, str]]:
    made = dict(making(settings))
    for kind, actions in making(settings):
        yield from ((action, _reason(kind, "create", action)) for action in actions)
    for kind, work, actions in HANDLERS:
        if any(fnmatchcase(name, kind) for name in made):
            yield from ((action, _reason(kind, work, action)) for action in actions)
    if "AWS::FSx::FileSystem" in made:
        yield _about("AWS::FSx::FileSystem", "iam:CreateServiceLinkedRole")
    yield _about("the template", "ssm:GetParameters")


def _about(kind: str, action: str) -> tuple[str, str]:
    return action, _reason(kind, "create", action)


def _reason(kind: str, work: str, action: str) -> str:
    source = other_source(kind, action)
    return f"{kind} {work} ({source})" if source else f"{kind} {work}"


def other_source(kind: str, action: str) -> str:
    """Where it is said that a type needs an action which its schema does not have; empty without such a source."""
    return next(
        (text for one, other, text in OTHER_SOURCES if fnmatchcase(kind, one) and fnmatchcase(action, other)), ""
    )
