"""The update of a stack in the background, and every roll-back: of an update, and of a creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rehearsal.cloud import template
from rehearsal.cloud.stack import Change, Rollback, Stack, StackOptions
from rehearsal.cloud.stack_work import KEEP, StackWork
from rehearsal.cloud_errors import ResourceFailed, StackNotFound, TemplateInvalid
from rehearsal.cloud_model import (
    STACK_TYPE,
    Resource,
    ResourceResult,
)

KEEP_ON_ROLLBACK = ("Retain",)
NEVER_MADE = "CREATE_FAILED"  # of a resource: the next operation deletes it


class StackUpdates(StackWork):
    """The work of UpdateStack, RollbackStack and ContinueUpdateRollback."""

    def _update(
        self,
        stack: Stack,
        text: str,
        document: dict[str, Any],
        given: dict[str, str],
        references: dict[str, Any],
        options: StackOptions,
    ) -> None:
        before = stack.rollback or Rollback.of(stack)  # of a paused stack: as it was before the first failure
        imports, stack.imports = stack.imports, set()
        failed = self._remove(stack, [one.logical_id for one in stack.resources.values() if one.status == NEVER_MADE])
        existing = list(stack.resources)
        physical = {name: stack.references[name] for name in existing if name in stack.references}
        stack.references = {**references, **physical}
        stack.options = options
        failed = failed or self._apply_update(stack, document, before.undo)
        if failed is None:
            stack.text, stack.document, stack.given = text, document, given
            failed = self._set_outputs(stack)
        if failed is not None:
            stack.imports |= imports
            before.reason = failed
            stack.rollback = before if stack.stable else None
            self._update_failed(stack, before)
            return
        self._stack_event(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        self._remove_replaced(stack, before.undo)
        self._remove(stack, [name for name in existing if not self._still_wanted(stack, name)])
        stack.updated = datetime.now(UTC)
        stack.rollback = None
        self._stack_event(stack, "UPDATE_COMPLETE")

    def _update_failed(self, stack: Stack, rollback: Rollback) -> None:
        if stack.options.disable_rollback:
            self._pause(stack, rollback)
            return
        self._stack_event(stack, f"{verb_of(stack)}ROLLBACK_IN_PROGRESS", rollback.reason)
        if stack.rollback is not None:
            self._roll_back(stack, rollback, KEEP_ON_ROLLBACK)
        else:
            self._roll_creation_back(stack, "ROLLBACK", KEEP_ON_ROLLBACK)

    def _pause(self, stack: Stack, rollback: Rollback) -> None:
        """Leave a failed update as it is, but for the resource that failed: that one is taken back at once.

        As CloudFormation's user guide, "Choose how to handle failures when provisioning resources", describes it. So a
        nested stack, which is a resource, is never in UPDATE_FAILED.
        """
        if rollback.undo and rollback.undo[-1][0].status == "UPDATE_FAILED":
            resource, old, result = rollback.undo[-1]
            reason = resource.reason
            if self._attempt(stack, resource, "UPDATE", partial(self._undo, stack, resource, old, result)):
                rollback.undo.pop()
            resource.status, resource.reason = "UPDATE_FAILED", reason
        self._stack_event(stack, "UPDATE_FAILED", rollback.reason)

    def _still_wanted(self, stack: Stack, logical_id: str) -> bool:
        body = stack.document["Resources"].get(logical_id)
        return body is not None and self._wanted(body, self._resolver(stack, stack.document))

    def _apply_update(self, stack: Stack, document: dict[str, Any], done: list[Change]) -> str | None:
        resolver = self._resolver(stack, document)
        for logical_id in template.creation_order(document["Resources"], self._seed):
            body = document["Resources"][logical_id]
            if not self._wanted(body, resolver):
                continue
            current = stack.resources.get(logical_id)
            if current is None:
                failed = self._make_missing(stack, {**document, "Resources": {logical_id: body}}, resolver)
            else:
                failed = self._update_one(stack, current, body, resolver, done)
            if failed:
                return failed
        return None

    def _update_one(
        self,
        stack: Stack,
        resource: Resource,
        body: Mapping[str, Any],
        resolver: template.Resolver,
        done: list[Change],
    ) -> str | None:
        try:
            properties = resolver.resolve(body.get("Properties", {})) or {}
        except (ResourceFailed, TemplateInvalid) as error:
            self._resource_event(stack, resource, "UPDATE_FAILED", str(error))
            return f"The following resource(s) failed to update: [{resource.logical_id}]."
        if body["Type"] != resource.resource_type:
            reason = f"Update of resource type is not permitted: {resource.logical_id}"
            self._resource_event(stack, resource, "UPDATE_FAILED", reason)
            return f"The following resource(s) failed to update: [{resource.logical_id}]."
        resource.deletion_policy = str(body.get("DeletionPolicy", "Delete"))
        resource.replace_policy = str(body.get("UpdateReplacePolicy", "Delete"))
        resource.needs = template.dependencies(body, stack.resources)
        if properties == resource.properties and resource.resource_type != STACK_TYPE:
            return None
        old, result = resource.properties, resource.result
        if not self._attempt(stack, resource, "UPDATE", partial(self._change, stack, resource, properties)):
            if resource.resource_type.startswith("Custom::"):  # it may be half done: roll it back too
                done.append((resource, old, result))
            return f"The following resource(s) failed to update: [{resource.logical_id}]."
        done.append((resource, old, result))
        return None

    def _change(self, stack: Stack, resource: Resource, properties: dict[str, Any]) -> None:
        kind = self._kind(resource.resource_type)
        request = self._request(stack, resource, "Update", properties=properties)
        resource.result = kind.update(request, resource.result)
        resource.properties = properties
        stack.references[resource.logical_id] = resource.result.physical_id

    def _undo(self, stack: Stack, resource: Resource, properties: dict[str, Any], result: ResourceResult) -> None:
        """Roll one update back: a replacement is deleted and the old one, which still exists, is the resource again."""
        if resource.result.physical_id == result.physical_id:
            self._change(stack, resource, properties)
            return
        made = replace(resource)
        resource.properties, resource.result = properties, result
        stack.references[resource.logical_id] = result.physical_id
        self._destroy(stack, made)

    def _remove_replaced(self, stack: Stack, done: list[Change]) -> None:
        """Delete the old incarnations of resources that an update replaced."""
        for resource, old, result in done:
            if result.physical_id != resource.result.physical_id and resource.replace_policy not in KEEP:
                ghost = replace(resource, properties=old, result=result)
                self._attempt(stack, ghost, "DELETE", partial(self._destroy, stack, ghost))

    # ---- roll-back ----

    def _roll_back(self, stack: Stack, rollback: Rollback, keep: tuple[str, ...]) -> None:
        """Take back what is left of an update; what cannot be taken back is left for ContinueUpdateRollback."""
        stack.text, stack.document, stack.given, stack.options = rollback.before
        problem = self._lost_output(stack)
        undo, rollback.undo = rollback.undo, []
        for resource, old, result in reversed(undo):
            if not self._attempt(stack, resource, "UPDATE", partial(self._undo, stack, resource, old, result)):
                problem = f"The following resource(s) failed to update: [{resource.logical_id}]."
                rollback.undo.insert(0, (resource, old, result))
        added = [name for name in stack.resources if name not in rollback.existing]
        problem = self._remove(stack, added, keep=keep) or problem
        physical = {name: resource.result.physical_id for name, resource in stack.resources.items()}
        stack.references = {**rollback.references, **physical}
        problem = problem or self._set_outputs(stack)
        stack.rollback = rollback if problem else None
        self._stack_event(stack, "UPDATE_ROLLBACK_FAILED" if problem else "UPDATE_ROLLBACK_COMPLETE", problem or "")
        stack.reason = problem or rollback.reason

    def _lost_output(self, stack: Stack) -> str | None:
        """The first output of another stack that the template names and that is gone.

        The roll-back reads outputs again: the worst that the page of Fn::GetStackOutput allows ("resolved at stack
        create or update time").
        """
        for body in template.functions(stack.document["Resources"], "Fn::GetStackOutput"):
            try:
                self._resolver(stack, stack.document).resolve({"Fn::GetStackOutput": body})
            except (ResourceFailed, StackNotFound) as error:
                return str(error)
        return None

    def _roll_creation_back(self, stack: Stack, final: str, keep: tuple[str, ...]) -> None:
        undone = self._remove(stack, list(stack.resources), keep=keep)
        self._stack_event(stack, f"{final}_COMPLETE" if undone is None else f"{final}_FAILED", undone or "")


def verb_of(stack: Stack) -> str:
    """What a roll-back is called: of the update, or, of a stack that was never whole, of its creation."""
    return "UPDATE_" if stack.stable else ""
