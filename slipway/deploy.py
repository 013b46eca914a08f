"""`slipway deploy`, `diff` and `destroy`: print the CDK command for a cluster, and run it.

The CDK CLI does the work. These commands check the settings first, choose the CDK CLI and its app, and turn its end
into Slipway's exit codes: 0 as it is, 1 when the CDK CLI failed, 3 when it could not be started, 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.aws.session import session_of
from slipway.errors import EXIT_GOOD, EXIT_NO, EnvironmentFault, SlipwayError, UsageError
from slipway.places import CHECKOUT, cdk
from slipway.settings import Settings, load_settings
from slipway.stack_names import stack_names
from slipway.status.stacks import Stack, StackReader

GRACE_S = 30  # after Ctrl-C, which reaches the CDK CLI too; the deployment in CloudFormation goes on


def cdk_command(
    action: str, file: Path, *, profile: str | None, extra: Sequence[str], stacks: Sequence[str]
) -> list[str]:
    """Return the CDK command line: `action` on `stacks` of the settings in `file`, then the `extra` arguments."""
    app = [] if CHECKOUT else ["--app", shlex.join([sys.executable, "-m", "slipway", "app"])]
    account = ["--profile", profile] if profile else []
    return [cdk(), action, *stacks, *app, "--context", f"settings={file.resolve()}", *account, *extra]


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
    return _run(command, settings, as_json=as_json)


def _run(command: list[str], settings: Settings, *, as_json: bool) -> int:
    print(f"+ {_shown(command)}", file=sys.stderr, flush=True)
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


def _shown(command: Sequence[str]) -> str:
    folder = f"cd {shlex.quote(str(CHECKOUT))} && " if CHECKOUT and Path.cwd() != CHECKOUT else ""
    return folder + shlex.join(command)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the CDK CLI, which the terminal has interrupted too; end it if it does not end."""
    try:
        process.wait(GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def destroy(
    file: Path,
    *,
    ask: Callable[[str], str] | None,
    profile: str | None = None,
    extra: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Delete the stacks of the cluster: acceptance, cluster, observability, storage, and network if nothing is in it.

    Prints before what is deleted and what stays, and `ask`s for the cluster's name (None: asks nothing). Return 0 when
    everything is deleted or nothing was deployed, 1 when the CDK CLI failed. Raises UsageError for another name.
    """
    settings = load_settings(file)
    stacks = deployed_stacks(settings, open_aws(settings, profile))
    if not stacks:
        print(f"nothing of {settings.name} is deployed in {settings.region}", file=sys.stderr)
        if as_json:
            print(json.dumps({"name": settings.name, "command": None, "cdk_exit_code": None, "stacks": []}))
        return EXIT_GOOD
    _refuse_stray_acceptance(settings, stacks)
    file_system_stays = "storage" in stacks and settings.storage.fsx.file_system_id is None
    network = stacks.pop("network", None) if file_system_stays else None
    for line in _plan(settings, stacks, network):
        print(line, file=sys.stderr)
    if ask is not None and ask(f"Type {settings.name} to delete it") != settings.name:
        raise UsageError(f"not the name {settings.name}: nothing was deleted. Hint: --yes asks nothing")
    names = [stack.name for stack in stacks.values()]
    command = cdk_command("destroy", file, profile=profile, extra=["--force", *extra], stacks=names)
    return _run(command, settings, as_json=as_json)


def open_aws(settings: Settings, profile: str | None) -> Aws:
    """Return AWS in the cluster's region. Raises UsageError for an unknown profile, EnvironmentFault without any."""
    return Aws(session_of(profile, settings.region), settings.region)


def deployed_stacks(settings: Settings, aws: Aws) -> dict[str, Stack]:
    """Return the stacks that exist, by part, in the order in which they are deleted."""
    try:
        stacks = {stack.part: stack for stack in StackReader(aws, settings.name).read() if stack.is_there}
    except (Unasked, Refused) as error:
        text = f"AWS did not report what is deployed: {error}"
        raise EnvironmentFault(f"{text}. Hint: aws sts get-caller-identity") from None
    return {part: stacks[part] for part in reversed(stack_names(settings.name)) if part in stacks}


def _refuse_stray_acceptance(settings: Settings, stacks: dict[str, Stack]) -> None:
    """Without a scenario the app has no acceptance stack, and the CDK CLI deletes only what the app has."""
    if "acceptance" in stacks and settings.acceptance.scenario == "none":
        stack = f"--region {settings.region} --stack-name {stacks['acceptance'].name}"
        raise SlipwayError(
            f"{stacks['acceptance'].name} is deployed, but acceptance.scenario is 'none': the CDK app lacks it. "
            f"Hint: aws cloudformation delete-stack {stack}; aws cloudformation wait stack-delete-complete {stack}"
        )


def _plan(settings: Settings, stacks: dict[str, Stack], network: Stack | None) -> list[str]:
    """Return what is deleted and what stays. The file system that stays keeps the `network` that it is in."""
    kept = _kept(settings, stacks)
    if network:
        kept.append(f"{network.name}: the file system is in its subnets. Delete both after you have saved the data")
    if kept:
        kept.append("slipway teardown deletes in order what stays, with --delete-data the data too")
    return [
        f"These stacks of {settings.name} in {settings.region} are deleted, in this order:",
        *(f"  {stack.name} ({stack.status})" for stack in stacks.values()),
        "All nodes end, and their own disks and the metrics in Amazon Managed Prometheus are lost. These stay:",
        *(f"  {line}" for line in kept or ["nothing"]),
    ]


def _kept(settings: Settings, stacks: dict[str, Stack]) -> list[str]:
    """Return what stays of the stacks that are deleted: the resources whose removal policy is to retain them."""
    kept = []
    storage = stacks["storage"].outputs if "storage" in stacks else {}
    if "FileSystemId" in storage:
        group = "" if settings.storage.fsx.file_system_id else " and its security group"
        kept.append(f"the FSx for Lustre file system{group}: {storage['FileSystemId']}")
    if "HomeVolumeId" in storage:
        kept.append(f"the EBS volume of /home: {storage['HomeVolumeId']}; it costs until you delete it")
    if "BucketName" in storage:
        kept.append(f"the bucket {storage['BucketName']}")
    if "cluster" in stacks:
        if settings.storage.home.kind == "ebs" and "HomeVolumeId" not in storage:  # ParallelCluster made it
            kept.append(f"the EBS volume of /home ({settings.storage.home.size_gib} GiB): it costs until you delete it")
        kept.append(f"ParallelCluster's log group /aws/parallelcluster/{settings.name}-...")
    if "observability" in stacks and "LogGroupName" in stacks["observability"].outputs:
        kept.append(f"the log group {stacks['observability'].outputs['LogGroupName']}")
    return kept
