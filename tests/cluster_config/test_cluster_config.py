"""Settings -> ParallelCluster's configuration: golden files, ParallelCluster's own schema, and the rules that bite."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from slipway.cluster_config import ClusterFacts, cluster_configuration, placeholder_facts
from slipway.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
PCLUSTER_PYTHON = ROOT / ".venv-pcluster/bin/python"
EVERY_PART = ROOT / "tests/stacks/every-part.yaml"
EXAMPLES = [*sorted((ROOT / "clusters").glob("*.yaml")), EVERY_PART]

# Reads {name: configuration}, prints {name: error or null}. Loading makes ParallelCluster's objects, so that values of
# the wrong kind are found as well; no AWS is asked.
LOAD_WITH_PCLUSTER = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from pcluster.schemas.cluster_schema import ClusterSchema
verdicts = {}
for name, configuration in json.load(sys.stdin).items():
    try:
        ClusterSchema(cluster_name="ml").load(configuration)
        verdicts[name] = None
    except Exception as error:
        verdicts[name] = f"{type(error).__name__}: {error}"
json.dump(verdicts, sys.stdout)
"""


def configuration_of(file: Path) -> dict[str, Any]:
    settings = load_settings(file)
    return cluster_configuration(settings, placeholder_facts(settings))


def as_yaml(value: Any) -> str:
    yaml = YAML()
    yaml.width = 120
    text = io.StringIO()
    yaml.dump(value, text)
    return text.getvalue()


def as_cloudformation_sends_it(value: Any) -> Any:
    """CloudFormation hands a custom resource every scalar as a string."""
    if isinstance(value, dict):
        return {key: as_cloudformation_sends_it(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_cloudformation_sends_it(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_with_pcluster(configurations: dict[str, Any]) -> dict[str, str | None]:
    # A region, because ParallelCluster asks for one; keys that are none, so that it stays off the network.
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [str(PCLUSTER_PYTHON), "-c", LOAD_WITH_PCLUSTER],
        input=json.dumps(configurations),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    verdicts: dict[str, str | None] = json.loads(done.stdout)
    return verdicts


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_golden(file: Path) -> None:
    found = as_yaml(configuration_of(file))
    golden = GOLDEN / file.name
    if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
        golden.write_text(found, encoding="utf-8")
    assert golden.is_file(), f"{golden} is missing. Hint: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/cluster_config"
    assert found == golden.read_text(encoding="utf-8"), "if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest tests/cluster_config"


def test_no_golden_file_without_its_example() -> None:
    assert {file.name for file in GOLDEN.iterdir()} == {file.name for file in EXAMPLES}


@pytest.mark.skipif(not PCLUSTER_PYTHON.exists(), reason="needs .venv-pcluster (make setup-rehearsal)")
def test_parallelcluster_loads_every_example_and_refuses_a_wrong_one() -> None:
    configurations = {file.stem: configuration_of(file) for file in EXAMPLES}
    configurations |= {f"{name} as strings": as_cloudformation_sends_it(c) for name, c in configurations.items()}
    wrong = configuration_of(EXAMPLES[0])
    wrong["HeadNode"]["Networkin"] = wrong["HeadNode"].pop("Networking")
    verdicts = load_with_pcluster({**configurations, "wrong": wrong})
    assert "Networkin" in str(verdicts.pop("wrong"))
    assert verdicts == dict.fromkeys(configurations)


@pytest.fixture(scope="module")
def every_part() -> Settings:
    return load_settings(EVERY_PART)


def facts(settings: Settings, **changes: Any) -> ClusterFacts:
    import dataclasses

    return dataclasses.replace(placeholder_facts(settings), **changes)


def queues_of(settings: Settings) -> dict[str, Any]:
    configuration = cluster_configuration(settings, placeholder_facts(settings))
    return {queue["Name"]: queue for queue in configuration["Scheduling"]["SlurmQueues"]}


def test_pure(every_part: Settings) -> None:
    before = every_part.model_dump_json()
    first, second = (cluster_configuration(every_part, placeholder_facts(every_part)) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert every_part.model_dump_json() == before


def test_ssh_is_closed_unless_asked_for(every_part: Settings) -> None:
    closed = every_part.model_copy(
        update={"head_node": every_part.head_node.model_copy(update={"key_pair": None, "ssh_from": None})}
    )
    # ParallelCluster's default for AllowedIps is 0.0.0.0/0: it must always be written.
    assert cluster_configuration(closed, facts(closed))["HeadNode"]["Ssh"] == {"AllowedIps": "127.0.0.1/32"}
    opened = cluster_configuration(every_part, facts(every_part))["HeadNode"]["Ssh"]
    assert opened == {"KeyName": "operators", "AllowedIps": "192.0.2.0/24"}


def test_capacity_types(every_part: Settings) -> None:
    found = {name: queue["CapacityType"] for name, queue in queues_of(every_part).items()}
    assert found == {"train": "ONDEMAND", "prepare": "SPOT", "small": "ONDEMAND"}


def test_capacity_block_has_static_nodes_its_reservation_and_no_placement_group() -> None:
    (train,) = queues_of(load_settings(ROOT / "clusters/rehearsal.yaml")).values()
    (resource,) = train["ComputeResources"]
    assert train["CapacityType"] == "CAPACITY_BLOCK"
    assert "PlacementGroup" not in train["Networking"]
    assert resource["MinCount"] == resource["MaxCount"] == 4
    assert resource["CapacityReservationTarget"] == {"CapacityReservationId": "cr-0123456789abcdef1"}


def test_placement_group_is_always_said_otherwise(every_part: Settings) -> None:
    found = {name: queue["Networking"]["PlacementGroup"]["Enabled"] for name, queue in queues_of(every_part).items()}
    assert found == {"train": False, "prepare": False, "small": True}


def test_only_gpu_nodes_are_exclusive_and_only_known_shapes_are_stated(every_part: Settings) -> None:
    queues = queues_of(every_part)
    assert {name: queue["JobExclusiveAllocation"] for name, queue in queues.items()} == {
        "train": True,
        "prepare": False,
        "small": True,
    }
    shapes = {name: queue["ComputeResources"][0].get("CustomSlurmSettings") for name, queue in queues.items()}
    assert shapes == {
        "train": {"Sockets": 2, "CoresPerSocket": 48, "ThreadsPerCore": 2},
        "prepare": None,
        "small": None,
    }


def test_stated_shape_has_the_cpus_of_the_type(every_part: Settings) -> None:
    stated = [one.instance for one in every_part.queues if one.instance.sockets and one.instance.cores_per_socket]
    assert stated
    for instance in stated:
        assert instance.sockets * instance.cores_per_socket * 2 == instance.vcpus


def test_file_system_and_home_are_mounted_by_their_ids(every_part: Settings) -> None:
    ids = {"file_system_id": "fs-0123456789abcdef0", "home_volume_id": "vol-0123456789abcdef0"}
    fsx, home = cluster_configuration(every_part, facts(every_part, **ids))["SharedStorage"]
    assert fsx["FsxLustreSettings"] == {"FileSystemId": "fs-0123456789abcdef0"}
    assert home["EbsSettings"] == {"VolumeId": "vol-0123456789abcdef0"}


def test_before_a_deployment_a_configuration_says_which_home_there_will_be(every_part: Settings) -> None:
    _, home = cluster_configuration(every_part, facts(every_part, file_system_id="fs-0123456789abcdef0"))[
        "SharedStorage"
    ]
    assert home["EbsSettings"]["DeletionPolicy"] == "Retain"
    assert home["EbsSettings"]["Encrypted"] is True


def test_custom_actions_follow_the_contract_of_load_bundle(every_part: Settings) -> None:
    deployed = facts(every_part, bundle_sha256="f" * 64, node_arguments=("A=1", "B="))
    found = cluster_configuration(every_part, deployed)
    head = found["HeadNode"]["CustomActions"]
    name = ["eu-central-1", f"/slipway/{every_part.name}/bundle"]
    assert head["OnNodeConfigured"]["Args"] == ["head", *name]
    assert head["OnNodeUpdated"]["Args"] == ["head", *name, "f" * 64, "A=1", "B="]
    for queue in found["Scheduling"]["SlurmQueues"]:
        action = queue["CustomActions"]["OnNodeConfigured"]
        assert action["Args"] == ["compute", *name]
        assert action["Script"] == head["OnNodeConfigured"]["Script"] == head["OnNodeUpdated"]["Script"]
