"""The cluster: the bundle for its nodes, what the nodes may do, and ParallelCluster itself as a custom resource."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk import (
    AssetHashType,
    Aws,
    CfnOutput,
    CfnStack,
    CrossStackReferences,
    CustomResource,
    Duration,
    Fn,
    ReferenceStrength,
    Stack,
)
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from slipway.bundle import write_bundle
from slipway.cluster_config import (
    FACTS_OUTPUT,
    POLICIES_TEMPLATE,
    PROVIDER_TEMPLATE,
    ClusterFacts,
    bundle_parameter,
    cluster_configuration,
)
from slipway.places import FILES
from slipway.settings import Script, Settings
from stacks.checks import accept
from stacks.functions import function_logs, python_function
from stacks.keys import grant_any_key
from stacks.network import NetworkStack
from stacks.observability import ObservabilityStack
from stacks.storage import StorageStack

PARALLELCLUSTER_PATH = "/parallelcluster/"  # the IAM path of the roles that ParallelCluster makes
PROVIDER_BUCKET_CHARACTERS = 20  # of a generated bucket name the beginning of the stack's name is certain
AGENT_ACTIONS = (
    # Systems Manager user guide, "Minimum Session Manager permissions" and "ec2messages, ssmmessages, and other API
    # operations": sessions and commands. AmazonSSMManagedInstanceCore would also let the node read every parameter.
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
OLDER_AGENT_ACTIONS = (  # agents before 3.3.40 take commands through these
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
)
BOOTSTRAP_ACTION = FILES / "nodes/load-bundle.sh"
NAME_GUARD = Path(__file__).parent / "name_guard"
GUARD_TIMEOUT = Duration.minutes(1)
CLUSTER_RESOURCE = "Cluster"


class ClusterStack(Stack):
    """`head_node_id` is the instance that acceptance runs on, `bundle_sha256` what it must have taken before."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: Settings,
        network: NetworkStack,
        storage: StorageStack,
        observability: ObservabilityStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, id, **kwargs)
        self._settings = settings
        self._network = network
        self._storage = storage
        self._observability = observability
        self._script = self._bootstrap_action()
        self._bundle, self.bundle_sha256 = self._bundle_asset()
        self._compute_policy = self._node_policy("ComputePolicy", "What every compute node may do")
        self._head_node_policy = self._node_policy("HeadNodePolicy", "What the head node may do")
        self._grant_read_site_scripts()
        storage.grant_write_results(self._head_node_policy)
        observability.grant_remote_write(self._head_node_policy)
        self._grant_agent(self._head_node_policy)
        self._grant_describe_topology(self._head_node_policy)
        self._grant_read_secret(self._head_node_policy)
        self._grant_decrypt(self._head_node_policy, settings.secret_arns)
        self._parameter = self._bundle_parameter()
        self.add_stack_dependency(storage)  # its exports are imported by their names
        guard = self._name_guard()
        provider = self._provider()
        provider.node.add_dependency(guard)
        self.cluster = self._cluster(provider)
        self.cluster.node.add_dependency(guard)
        self.head_node_id = self.cluster.get_att_string("headNode.instanceId")
        self._head_node_alarm()
        facts = {"vpc_id": network.vpc.vpc_id, "facts": dataclasses.asdict(self._facts())}
        CfnOutput(self, FACTS_OUTPUT, value=json.dumps(facts))  # ids and addresses have nothing to escape
        CfnOutput(self, "HeadNodeInstanceId", value=self.head_node_id)
        CfnOutput(self, "HeadNodePrivateIp", value=self.cluster.get_att_string("headNode.privateIpAddress"))
        CfnOutput(self, "ValidationMessages", value=self.cluster.get_att_string("validationMessages"))

    def _bootstrap_action(self) -> assets.Asset:
        """Its address must not change on an existing cluster: it depends on the file's bytes, not on CDK's hash."""
        digest = hashlib.sha256(BOOTSTRAP_ACTION.read_bytes()).hexdigest()
        return assets.Asset(
            self,
            "BootstrapAction",
            path=str(BOOTSTRAP_ACTION),
            asset_hash=digest,
            asset_hash_type=AssetHashType.CUSTOM,
        )

    def _bundle_parameter(self) -> ssm.CfnParameter:
        """Which bundle the nodes take, with its sha256, and what is known only now. Written by deployments alone.

        After the policies, so that a node which reads it may also read the bundle.
        """
        lines = [f"BUNDLE_URL={self._bundle.s3_object_url}", f"BUNDLE_SHA256={self.bundle_sha256}"]
        parameter = ssm.CfnParameter(
            self,
            "BundleParameter",
            type="String",
            name=bundle_parameter(self._settings),
            description="The bundle of this cluster's nodes",
            value="\n".join([*lines, *self._node_arguments()]),
        )
        parameter.node.add_dependency(self._head_node_policy, self._compute_policy)
        return parameter

    def _node_arguments(self) -> tuple[str, ...]:
        return (
            f"RESULTS_BUCKET={self._storage.bucket_name}",
            f"AMP_REMOTE_WRITE_URL={self._observability.remote_write_url}",
            f"LOG_GROUP={self._observability.log_group.ref}",
        )

    def _bundle_asset(self) -> tuple[assets.Asset, str]:
        """Return the bundle and its sha256. CDK copies the file at once, so the directory is temporary."""
        with tempfile.TemporaryDirectory(prefix="slipway-") as directory:
            bundle = write_bundle(self._settings, Path(directory) / "bundle.tar.gz")
            return assets.Asset(self, "Bundle", path=str(bundle.path)), bundle.sha256

    def _node_policy(self, id: str, description: str) -> iam.ManagedPolicy:
        """What both kinds of node need: their scripts, the log group, the software mirror.

        ParallelCluster's own role may attach policies of this path to the nodes' roles, and no others.
        """
        policy = iam.ManagedPolicy(
            self, id, description=description, path=f"{PARALLELCLUSTER_PATH}{self._settings.name}/"
        )
        self._grant_read_scripts(policy)
        self._grant_read_parameter(policy)
        self._observability.grant_write_logs(policy)
        mirror = self._settings.software_mirror or ""
        if mirror.startswith("s3://"):
            objects = f"s3:::{mirror.removeprefix('s3://').rstrip('/')}/*"
            arns = [f"arn:{Aws.PARTITION}:{objects}"]
            iam.Grant.add_to_principal(grantee=policy, actions=["s3:GetObject"], resource_arns=arns)
            accept(policy, f"IAM5[Resource::arn:<AWS::Partition>:{objects}]", "a mirror is a prefix with many files")
        return policy

    def _grant_agent(self, policy: iam.ManagedPolicy) -> None:
        """Systems Manager's agent: `slipway ssh`, and the commands of acceptance and `slipway status`."""
        actions = [*AGENT_ACTIONS, *OLDER_AGENT_ACTIONS]
        iam.Grant.add_to_principal(grantee=policy, actions=actions, resource_arns=["*"])
        accept(policy, "IAM5[Resource::*]", "the agent's actions know no resource")

    def _grant_describe_topology(self, policy: iam.ManagedPolicy) -> None:
        """Where the nodes are in the network (headnode/topology.py); ParallelCluster grants ec2:DescribeInstances."""
        iam.Grant.add_to_principal(grantee=policy, actions=["ec2:DescribeInstanceTopology"], resource_arns=["*"])

    def _grant_read_secret(self, grantee: iam.IGrantable) -> None:
        """The key of the image registry, for the head node alone, which imports the images.

        ParallelCluster shields the head node's role from all users but the default one, who may use sudo.
        """
        if self._settings.ngc_secret_arn:
            arns = [self._settings.ngc_secret_arn]
            iam.Grant.add_to_principal(grantee=grantee, actions=["secretsmanager:GetSecretValue"], resource_arns=arns)

    def _grant_decrypt(self, policy: iam.ManagedPolicy, secret_arns: Sequence[str]) -> None:
        """A secret may have a key of the site's own, which its ARN does not say; see grant_any_key."""
        if secret_arns:
            context = {"kms:EncryptionContext:SecretARN": list(secret_arns)}
            grant_any_key(policy, "secretsmanager", ["kms:Decrypt"], context)

    def _grant_read_scripts(self, grantee: iam.IGrantable) -> None:
        """Exactly these two objects; Asset.grant_read would open the whole bucket of all deployments of the account."""
        arns = [asset.bucket.arn_for_objects(asset.s3_object_key) for asset in (self._script, self._bundle)]
        iam.Grant.add_to_principal(grantee=grantee, actions=["s3:GetObject"], resource_arns=arns)

    def _grant_read_parameter(self, grantee: iam.IGrantable) -> None:
        parameter = f"parameter{bundle_parameter(self._settings)}"
        arns = [f"arn:{Aws.PARTITION}:ssm:{self._settings.region}:{Aws.ACCOUNT_ID}:{parameter}"]
        iam.Grant.add_to_principal(grantee=grantee, actions=["ssm:GetParameter"], resource_arns=arns)

    def _grant_read_site_scripts(self) -> None:
        """The site's own bootstrap actions, each by its exact key."""
        compute = [script for queue in self._settings.queues for script in queue.scripts]
        for policy, scripts in (
            (self._head_node_policy, self._settings.head_node.scripts),
            (self._compute_policy, compute),
        ):
            arns = _object_arns(scripts)
            if arns:
                iam.Grant.add_to_principal(grantee=policy, actions=["s3:GetObject"], resource_arns=arns)

    def _provider(self) -> CfnStack:
        """AWS's stack with the function that runs ParallelCluster, here allowed to hand our policies to the nodes."""
        policy = self._provider_policy()
        if not self._settings.iam.is_site:
            return self._parallelcluster_stack(
                "Provider", PROVIDER_TEMPLATE, {"AdditionalIamPolicies": policy.managed_policy_arn}
            )
        role = self._provider_role(policy)
        return self._parallelcluster_stack("Provider", PROVIDER_TEMPLATE, {"CustomLambdaRole": role})

    def _parallelcluster_stack(self, id: str, template: str, parameters: dict[str, str]) -> CfnStack:
        region = self._settings.region
        url = f"https://{region}-aws-parallelcluster.s3.{region}.{Aws.URL_SUFFIX}/{template}"
        return CfnStack(self, id, template_url=url, parameters=parameters)

    def _provider_role(self, policy: iam.ManagedPolicy) -> str:
        """The role of ParallelCluster's own template, bounded and named as the account asks.

        The provider's own template makes its role without either. It adds what that template would have added.
        Source: aws-parallelcluster, cloudformation/custom_resource/cluster.yaml, EventsPolicy and S3Policy.
        """
        asked, stack = self._settings.iam, f"{self.stack_name}-provider"[:PROVIDER_BUCKET_CHARACTERS]
        rules = f"arn:{Aws.PARTITION}:events:{self.region}:{Aws.ACCOUNT_ID}:rule/*"
        bucket = f"arn:{Aws.PARTITION}:s3:::{stack}*"
        events = [f"events:{action}" for action in ("PutRule", "DeleteRule", "PutTargets", "RemoveTargets")]
        objects = ["s3:*Object", "s3:ListBucket", "s3:ListBucketVersions"]
        iam.Grant.add_to_principal(grantee=policy, actions=events, resource_arns=[rules])
        iam.Grant.add_to_principal(grantee=policy, actions=objects, resource_arns=[bucket])
        for pattern in (rules, bucket):
            shown = pattern.replace(Aws.PARTITION, "<AWS::Partition>").replace(Aws.ACCOUNT_ID, "<AWS::AccountId>")
            accept(policy, f"IAM5[Resource::{shown}]", "AWS's stack generates the names")
        accept(policy, "IAM5[Action::s3:*Object]", "as in ParallelCluster's own policy, on the provider's bucket alone")
        parameters = {
            "EnableIamAdminAccess": "true",  # ParallelCluster makes the nodes' roles
            "AdditionalPolicies": policy.managed_policy_arn,
            **({"PermissionsBoundaryPolicy": asked.permissions_boundary} if asked.permissions_boundary else {}),
            **({"IAMRoleAndPolicyPrefix": asked.name_prefix} if asked.name_prefix else {}),
        }
        role = self._parallelcluster_stack("ProviderRole", POLICIES_TEMPLATE, parameters)
        return Fn.get_att(role.logical_id, "Outputs.ParallelClusterLambdaRoleArn").to_string()

    def _provider_policy(self) -> iam.ManagedPolicy:
        policy = iam.ManagedPolicy(
            self, "ProviderPolicy", description="What ParallelCluster needs in addition to its own policies"
        )
        self._grant_read_scripts(policy)  # its validators look whether they are there
        self._grant_look_at_site_parts(policy)
        self._grant_attach_site_policies(policy)
        return policy

    def _grant_attach_site_policies(self, policy: iam.ManagedPolicy) -> None:
        """ParallelCluster's own role may attach policies below its path and a few of AWS's, but not the site's.

        Source: aws-parallelcluster, cloudformation/policies/parallelcluster-policies.yaml, Sid IamPolicy.
        """
        arns = list(self._settings.policy_arns)
        if not arns:
            return
        roles = f"role{PARALLELCLUSTER_PATH}*"
        iam.Grant.add_to_principal(
            grantee=policy,
            actions=["iam:AttachRolePolicy", "iam:DetachRolePolicy"],
            resource_arns=[f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:{roles}"],
            conditions={"ArnEquals": {"iam:PolicyARN": arns}},
        )
        finding = f"IAM5[Resource::arn:<AWS::Partition>:iam::<AWS::AccountId>:{roles}]"
        accept(policy, finding, "ParallelCluster names the roles; the condition names the policies")

    def _grant_look_at_site_parts(self, policy: iam.ManagedPolicy) -> None:
        slurm = self._settings.slurm
        parts = [(_object_arns(self._settings.scripts), "s3:GetObject")]
        if slurm.database:
            parts.append(([slurm.database.password_secret_arn], "secretsmanager:DescribeSecret"))
        if slurm.external_slurmdbd and slurm.external_slurmdbd.munge_key_secret_arn:
            # The validator looks into this one: it must be base64 of the right length.
            parts.append(([slurm.external_slurmdbd.munge_key_secret_arn], "secretsmanager:GetSecretValue"))
            self._grant_decrypt(policy, parts[-1][0])
        for arns, action in parts:
            if arns:
                iam.Grant.add_to_principal(grantee=policy, actions=[action], resource_arns=arns)

    def _cluster(self, provider: CfnStack) -> CustomResource:
        """DeletionPolicy Delete: the instances go with the stack; file system and bucket are in the storage stack."""
        cluster = CustomResource(
            self,
            CLUSTER_RESOURCE,
            resource_type="Custom::PclusterCluster",
            service_token=Fn.get_att(provider.logical_id, "Outputs.ServiceToken").to_string(),
            properties={
                "ClusterName": self._settings.name,  # must differ from the name of this stack
                "ClusterConfiguration": cluster_configuration(self._settings, self._facts()),
                "DeletionPolicy": "Delete",
            },
        )
        cluster.node.add_dependency(self._parameter)
        CrossStackReferences.of(cluster).produce(ReferenceStrength.BOTH)  # acceptance can be switched off
        return cluster

    def _name_guard(self) -> CustomResource:
        """Fails before ParallelCluster's resource does: that one deletes, after a failure, whatever has the name."""
        name, region = self._settings.name, self._settings.region
        function = python_function(
            self,
            "NameGuardFunction",
            folder=NAME_GUARD,
            handler="index.handler",
            timeout=GUARD_TIMEOUT,
            log_group=function_logs(self),
        )
        stack = f"cloudformation:{region}:{Aws.ACCOUNT_ID}:stack/{name}/*"
        arns = [f"arn:{Aws.PARTITION}:{stack}"]
        iam.Grant.add_to_principal(grantee=function, actions=["cloudformation:DescribeStacks"], resource_arns=arns)
        iam.Grant.add_to_principal(
            grantee=function, actions=["cloudformation:DescribeStackResource"], resource_arns=[self.stack_id]
        )
        finding = f"IAM5[Resource::arn:<AWS::Partition>:cloudformation:{region}:<AWS::AccountId>:stack/{name}/*]"
        accept(function, finding, "the id in the ARN of a stack is not known before")
        guard = CustomResource(
            self,
            "NameGuard",
            resource_type="Custom::ClusterNameGuard",
            service_token=function.function_arn,
            service_timeout=GUARD_TIMEOUT,
            properties={"ClusterName": name, "Region": region, "ClusterResource": CLUSTER_RESOURCE},
        )
        guard.node.add_dependency(function)  # its policy too
        return guard

    def _facts(self) -> ClusterFacts:
        return ClusterFacts(
            head_node_subnet_id=self._network.head_node_subnet_id,
            compute_subnet_id=self._network.compute_subnet_id,
            node_security_group_id=self._network.node_security_group.security_group_id,
            file_system_id=self._storage.file_system_id,
            home_volume_id=self._storage.home_volume_id,
            script_url=self._script.s3_object_url,
            bundle_sha256=self.bundle_sha256,
            node_arguments=self._node_arguments(),
            head_node_policy_arns=(self._head_node_policy.managed_policy_arn,),
            compute_policy_arns=(self._compute_policy.managed_policy_arn,),
        )

    def _head_node_alarm(self) -> None:
        """A dead head node starts no job and sends no metrics: AMP's own alerts would stay silent."""
        if not self._observability.alarm_topic:
            return
        alarm = cloudwatch.Alarm(
            self,
            "HeadNodeAlarm",
            alarm_description=f"The head node of {self._settings.name} fails its EC2 status checks",
            metric=cloudwatch.Metric(
                namespace="AWS/EC2",
                metric_name="StatusCheckFailed",
                dimensions_map={"InstanceId": self.head_node_id},
                statistic="Maximum",
                period=Duration.minutes(1),
            ),
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=3,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self._observability.alarm_topic))


def _object_arns(scripts: Sequence[Script]) -> list[str]:
    """ARNs of scripts in S3, each once, in a stable order."""
    paths = dict.fromkeys(script.url.removeprefix("s3://") for script in scripts)
    return [f"arn:{Aws.PARTITION}:s3:::{path}" for path in paths]
