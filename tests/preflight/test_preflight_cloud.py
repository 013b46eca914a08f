"""What the embedded AWS has for preflight's sake: reservations, block offerings, quotas, and a way back to day one."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from preflight_cases import REGION

from rehearsal.cloud.capacity import add_reservation
from tests.aws.block_offerings import add_block_offering
from tests.aws.preflight_aws import PreflightAws
from tests.aws.quotas import set_quota

IDS = [f"cr-{number:017x}" for number in range(3)]
EC2_FILTERS = [
    ({"Name": "instance-type", "Values": ["p4d.24xlarge"]}, [IDS[1]]),
    ({"Name": "availability-zone", "Values": [f"{REGION}b"]}, [IDS[2]]),
    ({"Name": "state", "Values": ["active", "expired"]}, [IDS[0], IDS[2]]),
    ({"Name": "owner-id", "Values": ["210987654321"]}, [IDS[2]]),
]


@pytest.fixture
def reservations(account: PreflightAws) -> PreflightAws:
    add_reservation(REGION, IDS[0], "p5.48xlarge", 4, f"{REGION}a", "capacity-block")
    add_reservation(REGION, IDS[1], "p4d.24xlarge", 2, f"{REGION}a", "capacity-block", State="scheduled")
    add_reservation(REGION, IDS[2], "p5.48xlarge", 8, f"{REGION}b", "on-demand", OwnerId="210987654321")
    return account


@pytest.mark.parametrize(("wanted", "ids"), EC2_FILTERS, ids=lambda value: str(value)[:40])
def test_reservations_by_filter(reservations: PreflightAws, wanted: dict[str, object], ids: list[str]) -> None:
    found = reservations.clients("ec2").describe_capacity_reservations(Filters=[wanted])["CapacityReservations"]
    assert [item["CapacityReservationId"] for item in found] == ids


def test_an_unknown_filter_is_refused(reservations: PreflightAws) -> None:
    wanted = [{"Name": "colour", "Values": ["red"]}]
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        reservations.clients("ec2").describe_capacity_reservations(Filters=wanted)


def test_a_block_that_has_not_started_has_nothing_free(reservations: PreflightAws) -> None:
    ec2 = reservations.clients("ec2")
    block = ec2.describe_capacity_reservations(CapacityReservationIds=[IDS[1]])["CapacityReservations"][0]
    assert (block["State"], block["TotalInstanceCount"], block["AvailableInstanceCount"]) == ("scheduled", 0, 0)
    assert [tag["Value"] for tag in block["Tags"]] == ["2"]


def test_what_runs_in_a_reservation_is_not_free(reservations: PreflightAws) -> None:
    ec2 = reservations.clients("ec2")

    def available() -> int:
        found = ec2.describe_capacity_reservations(CapacityReservationIds=[IDS[0]])["CapacityReservations"]
        return int(found[0]["AvailableInstanceCount"])

    made = ec2.run_instances(
        ImageId="ami-00000000000000003", InstanceType="p5.48xlarge", MinCount=3, MaxCount=3,
        InstanceMarketOptions={"MarketType": "capacity-block"},
        CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": IDS[0]}},
    )["Instances"]  # fmt: skip
    running = ec2.describe_instances()["Reservations"][0]["Instances"]
    assert {(item["CapacityReservationId"], item["InstanceLifecycle"]) for item in running} == {
        (IDS[0], "capacity-block")
    }
    assert available() == 1
    ec2.terminate_instances(InstanceIds=[item["InstanceId"] for item in made])
    assert available() == 4


def test_no_instance_starts_in_a_reservation_that_is_not_there(account: PreflightAws) -> None:
    target = {"CapacityReservationTarget": {"CapacityReservationId": IDS[0]}}
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        account.clients("ec2").run_instances(
            ImageId="ami-00000000000000003", InstanceType="p5.48xlarge", MinCount=1, MaxCount=1,
            CapacityReservationSpecification=target,
        )  # fmt: skip


def test_offerings_are_those_of_type_count_and_length(account: PreflightAws) -> None:
    for count, hours in ((4, 24), (4, 48), (8, 24)):
        add_block_offering(REGION, "p5.48xlarge", count, f"{REGION}a", hours)
    ec2 = account.clients("ec2")
    wanted = {"InstanceType": "p5.48xlarge", "InstanceCount": 4, "CapacityDurationHours": 48}
    found = ec2.describe_capacity_block_offerings(**wanted)["CapacityBlockOfferings"]
    assert [(item["InstanceCount"], item["CapacityBlockDurationHours"]) for item in found] == [(4, 48)]


def test_quotas_are_those_of_the_seed_and_can_be_granted(account: PreflightAws) -> None:
    quotas = account.clients("service-quotas")
    key = {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}
    assert quotas.get_service_quota(**key)["Quota"]["Value"] == 3072
    assert quotas.get_aws_default_service_quota(**key)["Quota"]["Value"] == 0
    set_quota(REGION, "ec2", "L-417A185B", 192)
    listed = {item["QuotaCode"]: item["Value"] for item in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert quotas.get_service_quota(**key)["Quota"]["Value"] == listed["L-417A185B"] == 192
    with pytest.raises(KeyError):
        set_quota(REGION, "ec2", "L-00000000", 1)


def test_quotas_are_listed_page_by_page(account: PreflightAws) -> None:
    quotas = account.clients("service-quotas")
    for name in ("list_service_quotas", "list_aws_default_service_quotas"):
        pages = list(quotas.get_paginator(name).paginate(ServiceCode="vpc", MaxResults=10))
        assert [len(page["Quotas"]) for page in pages] == [10, 10, 5]


@pytest.mark.parametrize("key", [("ec2", "L-00000000"), ("nosuch", "L-417A185B")])
def test_an_unknown_quota_is_refused(account: PreflightAws, key: tuple[str, str]) -> None:
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        account.clients("service-quotas").get_service_quota(ServiceCode=key[0], QuotaCode=key[1])


def test_a_route_to_a_deleted_nat_gateway_is_a_black_hole(account: PreflightAws) -> None:
    ec2 = account.clients("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)

    def states() -> list[str]:
        return [
            route["State"] for route in ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
        ]

    assert states() == ["active", "active"]
    ec2.delete_nat_gateway(NatGatewayId=nat)
    assert states() == ["active", "blackhole"]


def test_a_reset_forgets_everything(reservations: PreflightAws) -> None:
    set_quota(REGION, "ec2", "L-417A185B", 192)
    reservations.reset()
    assert reservations.clients("ec2").describe_capacity_reservations()["CapacityReservations"] == []
    quota = reservations.clients("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")
    assert quota["Quota"]["Value"] == 0
