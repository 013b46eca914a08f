"""The command line of the CDK CLI for a cluster: which CDK CLI, which app and which settings; and how it is run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slipway.errors import EXIT_GOOD, EXIT_NO, EnvironmentFault
from slipway.places import CHECKOUT, cdk
from slipway.settings import Settings
from slipway.stack_names import stack_names

GRACE_S = 30  # after Ctrl-C, which reaches the CDK CLI too; the deployment in CloudFormation goes on


def cdk_command(
    action: str, file: Path, *, profile: str | None, extra: Sequence[str], stacks: Sequence[str]
) -> list[str]:
    """Return the CDK command line: `action` on `stacks` of the settings in `file`, then the `extra` arguments."""
    account = ["--profile", profile] if profile else []
    return [*_start(action, *stacks), "--context", f"settings={file.resolve()}", *account, *extra]


def stack_command(action: str, stack: str, *options: str) -> str:
    """Return the command line that a message names: `action` on `stack` of the settings in FILE, with `options`."""
    return shown([*_start(action, stack), *options, "--context", "settings=FILE"])


def _start(action: str, *stacks: str) -> list[str]:
    app = [] if CHECKOUT else ["--app", shlex.join([sys.executable, "-m", "slipway", "app"])]
    return [cdk(), action, *stacks, *app]


def run(command: list[str], settings: Settings, *, as_json: bool) -> int:
    """Print and run a CDK command; return 0, or 1 when it failed.

    With `as_json` what the CDK CLI prints goes to standard error, and one object to standard output at the end.
    """
    print(f"+ {shown(command)}", file=sys.stderr, flush=True)
    try:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=sys.stderr if as_json else None)
    except OSError as error:
        raise EnvironmentFault(
            f"{command[0]}: the CDK CLI cannot be started: {error.strerror}. "
            f"Hint: {'make setup' if CHECKOUT else 'npm install --global aws-cdk'}"
        ) from None
    try:
        code = process.wait()
    except KeyboardInterrupt:
        _end(process)
        raise
    if as_json:
        stacks = list(stack_names(settings.name).values())
        print(json.dumps({"name": settings.name, "command": command, "cdk_exit_code": code, "stacks": stacks}))
    if code:
        print(f"{Path(command[0]).name} {command[1]} failed with exit code {code}", file=sys.stderr)
    return EXIT_NO if code else EXIT_GOOD


def shown(command: Sequence[str]) -> str:
    """Return the command as one line of the shell, to be run in this folder."""
    folder = f"cd {shlex.quote(str(CHECKOUT))} && " if CHECKOUT and Path.cwd() != CHECKOUT else ""
    return folder + shlex.join(command)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the CDK CLI, which the terminal has interrupted too; end it if it does not end."""
    try:
        process.wait(GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
