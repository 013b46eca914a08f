"""IAM's evaluation of policies: whether one action on one resource is allowed.

Source: IAM user guide, "Policy evaluation logic" (within one account), "IAM JSON policy elements: Condition operators",
"... Condition operators with multiple context keys or values", "... Variables and tags".

Evaluated: identity policies, a permissions boundary, resource policies; Action, NotAction, Resource, NotResource,
Principal, NotPrincipal; every condition operator, `...IfExists`, `ForAllValues:`, `ForAnyValue:`, policy variables.
Not evaluated: organizations' policies (SCP, RCP), session policies, access across accounts.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Context = Mapping[str, Sequence[str]]
_VARIABLE = re.compile(r"\$\{(?P<key>[^},]+?)\s*(?:,\s*'(?P<default>[^']*)')?\}")
_STAR, _QUESTION = "\ue000", "\ue001"  # the characters themselves, which a policy writes as ${*} and ${?}
_LITERALS = {"*": _STAR, "?": _QUESTION, "$": "$"}


@dataclass(frozen=True)
class Request:
    """One action on one resource. `context`: IAM's condition keys in lower case, each with its values."""

    action: str
    resource: str = "*"
    context: Context = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """One statement of a policy; `name` says where it is from, `body` is its JSON."""

    policy: str
    number: int
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`POLICY[SID or number]`."""
        return f"{self.policy}[{self.body.get('Sid', self.number)}]"

    @property
    def effect(self) -> str:
        """Allow or Deny."""
        return str(self.body["Effect"])


@dataclass(frozen=True)
class Principal:
    """The sender of a request: `arn` as STS reports it, `role_arn` the role of its session, `account` its account."""

    arn: str
    role_arn: str
    account: str

    @property
    def names(self) -> tuple[str, ...]:
        """The values of a policy's Principal that mean exactly this sender."""
        return (self.arn, self.role_arn)


@dataclass(frozen=True)
class Decision:
    """Whether a request is allowed; `by` are the statements that decided, `why` is AWS's text of a refusal."""

    allowed: bool
    by: tuple[Statement, ...] = ()
    why: str = ""


def statements(policy: str, document: str) -> tuple[Statement, ...]:
    """The statements of a policy document in JSON."""
    return tuple(Statement(policy, number, body) for number, body in enumerate(_bodies(document)))


@functools.lru_cache(maxsize=1024)
def _bodies(document: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_as_list(json.loads(document).get("Statement", [])))


def evaluate(
    request: Request,
    principal: Principal,
    identity: Iterable[Statement],
    *,
    boundary: Iterable[Statement] | None = None,
    resource: Iterable[Statement] = (),
    needs_resource_policy: bool = False,
) -> Decision:
    """Decide as IAM does for a principal and a resource of one account.

    `needs_resource_policy`: the resource's own policy has to agree, as that of a KMS key or a role's trust policy.
    """
    own = _matching(request, identity)
    theirs = [item for item in _matching(request, resource) if _names(item, principal) != "nobody"]
    limits = None if boundary is None else _matching(request, boundary)
    for kind, matching in (
        ("identity-based policy", own),
        ("permissions boundary", limits),
        ("resource-based policy", theirs),
    ):
        denies = tuple(item for item in matching or () if item.effect == "Deny")
        if denies:
            return Decision(False, denies, f"with an explicit deny in {_a(kind)}")
    allows = tuple(item for item in own if item.effect == "Allow")
    agreeing = [item for item in theirs if item.effect == "Allow"]
    direct = tuple(item for item in agreeing if _names(item, principal) == "itself")
    # A resource policy that names the role is enough within one account, without any policy of the role.
    if not allows and not direct:
        return Decision(False, (), f"because no identity-based policy allows the {request.action} action")
    if limits is not None and not any(item.effect == "Allow" for item in limits):
        return Decision(False, (), f"because no permissions boundary allows the {request.action} action")
    if needs_resource_policy and not agreeing:
        return Decision(False, (), f"because no resource-based policy allows the {request.action} action")
    return Decision(True, (*allows, *direct))


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _matching(request: Request, candidates: Iterable[Statement]) -> list[Statement]:
    return [item for item in candidates if is_about(item.body, request) and holds(item.body, request.context)]


def is_about(body: Mapping[str, Any], request: Request) -> bool:
    """Whether a statement's actions and resources contain those of the request, whatever its conditions."""
    action = request.action.lower()
    if not _covers(body, "Action", lambda pattern: like(pattern.lower(), action)):
        return False
    return _covers(body, "Resource", lambda pattern: like(_filled(pattern, request.context), request.resource))


def _covers(body: Mapping[str, Any], element: str, matches: Callable[[str], bool]) -> bool:
    """Whether an element or its Not form is about the request; a resource policy may leave Resource out."""
    if f"Not{element}" in body:
        return not any(matches(pattern) for pattern in _as_list(body[f"Not{element}"]))
    if element not in body:
        return element == "Resource"
    return any(matches(pattern) for pattern in _as_list(body[element]))


def _names(item: Statement, principal: Principal) -> Literal["itself", "account", "nobody"]:
    """Whether a statement of a resource policy is about the principal, or leaves its account to decide."""
    if "NotPrincipal" in item.body:
        return "nobody" if _among(item.body["NotPrincipal"], principal) else "itself"
    return _among(item.body.get("Principal", {}), principal) or "nobody"


def _among(value: Any, principal: Principal) -> Literal["itself", "account"] | None:
    names = ["*"] if value == "*" else _as_list(value.get("AWS", [])) if isinstance(value, Mapping) else []
    if any(name == "*" or name in principal.names for name in names):
        return "itself"
    account = principal.account
    return "account" if any(name == account or name.endswith(f"::{account}:root") for name in names) else None


# ---- conditions ----


def holds(body: Mapping[str, Any], context: Context) -> bool:
    """Whether all conditions of a statement hold."""
    return all(
        _test(operator, context.get(key.lower()), [_filled(str(value), context) for value in _texts(values)])
        for operator, tests in body.get("Condition", {}).items()
        for key, values in tests.items()
    )


def condition_keys(body: Mapping[str, Any]) -> set[str]:
    """The condition keys of a statement, as it spells them."""
    return {key for tests in body.get("Condition", {}).values() for key in tests}


def _test(operator: str, present: Sequence[str] | None, wanted: Sequence[str]) -> bool:
    quantifier, _, name = operator.rpartition(":")
    if name == "Null":
        return any((present is None) is (value.lower() == "true") for value in wanted)
    if_exists, name = name.endswith("IfExists"), name.removesuffix("IfExists")
    negated, compare = _operator(name)
    if not present:
        # An absent key fulfils ForAllValues, ...IfExists and, alone, a negated operator.
        return quantifier == "ForAllValues" or if_exists or (negated and not quantifier)

    def fits(value: str) -> bool:
        return any(compare(value, item) for item in wanted) is not negated

    return (
        all(map(fits, present))
        if quantifier == "ForAllValues" or (negated and not quantifier)
        else any(map(fits, present))
    )


def _operator(name: str) -> tuple[bool, Callable[[str, str], bool]]:
    """Whether an operator is a negation, and the comparison of the positive one. Raises ValueError if IAM has none."""
    negated = name in _NEGATIONS
    positive = _NEGATIONS.get(name, name)
    if positive not in _COMPARISONS:
        raise ValueError(f"condition operator {name}: IAM has none of this name")
    return negated, _COMPARISONS[positive]


def _ignoring_case(value: str, wanted: str) -> bool:
    return value.lower() == wanted.lower()


def _arn_like(value: str, wanted: str) -> bool:
    """Part by part: a wildcard does not reach over a colon."""
    parts, patterns = value.split(":", 5), wanted.split(":", 5)
    return len(parts) == len(patterns) and all(map(like, patterns, parts))


def _in_network(value: str, wanted: str) -> bool:
    try:
        return ipaddress.ip_address(value) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda value, wanted: compare(float(value), float(wanted))


def _moment(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda value, wanted: compare(_seconds(value), _seconds(wanted))


def _seconds(text: str) -> float:
    """A date of IAM: ISO 8601 or seconds since 1970."""
    if re.fullmatch(r"[0-9.]+", text):
        return float(text)
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _orders(kind: str, wrap: Callable[[Callable[[float, float], bool]], Callable[[str, str], bool]]) -> Any:
    return {
        f"{kind}Equals": wrap(lambda a, b: a == b),
        f"{kind}LessThan": wrap(lambda a, b: a < b),
        f"{kind}LessThanEquals": wrap(lambda a, b: a <= b),
        f"{kind}GreaterThan": wrap(lambda a, b: a > b),
        f"{kind}GreaterThanEquals": wrap(lambda a, b: a >= b),
    }


_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda value, wanted: value == wanted,
    "StringEqualsIgnoreCase": _ignoring_case,
    "StringLike": lambda value, wanted: like(wanted, value),
    "ArnEquals": _arn_like,  # IAM's ArnEquals and ArnLike behave identically
    "ArnLike": _arn_like,
    "Bool": _ignoring_case,
    "BinaryEquals": lambda value, wanted: base64.b64decode(value) == base64.b64decode(wanted),
    "IpAddress": _in_network,
    **_orders("Numeric", _number),
    **_orders("Date", _moment),
}
_NEGATIONS: Mapping[str, str] = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NotIpAddress": "IpAddress",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
}


# ---- texts ----


def like(pattern: str, text: str) -> bool:
    """IAM's wildcards: `*` is any text, `?` one character; nothing else has a meaning."""
    return pattern == "*" or _compiled(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=8192)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(f"([*?{_STAR}{_QUESTION}])", pattern)
    forms = {"*": ".*", "?": ".", _STAR: r"\*", _QUESTION: r"\?"}
    return re.compile("".join(forms.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _filled(pattern: str, context: Context) -> str:
    """Policy variables replaced; one without a value and without a default matches nothing."""
    if "${" not in pattern:
        return pattern

    def value(match: re.Match[str]) -> str:
        key = match["key"].strip()
        if key in _LITERALS:
            return _LITERALS[key]
        found = context.get(key.lower())
        return found[0] if found else match["default"] if match["default"] is not None else "\0"

    return _VARIABLE.sub(value, pattern)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _texts(values: Any) -> Iterator[str]:
    for value in _as_list(values):
        yield str(value).lower() if isinstance(value, bool) else str(value)
