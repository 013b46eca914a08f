"""The form of an IAM policy document, for all policies that Slipway prints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from slipway.errors import UsageError


def allow(sid: str, actions: Iterable[str], resources: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a statement that allows `actions` on `resources`; `more` is a `Condition`."""
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": list(resources), **more}


def document(statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a policy of `statements`."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


MANAGED_POLICY_CHARACTERS = 6144
"""IAM counts a managed policy without white space (IAM user guide, "IAM and AWS STS quotas")."""


def size(policy: dict[str, Any]) -> int:
    """Return the characters of a policy as IAM counts them."""
    return len(json.dumps(policy, separators=(",", ":")))


def parts(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the policy in as few managed policies as its statements, in their order, allow."""
    made: list[dict[str, Any]] = []
    for statement in (piece for whole in policy["Statement"] for piece in _pieces(whole)):
        together = document([*(made[-1]["Statement"] if made else ()), statement])
        if made and size(together) <= MANAGED_POLICY_CHARACTERS:
            made[-1] = together
        else:
            made.append(document([statement]))
    return made


def _pieces(statement: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the statement, or several with a share of its resources each if it alone is too long for a policy."""
    resources = statement["Resource"]
    for count in range(1, len(resources) + 1):
        step = -(-len(resources) // count)
        shares = [resources[start : start + step] for start in range(0, len(resources), step)]
        names = [statement["Sid"] if count == 1 else f"{statement['Sid']}{number}" for number in range(1, count + 1)]
        pieces = [{**statement, "Sid": sid, "Resource": share} for sid, share in zip(names, shares, strict=False)]
        if all(size(document([piece])) <= MANAGED_POLICY_CHARACTERS for piece in pieces):
            break
    return pieces


def chosen(policy: dict[str, Any], part: int | None, command: str, note: str = "") -> dict[str, Any]:
    """Return the policy, or its `part`, counted from 1. Raises UsageError if it has several and none is chosen.

    `command` prints a part of it; `note` is what takes several policies, next to a role.
    """
    made = parts(policy)
    if part is None and len(made) == 1:
        return policy
    if part is None or part > len(made):
        asked = ", then ".join(f"--part {number}" for number in range(1, len(made) + 1))
        count = f"{len(made)} part{'s' if len(made) > 1 else ''}"
        raise UsageError(
            f"the policy has {size(policy):,} characters and a managed policy takes {MANAGED_POLICY_CHARACTERS:,}: "
            f"it is printed in {count}. Hint: {command} {asked}; a role takes several policies{note}"
        )
    return made[part - 1]
