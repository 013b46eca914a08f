"""The size of a capacity reservation, which EC2 reports in two places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUANTITY_TAG = "aws:ec2capacityreservation:incrementalRequestedQuantity"
"""EC2's own tag with the number of instances that were asked for."""


def instance_count(reservation: Mapping[str, Any]) -> int:
    """How many instances a reservation of DescribeCapacityReservations holds, or will hold once it has started.

    Before its start EC2 reports a total of 0 and the number in a tag; without that tag the result is 0.
    Source: EC2 user guide, "View Capacity Blocks"; aws-parallelcluster 3.16.1, capacity_reservation_validators.py.
    """
    tags = {tag["Key"]: tag["Value"] for tag in reservation.get("Tags") or ()}
    asked_for = str(tags.get(QUANTITY_TAG, "0"))
    return int(reservation.get("TotalInstanceCount") or 0) or (int(asked_for) if asked_for.isdecimal() else 0)
