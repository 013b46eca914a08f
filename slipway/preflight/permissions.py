"""Permissions: what the caller and the CDK's executing role may do, as IAM's policy simulator says without doing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.preflight.account import account_id, identity
from slipway.preflight.actions import actions_needed, by_resource
from slipway.preflight.asking import found, together
from slipway.preflight.bootstrap import role_arn
from slipway.preflight.model import Answer, Question, Status, fault, ok, warning
from slipway.regions import partition
from slipway.settings import Settings
from slipway.text import listed

CALLER = re.compile(r"arn:(?P<partition>[a-z-]+):(?:iam|sts)::(?P<account>\d{12}):(?P<kind>[a-z-]+)/(?P<name>.+)")
DIRECT_ACTIONS = ("cloudformation:CreateChangeSet", "cloudformation:ExecuteChangeSet")
ROLES_ASSUMED = ("deploy", "file-publishing")
FSX_ROLE = "AWSServiceRoleForAmazonFSx"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"


def _simulate(
    aws: Aws, principal: str, actions: Sequence[str], resources: Sequence[str] = (), **context: str
) -> Pending:
    """`context`: IAM's condition keys and their values, in addition to the region."""
    known = {"aws:RequestedRegion": aws.region, **{f"iam:{key}": value for key, value in context.items()}}
    entries = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"} for key, value in known.items()
    ]
    parameters: dict[str, Any] = {"ResourceArns": list(resources)} if resources else {}
    parameters |= {"PolicySourceArn": principal, "ActionNames": list(actions), "ContextEntries": entries}
    return aws.start("iam", "simulate_principal_policy", **parameters)


def _denied(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What is not allowed, one entry for each action and resource."""
    return [
        result
        for entry in answer["EvaluationResults"]
        for result in _each(entry)
        if result["EvalDecision"] != "allowed"
    ]


def _each(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """IAM reports several resources as separate entries or as parts of one entry."""
    parts = entry.get("ResourceSpecificResults") or []
    return [{**entry, **part, "EvalDecision": part["EvalResourceDecision"]} for part in parts] or [entry]


def _is_conditional(result: dict[str, Any]) -> bool:
    """Whether a policy asks for something that the simulation does not know, such as MFA or a tag."""
    return bool(result.get("MissingContextValues"))


def principal_of(aws: Aws) -> str:
    """The ARN of the user or role whose policies decide for the caller. Waits.

    Raises Unasked for callers that the simulator does not know (root, federated users).
    """
    arn = identity(aws).result()["Arn"]
    match = CALLER.match(arn)
    if match is None or match["kind"] not in ("user", "assumed-role"):
        raise Unasked(f"IAM's policy simulator takes users and roles only, not {arn}")
    if match["kind"] == "user":
        return str(arn)
    name = match["name"].split("/")[0]
    role = aws.start("iam", "get_role", RoleName=name)  # an assumed role's ARN lacks the path; most roles have none
    _start_caller(aws, f"arn:{match['partition']}:iam::{match['account']}:role/{name}", match["account"])
    return str(role.result()["Role"]["Arn"])


def _start_caller(aws: Aws, principal: str, account: str) -> tuple[Pending, Pending]:
    """Begin asking whether `principal` may assume the CDK's roles, and what it may do without them."""
    roles = [role_arn(kind, account, aws.region) for kind in ROLES_ASSUMED]
    return _simulate(aws, principal, ["sts:AssumeRole"], roles), _simulate(aws, principal, DIRECT_ACTIONS)


def _caller(settings: Settings, aws: Aws) -> Iterator[Answer]:
    principal = principal_of(aws)
    account = account_id(aws)
    assuming, direct = _start_caller(aws, principal, account)
    denied = _denied(assuming.result())
    refused = [_resource(result) for result in denied]
    if not refused:
        yield ok((), f"{principal} may assume the CDK's roles")
        return
    names = ", ".join(arn.rpartition("/")[2] for arn in sorted(refused))
    text = f"{principal} may not assume {names}"
    hint = f"allow sts:AssumeRole on {role_arn('*', account, settings.region)}"
    if all(_is_conditional(result) for result in denied):
        lacking = sorted({key for result in denied for key in result["MissingContextValues"]})
        text = f"whether {principal} may assume {names} depends on {listed(lacking)}"
        yield warning((), text, "look whether the conditions of its policies hold, e.g. that it signed in with MFA")
    elif _denied(direct.result()):
        yield fault((), text, hint)
    else:
        yield warning((), f"{text}; the CDK goes on with the caller's own permissions", hint)


def _resource(result: dict[str, Any]) -> str:
    return str(result.get("EvalResourceName", ""))


def _execution(settings: Settings, aws: Aws) -> Iterator[Answer]:
    account = account_id(aws)
    principal = role_arn("cfn-exec", account, settings.region)
    actions = actions_needed(settings)
    answer = found(_simulate(aws, principal, actions), "NoSuchEntity")
    if answer is None:
        raise Unasked(f"there is no role {principal.rpartition('/')[2]} to ask about")
    denied = {result["EvalActionName"]: result for result in _denied(answer)}
    forbidden = {action: result for action, result in denied.items() if result["EvalDecision"] == "explicitDeny"}
    lacking = forbidden | _denied_on_own(settings, aws, account, sorted(set(denied) - set(forbidden)))
    conditional = sorted(action for action, result in lacking.items() if _is_conditional(result))
    certain = sorted(set(lacking) - set(conditional))
    explicit = [action for action in certain if action in forbidden]
    yield from _execution_answers(explicit, [action for action in certain if action not in forbidden], conditional)
    if not lacking:
        yield ok((), f"the CDK's executing role may do all {len(actions)} actions that the stacks need")


def _denied_on_own(settings: Settings, aws: Aws, account: str, actions: list[str]) -> dict[str, dict[str, Any]]:
    """Of the actions that are not allowed on every resource, those not allowed on the deployment's own either."""
    principal = role_arn("cfn-exec", account, settings.region)
    names = {"partition": partition(settings.region), "region": settings.region, "account": account}
    asked = [
        _simulate(aws, principal, same, [arn.format(name=settings.name, **names)])
        for arn, same in by_resource(actions).items()
    ]
    return {result["EvalActionName"]: result for pending in asked for result in _denied(pending.result())}


def _execution_answers(explicit: list[str], missing: list[str], conditional: list[str]) -> Iterator[Answer]:
    hint = "cdk bootstrap with --cloudformation-execution-policies that allow them"
    if explicit:
        text = f"the CDK's executing role is denied {listed(explicit, 6)}"
        yield fault((), text, "look for a Deny in its policies, its boundary or the organization's")
    if missing:
        yield fault((), f"the CDK's executing role is not allowed {listed(missing, 6)}", hint)
    if conditional:
        text = f"whether the CDK's executing role is allowed {listed(conditional, 6)} depends on conditions"
        yield warning((), text, "look whether the conditions of its policies hold for this deployment")


def _linked_roles(settings: Settings, aws: Aws) -> Iterator[Answer]:
    fsx = aws.start("iam", "get_role", RoleName=FSX_ROLE)
    spot = [index for index, queue in enumerate(settings.queues) if queue.spot]
    asked = [(index, aws.start("iam", "get_role", RoleName=SPOT_ROLE)) for index in spot[:1]]
    yield from together(_fsx_role(settings, aws, fsx), *(_spot_role(index, pending) for index, pending in asked))


def _fsx_role(settings: Settings, aws: Aws, asked: Pending) -> Iterator[Answer]:
    creating = _start_creating(settings, aws)  # not only when the role is found missing: that would take twice as long
    if found(asked, "NoSuchEntity") is not None:
        yield ok(("storage", "fsx"), f"{FSX_ROLE} is there")
        return
    if _denied((creating or _simulate_creating(settings, aws)).result()):
        text = f"{FSX_ROLE} is not there, and the CDK's executing role may not create it"
        yield fault(("storage", "fsx"), text, "aws iam create-service-linked-role --aws-service-name fsx.amazonaws.com")
    else:
        yield ok(("storage", "fsx"), f"{FSX_ROLE} will be made with the account's first file system")


def _simulate_creating(settings: Settings, aws: Aws) -> Pending:
    account, service = account_id(aws), "fsx.amazonaws.com"
    role = f"arn:{partition(settings.region)}:iam::{account}:role/aws-service-role/{service}/{FSX_ROLE}"
    principal = role_arn("cfn-exec", account, settings.region)
    return _simulate(aws, principal, ["iam:CreateServiceLinkedRole"], [role], AWSServiceName=service)


def _start_creating(settings: Settings, aws: Aws) -> Pending | None:
    """Begin asking whether the executing role may create such roles; None when the account is not known."""
    try:
        return _simulate_creating(settings, aws)
    except (Unasked, Refused):
        return None


def _spot_role(index: int, asked: Pending) -> Iterator[Answer]:
    path = ("queues", index, "spot")
    if found(asked, "NoSuchEntity") is None:
        text = f"{SPOT_ROLE} is not there: the head node may not create it, and no spot instance would start"
        yield fault(path, text, "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com")
    else:
        yield ok(path, f"{SPOT_ROLE} is there")


def _policies(settings: Settings) -> dict[str, tuple[str | int, ...]]:
    """ARN -> where the settings name it first."""
    paths: dict[str, tuple[str | int, ...]] = {}
    if settings.iam.permissions_boundary:
        paths[settings.iam.permissions_boundary] = ("iam", "permissions_boundary")
    for number, arn in enumerate(settings.head_node.policy_arns):
        paths.setdefault(arn, ("head_node", "policy_arns", number))
    for index, queue in enumerate(settings.queues):
        for number, arn in enumerate(queue.policy_arns):
            paths.setdefault(arn, ("queues", index, "policy_arns", number))
    return paths


def _policies_there(settings: Settings, aws: Aws) -> Iterator[Answer]:
    paths = _policies(settings)
    asked = {arn: aws.start("iam", "get_policy", PolicyArn=arn) for arn in paths}
    yield from together(*(_policy_there(arn, path, asked[arn]) for arn, path in paths.items()))


def _policy_there(arn: str, path: tuple[str | int, ...], asked: Pending) -> Iterator[Answer]:
    if found(asked, "NoSuchEntity") is None:
        yield fault(path, f"there is no policy {arn} in this account", "correct the ARN, or make the policy")
    else:
        yield ok(path, f"{arn} is there")


QUESTIONS = (
    Question(
        name="caller-permissions",
        asks="May the caller assume the roles that the CDK deploys with?",
        why="`cdk deploy` acts through the bootstrap's roles; without them the caller needs the permissions.",
        source="CDK guide, bootstrapping; IAM API reference, SimulatePrincipalPolicy",
        permissions=("sts:GetCallerIdentity", "iam:SimulatePrincipalPolicy", "iam:GetRole"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_caller,
    ),
    Question(
        name="deployment-permissions",
        asks="May the CDK's executing role make every resource of the stacks?",
        why="An account bootstrapped with its own policies often lacks FSx, Grafana or IAM: found after 10 to 20 min.",
        source="CloudFormation resource schemas (create handlers); aws-parallelcluster issues 1312, 4199",
        permissions=("sts:GetCallerIdentity", "iam:SimulatePrincipalPolicy"),
        finds=(Status.FAULT, Status.WARNING),
        ask=_execution,
    ),
    Question(
        name="service-linked-roles",
        asks="Are the roles there that FSx and spot instances work through, or may they be made?",
        why="Without its role FSx makes no file system, and EC2 starts no spot instance.",
        source="FSx for Lustre and EC2 user guides, service-linked roles; ParallelCluster user guide, spot instances",
        permissions=("iam:GetRole", "sts:GetCallerIdentity", "iam:SimulatePrincipalPolicy"),
        ask=_linked_roles,
    ),
    Question(
        name="policies",
        asks="Are the managed policies there that the settings attach to the nodes, and the roles' boundary?",
        why="A role with a policy or a boundary that does not exist is not made, and the cluster with it.",
        source="IAM API reference, AttachRolePolicy and CreateRole",
        permissions=("iam:GetPolicy",),
        ask=_policies_there,
        applies=lambda s: bool(_policies(s)),
    ),
)
