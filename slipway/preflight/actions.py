"""What the deployment has to be allowed, as data: for each type of resource in stacks/*.py the actions that make it.

Source: the create handlers' permissions in CloudFormation's resource schemas (registry, November 2026); for data
repository associations the FSx for Lustre user guide, "Adding permissions to use data repositories in Amazon S3".
Actions that only change or delete are left out: who may create may do these in every policy seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from slipway.settings import Settings

WHEN: dict[str, Callable[[Settings], bool]] = {
    "always": lambda _: True,
    "new network": lambda s: s.network.is_new,
    "new file system": lambda s: s.storage.fsx.file_system_id is None,
    "new group": lambda s: s.network.security_group_id is None or s.storage.fsx.file_system_id is None,
    "new home": lambda s: s.storage.home.kind == "ebs" and s.storage.home.volume_id is None,
    "associations": lambda s: bool(s.storage.associations),
    "new bucket": lambda s: s.storage.bucket is None,
    "acceptance": lambda s: s.acceptance.scenario != "none",
    "Prometheus": lambda s: s.observability.prometheus,
    "Grafana": lambda s: s.observability.grafana,
    "mail": lambda s: s.observability.alert_email is not None,
    "mail and Prometheus": lambda s: s.observability.alert_email is not None and s.observability.prometheus,
    "mail and block": lambda s: (
        s.observability.alert_email is not None
        and any(queue.reservation and queue.reservation.kind == "capacity-block" for queue in s.queues)
    ),
    "budget": lambda s: s.budget is not None and s.observability.alert_email is not None,
}
# Type of resource, when it is made (a key of WHEN), the actions. A type may be in several rows.
RESOURCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("AWS::EC2::VPC", "new network", ("ec2:CreateVpc", "ec2:ModifyVpcAttribute")),
    ("AWS::EC2::Subnet", "new network", ("ec2:CreateSubnet", "ec2:ModifySubnetAttribute")),
    ("AWS::EC2::InternetGateway", "new network", ("ec2:CreateInternetGateway",)),
    ("AWS::EC2::VPCGatewayAttachment", "new network", ("ec2:AttachInternetGateway",)),
    ("AWS::EC2::EIP", "new network", ("ec2:AllocateAddress",)),
    ("AWS::EC2::NatGateway", "new network", ("ec2:CreateNatGateway",)),
    ("AWS::EC2::RouteTable", "new network", ("ec2:CreateRouteTable",)),
    ("AWS::EC2::Route", "new network", ("ec2:CreateRoute",)),
    ("AWS::EC2::SubnetRouteTableAssociation", "new network", ("ec2:AssociateRouteTable",)),
    ("AWS::EC2::VPCEndpoint", "new network", ("ec2:CreateVpcEndpoint",)),
    ("AWS::EC2::SecurityGroup", "new group", ("ec2:CreateSecurityGroup", "ec2:CreateTags")),
    ("AWS::EC2::SecurityGroupIngress", "new group", ("ec2:AuthorizeSecurityGroupIngress",)),
    ("AWS::EC2::SecurityGroupEgress", "new group", ("ec2:AuthorizeSecurityGroupEgress",)),
    ("AWS::FSx::FileSystem", "new file system", ("fsx:CreateFileSystem", "fsx:TagResource")),
    (
        "AWS::FSx::DataRepositoryAssociation",
        "associations",
        (
            "fsx:CreateDataRepositoryAssociation",
            "iam:CreateServiceLinkedRole",
            "iam:AttachRolePolicy",
            "iam:PutRolePolicy",
        ),
    ),
    (
        "AWS::S3::Bucket",
        "new bucket",
        (
            "s3:CreateBucket",
            "s3:PutEncryptionConfiguration",
            "s3:PutBucketPublicAccessBlock",
            "s3:PutBucketVersioning",
            "s3:PutLifecycleConfiguration",
        ),
    ),
    ("AWS::S3::BucketPolicy", "new bucket", ("s3:PutBucketPolicy",)),
    ("AWS::APS::Workspace", "Prometheus", ("aps:CreateWorkspace", "aps:TagResource")),
    ("AWS::Grafana::Workspace", "Grafana", ("grafana:CreateWorkspace", "grafana:TagResource")),
    ("AWS::Logs::LogGroup", "always", ("logs:CreateLogGroup", "logs:PutRetentionPolicy")),
    ("AWS::SNS::Topic", "mail", ("sns:CreateTopic",)),
    ("AWS::SNS::TopicPolicy", "mail", ("sns:SetTopicAttributes",)),
    ("AWS::SNS::Subscription", "mail", ("sns:Subscribe",)),
    ("AWS::CloudWatch::Alarm", "mail", ("cloudwatch:PutMetricAlarm",)),
    ("AWS::Logs::MetricFilter", "mail and Prometheus", ("logs:PutMetricFilter",)),
    ("AWS::Events::Rule", "mail and block", ("events:PutRule", "events:PutTargets")),
    ("AWS::Budgets::Budget", "budget", ("budgets:ModifyBudget",)),
    ("AWS::SSM::Parameter", "always", ("ssm:PutParameter", "ssm:AddTagsToResource")),
    ("AWS::IAM::ManagedPolicy", "always", ("iam:CreatePolicy",)),
    ("AWS::IAM::Role", "always", ("iam:CreateRole", "iam:AttachRolePolicy")),
    ("AWS::IAM::Policy", "always", ("iam:PutRolePolicy",)),
    ("AWS::Lambda::Function", "always", ("lambda:CreateFunction", "iam:PassRole")),
    ("Custom::ClusterNameGuard", "always", ("lambda:InvokeFunction",)),
    ("AWS::EC2::Volume", "new home", ("ec2:CreateVolume", "ec2:CreateTags")),
    ("AWS::CloudFormation::WaitConditionHandle", "always", ()),
    ("AWS::StepFunctions::StateMachine", "acceptance", ("states:CreateStateMachine",)),
    ("Custom::ClusterAcceptance", "acceptance", ("lambda:InvokeFunction",)),
    ("AWS::CloudFormation::Stack", "always", ("cloudformation:CreateStack",)),
    ("Custom::PclusterCluster", "always", ("lambda:InvokeFunction",)),
)

# What ParallelCluster's own template makes in a stack of its own, with the same role.
# Source: aws-parallelcluster 3.13.1, cloudformation/custom_resource/cluster.yaml.
PROVIDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AWS::CloudFormation::Stack", ("cloudformation:CreateStack", "cloudformation:CreateChangeSet")),
    ("AWS::IAM::Role", ("iam:CreateRole", "iam:AttachRolePolicy")),
    ("AWS::IAM::ManagedPolicy", ("iam:CreatePolicy",)),
    ("AWS::Lambda::Function", ("lambda:CreateFunction", "iam:PassRole")),
    ("AWS::Lambda::LayerVersion", ("lambda:PublishLayerVersion",)),
    ("AWS::Logs::LogGroup", ("logs:CreateLogGroup", "logs:PutRetentionPolicy")),
    ("AWS::S3::Bucket", ("s3:CreateBucket",)),
    ("Custom::Cleanup", ("lambda:InvokeFunction",)),
)

# A resource of each service as the deployment names it, for policies that allow only some resources; an action that is
# about another kind of resource has a separate row.
ARNS = {
    "iam:CreatePolicy": "arn:{partition}:iam::{account}:policy/parallelcluster/{name}/HeadNodePolicy-1ABCDEFGHIJKL",
    "iam:CreateServiceLinkedRole": "arn:{partition}:iam::{account}:role/aws-service-role/"
    "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-0123456789abcdef0",
    "cloudformation:CreateChangeSet": "arn:{partition}:cloudformation:{region}:aws:transform/Serverless-2016-10-31",
    "lambda:PublishLayerVersion": "arn:{partition}:lambda:{region}:{account}:layer:PCLayer-01234567-89ab-cdef",
    "aps": "arn:{partition}:aps:{region}:{account}:workspace/ws-01234567-89ab-cdef-0123-456789abcdef",
    "budgets": "arn:{partition}:budgets::{account}:budget/{name}-monthly",
    "cloudformation": "arn:{partition}:cloudformation:{region}:{account}:stack/{name}-cluster-Provider-1ABCDEFGHIJKL/0",
    "events": "arn:{partition}:events:{region}:{account}:rule/{name}-observability-BlockEnd-1ABCDEFGHIJKL",
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
    return sorted({action for _, actions in making(settings) for action in actions})


def making(settings: Settings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each type of resource that these stacks make, ParallelCluster's included, with the actions that make it."""
    yield from ((kind, actions) for kind, when, actions in RESOURCES if WHEN[when](settings))
    yield from PROVIDER


def by_resource(actions: Iterable[str]) -> dict[str, list[str]]:
    """The actions by the row of ARNS that they are about."""
    rows: dict[str, list[str]] = {}
    for action in actions:
        rows.setdefault(ARNS.get(action) or ARNS[action.partition(":")[0]], []).append(action)
    return rows
