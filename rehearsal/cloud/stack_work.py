"""The steps of a stack's operations: resources made and deleted, each between its events; outputs; references."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rehearsal.cloud import template
from rehearsal.cloud.stack import Stack, new_resource, output_text
from rehearsal.cloud_errors import ResourceFailed, StackNotFound, TemplateInvalid
from rehearsal.cloud_model import (
    STACK_TYPE,
    CloudEvent,
    Resource,
    ResourceRequest,
    ResourceResult,
    ResourceType,
)

log = logging.getLogger("rehearsal.cloud")

KEEP = ("Retain", "RetainExceptOnCreate")
CANCELLED = "Resource creation cancelled"


class StackWork:
    """All stacks of one region, and the steps that their operations are made of. Safe to call from several threads.

    `catalog` finds the ResourceType of a type name (None: not emulated); `read_ssm` looks a parameter of Systems
    Manager up; `fetch` reads a template by URL; `listener` receives every event; `seed`: see template.worst_order.
    Within `acting_for(stack)` a thread's calls are made with the stack's credentials.
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

    def _is_cancelled(self, stack: Stack) -> bool:
        """Whether the stack, or one that it is nested in, is being deleted."""
        while stack.status != "DELETE_IN_PROGRESS" and stack.parent_id is not None:
            stack = self.find(stack.parent_id)
        return stack.status == "DELETE_IN_PROGRESS"

    # ---- make ----

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

    # ---- delete ----

    def _remove(self, stack: Stack, logical_ids: list[str], keep: tuple[str, ...] = KEEP) -> str | None:
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
