"""What is changed in moto from outside, and why. No fork: each change is one assignment in this module or in one it
calls.

| change | reason |
|---|---|
| CloudFormation actions (stack_api.py) | moto works while the request waits and turns failures green |
| FSx (storage.py) | ids of 17 characters, life cycle, mount name, associations, rules |
| EC2 capacity reservations, block offerings, placement groups (capacity.py) | missing |
| EC2 topology of instances (topology.py) | missing |
| RunInstances keeps the reservation it was aimed at (capacity.py) | moto forgets it |
| Systems Manager commands (ssm.py) | moto runs nothing |
| Lambda invocation (functions.py) | moto needs Docker |
| CloudTrail's LookupEvents answers that there are none | the CDK CLI asks when a resource failed; moto raises |
| AMP workspace address | moto's names a host that is not there |
| patterns of FilterLogEvents with several terms (`?"a" ?"b"`) | moto returns every event |
| bucket policies are stored, not evaluated | moto ignores conditions: "deny unless TLS" would deny everything |
| block devices without Ebs are skipped in RunInstances | pcluster sends a type's NVMe disks; moto raises |
| a route to a NAT gateway that was deleted is a black hole | moto calls every route active |
| deletions of groups, subnets and VPCs that are in use are refused (network.py) | moto deletes them |
| FSx volumes and file caches (volumes.py) | missing |
| AWS's managed policies are read once, for one partition | moto reads them again for each of six, at each reset |
| AWS's public parameters are made once | moto makes the 50,000 of services and regions again after each reset |
| an Ebs device without size gets the image's in RunInstances | AWS takes it from the image's snapshot; moto raises |
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

from moto.amp.models import Workspace
from moto.cloudtrail.responses import CloudTrailResponse
from moto.ec2.models.route_tables import Route
from moto.ec2.responses.instances import InstanceResponse
from moto.iam.access_control import PermissionResult
from moto.iam.models import IAMBackend
from moto.logs.utils import EventMessageFilter
from moto.s3.models import FakeBucket
from moto.ssm.models import ParameterDict

from rehearsal.cloud.capacity import install_capacity
from rehearsal.cloud.network import install_network
from rehearsal.cloud.storage import install_fsx
from rehearsal.cloud.volumes import install_volumes
from rehearsal.cloud_model import PARTITION

_OPTIONAL_TERM = re.compile(r'\?"([^"]*)"')
_matches_in_moto = EventMessageFilter.matches
_parse_devices = InstanceResponse._parse_block_device_mapping
_to_dict = Workspace.to_dict
_read_policies = IAMBackend._init_aws_policies
_load_parameters = ParameterDict._load_tree_parameters
_IMAGE_SIZE_GIB = 45  # of a ParallelCluster image


def _matches(self: EventMessageFilter, message: str) -> bool:
    """Optional terms as in CloudWatch's user guide: an event matches if it contains one of them, as written."""
    terms = _OPTIONAL_TERM.findall(self.filter_type.term)
    return any(term in message for term in terms) if terms else _matches_in_moto(self, message)


def _neutral(_: FakeBucket, _action: str, _resource: str) -> PermissionResult:
    return PermissionResult.NEUTRAL


def _route_state(self: Route) -> str:
    is_gone = self.nat_gateway is not None and self.nat_gateway.state == "deleted"
    return "blackhole" if is_gone else "active"


@functools.lru_cache(maxsize=1)
def _policies_of_aws(account: str) -> list[Any]:
    backend = IAMBackend.__new__(IAMBackend)
    backend.account_id, backend.region_name = account, PARTITION
    policies: list[Any] = _read_policies(backend)
    return policies


def _fresh_policies(self: IAMBackend) -> list[Any]:
    """The same objects for each new account, attached to nothing: there are 1600 of them."""
    if self.region_name != PARTITION:
        return []
    policies = _policies_of_aws(self.account_id)
    for policy in policies:
        policy.attachment_count = 0
    return policies


@functools.cache
def _parameters_of_aws(account: str, region: str, path: str) -> ParameterDict:
    parameters = ParameterDict(account, region)
    _load_parameters(parameters, path)
    return parameters


def _load_same_parameters(self: ParameterDict, path: str) -> None:
    self.update(_parameters_of_aws(self.account_id, self.region_name, path))


def _sized(item: dict[str, Any]) -> dict[str, Any]:
    ebs = item.get("Ebs")
    if not ebs or "VolumeSize" in ebs or "SnapshotId" in ebs:
        return item
    return {**item, "Ebs": {**ebs, "VolumeSize": _IMAGE_SIZE_GIB}}


def _devices_with_ebs(self: InstanceResponse) -> list[dict[str, Any]]:
    original = self._get_param

    def get_param(name: str, *arguments: Any, **keywords: Any) -> Any:
        value = original(name, *arguments, **keywords)
        if name != "BlockDeviceMappings":
            return value
        return [_sized(item) for item in value if "Ebs" in item or not item.get("VirtualName")]

    self._get_param = get_param
    try:
        devices: list[dict[str, Any]] = _parse_devices(self)
        return devices
    finally:
        del self._get_param


def install(metrics_address: Callable[[], str]) -> None:
    """Apply all changes. `metrics_address`: scheme, host, port of AMP's stand-in."""

    def workspace_shape(self: Workspace) -> dict[str, Any]:
        address = f"{metrics_address()}/workspaces/{self.workspace_id}/"
        return {**_to_dict(self), "prometheusEndpoint": address}

    Workspace.to_dict = workspace_shape
    CloudTrailResponse.lookup_events = lambda _: json.dumps({"Events": []})
    FakeBucket.get_permission = _neutral
    EventMessageFilter.matches = _matches
    Route.state = property(_route_state)
    IAMBackend._init_aws_policies = _fresh_policies
    ParameterDict._load_tree_parameters = _load_same_parameters
    InstanceResponse._parse_block_device_mapping = _devices_with_ebs
    install_network()
    install_fsx()
    install_capacity()
    install_volumes()
