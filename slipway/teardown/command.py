"""`slipway teardown`: prints what goes, what stays and what that costs, asks for the cluster's name, and deletes."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slipway.aws.calls import Aws, Refused, Unasked
from slipway.aws.session import open_aws
from slipway.errors import EXIT_GOOD, EXIT_NO, EnvironmentFault, Interrupted, SlipwayError, UsageError
from slipway.leftovers import FILE_SYSTEM, GROUP, Finder, Found, referred
from slipway.settings import Settings, load_settings
from slipway.teardown.plan import STACK, Plan, Step, make_plan
from slipway.teardown.stacks import read_stacks
from slipway.teardown.work import Held, Worker
from slipway.text import duration, visible

STEP_MINUTES = 60
"""How long one step may take by default. ParallelCluster ends its nodes in 10 to 20 minutes, FSx needs as long."""


@dataclasses.dataclass
class Result:
    """What became of one step."""

    step: Step
    state: str  # gone, held or not begun
    seconds: float = 0.0
    reason: str = ""


def teardown(
    file: Path,
    *,
    ask: Callable[[str], str],
    confirm: str | None = None,
    delete_data: bool = False,
    profile: str | None = None,
    minutes: float = STEP_MINUTES,
    as_json: bool = False,
) -> int:
    """Take the cluster of the settings in `file` down; return 0 when all that should go is gone, 1 when some is held.

    `confirm` is the cluster's name, else the user is `ask`ed for it; `minutes` bounds the wait for one step. Raises
    UsageError for another name, EnvironmentFault when AWS does not answer or a step takes longer.
    """
    settings = load_settings(file)
    aws = open_aws(settings.region, profile)
    try:
        plan, found = _plan(settings, aws, delete_data)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing was deleted") from None
    for line in plan_lines(settings, plan, found, delete_data=delete_data):
        _say(line)
    if plan.refused:
        raise SlipwayError(plan.refused)
    results: list[Result] = []
    if plan.steps:
        _confirm(settings.name, confirm, ask, delete_data=delete_data)
        results = _run(plan, Worker(aws, _say, minutes * 60))
    for line in end_lines(settings, plan, results):
        _say(line)
    if as_json:
        print(json.dumps(_as_dict(settings, plan, found, results), default=str))
    return EXIT_GOOD if all(result.state == "gone" for result in results) else EXIT_NO


def _say(line: str) -> None:
    print(visible(line), file=sys.stderr, flush=True)


def _plan(settings: Settings, aws: Aws, delete_data: bool) -> tuple[Plan, Found]:
    finder = Finder(settings, aws)
    try:
        stacks = read_stacks(settings, aws)
    except (Unasked, Refused) as error:
        text = f"AWS did not report what is deployed: {error}"
        raise EnvironmentFault(f"{text}. Hint: aws sts get-caller-identity") from None
    found = finder.read()
    if found.unasked and delete_data:
        raise EnvironmentFault(
            f"AWS did not report everything that exists: {'; '.join(found.unasked)}. Nothing was deleted. "
            "Hint: slipway policy teardown FILE prints the permissions"
        )
    things, proved = found.things, found.is_cluster_proved
    return make_plan(settings.name, stacks, things, delete_data=delete_data, is_cluster_proved=proved), found


def _confirm(name: str, confirm: str | None, ask: Callable[[str], str], *, delete_data: bool) -> None:
    what = f"{name} AND ITS DATA" if delete_data else name
    typed = confirm if confirm is not None else ask(f"Type {name} to delete {what}")
    if typed != name:
        raise UsageError(f"{typed!r} is not the name {name}: nothing was deleted. Hint: --confirm {name} asks nothing")


# ---- what is printed ----


def plan_lines(settings: Settings, plan: Plan, found: Found, *, delete_data: bool) -> Iterator[str]:
    """What goes, in its order, what stays with its price, and what is not touched."""
    yield f"teardown of {settings.name} in {settings.region}"
    yield "goes, in this order:" if plan.steps else "nothing is left to delete"
    for number, step in enumerate(plan.steps, start=1):
        yield f"  {number}. {step.kind} {step.id}{f' ({step.text})' if step.text else ''}"
    if any(step.kind == FILE_SYSTEM for step in plan.steps):
        yield "  changes that were not exported to the bucket are lost with the file system"
    stays = [stay for stay in plan.stays if not stay.is_untouched]
    if stays:
        yield f"stays, for {plan.usd_per_month:,.2f} USD a month at list prices, in addition to what is paid by use:"
        yield from (f"  {stay.text}" for stay in stays)
    if stays and not delete_data:
        yield "  --delete-data deletes this too; a new deployment with the same settings uses what stays in a stack"
    untouched = [stay.text for stay in plan.stays if stay.is_untouched]
    if untouched:
        yield "is not touched, because it is not proved to be this cluster's:"
        yield from (f"  {text}" for text in untouched)
    existing = sorted(referred(settings))
    if existing:
        yield f"is not touched, because the settings only refer to it: {', '.join(existing)}"
    yield from (f"not asked: {text}" for text in found.unasked)


def end_lines(settings: Settings, plan: Plan, results: list[Result]) -> Iterator[str]:
    """What is gone, and what is held by what."""
    held = [result for result in results if result.state == "held"]
    waiting = [result.step.id for result in results if result.state == "not begun"]
    for result in held:
        yield f"held: {result.step.kind} {result.step.id}: {result.reason}"
    if waiting:
        yield f"not begun: {', '.join(waiting)}. Hint: repair what is held, then run the same command again"
    if not held:
        stays = any(not stay.is_untouched for stay in plan.stays)
        rest = f"; what stays costs {plan.usd_per_month:,.2f} USD a month and by use" if stays else "; nothing is left"
        yield f"{settings.name} is taken down{rest}"


def _as_dict(settings: Settings, plan: Plan, found: Found, results: list[Result]) -> dict[str, Any]:
    return {
        "name": settings.name,
        "region": settings.region,
        "steps": [
            {**dataclasses.asdict(result.step), "state": result.state, "seconds": round(result.seconds, 1)}
            | ({"reason": result.reason} if result.reason else {})
            for result in results
        ],
        "stays": [dataclasses.asdict(stay) for stay in plan.stays],
        "usd_per_month": round(plan.usd_per_month, 2),
        "not_asked": list(found.unasked),
    }


# ---- the work ----


def _run(plan: Plan, worker: Worker) -> list[Result]:
    """Do the steps in order. After a stack that is held nothing more is begun: the rest is used by it, or uses it."""
    results: list[Result] = []
    stopped = False
    for number, step in enumerate(plan.steps, start=1):
        needs_all = step == plan.steps[-1] and step.kind == STACK and any(_holds_network(one) for one in results)
        if stopped or needs_all:
            results.append(Result(step, "not begun"))
            continue
        place = f"{number}/{len(plan.steps)} {step.kind} {step.id}"
        try:
            _say(place)
            result = _do(step, worker)
        except KeyboardInterrupt:
            rest = "what AWS has begun goes on. Hint: run the same command again, it goes on from there"
            raise Interrupted(f"{place}: interrupted; {rest}") from None
        results.append(result)
        _say(f"  {step.id}: {result.state} after {duration(result.seconds)}")
        stopped = result.state == "held" and step.kind == STACK
    return results


def _holds_network(result: Result) -> bool:
    return result.state == "held" and result.step.kind in (FILE_SYSTEM, GROUP)


def _do(step: Step, worker: Worker) -> Result:
    began = time.monotonic()
    try:
        worker.delete(step)
    except Held as error:
        return Result(step, "held", time.monotonic() - began, str(error))
    except Refused as error:
        return Result(step, "held", time.monotonic() - began, f"AWS refused: {error}")
    except Unasked as error:
        hint = "slipway policy teardown FILE prints the permissions" if error.permission else "run it again"
        raise EnvironmentFault(f"{step.kind} {step.id}: {error}. Hint: {hint}") from None
    return Result(step, "gone", time.monotonic() - began)
