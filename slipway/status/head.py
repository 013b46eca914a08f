"""The head node: its instance, and what its `node_status.py` says, asked through Systems Manager's Run Command.

The command is a constant: nothing of the settings becomes shell.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import time
import zlib
from typing import Any

from slipway.aws.calls import Aws, Refused, Unasked, explained

COMMAND = "/opt/slipway/current/nodes/status/node_status.py --packed"
DOCUMENT = "AWS-RunShellScript"
PACKED = "slipway-status:"
MAX_BYTES = 32 << 20  # of the unpacked answer
POLL_S = 0.5
DELIVERY_S = 30  # how long Systems Manager may wait for the agent; its least
DONE = {"Success", "Failed", "TimedOut", "Cancelled", "Undeliverable", "Terminated"}
NOT_THERE = (126, 127)  # the shell's codes for a command that is not there


@dataclasses.dataclass(frozen=True)
class HeadNode:
    """`state` is EC2's, empty when there is no instance; `node` what the node says of itself, None when it was not
    asked or gave no answer: `why_not` says why, `unasked` whether that is because AWS was not to be asked."""

    instance_id: str = ""
    state: str = ""
    instance_type: str = ""
    seconds: float | None = None
    node: dict[str, Any] | None = None
    why_not: str = ""
    unasked: bool = False


def read_instance(aws: Aws, cluster: str, instance_id: str) -> HeadNode:
    """The instance by its id, or, while the cluster is being made, by ParallelCluster's tags. Raises Unasked."""
    tags = {"tag:parallelcluster:cluster-name": cluster, "tag:parallelcluster:node-type": "HeadNode"}
    filters = [{"Name": key, "Values": [value]} for key, value in tags.items()]
    known: dict[str, Any] = {"InstanceIds": [instance_id]} if instance_id else {"Filters": filters}
    try:
        answer = aws.call("ec2", "describe_instances", **known)
    except Refused as error:
        return HeadNode(instance_id, why_not=str(error))
    instances = [one for reservation in answer["Reservations"] for one in reservation["Instances"]]
    instances = [one for one in instances if one["State"]["Name"] != "terminated"] or instances
    if not instances:
        return HeadNode(why_not="there is no instance of it")
    one = max(instances, key=lambda instance: instance["LaunchTime"])
    seconds = (aws.now() - one["LaunchTime"]).total_seconds()
    return HeadNode(one["InstanceId"], one["State"]["Name"], one["InstanceType"], seconds)


def ask_node(session: Any, region: str, head: HeadNode, timeout_s: float) -> HeadNode:
    """`head` with what its node says within `timeout_s` seconds."""
    if head.state != "running":
        return dataclasses.replace(head, why_not=head.why_not or f"the instance is {head.state}")
    try:
        return dataclasses.replace(head, node=unpack(_run(session, region, head.instance_id, timeout_s)))
    except _NoAnswer as error:
        return dataclasses.replace(head, why_not=str(error))
    except Unasked as error:
        return dataclasses.replace(head, why_not=error.text, unasked=True)


class _NoAnswer(Exception):
    """The node gave none; the text says why."""


def unpack(output: str) -> dict[str, Any]:
    """What `--packed` printed. Raises _NoAnswer for anything else."""
    line = next((line for line in output.splitlines() if line.startswith(PACKED)), "")
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(base64.b64decode(line.removeprefix(PACKED), validate=True), MAX_BYTES)
        found = json.loads(text) if line and unpacker.eof else None
    except (ValueError, zlib.error):
        found = None
    if not isinstance(found, dict):
        raise _NoAnswer("its answer cannot be read: it has another release of Slipway, or the output was cut")
    return found


def _run(session: Any, region: str, instance_id: str, timeout_s: float) -> str:
    """Standard output of the command."""
    ssm = _client(session, region)
    deadline = time.monotonic() + timeout_s
    parameters = {"commands": [COMMAND], "executionTimeout": [str(max(1, int(timeout_s)))]}
    sent = _call(
        ssm,
        "send_command",
        DocumentName=DOCUMENT,
        InstanceIds=[instance_id],
        TimeoutSeconds=DELIVERY_S,
        Parameters=parameters,
        Comment="slipway status",
    )
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        try:
            answer = _call(
                ssm, "get_command_invocation", CommandId=sent["Command"]["CommandId"], InstanceId=instance_id
            )
        except Refused as error:
            if error.code != "InvocationDoesNotExist":  # known a moment after the command was sent
                raise _NoAnswer(str(error)) from None
            continue
        if answer["Status"] in DONE:
            return _output(answer)
    raise _NoAnswer(f"it did not answer within {timeout_s:.0f} s")


def _output(answer: dict[str, Any]) -> str:
    if answer["Status"] == "Success":
        return str(answer["StandardOutputContent"])
    if answer.get("ResponseCode") in NOT_THERE:
        raise _NoAnswer("its bootstrap has not put Slipway's scripts there yet")
    said = str(answer.get("StandardErrorContent") or "").strip().splitlines()
    raise _NoAnswer(f"the command ended with {answer['Status']}{f': {said[-1]}' if said else ''}")


def _call(client: Any, operation: str, **parameters: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = getattr(client, operation)(**parameters)
    except Exception as error:  # what botocore raises, in the two kinds of the questions
        failure = explained(error, f"ssm:{client.meta.method_to_api_mapping[operation]}", client.meta.region_name)
        if isinstance(failure, Refused) and failure.code == "InvalidInstanceId":
            raise _NoAnswer("its Systems Manager agent does not report: it still boots, or has no way out") from None
        raise failure from None
    return answer


def _client(session: Any, region: str) -> Any:
    from botocore.config import Config

    config = Config(connect_timeout=3, read_timeout=8, retries={"total_max_attempts": 2, "mode": "standard"})
    return session.client("ssm", region_name=region, config=config)
