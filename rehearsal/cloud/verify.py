"""Is the deployment really there? Templates of the cloud assembly against what the embedded AWS made.

A green `cdk deploy` is not proof (a tool may retry over a failure, or deploy fewer stacks than were meant). Here every
logical id of every template, nested ones included, must have been created, and the server must have raised nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rehearsal.cloud.stack import Stack
from rehearsal.cloud.stack_engine import StackEngine
from rehearsal.cloud_errors import CloudError, StackNotFound
from rehearsal.cloud_model import STACK_TYPE

_GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_TRACEBACK = "Traceback (most recent call last)"


def deployed_stacks(cdk_out: Path) -> Iterator[tuple[str, Path]]:
    """(stack name, template) of every stack of a cloud assembly, stages included; CloudError if it has no stack."""
    manifest = cdk_out / "manifest.json"
    try:
        artifacts = json.loads(manifest.read_text(encoding="utf-8")).get("artifacts", {})
    except (OSError, ValueError) as error:
        raise CloudError(f"{manifest}: cannot be read as a cloud assembly: {error}. Run `cdk synth` first.") from None
    for name, artifact in artifacts.items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "aws:cloudformation:stack":
            yield properties.get("stackName", name), cdk_out / properties["templateFile"]
        elif artifact["type"] == "cdk:cloud-assembly":
            yield from deployed_stacks(cdk_out / properties["directoryName"])


def check_assembly(engine: StackEngine, cdk_out: Path, stacks: Collection[str] | None = None) -> list[str]:
    """Problems of the deployment of a cloud assembly (of its `stacks`, when named); empty when all of it is there."""
    assembled = dict(deployed_stacks(cdk_out))
    problems = [f"stack {name}: not in {cdk_out}" for name in sorted(set(stacks or ()) - set(assembled))]
    for name, path in assembled.items():
        if stacks is not None and name not in stacks:
            continue
        try:
            stack = engine.find(name)
        except StackNotFound:
            if not resources_of(path):
                continue  # the CDK CLI deploys no stack that has none
            problems.append(f"stack {name}: never deployed")
            continue
        problems += _check_stack(engine, stack, path)
    return problems


def resources_of(template: Path) -> dict[str, Any]:
    """The resources of a template by logical id; none when everything in it exists already."""
    resources: dict[str, Any] = json.loads(template.read_text(encoding="utf-8")).get("Resources", {})
    return resources


def _check_stack(engine: StackEngine, stack: Stack, path: Path) -> list[str]:
    if stack.status not in _GOOD:
        return [f"stack {stack.name}: {stack.status}: {stack.reason}"]
    problems: list[str] = []
    for logical_id, body in resources_of(path).items():
        if "Condition" in body and logical_id not in stack.resources:
            continue  # the engine evaluated the condition; a wanted resource that failed is in the stack's status
        problems += _check_resource(stack, logical_id, body)
        nested = body.get("Metadata", {}).get("aws:asset:path", "")
        if body["Type"] == STACK_TYPE and nested and logical_id in stack.resources:
            problems += _check_nested(engine, stack, logical_id, path.parent / nested)
    return problems


def _check_nested(engine: StackEngine, stack: Stack, logical_id: str, path: Path) -> list[str]:
    try:
        child = engine.find(stack.resources[logical_id].result.physical_id)
    except StackNotFound:
        return [f"stack {stack.name}: nested stack {logical_id} does not exist"]
    return _check_stack(engine, child, path) if path.is_file() else [f"{path}: template of {logical_id} is missing"]


def _check_resource(stack: Stack, logical_id: str, body: Mapping[str, Any]) -> list[str]:
    made = stack.resources.get(logical_id)
    where = f"stack {stack.name}: {logical_id} ({body['Type']})"
    if made is None:
        return [f"{where}: was never created"]
    seen = any(event.logical_id == logical_id and event.status in _GOOD for event in stack.events)
    if made.status not in _GOOD or not seen:
        return [f"{where}: {made.status}: {made.reason}"]
    return []


def find_tracebacks(server_log: Path) -> list[str]:
    """One problem for each traceback in the server's log, with its last line."""
    text = server_log.read_text(encoding="utf-8", errors="replace")
    problems = []
    for chunk in text.split(_TRACEBACK)[1:]:
        last = next((line for line in chunk.splitlines()[1:] if line and not line.startswith((" ", "\t"))), "")
        problems.append(f"{server_log}: the embedded AWS raised: {last.strip()}")
    return problems
