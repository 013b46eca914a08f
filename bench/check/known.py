"""Nineteen faults that ParallelCluster's dry run is tried on as well."""

from __future__ import annotations

from typing import Any

from bench.check import account
from bench.check.cases import Case

Data = dict[str, Any]


def _queue(data: Data) -> Data:
    queue: Data = data["queues"][0]
    return queue


def _slurm_queue(cluster: Data) -> Data:
    queue: Data = cluster["Scheduling"]["SlurmQueues"][0]
    return queue


def _resource(cluster: Data) -> Data:
    resource: Data = _slurm_queue(cluster)["ComputeResources"][0]
    return resource


def _fsx(cluster: Data, **values: Any) -> None:
    """A file system made by ParallelCluster itself, which is the only one it can judge."""
    cluster["SharedStorage"][0]["FsxLustreSettings"] = {
        "StorageCapacity": 4800,
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 250,
        **values,
    }


def _association_on_scratch(cluster: Data) -> None:
    _fsx(cluster, DeploymentType="SCRATCH_1", StorageCapacity=3600)
    del cluster["SharedStorage"][0]["FsxLustreSettings"]["PerUnitStorageThroughput"]
    cluster["SharedStorage"][0]["FsxLustreSettings"]["DataRepositoryAssociations"] = [
        {
            "Name": "datasets",
            "FileSystemPath": "/datasets",
            "DataRepositoryPath": f"s3://{account.BUCKET}/datasets/",
        }
    ]


OTHER_RESERVATION = "cr-0123456789abcdef7"

KNOWN = (
    Case(
        "a subnet that does not exist",
        "subnets",
        settings=lambda s: s["network"].update(compute_subnet_id="subnet-0123456789abcdeff"),
        pcluster_finds=True,
    ),
    Case(
        "a mistyped instance type",
        "instance-type-unknown",
        settings=lambda s: _queue(s).update(instance_type="p5.48xlrage"),
        cluster=lambda c: _resource(c).update(InstanceType="p5.48xlrage"),
        pcluster_finds=True,
    ),
    Case(
        "a reservation of another instance type",
        "reservation",
        settings=lambda s: _queue(s)["reservation"].update(id=OTHER_RESERVATION),
        account=lambda _: account.reservation(OTHER_RESERVATION, "p5e.48xlarge"),
        pcluster_finds=True,
    ),
    Case(
        "more nodes than the reservation has",
        "reservation",
        settings=lambda s: _queue(s).update(count=account.NODES + 1),
        pcluster_finds=True,
    ),
    Case(
        "a capacity block whose nodes come and go",
        "capacity-block-static",
        settings=lambda s: (_queue(s).pop("count"), _queue(s).update(min_count=2, max_count=4))[-1],
        cluster=lambda c: _resource(c).update(MinCount=2),
        pcluster_finds=True,
    ),
    Case(
        "a capacity block without a reservation",
        "missing-key",
        settings=lambda s: _queue(s)["reservation"].pop("id") and None,
        cluster=lambda c: _resource(c).pop("CapacityReservationTarget") and None,
        pcluster_finds=True,
    ),
    Case(
        "EFA on c5.24xlarge",
        "efa-missing",
        settings=lambda s: s["queues"][1].update(efa=True),
        cluster=lambda c: c["Scheduling"]["SlurmQueues"][1]["ComputeResources"][0].update(Efa={"Enabled": True}),
        pcluster_finds=True,
    ),
    Case(
        "FSx throughput of 300 MB/s per TiB",
        "fsx-throughput",
        settings=lambda s: s["storage"]["fsx"].update(throughput_mb_s_per_tib=300),
        cluster=lambda c: _fsx(c, PerUnitStorageThroughput=300),
        pcluster_finds=True,
    ),
    Case(
        "FSx capacity of 5000 GiB",
        "fsx-capacity",
        settings=lambda s: s["storage"]["fsx"].update(capacity_gib=5000),
        cluster=lambda c: _fsx(c, StorageCapacity=5000),
        pcluster_finds=True,
    ),
    Case(
        "an association on a scratch file system",
        "association-scratch-1",
        settings=lambda s: s["storage"].update(fsx={"deployment": "scratch-1", "capacity_gib": 3600}),
        cluster=_association_on_scratch,
    ),
    Case(
        "a secret that does not exist",
        "database-secret",
        settings=lambda s: s["slurm"]["database"].update(
            password_secret_arn=account.DATABASE_SECRET.replace("slurm-db", "slurm-bd")
        ),
        pcluster_finds=True,
    ),
    Case(
        "a script that does not exist",
        "scripts",
        settings=lambda s: s["head_node"].update(scripts=[{"url": f"s3://{account.BUCKET}/scripts/hadren.sh"}]),
        pcluster_finds=True,
    ),
    Case(
        "operating system alinux2",
        "not-a-choice",
        settings=lambda s: s.update(os="alinux2"),
        cluster=lambda c: c["Image"].update(Os="alinux2"),
        pcluster_finds=True,
    ),
    Case(
        "two file systems at one place",
        "mount-overlap",
        settings=lambda s: s["storage"]["mounts"][0].update(path="/fsx"),
        cluster=lambda c: c["SharedStorage"][1].update(MountDir="/fsx"),
        pcluster_finds=True,
    ),
    Case(
        "a policy that does not exist",
        "policies",
        settings=lambda s: s["head_node"].update(policy_arns=[f"arn:aws:iam::{account.ACCOUNT}:policy/images"]),
        pcluster_finds=True,
    ),
    Case(
        "log retention of 31 days",
        "not-a-choice",
        settings=lambda s: s["observability"].update(retention_days=31),
        cluster=lambda c: c["Monitoring"]["Logs"]["CloudWatch"].update(RetentionInDays=31),
        pcluster_finds=True,
    ),
    Case(
        "a cluster name of 61 characters",
        "cluster-name",
        settings=lambda s: s.update(name="b" * 61),
        cluster=lambda c: c.update({"name of the cluster": "b" * 61}),
        pcluster_finds=True,
    ),
    Case(
        "GresTypes among Slurm's parameters",
        "slurm-denied",
        settings=lambda s: s["slurm"]["settings"].update(GresTypes="gpu"),
        cluster=lambda c: c["Scheduling"]["SlurmSettings"].update(CustomSlurmSettings=[{"GresTypes": "gpu"}]),
        pcluster_finds=True,
    ),
    Case(
        "a placement group around a capacity block",
        "capacity-block-placement",
        settings=lambda s: _queue(s).update(placement_group=True),
        cluster=lambda c: _slurm_queue(c)["Networking"].update(PlacementGroup={"Enabled": True}),
        pcluster_finds=True,
    ),
)
