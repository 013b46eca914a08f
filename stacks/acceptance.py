"""Acceptance: a custom resource that is created when the cluster is accepted by measurement, and fails when it is not.

The cluster is in another stack and stays in either case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import Aws, CfnOutput, CustomResource, Duration, Stack, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from slipway.bundle import acceptance_basis
from slipway.settings import Settings
from stacks.checks import BASIC_EXECUTION, accept, every_resource_of
from stacks.cluster import ClusterStack
from stacks.functions import function_logs, python_function
from stacks.storage import StorageStack

HANDLER = Path(__file__).parent / "acceptance_handler"
DOCUMENT = "AWS-RunShellScript"
ASK_AGAIN = "accept"  # the CDK's context key
POLL_INTERVAL = Duration.seconds(30)
HANDLER_TIMEOUT = Duration.minutes(5)  # starting waits for the SSM agent of a fresh head node
GRACE_MINUTES = 5  # the run ends first, and can still report why; CloudFormation's limit is 60, the setting's 50


class AcceptanceStack(Stack):
    """Runs the scenario on the head node of `cluster` through Systems Manager; reports go to `storage`.

    An update runs it again when what it depends on has changed (`acceptance_basis`, the head node), or when it is
    asked for: `cdk deploy -c accept=TEXT` with another text than last time.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: Settings,
        cluster: ClusterStack,
        storage: StorageStack,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, id, **kwargs)
        log_group = function_logs(self)
        start, watch = (
            python_function(self, id, folder=HANDLER, handler=handler, timeout=HANDLER_TIMEOUT, log_group=log_group)
            for id, handler in (("StartFunction", "index.on_event"), ("WatchFunction", "index.is_complete"))
        )
        self._grant_send_command(start, cluster.head_node_id)
        self._grant_read_own_state(start)
        self._grant_read_invocations(watch)
        provider = self._provider(start, watch, settings.acceptance.timeout_minutes, log_group)
        verdict = CustomResource(
            self,
            "Acceptance",
            resource_type="Custom::ClusterAcceptance",
            service_token=provider.service_token,
            properties={
                "ClusterName": settings.name,
                "InstanceId": cluster.head_node_id,
                "ResultsBucket": storage.bucket_name,
                "TimeoutMinutes": settings.acceptance.timeout_minutes,
                "Release": cluster.bundle_sha256,  # the head node must have taken it, measured or not
                "Basis": acceptance_basis(settings),  # another one: accept again
                "Asked": str(self.node.try_get_context(ASK_AGAIN) or ""),
            },
        )
        verdict.node.add_dependency(provider, start, watch)  # their policies too: no reference leads to these
        CfnOutput(self, "RunId", value=verdict.get_att_string("RunId"))
        CfnOutput(self, "Summary", value=verdict.get_att_string("Summary"))

    def _grant_send_command(self, function: lambda_.Function, head_node_id: str) -> None:
        """This document on this instance."""
        prefix = f"arn:{Aws.PARTITION}"
        iam.Grant.add_to_principal(
            grantee=function,
            actions=["ssm:SendCommand"],
            resource_arns=[
                f"{prefix}:ssm:{self.region}::document/{DOCUMENT}",
                f"{prefix}:ec2:{self.region}:{Aws.ACCOUNT_ID}:instance/{head_node_id}",
            ],
        )

    def _grant_read_own_state(self, function: lambda_.Function) -> None:
        """Whether this stack is being rolled back: then nothing is measured again."""
        iam.Grant.add_to_principal(
            grantee=function, actions=["cloudformation:DescribeStacks"], resource_arns=[self.stack_id]
        )

    def _grant_read_invocations(self, function: lambda_.Function) -> None:
        iam.Grant.add_to_principal(grantee=function, actions=["ssm:GetCommandInvocation"], resource_arns=["*"])
        accept(function, "IAM5[Resource::*]", "ssm:GetCommandInvocation knows no resource")

    def _provider(
        self, start: lambda_.Function, watch: lambda_.Function, timeout_minutes: int, log_group: logs.ILogGroup
    ) -> custom_resources.Provider:
        provider = custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=start,
            is_complete_handler=watch,
            query_interval=POLL_INTERVAL,
            log_group=log_group,
            total_timeout=Duration.minutes(timeout_minutes + GRACE_MINUTES),
        )
        accept(provider, BASIC_EXECUTION, "CDK's provider framework makes these functions; they write their own logs")
        framework = [provider.node.find_child(f"framework-{name}") for name in ("isComplete", "onTimeout")]
        for function in (start, watch, *framework):
            accept(provider, every_resource_of(function, ":*"), "CDK's provider framework invokes by version")
        accept(provider, "L1", "CDK's provider framework chooses its runtime")
        accept(provider, "SF1", "the state machine only waits and asks again; the functions log")
        accept(provider, "SF2", "the state machine only waits and asks again; nothing to trace")
        return provider
