"""The settings that every case starts from, without a fault, and their ParallelCluster configuration."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench.check import account
from bench.check.account import Site
from slipway.cluster_config import ClusterFacts, cluster_configuration
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
SLIPWAY = ROOT / ".venv/bin/slipway"
PCLUSTER = ROOT / ".venv-pcluster/bin/pcluster"


def require_environments() -> None:
    """End with a hint when the programs under test are not installed."""
    missing = [str(program) for program in (SLIPWAY, PCLUSTER) if not program.exists()]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}. Hint: make bench-check sets them up")


def settings(site: Site) -> dict[str, Any]:
    """An existing network, a capacity block, and every optional part that can be wrong."""
    return {
        "name": "bench",
        "region": account.REGION,
        "zone": account.ZONE,
        "os": "ubuntu2204",
        "network": {
            "vpc_id": account.VPC_ID,
            "head_node_subnet_id": account.HEAD_SUBNET_ID,
            "compute_subnet_id": account.COMPUTE_SUBNET_ID,
            "security_group_id": site.security_group_id,
        },
        "head_node": {
            "instance_type": "m5.8xlarge",
            "key_pair": account.KEY_PAIR,
            "ssh_from": "10.0.0.0/8",
            "policy_arns": [site.policy_arn],
        },
        "queues": [
            {
                "name": "train",
                "instance_type": "p5.48xlarge",
                "count": account.NODES,
                "reservation": {"kind": "capacity-block", "id": account.RESERVATION_ID},
                "efa": True,
            },
            {"name": "cpu", "instance_type": "c5.24xlarge", "max_count": 4},
        ],
        "storage": {
            "fsx": {"deployment": "persistent-2", "capacity_gib": 4800, "throughput_mb_s_per_tib": 250},
            "bucket": account.BUCKET,
            "associations": [{"path": "/datasets", "prefix": "datasets/"}],
            "mounts": [{"path": "/shared", "kind": "efs", "id": site.efs_id}],
        },
        "slurm": {
            "database": {
                "host": "db.corp.example.com",
                "user": "slurm",
                "password_secret_arn": account.DATABASE_SECRET,
            },
            "settings": {"SlurmdTimeout": 600},
        },
        "observability": {"prometheus": True, "grafana": True, "retention_days": 30},
        "images": ["docker://nvcr.io#nvidia/pytorch:24.01-py3"],
        "ngc_secret_arn": account.NGC_SECRET,
    }


def write(data: dict[str, Any], file: Path) -> Path:
    """``data`` as a settings file."""
    with file.open("w", encoding="utf-8") as stream:
        YAML().dump(copy.deepcopy(data), stream)
    return file


def configuration(file: Path, site: Site, script_url: str) -> dict[str, Any]:
    """ParallelCluster's configuration of a settings file without faults, with ids of this account."""
    loaded = load_settings(file)
    network = loaded.network
    facts = ClusterFacts(
        head_node_subnet_id=network.head_node_subnet_id or account.HEAD_SUBNET_ID,
        compute_subnet_id=network.compute_subnet_id or account.COMPUTE_SUBNET_ID,
        node_security_group_id=network.security_group_id or site.security_group_id,
        file_system_id=site.fsx_id,
        script_url=script_url,
        bundle_sha256="0" * 64,
        node_arguments=("RESULTS_BUCKET=bench",),
        head_node_policy_arns=(),
        compute_policy_arns=(),
    )
    return cluster_configuration(loaded, facts)
