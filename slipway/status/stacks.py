"""The stacks of a cluster: their state, what happens in them now, and what failed first."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.errors import EnvironmentFault
from slipway.stack_names import COMPLETE, ROLLBACK_FAILED, stack_names

PARALLELCLUSTER = "ParallelCluster"  # the part's name of the stack that ParallelCluster makes
CANCELLED = ("Resource creation cancelled", "Resource update cancelled", "Resource deletion cancelled")
STACK_TYPE = "AWS::CloudFormation::Stack"
REASON_CHARACTERS = 900


@dataclasses.dataclass(frozen=True)
class Step:
    """A resource that CloudFormation is working on, or that failed. `seconds`: for how long."""

    name: str
    status: str
    seconds: float | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Stack:
    """One stack of a deployment.

    `status` is empty if the stack does not exist. `seconds` is the time since the present or last operation began.
    `failed` is the first failure; in UPDATE_ROLLBACK_FAILED `stuck` is what the roll-back could not restore: resources,
    or the stack itself if CloudFormation names none.
    """

    part: str
    name: str
    status: str = ""
    seconds: float | None = None
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    busy: tuple[Step, ...] = ()
    failed: Step | None = None
    stuck: tuple[Step, ...] = ()
    began: datetime.datetime | None = None

    @property
    def is_there(self) -> bool:
        """Whether CloudFormation knows the stack."""
        return bool(self.status)

    @property
    def is_good(self) -> bool:
        """Whether it is complete."""
        return self.status in COMPLETE

    @property
    def is_busy(self) -> bool:
        """Whether something happens in it now, for better or worse."""
        return self.status.endswith("_IN_PROGRESS") and not self.is_good


class StackReader:
    """Begins all questions at once; `read` waits. Raises Unasked when AWS does not answer."""

    def __init__(self, aws: Aws, cluster: str) -> None:
        self._aws = aws
        names = stack_names(cluster) | {PARALLELCLUSTER: cluster}
        self._names = names
        self._stacks: dict[str, Pending] = {
            part: aws.start("cloudformation", "describe_stacks", StackName=name) for part, name in names.items()
        }

    def read(self) -> list[Stack]:
        """Every stack, those without answer of their own as not there."""
        found = {part: self._described(part) for part in self._names}
        looked_into = {part: stack for part, stack in found.items() if stack and _is_open(stack["StackStatus"])}
        events = {
            part: self._aws.start("cloudformation", "describe_stack_events", StackName=stack["StackId"])
            for part, stack in looked_into.items()
        }
        return [
            _stack(part, self._names[part], found[part], events[part].result()["StackEvents"] if part in events else ())
            if found[part]
            else Stack(part, self._names[part])
            for part in self._names
        ]

    def _described(self, part: str) -> dict[str, Any]:
        try:
            stack: dict[str, Any] = self._stacks[part].result()["Stacks"][0]
        except Refused as error:
            if "does not exist" in error.message:
                return {}
            raise
        return {} if stack["StackStatus"] == "DELETE_COMPLETE" else stack


def deployed_stacks(cluster: str, aws: Aws) -> dict[str, Stack]:
    """Return the stacks that exist, by part, in the order in which they are deleted.

    Raises EnvironmentFault if AWS does not answer.
    """
    try:
        stacks = {stack.part: stack for stack in StackReader(aws, cluster).read() if stack.is_there}
    except (Unasked, Refused) as error:
        text = f"AWS did not report what is deployed: {error}"
        raise EnvironmentFault(f"{text}. Hint: aws sts get-caller-identity") from None
    return {part: stacks[part] for part in reversed(stack_names(cluster)) if part in stacks}


def _is_open(status: str) -> bool:
    """Whether its events explain its state."""
    return status not in COMPLETE


def _stack(part: str, name: str, stack: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Stack:
    run = _last_run(events)
    now = datetime.datetime.now(datetime.UTC)
    began = run[-1]["Timestamp"] if run else stack.get("LastUpdatedTime") or stack.get("CreationTime")
    return Stack(
        part=part,
        name=name,
        status=stack["StackStatus"],
        seconds=(now - began).total_seconds() if began else None,
        outputs={one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])},
        busy=tuple(_busy(run, now)) if stack["StackStatus"].endswith("_IN_PROGRESS") else (),
        failed=_first_failure(run) or _reason_of_stack(stack),
        stuck=tuple(_stuck(run, stack)),
        began=began,
    )


def _last_run(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events, newest first as AWS gives them, down to the one with which the last creation, update or deletion
    began. A rollback belongs to what it takes back."""
    run = []
    for event in events:
        run.append(event)
        is_start = event["ResourceStatus"] in ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")
        if is_start and event.get("PhysicalResourceId") == event.get("StackId"):
            break
    return run


def _resources(run: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (event for event in run if event.get("PhysicalResourceId") != event.get("StackId"))


def _busy(run: Sequence[Mapping[str, Any]], now: datetime.datetime) -> Iterable[Step]:
    """The resources whose newest event says that they are at work; with the time since they began."""
    newest: dict[str, Mapping[str, Any]] = {}
    first: dict[str, datetime.datetime] = {}
    for event in _resources(run):
        key = event["LogicalResourceId"]
        newest.setdefault(key, event)
        if event["ResourceStatus"] == newest[key]["ResourceStatus"]:
            first[key] = event["Timestamp"]
    for key, event in newest.items():
        if event["ResourceStatus"].endswith("_IN_PROGRESS"):
            yield Step(key, event["ResourceStatus"], (now - first[key]).total_seconds())


def _first_failure(run: Sequence[Mapping[str, Any]]) -> Step | None:
    """The oldest failure that is not a consequence of another one."""
    for event in reversed(list(_resources(run))):
        reason = event.get("ResourceStatusReason") or ""
        if event["ResourceStatus"].endswith("_FAILED") and not reason.startswith(CANCELLED):
            return Step(event["LogicalResourceId"], event["ResourceStatus"], None, reason[:REASON_CHARACTERS])
    return None


def _stuck(run: Sequence[Mapping[str, Any]], stack: Mapping[str, Any]) -> Iterable[Step]:
    """The resources whose newest event, after the last roll-back began, is their failure.

    CloudFormation skips only these, not the resource with which the update failed (API reference,
    ContinueUpdateRollback, ResourcesToSkip).
    """
    if stack["StackStatus"] != ROLLBACK_FAILED:
        return
    newest: dict[str, Mapping[str, Any]] = {}
    for event in run:
        if event.get("PhysicalResourceId") == event.get("StackId"):
            if event["ResourceStatus"] == "UPDATE_ROLLBACK_IN_PROGRESS":
                break
            continue
        newest.setdefault(event["LogicalResourceId"], event)
    found = False
    for name, event in newest.items():
        reason = event.get("ResourceStatusReason") or ""
        if event["ResourceStatus"] == "UPDATE_FAILED" and not reason.startswith(CANCELLED):
            found = True
            yield Step(name, event["ResourceStatus"], None, reason[:REASON_CHARACTERS])
    if not found:
        yield Step(
            stack["StackName"], ROLLBACK_FAILED, None, (stack.get("StackStatusReason") or "")[:REASON_CHARACTERS]
        )


def _reason_of_stack(stack: Mapping[str, Any]) -> Step | None:
    """Without an event of a resource: what the stack itself says of its failure."""
    reason = stack.get("StackStatusReason") or ""
    bad = "FAILED" in stack["StackStatus"] or "ROLLBACK" in stack["StackStatus"]
    return Step(stack["StackName"], stack["StackStatus"], None, reason[:REASON_CHARACTERS]) if bad and reason else None
