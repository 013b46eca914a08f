"""Each action of the executing role's policy has a reason: a handler of CloudFormation's registry, or a named source."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from slipway.deploy_policy import ARTIFACTS, execution_policy
from slipway.execution_actions import HANDLERS, other_source, reasons
from slipway.preflight.actions import PROVIDER, RESOURCES
from slipway.settings import load_settings
from tests.stacks.assembly import EXAMPLES, ROOT

CFN_LINT = importlib.util.find_spec("cfnlint")
assert CFN_LINT is not None
assert CFN_LINT.origin is not None
SCHEMAS = Path(CFN_LINT.origin).parent / "data/schemas/resources"
FILES = [*EXAMPLES.values(), ROOT / "tests/stacks/every-part.yaml", ROOT / "tests/stacks/site-parts.yaml"]
ROWS = sorted(
    {(kind, "create", action) for kind, _, actions in RESOURCES for action in actions}
    | {(kind, "create", action) for kind, actions in PROVIDER for action in actions}
    | {(kind, work, action) for kind, work, actions in HANDLERS for action in actions}
)


def matches(action: str, pattern: str) -> bool:
    """As IAM compares actions."""
    return fnmatchcase(action.lower(), pattern.lower())


@cache
def handlers() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """By type of resource: the permissions of each handler, and those of its tags."""
    kinds = {kind for kind, _, _ in RESOURCES} | {kind for kind, _ in PROVIDER}
    found = {}
    for file in SCHEMAS.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        schema: dict[str, Any] = json.loads(text) if '"handlers"' in text else {}
        if schema.get("typeName") in kinds:
            works = {work: frozenset(body["permissions"]) for work, body in schema["handlers"].items()}
            found[schema["typeName"]] = {**works, "tags": frozenset(schema.get("tagging", {}).get("permissions", ()))}
    return found


def is_needed(kind: str, work: str, action: str) -> bool:
    """Whether the schema of a type that the pattern matches has the action for the work."""
    for name, works in handlers().items():
        actions = frozenset[str]().union(*works.values()) if work == "read" else works.get(work, frozenset())
        if work in ("tags", "read"):
            actions |= works.get("update", frozenset()) | works.get("create", frozenset())
        if fnmatchcase(name, kind) and any(matches(item, action) for item in actions):
            return True
    return bool(other_source(kind, action))


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in ROWS}))
def test_each_action_is_in_the_schema_of_its_type_or_has_another_source(kind: str) -> None:
    assert [row for row in ROWS if row[0] == kind and not is_needed(*row)] == []


def test_an_action_without_a_reason_is_noticed() -> None:
    assert not is_needed("AWS::EC2::VPC", "delete", "ec2:RunInstances")
    assert not is_needed("AWS::SSM::Parameter", "delete", "ssm:SendCommand")


@pytest.mark.parametrize("kind", sorted(handlers()))
def test_what_deletes_a_resource_is_in_the_table(kind: str) -> None:
    """The schema's own Delete action, e.g. `ec2:DeleteVpc`, is granted: a stack that cannot go costs money."""
    ours = {action for name, _, actions in HANDLERS for action in actions if fnmatchcase(kind, name)}
    verbs = ("Delete", "Terminate", "Release", "Detach", "Disassociate", "Revoke", "Remove", "Unsubscribe")
    asked = {action for action in handlers()[kind].get("delete", ()) if action.partition(":")[2].startswith(verbs)}
    missing = {action for action in asked if not any(matches(action, item) for item in ours)}
    assert missing <= NOT_OF_THESE_STACKS


NOT_OF_THESE_STACKS = {  # for properties that no template of ours sets, and for users and groups
    "aps:DeleteAlertManagerDefinition", "aps:DeleteLoggingConfiguration", "aps:DeleteQueryLoggingConfiguration",
    "logs:DeleteLogDelivery", "logs:DeleteDataProtectionPolicy", "ec2:DetachVpnGateway",
    "iam:DetachGroupPolicy", "iam:DetachUserPolicy", "iam:DeleteUserPolicy", "iam:DeleteGroupPolicy",
}  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_policy_has_the_actions_with_a_reason_and_no_others(file: Path) -> None:
    settings = load_settings(file)
    granted = {action for part in execution_policy(settings)["Statement"] for action in part["Action"]}
    explained = reasons(settings)
    assert granted <= set(explained)
    covered = {action for action in explained if any(matches(action, item) for item in granted)}
    assert covered == set(explained)
    assert granted >= set(ARTIFACTS)
