"""Managed Prometheus and Grafana: room for a workspace, a name that is free, and the sign-in that Grafana needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.account import account_id, home_region
from slipway.preflight.asking import found
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.preflight.quota import QUOTA_PERMISSIONS, Quota
from slipway.settings import Settings
from slipway.text import listed

PROMETHEUS = ("observability", "prometheus")
GRAFANA = ("observability", "grafana")
# Codes of the quotas on the number of workspaces. Source: Service Quotas as read by public tools, November 2026.
PROMETHEUS_QUOTA = "L-8873DB23"
GRAFANA_QUOTA = "L-2C2D5119"


def start_stack(settings: Settings, aws: Aws) -> Pending:
    """Begin asking for the stack that makes the workspaces."""
    return aws.start("cloudformation", "describe_stacks", StackName=f"{settings.name}-observability")


def is_deployed(stack: Pending) -> bool:
    """Whether the stack is there: what has the cluster's name is then its own. Waits."""
    return found(stack, "ValidationError") is not None


def _prometheus(settings: Settings, aws: Aws) -> Iterator[Answer]:
    stack, quota = start_stack(settings, aws), Quota(aws, "aps", PROMETHEUS_QUOTA)
    asked = aws.start("amp", "list_workspaces")
    workspaces = [(item["workspaceId"], item.get("alias", "")) for item in asked.result()["workspaces"]]
    yield from _workspaces(settings, PROMETHEUS, "Prometheus", workspaces, quota, stack)


def _grafana(settings: Settings, aws: Aws) -> Iterator[Answer]:
    stack, quota = start_stack(settings, aws), Quota(aws, "grafana", GRAFANA_QUOTA)
    asked = aws.start("grafana", "list_workspaces")
    workspaces = [(item["id"], item.get("name", "")) for item in asked.result()["workspaces"]]
    yield from _workspaces(settings, GRAFANA, "Grafana", workspaces, quota, stack)


def _workspaces(
    settings: Settings, path: tuple[str, ...], what: str, there: list[tuple[str, str]], quota: Quota, stack: Pending
) -> Iterator[Answer]:
    """`there`: id and name of every workspace of the region."""
    if is_deployed(stack):
        yield ok(path, f"the {what} workspace {settings.name} is this cluster's")
        return
    same = [workspace_id for workspace_id, name in there if name == settings.name]
    if same:
        text = f"a {what} workspace called {settings.name} is there already: {', '.join(same)}"
        yield warning(path, text, "the cluster makes its own; delete the old one if it is left over")
    granted = quota.value()
    if len(there) >= granted:
        yield fault(path, f"all {granted:.0f} {what} workspaces of the quota are used", quota.repair(len(there) + 1))
    else:
        yield ok(path, f"{len(there)} of {granted:.0f} {what} workspaces are used")


def _identity_center(settings: Settings, aws: Aws) -> Iterator[Answer]:
    regions = aws.start("ec2", "describe_regions", region=home_region(settings.region))
    here = _usable(aws.start("sso-admin", "list_instances").result())
    if here:
        yield ok(GRAFANA, f"IAM Identity Center is there: {here[0]['InstanceArn']}")
        return
    names = [item["RegionName"] for item in regions.result()["Regions"] if item["RegionName"] != settings.region]
    elsewhere = _elsewhere(aws, names)
    if elsewhere:
        text = f"IAM Identity Center is in {', '.join(elsewhere)}, not in {settings.region}"
        hint = "ask in the Grafana console of this region whether it offers that sign-in"
        yield warning(GRAFANA, text, hint)
    else:
        text = "IAM Identity Center is not enabled: Grafana would have no sign-in"
        yield fault(
            GRAFANA, text, "enable it at console.aws.amazon.com/singlesignon, or set observability.grafana: false"
        )


def _usable(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in answer["Instances"] if item.get("Status", "ACTIVE") == "ACTIVE"]


def _elsewhere(aws: Aws, regions: list[str]) -> list[str]:
    """The regions with an instance. Raises Unasked if no region reports one and some regions do not answer."""
    asked = {region: aws.start("sso-admin", "list_instances", region=region) for region in regions}
    found_in, silent = [], []
    for region, pending in asked.items():
        try:
            if _usable(pending.result()):
                found_in.append(region)
        except (Unasked, Refused):  # an organization may close regions to its accounts
            silent.append(region)
    if silent and not found_in:
        raise Unasked(f"IAM Identity Center is not in {aws.region}, and does not answer in {listed(silent)}")
    return found_in


def _budget(settings: Settings, aws: Aws) -> Iterator[Answer]:
    name = f"{settings.name}-monthly"
    stack = start_stack(settings, aws)
    home = home_region(settings.region)
    account = account_id(aws)
    asked = aws.start("budgets", "describe_budget", region=home, AccountId=account, BudgetName=name)
    path = ("budget", "monthly_usd")
    if found(asked, "NotFoundException") is None:
        yield ok(path, f"the name {name} is free for the budget")
    elif is_deployed(stack):
        yield ok(path, f"the budget {name} is this cluster's")
    else:
        hint = f"aws budgets delete-budget --account-id {account} --budget-name {name}"
        yield fault(path, f"a budget called {name} is there already", hint)


QUESTIONS = (
    Question(
        name="prometheus",
        asks="Is there room for a Managed Prometheus workspace, and none of this name yet?",
        why="Past the quota the observability stack fails; two workspaces of one name get mistaken for each other.",
        source="Service Quotas, aps: workspaces per region and account",
        permissions=("aps:ListWorkspaces", "cloudformation:DescribeStacks", *QUOTA_PERMISSIONS),
        finds=(Status.FAULT, Status.WARNING),
        ask=_prometheus,
        applies=lambda s: s.observability.prometheus,
    ),
    Question(
        name="grafana",
        asks="Is there room for a Managed Grafana workspace, and none of this name yet?",
        why="The quota is five workspaces; the observability stack fails on the sixth.",
        source="Service Quotas, grafana: number of workspaces",
        permissions=("grafana:ListWorkspaces", "cloudformation:DescribeStacks", *QUOTA_PERMISSIONS),
        finds=(Status.FAULT, Status.WARNING),
        ask=_grafana,
        applies=lambda s: s.observability.grafana,
    ),
    Question(
        name="identity-center",
        asks="Is IAM Identity Center enabled, which Managed Grafana signs its users in with?",
        why="The workspace cannot be made without it.",
        source="Managed Grafana user guide, authentication with IAM Identity Center",
        permissions=("sso:ListInstances", "ec2:DescribeRegions"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_identity_center,
        applies=lambda s: s.observability.grafana,
    ),
    Question(
        name="budget-name",
        asks="Is the name of the budget free?",
        why="Budgets have names of the whole account; a second one of a name is refused.",
        source="Budgets API reference, CreateBudget: DuplicateRecordException",
        permissions=("sts:GetCallerIdentity", "cloudformation:DescribeStacks", "budgets:ViewBudget"),
        ask=_budget,
        applies=lambda s: s.budget is not None and s.observability.alert_email is not None,
    ),
)
