"""The recipes of CONTRIBUTING.md for a setting and for a rule, followed step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from slipway import explain, settings
from slipway.settings import bad_files, check, page
from slipway.settings.model import Settings, all_keys, key
from slipway.settings.rules.rule import Finding, rule
from slipway.settings.source import parse_source

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD = {
    "name": "demo",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "queues": [{"name": "train", "instance_type": "p5.48xlarge", "count": 4, "efa": True, "placement_group": True}],
}


class Extended(Settings):
    """The settings with one more key, as a change of model.py would add it."""

    motd_lines: int = key("lines of the message of the day", default=3, ge=1, le=20)


def test_a_new_setting_is_in_the_page_the_schema_and_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    row = [page._row(one) for one in all_keys(Extended) if one.path == "motd_lines"]
    assert row == ["| `motd_lines` | Lines of the message of the day (1 to 20) | 3 |"]
    monkeypatch.setattr(page, "Settings", Extended)
    schema = jsonschema.Draft7Validator(page.settings_schema())
    assert schema.is_valid({**GOOD, "motd_lines": 5})
    assert not schema.is_valid({**GOOD, "motd_lines": 21})
    result = check.examine_source(parse_source("demo.yaml", json.dumps({**GOOD, "motd_lines": 21})), Extended)
    assert [fault.message for fault in result.faults] == ["motd_lines = 21: must be less than or equal to 20"]


@rule(why="Two letters are used by too many clusters.", source="Slipway", keys=("name",))
def name_too_short(s: Settings) -> Iterator[Finding]:
    if len(s.name) < 3:
        yield ("name",), "is too short to be found in a list", "take three letters or more"


def test_a_new_rule_is_in_the_check_and_its_bad_file_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name-too-short.yaml").write_text(json.dumps({**GOOD, "name": "ab"}), encoding="utf-8")
    monkeypatch.setattr("slipway.settings.rules.RULES", (*check.RULES, name_too_short))
    monkeypatch.setattr(bad_files, "FOLDER", tmp_path)
    monkeypatch.setattr(explain, "REASONS", (*check.REASONS, name_too_short))
    (fault,) = settings.examine(tmp_path / "name-too-short.yaml").faults
    assert fault.rule_name == "name-too-short"
    (row,) = explain.explain("name-too-short")
    assert row.examples == ("name = 'ab': is too short to be found in a list. Hint: take three letters or more",)
    assert "reads name" in str(row)


def test_the_recipes_name_files_that_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text.partition("## Recipes")[2]
    for name in (
        "slipway/settings/model.py",
        "slipway/settings/forms.py",
        "slipway/settings/rules",
        "slipway/settings/bad",
    ):
        assert name in recipes
        assert (REPOSITORY / name).exists()
