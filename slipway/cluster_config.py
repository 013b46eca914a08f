"""Settings -> ParallelCluster's configuration (release 3.16).

`cluster_configuration` is pure: the same settings and facts give the same dictionary, with its keys in the order in
which ParallelCluster's documentation lists them. What is known only at deployment (ids, ARNs, addresses of assets)
comes in as `ClusterFacts`; its strings may be CDK tokens.

Source of keys and limits: ParallelCluster 3.16.1 `pcluster/schemas/cluster_schema.py` and its validators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from slipway.settings import FSX_MOUNT, PARALLELCLUSTER_VERSION, Iam, Mount, Queue, Script, Settings, Slurm

TEMPLATES = f"parallelcluster/{PARALLELCLUSTER_VERSION}/templates"
PROVIDER_TEMPLATE = f"{TEMPLATES}/custom_resource/cluster.yaml"
"""Key of ParallelCluster's custom resource in its bucket of each region, `REGION-aws-parallelcluster`."""
POLICIES_TEMPLATE = f"{TEMPLATES}/policies/policies.yaml"
"""Key, there, of ParallelCluster's role for its provider and API, whose boundary and name can be chosen."""
FACTS_OUTPUT = "DeploymentFacts"
"""Output of the cluster stack: `slipway.deployed.Deployment` as JSON."""
COMPUTE_ROOT_VOLUME_GIB = 200  # system, EFA and CUDA take about 60 GiB; the rest is for container layers without NVMe
NOBODY = "127.0.0.1/32"  # ParallelCluster opens SSH to the world when AllowedIps is left out
THREADS_PER_CORE = 2  # all Intel and AMD types of the data file
CAPACITY_TYPES = {"capacity-block": "CAPACITY_BLOCK", "on-demand": "ONDEMAND"}
MOUNT_KINDS = {
    "fsx-lustre": ("FsxLustre", "FsxLustreSettings", "FileSystemId"),
    "fsx-openzfs": ("FsxOpenZfs", "FsxOpenZfsSettings", "VolumeId"),
    "fsx-ontap": ("FsxOntap", "FsxOntapSettings", "VolumeId"),
    "file-cache": ("FileCache", "FileCacheSettings", "FileCacheId"),
    "efs": ("Efs", "EfsSettings", "FileSystemId"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What only the deployment knows; every string may be a CDK token.

    `node_arguments` are KEY=VALUE lines for node.env. `script_url` is `s3://bucket/key` of the bootstrap action,
    `bundle_sha256` (hexadecimal) that of the bundle which the nodes' parameter names.
    """

    head_node_subnet_id: str
    compute_subnet_id: str
    node_security_group_id: str
    file_system_id: str
    home_volume_id: str = ""  # none, or none yet
    script_url: str
    bundle_sha256: str
    node_arguments: tuple[str, ...]
    head_node_policy_arns: tuple[str, ...]
    compute_policy_arns: tuple[str, ...]


def placeholder_facts(settings: Settings) -> ClusterFacts:
    """Facts for looking at a configuration before anything is deployed: valid in form, zeros where an id belongs."""
    network = settings.network
    bucket = settings.storage.bucket or f"{settings.name}-bucket"
    return ClusterFacts(
        head_node_subnet_id=network.head_node_subnet_id or "subnet-00000000000000001",
        compute_subnet_id=network.compute_subnet_id or "subnet-00000000000000002",
        node_security_group_id=network.security_group_id or "sg-00000000000000000",
        file_system_id=settings.storage.fsx.file_system_id or "fs-00000000000000000",
        home_volume_id=settings.storage.home.volume_id or "",
        script_url=f"s3://{bucket}/bootstrap/load-bundle.sh",
        bundle_sha256="0" * 64,
        node_arguments=(f"RESULTS_BUCKET={bucket}", "AMP_REMOTE_WRITE_URL=", f"LOG_GROUP=/slipway/{settings.name}"),
        head_node_policy_arns=(f"arn:aws:iam::000000000000:policy/parallelcluster/{settings.name}-head-node",),
        compute_policy_arns=(f"arn:aws:iam::000000000000:policy/parallelcluster/{settings.name}-compute",),
    )


def bundle_parameter(settings: Settings) -> str:
    """Return the name of the Systems Manager parameter with the bundle of this cluster's nodes."""
    return f"/slipway/{settings.name}/bundle"


def cluster_configuration(settings: Settings, facts: ClusterFacts) -> dict[str, Any]:
    """ParallelCluster's configuration for `settings`, ready for YAML or for the custom resource."""
    return {
        "Region": settings.region,
        "Image": {"Os": settings.os},
        "Imds": {"ImdsSupport": "v2.0"},
        **_site_iam(settings.iam),
        "Tags": [{"Key": key, "Value": value} for key, value in {**settings.tags, "project": settings.name}.items()],
        "HeadNode": _head_node(settings, facts),
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": _slurm(settings.slurm),
            "SlurmQueues": [_queue(queue, settings, facts) for queue in settings.queues],
        },
        "SharedStorage": _shared_storage(settings, facts),
        "Monitoring": {
            "Logs": {
                "CloudWatch": {
                    "Enabled": True,
                    "RetentionInDays": settings.observability.retention_days,
                    "DeletionPolicy": "Retain",  # the log of a failed creation is what explains it
                }
            },
            "Dashboards": {"CloudWatch": {"Enabled": True}},
            "Alarms": {"Enabled": True},
        },
    }


def _slurm(slurm: Slurm) -> dict[str, Any]:
    part: dict[str, Any] = {
        "ScaledownIdletime": slurm.idle_minutes,
        # The custom resource does not stop the fleet before an update: running jobs are drained instead.
        "QueueUpdateStrategy": "DRAIN",
    }
    if slurm.database:
        database = slurm.database
        part["Database"] = {
            "Uri": f"{database.host}:{database.port}",
            "UserName": database.user,
            "PasswordSecretArn": database.password_secret_arn,
            **({"DatabaseName": database.name} if database.name else {}),
        }
    if slurm.external_slurmdbd:
        part["ExternalSlurmdbd"] = {"Host": slurm.external_slurmdbd.host, "Port": slurm.external_slurmdbd.port}
        part["MungeKeySecretArn"] = slurm.external_slurmdbd.munge_key_secret_arn
    if slurm.settings:
        part["CustomSlurmSettings"] = [{key: value} for key, value in slurm.settings.items()]
    return part


def _head_node(settings: Settings, facts: ClusterFacts) -> dict[str, Any]:
    head = settings.head_node
    ssh = {"KeyName": head.key_pair, "AllowedIps": head.ssh_from or NOBODY}
    return {
        "InstanceType": head.instance_type,
        "Networking": {
            "SubnetId": facts.head_node_subnet_id,
            "AdditionalSecurityGroups": [facts.node_security_group_id, *head.security_group_ids],
        },
        "Ssh": {key: value for key, value in ssh.items() if value},
        "LocalStorage": {"RootVolume": _root_volume(head.root_volume_gib)},
        "CustomActions": {
            "OnNodeConfigured": _configured("head", settings, facts, head.scripts),
            "OnNodeUpdated": _updated(settings, facts),
        },
        "Iam": _iam((*facts.head_node_policy_arns, *head.policy_arns)),
        "Imds": {"Secured": True},
    }


def _queue(queue: Queue, settings: Settings, facts: ClusterFacts) -> dict[str, Any]:
    networking: dict[str, Any] = {
        "SubnetIds": [facts.compute_subnet_id],
        "AdditionalSecurityGroups": [facts.node_security_group_id],
    }
    if queue.reservation is None or queue.reservation.kind != "capacity-block":
        # A capacity block places its instances itself; for all others EFA wants the choice written down.
        name = {"Name": queue.placement_group} if isinstance(queue.placement_group, str) else {}
        networking["PlacementGroup"] = {"Enabled": bool(queue.placement_group), **name}
    return {
        "Name": queue.name,
        "CapacityType": _capacity_type(queue),
        "JobExclusiveAllocation": bool(queue.instance.gpus),  # a training job owns its nodes
        "Networking": networking,
        "ComputeSettings": {
            "LocalStorage": {
                "RootVolume": _root_volume(COMPUTE_ROOT_VOLUME_GIB),
                **({"EphemeralVolume": {"MountDir": "/scratch"}} if queue.instance.nvme_gb else {}),
            }
        },
        # Off: its prolog can hang every job start on p4d and p5 (aws-parallelcluster issue 6777).
        "HealthChecks": {"Gpu": {"Enabled": False}},
        "CustomActions": {"OnNodeConfigured": _configured("compute", settings, facts, queue.scripts)},
        "Iam": _iam((*facts.compute_policy_arns, *queue.policy_arns)),
        **({"CustomSlurmSettings": dict(queue.slurm_settings)} if queue.slurm_settings else {}),
        "ComputeResources": [_compute_resource(queue)],
    }


def _capacity_type(queue: Queue) -> str:
    if queue.reservation:
        return CAPACITY_TYPES[queue.reservation.kind]
    return "SPOT" if queue.spot else "ONDEMAND"


def _compute_resource(queue: Queue) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "Name": queue.instance.compute_resource,
        "InstanceType": queue.instance_type,
        "MinCount": queue.min_count,
        "MaxCount": queue.max_count,
        "Efa": {"Enabled": queue.efa},
    }
    if queue.reservation:
        resource["CapacityReservationTarget"] = {"CapacityReservationId": queue.reservation.id}
    if queue.instance.sockets and queue.instance.cores_per_socket:
        # ParallelCluster states CPUs only, and slurmd then finds another shape (aws-parallelcluster issues 5797, 6020).
        resource["CustomSlurmSettings"] = {
            "Sockets": queue.instance.sockets,
            "CoresPerSocket": queue.instance.cores_per_socket,
            "ThreadsPerCore": THREADS_PER_CORE,
        }
    return resource


def _root_volume(size_gib: int) -> dict[str, Any]:
    return {"Size": size_gib, "VolumeType": "gp3", "Encrypted": True}


def _configured(kind: str, settings: Settings, facts: ClusterFacts, scripts: Sequence[Script]) -> dict[str, Any]:
    """The same for every bundle: ParallelCluster refuses any change of it on an existing head node.

    On the queues a change would replace every node. What the nodes are to run is in the parameter.
    """
    action: dict[str, Any] = {"Script": facts.script_url, "Args": [kind, settings.region, bundle_parameter(settings)]}
    if not scripts:
        return action
    return {"Sequence": [action, *(_script(script) for script in scripts)]}


def _updated(settings: Settings, facts: ClusterFacts) -> dict[str, Any]:
    """Return OnNodeUpdated. Trailing arguments exist so that a new bundle or value counts as a changed action."""
    arguments = ["head", settings.region, bundle_parameter(settings), facts.bundle_sha256, *facts.node_arguments]
    return {"Script": facts.script_url, "Args": arguments}


def _script(script: Script) -> dict[str, Any]:
    return {"Script": script.url, **({"Args": list(script.arguments)} if script.arguments else {})}


def _iam(policy_arns: tuple[str, ...]) -> dict[str, Any]:
    """Permissions are managed policies with exact resources; S3Access would open whole buckets."""
    return {"AdditionalIamPolicies": [{"Policy": arn} for arn in policy_arns]}


def _site_iam(iam: Iam) -> dict[str, Any]:
    """What the account asks of ParallelCluster's roles."""
    asked = {"PermissionsBoundary": iam.permissions_boundary, "ResourcePrefix": iam.name_prefix}
    return {"Iam": {key: value for key, value in asked.items() if value}} if iam.is_site else {}


def _shared_storage(settings: Settings, facts: ClusterFacts) -> list[dict[str, Any]]:
    """File system and /home by their ids: ParallelCluster would delete what it made, or keep it out of reach."""
    shared: list[dict[str, Any]] = [
        {
            "Name": "fsx",
            "StorageType": "FsxLustre",
            "MountDir": FSX_MOUNT,
            "FsxLustreSettings": {"FileSystemId": facts.file_system_id},
        }
    ]
    shared += [_mount(index, mount) for index, mount in enumerate(settings.storage.mounts, start=1)]
    home = settings.storage.home
    if home.kind == "ebs":
        # Without a deployment there is no volume yet; a configuration to look at says which one there will be.
        new = {**_root_volume(home.size_gib or 0), "DeletionPolicy": "Retain"}
        shared.append(
            {
                "Name": "home",
                "StorageType": "Ebs",
                "MountDir": "/home",
                "EbsSettings": {"VolumeId": facts.home_volume_id} if facts.home_volume_id else new,
            }
        )
    return shared


def _mount(number: int, mount: Mount) -> dict[str, Any]:
    storage_type, part, key = MOUNT_KINDS[mount.kind]
    return {"Name": f"mount{number}", "StorageType": storage_type, "MountDir": mount.path, part: {key: mount.id}}
