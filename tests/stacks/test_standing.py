"""Every optional key of the settings, changed on a cluster that exists, and changed back.

Each deployment is of all stacks, to the embedded AWS. Its CloudFormation refuses to change exports in use, makes a
replacement before it deletes, and works in the worst order. Changes of different keys that are all taken are deployed
together: a refusal of one is a refusal of all. A new optional key of the model needs a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rehearsal.cloud.seed import ExistingNetwork, make_network
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.account import seed_of
from slipway.settings.model import all_keys
from tests.stacks.standing import Standing, changed

SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:site/one-AbCdEf"
POLICY = "arn:aws:iam::123456789012:policy/site/datasets"
OTHER_VPC = "vpc-0123456789abcdef9"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
SCRIPTS = [{"url": "s3://site-scripts/harden.sh", "arguments": ["now"]}]
LIMIT = {
    "collective": "all_reduce",
    "nodes": 2,
    "size": 1 << 30,
    "fail_below_gb_per_s": 10.0,
    "warn_below_gb_per_s": 12.0,
    "source": "own measurement",
    "date": "2026-11-27",
}
DATABASE = {"host": "db", "user": "slurm", "password_secret_arn": SECRET, "port": 3307, "name": "jobs"}
NEW: dict[str, Any] = {
    "name": "ml",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "os": "ubuntu2404",
    "network": {"cidr": "10.7.0.0/16"},
    "head_node": {
        "instance_type": "m5.4xlarge",
        "root_volume_gib": 100,
        "key_pair": "operators",
        "ssh_from": "192.0.2.0/24",
        "security_group_ids": ["sg-0123456789abcdef1"],
        "scripts": SCRIPTS,
        "policy_arns": [POLICY],
    },
    "queues": [
        {
            "name": "train",
            "instance_type": "g6.12xlarge",
            "min_count": 1,
            "max_count": 2,
            "reservation": {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "hold_minutes": 45},
            "placement_group": "site-group",
            "efa": True,
            "scripts": SCRIPTS,
            "policy_arns": [POLICY],
            "slurm_settings": {"GraceTime": 60},
        },
        {"name": "small", "instance_type": "g6.12xlarge", "count": 1},
        {"name": "prepare", "instance_type": "c6i.16xlarge", "max_count": 8, "spot": True},
    ],
    "storage": {
        "fsx": {"capacity_gib": 4800, "throughput_mb_s_per_tib": 250, "compression": "none"},
        "associations": [
            {"path": "/datasets", "prefix": "datasets/", "import_changes": False, "export_changes": True},
            {"path": "/models", "prefix": "models/"},
        ],
        "mounts": [{"path": "/shared", "kind": "efs", "id": "fs-0123456789abcdef1"}],
    },
    "slurm": {"idle_minutes": 20, "database": DATABASE, "settings": {"SlurmdTimeout": 600}},
    "observability": {"alert_email": "ops@example.com", "retention_days": 90},
    "images": ["docker://nvcr.io#nvidia/pytorch:24.01-py3"],
    "ngc_secret_arn": SECRET,
    "containers": {"imports_at_once": 3, "format": "both", "compressed": True, "pyxis": False},
    "nccl": {
        "source": "shared",
        "nccl_version": "v2.27.5-1",
        "ofi_version": "v1.16.3",
        "environment": "legacy",
    },
    "health": {
        "enabled": False,
        "drain": False,
        "terminate_drained_nodes": False,
        "replacements_per_day": 1,
        "interval_seconds": 120,
    },
    "software_mirror": "s3://site-data/mirror/",
    "acceptance": {
        "nodes": 1,
        "min_bytes": 1 << 21,
        "max_bytes": 8 << 30,
        "iterations": 50,
        "timeout_minutes": 40,
        "drain_percent": 20,
        "limits": [LIMIT],
    },
    "budget": {"monthly_usd": 1000},
    "tags": {"team": "vision"},
}
SITE: dict[str, Any] = {
    **{key: NEW[key] for key in ("region", "zone")},
    "name": "site",
    "queues": [{"name": "train", "instance_type": "g6.12xlarge", "max_count": 2}],
    "network": {
        "vpc_id": "vpc-0123456789abcdef0",
        "head_node_subnet_id": "subnet-0123456789abcdef0",
        "compute_subnet_id": "subnet-0123456789abcdef1",
    },
    "storage": {
        "bucket": "site-data",
        "fsx": {"file_system_id": "fs-0123456789abcdef0"},
        "home": {"kind": "ebs", "size_gib": 50},
    },
    "slurm": {"external_slurmdbd": {"host": "db", "port": 6820, "munge_key_secret_arn": SECRET}},
}
BASES = {"new": NEW, "site": SITE}
IN_USE = "cannot be updated as it is in use by"
PROVIDER_ROLE = frozenset({"cluster/ProviderRole"})
GONE = "cannot be deleted as it is in use by"


@dataclasses.dataclass(frozen=True)
class Row:
    """What one key, changed by `change` (dotted keys; None: left out), means for the stacks of `base`.

    `refused` begins what stops the change; empty: it is taken, and so is the way back unless `back` says what stops
    that. `replaced`: parts of the logical ids that a taken change gives another resource; `left`: what the way back
    leaves, because moto deletes a policy that a role still has. A row that is `alone` is not united with others.
    """

    change: Mapping[str, Any]
    base: str = "new"
    refused: str = ""
    back: str = ""
    replaced: tuple[str, ...] = ()
    left: frozenset[str] = frozenset()
    alone: bool = False


def gone(*keys: str) -> dict[str, Row]:
    """Rows of keys that `new` sets and that are left out."""
    return {key: Row({key.replace("[]", ".0"): None}) for key in keys}


LINK = {"path": "/results", "prefix": "results/", "export_changes": True}
FSX = NEW["storage"]["fsx"]
ROWS = {
    # whole parts
    **gone("os", "head_node", "slurm", "observability", "images", "ngc_secret_arn", "containers", "nccl", "health"),
    **gone("software_mirror", "acceptance", "budget", "tags", "storage"),
    "network": Row({"network": SITE["network"]}, refused="network: Export ml-network:"),
    "iam": Row(
        {"iam": {"permissions_boundary": BOUNDARY, "name_prefix": "team-"}},
        replaced=("Role", "Policy"),
        left=PROVIDER_ROLE,
        alone=True,
    ),
    # their keys
    "network.cidr": Row({"network": None}, refused="network: "),
    "network.vpc_id": Row({"network.vpc_id": OTHER_VPC}, "site", refused="network: Export site-network:"),
    "network.head_node_subnet_id": Row({"network.head_node_subnet_id": "subnet-0123456789abcdef9"}, "site"),
    "network.compute_subnet_id": Row({"network.compute_subnet_id": "subnet-0123456789abcdef9"}, "site"),
    "network.security_group_id": Row(
        {"network.security_group_id": "sg-0123456789abcdef0"}, "site", refused="network: Export site-network:"
    ),
    **gone("head_node.instance_type", "head_node.root_volume_gib", "head_node.key_pair", "head_node.ssh_from"),
    **gone("head_node.security_group_ids", "head_node.scripts", "head_node.policy_arns"),
    **gone("head_node.scripts[].arguments"),
    "queues[].count": Row({"queues.1.count": 2}),
    **gone("queues[].min_count", "queues[].reservation", "queues[].placement_group", "queues[].efa"),
    **gone("queues[].reservation.hold_minutes", "queues[].scripts", "queues[].policy_arns", "queues[].slurm_settings"),
    "queues[].max_count": Row({"queues.0.max_count": 4}),
    "queues[].spot": Row({"queues.2.spot": None}),
    "queues[].scripts[].arguments": Row({"queues.0.scripts.0.arguments": None}),
    "storage.fsx": Row({"storage.fsx": None}),
    "storage.fsx.file_system_id": Row(
        {"storage.fsx.file_system_id": "fs-0123456789abcdef9"},
        "site",
        refused=f"storage: Export site-storage:FileSystemId {IN_USE}",
    ),
    "storage.fsx.deployment": Row(
        {"storage.fsx": {"deployment": "scratch-2", "compression": "none"}}, refused="storage: Export ml-storage:"
    ),
    "storage.fsx.capacity_gib": Row(
        {"storage.fsx.capacity_gib": 9600}, back="storage: StorageCapacity 4800 must be greater"
    ),
    "storage.fsx.throughput_mb_s_per_tib": Row(
        {"storage.fsx.throughput_mb_s_per_tib": 500}, refused="storage: Export ml-storage:"
    ),
    **gone("storage.fsx.compression", "storage.mounts"),
    "storage.bucket": Row({"storage.bucket": "site-data", "storage.associations": None}, alone=True),
    "storage.associations": Row({"storage.associations": [NEW["storage"]["associations"][1], LINK]}),
    "storage.associations[].prefix": Row(
        {"storage.associations.0.prefix": None}, refused="storage: FileSystemPath /datasets overlaps"
    ),
    **gone("storage.associations[].import_changes", "storage.associations[].export_changes"),
    "storage.home": Row(
        {"storage.home": {"kind": "ebs", "size_gib": 50}}, back=f"storage: Export ml-storage:HomeVolumeId {GONE}"
    ),
    "storage.home.kind": Row({"storage.home": None}, "site", f"storage: Export site-storage:HomeVolumeId {GONE}"),
    "storage.home.size_gib": Row({"storage.home.size_gib": 100}, "site", back="storage: New size cannot be smaller"),
    "storage.home.volume_id": Row(
        {"storage.home": {"kind": "ebs", "volume_id": "vol-0123456789abcdef9"}},
        "site",
        f"storage: Export site-storage:HomeVolumeId {IN_USE}",
    ),
    **gone("slurm.idle_minutes", "slurm.database", "slurm.database.port", "slurm.database.name", "slurm.settings"),
    "slurm.external_slurmdbd": Row({"slurm.external_slurmdbd": None}, "site"),
    "slurm.external_slurmdbd.port": Row({"slurm.external_slurmdbd.port": None}, "site"),
    "slurm.external_slurmdbd.munge_key_secret_arn": Row(
        {"slurm.external_slurmdbd.munge_key_secret_arn": SECRET.replace("one", "two")}, "site"
    ),
    "observability.prometheus": Row({"observability.prometheus": False}, alone=True),
    "observability.grafana": Row({"observability.grafana": True}, alone=True),
    "observability.retention_days": Row({"observability.retention_days": None}),
    "observability.alert_email": Row({"observability.alert_email": None}, alone=True),
    "iam.permissions_boundary": Row({"iam.permissions_boundary": BOUNDARY}, "site"),
    "iam.name_prefix": Row(
        {"iam.name_prefix": "team-"}, "site", replaced=("Role", "Policy"), left=PROVIDER_ROLE, alone=True
    ),
    **gone("containers.imports_at_once", "containers.format", "containers.compressed", "containers.pyxis"),
    **gone("nccl.source", "nccl.nccl_version", "nccl.ofi_version", "nccl.environment"),
    **gone("health.enabled", "health.drain", "health.terminate_drained_nodes", "health.replacements_per_day"),
    **gone("health.interval_seconds", "acceptance.nodes", "acceptance.min_bytes", "acceptance.max_bytes"),
    **gone("acceptance.iterations", "acceptance.timeout_minutes", "acceptance.limits"),
    **gone("acceptance.limits[].warn_below_gb_per_s", "acceptance.drain_percent"),
    "acceptance.scenario": Row({"acceptance.scenario": "none"}, alone=True),
}


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two changes have a key in common, or one changes a part of the other's key."""
    pairs = [(f"{first}.", f"{second}.") for first in one for second in other]
    return any(first.startswith(second) or second.startswith(first) for first, second in pairs)


def together() -> dict[str, Row]:
    """The rows to deploy: the taken ones of a base united as far as they do not overlap, then each other one.

    Those without a way back come last: what follows them builds on them.
    """
    united: list[tuple[list[str], Row]] = []
    for name, row in ROWS.items():
        can_join = not (row.alone or row.refused or row.back or row.replaced)
        for names, other in united if can_join else ():
            if other.base == row.base and not other.alone and not overlap(other.change, row.change):
                names.append(name)
                other.change.update(row.change)  # type: ignore[attr-defined]
                break
        else:
            united.append(([name], dataclasses.replace(row, change=dict(row.change), alone=not can_join)))
    united.sort(key=lambda item: (item[1].base, bool(item[1].back)))
    return {f"{row.base}: {' '.join(names)[:60]}": row for names, row in united}


GROUPS = together()


class Cluster:
    """The standing cluster of one base and its settings of now."""

    def __init__(self, standing: Standing, base: Mapping[str, Any]) -> None:
        self.standing, self.data = standing, dict(base)

    def deploy(self, data: Mapping[str, Any]) -> str:
        return self.standing.deploy(changed(data, {}))

    def resources(self) -> dict[str, str]:
        return self.standing.resources(changed(self.data, {}))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    folder = tmp_path_factory.mktemp("standing")
    with EmbeddedAws("us-east-1", folder / "aws") as aws:
        aws.seed(seed_of(changed(SITE, {"iam": {"permissions_boundary": BOUNDARY}})))
        make_network(aws.clients, ExistingNetwork(OTHER_VPC, "10.9.0.0/16", ()))
        standing = Standing(aws, folder)
        yield {name: Cluster(standing, base) for name, base in BASES.items()}


def applied(data: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    return changed(data, change).model_dump(mode="json", exclude_unset=True)


def test_every_optional_key_has_a_row() -> None:
    optional = {key.path for key in all_keys() if not key.field.is_required()}
    assert set(ROWS) == optional


@pytest.mark.parametrize("name", ROWS)
def test_a_row_changes_its_key(name: str) -> None:
    row = ROWS[name]
    before, after = changed(BASES[row.base], {}), changed(BASES[row.base], row.change)
    assert values(before.model_dump(), name) != values(after.model_dump(), name)


def values(data: Any, key: str) -> list[Any]:
    """The values of a key in all items of its lists."""
    first, _, rest = key.partition(".")
    found = data.get(first.removesuffix("[]")) if data else None
    if not rest:
        return [found]
    items = found if first.endswith("[]") else [found]
    return [value for item in items or () for value in values(item, rest)]


@pytest.mark.parametrize("name", GROUPS)
def test_a_standing_cluster(clusters: dict[str, Cluster], name: str) -> None:
    row = GROUPS[name]
    cluster = clusters[row.base]
    assert cluster.deploy(cluster.data) == ""
    before = cluster.resources()
    data = applied(cluster.data, row.change)
    failure = cluster.deploy(data)
    if row.refused:
        assert failure.startswith(row.refused)
        assert cluster.resources() == before
        return
    assert failure == ""
    after = cluster.resources()
    other = {key for key in set(before) & set(after) if before[key] != after[key]}
    assert not [key for key in other if not any(part in key for part in row.replaced)]
    back = cluster.deploy(cluster.data)
    if row.back:
        assert back.startswith(row.back)
        cluster.data = data
        assert cluster.resources() == after
    else:
        assert back == ""
        assert set(cluster.resources()) == set(before) | row.left


def test_its_own_storage_is_handed_over_by_id(clusters: dict[str, Cluster]) -> None:
    """The file system and the volume stay the same ones in both directions; the way back is refused."""
    cluster = clusters["new"]
    mine = applied(cluster.data, {"storage.home": {"kind": "ebs", "size_gib": 50}})
    assert cluster.deploy(mine) == ""
    before = cluster.resources()
    file_system, volume = before["storage/FileSystem"], before["storage/HomeVolume"]
    ids = {"storage.fsx": {"file_system_id": file_system}, "storage.home": {"kind": "ebs", "volume_id": volume}}
    handed = applied(mine, ids)
    kept = storage_of(cluster.standing)
    assert cluster.deploy(handed) == ""
    after = cluster.resources()
    gone = set(before) - set(after)
    assert {key.partition("Group")[0] for key in gone} == {
        "storage/FileSystem", "storage/FileSystemSecurity", "storage/HomeVolume",
    }  # fmt: skip
    assert {key: before[key] for key in after} == after
    for key, change in (("FileSystemId", "storage.fsx"), ("HomeVolumeId", "storage.home")):
        back = cluster.deploy(applied(handed, {change: mine["storage"][change.removeprefix("storage.")]}))
        assert back == f"storage: Export ml-storage:{key} {IN_USE} ml-cluster"
        assert cluster.resources() == after
    assert {file_system, volume} <= kept
    assert storage_of(cluster.standing) == kept
    cluster.data = handed


def storage_of(standing: Standing) -> set[str]:
    """The ids of all file systems, associations and volumes."""
    fsx, ec2 = standing.aws.clients("fsx"), standing.aws.clients("ec2")
    systems = {item["FileSystemId"] for item in fsx.describe_file_systems()["FileSystems"]}
    linked = {item["AssociationId"] for item in fsx.describe_data_repository_associations()["Associations"]}
    return systems | linked | {item["VolumeId"] for item in ec2.describe_volumes()["Volumes"]}


@pytest.mark.parametrize("off", [{"observability.prometheus": False}, {"observability.alert_email": None}], ids=str)
def test_a_part_is_off_and_the_update_of_the_cluster_fails(clusters: dict[str, Cluster], off: dict[str, Any]) -> None:
    """The cluster's stack goes back to a template that reads the outputs of the part; the next deployment is taken."""
    cluster = clusters["new"]
    assert cluster.deploy(cluster.data) == ""
    cluster.standing.provider.fails = True
    without = applied(cluster.data, {**off, "slurm.idle_minutes": 33})
    assert cluster.deploy(without) == "cluster: ACTION NEEDED"
    assert cluster.standing.aws.stacks.find("ml-cluster").status == "UPDATE_ROLLBACK_COMPLETE"
    assert cluster.deploy(without) == ""
    assert cluster.deploy(cluster.data) == ""
