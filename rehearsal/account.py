"""What the settings take for granted in the user's AWS account: reservations, key pair, secrets, network, bucket."""

from __future__ import annotations

from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, Reservation, Seed
from slipway.settings import Settings

EXISTING_VPC_CIDR = "10.0.0.0/16"  # settings name an existing network by ids only; any range will do
PUBLIC_SUBNET_CIDR = "10.0.0.0/24"
SPOT = "spot.amazonaws.com"  # without its role no spot instance starts; an account that used spot has it
PRIVATE_SUBNET_CIDR = "10.0.128.0/17"


def seed_of(settings: Settings) -> Seed:
    """All that must be there before ``settings`` can be deployed. Reservations are active and exactly large enough."""
    return Seed(
        reservations=_reservations(settings),
        key_pairs=(settings.head_node.key_pair,) if settings.head_node.key_pair else (),
        secret_arns=(settings.ngc_secret_arn,) if settings.ngc_secret_arn else (),
        buckets=(settings.storage.bucket,) if settings.storage.bucket else (),
        objects=_objects(settings),
        service_roles=(SPOT,) if any(queue.spot for queue in settings.queues) else (),
        network=_network(settings),
    )


def _reservations(settings: Settings) -> tuple[Reservation, ...]:
    """One a reservation id; queues that share one need the sum of their nodes."""
    counts: dict[str, int] = {}
    for queue in settings.queues:
        if queue.reservation:
            counts[queue.reservation.id] = counts.get(queue.reservation.id, 0) + queue.max_count
    made = {
        queue.reservation.id: Reservation(
            id=queue.reservation.id,
            instance_type=queue.instance_type,
            count=counts[queue.reservation.id],
            zone=settings.zone,
            kind=queue.reservation.kind,
        )
        for queue in settings.queues
        if queue.reservation
    }
    return tuple(made.values())


def _objects(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Something under each prefix that is associated with the file system."""
    storage = settings.storage
    bucket = storage.bucket
    return tuple((bucket, f"{association.prefix}README") for association in storage.associations) if bucket else ()


def _network(settings: Settings) -> ExistingNetwork | None:
    network = settings.network
    if network.vpc_id is None or network.head_node_subnet_id is None or network.compute_subnet_id is None:
        return None
    public = ExistingSubnet(network.head_node_subnet_id, PUBLIC_SUBNET_CIDR, settings.zone, public=True)
    private = ExistingSubnet(network.compute_subnet_id, PRIVATE_SUBNET_CIDR, settings.zone)
    subnets = (public, private) if public.id != private.id else (private,)
    return ExistingNetwork(network.vpc_id, EXISTING_VPC_CIDR, subnets)
