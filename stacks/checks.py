"""How a stack says that a finding of cdk-nag was seen and accepted, with its reason."""

from __future__ import annotations

import os

from aws_cdk import Acknowledgment, App, CfnElement, Stack, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

BASIC_EXECUTION = "IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]"


def add_checks(app: App) -> None:
    """Check every stack with cdk-nag's AwsSolutions rules, unless CDK_VALIDATION=false (tests, inner loop)."""
    if os.environ.get("CDK_VALIDATION", "").lower() != "false":
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the finding `rule` (`VPC7`, `IAM5[Resource::*]`) on `construct` and below it."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason))


def accept_empty(stack: Stack) -> None:
    """Accept a stack that has nothing to make. The CDK CLI deploys none of that name, so CloudFormation sees none."""
    accept_in_template(stack, "F0001", "all of it exists already; the CDK CLI skips a stack without resources")


def accept_in_template(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept a finding of CDK's own validation of templates."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"CloudFormation-Validate::{rule}", reason=reason))


def every_resource_of(construct: IConstruct, suffix: str) -> str:
    """The finding for `<this resource's ARN>suffix`, as cdk-nag spells it within one stack."""
    inner = construct.node.default_child
    assert isinstance(inner, CfnElement)  # noqa: S101 (for mypy: default_child has no narrower type)
    return f"IAM5[Resource::<{Stack.of(construct).resolve(inner.logical_id)}.Arn>{suffix}]"
