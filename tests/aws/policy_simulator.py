"""IAM's policy simulator (SimulatePrincipalPolicy), which moto lacks: what a user or role may do by its policies.

Evaluated are inline and managed policies, those of a user's groups, and a role's boundary; wildcards and NotAction,
NotResource; Deny before Allow; conditions on strings, ARNs and truth values with the context keys that are given. Keys
that are not given are named, as AWS does. Left out: resource policies, organizations' policies, policy variables.

The embedded AWS enforces no permission; so its own caller, whom moto calls ``user/moto``, may do everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import SERVICE_NAME_CONVERSION, IAMBackend
from moto.iam.responses import IamResponse

_OWN_CALLER = re.compile(r"arn:[a-z-]+:sts::\d{12}:user/moto")
_PRINCIPAL = re.compile(r"arn:[a-z-]+:iam::\d{12}:(user|role)/(?:.*/)?([^/]+)")
_ADMINISTRATOR = json.dumps({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})

Context = Mapping[str, list[str]]
Statement = dict[str, Any]


def install_simulation() -> None:
    """Give moto's IAM the operation, and the names that service-linked roles really have."""
    SERVICE_NAME_CONVERSION.update({"fsx": "AmazonFSx", "spot": "EC2Spot", "grafana": "AmazonGrafana"})
    IamResponse.simulate_principal_policy = _simulate


def _simulate(self: IamResponse) -> ActionResult:
    policies, boundary = _policies(self.backend, self._get_param("PolicySourceArn"))
    context = {
        item["ContextKeyName"].lower(): item["ContextKeyValues"] for item in self._get_param("ContextEntries", [])
    }
    results = [
        _result(action, resource, policies, boundary, context)
        for action in self._get_param("ActionNames", [])
        for resource in self._get_param("ResourceArns", []) or ["*"]
    ]
    return ActionResult({"EvaluationResults": results, "IsTruncated": False})


def _policies(backend: IAMBackend, arn: str) -> tuple[list[str], list[str] | None]:
    """The documents of a principal's policies, and those of its boundary. Raises NoSuchEntity."""
    if _OWN_CALLER.fullmatch(arn):
        return [_ADMINISTRATOR], None
    match = _PRINCIPAL.fullmatch(arn)
    if match is None:
        raise NotFoundException(f"The principal {arn} cannot be found.")
    if match[1] == "user":
        user = backend.get_user(match[2])
        return [text for holder in (user, *backend.get_groups_for_user(user.name)) for text in _held(holder)], None
    role = backend.get_role(match[2])
    if role.arn != arn:
        raise NotFoundException(f"The role with name {match[2]} cannot be found.")
    boundary = role.permissions_boundary_arn
    return list(_held(role)), [_document(backend.get_policy(boundary))] if boundary else None


def _held(holder: Any) -> Iterator[str]:
    yield from holder.policies.values()
    yield from (_document(policy) for policy in holder.managed_policies.values())


def _document(policy: Any) -> str:
    text: str = next(version.document for version in policy.versions if version.version_id == policy.default_version_id)
    return text


def _result(
    action: str, resource: str, policies: list[str], boundary: list[str] | None, context: Context
) -> dict[str, Any]:
    decision, missing = _decide(action, resource, policies, context)
    result: dict[str, Any] = {"EvalActionName": action, "EvalResourceName": resource, "MatchedStatements": []}
    if boundary is not None:
        within, more = _decide(action, resource, boundary, context)
        result["PermissionsBoundaryDecisionDetail"] = {"AllowedByPermissionsBoundary": within == "allowed"}
        decision, missing = (within if decision == "allowed" else decision), missing | more
    return {**result, "EvalDecision": decision, "MissingContextValues": sorted(missing)}


def _decide(action: str, resource: str, documents: Iterable[str], context: Context) -> tuple[str, set[str]]:
    """AWS's word for the decision, and the context keys that were asked for and not given."""
    effects, missing = set(), set()
    for document in documents:
        for statement in _as_list(json.loads(document)["Statement"]):
            if not _is_about(statement, action, resource):
                continue
            holds, lacking = _holds(statement.get("Condition", {}), context)
            missing |= lacking
            if holds:
                effects.add(statement["Effect"])
    decision = "explicitDeny" if "Deny" in effects else "allowed" if "Allow" in effects else "implicitDeny"
    return decision, missing


def _is_about(statement: Statement, action: str, resource: str) -> bool:
    for key, text, fold in (("Action", action, str.lower), ("Resource", resource, str)):
        patterns = [fold(pattern) for pattern in _as_list(statement.get(key, []))]
        excluded = [fold(pattern) for pattern in _as_list(statement.get(f"Not{key}", []))]
        if patterns and not any(_like(pattern, fold(text)) for pattern in patterns):
            return False
        if any(_like(pattern, fold(text)) for pattern in excluded):
            return False
    return True


def _holds(conditions: Mapping[str, Mapping[str, Any]], context: Context) -> tuple[bool, set[str]]:
    holds, missing = True, set()
    for operator, tests in conditions.items():
        for key, wanted in tests.items():
            given = context.get(key.lower())
            if given is None:
                missing.add(key)
            holds = holds and _test(operator.rpartition(":")[2], given, [str(item) for item in _as_list(wanted)])
    return holds, missing


def _test(operator: str, given: list[str] | None, wanted: list[str]) -> bool:
    if given is None:
        return "Not" in operator or operator.endswith("IfExists") or (operator == "Null" and wanted == ["true"])
    if operator == "Null":
        return wanted == ["false"]
    same = any(_like(pattern, value) for pattern in wanted for value in given)
    return same != ("Not" in operator)


def _like(pattern: str, text: str) -> bool:
    parts = re.split(r"([*?])", pattern)
    expression = "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
