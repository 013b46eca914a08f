"""Observability: metrics (AMP), dashboards (AMG), the nodes' log group, alarms by e-mail, and the budget."""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, CfnOutput, CrossStackReferences, ReferenceStrength, RemovalPolicy, Stack
from aws_cdk import aws_aps as aps
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_grafana as grafana
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from slipway.settings import Budget, Settings
from stacks.checks import accept

QUERY_ACTIONS = ["aps:QueryMetrics", "aps:GetSeries", "aps:GetLabels", "aps:GetMetricMetadata"]
REMOTE_WRITE_PERIOD_S = 300  # the head node notes the count of the last 15 minutes every 5
# One refused batch is in three notes and not worth an e-mail; a full workspace stays full. The timer's notes are a
# little more than a period apart, so that now and then a period has none: one of five may be missing.
REMOTE_WRITE_PERIODS, REMOTE_WRITE_REFUSING = 5, 4
BUDGET_FORECAST_PERCENT = 100  # the month will end above the budget
BUDGET_SPENT_PERCENT = 80  # most of it is gone


class ObservabilityStack(Stack):
    """Each part can be off: `remote_write_url` is empty without AMP, `alarm_topic` is None without an address."""

    def __init__(self, scope: Construct, id: str, *, settings: Settings, **kwargs: Any) -> None:
        super().__init__(scope, id, **kwargs)
        name, observability = settings.name, settings.observability
        self.log_group = self._log_group(observability.retention_days)
        self.prometheus = aps.CfnWorkspace(self, "Prometheus", alias=name) if observability.prometheus else None
        self.grafana = self._grafana(name) if observability.grafana else None
        self.alarm_topic = self._alarm_topic(observability.alert_email) if observability.alert_email else None
        if self.alarm_topic:
            self._block_end_rule(settings, self.alarm_topic)
        if self.prometheus and self.alarm_topic:
            self._remote_write_alarm(name, self.alarm_topic)
        for part in (self.prometheus, self.alarm_topic):
            if part:  # can be switched off while the cluster uses it; exports too for older deployments of the cluster
                CrossStackReferences.of(part).produce(ReferenceStrength.BOTH)
        if settings.budget and observability.alert_email:
            self._budget(name, settings.budget, observability.alert_email)
        self._outputs()

    @property
    def remote_write_url(self) -> str:
        """Where Prometheus on the head node sends to; empty without AMP."""
        return f"{self.prometheus.attr_prometheus_endpoint}api/v1/remote_write" if self.prometheus else ""

    def grant_remote_write(self, grantee: iam.IGrantable) -> None:
        """Send metrics to this workspace; nothing without AMP."""
        if self.prometheus:
            arns = [self.prometheus.attr_arn]
            iam.Grant.add_to_principal(grantee=grantee, actions=["aps:RemoteWrite"], resource_arns=arns)

    def grant_write_logs(self, grantee: iam.IGrantable) -> None:
        """Write to the nodes' log group."""
        actions = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
        arns = [self.log_group.attr_arn]  # CloudFormation's ends in :* already and covers the streams
        iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=arns)

    def _log_group(self, retention_days: int) -> logs.CfnLogGroup:
        """Without a fixed name: it is retained, and a second deployment would find the name taken."""
        group = logs.CfnLogGroup(self, "LogGroup", retention_in_days=retention_days)
        group.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        return group

    def _grafana(self, name: str) -> grafana.CfnWorkspace:
        role = iam.Role(
            self,
            "GrafanaRole",
            description="Amazon Managed Grafana reads the metrics of this cluster",
            assumed_by=iam.ServicePrincipal(
                "grafana.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
        )
        if self.prometheus:
            role.add_to_policy(iam.PolicyStatement(actions=QUERY_ACTIONS, resources=[self.prometheus.attr_arn]))
            role.add_to_policy(iam.PolicyStatement(actions=["aps:ListWorkspaces"], resources=["*"]))
            accept(role, "IAM5[Resource::*]", "aps:ListWorkspaces knows no resource; Grafana's page asks for it")
        return grafana.CfnWorkspace(
            self,
            "Grafana",
            name=name,
            account_access_type="CURRENT_ACCOUNT",
            authentication_providers=["AWS_SSO"],
            permission_type="CUSTOMER_MANAGED",
            role_arn=role.role_arn,
            data_sources=["PROMETHEUS"],
        )

    def _alarm_topic(self, email: str) -> sns.Topic:
        topic = sns.Topic(self, "AlarmTopic", enforce_ssl=True)
        topic.add_subscription(subscriptions.EmailSubscription(email))
        topic.grant_publish(iam.ServicePrincipal("cloudwatch.amazonaws.com"))
        accept(topic, "SNS2", "alarms carry names and numbers, no data; an encrypted topic needs a separate key")
        return topic

    def _block_end_rule(self, settings: Settings, topic: sns.Topic) -> None:
        """EC2 warns 40 minutes before a block's end, 10 before it ends the block's instances (EC2 guide)."""
        reservations = [queue.reservation for queue in settings.queues if queue.reservation]
        blocks = sorted({one.id for one in reservations if one.kind == "capacity-block"})
        if not blocks:
            return
        topic.grant_publish(iam.ServicePrincipal("events.amazonaws.com"))
        events.CfnRule(
            self,
            "BlockEnd",
            description=f"The capacity block of {settings.name} ends: its instances end 30 minutes before that",
            event_pattern={
                "source": ["aws.ec2"],
                "detail-type": ["Capacity Block Reservation Expiration Warning"],
                "detail": {"capacity-reservation-id": blocks},
            },
            targets=[events.CfnRule.TargetProperty(id="AlarmTopic", arn=topic.topic_arn)],
        )

    def _remote_write_alarm(self, name: str, topic: sns.Topic) -> None:
        """Prometheus stays ready while AMP refuses its samples: the head node logs how many (remote_write.py)."""
        namespace, metric = f"Slipway/{name}", "RemoteWriteSamplesRefused"
        logs.CfnMetricFilter(
            self,
            "RemoteWriteRefused",
            log_group_name=self.log_group.ref,
            filter_pattern='[kind="remote_write", refused, retried, sent, time]',
            metric_transformations=[
                logs.CfnMetricFilter.MetricTransformationProperty(
                    metric_namespace=namespace, metric_name=metric, metric_value="$refused"
                )
            ],
        )
        cloudwatch.CfnAlarm(
            self,
            "RemoteWriteAlarm",
            alarm_description=f"Managed Prometheus refuses metrics of {name}: slipway status says why",
            namespace=namespace,
            metric_name=metric,
            statistic="Maximum",
            period=REMOTE_WRITE_PERIOD_S,
            evaluation_periods=REMOTE_WRITE_PERIODS,
            datapoints_to_alarm=REMOTE_WRITE_REFUSING,
            comparison_operator="GreaterThanThreshold",
            threshold=0,
            treat_missing_data="notBreaching",  # while there is no head node; a dead one has its own alarm
            alarm_actions=[topic.topic_arn],
        )

    def _budget(self, name: str, budget: Budget, email: str) -> budgets.CfnBudget:
        """Over the whole account: a tag filter counts nothing, silently, until the tag is activated for billing."""
        who = budgets.CfnBudget.SubscriberProperty(address=email, subscription_type="EMAIL")
        kinds = (("FORECASTED", BUDGET_FORECAST_PERCENT), ("ACTUAL", BUDGET_SPENT_PERCENT))
        return budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{name}-monthly",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=budget.monthly_usd, unit="USD"),
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind, comparison_operator="GREATER_THAN", threshold=percent
                    ),
                    subscribers=[who],
                )
                for kind, percent in kinds
            ],
        )

    def _outputs(self) -> None:
        CfnOutput(self, "LogGroupName", value=self.log_group.ref)
        if self.prometheus:
            CfnOutput(self, "PrometheusEndpoint", value=self.prometheus.attr_prometheus_endpoint)
        if self.grafana:
            CfnOutput(self, "GrafanaUrl", value=f"https://{self.grafana.attr_endpoint}")
        here = f"{Aws.REGION}:{Aws.ACCOUNT_ID}"
        if not self.prometheus:
            url = f"https://aps-workspaces.{Aws.REGION}.{Aws.URL_SUFFIX}/workspaces/ws-off/"
            self._keep_output("PublishOutputFnGetAttPrometheusPrometheusEndpoint54674BFF", url)
            arn = f"arn:{Aws.PARTITION}:aps:{here}:workspace/ws-off"
            self._keep_output("PublishOutputFnGetAttPrometheusArn5FC1C7E0", arn)
        if not self.alarm_topic:
            self._keep_output("PublishOutputRefAlarmTopicD01E77F9507B8F76", f"arn:{Aws.PARTITION}:sns:{here}:off")

    def _keep_output(self, logical_id: str, value: str) -> None:
        """Keep an output that the cluster's stack reads while a part is on, with a value of the same form.

        The part is switched off here first. If the update of the cluster's stack then fails, CloudFormation rolls that
        stack back to the template that reads the output. Its page of Fn::GetStackOutput does not say whether the
        roll-back reads outputs again; without the output that would end in UPDATE_ROLLBACK_FAILED.
        """
        CfnOutput(self, f"{logical_id[-8:]}Off", value=value).override_logical_id(logical_id)
