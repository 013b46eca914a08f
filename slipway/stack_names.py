"""The names of a cluster's CloudFormation stacks, which the app makes and other commands look for, and their states."""

from __future__ import annotations

STACKS = ("network", "storage", "observability", "cluster", "acceptance")
"""The stacks in the order in which they are made; `acceptance` only exists when the settings have a scenario."""

COMPLETE = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"}
ROLLED_BACK = "UPDATE_ROLLBACK_COMPLETE"
"""The stack is as it was before the last update, which failed."""
ROLLBACK_FAILED = "UPDATE_ROLLBACK_FAILED"
"""The last update failed, and the stack is not as it was before it: no other update is taken."""


def stack_names(cluster: str) -> dict[str, str]:
    """Return the name of each stack of `cluster`, by its entry in STACKS."""
    return {stack: f"{cluster}-{stack}" for stack in STACKS}
