"""Start the acceptance on the head node through Systems Manager, and watch it (CDK's provider framework).

First the head node is asked whether the release of this deployment is in use there: one whose set-up fails leaves the
release before in use, and the deployment has to say so. Then it measures, unless nothing that a verdict depends on has
changed. The commands are constants; what is put into them is the bucket's name and the release's sha256, after a strict
check. What they say comes back as standard output, whose last `[RESULT]` line is the verdict.
"""

from __future__ import annotations

import re
import time
from typing import Any

import boto3

EXPECT_RELEASE = "/opt/slipway/current/nodes/status/node_status.py --expect {release}"
RUN = (
    "/usr/local/bin/acceptance run --scenario /opt/slipway/current/acceptance.json"
    " --output /fsx/results --upload s3://{bucket}/acceptance/"
)
DOCUMENT = "AWS-RunShellScript"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
SHA256 = re.compile(r"[0-9a-f]{64}")
INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
RESULT = re.compile(r"^\[RESULT\] .*$", re.MULTILINE)
RUN_DIRECTORY = re.compile(r"/fsx/results/([A-Za-z0-9][A-Za-z0-9._-]*)")
AGENT_WAIT_S = 240  # a head node that just booted may not be known to Systems Manager yet
AGENT_RETRY_S = 10
DELIVERY_TIMEOUT_S = 600  # Systems Manager's own wait for the agent to take the command
RUNNING = {"Pending", "InProgress", "Delayed", "Cancelling"}
ROLLBACK = "ROLLBACK_IN_PROGRESS"  # within the state of a stack that goes back to what it was
MEASURED = ("Basis", "Asked", "InstanceId")  # an update that changes none of these changes no verdict
MESSAGE_CHARACTERS = 900  # CloudFormation cuts longer reasons


class NotAccepted(Exception):
    """The cluster was measured and not accepted, or the measurement did not end; the text says which and why."""


def on_event(event: dict[str, Any], _context: object = None) -> dict[str, Any]:
    """Start a run on Create, and on an Update that changes what a verdict depends on or that asks for one.

    A failed update is rolled back by one more Update with the old properties. It must neither measure again (an hour
    of the whole cluster) nor fail again (the stack would be stuck in UPDATE_ROLLBACK_FAILED). Delete leaves cluster
    and results alone.
    """
    properties = event["ResourceProperties"]
    answer: dict[str, Any] = {"PhysicalResourceId": f"acceptance-{properties['ClusterName']}"}
    if event["RequestType"] == "Delete":
        return answer
    is_update = event["RequestType"] == "Update"
    if is_update and _is_rolled_back(event["StackId"]):
        answer["Data"] = {"NotAgain": "an update failed and was rolled back"}
    elif is_update and _is_as_before(event):
        command = _start(properties, EXPECT_RELEASE)
        answer["Data"] = {"CommandId": command, "NotAgain": "nothing that a verdict depends on has changed"}
    else:
        answer["Data"] = {"CommandId": _start(properties, f"{EXPECT_RELEASE} && {RUN}")}
    return answer


def is_complete(event: dict[str, Any], _context: object = None) -> dict[str, Any]:
    """Whether the run has ended well; raises NotAccepted when it ended otherwise."""
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    data = event["Data"]
    if "CommandId" not in data:
        return _not_again(data)
    ssm = boto3.client("ssm")
    try:
        invocation = ssm.get_command_invocation(
            CommandId=data["CommandId"], InstanceId=event["ResourceProperties"]["InstanceId"]
        )
    except ssm.exceptions.InvocationDoesNotExist:
        return {"IsComplete": False}  # known a moment after the command was sent
    answer = _judge(invocation, event["ResourceProperties"])
    return _not_again(data) if answer["IsComplete"] and "NotAgain" in data else answer


def _not_again(data: dict[str, Any]) -> dict[str, Any]:
    summary = f"not measured again: {data['NotAgain']}; the last verdict is in the results bucket"
    return {"IsComplete": True, "Data": {"RunId": "none", "Summary": summary}}


def _is_as_before(event: dict[str, Any]) -> bool:
    old, new = event["OldResourceProperties"], event["ResourceProperties"]
    return all(old.get(key) == new.get(key) for key in MEASURED)


def _is_rolled_back(stack_id: str) -> bool:
    stacks = boto3.client("cloudformation").describe_stacks(StackName=stack_id)["Stacks"]
    return ROLLBACK in stacks[0]["StackStatus"]


def _start(properties: dict[str, str], command: str) -> str:
    """Send `command`; returns its id. Waits a bounded time for the agent of the head node."""
    for name, form in (("ResultsBucket", BUCKET), ("InstanceId", INSTANCE), ("Release", SHA256)):
        if not form.fullmatch(properties[name]):
            raise ValueError(
                f"{name} = {properties[name]!r}: must match {form.pattern}. "
                "Hint: deploy the stacks before this one again"
            )
    text = command.format(bucket=properties["ResultsBucket"], release=properties["Release"])
    ssm = boto3.client("ssm")
    deadline = time.monotonic() + AGENT_WAIT_S
    while True:
        try:
            sent = ssm.send_command(
                DocumentName=DOCUMENT,
                InstanceIds=[properties["InstanceId"]],
                TimeoutSeconds=DELIVERY_TIMEOUT_S,
                Parameters={
                    "commands": [text],
                    "executionTimeout": [str(int(properties["TimeoutMinutes"]) * 60)],
                },
            )
        except ssm.exceptions.InvalidInstanceId:
            if time.monotonic() > deadline:
                raise NotAccepted(
                    f"head node {properties['InstanceId']} did not register with Systems Manager within "
                    f"{AGENT_WAIT_S} s: look for amazon-ssm-agent there"
                ) from None
            time.sleep(AGENT_RETRY_S)
        else:
            return str(sent["Command"]["CommandId"])


def _judge(invocation: dict[str, Any], properties: dict[str, str]) -> dict[str, Any]:
    status = invocation["Status"]
    if status in RUNNING:
        return {"IsComplete": False}
    output = invocation.get("StandardOutputContent", "")
    verdicts = RESULT.findall(output)
    run = RUN_DIRECTORY.search(output)
    if status == "Success":
        data = {"RunId": run[1] if run else "unknown", "Summary": verdicts[-1] if verdicts else "[RESULT] SUCCESS"}
        return {"IsComplete": True, "Data": data}
    raise NotAccepted(_failure(invocation, properties, verdicts, run)[:MESSAGE_CHARACTERS])


def _failure(
    invocation: dict[str, Any], properties: dict[str, str], verdicts: list[str], run: re.Match[str] | None
) -> str:
    """The run's own verdict first; without one, what Systems Manager and the run's last lines say."""
    where = f"; report: s3://{properties['ResultsBucket']}/acceptance/{run[1]}/" if run else ""
    if verdicts:
        return verdicts[-1] + where
    status, minutes = invocation["Status"], properties["TimeoutMinutes"]
    if status == "TimedOut":
        return f"[RESULT] FAILURE: acceptance did not end within {minutes} minutes, on the head node{where}"
    errors = invocation.get("StandardErrorContent", "").strip().splitlines()
    last = errors[-1] if errors else "no output"
    exit_code = invocation.get("ResponseCode", -1)
    return f"[RESULT] FAILURE: acceptance ended with {status} (exit {exit_code}) on the head node: {last}{where}"
