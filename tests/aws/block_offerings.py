"""EC2's offers of capacity blocks (DescribeCapacityBlockOfferings), which moto lacks."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response

from rehearsal.cloud.capacity import store


def add_block_offering(region: str, instance_type: str, count: int, zone: str, hours: int, **more: Any) -> None:
    """Put a capacity block on offer; `more` are members of EC2's CapacityBlockOffering that shall be otherwise."""
    start = datetime.now(UTC).replace(minute=30, second=0, microsecond=0) + timedelta(days=1)
    offering_id = f"cb-{uuid.uuid4().hex[:17]}"
    store(region, "block_offerings")[offering_id] = {
        "CapacityBlockOfferingId": offering_id,
        "InstanceType": instance_type,
        "AvailabilityZone": zone,
        "InstanceCount": count,
        "StartDate": start,
        "EndDate": start + timedelta(hours=hours),
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": "0.00",
        "CurrencyCode": "USD",
        "Tenancy": "default",
        **more,
    }


def _describe(self: EC2Response) -> ActionResult:
    hours = self._get_param("CapacityDurationHours")
    if not hours:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter CapacityDurationHours")
    offered = store(self.region, "block_offerings").values()
    matching = [
        item
        for item in offered
        if item["InstanceType"] == self._get_param("InstanceType")
        and item["InstanceCount"] == int(self._get_param("InstanceCount") or 1)
        and item["CapacityBlockDurationHours"] == int(hours)
    ]
    return ActionResult({"CapacityBlockOfferings": matching})


def install_block_offerings() -> None:
    """Add the action to moto's EC2 endpoint."""
    EC2Response.describe_capacity_block_offerings = _describe
