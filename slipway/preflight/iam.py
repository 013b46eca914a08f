"""The IAM policy that lets a user ask every question: what the questions say they use, and nothing else."""

from __future__ import annotations

from typing import Any

from slipway.aws.policy import allow, document
from slipway.preflight.bootstrap import QUALIFIER
from slipway.preflight.questions import QUESTIONS
from slipway.regions import partition
from slipway.settings import Settings

SCOPED = ("s3", "secretsmanager")  # contents, not descriptions: only what the settings name


def reading_policy(settings: Settings) -> dict[str, Any]:
    """An identity policy for `slipway preflight` and `slipway cost` on these settings; read-only."""
    actions = {action for question in QUESTIONS if question.applies(settings) for action in question.permissions}
    scopes = {"s3": _bucket_arns(settings), "secretsmanager": list(settings.secret_arns)}
    statements = [allow("Describe", (action for action in actions if _service(action) not in SCOPED), ["*"])]
    for service, sid in (("s3", "ReadObjects"), ("secretsmanager", "ReadSecrets")):
        if scopes[service]:
            chosen = (action for action in actions if _service(action) == service)
            statements.append(allow(sid, chosen, scopes[service]))
    return document(statements)


def _service(action: str) -> str:
    return action.partition(":")[0]


def _bucket_arns(settings: Settings) -> list[str]:
    """The settings' buckets, the CDK's, and the bucket that ParallelCluster's provider is published in."""
    urls = [script.url for script in settings.scripts] + [settings.software_mirror or ""]
    named = [url.removeprefix("s3://").partition("/")[0] for url in urls if url.startswith("s3://")]
    region = settings.region
    buckets = [settings.storage.bucket, *named, f"{region}-aws-parallelcluster", f"cdk-{QUALIFIER}-assets-*-{region}"]
    arns = [f"arn:{partition(region)}:s3:::{name}" for name in dict.fromkeys(buckets) if name]
    return [f"{arn}{part}" for arn in arns for part in ("", "/*")]
