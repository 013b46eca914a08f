"""IAM's policy simulator (SimulatePrincipalPolicy), which moto lacks: what a user or role may do by its policies.

Evaluated are inline and managed policies, those of a user's groups, and a role's boundary, by the rehearsal's evaluator
(rehearsal/permissions/evaluator.py), with the context keys that are given. Keys that are not given are named, as AWS
does. Left out: resource policies, organizations' policies.

The embedded AWS does not evaluate its own caller, whom moto calls `user/moto`: that one may do everything.
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

from rehearsal.permissions.evaluator import Request, condition_keys, holds, is_about, statements

_OWN_CALLER = re.compile(r"arn:[a-z-]+:sts::\d{12}:user/moto")
_PRINCIPAL = re.compile(r"arn:[a-z-]+:iam::\d{12}:(user|role)/(?:.*/)?([^/]+)")
_ADMINISTRATOR = json.dumps({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})

Context = Mapping[str, list[str]]


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
    request = Request(action, resource, context)
    for statement in (item for document in documents for item in statements("simulated", document)):
        if is_about(statement.body, request):
            missing |= {key for key in condition_keys(statement.body) if key.lower() not in context}
            if holds(statement.body, context):
                effects.add(statement.effect)
    decision = "explicitDeny" if "Deny" in effects else "allowed" if "Allow" in effects else "implicitDeny"
    return decision, missing
