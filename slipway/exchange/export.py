"""``slipway export``: the cluster in the form of another tool, before a deployment or with a deployed one's ids."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.cluster_config import ClusterFacts, cluster_configuration, placeholder_facts
from slipway.errors import EXIT_GOOD, UsageError
from slipway.exchange import runbook_variables as runbook
from slipway.exchange.pcluster_file import spell
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
    """Write ParallelCluster's configuration of the settings in ``file`` to ``output`` (None: standard output).

    As YAML it ends in a block of comments with what ParallelCluster has no key for; ``as_json`` is without. Before a
    deployment ids that only it knows are placeholders, each named on stderr by its path. With ``deployed`` they are
    read from the stacks (``session``: a boto3 session); raises SlipwayError when those are not there or not complete,
    EnvironmentFault when AWS does not answer. Raises SettingsError for bad settings, UsageError for an existing output
    without ``force``.
    """
    refuse_existing(output, force)
    settings = load_settings(file)
    deployment = _deployment(settings, session) if deployed else None
    facts = deployment.facts if deployment else placeholder_facts(settings)
    configuration = cluster_configuration(settings, facts)
    text = json.dumps(configuration, indent=2) + "\n" if as_json else configuration_text(settings, facts)
    _write(text, output, force)
    if deployment is None:
        for line in _placeholders(settings, facts):
            print(redacted(line), file=sys.stderr)
    return EXIT_GOOD


def configuration_text(settings: Settings, facts: ClusterFacts) -> str:
    """The configuration as YAML with its block of comments."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1 << 20  # a folded value is harder to compare and to edit
    stream = io.StringIO()
    yaml.dump(_quoted(cluster_configuration(settings, facts)), stream)
    return f"{stream.getvalue()}\n{block_text(settings, facts)}"


def _quoted(node: Any) -> Any:
    """With quotes around text that ParallelCluster, which reads YAML 1.1, takes for something else: 12:30, on, 1_0."""
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
    texts: dict[str, str] = {}
    for name in _unknown(settings):
        value = getattr(facts, name)
        texts |= dict.fromkeys(value if isinstance(value, tuple) else (value,), NAMES[name])
    leaves = _leaves(cluster_configuration(settings, facts), ())
    return {spell(path): texts[leaf] for path, leaf in leaves if leaf in texts}


def _unknown(settings: Settings) -> set[str]:
    """The facts that the settings do not say themselves."""
    said = {
        "head_node_subnet_id": settings.network.head_node_subnet_id,
        "compute_subnet_id": settings.network.compute_subnet_id,
        "node_security_group_id": settings.network.security_group_id,
        "file_system_id": settings.storage.fsx.file_system_id,
    }
    return {name for name in NAMES if not said.get(name)}


def _leaves(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _leaves(value, (*path, index))
    else:
        yield path, node


def _placeholders(settings: Settings, facts: ClusterFacts) -> list[str]:
    found = placeholders(settings, facts)
    lines = [f"  {path}: {what}" for path, what in found.items()]
    count = len(lines)
    return [
        f"{count} placeholders stand for what only a deployment knows; --deployed reads it from the stacks:",
        *lines,
    ]


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
    """Write the settings in ``file`` as the runbook's variables to ``output`` (None: standard output).

    The variables have room for one ``queue``: its name, or None for the first with GPUs. With ``deployed`` the ids and
    the metrics address come from the stacks; what nobody can say is named on stderr. Errors as ``export_pcluster``, and
    UsageError for a queue that is not there. ``as_json`` prints {"variables": {...}, "unknown": {name: why}}.
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
    """Every variable of the runbook with its value; None for what is not known."""
    network, facts = settings.network, deployment.facts if deployment else None
    home = next((one.id for one in settings.storage.mounts if (one.kind, one.path) == runbook.HOME_MOUNT), None)
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
    return next((one.removeprefix(key) for one in arguments if one.startswith(key)), None) or None


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
