"""The JSON Schema and docs/checks.md are up to date with the code, and the schema takes and refuses what the model does."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from slipway.documentation import generated, main, outdated
from slipway.explain import explanations
from slipway.settings import Settings
from slipway.settings.bad_files import FOLDER as BAD
from slipway.settings.check import FIELD_REASONS
from slipway.settings.forms import FORMS
from slipway.settings.model import all_keys
from slipway.settings.page import description, settings_schema
from slipway.settings.rules import RULES
from slipway.settings.source import read_source
from slipway.user_reports import REPORTED

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPOSITORY / "clusters").glob("*.yaml"))
SCHEMA = json.loads((REPOSITORY / "clusters/settings.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
# What a pattern cannot say: host bits of a network, and in which range it lies.
BEYOND_A_SCHEMA = {"cidr-form", "cidr-private"}


def refusals(data: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(data)]


def test_what_is_generated_is_up_to_date() -> None:
    assert outdated() == [], "run: python -m slipway.documentation"


def test_what_was_reported_is_found_by_rules_and_questions_that_exist() -> None:
    names = {row.name for row in explanations()}
    assert {name for _, _, found_by in REPORTED for name in found_by} <= names
    assert all(found_by and source for _, source, found_by in REPORTED)
    assert len({what for what, _, _ in REPORTED}) == len(REPORTED)
    assert main(["--check"]) == 0


def test_what_is_out_of_date_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(iter(generated()))
    monkeypatch.setattr("slipway.documentation.generated", lambda: {file: "other"})
    assert main(["--check"]) == 1
    assert "docs/settings.md: is out of date" in capsys.readouterr().err


def test_the_schema_is_a_schema_without_noise() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    text = json.dumps(SCHEMA)
    assert '"null"' not in text
    assert "p6-b200.48xlarge" in text
    assert "eu-central-1" in text


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_names_the_schema_and_fits_it(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=settings.schema.json\n")
    assert refusals(read_source(file).data) == []


@pytest.mark.parametrize("rule", [*FIELD_REASONS, *FORMS], ids=lambda rule: rule.name)
def test_the_schema_refuses_what_fields_refuse(rule: Any) -> None:
    data = read_source(BAD / f"{rule.name}.yaml").data
    assert bool(refusals(data)) == (rule.name not in BEYOND_A_SCHEMA)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_schema_takes_what_only_joined_rules_refuse(rule: Any) -> None:
    data = read_source(BAD / f"{rule.name}.yaml").data
    Settings.model_validate(data)
    assert bool(refusals(data)) == (rule.name == "region-unknown")  # the schema names the regions


def _tables(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict):
        yield path
        for key, value in node.items():
            yield from _tables(value, (*path, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _tables(item, (*path, index))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_unknown_keys_are_refused_in_every_table(file: Path) -> None:
    data = read_source(file).data
    for path in _tables(data):
        changed = copy.deepcopy(data)
        table = changed
        for key in path:
            table = table[key]
        table["colour"] = "red"
        assert refusals(changed), path


def test_every_key_is_described_once_in_the_page_and_in_the_schema() -> None:
    keys = {key.path: key for key in all_keys()}
    text = (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8")
    assert all(text.count(f"| `{path}` |") == 1 for path in keys)
    assert all(description(key) for key in keys.values())
    described = settings_schema()
    assert described["properties"]["region"]["description"] == description(keys["region"]).replace("`", "")
    assert described["$defs"]["Queue"]["properties"]["efa"]["description"] == description(keys["queues[].efa"])
    assert described["properties"]["containers"] == {"$ref": "#/$defs/Containers"}
    assert described["$defs"]["Containers"]["description"] == "How the images are imported and run (containers.md)."


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("name", "| **needed** |"),
        ("os", ": `ubuntu2204`, `ubuntu2404`, `alinux2023` | `ubuntu2204` |"),
        ("head_node.root_volume_gib", " (45 to 16384) | 200 |"),
        ("acceptance.limits[].nodes", " (at least 1) | **needed** |"),
        ("queues[].spot", " | `false` |"),
        ("network", " | a new VPC |"),
        ("slurm", " |  |"),
        ("tags", " | none |"),
        ("acceptance.max_bytes", " | `16GiB` |"),
    ],
)
def test_a_row_has_choices_bounds_and_default(path: str, row: str) -> None:
    lines = (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{path}` |")]
    assert line.endswith(row)
