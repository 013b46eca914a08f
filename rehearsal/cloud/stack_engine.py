"""CloudFormation's behaviour over time: stacks that are created, updated, rolled back and deleted in the background.

Why not moto's own: it works through a template while the request waits, reports CREATE_COMPLETE for a stack in which
a resource raised, has no rollback, no events per resource, and leaves out types that it does not know. Each of those
turns a broken deployment green. Here a request answers at once, one worker thread a stack operation does the work,
and whatever goes wrong is a CREATE_FAILED with its reason and a rollback. Resources of one stack are made one after
the other, in the worst order that the real service, which makes independent ones side by side, can come to.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rehearsal.cloud import template
from rehearsal.cloud.stack import Stack, StackOptions, parameters_of
from rehearsal.cloud.stack_update import KEEP_ON_ROLLBACK, StackUpdates, verb_of
from rehearsal.cloud_errors import ResourceFailed, StackAlreadyExists, StackNotFound, TemplateInvalid
from rehearsal.cloud_model import (
    ACCOUNT,
    PARTITION,
    URL_SUFFIX,
    ResourceRequest,
    ResourceResult,
)

PAUSED = ("CREATE_FAILED", "UPDATE_FAILED")  # of a stack: an operation without a roll-back failed


class StackEngine(StackUpdates):
    """The requests of CloudFormation in one region.

    A request is answered when its work is done, at the latest after `settle_s` seconds: the CDK CLI looks only every
    5 s, and small stacks are done long before.
    """

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no operation runs; False when one still does after `timeout_s` seconds."""
        deadline = datetime.now(UTC).timestamp() + timeout_s
        for worker in list(self._workers):
            worker.join(max(0.0, deadline - datetime.now(UTC).timestamp()))
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        return not self._workers

    # ---- requests ----

    def create(self, name: str, text: str, given: Mapping[str, str], options: StackOptions) -> Stack:
        """CreateStack: answers at once; the work goes on in the background."""
        stack = self._register(name, text, given, options, parent_id=None)
        self._in_background(self._create, stack)
        return stack

    def update(self, name: str, text: str | None, given: Mapping[str, str], options: StackOptions) -> Stack:
        """UpdateStack: raises TemplateInvalid("No updates are to be performed.") when nothing differs."""
        stack = self.find(name)
        document, references = self._prepare_update(stack, text, given, options)
        self._in_background(self._update, stack, text or stack.text, document, dict(given), references, options)
        return stack

    def delete(self, name: str, retain: Sequence[str] = ()) -> None:
        """DeleteStack: silent when there is no such stack or its deletion runs, as AWS is.

        `retain` are logical ids that are not deleted. A creation that runs is cancelled.
        """
        try:
            stack = self.find(name)
        except StackNotFound:
            return
        with self._lock:
            if stack.status in ("DELETE_COMPLETE", "DELETE_IN_PROGRESS"):
                return
            if stack.options.termination_protection:
                raise TemplateInvalid(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
            if stack.status.startswith("UPDATE_") and stack.busy:  # the message: amplify-backend, pull 2366
                raise TemplateInvalid(f"Stack [{stack.stack_id}] cannot be deleted while in status {stack.status}")
            if retain and stack.status != "DELETE_FAILED":  # RetainResources in the API reference
                raise TemplateInvalid("Invalid operation on stack. RetainResources is only valid for DELETE_FAILED.")
            used = self._exports_in_use(stack, {})
            if used:
                raise TemplateInvalid(used)
            running = stack.worker if stack.busy else None
            self._stack_event(stack, "DELETE_IN_PROGRESS", "User Initiated")
        self._in_background(self._delete, stack, tuple(retain), running)

    def continue_rollback(self, name: str, skip: Sequence[str] = ()) -> None:
        """ContinueUpdateRollback: try what could not be taken back again, without the resources `skip`.

        As its API reference says: only in UPDATE_ROLLBACK_FAILED, not of a nested stack, and only resources can be
        skipped whose roll-back failed. They count as UPDATE_COMPLETE then, and stay as they are.
        """
        stack = self.find(name)
        with self._lock:
            self._refuse_to_roll_back(stack, ("UPDATE_ROLLBACK_FAILED",))
            rollback = stack.rollback
            if rollback is None:
                raise AssertionError("it is kept until the roll-back ends well")
            stuck = {resource.logical_id: resource for resource, _, _ in rollback.undo}
            wrong = sorted(set(skip) - set(stuck))
            if wrong:
                raise TemplateInvalid(
                    f"The following resources are not in UPDATE_FAILED state because a rollback failed: {wrong}"
                )
            self._stack_event(stack, "UPDATE_ROLLBACK_IN_PROGRESS", "User Initiated")
            rollback.undo = [entry for entry in rollback.undo if entry[0].logical_id not in skip]
        for logical_id in skip:
            self._resource_event(stack, stuck[logical_id], "UPDATE_COMPLETE")
        self._in_background(self._roll_back, stack, rollback, KEEP_ON_ROLLBACK)

    def rollback(self, name: str, retain_except_on_create: bool = False) -> Stack:
        """RollbackStack: take back what an operation without a roll-back (DisableRollback) left when it failed.

        As its API reference says: only in CREATE_FAILED and UPDATE_FAILED; back to the last *_COMPLETE, or, where there
        was none, by deleting what was made; `retain_except_on_create` deletes new resources whose policy is Retain too.
        """
        stack = self.find(name)
        keep = () if retain_except_on_create else KEEP_ON_ROLLBACK
        with self._lock:
            self._refuse_to_roll_back(stack, PAUSED)
            self._stack_event(stack, f"{verb_of(stack)}ROLLBACK_IN_PROGRESS", "User Initiated")
        if stack.rollback is not None:
            self._in_background(self._roll_back, stack, stack.rollback, keep)
        else:
            self._in_background(self._roll_creation_back, stack, "ROLLBACK", keep)
        return stack

    @staticmethod
    def _refuse_to_roll_back(stack: Stack, states: tuple[str, ...]) -> None:
        if stack.parent_id is not None:
            raise TemplateInvalid(f"Rollback of nested stack {stack.stack_id} must be continued from its parent")
        if stack.status not in states:
            raise TemplateInvalid(f"Stack:{stack.stack_id} is in {stack.status} state and can not be rolled back.")

    # ---- nested stacks: the same steps inside the parent's thread ----

    def create_nested(self, request: ResourceRequest) -> ResourceResult:
        """Create the stack of an AWS::CloudFormation::Stack resource and wait for it."""
        name = f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12].upper()}"
        options = replace(self.find(request.stack_id).options, tags=dict(request.tags))
        stack = self._register(name, self._nested_text(request), parameters_of(request), options, request.stack_id)
        self._create(stack)
        return self._nested_result(stack, "CREATE_COMPLETE", "created")

    def update_nested(self, request: ResourceRequest) -> ResourceResult:
        """Update a nested stack; nothing to do is no fault here."""
        stack = self.find(request.physical_id)
        text = self._nested_text(request)
        options = replace(stack.options, tags=dict(request.tags), disable_rollback=False)  # see _pause
        try:
            document, references = self._prepare_update(stack, text, parameters_of(request), options)
        except TemplateInvalid as error:
            if "No updates" not in str(error):
                raise ResourceFailed(str(error)) from None
        else:
            self._update(stack, text, document, parameters_of(request), references, options)
            return self._nested_result(stack, "UPDATE_COMPLETE", "updated")
        return self._nested_result(stack, stack.status, "updated")

    def delete_nested(self, physical_id: str) -> None:
        """Delete a nested stack and wait for it."""
        stack = self.find(physical_id)
        if stack.status == "DELETE_COMPLETE":
            return
        self._stack_event(stack, "DELETE_IN_PROGRESS")
        self._delete(stack)
        self._nested_result(stack, "DELETE_COMPLETE", "deleted")

    def _nested_text(self, request: ResourceRequest) -> str:
        try:
            return self._fetch(str(request.properties["TemplateURL"]))
        except KeyError:
            raise ResourceFailed("Property TemplateURL cannot be empty.") from None

    @staticmethod
    def _nested_result(stack: Stack, wanted: str, word: str) -> ResourceResult:
        if stack.status != wanted:
            reason = f"Embedded stack {stack.stack_id} was not successfully {word}: {stack.reason}"
            raise ResourceFailed(reason, stack.stack_id)
        outputs = {f"Outputs.{key}": output["OutputValue"] for key, output in stack.outputs.items()}
        return ResourceResult(stack.stack_id, outputs)

    # ---- beginnings ----

    def _register(
        self, name: str, text: str, given: Mapping[str, str], options: StackOptions, parent_id: str | None
    ) -> Stack:
        document = template.parse(text)
        template.check_references(document)
        template.creation_order(document["Resources"])
        parameters = template.resolve_parameters(document, given, self._read_ssm)
        stack_id = f"arn:{PARTITION}:cloudformation:{self.region}:{ACCOUNT}:stack/{name}/{uuid.uuid4()}"
        references = {**self._pseudo(name, stack_id), **parameters}
        stack = Stack(stack_id, name, text, document, dict(given), references, options, parent_id)
        with self._lock:
            if any(other.name == name and other.status != "DELETE_COMPLETE" for other in self._stacks.values()):
                raise StackAlreadyExists(f"Stack [{name}] already exists")
            self._stacks[stack_id] = stack
        self._stack_event(stack, "CREATE_IN_PROGRESS", "User Initiated" if parent_id is None else "")
        return stack

    def _pseudo(self, name: str, stack_id: str) -> dict[str, Any]:
        return {
            "AWS::AccountId": ACCOUNT,
            "AWS::Region": self.region,
            "AWS::StackId": stack_id,
            "AWS::StackName": name,
            "AWS::URLSuffix": URL_SUFFIX,
            "AWS::Partition": PARTITION,
            "AWS::NotificationARNs": [],
        }

    def _prepare_update(
        self, stack: Stack, text: str | None, given: Mapping[str, str], options: StackOptions
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Check an update request and mark the stack as being updated, in one step."""
        document = template.parse(text or stack.text)
        template.check_references(document)
        template.creation_order(document["Resources"])
        parameters = template.resolve_parameters(document, given, self._read_ssm)
        references = {**self._pseudo(stack.name, stack.stack_id), **parameters}
        with self._lock:
            paused = stack.status in PAUSED
            ready = stack.status.endswith("_COMPLETE") and stack.status not in ("ROLLBACK_COMPLETE", "DELETE_COMPLETE")
            if not ready and not paused:
                raise TemplateInvalid(f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated.")
            known = {key: value for key, value in stack.references.items() if not key.startswith("AWS::")}
            same = document == stack.document and parameters == {key: known[key] for key in parameters if key in known}
            if same and options.tags == stack.options.tags and not paused:
                raise TemplateInvalid("No updates are to be performed.")
            self._stack_event(stack, "UPDATE_IN_PROGRESS", "User Initiated" if stack.parent_id is None else "")
        return document, references

    def _in_background(self, work: Callable[..., None], stack: Stack, *arguments: Any) -> None:
        worker = threading.Thread(target=work, args=(stack, *arguments), name=f"stack-{work.__name__}", daemon=True)
        stack.worker = worker
        self._workers.append(worker)
        worker.start()
        if self._settle_s > 0:
            worker.join(self._settle_s)

    # ---- create and delete ----

    def _create(self, stack: Stack) -> None:
        failed = self._make_missing(stack, stack.document, self._resolver(stack, stack.document))
        if failed is None:
            failed = self._set_outputs(stack)
        with self._lock:
            if self._is_cancelled(stack):  # the deletion goes on with what was made
                return
            if failed is None:
                self._stack_event(stack, "CREATE_COMPLETE")
                return
            stack.reason = failed
            if stack.options.disable_rollback or stack.options.on_failure == "DO_NOTHING":
                self._stack_event(stack, "CREATE_FAILED", failed)
                return
            final = "DELETE" if stack.options.on_failure == "DELETE" else "ROLLBACK"
            self._stack_event(stack, f"{final}_IN_PROGRESS", f"{failed} Rollback requested by user.")
        self._roll_creation_back(stack, final, KEEP_ON_ROLLBACK)
        stack.reason = failed

    def _delete(self, stack: Stack, retain: Sequence[str] = (), running: threading.Thread | None = None) -> None:
        if running is not None:  # the resource that is being made, or a roll-back, ends before
            running.join()
            if stack.status != "DELETE_IN_PROGRESS":
                self._stack_event(stack, "DELETE_IN_PROGRESS", "User Initiated")
        for logical_id in set(retain) & set(stack.resources):
            stack.resources[logical_id].deletion_policy = "Retain"
        failed = self._remove(stack, list(stack.resources))
        if failed is None:
            stack.outputs, stack.imports = {}, set()
        self._stack_event(stack, "DELETE_COMPLETE" if failed is None else "DELETE_FAILED", failed or "")
