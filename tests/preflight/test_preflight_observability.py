"""Workspaces of Prometheus and Grafana, Identity Center, and the budget's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from arrange_services import prometheus_workspace, stack
from moto.ssoadmin.models import ssoadmin_backends
from preflight_cases import REGION, Case, all_of, check, denied

from rehearsal.cloud import grafana
from rehearsal.cloud_model import ACCOUNT
from slipway.aws.calls import Unasked
from slipway.preflight.model import Answer, Status
from slipway.preflight.observability import _elsewhere
from tests.aws.preflight_aws import PreflightAws
from tests.aws.quotas import set_quota

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
PROMETHEUS, GRAFANA = ("observability", "prometheus"), ("observability", "grafana")
WITH_GRAFANA = {"observability": {"grafana": True}}
WITH_BUDGET = {"observability": {"alert_email": "ops@example.com"}, "budget": {"monthly_usd": 1000}}
WORKSPACE = "ws-01234567-89ab-cdef-0123-456789abcdef"
DEPLOYED = stack("p5-observability", "CREATE_COMPLETE", project="p5")
LEFT_OVER = "the cluster makes its own; delete the old one if it is left over"


def grafana_workspace(name: str) -> Callable[[PreflightAws], object]:
    return lambda _: grafana.add_workspace(REGION, "g-0123456789", name)


def quota(service: str, code: str, value: float) -> Callable[[PreflightAws], object]:
    return lambda _: set_quota(REGION, service, code, value)


def never_set(aws: PreflightAws) -> None:
    aws.misbehave("service-quotas:GetServiceQuota", error=(400, "NoSuchResourceException", "not there"))


def identity_center(*regions: str) -> Callable[[PreflightAws], None]:
    """Identity Center in these regions alone."""

    def arrange(aws: PreflightAws) -> None:
        for item in aws.clients("ec2").describe_regions()["Regions"]:
            backend = ssoadmin_backends[ACCOUNT][item["RegionName"]]
            if item["RegionName"] not in regions:
                backend.instances.clear()

    return arrange


def budget(aws: PreflightAws) -> None:
    body: dict[str, Any] = {"BudgetName": "p5-monthly", "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    limit = {"BudgetLimit": {"Amount": "5", "Unit": "USD"}}
    aws.clients("budgets").create_budget(AccountId=ACCOUNT, Budget={**body, **limit})


RAISE = f"aws service-quotas request-service-quota-increase --region {REGION} --service-code"
CASES = [
    Case("prometheus", "room", OK, "0 of 25 Prometheus workspaces are used", PROMETHEUS),
    Case("prometheus", "full", FAULT, "all 1 Prometheus workspaces of the quota are used", PROMETHEUS,
         f"{RAISE} aps --quota-code L-8873DB23 --desired-value 2",
         arrange=all_of(prometheus_workspace(WORKSPACE, "other"), quota("aps", "L-8873DB23", 1))),
    Case("prometheus", "same name", WARNING,
         f"a Prometheus workspace called p5 is there already: {WORKSPACE}", PROMETHEUS, LEFT_OVER,
         arrange=prometheus_workspace(WORKSPACE, "p5")),
    Case("prometheus", "deployed", OK, "the Prometheus workspace p5 is this cluster's", PROMETHEUS,
         arrange=all_of(prometheus_workspace(WORKSPACE, "p5"), quota("aps", "L-8873DB23", 1), DEPLOYED)),
    denied("amp:ListWorkspaces", "prometheus", "aps:ListWorkspaces"),
    denied("cloudformation:DescribeStacks", "prometheus"),
    denied("service-quotas:GetServiceQuota", "prometheus", "servicequotas:GetServiceQuota"),
    denied("service-quotas:GetAWSDefaultServiceQuota", "prometheus", "servicequotas:GetAWSDefaultServiceQuota",
           arrange=never_set),
    Case("grafana", "room", OK, "0 of 5 Grafana workspaces are used", GRAFANA, settings=WITH_GRAFANA),
    Case("grafana", "full", FAULT, "all 1 Grafana workspaces of the quota are used", GRAFANA,
         f"{RAISE} grafana --quota-code L-2C2D5119 --desired-value 2", settings=WITH_GRAFANA,
         arrange=all_of(grafana_workspace("other"), quota("grafana", "L-2C2D5119", 1))),
    Case("grafana", "same name", WARNING, "a Grafana workspace called p5 is there already: g-0123456789", GRAFANA,
         LEFT_OVER, settings=WITH_GRAFANA, arrange=grafana_workspace("p5")),
    Case("grafana", "deployed", OK, "the Grafana workspace p5 is this cluster's", GRAFANA, settings=WITH_GRAFANA,
         arrange=all_of(grafana_workspace("p5"), DEPLOYED)),
    denied("grafana:ListWorkspaces", "grafana", settings=WITH_GRAFANA),
    denied("cloudformation:DescribeStacks", "grafana", settings=WITH_GRAFANA),
    denied("service-quotas:GetServiceQuota", "grafana", "servicequotas:GetServiceQuota", settings=WITH_GRAFANA),
    denied("service-quotas:GetAWSDefaultServiceQuota", "grafana", "servicequotas:GetAWSDefaultServiceQuota",
           settings=WITH_GRAFANA, arrange=never_set),
    Case("identity-center", "none", FAULT, "IAM Identity Center is not enabled: Grafana would have no sign-in", GRAFANA,
         "enable it at console.aws.amazon.com/singlesignon, or set observability.grafana: false",
         settings=WITH_GRAFANA, arrange=identity_center()),
    Case("identity-center", "elsewhere", WARNING, f"IAM Identity Center is in eu-west-1, not in {REGION}", GRAFANA,
         "ask in the Grafana console of this region whether it offers that sign-in", settings=WITH_GRAFANA,
         arrange=identity_center("eu-west-1")),
    denied("sso-admin:ListInstances", "identity-center", "sso:ListInstances", settings=WITH_GRAFANA),
    denied("ec2:DescribeRegions", "identity-center", settings=WITH_GRAFANA, arrange=identity_center()),
    Case("budget-name", "free", OK, "the name p5-monthly is free for the budget", ("budget", "monthly_usd"),
         settings=WITH_BUDGET),
    Case("budget-name", "taken", FAULT, "a budget called p5-monthly is there already", ("budget", "monthly_usd"),
         f"aws budgets delete-budget --account-id {ACCOUNT} --budget-name p5-monthly", settings=WITH_BUDGET,
         arrange=budget),
    Case("budget-name", "ours", OK, "the budget p5-monthly is this cluster's", ("budget", "monthly_usd"),
         settings=WITH_BUDGET, arrange=all_of(budget, DEPLOYED)),
    denied("budgets:DescribeBudget", "budget-name", "budgets:ViewBudget", settings=WITH_BUDGET),
    denied("sts:GetCallerIdentity", "budget-name", settings=WITH_BUDGET),
    denied("cloudformation:DescribeStacks", "budget-name", settings=WITH_BUDGET, arrange=budget),
]  # fmt: skip
HERE = "IAM Identity Center is there: arn:aws:sso:::instance/ssoins-0123456789abcdef"


def instance(aws: PreflightAws) -> None:
    ssoadmin_backends[ACCOUNT][REGION].instances[0].instance_arn = HERE.partition(": ")[2]


CASES.append(Case("identity-center", "there", OK, HERE, GRAFANA, settings=WITH_GRAFANA, arrange=instance))


@pytest.fixture(autouse=True)
def no_stacks(account: PreflightAws) -> Iterator[None]:
    yield
    account.stacks._stacks.clear()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_observability(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_a_workspace_of_a_stack_is_listed_and_described(account: PreflightAws) -> None:
    made = grafana.add_workspace(REGION, "g-0123456789", "p5")
    api = account.clients("grafana")
    assert [item["name"] for item in api.list_workspaces()["workspaces"]] == ["p5"]
    assert api.describe_workspace(workspaceId="g-0123456789")["workspace"]["endpoint"] == made["endpoint"]
    with pytest.raises(api.exceptions.ResourceNotFoundException):
        api.describe_workspace(workspaceId="g-9999999999")
    with pytest.raises(api.exceptions.ValidationException, match="not emulated"):
        api.delete_workspace(workspaceId="g-0123456789")


class Regions:
    """Says for each region whether IAM Identity Center is there; a region that is not listed is closed."""

    region = REGION

    def __init__(self, **there: bool) -> None:
        self._there = {name.replace("_", "-"): answer for name, answer in there.items()}

    def start(self, _service: str, _operation: str, region: str) -> Regions:
        return Regions(**{"only": self._there[region]}) if region in self._there else Regions()

    def result(self) -> dict[str, Any]:
        if "only" not in self._there:
            raise Unasked("sso:ListInstances is not allowed", "sso:ListInstances")
        return {"Instances": [{"InstanceArn": "arn:aws:sso:::instance/ssoins-1"}] if self._there["only"] else []}


def test_a_region_that_is_closed_is_no_proof_that_identity_center_is_nowhere() -> None:
    aws: Any = Regions(eu_west_1=False, eu_west_2=True)
    assert _elsewhere(aws, ["eu-west-1", "eu-west-2", "eu-west-3"]) == ["eu-west-2"]
    assert _elsewhere(aws, ["eu-west-1"]) == []
    with pytest.raises(Unasked, match="not in us-east-1, and does not answer in eu-west-3"):
        _elsewhere(aws, ["eu-west-1", "eu-west-3"])
