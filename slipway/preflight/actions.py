"""What the deployment has to be allowed, as data: for each type of resource in stacks/*.py the actions that make it.

Source: the create handlers' permissions in CloudFormation's resource schemas (registry, November 2026); for data
repository associations the FSx for Lustre user guide, "Adding permissions to use data repositories in Amazon S3".
Actions that only change or delete are left out: who may create may do these in every policy seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from slipway.settings import Settings

Condition = Callable[[Settings], bool]


def _always(_: Settings) -> bool:
    return True


def _new_network(settings: Settings) -> bool:
    return settings.network.is_new


def _new_file_system(settings: Settings) -> bool:
    return settings.storage.fsx.file_system_id is None


def _new_group(settings: Settings) -> bool:
    return settings.network.security_group_id is None or _new_file_system(settings)


def _associations(settings: Settings) -> bool:
    return bool(settings.storage.associations)


def _new_bucket(settings: Settings) -> bool:
    return settings.storage.bucket is None


def _acceptance(settings: Settings) -> bool:
    return settings.acceptance.scenario != "none"


def _prometheus(settings: Settings) -> bool:
    return settings.observability.prometheus


def _grafana(settings: Settings) -> bool:
    return settings.observability.grafana


def _mail(settings: Settings) -> bool:
    return settings.observability.alert_email is not None


def _budget(settings: Settings) -> bool:
    return settings.budget is not None and _mail(settings)


# Type of resource, when it is made, the actions. A type may be in several rows.
RESOURCES: tuple[tuple[str, Condition, tuple[str, ...]], ...] = (
    ("AWS::EC2::VPC", _new_network, ("ec2:CreateVpc", "ec2:ModifyVpcAttribute")),
    ("AWS::EC2::Subnet", _new_network, ("ec2:CreateSubnet", "ec2:ModifySubnetAttribute")),
    ("AWS::EC2::InternetGateway", _new_network, ("ec2:CreateInternetGateway",)),
    ("AWS::EC2::VPCGatewayAttachment", _new_network, ("ec2:AttachInternetGateway",)),
    ("AWS::EC2::EIP", _new_network, ("ec2:AllocateAddress",)),
    ("AWS::EC2::NatGateway", _new_network, ("ec2:CreateNatGateway",)),
    ("AWS::EC2::RouteTable", _new_network, ("ec2:CreateRouteTable",)),
    ("AWS::EC2::Route", _new_network, ("ec2:CreateRoute",)),
    ("AWS::EC2::SubnetRouteTableAssociation", _new_network, ("ec2:AssociateRouteTable",)),
    ("AWS::EC2::VPCEndpoint", _new_network, ("ec2:CreateVpcEndpoint",)),
    ("AWS::EC2::SecurityGroup", _new_group, ("ec2:CreateSecurityGroup", "ec2:CreateTags")),
    ("AWS::EC2::SecurityGroupIngress", _new_group, ("ec2:AuthorizeSecurityGroupIngress",)),
    ("AWS::EC2::SecurityGroupEgress", _new_group, ("ec2:AuthorizeSecurityGroupEgress",)),
    ("AWS::FSx::FileSystem", _new_file_system, ("fsx:CreateFileSystem", "fsx:TagResource")),
    (
        "AWS::FSx::DataRepositoryAssociation",
        _associations,
        (
            "fsx:CreateDataRepositoryAssociation",
            "iam:CreateServiceLinkedRole",
            "iam:AttachRolePolicy",
            "iam:PutRolePolicy",
        ),
    ),
    (
        "AWS::S3::Bucket",
        _new_bucket,
        (
            "s3:CreateBucket",
            "s3:PutEncryptionConfiguration",
            "s3:PutBucketPublicAccessBlock",
            "s3:PutBucketVersioning",
            "s3:PutLifecycleConfiguration",
        ),
    ),
    ("AWS::S3::BucketPolicy", _new_bucket, ("s3:PutBucketPolicy",)),
    ("AWS::APS::Workspace", _prometheus, ("aps:CreateWorkspace", "aps:TagResource")),
    ("AWS::Grafana::Workspace", _grafana, ("grafana:CreateWorkspace", "grafana:TagResource")),
    ("AWS::Logs::LogGroup", _always, ("logs:CreateLogGroup", "logs:PutRetentionPolicy")),
    ("AWS::SNS::Topic", _mail, ("sns:CreateTopic", "sns:SetTopicAttributes")),
    ("AWS::SNS::TopicPolicy", _mail, ("sns:SetTopicAttributes",)),
    ("AWS::SNS::Subscription", _mail, ("sns:Subscribe",)),
    ("AWS::CloudWatch::Alarm", _mail, ("cloudwatch:PutMetricAlarm",)),
    ("AWS::Budgets::Budget", _budget, ("budgets:ModifyBudget",)),
    ("AWS::SSM::Parameter", _always, ("ssm:PutParameter", "ssm:AddTagsToResource")),
    ("AWS::IAM::ManagedPolicy", _always, ("iam:CreatePolicy",)),
    ("AWS::IAM::Role", _acceptance, ("iam:CreateRole", "iam:PassRole", "iam:AttachRolePolicy")),
    ("AWS::IAM::Role", _grafana, ("iam:CreateRole", "iam:PassRole")),
    ("AWS::IAM::Policy", _acceptance, ("iam:PutRolePolicy",)),
    ("AWS::IAM::Policy", _grafana, ("iam:PutRolePolicy",)),
    ("AWS::Lambda::Function", _acceptance, ("lambda:CreateFunction",)),
    ("AWS::StepFunctions::StateMachine", _acceptance, ("states:CreateStateMachine",)),
    ("Custom::ClusterAcceptance", _acceptance, ("lambda:InvokeFunction",)),
    # ParallelCluster's own template: a function, its role and policies.
    (
        "AWS::CloudFormation::Stack",
        _always,
        (
            "cloudformation:CreateStack",
            "iam:CreateRole",
            "iam:PassRole",
            "iam:AttachRolePolicy",
            "iam:PutRolePolicy",
            "lambda:CreateFunction",
        ),
    ),
    ("Custom::PclusterCluster", _always, ("lambda:InvokeFunction",)),
)

# A resource of each service as the deployment names it, for policies that allow only some resources; an action that is
# about another kind of resource has a separate row.
ARNS = {
    "iam:CreatePolicy": "arn:{partition}:iam::{account}:policy/parallelcluster/{name}/HeadNodePolicy-1ABCDEFGHIJKL",
    "iam:CreateServiceLinkedRole": "arn:{partition}:iam::{account}:role/aws-service-role/"
    "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-0123456789abcdef0",
    "aps": "arn:{partition}:aps:{region}:{account}:workspace/ws-01234567-89ab-cdef-0123-456789abcdef",
    "budgets": "arn:{partition}:budgets::{account}:budget/{name}-monthly",
    "cloudformation": "arn:{partition}:cloudformation:{region}:{account}:stack/{name}-cluster-Provider-1ABCDEFGHIJKL/0",
    "cloudwatch": "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}-cluster-HeadNodeAlarm-1ABCDEFGHIJKL",
    "ec2": "arn:{partition}:ec2:{region}:{account}:vpc/vpc-0123456789abcdef0",
    "fsx": "arn:{partition}:fsx:{region}:{account}:file-system/fs-0123456789abcdef0",
    "grafana": "arn:{partition}:grafana:{region}:{account}:/workspaces/g-0123456789",
    "iam": "arn:{partition}:iam::{account}:role/{name}-cluster-Provider-1ABCDEFGHIJKL",
    "lambda": "arn:{partition}:lambda:{region}:{account}:function:{name}-cluster-Provider-1ABCDEFGHIJKL",
    "logs": "arn:{partition}:logs:{region}:{account}:log-group:{name}-observability-LogGroup-1ABCDEFGHIJKL",
    "s3": "arn:{partition}:s3:::{name}-storage-bucket-1abcdefghijkl",
    "sns": "arn:{partition}:sns:{region}:{account}:{name}-observability-AlarmTopic-1ABCDEFGHIJKL",
    "ssm": "arn:{partition}:ssm:{region}:{account}:parameter/slipway/{name}/bundle",
    "states": "arn:{partition}:states:{region}:{account}:stateMachine:Provider-1ABCDEFGHIJKL",
}


def actions_needed(settings: Settings) -> list[str]:
    """Every action that making these stacks takes, sorted."""
    return sorted({action for _, when, actions in RESOURCES if when(settings) for action in actions})


def by_resource(actions: Iterable[str]) -> dict[str, list[str]]:
    """The actions by the row of ARNS that they are about."""
    rows: dict[str, list[str]] = {}
    for action in actions:
        rows.setdefault(ARNS.get(action) or ARNS[action.partition(":")[0]], []).append(action)
    return rows
