"""Which change of the settings a standing cluster takes: ParallelCluster's own classes judge each kind of change.

`SLIPWAY_UPDATE_GOLDEN=1` writes slipway/data/updates.json, of which `make docs` makes the table of docs/updates.md.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rehearsal.engine.update import Change, Pair, compare
from slipway.bundle import acceptance_basis, acceptance_scenario, node_env_values
from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.settings import PARALLELCLUSTER_VERSION, Settings, load_settings
from slipway.settings.model import all_keys
from slipway.updates_page import DATA, Row, own_of, rows

ROOT = Path(__file__).resolve().parents[2]
PCLUSTER_PYTHON = ROOT / ".venv-pcluster/bin/python"
SOURCE = f"aws-parallelcluster {PARALLELCLUSTER_VERSION}: pcluster/config/config_patch.py, pcluster/schemas"
SETTINGS: dict[str, Any] = {
    "name": "ml",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "network": {
        "vpc_id": "vpc-0123456789abcdef0",
        "head_node_subnet_id": "subnet-0123456789abcdef0",
        "compute_subnet_id": "subnet-0123456789abcdef1",
    },
    "head_node": {"instance_type": "m5.8xlarge", "key_pair": "operators", "ssh_from": "192.0.2.0/24"},
    "queues": [
        {
            "name": "train",
            "instance_type": "p5.48xlarge",
            "count": 4,
            "reservation": {"kind": "on-demand", "id": "cr-0123456789abcdef0"},
            "efa": True,
        },
        {"name": "prepare", "instance_type": "c6i.16xlarge", "min_count": 0, "max_count": 8},
        {"name": "small", "instance_type": "g6.12xlarge", "min_count": 0, "max_count": 2},
    ],
    "storage": {
        "bucket": "ml-data",
        "fsx": {"file_system_id": "fs-0123456789abcdef0"},
        "home": {"kind": "ebs", "size_gib": 500},
        "mounts": [{"path": "/shared", "kind": "efs", "id": "fs-0123456789abcdef1"}],
    },
    "observability": {"retention_days": 90},
    "images": ["docker://nvcr.io#nvidia/pytorch:24.01-py3"],
    "slurm": {"settings": {"SlurmdTimeout": 300}},
    "tags": {"team": "research"},
}
LIMIT = {
    "collective": "all_reduce",
    "nodes": 4,
    "size": "1GiB",
    "fail_below_gb_per_s": 250.0,
    "source": "own measurement",
    "date": "2026-11-27",
}
QUEUE = {"name": "more", "instance_type": "g6.12xlarge", "min_count": 0, "max_count": 2}

MOUNT = {"path": "/more", "kind": "efs", "id": "fs-0123456789abcdef2"}

RELEASE = "scripts, templates and steps of a new release of Slipway"
VERSION = "the release of ParallelCluster (`3.16.1` today)"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:slurm-AbCdEf"


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of change of one key. `scripts`: it is one of the bundle alone, made by other scripts than these.

    `before` is done to the settings on both sides: the key that changes needs it.
    """

    key: str
    change: Callable[[dict[str, Any]], Any]
    how: str = ""
    before: Callable[[dict[str, Any]], Any] = lambda _: None
    scripts: bool = False

    @property
    def what(self) -> str:
        return f"{self.key} {self.how}".strip()


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data.setdefault(key, {}) if isinstance(data, dict) else data[key]  # type: ignore[assignment]
        data[path[-1]] = value  # type: ignore[index]

    return change


def both(*changes: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for one in changes:
            one(data)

    return change


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]  # type: ignore[index,assignment]
        del data[path[-1]]  # type: ignore[arg-type]

    return change


TRAIN, PREPARE, SMALL = ("queues", 0), ("queues", 1), ("queues", 2)
SCRIPT = {"url": "s3://site-scripts/harden.sh"}
OTHER_SCRIPT = {"url": "s3://site-scripts/other.sh"}
WITH_ARGUMENT = {"url": "s3://site-scripts/harden.sh", "arguments": ["strict"]}
ROLES = ["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"]
GROUP = "sg-0123456789abcdef1"
NEW_VPC = put("network", value={"cidr": "10.0.0.0/16"})
NEW_FSX = put("storage", "fsx", value={"deployment": "persistent-2", "throughput_mb_s_per_tib": 250})
LINK = {"path": "/datasets", "prefix": "datasets/"}
LINKED = both(NEW_FSX, put("storage", "associations", value=[LINK]))
DATABASE = {"host": "db.internal", "user": "slurm", "password_secret_arn": SECRET}
SLURMDBD = {"host": "dbd.internal", "munge_key_secret_arn": SECRET}
ACCOUNTED, EXTERNAL = put("slurm", "database", value=DATABASE), put("slurm", "external_slurmdbd", value=SLURMDBD)
LIMITED = put("acceptance", value={"limits": [LIMIT]})
HEAD_SCRIPT, QUEUE_SCRIPT = put("head_node", "scripts", value=[SCRIPT]), put(*TRAIN, "scripts", value=[SCRIPT])
DYNAMIC = both(drop(*TRAIN, "count"), put(*TRAIN, "min_count", value=2), put(*TRAIN, "max_count", value=4))
HOME = put("storage", "home", value={"kind": "ebs", "volume_id": "vol-0123456789abcdef0"})
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
MAILED = put("observability", "alert_email", value="operators@example.com")


def limit(name: str, value: Any) -> Case:
    return Case(f"acceptance.limits[].{name}", put("acceptance", "limits", 0, name, value=value), before=LIMITED)


CASES = (
    Case(RELEASE, lambda _: None, scripts=True),
    Case(VERSION, lambda _: None),
    Case("name", put("name", value="ml2")),
    Case("region", both(put("region", value="us-east-2"), put("zone", value="us-east-2a"))),
    Case("zone", put("zone", value="us-east-1b")),
    Case("os", put("os", value="ubuntu2404")),
    Case("network.cidr", put("network", "cidr", value="10.1.0.0/16"), before=both(NEW_VPC, NEW_FSX)),
    Case("network.vpc_id", put("network", "vpc_id", value="vpc-0123456789abcdef1")),
    Case("network.head_node_subnet_id", put("network", "head_node_subnet_id", value="subnet-0123456789abcdef8")),
    Case("network.compute_subnet_id", put("network", "compute_subnet_id", value="subnet-0123456789abcdef9")),
    Case("network.security_group_id", put("network", "security_group_id", value="sg-0123456789abcdef9")),
    Case("head_node.instance_type", put("head_node", "instance_type", value="m5.16xlarge")),
    Case("head_node.root_volume_gib", put("head_node", "root_volume_gib", value=300)),
    Case("head_node.key_pair", put("head_node", "key_pair", value="others")),
    Case("head_node.ssh_from", put("head_node", "ssh_from", value="198.51.100.0/24")),
    Case("head_node.security_group_ids", put("head_node", "security_group_ids", value=[GROUP])),
    Case("head_node.scripts[].url", HEAD_SCRIPT, "one more"),
    Case("head_node.scripts[].url", put("head_node", "scripts", value=[OTHER_SCRIPT]), "another", HEAD_SCRIPT),
    Case("head_node.scripts[].arguments", put("head_node", "scripts", value=[WITH_ARGUMENT]), before=HEAD_SCRIPT),
    Case("head_node.policy_arns", put("head_node", "policy_arns", value=ROLES)),
    Case("queues[].name", lambda data: data["queues"].append(QUEUE), "one more queue"),
    Case("queues[].name", lambda data: data["queues"].pop(), "one queue less"),
    Case("queues[].name", put(*SMALL, "name", value="other"), "another"),
    Case("queues[].instance_type", put(*TRAIN, "instance_type", value="p5en.48xlarge")),
    Case("queues[].count", put(*TRAIN, "count", value=6), "up"),
    Case("queues[].count", put(*TRAIN, "count", value=2), "down"),
    Case("queues[].min_count", put(*PREPARE, "min_count", value=2), "up, with the same `max_count`"),
    Case("queues[].min_count", put(*PREPARE, "min_count", value=0), "down", put(*PREPARE, "min_count", value=2)),
    Case("queues[].max_count", put(*PREPARE, "max_count", value=16), "up"),
    Case("queues[].max_count", put(*PREPARE, "max_count", value=4), "down"),
    Case("queues[].reservation.id", put(*TRAIN, "reservation", "id", value="cr-0123456789abcdef1")),
    Case("queues[].reservation.kind", put(*TRAIN, "reservation", "kind", value="capacity-block")),
    Case(
        "queues[].reservation.hold_minutes",
        put(*TRAIN, "reservation", "hold_minutes", value=10),
        before=put(*TRAIN, "reservation", "kind", value="capacity-block"),
    ),
    Case("queues[].spot", put(*PREPARE, "spot", value=True)),
    Case("queues[].placement_group", put(*PREPARE, "placement_group", value=True)),
    Case("queues[].efa", put(*SMALL, "efa", value=True)),
    Case("queues[].scripts[].url", QUEUE_SCRIPT, "one more"),
    Case("queues[].scripts[].arguments", put(*TRAIN, "scripts", value=[WITH_ARGUMENT]), before=QUEUE_SCRIPT),
    Case("queues[].policy_arns", put(*TRAIN, "policy_arns", value=ROLES)),
    Case("queues[].slurm_settings", put(*TRAIN, "slurm_settings", value={"MaxNodes": 4})),
    Case("storage.fsx.file_system_id", put("storage", "fsx", "file_system_id", value="fs-0123456789abcdef9")),
    Case(
        "storage.fsx.deployment",
        put("storage", "fsx", value={"deployment": "persistent-1", "throughput_mb_s_per_tib": 200}),
        before=NEW_FSX,
    ),
    Case("storage.fsx.capacity_gib", put("storage", "fsx", "capacity_gib", value=9600), "up", NEW_FSX),
    Case(
        "storage.fsx.throughput_mb_s_per_tib", put("storage", "fsx", "throughput_mb_s_per_tib", value=500), "", NEW_FSX
    ),
    Case("storage.fsx.compression", put("storage", "fsx", "compression", value="none"), before=NEW_FSX),
    Case("storage.bucket", put("storage", "bucket", value="ml-other")),
    Case("storage.associations[].path", LINKED, "one more", NEW_FSX),
    Case("storage.associations[].path", drop("storage", "associations"), "one less", LINKED),
    Case("storage.associations[].path", put("storage", "associations", 0, "path", value="/data"), "another", LINKED),
    Case("storage.associations[].prefix", put("storage", "associations", 0, "prefix", value="data/"), "", LINKED),
    Case(
        "storage.associations[].import_changes",
        put("storage", "associations", 0, "import_changes", value=False),
        "",
        LINKED,
    ),
    Case(
        "storage.associations[].export_changes",
        put("storage", "associations", 0, "export_changes", value=True),
        "",
        LINKED,
    ),
    Case("storage.home.kind", put("storage", "home", value={"kind": "head-node"})),
    Case("storage.home.volume_id", put("storage", "home", "volume_id", value="vol-0123456789abcdef1"), before=HOME),
    Case("storage.home.size_gib", put("storage", "home", "size_gib", value=800)),
    Case("storage.mounts[].path", lambda data: data["storage"]["mounts"].append(MOUNT), "one more or less"),
    Case("storage.mounts[].path", put("storage", "mounts", 0, "path", value="/other"), "another"),
    Case("storage.mounts[].kind", put("storage", "mounts", 0, "kind", value="fsx-lustre")),
    Case("storage.mounts[].id", put("storage", "mounts", 0, "id", value="fs-0123456789abcdef5")),
    Case("slurm.idle_minutes", put("slurm", "idle_minutes", value=20)),
    Case("slurm.database.host", ACCOUNTED, "added or removed, with its other keys"),
    Case("slurm.database.host", put("slurm", "database", "host", value="db2.internal"), "another", ACCOUNTED),
    Case("slurm.database.port", put("slurm", "database", "port", value=3307), before=ACCOUNTED),
    Case("slurm.database.user", put("slurm", "database", "user", value="other"), before=ACCOUNTED),
    Case(
        "slurm.database.password_secret_arn",
        put("slurm", "database", "password_secret_arn", value=SECRET.replace("slurm", "other")),
        before=ACCOUNTED,
    ),
    Case("slurm.database.name", put("slurm", "database", "name", value="accounts"), before=ACCOUNTED),
    Case("slurm.external_slurmdbd.host", EXTERNAL, "added or removed, with its other keys"),
    Case("slurm.external_slurmdbd.port", put("slurm", "external_slurmdbd", "port", value=6820), before=EXTERNAL),
    Case(
        "slurm.external_slurmdbd.munge_key_secret_arn",
        put("slurm", "external_slurmdbd", "munge_key_secret_arn", value=SECRET.replace("slurm", "other")),
        before=EXTERNAL,
    ),
    Case("slurm.settings", put("slurm", "settings", value={"SlurmdTimeout": 600})),
    Case("observability.prometheus", put("observability", "prometheus", value=False)),
    Case("observability.grafana", put("observability", "grafana", value=True)),
    Case("observability.retention_days", put("observability", "retention_days", value=30)),
    Case("observability.alert_email", MAILED),
    Case("images", put("images", value=["docker://nvcr.io#nvidia/nemo:24.01"])),
    Case("ngc_secret_arn", put("ngc_secret_arn", value=SECRET)),
    Case("containers.imports_at_once", put("containers", "imports_at_once", value=3)),
    Case("containers.format", put("containers", "format", value="apptainer")),
    Case("containers.compressed", put("containers", "compressed", value=True)),
    Case("containers.pyxis", put("containers", "pyxis", value=False)),
    Case("nccl.source", put("nccl", "source", value="shared")),
    Case(
        "nccl.nccl_version",
        put("nccl", "nccl_version", value="v2.27.5-1"),
        before=put("nccl", "source", value="shared"),
    ),
    Case("nccl.ofi_version", put("nccl", "ofi_version", value="v1.16.3"), before=put("nccl", "source", value="shared")),
    Case("nccl.environment", put("nccl", "environment", value="legacy")),
    Case("health.enabled", put("health", "enabled", value=False)),
    Case("health.drain", put("health", "drain", value=False)),
    Case("health.interval_seconds", put("health", "interval_seconds", value=120)),
    Case("health.terminate_drained_nodes", put("health", "terminate_drained_nodes", value=False)),
    Case("health.replacements_per_day", put("health", "replacements_per_day", value=1)),
    Case("iam.permissions_boundary", put("iam", "permissions_boundary", value=BOUNDARY)),
    Case("iam.name_prefix", put("iam", "name_prefix", value="team-")),
    Case("software_mirror", put("software_mirror", value="s3://mirror/slipway/")),
    Case("acceptance.scenario", put("acceptance", "scenario", value="none")),
    Case("acceptance.nodes", put("acceptance", "nodes", value=4), before=DYNAMIC),
    Case("acceptance.min_bytes", put("acceptance", "min_bytes", value="2MiB")),
    Case("acceptance.max_bytes", put("acceptance", "max_bytes", value="8GiB")),
    Case("acceptance.iterations", put("acceptance", "iterations", value=50)),
    Case("acceptance.drain_percent", put("acceptance", "drain_percent", value=20)),
    Case("acceptance.timeout_minutes", put("acceptance", "timeout_minutes", value=40)),
    limit("collective", "alltoall"),
    limit("nodes", 3),
    limit("size", "2GiB"),
    limit("fail_below_gb_per_s", 260.0),
    limit("warn_below_gb_per_s", 300.0),
    limit("source", "another measurement"),
    limit("date", "2026-11-26"),
    Case("budget.monthly_usd", put("budget", value={"monthly_usd": 1000}), before=MAILED),
    Case("tags", put("tags", "team", value="operations")),
)


def settings_of(data: dict[str, Any], folder: Path) -> Settings:
    file = folder / "ml.yaml"
    with file.open("w", encoding="utf-8") as stream:
        YAML().dump(data, stream)
    return load_settings(file)


def configuration_of(settings: Settings, scripts: str = "") -> dict[str, Any]:
    """With a bundle's hash that differs when what the bundle says differs; `scripts` replaces its programs."""
    said = [node_env_values(settings), list(settings.images), acceptance_scenario(settings), scripts]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return cluster_configuration(settings, dataclasses.replace(placeholder_facts(settings), bundle_sha256=digest))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Settings, Settings]]:
    """The settings before and after each change."""
    folder, made = tmp_path_factory.mktemp("changed"), {}
    for case in CASES:
        data = copy.deepcopy(SETTINGS)
        case.before(data)
        old = settings_of(data, folder)
        case.change(data)
        made[case.what] = (old, settings_of(data, folder))
    return made


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(SETTINGS, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def answers(changed: dict[str, tuple[Settings, Settings]]) -> dict[str, str]:
    if not PCLUSTER_PYTHON.exists():
        pytest.skip("needs .venv-pcluster (make setup-rehearsal)")
    pairs = {}
    for case in CASES:
        old, new = changed[case.what]
        pairs[case.what] = (configuration_of(old), configuration_of(new, "other" * case.scripts))
    return {**ask(pairs), VERSION: "refused"}  # pcluster/api/controllers/common.py, validate_cluster: exact_match


def ask(pairs: dict[str, tuple[Any, Any]]) -> dict[str, str]:
    """ParallelCluster's verdict on each pair, in one word.

    Asked while nodes run, with the fleet stopped, and while nodes run that may not be drained.
    """
    asked: dict[str, Pair] = {}
    for name, (old, new) in pairs.items():
        keeping = copy.deepcopy(new)
        keeping["Scheduling"]["SlurmSettings"].pop("QueueUpdateStrategy")
        asked |= {f"running {name}": Pair(old, new), f"stopped {name}": Pair(old, new, running=False)}
        asked[f"undrained {name}"] = Pair(old, keeping)
    told = compare(asked, PCLUSTER_PYTHON)
    return {name: verdict(*(told[f"{how} {name}"] for how in ("running", "stopped", "undrained"))) for name in pairs}


def verdict(running: list[Change], stopped: list[Change], undrained: list[Change]) -> str:
    if not running:
        return "nothing"
    if not _allowed(stopped):
        return "refused"
    if not _allowed(running):
        return "stop"
    return "taken" if _allowed(undrained) else "replaced"


def _allowed(changes: list[Change]) -> bool:
    return all(change.is_allowed for change in changes)


def rows_now(answers: dict[str, str], changed: dict[str, tuple[Settings, Settings]]) -> list[Row]:
    def again(case: Case) -> bool:
        old, new = changed[case.what]
        return acceptance_basis(old) != acceptance_basis(new)

    return [Row(case.key, case.how, answers[case.what], again(case)) for case in CASES]


def test_the_data_file_is_what_parallelcluster_says(
    answers: dict[str, str], changed: dict[str, tuple[Settings, Settings]]
) -> None:
    made = rows_now(answers, changed)
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        lines = ",\n  ".join(json.dumps(list(dataclasses.astuple(row))) for row in made)
        DATA.write_text(f'{{\n "source": "{SOURCE}",\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    assert rows() == made, "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/cluster_config/test_updates.py; make docs"


def test_no_key_of_the_settings_is_forgotten() -> None:
    known = {row.key for row in rows()}
    missing = [key.path for key in all_keys() if key.part is None and key.path not in known]
    assert missing == [], "add a Case for it to tests/cluster_config/test_updates.py"


def test_what_parallelcluster_does_not_know_is_explained() -> None:
    unexplained = [row.key for row in rows() if row.verdict == "nothing" and not own_of(row.key).text]
    assert unexplained == [], "say in slipway/updates_page.py what Slipway's own stacks do with it"


@pytest.mark.parametrize(
    ("part", "expected"),
    [(("HeadNode",), "refused"), (("Scheduling", "SlurmQueues", 0), "replaced")],
    ids=["head", "queue"],
)
def test_why_the_bundle_is_in_a_parameter(base: Settings, part: tuple[Any, ...], expected: str) -> None:
    """In the arguments of OnNodeConfigured another bundle would be refused, or would replace every node."""
    if not PCLUSTER_PYTHON.exists():
        pytest.skip("needs .venv-pcluster (make setup-rehearsal)")
    old = configuration_of(base)
    new = copy.deepcopy(old)
    node: Any = new
    for key in part:
        node = node[key]
    node["CustomActions"]["OnNodeConfigured"]["Args"].append("f" * 64)
    assert ask({"moved": (old, new)}) == {"moved": expected}
