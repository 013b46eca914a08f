"""What to do with a stack that is in a state of failure: what the CDK's CLI 2.1148 does with it, by status."""

from __future__ import annotations

from slipway.cdk_command import stack_command
from slipway.stack_names import ROLLBACK_FAILED

_PAUSED = "{rollback} takes it back; after a repair {resume} goes on"
# A status that is neither here nor in BEGUN_ANEW is one to wait for.
REPAIRS = {
    "CREATE_FAILED": _PAUSED,
    "DELETE_FAILED": "delete it again, and keep what it cannot delete: aws cloudformation delete-stack --stack-name"
    " {name} --retain-resources ...",
    "UPDATE_FAILED": _PAUSED,
    ROLLBACK_FAILED: "repair what the roll-back stopped at (slipway status FILE names it), then {rollback}",
}
# States of a creation that failed, which the CDK's CLI deletes before it begins anew.
BEGUN_ANEW = {
    "REVIEW_IN_PROGRESS": "cdk deploy begins it anew",
    "ROLLBACK_COMPLETE": "cdk deploy begins it anew",
    "ROLLBACK_FAILED": "cdk deploy deletes it and begins it anew; aws cloudformation describe-stack-events --stack-name"
    " {name} names what could not be deleted before: repair that first",
}


def repair(status: str, name: str) -> str:
    """Return the repair of the stack `name` in `status`; empty if it needs none."""
    text = (REPAIRS | BEGUN_ANEW).get(status, "")
    rollback, resume = stack_command("rollback", name), stack_command("deploy", name, "--no-rollback")
    return text.format(name=name, rollback=rollback, resume=resume)
