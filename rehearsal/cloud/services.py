"""Further types: AMP, AMG, Secrets Manager, CloudWatch alarms, budgets, SNS subscriptions.

AMG (Grafana) has no API in moto: a workspace is recorded (grafana.py), and no Grafana server runs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from rehearsal.cloud import grafana
from rehearsal.cloud.clients import Clients
from rehearsal.cloud.network import ApiType
from rehearsal.cloud_errors import ResourceFailed
from rehearsal.cloud_model import ACCOUNT, ResourceRequest, ResourceResult, ResourceType

_GRAFANA_LOGINS = {"AWS_SSO", "SAML"}


def _generated(request: ResourceRequest) -> str:
    return f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12]}"


def _metrics_workspace(amp: Any, request: ResourceRequest) -> ResourceResult:
    own = {item["Key"]: str(item["Value"]) for item in request.properties.get("Tags", [])}
    made = amp.create_workspace(alias=request.properties.get("Alias", _generated(request)), tags=own)
    workspace = amp.describe_workspace(workspaceId=made["workspaceId"])["workspace"]
    attributes = {
        "Arn": workspace["arn"],
        "WorkspaceId": workspace["workspaceId"],
        "PrometheusEndpoint": workspace["prometheusEndpoint"],
    }
    return ResourceResult(workspace["arn"], attributes)


class GrafanaWorkspace:
    """AWS::Grafana::Workspace: recorded; checks what the service checks first."""

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Give the workspace its id and address."""
        properties = request.properties
        for key in ("AccountAccessType", "AuthenticationProviders", "PermissionType"):
            if key not in properties:
                raise ResourceFailed(f"Properties validation failed: required key [{key}] not found")
        unknown = set(properties["AuthenticationProviders"]) - _GRAFANA_LOGINS
        if unknown or not properties["AuthenticationProviders"]:
            raise ResourceFailed(f"AuthenticationProviders must be AWS_SSO or SAML, not {sorted(unknown)}")
        workspace_id = f"g-{uuid.uuid4().hex[:10]}"
        version = str(properties.get("GrafanaVersion", "10.4"))
        made = grafana.add_workspace(request.region, workspace_id, str(properties.get("Name", workspace_id)), version)
        attributes = {
            "Id": workspace_id,
            "Endpoint": made["endpoint"],
            "Status": made["status"],
            "GrafanaVersion": made["grafanaVersion"],
            "SamlConfigurationStatus": "NOT_CONFIGURED",
            "SsoClientId": "",
        }
        return ResourceResult(workspace_id, attributes)

    def update(self, _request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Nothing runs, so there is nothing to change."""
        return current

    def delete(self, request: ResourceRequest, current: ResourceResult) -> None:
        """Nothing runs, so there is nothing to stop; the API lists it no more."""
        grafana.workspaces(request.region).pop(current.physical_id, None)


def _secret(secrets: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    value = properties.get("SecretString")
    generator = properties.get("GenerateSecretString")
    if generator is not None:
        password = secrets.get_random_password(PasswordLength=int(generator.get("PasswordLength", 32)))[
            "RandomPassword"
        ]
        key = generator.get("GenerateStringKey")
        document = json.loads(generator.get("SecretStringTemplate", "{}"))
        value = json.dumps({**document, key: password}) if key else password
    arguments = {"SecretString": value} if value is not None else {}
    made = secrets.create_secret(Name=properties.get("Name", _generated(request)), **arguments)
    return ResourceResult(made["ARN"], {"Id": made["ARN"]})


_ALARM_KEYS = (
    "AlarmDescription",
    "ActionsEnabled",
    "OKActions",
    "AlarmActions",
    "InsufficientDataActions",
    "MetricName",
    "Namespace",
    "Statistic",
    "ExtendedStatistic",
    "Dimensions",
    "Period",
    "Unit",
    "EvaluationPeriods",
    "DatapointsToAlarm",
    "Threshold",
    "ComparisonOperator",
    "TreatMissingData",
    "Metrics",
)


def _alarm(cloudwatch: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = request.physical_id or properties.get("AlarmName", _generated(request))
    arguments = {key: properties[key] for key in _ALARM_KEYS if key in properties}
    cloudwatch.put_metric_alarm(AlarmName=name, **arguments)
    return ResourceResult(name, {"Arn": f"arn:aws:cloudwatch:{request.region}:{ACCOUNT}:alarm:{name}"})


def _budget(budgets: Any, request: ResourceRequest) -> ResourceResult:
    body = dict(request.properties["Budget"])
    name = body.setdefault("BudgetName", _generated(request))
    if "BudgetLimit" in body:
        limit = body["BudgetLimit"]
        body["BudgetLimit"] = {"Amount": str(limit["Amount"]), "Unit": limit["Unit"]}
    notifications = [
        {
            "Notification": {**item["Notification"], "Threshold": float(item["Notification"]["Threshold"])},
            "Subscribers": item["Subscribers"],
        }
        for item in request.properties.get("NotificationsWithSubscribers", [])
    ]
    budgets.create_budget(AccountId=ACCOUNT, Budget=body, NotificationsWithSubscribers=notifications)
    return ResourceResult(name, {})


def _subscription(sns: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    made = sns.subscribe(
        TopicArn=properties["TopicArn"],
        Protocol=properties["Protocol"],
        Endpoint=properties.get("Endpoint", ""),
        ReturnSubscriptionArn=True,
    )
    return ResourceResult(made["SubscriptionArn"], {"Arn": made["SubscriptionArn"]})


def _parameter(ssm: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = request.physical_id or properties.get("Name", _generated(request))
    arguments = {key: properties[key] for key in ("Description", "Tier", "AllowedPattern") if key in properties}
    overwrite = request.request_type == "Update"
    value = str(properties["Value"])
    ssm.put_parameter(Name=name, Type=properties["Type"], Value=value, Overwrite=overwrite, **arguments)
    return ResourceResult(name, {"Type": properties["Type"], "Value": value})


_RULE_KEYS = ("Description", "ScheduleExpression", "State", "EventBusName", "RoleArn")


def _rule(events: Any, request: ResourceRequest) -> ResourceResult:
    properties = request.properties
    name = request.physical_id or properties.get("Name", _generated(request)[-64:].lstrip("-"))
    arguments = {key: properties[key] for key in _RULE_KEYS if key in properties}
    if "EventPattern" in properties:
        arguments["EventPattern"] = json.dumps(properties["EventPattern"])
    arn = events.put_rule(Name=name, **arguments)["RuleArn"]
    if properties.get("Targets"):
        events.put_targets(Rule=name, Targets=properties["Targets"])
    return ResourceResult(name, {"Arn": arn})


def _remove_rule(events: Any, _: ResourceRequest, name: str) -> None:
    targets = [target["Id"] for target in events.list_targets_by_rule(Rule=name)["Targets"]]
    if targets:
        events.remove_targets(Rule=name, Ids=targets)
    events.delete_rule(Name=name)


class NestedStack:
    """AWS::CloudFormation::Stack, handed to the engine."""

    def __init__(self, engine: Callable[[], Any]) -> None:
        self._engine = engine

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Create the stack and wait for it."""
        result: ResourceResult = self._engine().create_nested(request)
        return result

    def update(self, request: ResourceRequest, _current: ResourceResult) -> ResourceResult:
        """Update the stack and wait for it."""
        result: ResourceResult = self._engine().update_nested(request)
        return result

    def delete(self, _request: ResourceRequest, current: ResourceResult) -> None:
        """Delete the stack and wait for it."""
        self._engine().delete_nested(current.physical_id)


def service_types(clients: Clients) -> dict[str, ResourceType]:
    """The types of this module by name."""
    return {
        "AWS::APS::Workspace": ApiType(
            clients,
            "amp",
            _metrics_workspace,
            lambda c, _, i: c.delete_workspace(workspaceId=i.rsplit("/", 1)[-1]),
            mutable=("Tags", "AlertManagerDefinition", "LoggingConfiguration"),
        ),
        "AWS::Grafana::Workspace": GrafanaWorkspace(),
        "AWS::SecretsManager::Secret": ApiType(
            clients,
            "secretsmanager",
            _secret,
            lambda c, _, i: c.delete_secret(SecretId=i, ForceDeleteWithoutRecovery=True),
            mutable=("Tags", "Description"),
        ),
        "AWS::CloudWatch::Alarm": ApiType(
            clients, "cloudwatch", _alarm, lambda c, _, i: c.delete_alarms(AlarmNames=[i]), change=_alarm
        ),
        "AWS::Budgets::Budget": ApiType(
            clients, "budgets", _budget, lambda c, _, i: c.delete_budget(AccountId=ACCOUNT, BudgetName=i)
        ),
        "AWS::SSM::Parameter": ApiType(
            clients, "ssm", _parameter, lambda c, _, i: c.delete_parameter(Name=i), change=_parameter
        ),
        "AWS::Events::Rule": ApiType(clients, "events", _rule, _remove_rule, change=_rule),
        "AWS::SNS::Subscription": ApiType(
            clients,
            "sns",
            _subscription,
            lambda c, _, i: c.unsubscribe(SubscriptionArn=i),
            replacing=("Endpoint", "Protocol", "TopicArn"),
        ),
    }
