"""Rules of Slurm: accounting, and which parameters are ParallelCluster's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from slipway.settings.model import Settings
from slipway.settings.rules.rule import COUNT_KEYS, PCLUSTER, Finding, repeated, rule, warning
from slipway.settings.source import Place

# pcluster/validators/slurm_settings_validator.py, SLURM_SETTINGS_DENY_LIST: names without regard to case
DENIED = {
    "epilog", "grestypes", "launchparameters", "prolog", "reconfigflags", "resumefailprogram", "resumeprogram",
    "resumetimeout", "slurmctldhost", "slurmctldlogfile", "slurmctldparameters", "slurmdlogfile", "slurmuser",
    "suspendexcnodes", "suspendprogram", "suspendtime", "taskplugin", "treewidth",
}  # fmt: skip
DENIED_ACCOUNTING = {
    "accountingstoragehost", "accountingstorageport", "accountingstoragetype", "accountingstorageuser",
    "jobacctgathertype",
}  # fmt: skip
DENIED_QUEUE = {"nodes", "oversubscribe", "partitionname", "resumetimeout", "state", "suspendtime"}
NODE_PARTS = ("-st-", "-dy-")  # static and dynamic nodes of ParallelCluster


RDS_HOST = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.rds\.amazonaws\.com(?:\.cn)?$")


def rds_region(host: str) -> str | None:
    """The region of a host of RDS or Aurora, which its name contains; None for another host."""
    form = RDS_HOST.search(host.lower())
    return form[1] if form else None


@rule(
    why="A new VPC has no way into another region: slurmdbd finds no database, and the head node's boot fails.",
    source="RDS user guide, endpoint of a database; aws-parallelcluster-hpc-quickstart issue 119",
    keys=("region", "network", "slurm.database"),
)
def database_region(s: Settings) -> Iterator[Finding]:
    region = rds_region(s.slurm.database.host) if s.slurm.database else None
    if region and region != s.region and s.network.is_new:
        text = f"is a database in {region}, and no way leads there from the new VPC in {s.region}"
        yield ("slurm", "database", "host"), text, "take a database of the cluster's region, or an existing VPC"


JOB_SCRIPTS = {
    word: f"/opt/slurm/etc/scripts/{word}.d, next to ParallelCluster's and Slipway's" for word in ("prolog", "epilog")
}
"""What a site does in place of these parameters: ParallelCluster user guide, Slurm prolog and epilog."""


def _denied(settings: Mapping[str, object], words: set[str], place: Place, owner: str) -> Iterator[Finding]:
    for key in settings:
        if key.lower() in words:
            folder = JOB_SCRIPTS.get(key.lower())
            hint = f"put an executable script into {folder} on the head node" if folder else "leave it out"
            yield (*place, key), f"is a parameter that {owner} sets itself", hint


@rule(
    why="ParallelCluster writes these lines of slurm.conf itself and refuses others.",
    source=f"{PCLUSTER}, CustomSlurmSettingsValidator, SLURM_SETTINGS_DENY_LIST SlurmConf",
    keys=("slurm.settings",),
)
def slurm_denied(s: Settings) -> Iterator[Finding]:
    yield from _denied(s.slurm.settings, DENIED, ("slurm", "settings"), "ParallelCluster")


@rule(
    why="With accounting switched on, ParallelCluster writes these lines too.",
    source=f"{PCLUSTER}, CustomSlurmSettingsValidator, SLURM_SETTINGS_DENY_LIST Accounting",
    keys=("slurm.settings", "slurm.database"),
)
def slurm_denied_accounting(s: Settings) -> Iterator[Finding]:
    if s.slurm.database:
        yield from _denied(s.slurm.settings, DENIED_ACCOUNTING, ("slurm", "settings"), "accounting")


@rule(
    why="ParallelCluster writes these parameters of a partition itself and refuses others.",
    source=f"{PCLUSTER}, CustomSlurmSettingsValidator, SLURM_SETTINGS_DENY_LIST Queue",
    keys=("queues.slurm_settings",),
)
def slurm_denied_queue(s: Settings) -> Iterator[Finding]:
    for index, queue in enumerate(s.queues):
        place: Place = ("queues", index, "slurm_settings")
        yield from _denied(queue.slurm_settings, DENIED_QUEUE, place, "ParallelCluster")


@rule(
    why="ParallelCluster's daemons take every such node for one of theirs and terminate what they do not know.",
    source=f"{PCLUSTER}, CustomSlurmNodeNamesValidator",
    keys=("slurm.settings",),
)
def slurm_node_name(s: Settings) -> Iterator[Finding]:
    for key, value in s.slurm.settings.items():
        if key.lower() == "nodename" and any(part in str(value) for part in NODE_PARTS):
            yield ("slurm", "settings", key), "-st- and -dy- mark ParallelCluster's own nodes", "rename the node"


@warning(
    why="Such a plugin ends slurmctld where topology.conf is missing. ParallelCluster starts slurmctld before "
    "Slipway's scripts and yours run, so the creation fails, and deletes the file when the queues change.",
    source="switch_record.c of Slurm 25.11.7; config_head_node.rb and _block_topology_common.rb of ParallelCluster's "
    "cookbook",
    keys=("slurm.settings",),
)
def topology_plugin(s: Settings) -> Iterator[Finding]:
    for key, value in s.slurm.settings.items():
        if key.lower() == "topologyplugin" and str(value).lower() in ("topology/tree", "topology/block"):
            text = "needs topology.conf when slurmctld starts for the first time"
            yield ("slurm", "settings", key), text, "leave it out: acceptance takes the switches from EC2"


@rule(
    why="Slurm reads its parameters without regard to case: the later line wins, and the file does not "
    "show which one that is.",
    source="slurm.conf manual page",
    keys=("slurm.settings", "queues.slurm_settings"),
)
def slurm_key_twice(s: Settings) -> Iterator[Finding]:
    tables: list[tuple[Place, Mapping[str, object]]] = [(("slurm", "settings"), s.slurm.settings)]
    tables += [(("queues", index, "slurm_settings"), queue.slurm_settings) for index, queue in enumerate(s.queues)]
    for place, table in tables:
        keys = list(table)
        for number, first in repeated(key.lower() for key in keys):
            yield (*place, keys[number]), f"is {keys[first]} again: Slurm ignores case", "keep one of them"


@rule(
    why="Either the head node's slurmdbd writes to a database, or an external slurmdbd does.",
    source=f"{PCLUSTER}, ExternalSlurmdbdVsDatabaseIncompatibility",
    keys=("slurm.database", "slurm.external_slurmdbd"),
)
def accounting_twice(s: Settings) -> Iterator[Finding]:
    if s.slurm.database and s.slurm.external_slurmdbd:
        text = "Slurm keeps its accounting in one place, and database is set too"
        yield ("slurm", "external_slurmdbd"), text, "leave out one of them"


@rule(
    why="slurmctld and slurmdbd trust each other by a common MUNGE key; ParallelCluster makes its own unless "
    "the settings name one.",
    source=f"{PCLUSTER}, ExternalSlurmdbdRequiresCustomMungeKey",
    keys=("slurm.external_slurmdbd",),
)
def slurmdbd_munge_key(s: Settings) -> Iterator[Finding]:
    external = s.slurm.external_slurmdbd
    if external and not external.munge_key_secret_arn:
        text = "needs munge_key_secret_arn: both sides must have one key"
        hint = "the ARN of the secret with the slurmdbd host's MUNGE key, in Base64"
        yield ("slurm", "external_slurmdbd"), text, hint


@warning(
    why="Job names, users and commands are readable on the network between the two.",
    source=f"{PCLUSTER}, ExternalSlurmdbdTrafficNotEncrypted",
    keys=("slurm.external_slurmdbd",),
)
def slurmdbd_in_clear(s: Settings) -> Iterator[Finding]:
    if s.slurm.external_slurmdbd:
        text = "the traffic with an external slurmdbd is not encrypted"
        yield ("slurm", "external_slurmdbd"), text, "keep both in one trusted network"


@warning(
    why="Static nodes never end when they are idle: a user who expects that keeps paying.",
    source="ParallelCluster user guide, ScaledownIdletime: dynamic nodes only",
    keys=("slurm.idle_minutes", *COUNT_KEYS),
)
def idle_without_effect(s: Settings) -> Iterator[Finding]:
    given = "idle_minutes" in s.slurm.model_fields_set
    if given and all(queue.min_count == queue.max_count for queue in s.queues):
        text = "has no effect: every node is static"
        yield ("slurm", "idle_minutes"), text, "leave it out, or give a queue max_count"
