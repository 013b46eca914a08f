"""`slipway ssh`: a shell on the head node, or one command there, through Session Manager.

Session Manager needs no open port, no key and no public address, and reaches every cluster of Slipway: the head node
always has the role for it. Plain `ssh` needs head_node.key_pair and head_node.ssh_from; the address is in the output
HeadNodePrivateIp of the stack `NAME-cluster`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from slipway.errors import EXIT_GOOD, EnvironmentFault, SlipwayError
from slipway.settings import Settings, load_settings

PROGRAMS = (
    ("aws", "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"),
    (
        "session-manager-plugin",
        "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html",
    ),
)
COMMAND_DOCUMENT = "AWS-StartInteractiveCommand"


def ssh(file: Path, command: Sequence[str] = (), *, profile: str | None = None, as_json: bool = False) -> int:
    """Replace this process by a session on the head node of the cluster in `file`, running `command` if it has words.

    With `as_json` print the instance and the command line, and open nothing. Raises SlipwayError if there is no running
    head node, EnvironmentFault if AWS does not answer or a program is missing.
    """
    settings = load_settings(file)
    instance_id = head_node(settings, profile)
    line = session_command(settings, instance_id, command, profile)
    if as_json:
        print(json.dumps({"name": settings.name, "instance_id": instance_id, "command": line}))
        return EXIT_GOOD
    for program, address in PROGRAMS:
        if shutil.which(program) is None:
            raise EnvironmentFault(f"{program} is not on PATH, and a session needs it. Hint: install it: {address}")
    print(f"+ {shlex.join(line)}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    return os.execvp(line[0], line)  # noqa: S606 (no shell is wanted; the session's exit code is this command's)


def session_command(settings: Settings, instance_id: str, command: Sequence[str], profile: str | None) -> list[str]:
    """Return the AWS CLI's command line for a session."""
    account = ["--profile", profile] if profile else []
    line = ["aws", "ssm", "start-session", "--region", settings.region, *account, "--target", instance_id]
    if command:
        parameters = json.dumps({"command": [shlex.join(command)]})
        line += ["--document-name", COMMAND_DOCUMENT, "--parameters", parameters]
    return line


def head_node(settings: Settings, profile: str | None) -> str:
    """Return the id of the running head node. Raises SlipwayError if no head node runs."""
    from slipway.aws.calls import Refused, Unasked
    from slipway.aws.session import open_aws
    from slipway.status.head import read_instance
    from slipway.status.stacks import deployed_stacks

    aws = open_aws(settings.region, profile)
    cluster = deployed_stacks(settings.name, aws).get("cluster")
    try:
        head = read_instance(aws, settings.name, cluster.outputs.get("HeadNodeInstanceId", "") if cluster else "")
    except (Unasked, Refused) as error:
        raise EnvironmentFault(
            f"AWS did not report the head node: {error}. Hint: aws sts get-caller-identity"
        ) from None
    if head.state != "running":
        reason = f"the instance {head.instance_id} is {head.state}" if head.state else head.why_not
        raise SlipwayError(f"{settings.name} has no running head node: {reason}. Hint: slipway status shows the stacks")
    return head.instance_id
