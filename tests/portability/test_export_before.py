"""Before a deployment: what is written has ParallelCluster's form, and every placeholder is named."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from ruamel.yaml import YAML

from slipway.cluster_config import cluster_configuration, placeholder_facts
from slipway.errors import SettingsError, UsageError
from slipway.exchange.export import configuration_text, export_pcluster, placeholders
from slipway.exchange.pcluster_file import from_dictionary, spell
from slipway.files import write_whole
from slipway.settings import load_settings
from tests.portability.strategies import loaded, settings_tables

ROOT = Path(__file__).resolve().parents[2]
PCLUSTER_PYTHON = ROOT / ".venv-pcluster/bin/python"
EXAMPLES = [*sorted((ROOT / "clusters").glob("*.yaml")), ROOT / "tests/stacks/every-part.yaml"]
needs_pcluster = pytest.mark.skipif(not PCLUSTER_PYTHON.exists(), reason="needs pcluster: make setup-pcluster")

# Reads {name: text of a configuration file}, prints {name: error or null}: ParallelCluster's own schema, no AWS.
LOAD = """
import json, logging, sys, yaml
logging.disable(logging.CRITICAL)
from pcluster.schemas.cluster_schema import ClusterSchema
verdicts = {}
for name, text in json.load(sys.stdin).items():
    try:
        ClusterSchema(cluster_name="ml").load(yaml.safe_load(text))
        verdicts[name] = None
    except Exception as error:
        verdicts[name] = f"{type(error).__name__}: {error}"
json.dump(verdicts, sys.stdout)
"""


def judged(texts: dict[str, str]) -> dict[str, str | None]:
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [str(PCLUSTER_PYTHON), "-c", LOAD],
        input=json.dumps(texts),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    verdicts: dict[str, str | None] = json.loads(done.stdout)
    return verdicts


def text_of(file: Path) -> str:
    made = load_settings(file)
    return configuration_text(made, placeholder_facts(made))


@needs_pcluster
def test_examples_have_parallelclusters_form() -> None:
    assert judged({file.stem: text_of(file) for file in EXAMPLES}) == {file.stem: None for file in EXAMPLES}


def test_text_stays_text_for_a_reader_of_yaml_1_1(tmp_path: Path) -> None:
    words = ["12:34", "on", "NO", "1_0", "010", "1e5", "=", "0x1f", "2026-01-01", "190:20:30.15", "", "true", "plain"]
    file = tmp_path / "words.yaml"
    tags = "".join(f"  t{number}: '{word}'\n" for number, word in enumerate(words))
    file.write_text(EXAMPLES[0].read_text(encoding="utf-8") + f"\ntags:\n{tags}", encoding="utf-8")
    printed = yaml.safe_load(text_of(file))["Tags"]
    assert [tag["Value"] for tag in printed if tag["Key"].startswith("t")] == words


@needs_pcluster
def test_generated_settings_have_parallelclusters_form() -> None:
    texts: dict[str, str] = {}

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(table=settings_tables())
    def collect(table: dict[str, Any]) -> None:
        made = loaded(table)
        texts[str(len(texts))] = configuration_text(made, placeholder_facts(made))

    collect()
    texts["broken"] = texts["0"].replace("SlurmQueues:", "SlurmQueue:")
    verdicts = judged(texts)
    assert verdicts.pop("broken") is not None  # the check bites
    assert {verdict for verdict in verdicts.values() if verdict} == set()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_id_of_zeros_is_named_by_its_path(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = load_settings(file)
    facts = placeholder_facts(made)
    leaves = from_dictionary(cluster_configuration(made, facts)).leaves
    zeros = {spell(path) for path, value in leaves.items() if isinstance(value, str) and "000000000000" in value}
    found = placeholders(made, facts)
    assert zeros <= set(found)
    assert set(found) <= {spell(path) for path in leaves}
    export_pcluster(file)
    printed = capsys.readouterr().err
    assert printed.splitlines()[0].startswith(f"{len(found)} placeholders for values that only a deployment knows")
    assert [line.strip() for line in printed.splitlines()[1:]] == [f"{path}: {what}" for path, what in found.items()]


def test_ids_that_the_settings_say_are_no_placeholders() -> None:
    made = load_settings(ROOT / "clusters/existing-vpc.yaml")
    named = placeholders(made, placeholder_facts(made))
    assert "HeadNode/Networking/SubnetId" not in named
    assert "Scheduling/SlurmQueues[0]/Networking/SubnetIds[0]" not in named


def test_json_is_the_configuration_alone(capsys: pytest.CaptureFixture[str]) -> None:
    file = ROOT / "clusters/rehearsal.yaml"
    made = load_settings(file)
    assert export_pcluster(file, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == cluster_configuration(made, placeholder_facts(made))


def test_yaml_is_the_same_configuration() -> None:
    file = ROOT / "clusters/rehearsal.yaml"
    made = load_settings(file)
    text = io.StringIO(text_of(file))
    assert YAML(typ="safe", pure=True).load(text) == cluster_configuration(made, placeholder_facts(made))


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [("", UsageError, "is not a file"), (".", UsageError, "is not a file"), ("no/such/folder.yaml", UsageError, "there is no folder .*mkdir -p")],
)  # fmt: skip
def test_places_that_cannot_be_written(tmp_path: Path, name: str, error: type[Exception], words: str) -> None:
    target = tmp_path / name if name else Path()
    with pytest.raises(error, match=words):
        export_pcluster(ROOT / "clusters/rehearsal.yaml", target)


def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"):
        write_whole(tmp_path / "pipe", "text", force=True)
    assert (tmp_path / "pipe").is_fifo()


def test_an_existing_file_is_kept_until_forced(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"exists already\. Hint: --force"):
        export_pcluster(ROOT / "clusters/rehearsal.yaml", target)
    assert target.read_text(encoding="utf-8") == "mine"
    assert export_pcluster(ROOT / "clusters/rehearsal.yaml", target, force=True) == 0
    assert "CAPACITY_BLOCK" in target.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml"]


def test_bad_settings_write_nothing(tmp_path: Path) -> None:
    bad, target = tmp_path / "bad.yaml", tmp_path / "cluster.yaml"
    bad.write_text("name: x\n", encoding="utf-8")
    with pytest.raises(SettingsError):
        export_pcluster(bad, target)
    assert not target.exists()


@needs_pcluster
def test_the_key_tree_is_that_of_the_installed_parallelcluster() -> None:
    script = Path(__file__).with_name("pcluster_schema.py")
    environment = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run(
        [str(PCLUSTER_PYTHON), str(script)], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    committed = (ROOT / "slipway/data/pcluster_schema.json").read_text(encoding="utf-8")
    assert json.loads(done.stdout) == json.loads(committed)
