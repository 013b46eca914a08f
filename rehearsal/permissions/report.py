"""What a rehearsal says about permissions: what was refused and who is granted it, and which grants had no use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from moto.iam.models import iam_backends

from rehearsal.cloud_model import ACCOUNT, PARTITION
from rehearsal.permissions.authority import Authority, Denial, statements_of
from rehearsal.permissions.evaluator import like
from slipway.places import FILES

_SOURCES = ("stacks", "slipway")
_OF_OTHERS = re.compile(  # policies that are not ours to shorten
    rf"arn:{PARTITION}:iam::aws:policy/.*|cdk-[a-z0-9]+-(deploy|file-publishing|image-publishing|lookup)-role.*"
    r"|[^/]+/(parallelcluster|ParallelCluster)"
    r"|.*/cdk-execution|deployer/.*"  # what changes and deletions need too: tests/cloud/test_cloud_reasons.py
)
_GENERATED = re.compile(r"(?<=[a-z])[0-9A-F]{8}(-[0-9a-f]{12})?$|-[0-9a-f]{12}$")  # by CDK and by CloudFormation


class Grant(NamedTuple):
    """One action of a policy that a rehearsal did not need."""

    policy: str
    action: str
    resource: str

    def __str__(self) -> str:
        return f"{self.policy}: {self.action} on {self.resource}"


def fault(denial: Denial) -> str:
    """A refusal as a fault of the rehearsal: AWS's text, who is granted the action, and where that is written."""
    places = written_in(denial.request.action)
    elsewhere = f"; {', '.join(denial.elsewhere)} allows it" if denial.elsewhere else ""
    where = f"; {denial.request.action} is granted in {', '.join(places)}" if places else ""
    return f"{denial.message}{elsewhere}{where}"


def written_in(action: str) -> list[str]:
    """The places (file:line) in the stacks and the printed policies that name an action."""
    return [
        f"{path.relative_to(FILES)}:{number}"
        for folder in _SOURCES
        for path in sorted((FILES / folder).rglob("*.py"))
        if "slipway/preflight" not in str(path) or path.name == "actions.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if f'"{action}"' in line
    ]


def unused(authority: Authority) -> list[Grant]:
    """Each action of the roles' policies that allowed nothing so far, without those of AWS, CDK and ParallelCluster."""
    return sorted(set(_unused(authority)))


def _unused(authority: Authority) -> Iterator[Grant]:
    for role in list(iam_backends[ACCOUNT][PARTITION].roles.values()):
        for statement in statements_of(role):
            if statement.effect != "Allow" or _OF_OTHERS.fullmatch(statement.policy):
                continue
            used = [action for name, action in authority.used if name == statement.name]
            for pattern in _texts(statement.body.get("Action", [])):
                if not any(like(pattern.lower(), action.lower()) for action in used):
                    resources = " ".join(_texts(statement.body.get("Resource", statement.body.get("NotResource", "*"))))
                    yield Grant(_short(statement.policy), pattern, resources)


def _short(policy: str) -> str:
    """A policy's name without the account and without what CDK and CloudFormation append."""
    if ":policy/" in policy:
        policy = policy.rpartition("/")[2]
    return "/".join(_GENERATED.sub("", part) for part in policy.split("/"))


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def as_json(authority: Authority) -> dict[str, Any]:
    """The record as data: refusals, grants that nothing used, and what could not be evaluated."""
    return {
        "denied": [fault(denial) for denial in authority.denials],
        "unused": [str(grant) for grant in unused(authority)],
        "evaluated_on_everything": dict(sorted(authority.unmapped.items())),
        "used": {role.rpartition("/")[2]: sorted(actions) for role, actions in sorted(authority.seen.items())},
    }


def write(record: dict[str, Any], path: Path) -> None:
    """Write the record as text."""
    lines = [f"refused: {line}" for line in record["denied"]]
    lines += [f"granted and not used: {line}" for line in record["unused"]]
    lines += [
        f"evaluated on every resource, for want of its form: {name}" for name in record["evaluated_on_everything"]
    ]
    lines += [f"{role} used {', '.join(actions)}" for role, actions in record["used"].items()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
