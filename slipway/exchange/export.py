"""`slipway export`: write the cluster in the form of another tool, with placeholders or with the deployed ids."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.cluster_config import ClusterFacts, cluster_configuration, placeholder_facts
from slipway.errors import EXIT_GOOD, UsageError
from slipway.exchange import runbook_variables as runbook
from slipway.exchange.pcluster_file import from_dictionary, spell
from slipway.exchange.settings_block import block_text
from slipway.files import refuse_existing, write_whole
from slipway.settings import Queue, Settings, load_settings
from slipway.settings.source import redacted

if TYPE_CHECKING:
    from slipway.deployed import Deployment

NAMES = {
    "head_node_subnet_id": "the head node's subnet",
    "compute_subnet_id": "the compute nodes' subnet",
    "node_security_group_id": "the nodes' security group",
    "file_system_id": "the file system",
    "script_url": "the bootstrap script's address",
    "bundle_sha256": "the bundle's sha256",
    "node_arguments": "bucket, metrics address or log group",
    "head_node_policy_arns": "the head node's policies",
    "compute_policy_arns": "the compute nodes' policies",
}


def export_pcluster(
    file: Path | str,
    output: Path | None = None,
    *,
    as_json: bool = False,
    deployed: bool = False,
    force: bool = False,
    session: Any = None,
) -> int:
    """Write ParallelCluster's configuration of the settings in `file` to `output` (None: standard output).

    The YAML ends in a block of comments with what ParallelCluster has no key for; the JSON (`as_json`) has none. Ids
    that only a deployment knows are placeholders, listed on stderr by path, or with `deployed` read from the stacks
    through the boto3 `session`. Raises SlipwayError if the stacks are missing or incomplete, EnvironmentFault if AWS
    does not answer, SettingsError for wrong settings, UsageError for an existing output without `force`.
    """
    refuse_existing(output, force)
    settings = load_settings(file)
    deployment = _deployment(settings, session) if deployed else None
    facts = deployment.facts if deployment else placeholder_facts(settings)
    configuration = cluster_configuration(settings, facts)
    text = json.dumps(configuration, indent=2) + "\n" if as_json else configuration_text(settings, facts)
    _write(text, output, force)
    if deployment is None:
        unknown = placeholders(settings, facts)
        count = f"{len(unknown)} placeholders for values that only a deployment knows"
        print(f"{count}; --deployed reads them from the stacks:", file=sys.stderr)
        for path, what in unknown.items():
            print(redacted(f"  {path}: {what}"), file=sys.stderr)
    return EXIT_GOOD


def configuration_text(settings: Settings, facts: ClusterFacts) -> str:
    """Return the configuration as YAML with its block of comments."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1 << 20  # a folded value is harder to compare and to edit
    stream = io.StringIO()
    yaml.dump(_quoted(cluster_configuration(settings, facts)), stream)
    return f"{stream.getvalue()}\n{block_text(settings, facts)}"


def _quoted(node: Any) -> Any:
    """Quote text that ParallelCluster, which reads YAML 1.1, would take for another type: 12:30, on, 1_0."""
    from ruamel.yaml.scalarstring import SingleQuotedScalarString

    if isinstance(node, dict):
        return {_quoted(key): _quoted(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_quoted(value) for value in node]
    return SingleQuotedScalarString(node) if isinstance(node, str) and not _is_text_in_yaml_1_1(node) else node


def _is_text_in_yaml_1_1(text: str) -> bool:
    from ruamel.yaml.resolver import implicit_resolvers

    first = text[:1]
    return not any(
        (1, 1) in versions and first in firsts and pattern.match(text)
        for versions, _, pattern, firsts in implicit_resolvers
    )


def _deployment(settings: Settings, session: Any) -> Deployment:
    from slipway.deployed import read_deployment  # boto3 is slow to load

    return read_deployment(settings, session)


def _write(text: str, output: Path | None, force: bool) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text, force=force)


def placeholders(settings: Settings, facts: ClusterFacts) -> dict[str, str]:
    """Return each path in the configuration at which a placeholder is, and what it is a placeholder for."""
    in_settings = {
        "head_node_subnet_id": settings.network.head_node_subnet_id,
        "compute_subnet_id": settings.network.compute_subnet_id,
        "node_security_group_id": settings.network.security_group_id,
        "file_system_id": settings.storage.fsx.file_system_id,
    }
    texts: dict[str, str] = {}
    for name, what in NAMES.items():
        if not in_settings.get(name):
            value = getattr(facts, name)
            texts |= dict.fromkeys(value if isinstance(value, tuple) else (value,), what)
    leaves = from_dictionary(cluster_configuration(settings, facts)).leaves
    return {spell(path): texts[leaf] for path, leaf in leaves.items() if leaf in texts}


def export_env(
    file: Path | str,
    output: Path | None = None,
    *,
    queue: str | None = None,
    as_json: bool = False,
    deployed: bool = False,
    force: bool = False,
    session: Any = None,
) -> int:
    """Write the settings in `file` as the runbook's variables to `output` (None: standard output).

    The variables describe one queue: `queue` is its name, or None for the first with GPUs. With `deployed` the ids and
    the metrics address are read from the stacks. Variables without a value are listed on stderr. Raises the errors of
    `export_pcluster`, and UsageError for an unknown queue. The JSON is {"variables": {...}, "unknown": {name: why}}.
    """
    refuse_existing(output, force)
    settings = load_settings(file)
    deployment = _deployment(settings, session) if deployed else None
    values = variables(settings, _chosen(settings, queue), deployment)
    known = {name: str(value) for name, value in values.items() if value is not None}
    unknown = {name: _why(name, deployed) for name, value in values.items() if value is None}
    text = json.dumps({"variables": known, "unknown": unknown}, indent=2) + "\n" if as_json else _export_lines(known)
    _write(text, output, force)
    for name, why in unknown.items():
        print(f"{name}: {why}", file=sys.stderr)
    return EXIT_GOOD


def _export_lines(values: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def _chosen(settings: Settings, name: str | None) -> Queue:
    if name is None:
        return settings.gpu_queue or settings.queues[0]
    chosen = next((queue for queue in settings.queues if queue.name == name), None)
    if chosen is None:
        known = ", ".join(queue.name for queue in settings.queues)
        raise UsageError(f"--queue {name}: the settings have no such queue. Hint: one of {known}")
    return chosen


def variables(settings: Settings, queue: Queue, deployment: Deployment | None) -> dict[str, Any]:
    """Return every variable of the runbook with its value, None if it is not known."""
    network, facts = settings.network, deployment.facts if deployment else None
    home = next((mount.id for mount in settings.storage.mounts if (mount.kind, mount.path) == runbook.HOME_MOUNT), None)
    values = {
        runbook.REGION: settings.region,
        runbook.INSTANCE_TYPE: queue.instance_type,
        runbook.COUNT: queue.max_count,
        runbook.RESERVATION: queue.reservation.id if queue.reservation else None,
        runbook.KEY_PAIR: settings.head_node.key_pair,
        runbook.VPC: network.vpc_id or (deployment and deployment.vpc_id),
        runbook.HEAD_NODE_SUBNET: network.head_node_subnet_id or (facts and facts.head_node_subnet_id),
        runbook.COMPUTE_SUBNET: network.compute_subnet_id or (facts and facts.compute_subnet_id),
        runbook.SECURITY_GROUP: network.security_group_id or (facts and facts.node_security_group_id),
        runbook.LUSTRE: settings.storage.fsx.file_system_id or (facts and facts.file_system_id),
        runbook.HOME_VOLUME: home,
        runbook.REMOTE_WRITE: _remote_write(facts),
    }
    return {name: value for names, value in values.items() for name in names}


def _remote_write(facts: ClusterFacts | None) -> str | None:
    key = "AMP_REMOTE_WRITE_URL="
    arguments = facts.node_arguments if facts else ()
    return next((argument.removeprefix(key) for argument in arguments if argument.startswith(key)), None) or None


def _why(name: str, deployed: bool) -> str:
    if name in runbook.RESERVATION:
        return "left out: the queue has no reservation"
    if name in runbook.KEY_PAIR:
        return "left out: the settings name no key pair; users log in through Session Manager"
    if name in runbook.HOME_VOLUME:
        return "left out: /home is no FSx for OpenZFS volume in the settings"
    if name in runbook.REMOTE_WRITE and deployed:
        return "left out: the cluster has no Amazon Managed Prometheus (observability.prometheus)"
    return "left out: only a deployment knows it; --deployed reads it from the stacks"
