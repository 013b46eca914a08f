"""The form of an IAM policy document, for all policies that Slipway prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def allow(sid: str, actions: Iterable[str], resources: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a statement that allows `actions` on `resources`; `more` is a `Condition`."""
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": list(resources), **more}


def document(statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a policy of `statements`."""
    return {"Version": "2012-10-17", "Statement": list(statements)}
