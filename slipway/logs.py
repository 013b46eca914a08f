"""`slipway logs`: print lines of the cluster's logs in CloudWatch, read-only and bounded.

Streams are named `HOST.INSTANCE.KIND` (docs/metrics.md). Each entry of GROUPS says in whose log groups its streams are:
Slipway's own, ParallelCluster's, or those of the functions that start the acceptance.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway.aws.calls import Refused, Unasked, explained
from slipway.aws.session import session_of
from slipway.errors import EXIT_GOOD, EXIT_NO, EnvironmentFault, SlipwayError, UsageError
from slipway.settings import Settings, load_settings
from slipway.stack_names import stack_names
from slipway.text import listed, visible

GROUPS: dict[str, tuple[str, str]] = {
    "setup": ("slipway", r"\.slipway-setup$"),
    "steps": ("slipway", r"\.slipway\."),
    "health": ("slipway", r"\.slipway\..*health"),
    "nccl": ("slipway", r"\.slipway\..*nccl"),
    "containers": ("slipway", r"\.ngc-download$"),
    "slurm": ("parallelcluster", r"\.(slurm\w*|clustermgtd|computemgtd)(\.|$)"),
    "boot": ("parallelcluster", r"\.(cloud-init|cloud-init-output|cfn-init|chef-client|bootstrap_error_msg)$"),
    "system": ("parallelcluster", ""),
    "acceptance": ("acceptance", ""),
}
SINCE = re.compile(r"([0-9]{1,5})([smhd])", re.ASCII)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_STREAMS = 100  # of one question to CloudWatch (API reference, FilterLogEvents)
MOST_PAGES = 50  # of one list; CloudWatch may also send many pages with no events
MOST_EVENTS = 10_000  # printed at once
POLL_S = 2.0
LATE_MS = 5 * 60_000  # agents send in batches: with --follow a line may arrive this long after its time
MOST_NAMED = 12


def logs(
    file: Path,
    *,
    node: str | None = None,
    group: str = "setup",
    since: str = "1h",
    follow: bool = False,
    profile: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the lines of the last `since`, oldest first. Return 0, or 1 if no stream or no line matches.

    `node` is a host name, an instance id or `head`. `follow` prints new lines until Ctrl-C. As JSON: one object,
    or with `follow` one object per line. Raises UsageError for a wrong `group` or `since`, SlipwayError if the cluster
    has no such log group, EnvironmentFault if AWS does not answer.
    """
    settings = load_settings(file)
    start_ms = int((time.time() - _seconds(since)) * 1000)
    if group not in GROUPS:
        raise UsageError(f"--group {group}: unknown. Hint: one of {', '.join(GROUPS)}")
    owner, pattern = GROUPS[group]
    reader = Reader(settings, profile)
    streams = reader.streams(reader.log_groups(owner))
    host = reader.output("cluster", "HeadNodeInstanceId") if node == "head" else node
    chosen = [stream for stream in streams if re.search(pattern, stream.name) and (not host or stream.is_of(host))]
    events, is_cut = reader.events(chosen, start_ms) if chosen else ([], False)
    if as_json and not follow:
        lines = [event.as_dict() for event in events]
        print(json.dumps({"name": settings.name, "streams": [s.name for s in chosen], "events": lines, "cut": is_cut}))
    else:
        _print(events, as_json=as_json)
    if is_cut:
        _note(f"only the first {len(events)} lines are shown. Hint: a shorter --since, or --node")
    if follow and chosen:
        reader.follow(chosen, events, start_ms, as_json=as_json)
    if not events:
        _note(_nothing(streams, chosen, group, since))
    return EXIT_GOOD if events else EXIT_NO


def _seconds(since: str) -> int:
    match = SINCE.fullmatch(since)
    if match is None:
        raise UsageError(f"--since {since}: must be a number and s, m, h or d. Hint: --since 90m")
    return int(match[1]) * SECONDS[match[2]]


@dataclasses.dataclass(frozen=True)
class Stream:
    """A log stream in its log group."""

    group: str
    name: str

    def is_of(self, host: str) -> bool:
        """Return whether the stream is of this host, by its name or its instance id."""
        return host in self.name.split(".")[:2] or self.name.startswith(f"{host}.")


@dataclasses.dataclass(frozen=True)
class Event:
    """One line of a log; `time_ms` is its time in milliseconds since 1970."""

    id: str
    time_ms: int
    stream: str
    message: str

    @property
    def time(self) -> str:
        """Return the time as `2026-11-28T12:00:00Z`."""
        moment = datetime.datetime.fromtimestamp(self.time_ms / 1000, datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def __str__(self) -> str:
        host, _, rest = self.stream.partition(".")
        return visible(f"{self.time} {host} {rest.partition('.')[2] or rest}: {self.message.rstrip()}")

    def as_dict(self) -> dict[str, str]:
        """Return the line for `--json`."""
        return {"time": self.time, "stream": self.stream, "message": self.message}


class Reader:
    """The logs of one cluster. Every method raises EnvironmentFault if AWS does not answer."""

    def __init__(self, settings: Settings, profile: str | None) -> None:
        from botocore.config import Config

        self._settings = settings
        self.is_cut = False  # whether the last list was longer than the bounds
        session = session_of(profile, settings.region)
        config = Config(connect_timeout=3, read_timeout=15, retries={"total_max_attempts": 4, "mode": "standard"})
        self._clients = {
            service: session.client(service, region_name=settings.region, config=config)
            for service in ("cloudformation", "logs")
        }

    def output(self, part: str, key: str) -> str:
        """Return an output of a stack. Raises SlipwayError if there is no such stack or output."""
        name = stack_names(self._settings.name)[part]
        try:
            stack = self._ask("cloudformation", "describe_stacks", StackName=name)["Stacks"][0]
        except Refused as error:
            if "does not exist" not in error.message:
                raise _unanswered(error) from None
            hint = "slipway status shows the stacks"
            raise SlipwayError(f"stack {name} does not exist in {self._settings.region}. Hint: {hint}") from None
        values = [str(item["OutputValue"]) for item in stack.get("Outputs", []) if item["OutputKey"] == key]
        if not values:
            raise SlipwayError(f"stack {name} is {stack['StackStatus']} and has no output {key} yet")
        return values[0]

    def log_groups(self, owner: str) -> list[str]:
        """Return the log groups of `owner`. Raises SlipwayError if there are none."""
        if owner == "slipway":
            return [self.output("observability", "LogGroupName")]
        name = self._settings.name
        prefix, rest = {
            "parallelcluster": (f"/aws/parallelcluster/{name}-", r"\d+"),  # the time of the creation
            "acceptance": (f"/aws/lambda/{name}-acceptance-", r".+"),
        }[owner]
        candidates = [
            str(group["logGroupName"]) for group in self._list("describe_log_groups", logGroupNamePrefix=prefix)
        ]
        names = sorted(name for name in candidates if re.fullmatch(rest, name.removeprefix(prefix)))
        if not names:
            raise SlipwayError(f"there is no log group {prefix}... in {self._settings.region}. Hint: slipway status")
        return names[-1:] if owner == "parallelcluster" else names

    def streams(self, groups: list[str]) -> list[Stream]:
        """Return the streams of `groups`, those with the newest lines first."""
        newest = {"orderBy": "LastEventTime", "descending": True}
        return [
            Stream(group, str(stream["logStreamName"]))
            for group in groups
            for stream in self._list("describe_log_streams", logGroupName=group, **newest)
        ]

    def events(self, streams: list[Stream], start_ms: int) -> tuple[list[Event], bool]:
        """Return the lines of `streams` since `start_ms` by time, at most MOST_EVENTS, and whether there are more."""
        events: list[Event] = []
        self.is_cut = False
        for group in dict.fromkeys(stream.group for stream in streams):
            names = [stream.name for stream in streams if stream.group == group]
            for first in range(0, len(names), MOST_STREAMS):
                some = {"logStreamNames": names[first : first + MOST_STREAMS], "startTime": start_ms}
                events += [_event(item) for item in self._list("filter_log_events", logGroupName=group, **some)]
        events.sort(key=lambda event: event.time_ms)
        return events[:MOST_EVENTS], self.is_cut or len(events) > MOST_EVENTS

    def follow(self, streams: list[Stream], printed: list[Event], start_ms: int, *, as_json: bool) -> None:
        """Print new lines of `streams` until Ctrl-C."""
        seen = {event.id: event.time_ms for event in printed}
        while True:
            time.sleep(POLL_S)
            oldest = max(start_ms, max(seen.values(), default=start_ms) - LATE_MS)
            events = [event for event in self.events(streams, oldest)[0] if event.id not in seen]
            _print(events, as_json=as_json)
            seen = {id: ms for id, ms in seen.items() if ms >= oldest} | {event.id: event.time_ms for event in events}

    def _list(self, operation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a list of CloudWatch Logs, page by page, as long as it has any and within the bounds."""
        key = {"describe_log_groups": "logGroups", "describe_log_streams": "logStreams"}.get(operation, "events")
        count = 0
        for _ in range(MOST_PAGES):
            try:
                page = self._ask("logs", operation, **parameters)
            except Refused as error:
                raise _unanswered(error) from None
            yield from page[key]
            count += len(page[key])
            if "nextToken" not in page:
                return
            if count > MOST_EVENTS:
                break
            parameters["nextToken"] = page["nextToken"]
        self.is_cut = True

    def _ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        client = self._clients[service]
        try:
            answer: dict[str, Any] = getattr(client, operation)(**parameters)
        except Exception as error:  # botocore raises many kinds; `explained` reduces them to Refused and Unasked
            name = f"{service}:{client.meta.method_to_api_mapping[operation]}"
            result = explained(error, name, self._settings.region)
            raise (_unanswered(result) if isinstance(result, Unasked) else result) from None
        return answer


def _unanswered(error: Exception) -> EnvironmentFault:
    return EnvironmentFault(f"AWS did not give the logs: {error}. Hint: aws sts get-caller-identity")


def _event(item: dict[str, Any]) -> Event:
    return Event(str(item["eventId"]), int(item["timestamp"]), str(item["logStreamName"]), str(item["message"]))


def _print(events: list[Event], *, as_json: bool) -> None:
    for event in events:
        print(json.dumps(event.as_dict()) if as_json else event, flush=True)


def _note(text: str) -> None:
    print(visible(text), file=sys.stderr)


def _nothing(streams: list[Stream], chosen: list[Stream], group: str, since: str) -> str:
    """Say why there is no line, and what there is instead."""
    if chosen:
        return f"no line in the last {since} in {listed([stream.name for stream in chosen])}. Hint: a longer --since"
    if not streams:
        return "the log group has no streams yet: no node has sent a line"
    names = listed([stream.name for stream in streams], MOST_NAMED)
    return f"no stream of --group {group} matches. There are: {names}"
