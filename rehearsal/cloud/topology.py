"""EC2's DescribeInstanceTopology, which moto has not.

Compared with the EC2 API reference of the operation (botocore 1.44.8, ec2/2016-11-15) and the EC2 user guide,
"Prerequisites for Amazon EC2 topology" (2026-11): types, number of network nodes, limits of a request. Order and sizes
are invented: sixteen instances of a zone share their lowest network node, four of these the one above.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response

from rehearsal.cloud_model import ACCOUNT

_MOST = 100  # ids and groups a request, instances a page
_PAGE = 20  # instances a page by default
_BELOW = (16, 4)  # instances below a lowest network node, lowest below the next
# Instance types that have a topology: pattern -> number of network nodes.
_LEVELS = {
    "g6e.*": 3, "g7e.*": 3, "hpc*": 3, "p3dn.24xlarge": 3, "p4d.24xlarge": 3, "p4de.24xlarge": 3, "p5.48xlarge": 3,
    "p5e.48xlarge": 3, "p5en.48xlarge": 3, "p6e-gb200.36xlarge": 3, "trn*": 3, "p6-b200.48xlarge": 4,
    "p6-b300.48xlarge": 4,
}  # fmt: skip
_FILTERS = {"availability-zone": "AvailabilityZone", "instance-type": "InstanceType", "zone-id": "ZoneId"}


def describe_instance_topology(self: EC2Response) -> ActionResult:
    """Describe where running instances are in the network, in pages."""
    ids, groups = self._get_param("InstanceIds", []), self._get_param("GroupNames", [])
    size = self._get_param("MaxResults")
    if ids and size is not None:
        raise EC2ClientError(
            "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults"
        )
    if max(len(ids), len(groups), int(size or 1)) > _MOST:
        raise EC2ClientError("InvalidParameterValue", f"At most {_MOST} instance IDs, group names or results")
    known = {instance.id: instance for instance in ec2_backends[ACCOUNT][self.region].all_instances()}
    filters = self._filters_from_querystring()
    unknown = filters.keys() - _FILTERS.keys()
    if unknown:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{min(unknown)}' is invalid")
    missing = [one for one in ids if one not in known]
    if missing:
        raise InvalidInstanceIdError(missing)
    places = _places(self.region)
    shapes = [_shape(known[one], places.setdefault(one, len(places))) for one in ids or known]
    shapes = [shape for shape in shapes if _matches(shape, filters, groups)]
    start, step = int(self._get_param("NextToken") or 0), int(size or _PAGE)
    more = {"NextToken": str(start + step)} if start + step < len(shapes) else {}
    return ActionResult({"Instances": shapes[start : start + step], **more})


def _places(region: str) -> dict[str, int]:
    """The number of each instance in the order of the first question; kept on moto's backend, as its instances are."""
    places: dict[str, int] = ec2_backends[ACCOUNT][region].__dict__.setdefault("rehearsal_places", {})
    return places


def _matches(shape: Mapping[str, Any], filters: Mapping[str, list[str]], groups: list[str]) -> bool:
    chosen = ((str(shape[_FILTERS[name]]), values) for name, values in filters.items())
    named = not groups or shape["GroupName"] in groups
    return named and all(any(fnmatch.fnmatchcase(value, form) for form in forms) for value, forms in chosen)


def _shape(instance: Any, number: int) -> dict[str, Any]:
    zone = instance.availability_zone
    zones = instance.ec2_backend.describe_availability_zones()
    shape = {
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "GroupName": instance.placement.group_name,
        "AvailabilityZone": zone,
        "ZoneId": next((known.zone_id for known in zones if known.name == zone), ""),
    }
    levels = next((count for kind, count in _LEVELS.items() if fnmatch.fnmatchcase(instance.instance_type, kind)), 0)
    if levels and instance.state == "running":
        lowest = number // _BELOW[0]
        numbers = [*[0] * (levels - 2), lowest // _BELOW[1], lowest]
        shape["NetworkNodes"] = [_network_node(f"{zone}/{level}/{one}") for level, one in enumerate(numbers)]
    return shape


def _network_node(place: str) -> str:
    """EC2 hashes the names for each account."""
    return f"nn-{hashlib.sha256(f'{ACCOUNT}/{place}'.encode()).hexdigest()[:17]}"
