"""The names of a cluster's CloudFormation stacks, which the app makes and other commands look for, and their states."""

from __future__ import annotations

STACKS = ("network", "storage", "observability", "cluster", "acceptance")
"""The stacks in the order in which they are made; `acceptance` only exists when the settings have a scenario."""

COMPLETE = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"}
ROLLED_BACK = "UPDATE_ROLLBACK_COMPLETE"
"""The stack is as it was before the last update, which failed."""
ROLLBACK_FAILED = "UPDATE_ROLLBACK_FAILED"
"""The last update failed, and the stack is not as it was before it: no other update is taken."""

# What the CDK's CLI 2.1148 does with a stack that is there, by status; a status that is not listed is one to wait for.
_ROLLBACK = "node_modules/.bin/cdk rollback {name} --context settings=FILE"
_PAUSED = f"{_ROLLBACK} takes it back; after a repair"
_PAUSED += " node_modules/.bin/cdk deploy {name} --no-rollback --context settings=FILE goes on"
REPAIRS = {
    "CREATE_FAILED": _PAUSED,
    "DELETE_FAILED": "delete it again, and keep what it cannot delete: aws cloudformation delete-stack --stack-name"
    " {name} --retain-resources ...",
    "UPDATE_FAILED": _PAUSED,
    ROLLBACK_FAILED: f"repair what the roll-back stopped at (slipway status FILE names it), then {_ROLLBACK}",
}
# States of a creation that failed, which the CDK's CLI deletes before it begins anew.
BEGUN_ANEW = {
    "REVIEW_IN_PROGRESS": "cdk deploy begins it anew",
    "ROLLBACK_COMPLETE": "cdk deploy begins it anew",
    "ROLLBACK_FAILED": "cdk deploy deletes it and begins it anew; aws cloudformation describe-stack-events --stack-name"
    " {name} names what could not be deleted before: repair that first",
}


def stack_names(cluster: str) -> dict[str, str]:
    """Return the name of each stack of `cluster`, by its entry in STACKS."""
    return {stack: f"{cluster}-{stack}" for stack in STACKS}
