"""Resource policies, as far as they decide about the deployment: who is allowed or denied what, roughly.

Each statement is judged alone. Conditions are not evaluated: the caller gets them and decides.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator
from typing import Any

Statement = dict[str, Any]


def statements(document: str) -> Iterator[Statement]:
    """The statements of a policy document."""
    found = json.loads(document).get("Statement", [])
    yield from found if isinstance(found, list) else [found]


def as_list(value: Any) -> list[str]:
    """One text or a list of texts, as policies have them, as a list."""
    return [] if value is None else [str(item) for item in value] if isinstance(value, list) else [str(value)]


def covers_action(statement: Statement, actions: Iterable[str]) -> list[str]:
    """Those of `actions` that the statement is about."""
    if "NotAction" in statement:
        return [action for action in actions if not _any_match(as_list(statement["NotAction"]), action)]
    return [action for action in actions if _any_match(as_list(statement.get("Action")), action)]


def _any_match(patterns: list[str], text: str) -> bool:
    return any(fnmatch.fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]")) for pattern in patterns)


def covers_resource(statement: Statement, arns: Iterable[str]) -> bool:
    """Whether the statement is about one of these ARNs, which may themselves end in `*`."""
    patterns = as_list(statement.get("Resource")) or ["*"]
    return any(
        fnmatch.fnmatchcase(arn, pattern) or fnmatch.fnmatchcase(pattern, arn) for arn in arns for pattern in patterns
    )


def principals(statement: Statement) -> list[str]:
    """The AWS principals that the statement names, `*` for everybody."""
    principal = statement.get("Principal")
    if principal == "*":
        return ["*"]
    return as_list(principal.get("AWS")) if isinstance(principal, dict) else []


def is_left_to_iam(document: str, account: str, actions: Iterable[str]) -> bool:
    """Whether a resource's policy lets the account's own IAM policies decide about every one of `actions`."""
    open_to_all = [item for item in statements(document) if item.get("Effect") == "Allow" and _is_open(item, account)]
    return set(actions) <= {action for item in open_to_all for action in covers_action(item, actions)}


def _is_open(statement: Statement, account: str) -> bool:
    return any(who in ("*", account) or who.endswith(f"::{account}:root") for who in principals(statement))


def condition_keys(statement: Statement) -> set[str]:
    """The keys of its conditions, in lower case."""
    conditions = statement.get("Condition") or {}
    return {key.lower() for tests in conditions.values() for key in tests}
