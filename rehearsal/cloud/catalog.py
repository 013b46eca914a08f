"""Which CloudFormation resource types the embedded AWS knows, and what serves each.

A type is served by an own emulation (network.py, storage.py, observability.py, ...), by moto's model, or is *recorded*:
accepted, given an id, and shown by nothing but CloudFormation. Anything else fails the deployment by name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from rehearsal.cloud_model import ACCOUNT, ResourceRequest, ResourceResult, ResourceType

#: Accepted and recorded, with the reason why nothing more is needed here.
RECORDED: Mapping[str, str] = {
    "AWS::CDK::Metadata": "reports to AWS which constructs are used; no effect",
    "AWS::SSM::Association": "would configure instances; the rehearsal's hosts run the bootstrap scripts instead",
    "AWS::APS::RuleGroupsNamespace": "rules are checked with promtool; no AMP evaluates them here",
    "AWS::APS::AlertManagerDefinition": "no AMP alert manager here",
    "AWS::Budgets::BudgetsAction": "no cost arises here",
    "AWS::CloudFormation::WaitConditionHandle": "an address for signals; nothing signals here",
    "AWS::EC2::FlowLog": "no packets of the emulated network exist",
    "AWS::Lambda::EventInvokeConfig": "functions are called synchronously here",
    "AWS::CloudWatch::CompositeAlarm": "alarms are stored, never evaluated",
    "AWS::Logs::MetricFilter": "log events are stored, never filtered; tests/stacks/cloudwatch_rules.py evaluates it",
    "AWS::Logs::SubscriptionFilter": "log events are stored, never forwarded",
    "AWS::SNS::TopicPolicy": "permissions are not enforced here",
    "AWS::SQS::QueuePolicy": "permissions are not enforced here",
    "AWS::SecretsManager::ResourcePolicy": "permissions are not enforced here",
}

#: moto's models that create, update and delete well enough; others of moto's are not used.
FROM_MOTO = frozenset(
    {
        "AWS::CloudWatch::Dashboard",
        "AWS::DynamoDB::Table",
        "AWS::EC2::LaunchTemplate",
        "AWS::Events::EventBus",
        "AWS::KMS::Alias",
        "AWS::KMS::Key",
        "AWS::Lambda::Function",
        "AWS::Lambda::LayerVersion",
        "AWS::Lambda::Version",
        "AWS::Logs::LogGroup",
        "AWS::Logs::ResourcePolicy",
        "AWS::S3::Bucket",
        "AWS::SNS::Topic",
        "AWS::SQS::Queue",
        "AWS::StepFunctions::StateMachine",
    }
)


class Recorded:
    """A type of RECORDED."""

    def create(self, request: ResourceRequest) -> ResourceResult:
        """Give the resource an id and an ARN."""
        kind = request.resource_type.rsplit("::", 1)[-1].lower()
        service = request.resource_type.split("::")[1].lower()
        physical_id = f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12]}"
        arn = f"arn:aws:{service}:{request.region}:{ACCOUNT}:{kind}/{physical_id}"
        return ResourceResult(physical_id, {"Arn": arn})

    def update(self, _request: ResourceRequest, current: ResourceResult) -> ResourceResult:
        """Nothing to change."""
        return current

    def delete(self, _request: ResourceRequest, _current: ResourceResult) -> None:
        """Nothing to remove."""


class Catalog:
    """Finds what serves a type. `own` maps type names; `custom` serves custom resources; `moto` wraps moto's models."""

    def __init__(
        self, own: Mapping[str, ResourceType], custom: ResourceType, moto: Callable[[str], ResourceType]
    ) -> None:
        self._own = dict(own)
        self._custom = custom
        self._moto = moto
        self._recorded = Recorded()

    def __call__(self, resource_type: str) -> ResourceType | None:
        """The emulation of a type; None if the type is not emulated."""
        if resource_type in self._own:
            return self._own[resource_type]
        if resource_type.startswith("Custom::") or resource_type == "AWS::CloudFormation::CustomResource":
            return self._custom
        if resource_type in FROM_MOTO:
            return self._moto(resource_type)
        return self._recorded if resource_type in RECORDED else None
