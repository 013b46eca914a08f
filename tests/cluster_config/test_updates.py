"""Which change of the settings a standing cluster takes: ParallelCluster's own classes say so for each kind of change.

docs/updates.md holds the table. ``SLIPWAY_UPDATE_GOLDEN=1`` writes it anew.
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
from slipway.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
PCLUSTER_PYTHON = ROOT / ".venv-pcluster/bin/python"
PAGE = ROOT / "docs/updates.md"
BEGIN, END = "<!-- table of tests/cluster_config/test_updates.py -->\n", "<!-- end of table -->"
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

OTHER_HOME = {"kind": "ebs", "volume_id": "vol-0123456789abcdef1"}
MOUNT = {"path": "/more", "kind": "efs", "id": "fs-0123456789abcdef2"}

# What ParallelCluster says of a change, for people.
TAKEN = "taken while jobs run"
REPLACED = "taken; the queue's nodes are drained and replaced, each after its jobs"
STOP = "only with the compute fleet stopped"
REFUSED = "refused: a new cluster"
NOTHING = "not a matter of ParallelCluster"


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of change. ``scripts``: it is one of the bundle alone, made by other scripts than these."""

    what: str
    change: Callable[[dict[str, Any]], Any]
    verdict: str
    accepted_again: bool = False
    scripts: bool = False


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data.setdefault(key, {}) if isinstance(data, dict) else data[key]  # type: ignore[assignment]
        data[path[-1]] = value  # type: ignore[index]

    return change


def drop_queue(data: dict[str, Any]) -> None:
    data["queues"].pop()


TRAIN, PREPARE, SMALL = ("queues", 0), ("queues", 1), ("queues", 2)
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
SCRIPT = {"url": "s3://site-scripts/harden.sh"}
CASES = (
    Case("`images`", put("images", value=["docker://nvcr.io#nvidia/nemo:24.01"]), TAKEN),
    Case("`acceptance.limits`", put("acceptance", value={"limits": [LIMIT]}), TAKEN, accepted_again=True),
    Case("`acceptance.iterations`, sizes, time-out", put("acceptance", "iterations", value=50), TAKEN, True),
    Case("`nccl` (source, versions, environment)", put("nccl", "source", value="shared"), TAKEN, True),
    Case("scripts, templates and steps of a new release of Slipway", lambda _: None, TAKEN, scripts=True),
    Case("`software_mirror`, `ngc_secret_arn`", put("software_mirror", value="s3://mirror/slipway/"), TAKEN),
    Case("`observability.retention_days`", put("observability", "retention_days", value=30), TAKEN),
    Case("`observability.grafana`, `alert_email`, `budget`", put("observability", "grafana", value=True), NOTHING),
    Case("`iam.permissions_boundary`", put("iam", "permissions_boundary", value=BOUNDARY), TAKEN),
    Case("`iam.name_prefix`", put("iam", "name_prefix", value="team-"), REFUSED),
    Case("`tags`", put("tags", "team", value="operations"), TAKEN),
    Case("`head_node.ssh_from`", put("head_node", "ssh_from", value="198.51.100.0/24"), TAKEN),
    Case("`head_node.instance_type`", put("head_node", "instance_type", value="m5.16xlarge"), REFUSED),
    Case("`head_node.root_volume_gib`", put("head_node", "root_volume_gib", value=300), REFUSED),
    Case("`head_node.key_pair`", put("head_node", "key_pair", value="others"), REFUSED),
    Case("`head_node.scripts`", put("head_node", "scripts", value=[SCRIPT]), REFUSED),
    Case(
        "`head_node.policy_arns`",
        put("head_node", "policy_arns", value=["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"]),
        TAKEN,
    ),
    Case(
        "`head_node.security_group_ids`", put("head_node", "security_group_ids", value=["sg-0123456789abcdef1"]), TAKEN
    ),
    Case("a queue more", lambda data: data["queues"].append(QUEUE), TAKEN),
    Case("a queue less", drop_queue, STOP),
    Case("`queues[].max_count` up", put(*PREPARE, "max_count", value=16), TAKEN),
    Case("`queues[].max_count` down", put(*PREPARE, "max_count", value=4), STOP),
    Case("`queues[].count` up", put(*TRAIN, "count", value=6), TAKEN, True),
    Case("`queues[].count` down", put(*TRAIN, "count", value=2), STOP, True),
    Case("`queues[].instance_type`", put(*TRAIN, "instance_type", value="p5en.48xlarge"), STOP, True),
    Case("`queues[].reservation`", put(*TRAIN, "reservation", "id", value="cr-0123456789abcdef1"), REPLACED),
    Case("`queues[].efa`", put(*SMALL, "efa", value=True), REPLACED),
    Case("`queues[].placement_group`", put(*PREPARE, "placement_group", value=True), REPLACED),
    Case("`queues[].spot`", put(*PREPARE, "spot", value=True), REPLACED),
    Case("`queues[].scripts`", put(*TRAIN, "scripts", value=[SCRIPT]), REPLACED),
    Case("`queues[].slurm_settings`", put(*TRAIN, "slurm_settings", value={"MaxNodes": 4}), TAKEN),
    Case("`slurm.idle_minutes`", put("slurm", "idle_minutes", value=20), STOP),
    Case("`slurm.settings`", put("slurm", "settings", value={"SlurmdTimeout": 600}), TAKEN),
    Case("`storage.home.size_gib`", put("storage", "home", "size_gib", value=800), NOTHING),
    Case("`storage.home.volume_id`", put("storage", "home", value=OTHER_HOME), REFUSED),
    Case("`storage.home.kind`", put("storage", "home", value={"kind": "head-node"}), REFUSED),
    Case("`storage.mounts`: one more or less", lambda data: data["storage"]["mounts"].append(MOUNT), TAKEN),
    Case("`storage.mounts[].path`", put("storage", "mounts", 0, "path", value="/other"), STOP),
    Case(
        "`storage.fsx.file_system_id`", put("storage", "fsx", "file_system_id", value="fs-0123456789abcdef9"), REFUSED
    ),
    Case("`network` (subnets)", put("network", "compute_subnet_id", value="subnet-0123456789abcdef9"), REPLACED),
    Case("`os`", put("os", value="ubuntu2404"), REFUSED, True),
    Case("`region`, `zone`", put("region", value="us-east-2"), REFUSED),
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
    facts = dataclasses.replace(placeholder_facts(settings), bundle_sha256=digest)
    if settings.storage.home.kind == "ebs" and not settings.storage.home.volume_id:
        facts = dataclasses.replace(facts, home_volume_id="vol-0123456789abcdef0")  # that of the storage stack
    return cluster_configuration(settings, facts)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(SETTINGS, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Settings]:
    folder, made = tmp_path_factory.mktemp("changed"), {}
    for case in CASES:
        data = copy.deepcopy(SETTINGS)
        case.change(data)
        if case.what.startswith("`region`"):
            data["zone"] = "us-east-2a"
        if case.what.startswith("`observability.grafana`"):
            data["observability"]["alert_email"] = "operators@example.com"
        made[case.what] = settings_of(data, folder)
    return made


@pytest.fixture(scope="module")
def answers(base: Settings, changed: dict[str, Settings]) -> dict[str, str]:
    if not PCLUSTER_PYTHON.exists():
        pytest.skip("needs .venv-pcluster (make setup-rehearsal)")
    old = configuration_of(base)
    return ask({case.what: (old, configuration_of(changed[case.what], "other" * case.scripts)) for case in CASES})


def ask(pairs: dict[str, tuple[Any, Any]]) -> dict[str, str]:
    """ParallelCluster's verdict on each pair, in the words of the page.

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
        return NOTHING
    if not _allowed(stopped):
        return REFUSED
    if not _allowed(running):
        return STOP
    return TAKEN if _allowed(undrained) else REPLACED


def _allowed(changes: list[Change]) -> bool:
    return all(change.is_allowed for change in changes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_what_parallelcluster_says(case: Case, answers: dict[str, str]) -> None:
    assert answers[case.what] == case.verdict


@pytest.mark.parametrize(
    ("part", "expected"),
    [(("HeadNode",), REFUSED), (("Scheduling", "SlurmQueues", 0), REPLACED)],
    ids=["head", "queue"],
)
def test_why_the_bundle_stands_in_a_parameter(base: Settings, part: tuple[Any, ...], expected: str) -> None:
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_what_is_accepted_again(case: Case, base: Settings, changed: dict[str, Settings]) -> None:
    assert (acceptance_basis(changed[case.what]) != acceptance_basis(base)) is case.accepted_again


def test_the_page_says_the_same() -> None:
    rows = [f"| {case.what} | {case.verdict} | {'yes' if case.accepted_again else ''} |" for case in CASES]
    table = "\n".join(["| change | a standing cluster | accepted again |", "|---|---|---|", *rows]) + "\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")
        found = table
    assert found == table, "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/cluster_config/test_updates.py"
