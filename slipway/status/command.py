"""`slipway status`: asks AWS and the head node, read-only and in bounded time, and shows how the cluster is."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from slipway.aws.calls import Aws, Pending, Refused, Unasked
from slipway.aws.policy import allow, document
from slipway.aws.session import session_of
from slipway.errors import EnvironmentFault
from slipway.leftovers import READING, Finder, Found
from slipway.regions import partition
from slipway.settings import Settings, load_settings
from slipway.status import screen
from slipway.status.boot import RECENT_S, boot_problems, boots_fail
from slipway.status.head import DOCUMENT, HeadNode, ask_node, read_instance
from slipway.status.judge import Findings, exit_code, problems, state
from slipway.status.problem import Problem
from slipway.status.stacks import PARALLELCLUSTER, Stack, StackReader
from slipway.status.storage import StorageReader
from slipway.text import folded, visible

NODE_TIMEOUT_S = 45.0
FAULT_PATTERN = '"slipway: FAULT"'
MOST_LOGGED = 5


def status(
    file: str | Path, *, as_json: bool = False, profile: str | None = None, timeout_s: float = NODE_TIMEOUT_S
) -> int:
    """Show the cluster of the settings in `file`; the exit code is that of `judge.exit_code`.

    `timeout_s` bounds the wait for the head node, in seconds. Raises SettingsError for a wrong file,
    UsageError for an unknown profile, EnvironmentFault when AWS does not say what is deployed.
    """
    settings = load_settings(file)
    session = session_of(profile, settings.region)
    findings = read(settings, session, timeout_s)
    found = problems(findings)
    word = state(found, findings)
    usd = _usd_per_month(settings) if findings.is_deployed else None
    left = _left(settings, session, findings)
    if as_json:
        document = _as_dict(file, settings, word, findings, found, usd)
        document["left"] = [dataclasses.asdict(thing) for thing in left.things] if left else []
        print(json.dumps(document, default=str))
    else:
        for line in (*screen.lines(settings, word, findings, found, usd), *screen.left_lines(left)):
            print(folded(visible(line), screen.WIDTH))
    return exit_code(word)


def read(settings: Settings, session: Any, timeout_s: float) -> Findings:
    """Everything, asked at once where it can be. Raises EnvironmentFault when AWS does not say what is deployed."""
    aws = Aws(session, settings.region)
    notes: list[str] = []
    reader = StackReader(aws, settings.name)
    reservations = _ask_reservations(settings, aws)
    try:
        stacks = reader.read()
    except (Unasked, Refused) as error:
        raise EnvironmentFault(
            f"AWS did not say what is deployed: {error}. Hint: aws sts get-caller-identity"
        ) from None
    storage = StorageReader(aws, _file_system_id(settings, stacks))
    head = _head(settings, session, aws, stacks, timeout_s)
    if head.unasked:
        notes.append(f"the head node: {head.why_not}")
    is_ill = bool(_failed(stacks)) or boots_fail((head.node or {}).get("slurm") or {})
    group = _group_of_parallelcluster(aws, settings.name) if is_ill else ""
    return Findings(
        stacks=stacks,
        optional=_optional(settings),
        head=head,
        reservations=_reservations(reservations, settings, notes),
        logged=_logged(aws, group, stacks, notes),
        boot=_boot(aws, group, stacks, notes),
        file_systems=storage.read(notes),
        notes=notes,
    )


def _file_system_id(settings: Settings, stacks: list[Stack]) -> str:
    """The cluster's FSx file system: the settings' own, or that of the storage stack; empty without one yet."""
    outputs = next(stack.outputs for stack in stacks if stack.part == "storage")
    return settings.storage.fsx.file_system_id or outputs.get("FileSystemId", "")


def _left(settings: Settings, session: Any, findings: Findings) -> Found | None:
    """What exists of a cluster that has no nodes: before a deployment nothing, after a deletion what costs on."""
    parts = ("cluster", PARALLELCLUSTER)
    if any(findings.stack(part) for part in parts) or any(stack.is_busy for stack in findings.stacks):
        return None
    return Finder(settings, Aws(session, settings.region)).read()


def _optional(settings: Settings) -> frozenset[str]:
    """The stacks that need not be there."""
    network = settings.network
    nothing_to_make = not network.is_new and network.security_group_id is not None
    parts = {PARALLELCLUSTER} | ({"network"} if nothing_to_make else set())
    return frozenset(parts | ({"acceptance"} if settings.acceptance.scenario == "none" else set()))


def _head(settings: Settings, session: Any, aws: Aws, stacks: list[Stack], timeout_s: float) -> HeadNode:
    by_part = {stack.part: stack for stack in stacks}
    if not (by_part["cluster"].is_there or by_part[PARALLELCLUSTER].is_there):
        return HeadNode(why_not="the cluster's stack is not there")
    try:
        head = read_instance(aws, settings.name, by_part["cluster"].outputs.get("HeadNodeInstanceId", ""))
    except Unasked as error:
        return HeadNode(why_not=error.text, unasked=True)
    return ask_node(session, settings.region, head, timeout_s) if head.state else head


# ---- reservations ----


def _ask_reservations(settings: Settings, aws: Aws) -> Pending | None:
    ids = sorted({queue.reservation.id for queue in settings.queues if queue.reservation})
    return aws.start("ec2", "describe_capacity_reservations", CapacityReservationIds=ids) if ids else None


def _reservations(pending: Pending | None, settings: Settings, notes: list[str]) -> list[dict[str, Any]]:
    if pending is None:
        return []
    reservations = [queue.reservation for queue in settings.queues if queue.reservation]
    blocks = {reservation.id for reservation in reservations if reservation.kind == "capacity-block"}
    try:
        found = pending.result()["CapacityReservations"]
    except (Unasked, Refused) as error:
        notes.append(f"the reservations: {error}")
        return []
    return [_reservation(one, blocks) for one in found]


def _reservation(one: dict[str, Any], blocks: set[str]) -> dict[str, Any]:
    end = one.get("EndDate")
    now = datetime.datetime.now(datetime.UTC)
    return {
        "id": one["CapacityReservationId"],
        "is_block": one["CapacityReservationId"] in blocks,
        "state": one["State"],
        "total": one["TotalInstanceCount"],
        "free": one["AvailableInstanceCount"],
        "ends": end,
        "seconds_left": (end - now).total_seconds() if end else None,
    }


# ---- what the nodes logged before they could be asked ----


def _failed(stacks: list[Stack]) -> list[Stack]:
    """The cluster's stacks when one of them failed, else none."""
    cluster = [stack for stack in stacks if stack.part in ("cluster", PARALLELCLUSTER)]
    return cluster if any(stack.failed for stack in cluster) else []


def _boot(aws: Aws, group: str, stacks: list[Stack], notes: list[str]) -> list[Problem]:
    """Why nodes did not boot, from ParallelCluster's log group: after a failure, or while Slurm says so."""
    if not group:
        return []
    failed = _failed(stacks)
    began = [stack.began for stack in failed if stack.began]
    recent = aws.now() - datetime.timedelta(seconds=RECENT_S)
    start = min(began) if began else recent
    return boot_problems(aws, group, int(start.timestamp() * 1000), notes, failed=bool(failed))


def _logged(aws: Aws, group: str, stacks: list[Stack], notes: list[str]) -> list[str]:
    """Faults in the nodes' logs since the failed creation or update began; only asked for when one failed."""
    cluster = _failed(stacks)
    if not cluster:
        return []
    outputs = next(stack.outputs for stack in stacks if stack.part == "observability")
    began = [stack.began for stack in cluster if stack.began]
    since: dict[str, Any] = {"startTime": int(min(began).timestamp() * 1000)} if began else {}
    groups = {outputs.get("LogGroupName", ""), group}
    calls = [
        aws.start("logs", "filter_log_events", logGroupName=group, filterPattern=FAULT_PATTERN, **since)
        for group in sorted(groups - {""})
    ]
    lines: list[str] = []
    for call in calls:
        try:
            lines += [str(event["message"]).strip() for event in call.result()["events"]]
        except (Unasked, Refused) as error:
            notes.append(f"the nodes' logs: {error}")
    return [line.partition("slipway: FAULT ")[2] or line for line in dict.fromkeys(lines)][:MOST_LOGGED]


def _group_of_parallelcluster(aws: Aws, name: str) -> str:
    """Its own log group has the time of the creation behind the cluster's name."""
    try:
        answer = aws.call("logs", "describe_log_groups", logGroupNamePrefix=f"/aws/parallelcluster/{name}")
    except (Unasked, Refused):
        return ""
    names = [str(group["logGroupName"]) for group in answer["logGroups"]]
    own = [one for one in names if one.rpartition("/")[2].removeprefix(name).lstrip("-").isdigit()]
    return max(own, default="")


# ---- cost ----


def _usd_per_month(settings: Settings) -> tuple[float, float] | None:
    """From the dated prices of the data file: no question to AWS."""
    from slipway.cost.estimate import estimate
    from slipway.cost.model import HOURS_A_MONTH
    from slipway.cost.prices import data_prices

    result = estimate(settings, data_prices(settings.region))
    sums = result.cluster_per_hour.plus(result.reservations_per_hour).times(HOURS_A_MONTH)
    return (sums.low, sums.high) if sums.high else None


# ---- for programs, and the permissions ----


def _as_dict(
    file: str | Path, settings: Settings, word: str, findings: Findings, found: list[Any], usd: Any
) -> dict[str, Any]:
    stacks = [dataclasses.asdict(stack) for stack in findings.stacks if stack.is_there]
    return {
        "file": str(file),
        "name": settings.name,
        "region": settings.region,
        "state": word,
        "problems": [dataclasses.asdict(problem) for problem in found],
        "stacks": stacks,
        "head_node": dataclasses.asdict(findings.head),
        "reservations": list(findings.reservations),
        "file_systems": list(findings.file_systems),
        "usd_per_month": {"low": round(usd[0], 2), "high": round(usd[1], 2)} if usd else None,
        "not_asked": list(findings.notes),
    }


def policy(settings: Settings) -> dict[str, Any]:
    """An identity policy for `slipway status`: reading, and the one document on the one cluster's head node."""
    place = partition(settings.region)
    reading = [
        "cloudformation:DescribeStackEvents",
        "cloudformation:DescribeStacks",
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeInstances",
        "fsx:DescribeDataRepositoryAssociations",
        "fsx:DescribeFileSystems",
        "logs:DescribeLogGroups",
        "logs:FilterLogEvents",
        "ssm:GetCommandInvocation",
    ]
    tags = {
        "ssm:resourceTag/parallelcluster:cluster-name": settings.name,
        "ssm:resourceTag/parallelcluster:node-type": "HeadNode",
    }
    instances = [f"arn:{place}:ec2:{settings.region}:*:instance/*"]
    runs = [f"arn:{place}:ssm:{settings.region}::document/{DOCUMENT}"]
    return document(
        [
            allow("Read", {*reading, *READING}, ["*"]),
            allow("AskHeadNode", ["ssm:SendCommand"], instances, Condition={"StringEquals": tags}),
            allow("ByDocument", ["ssm:SendCommand"], runs),
        ]
    )
