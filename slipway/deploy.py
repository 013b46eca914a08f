"""`slipway deploy` and `diff`: print the CDK command for a cluster, and run it.

The CDK CLI does the work. These commands check the settings first, choose the CDK CLI and its app, and turn its end
into Slipway's exit codes: 0 as it is, 1 when the CDK CLI failed, 3 when it could not be started, 130 after Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slipway.aws.session import session_of
from slipway.cdk_command import cdk_command, run
from slipway.settings import load_settings


def run_cdk(
    action: str, file: Path, *, profile: str | None = None, extra: Sequence[str] = (), as_json: bool = False
) -> int:
    """Check the settings in `file`, then print and run the CDK command. Return 0, or 1 when it failed.

    With `as_json` what the CDK CLI prints goes to standard error, and one object to standard output at the end.
    Raises SettingsError for wrong settings, UsageError for an unknown profile, and EnvironmentFault without credentials
    or when the CDK CLI cannot be started.
    """
    settings = load_settings(file)
    session_of(profile, settings.region)  # the CDK CLI looks for credentials after the whole synthesis
    stacks = () if action == "diff" else ("--all",)  # `cdk diff` has no --all and compares every stack
    command = cdk_command(action, file, profile=profile, extra=extra, stacks=stacks)
    return run(command, settings, as_json=as_json)
