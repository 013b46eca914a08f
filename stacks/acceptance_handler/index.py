"""Start the acceptance on the head node through Systems Manager, and watch it (CDK's provider framework).

The command is a constant; the only value put into it is the bucket's name, after a strict check. What the run says
comes back as the command's standard output, whose last ``[RESULT]`` line is the verdict.
"""

from __future__ import annotations

import re
import time
from typing import Any

import boto3

COMMAND = (
    "/usr/local/bin/acceptance run --scenario /opt/slipway/current/acceptance.json"
    " --output /fsx/results --upload s3://{bucket}/acceptance/"
)
DOCUMENT = "AWS-RunShellScript"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
RESULT = re.compile(r"^\[RESULT\] .*$", re.MULTILINE)
RUN_DIRECTORY = re.compile(r"/fsx/results/([A-Za-z0-9][A-Za-z0-9._-]*)")
AGENT_WAIT_S = 240  # a head node that just booted may not be known to Systems Manager yet
AGENT_RETRY_S = 10
DELIVERY_TIMEOUT_S = 600  # Systems Manager's own wait for the agent to take the command
RUNNING = {"Pending", "InProgress", "Delayed", "Cancelling"}
MESSAGE_CHARACTERS = 900  # CloudFormation cuts longer reasons


class NotAccepted(Exception):
    """The cluster was measured and not accepted, or the measurement did not end; the text says which and why."""


def on_event(event: dict[str, Any], _context: object = None) -> dict[str, Any]:
    """Start a run on Create and on Update; Delete leaves cluster and results alone."""
    properties = event["ResourceProperties"]
    answer: dict[str, Any] = {"PhysicalResourceId": f"acceptance-{properties['ClusterName']}"}
    if event["RequestType"] != "Delete":
        answer["Data"] = {"CommandId": _start(properties)}
    return answer


def is_complete(event: dict[str, Any], _context: object = None) -> dict[str, Any]:
    """Whether the run has ended well; raises NotAccepted when it ended otherwise."""
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    ssm = boto3.client("ssm")
    try:
        invocation = ssm.get_command_invocation(
            CommandId=event["Data"]["CommandId"], InstanceId=event["ResourceProperties"]["InstanceId"]
        )
    except ssm.exceptions.InvocationDoesNotExist:
        return {"IsComplete": False}  # known a moment after the command was sent
    return _judge(invocation, event["ResourceProperties"])


def _start(properties: dict[str, str]) -> str:
    """Send the command; returns its id. Waits a bounded time for the agent of the head node."""
    bucket, instance = properties["ResultsBucket"], properties["InstanceId"]
    for name, value, form in (("ResultsBucket", bucket, BUCKET), ("InstanceId", instance, INSTANCE)):
        if not form.fullmatch(value):
            raise ValueError(
                f"{name} = {value!r}: must match {form.pattern}. Hint: deploy the stacks before this one again"
            )
    ssm = boto3.client("ssm")
    deadline = time.monotonic() + AGENT_WAIT_S
    while True:
        try:
            command = ssm.send_command(
                DocumentName=DOCUMENT,
                InstanceIds=[instance],
                TimeoutSeconds=DELIVERY_TIMEOUT_S,
                Parameters={
                    "commands": [COMMAND.format(bucket=bucket)],
                    "executionTimeout": [str(int(properties["TimeoutMinutes"]) * 60)],
                },
            )
        except ssm.exceptions.InvalidInstanceId:
            if time.monotonic() > deadline:
                raise NotAccepted(
                    f"head node {instance} did not register with Systems Manager within {AGENT_WAIT_S} s: "
                    "look for amazon-ssm-agent there"
                ) from None
            time.sleep(AGENT_RETRY_S)
        else:
            return str(command["Command"]["CommandId"])


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
