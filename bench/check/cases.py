"""What a case is: one fault, written in the settings, in ParallelCluster's configuration, or made in the account."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.aws.preflight_aws import PreflightAws


def _nothing(_: Any) -> None:
    return None


@dataclasses.dataclass(frozen=True)
class Case:
    """One fault in otherwise good settings.

    ``settings`` changes the settings, ``account`` the account. ``cluster`` writes the same fault into ParallelCluster's
    configuration where ours is never written for such settings; else the configuration is made from the settings.
    ``found_by`` names Slipway's rule or question; ``pcluster_finds`` is what its dry run was seen to do.
    """

    name: str
    found_by: str
    settings: Callable[[dict[str, Any]], None] = _nothing
    cluster: Callable[[dict[str, Any]], None] | None = None
    account: Callable[[PreflightAws], None] = _nothing
    pcluster_finds: bool = False
