"""The names of a cluster's CloudFormation stacks, which the app makes and other commands look for."""

from __future__ import annotations

STACKS = ("network", "storage", "observability", "cluster", "acceptance")
"""The stacks in the order in which they are made; `acceptance` only exists when the settings have a scenario."""


def stack_names(cluster: str) -> dict[str, str]:
    """The name of each stack of `cluster`, by its entry in STACKS."""
    return {stack: f"{cluster}-{stack}" for stack in STACKS}
