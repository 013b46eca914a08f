"""What ParallelCluster's provider does with a cluster's name: one stack a cluster, made and deleted by the name alone.

A Create for a name that is taken fails. The provider's framework gives every failed Create a physical id, so
CloudFormation sends Delete for it, and Delete removes the cluster of that name, also one that it did not make.

Source: aws-parallelcluster, cloudformation/custom_resource/cluster.yaml (3.13.1), create_or_update() and delete();
pcluster/models/cluster.py of 3.16.1, create(); crhelper's resource_helper.py.
"""

from __future__ import annotations

import time
import uuid

from rehearsal.cloud.stack import StackOptions
from rehearsal.cloud.stack_engine import StackEngine
from rehearsal.cloud_errors import ResourceFailed, StackNotFound
from rehearsal.cloud_model import ResourceRequest

_TEMPLATE = '{"Resources": {"HeadNode": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}}'
_DELETE_TIMEOUT_S = 60.0


class ClusterStacks:
    """The stacks of ParallelCluster's clusters in one region."""

    def __init__(self, engine: StackEngine) -> None:
        self._engine = engine

    def create(self, name: str, tags: dict[str, str]) -> None:
        """Make the stack of a cluster; raises ResourceFailed if the name is taken."""
        self.refuse_taken(name)
        options = StackOptions(tags={"parallelcluster:cluster-name": name, **tags})
        self._engine.create(name, _TEMPLATE, {}, options)
        self._wait(name, "CREATE_COMPLETE")

    def refuse_taken(self, name: str) -> None:
        """Raise ResourceFailed if a stack of that name exists."""
        try:
            self._engine.find(name)
        except StackNotFound:
            return
        raise ResourceFailed(f"Bad Request: Cluster {name} already exists")

    def delete(self, name: str) -> None:
        """Delete the stack of that name if it exists."""
        try:
            stack = self._engine.find(name)
        except StackNotFound:
            return
        self._engine.delete(name)
        self._wait(stack.stack_id, "DELETE_COMPLETE")

    def _wait(self, name: str, status: str) -> None:
        deadline = time.monotonic() + _DELETE_TIMEOUT_S
        while (now := self._engine.find(name).status) != status:
            if time.monotonic() > deadline:
                raise ResourceFailed(f"stack {name} is {now}, not {status}")
            time.sleep(0.01)


def physical_id_of_failure(request: ResourceRequest) -> str:
    """Return the physical id that a failed Create gets, so that CloudFormation sends Delete for it."""
    return request.physical_id or f"{request.stack_name}_{request.logical_id}_{uuid.uuid4().hex[:8].upper()}"
