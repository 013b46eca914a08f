"""The settings without a fault (control.yaml), an account that has what they name, and their configuration."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from rehearsal.cloud.existing import FileSystem
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.engine.account import seed_of
from slipway.cluster_config import ClusterFacts, cluster_configuration
from slipway.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
SLIPWAY = ROOT / ".venv/bin/slipway"
PCLUSTER = ROOT / ".venv-pcluster/bin/pcluster"
CONTROL = Path(__file__).with_name("control.yaml")
# What Slipway's stacks have made by the time that ParallelCluster is asked; the script is in the settings' bucket.
SCRIPT = "scripts/bootstrap.sh"
MADE_LUSTRE = "fs-0123456789abcdef9"


def require_environments() -> None:
    """End with a hint when the programs under test are not installed."""
    missing = [str(program) for program in (SLIPWAY, PCLUSTER) if not program.exists()]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}. Hint: make bench-check sets them up")


def prepare(aws: EmbeddedAws) -> None:
    """Empty the account and make all that the settings name."""
    settings = load_settings(CONTROL)
    network, seed = settings.network, seed_of(settings)
    place = (settings.zone, network.compute_subnet_id, network.security_group_id)
    systems = (*seed.file_systems, FileSystem(MADE_LUSTRE, "fsx-lustre", *place))
    scripts = ((str(settings.storage.bucket), SCRIPT, b"#!/bin/bash\n"),)
    aws.reset()
    aws.seed(dataclasses.replace(seed, file_systems=systems, scripts=scripts))


def configuration(file: Path) -> dict[str, Any]:
    """ParallelCluster's configuration of a settings file with what `prepare` made."""
    settings = load_settings(file)
    network = settings.network
    facts = ClusterFacts(
        head_node_subnet_id=str(network.head_node_subnet_id),
        compute_subnet_id=str(network.compute_subnet_id),
        node_security_group_id=str(network.security_group_id),
        file_system_id=MADE_LUSTRE,
        script_url=f"s3://{settings.storage.bucket}/{SCRIPT}",
        bundle_sha256="0" * 64,
        node_arguments=("RESULTS_BUCKET=bench",),
        head_node_policy_arns=(),
        compute_policy_arns=(),
    )
    return cluster_configuration(settings, facts)
