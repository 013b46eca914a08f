"""CloudFormation's behaviour over time: stacks that are created, updated, rolled back and deleted in the background.

Why not moto's own: it works through a template while the request waits, reports CREATE_COMPLETE for a stack in which
a resource raised, has no rollback, no events per resource, and leaves out types that it does not know. Each of those
turns a broken deployment green. Here a request answers at once, one worker thread a stack operation does the work,
and whatever goes wrong is a CREATE_FAILED with its reason and a rollback. Resources of one stack are made one after
the other, in the worst order that the real service, which makes independent ones side by side, can come to.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rehearsal.cloud import template
from rehearsal.cloud.errors import ResourceFailed, StackAlreadyExists, StackNotFound, TemplateInvalid
from rehearsal.cloud.model import (
    ACCOUNT,
    PARTITION,
    STACK_TYPE,
    URL_SUFFIX,
    CloudEvent,
    Resource,
    ResourceRequest,
    ResourceResult,
    ResourceType,
)
from rehearsal.cloud.stack import Change, Rollback, Stack, StackOptions, new_resource, output_text, parameters_of

log = logging.getLogger("rehearsal.cloud")

_KEEP = ("Retain", "RetainExceptOnCreate")
_KEEP_ON_ROLLBACK = ("Retain",)
PAUSED = ("CREATE_FAILED", "UPDATE_FAILED")  # of a stack: an operation without a roll-back failed
NEVER_MADE = "CREATE_FAILED"  # of a resource: the next operation deletes it
CANCELLED = "Resource creation cancelled"


class StackEngine:
    """All stacks of one region. Safe to call from several threads.

    `catalog` finds the ResourceType of a type name (None: not emulated); `read_ssm` looks a parameter of Systems
    Manager up; `fetch` reads a template by URL; `listener` receives every event; `seed`: see template.worst_order. A
    request is answered when its work is done, at the latest after `settle_s` seconds: the CDK CLI looks only every 5 s,
    and small stacks are done long before. Within `acting_for(stack)` a thread's calls are made with the stack's
    credentials.
    """

    def __init__(
        self,
        region: str,
        catalog: Callable[[str], ResourceType | None],
        read_ssm: Callable[[str], str],
        fetch: Callable[[str], str],
        listener: Callable[[CloudEvent], None],
        settle_s: float = 0.0,
        acting_for: Callable[[Stack], AbstractContextManager[None]] = lambda _: nullcontext(),
        seed: str = "",
    ) -> None:
        self.region = region
        self._acting_for = acting_for
        self._seed = seed
        self._settle_s = settle_s
        self._catalog = catalog
        self._read_ssm = read_ssm
        self._fetch = fetch
        self._listener = listener
        self._lock = threading.RLock()
        self._stacks: dict[str, Stack] = {}
        self._workers: list[threading.Thread] = []

    # ---- questions ----

    def stacks(self) -> list[Stack]:
        """Every stack, deleted ones too."""
        with self._lock:
            return list(self._stacks.values())

    def find(self, name_or_id: str) -> Stack:
        """A stack by id, or a living one by name."""
        with self._lock:
            if name_or_id in self._stacks:
                return self._stacks[name_or_id]
            for stack in self._stacks.values():
                if stack.name == name_or_id and stack.status != "DELETE_COMPLETE":
                    return stack
        raise StackNotFound(f"Stack with id {name_or_id} does not exist")

    def exports(self) -> dict[str, tuple[str, str]]:
        """Export name -> (value, stack id)."""
        with self._lock:
            living = [stack for stack in self._stacks.values() if stack.status != "DELETE_COMPLETE"]
        return {
            output["ExportName"]: (output["OutputValue"], stack.stack_id)
            for stack in living
            for output in stack.outputs.values()
            if "ExportName" in output
        }

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
        self._in_background(self._roll_back, stack, rollback, _KEEP_ON_ROLLBACK)

    def rollback(self, name: str, retain_except_on_create: bool = False) -> Stack:
        """RollbackStack: take back what an operation without a roll-back (DisableRollback) left when it failed.

        As its API reference says: only in CREATE_FAILED and UPDATE_FAILED; back to the last *_COMPLETE, or, where there
        was none, by deleting what was made; `retain_except_on_create` deletes new resources whose policy is Retain too.
        """
        stack = self.find(name)
        keep = () if retain_except_on_create else _KEEP_ON_ROLLBACK
        with self._lock:
            self._refuse_to_roll_back(stack, PAUSED)
            self._stack_event(stack, f"{_verb(stack)}ROLLBACK_IN_PROGRESS", "User Initiated")
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

    # ---- create ----

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
        self._roll_creation_back(stack, final, _KEEP_ON_ROLLBACK)
        stack.reason = failed

    def _is_cancelled(self, stack: Stack) -> bool:
        """Whether the stack, or one that it is nested in, is being deleted."""
        while stack.status != "DELETE_IN_PROGRESS" and stack.parent_id is not None:
            stack = self.find(stack.parent_id)
        return stack.status == "DELETE_IN_PROGRESS"

    def _roll_creation_back(self, stack: Stack, final: str, keep: tuple[str, ...]) -> None:
        undone = self._remove(stack, list(stack.resources), keep=keep)
        self._stack_event(stack, f"{final}_COMPLETE" if undone is None else f"{final}_FAILED", undone or "")

    def _make_missing(self, stack: Stack, document: Mapping[str, Any], resolver: template.Resolver) -> str | None:
        """Create in order what does not exist yet; the reason of the first failure, None when all is well."""
        bodies = document["Resources"]
        for logical_id in template.creation_order(bodies, self._seed):
            body = bodies[logical_id]
            if logical_id in stack.resources or not self._wanted(body, resolver):
                continue
            if self._is_cancelled(stack):
                return CANCELLED
            resource = new_resource(logical_id, body)
            resource.needs = template.dependencies(body, stack.resources)
            stack.resources[logical_id] = resource
            if not self._attempt(stack, resource, "CREATE", partial(self._build, stack, resource, body, resolver)):
                return f"The following resource(s) failed to create: [{logical_id}]."
        return None

    def _build(self, stack: Stack, resource: Resource, body: Mapping[str, Any], resolver: template.Resolver) -> None:
        resource.properties = resolver.resolve(body.get("Properties", {})) or {}
        kind = self._kind(resource.resource_type)
        try:
            resource.result = kind.create(self._request(stack, resource, "Create"))
        except ResourceFailed as error:
            resource.result = ResourceResult(error.physical_id)
            raise
        stack.references[resource.logical_id] = resource.result.physical_id

    @staticmethod
    def _wanted(body: Mapping[str, Any], resolver: template.Resolver) -> bool:
        return "Condition" not in body or resolver.condition(str(body["Condition"]))

    def _attempt(self, stack: Stack, resource: Resource, verb: str, work: Callable[[], None]) -> bool:
        """Run one step of one resource between its events; False when it failed."""
        self._resource_event(stack, resource, f"{verb}_IN_PROGRESS")
        try:
            with self._acting_for(stack):
                work()
        except (ResourceFailed, TemplateInvalid) as error:
            reason = str(error)
        except Exception as error:
            log.exception("%s of %s (%s) raised", verb, resource.logical_id, resource.resource_type)
            reason = f"Internal failure of the embedded AWS: {type(error).__name__}: {error}"
        else:
            reason = CANCELLED if verb == "CREATE" and self._is_cancelled(stack) else ""
        self._resource_event(stack, resource, f"{verb}_FAILED" if reason else f"{verb}_COMPLETE", reason)
        return not reason

    def _set_outputs(self, stack: Stack) -> str | None:
        """Resolve outputs and exports; a reason when that cannot be done."""
        try:
            outputs = self._outputs(stack)
        except (ResourceFailed, TemplateInvalid) as error:
            return str(error)
        others = {name: owner for name, (_, owner) in self.exports().items() if owner != stack.stack_id}
        for output in outputs.values():
            taken = others.get(output.get("ExportName", ""))
            if taken:
                return f"Export with name {output['ExportName']} is already exported by stack {taken.split('/')[1]}."
        used = self._exports_in_use(stack, outputs)
        if used:
            return used
        stack.outputs = outputs
        return None

    def _outputs(self, stack: Stack) -> dict[str, dict[str, str]]:
        resolver = self._resolver(stack, stack.document)
        outputs: dict[str, dict[str, str]] = {}
        for key, body in stack.document.get("Outputs", {}).items():
            if not self._wanted(body, resolver):
                continue
            output = {"OutputKey": key, "OutputValue": output_text(resolver.resolve(body["Value"]))}
            if "Description" in body:
                output["Description"] = str(body["Description"])
            if "Export" in body:
                output["ExportName"] = str(resolver.resolve(body["Export"]["Name"]))
            outputs[key] = output
        return outputs

    # ---- update ----

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
        self._stack_event(stack, f"{_verb(stack)}ROLLBACK_IN_PROGRESS", rollback.reason)
        if stack.rollback is not None:
            self._roll_back(stack, rollback, _KEEP_ON_ROLLBACK)
        else:
            self._roll_creation_back(stack, "ROLLBACK", _KEEP_ON_ROLLBACK)

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
            raise_reason = f"Update of resource type is not permitted: {resource.logical_id}"
            self._resource_event(stack, resource, "UPDATE_FAILED", raise_reason)
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
            if result.physical_id != resource.result.physical_id and resource.replace_policy not in _KEEP:
                ghost = replace(resource, properties=old, result=result)
                self._attempt(stack, ghost, "DELETE", partial(self._destroy, stack, ghost))

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

    # ---- delete ----

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

    def _remove(self, stack: Stack, logical_ids: list[str], keep: tuple[str, ...] = _KEEP) -> str | None:
        """Delete resources, each before those that it needs, except those with a policy of `keep`.

        Returns the reason when some could not be deleted. CloudFormation does not try to delete what these need.
        """
        failed: list[str] = []
        blocked: set[str] = set()
        needs = {name: stack.resources[name].needs & set(logical_ids) for name in logical_ids}
        types = {name: stack.resources[name].resource_type for name in logical_ids}
        for logical_id in reversed(template.worst_order(needs, types, self._seed)):
            resource = stack.resources[logical_id]
            if logical_id in blocked:
                blocked |= resource.needs
                continue
            if resource.deletion_policy in keep and resource.result.physical_id:
                self._resource_event(stack, resource, "DELETE_SKIPPED")
                stack.skipped.append(resource)
            elif not resource.result.physical_id:
                self._resource_event(stack, resource, "DELETE_COMPLETE")
            elif not self._attempt(stack, resource, "DELETE", partial(self._destroy, stack, resource)):
                failed.append(logical_id)
                blocked |= resource.needs
                continue
            del stack.resources[logical_id]
            stack.references.pop(logical_id, None)
        return f"The following resource(s) failed to delete: [{', '.join(failed)}]." if failed else None

    def _destroy(self, stack: Stack, resource: Resource) -> None:
        kind = self._kind(resource.resource_type)
        kind.delete(self._request(stack, resource, "Delete"), resource.result)

    def _exports_in_use(self, stack: Stack, outputs: Mapping[str, Mapping[str, str]]) -> str:
        """The refusal to replace the outputs of a stack by `outputs`; empty if no other stack imports what changes."""
        before, after = (
            {output["ExportName"]: output["OutputValue"] for output in some.values() if "ExportName" in output}
            for some in (stack.outputs, outputs)
        )
        with self._lock:
            others = [other for other in self._stacks.values() if other.status != "DELETE_COMPLETE"]
        for name in sorted(before):
            users = sorted(other.name for other in others if name in other.imports and other is not stack)
            if users and before[name] != after.get(name):
                verb = "updated" if name in after else "deleted"
                return f"Export {name} cannot be {verb} as it is in use by {' and '.join(users)}"
        return ""

    # ---- helpers ----

    def _kind(self, resource_type: str) -> ResourceType:
        kind = self._catalog(resource_type)
        if kind is None:
            raise ResourceFailed(
                f"Resource type {resource_type} is not emulated by the rehearsal's cloud (rehearsal/cloud/catalog.py);"
                " nothing was created for it"
            )
        return kind

    def _request(
        self, stack: Stack, resource: Resource, request_type: str, properties: dict[str, Any] | None = None
    ) -> ResourceRequest:
        return ResourceRequest(
            request_type=request_type,
            stack_id=stack.stack_id,
            stack_name=stack.name,
            logical_id=resource.logical_id,
            resource_type=resource.resource_type,
            region=self.region,
            properties=resource.properties if properties is None else properties,
            old_properties=resource.properties if request_type == "Update" else {},
            physical_id=resource.result.physical_id,
            tags=stack.options.tags,
            metadata=resource.metadata,
        )

    def _resolver(self, stack: Stack, document: Mapping[str, Any]) -> template.Resolver:
        def attribute(logical_id: str, name: str) -> Any:
            resource = stack.resources.get(logical_id)
            if resource is None:
                raise ResourceFailed(f"Template error: Fn::GetAtt {logical_id}.{name} names nothing that exists")
            try:
                return resource.result.attributes[name]
            except KeyError:
                raise ResourceFailed(
                    f"Fn::GetAtt: {logical_id} ({resource.resource_type}) has no attribute {name}"
                    " in the rehearsal's cloud"
                ) from None

        def imported(name: str) -> Any:
            exports = self.exports()
            if name not in exports:
                raise ResourceFailed(f"No export named {name} found.")
            stack.imports.add(name)
            return exports[name][0]

        return template.Resolver(document, stack.references, attribute, imported, self._stack_output, self._zones)

    def _stack_output(self, stack: str, output: str) -> str:
        """Fn::GetStackOutput: read when the using stack is created or updated; it keeps nothing from being deleted."""
        outputs = self.find(stack).outputs
        if output not in outputs:
            raise ResourceFailed(f"Output {output} does not exist in stack {stack}")
        return outputs[output]["OutputValue"]

    def _zones(self, region: str) -> list[str]:
        return [f"{region or self.region}{letter}" for letter in "abc"]

    def _stack_event(self, stack: Stack, status: str, reason: str = "") -> None:
        stack.status, stack.reason = status, reason
        stack.stable = stack.stable or status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        if status == "DELETE_COMPLETE":
            stack.deleted = datetime.now(UTC)
        self._emit(stack, stack.name, STACK_TYPE, stack.stack_id, status, reason)

    def _resource_event(self, stack: Stack, resource: Resource, status: str, reason: str = "") -> None:
        resource.status, resource.reason, resource.updated = status, reason, datetime.now(UTC)
        self._emit(stack, resource.logical_id, resource.resource_type, resource.result.physical_id, status, reason)

    def _emit(
        self, stack: Stack, logical_id: str, resource_type: str, physical_id: str, status: str, reason: str
    ) -> None:
        event = CloudEvent(
            time=datetime.now(UTC),
            stack=stack.name,
            logical_id=logical_id,
            resource_type=resource_type,
            status=status,
            reason=reason,
            stack_id=stack.stack_id,
            physical_id=physical_id,
            event_id=str(uuid.uuid4()),
        )
        stack.events.append(event)
        log.info("%s %s %s %s %s", stack.name, logical_id, resource_type, status, reason)
        try:
            self._listener(event)
        except Exception:
            log.exception("the listener of cloud events raised")


def _verb(stack: Stack) -> str:
    """What a roll-back is called: of the update, or, of a stack that was never whole, of its creation."""
    return "UPDATE_" if stack.stable else ""
