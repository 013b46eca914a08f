"""What the settings expect in the user's AWS account: reservations, network, storage, scripts, secrets."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

from rehearsal.cloud.existing import FileSystem, SecurityGroup
from rehearsal.cloud.seed import ExistingNetwork, ExistingSubnet, Reservation, Seed
from slipway.deploy_policy import deployer_policy, execution_policy
from slipway.settings import Script, Settings

EXISTING_VPC_CIDR = "10.0.0.0/16"  # settings name an existing network by ids only; any range will do
PUBLIC_SUBNET_CIDR = "10.0.0.0/24"
SPOT = "spot.amazonaws.com"  # without its role no spot instance starts; an account that used spot has it
FSX = "fsx.amazonaws.com"  # its role comes with the first file system
PRIVATE_SUBNET_CIDR = "10.0.128.0/17"
OBJECTS_FOLDER = "s3"  # next to the settings file: s3/BUCKET/KEY is the object of that name
MUNGE_KEY_BYTES = 128  # what ParallelCluster's own key has; 32 to 1024 are allowed
STAND_IN_SCRIPT = b"""#!/bin/sh
echo "a stand-in ran for a script of the site, with: $*"
"""


def seed_of(settings: Settings, folder: Path | None = None) -> Seed:
    """Return all that must exist before `settings` can be deployed. Reservations are active and exactly large enough.

    `folder` is that of the settings file: a script of the site is read from `s3/BUCKET/KEY` in it if that file exists;
    otherwise a stand-in is used.
    """
    scripts = _scripts(settings)
    return Seed(
        reservations=_reservations(settings),
        key_pairs=(settings.head_node.key_pair,) if settings.head_node.key_pair else (),
        secret_arns=(settings.ngc_secret_arn,) if settings.ngc_secret_arn else (),
        buckets=_buckets(settings, scripts),
        objects=_objects(settings),
        service_roles=_service_roles(settings),
        network=_network(settings),
        security_groups=_security_groups(settings),
        file_systems=_file_systems(settings),
        volumes=((settings.storage.home.volume_id, settings.zone),) if settings.storage.home.volume_id else (),
        scripts=tuple((*_place(script), _text(script, folder)) for script in scripts),
        policy_arns=settings.policy_arns,
        boundary_arn=settings.iam.permissions_boundary,
        placement_groups=_placement_groups(settings),
        secrets=_secrets(settings),
        execution_policy=json.dumps(execution_policy(settings)),
        deployer_policy=json.dumps(deployer_policy(settings)),
    )


def _reservations(settings: Settings) -> tuple[Reservation, ...]:
    """One a reservation id; queues that share one need the sum of their nodes. Made in the group that a queue names."""
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
            placement_group=queue.placement_group if isinstance(queue.placement_group, str) else "",
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


def _scripts(settings: Settings) -> list[Script]:
    """Each script once, whatever arguments it is given where."""
    return list({script.url: script for script in settings.scripts}.values())


def _place(script: Script) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = script.url.removeprefix("s3://").partition("/")
    return bucket, key


def _text(script: Script, folder: Path | None) -> bytes:
    """The site's own text if it is next to the settings; a key with `..` leads nowhere else."""
    objects = (folder / OBJECTS_FOLDER).resolve() if folder else None
    file = objects.joinpath(*_place(script)).resolve() if objects else None
    if objects and file and file.is_relative_to(objects) and file.is_file():
        return file.read_bytes()
    return STAND_IN_SCRIPT


def _buckets(settings: Settings, scripts: list[Script]) -> tuple[str, ...]:
    own = [settings.storage.bucket] if settings.storage.bucket else []
    return tuple(dict.fromkeys([*own, *(_place(script)[0] for script in scripts)]))


def _security_groups(settings: Settings) -> tuple[SecurityGroup, ...]:
    """The nodes' own is open to itself; the head node's others are as EC2 makes them."""
    network = settings.network
    groups = {id: SecurityGroup(id, network.vpc_id) for id in settings.head_node.security_group_ids}
    if network.security_group_id:
        nodes = SecurityGroup(network.security_group_id, network.vpc_id, open_to_itself=True)
        groups[network.security_group_id] = nodes
    return tuple(groups.values())


def _file_systems(settings: Settings) -> tuple[FileSystem, ...]:
    """In the nodes' subnet and group, where these exist already."""
    network, storage = settings.network, settings.storage
    kinds = {mount.id: mount.kind for mount in storage.mounts}
    if storage.fsx.file_system_id:
        kinds[storage.fsx.file_system_id] = "fsx-lustre"
    return tuple(
        FileSystem(id, kind, settings.zone, network.compute_subnet_id, network.security_group_id)
        for id, kind in kinds.items()
    )


def _service_roles(settings: Settings) -> tuple[str, ...]:
    spot = (SPOT,) if any(queue.spot for queue in settings.queues) else ()
    return (*spot, FSX) if any(system.kind != "efs" for system in _file_systems(settings)) else spot


def _placement_groups(settings: Settings) -> tuple[str, ...]:
    named = [queue.placement_group for queue in settings.queues if isinstance(queue.placement_group, str)]
    return tuple(dict.fromkeys(named))


def _secrets(settings: Settings) -> tuple[tuple[str, str], ...]:
    """A database password and a munge key, each of the right form and of this rehearsal alone."""
    slurm = settings.slurm
    made: dict[str, str] = {}
    if slurm.external_slurmdbd and slurm.external_slurmdbd.munge_key_secret_arn:
        key = base64.b64encode(secrets.token_bytes(MUNGE_KEY_BYTES)).decode("ascii")
        made[slurm.external_slurmdbd.munge_key_secret_arn] = key
    if slurm.database:
        made[slurm.database.password_secret_arn] = secrets.token_urlsafe()
    made.pop(settings.ngc_secret_arn or "", None)  # preflight says that one secret cannot be both
    return tuple(made.items())
