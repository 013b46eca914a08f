"""Capacity reservations, capacity blocks and placement groups: EC2 APIs that moto has not.

A reservation is what AWS sold before our deployment, so seed.py makes it; CloudFormation's types are here too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response
from moto.ec2.responses.instances import InstanceResponse

from rehearsal.cloud.clients import Clients
from rehearsal.cloud.network import ApiType
from rehearsal.cloud.topology import describe_instance_topology
from rehearsal.cloud_model import ACCOUNT, PARTITION, ResourceRequest, ResourceResult, ResourceType

NOT_STARTED = ("scheduled", "payment-pending")


def _unknown_reservation(reservation_id: str) -> Exception:
    message = f"The capacity reservation '{reservation_id}' does not exist"
    error: Exception = EC2ClientError("InvalidCapacityReservationId.NotFound", message)
    return error


def _unknown_group(name: str) -> Exception:
    error: Exception = EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return error


def store(region: str, name: str) -> dict[str, dict[str, Any]]:
    """A dictionary kept on moto's EC2 backend, so that it vanishes with it on a reset."""
    kept: dict[str, dict[str, Any]] = ec2_backends[ACCOUNT][region].__dict__.setdefault(f"rehearsal_{name}", {})
    return kept


def add_reservation(
    region: str, reservation_id: str, instance_type: str, count: int, zone: str, kind: str, **more: Any
) -> dict[str, Any]:
    """Make a reservation. `kind` is "capacity-block" or "on-demand"; it is active and has all its instances free.

    `more` are members of EC2's CapacityReservation that shall be otherwise: State, StartDate, EndDate, OwnerId,
    InstancePlatform, Tenancy, InstanceMatchCriteria, PlacementGroupArn, AvailableInstanceCount ...
    """
    block = kind == "capacity-block"
    start = datetime.now(UTC).replace(microsecond=0)
    shape: dict[str, Any] = {
        "CapacityReservationId": reservation_id,
        "OwnerId": ACCOUNT,
        "CapacityReservationArn": f"arn:{PARTITION}:ec2:{region}:{ACCOUNT}:capacity-reservation/{reservation_id}",
        "InstanceType": instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": zone,
        "AvailabilityZoneId": _zone_id(region, zone),
        "Tenancy": "default",
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count,
        "EbsOptimized": True,
        "EphemeralStorage": False,
        "State": "active",
        "StartDate": start,
        "EndDateType": "limited" if block else "unlimited",
        "InstanceMatchCriteria": "targeted",
        "CreateDate": start,
        "ReservationType": "capacity-block" if block else "default",
        "Tags": [],
    }
    if block:
        shape["EndDate"] = start + timedelta(days=14)
    if more.get("State") in NOT_STARTED:  # EC2 reports the future number in a tag
        tag = {"Key": "aws:ec2capacityreservation:incrementalRequestedQuantity", "Value": str(count)}
        shape |= {"TotalInstanceCount": 0, "Tags": [tag]}
    if more.get("State", "active") != "active":
        shape["AvailableInstanceCount"] = 0
    shape |= more
    store(region, "reservations")[reservation_id] = shape
    return shape


def _zone_id(region: str, zone: str) -> str:
    for known in ec2_backends[ACCOUNT][region].describe_availability_zones():
        if known.name == zone:
            return str(known.zone_id)
    return ""


# filter of DescribeCapacityReservations -> member of the reservation
_FILTERS = {
    "instance-type": "InstanceType",
    "owner-id": "OwnerId",
    "instance-platform": "InstancePlatform",
    "availability-zone": "AvailabilityZone",
    "tenancy": "Tenancy",
    "state": "State",
    "end-date-type": "EndDateType",
    "instance-match-criteria": "InstanceMatchCriteria",
    "placement-group-arn": "PlacementGroupArn",
}


def _describe_reservations(self: EC2Response) -> ActionResult:
    known = store(self.region, "reservations")
    wanted = self._get_param("CapacityReservationIds", [])
    for reservation_id in wanted:
        if reservation_id not in known:
            raise _unknown_reservation(reservation_id)
    filters = {_filter_member(name): values for name, values in self._filters_from_querystring().items()}
    chosen = [known[key] for key in wanted or known]
    matching = [item for item in chosen if all(item.get(member) in values for member, values in filters.items())]
    return ActionResult({"CapacityReservations": [_with_available(self.region, item) for item in matching]})


def _filter_member(name: str) -> str:
    if name not in _FILTERS:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return _FILTERS[name]


def _with_available(region: str, item: dict[str, Any]) -> dict[str, Any]:
    """What runs in the reservation is not free."""
    taken = sum(
        instance.state == "running"
        and getattr(instance, "capacity_reservation_id", "") == item["CapacityReservationId"]
        for instance in ec2_backends[ACCOUNT][region].all_instances()
    )
    return {**item, "AvailableInstanceCount": max(0, item["AvailableInstanceCount"] - taken)}


def _describe_block_status(_: EC2Response) -> ActionResult:
    return ActionResult({"CapacityBlockStatuses": []})


_run_instances = InstanceResponse.run_instances


def _run_in_reservation(self: InstanceResponse) -> ActionResult:
    """RunInstances that remembers what moto forgets: the reservation, and that a block is a life cycle of its own."""
    target = self._get_param("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    reservation_id = target.get("CapacityReservationId")
    market = self._get_param("InstanceMarketOptions", {}).get("MarketType")
    if reservation_id and reservation_id not in store(self.region, "reservations"):
        raise _unknown_reservation(reservation_id)
    result: ActionResult = _run_instances(self)
    for instance in result.result.instances:
        if reservation_id:
            instance.capacity_reservation_id = reservation_id
        if market:
            instance.instance_lifecycle = market
    return result


def _create_reservation(self: EC2Response) -> ActionResult:
    shape = add_reservation(
        self.region,
        f"cr-{uuid.uuid4().hex[:17]}",
        self._get_param("InstanceType"),
        int(self._get_param("InstanceCount")),
        self._get_param("AvailabilityZone"),
        "on-demand",
    )
    return ActionResult({"CapacityReservation": shape})


def _cancel_reservation(self: EC2Response) -> ActionResult:
    known = store(self.region, "reservations")
    reservation_id = self._get_param("CapacityReservationId")
    if reservation_id not in known:
        raise _unknown_reservation(reservation_id)
    known[reservation_id]["State"] = "cancelled"
    return ActionResult({"Return": True})


def _create_group(self: EC2Response) -> ActionResult:
    name = self._get_param("GroupName")
    shape = {
        "GroupName": name,
        "GroupId": f"pg-{uuid.uuid4().hex[:17]}",
        "State": "available",
        "Strategy": self._get_param("Strategy") or "cluster",
        "GroupArn": f"arn:{PARTITION}:ec2:{self.region}:{ACCOUNT}:placement-group/{name}",
    }
    store(self.region, "placement_groups")[name] = shape
    return ActionResult({"PlacementGroup": shape})


def _describe_groups(self: EC2Response) -> ActionResult:
    known = store(self.region, "placement_groups")
    wanted = self._get_param("GroupNames", [])
    for name in wanted:
        if name not in known:
            raise _unknown_group(name)
    return ActionResult({"PlacementGroups": [known[key] for key in wanted or known]})


def _delete_group(self: EC2Response) -> ActionResult:
    name = self._get_param("GroupName")
    if store(self.region, "placement_groups").pop(name, None) is None:
        raise _unknown_group(name)
    return ActionResult({})


def install_capacity() -> None:
    """Add the actions to moto's EC2 endpoint."""
    actions = {
        "describe_capacity_reservations": _describe_reservations,
        "describe_capacity_block_status": _describe_block_status,
        "describe_instance_topology": describe_instance_topology,
        "create_capacity_reservation": _create_reservation,
        "cancel_capacity_reservation": _cancel_reservation,
        "create_placement_group": _create_group,
        "describe_placement_groups": _describe_groups,
        "delete_placement_group": _delete_group,
    }
    for name, action in actions.items():
        setattr(EC2Response, name, action)
    InstanceResponse.run_instances = _run_in_reservation


def _placement_group(ec2: Any, request: ResourceRequest) -> ResourceResult:
    name = f"{request.stack_name}-{request.logical_id}-{uuid.uuid4().hex[:12]}"
    ec2.create_placement_group(GroupName=name, Strategy=request.properties.get("Strategy", "cluster"))
    return ResourceResult(name, {"GroupName": name})


def _reservation(ec2: Any, request: ResourceRequest) -> ResourceResult:
    properties: Mapping[str, Any] = request.properties
    made = ec2.create_capacity_reservation(
        InstanceType=properties["InstanceType"],
        InstancePlatform=properties["InstancePlatform"],
        AvailabilityZone=properties["AvailabilityZone"],
        InstanceCount=int(properties["InstanceCount"]),
    )["CapacityReservation"]
    attributes = {
        "Id": made["CapacityReservationId"],
        "AvailabilityZone": made["AvailabilityZone"],
        "InstanceType": made["InstanceType"],
        "TotalInstanceCount": made["TotalInstanceCount"],
        "AvailableInstanceCount": made["AvailableInstanceCount"],
        "Tenancy": "default",
    }
    return ResourceResult(made["CapacityReservationId"], attributes)


def capacity_types(clients: Clients) -> dict[str, ResourceType]:
    """The types of this module by name."""
    return {
        "AWS::EC2::PlacementGroup": ApiType(
            clients, "ec2", _placement_group, lambda c, _, i: c.delete_placement_group(GroupName=i)
        ),
        "AWS::EC2::CapacityReservation": ApiType(
            clients, "ec2", _reservation, lambda c, _, i: c.cancel_capacity_reservation(CapacityReservationId=i)
        ),
    }
