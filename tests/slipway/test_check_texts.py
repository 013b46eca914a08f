"""What is refused in every text of the settings, what counts as a secret, and how a fault shows its line."""

from __future__ import annotations

import hashlib
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.errors import Fault, fault_lines
from slipway.settings import Settings, examine, examine_source
from slipway.settings.model import Key, all_keys, example_of
from slipway.settings.source import holds_secret, parse_source, redacted
from slipway.settings.write import set_at

GOOD = {
    "name": "demo",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "queues": [{"name": "train", "instance_type": "p5.48xlarge", "count": 4, "efa": True, "placement_group": True}],
}
REFERENCE = "{{resolve:secretsmanager:prod-db-password}}"


def _texts() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every key of the model whose value may contain text, with a place for it."""
    for key in all_keys():
        if key.part is None and ("str" in str(key.field.annotation) or "Literal" in str(key.field.annotation)):
            yield key.path, _place(key)


def _place(key: Key) -> tuple[Any, ...]:
    place: list[Any] = []
    for part in key.path.split("."):
        place += [part.removesuffix("[]"), 0] if part.endswith("[]") else [part]
    kind = str(key.field.annotation)
    return (*place, 0) if kind.startswith("tuple[") else (*place, "Key") if kind.startswith("dict[") else tuple(place)


@pytest.mark.parametrize(("path", "place"), list(_texts()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_dynamic_reference_is_refused_in_every_text(path: str, place: tuple[Any, ...]) -> None:
    data: dict[str, Any] = json.loads(json.dumps(GOOD))
    set_at(data, place, REFERENCE)
    result = examine_source(parse_source("demo.yaml", json.dumps(data)))
    at_place = [fault.rule_name for fault in result.faults if fault.message.startswith(_shown(place))]
    assert at_place == ["dynamic-reference"], path


def _shown(place: tuple[Any, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def test_a_dynamic_reference_in_a_key_is_refused() -> None:
    result = examine_source(parse_source("demo.yaml", json.dumps({**GOOD, "tags": {REFERENCE: "x"}})))
    assert [fault.rule_name for fault in result.faults] == ["dynamic-reference"]


def test_there_are_many_texts() -> None:
    assert len(list(_texts())) > 40
    assert example_of(Settings)["name"] == "stand-in"


# ---- secret access keys, which have no prefix

AWS_DOCUMENTATION_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PUBLIC = [
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha1(b"x").hexdigest(),  # noqa: S324 (the form of a git commit)
    f"docker://nvcr.io#nvidia/pytorch@sha256:{hashlib.sha256(b'y').hexdigest()}",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:ngc-AbCdEf",
    "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    "AmazonEC2ContainerRegistryReadOnlyPolicy",  # 40 characters
    "s3://corp-training-data/Datasets/2026/Imagenet/Train01/Shard0001.tar",
    "/fsx/Datasets/Imagenet2012/Train/Shard01",  # 40 characters
    "vpc-0123456789abcdef0",
    "123e4567-e89b-12d3-a456-426614174000",
    "a" * 40,
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmn",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_is_not_taken_for_a_secret(text: str) -> None:
    assert not holds_secret(text)
    assert not holds_secret(f"key: {text} # {text}")
    assert redacted(text) == text


def test_random_secret_access_keys_are_recognised() -> None:
    r = random.Random(20261128)  # noqa: S311 (the same keys in every run)
    keys = ["".join(r.choices(string.ascii_letters + string.digits + "/+", k=40)) for _ in range(2000)]
    missed = [key for key in keys if not holds_secret(f"name: {key}")]
    assert len(missed) <= 4


@pytest.mark.parametrize(
    "place", [("name",), ("observability", "alert_email"), ("tags", "team"), ("storage", "bucket")]
)
def test_a_secret_access_key_is_refused_and_not_repeated(place: tuple[str, ...]) -> None:
    data: dict[str, Any] = json.loads(json.dumps(GOOD))
    set_at(data, place, AWS_DOCUMENTATION_KEY)
    result = examine_source(parse_source("demo.yaml", json.dumps(data, indent=1)))
    assert "secret-value" in [fault.rule_name for fault in result.faults]
    shown = "\n".join((*fault_lines(result.faults, 100), *(json.dumps(fault.as_dict()) for fault in result.faults)))
    assert AWS_DOCUMENTATION_KEY not in shown


# ---- the line of a fault


def _faults(tmp_path: Path, text: str) -> list[Fault]:
    file = tmp_path / "demo.yaml"
    file.write_text(text, encoding="utf-8")
    return list(examine(file).faults)


HEAD = "name: demo\nregion: us-east-1\nzone: us-east-1a\n"
QUEUES = "queues: [{name: train, instance_type: p5.48xlarge, count: 4, efa: true, placement_group: true}]\n"


def test_the_value_is_underlined(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, f"{HEAD}{QUEUES}os: 'ubuntu2004'   # old\n")
    assert str(fault).startswith(f"{tmp_path}/demo.yaml:5:5: os = 'ubuntu2004': must be one of")
    assert fault.excerpt(80) == ["    5 | os: 'ubuntu2004'   # old", "      |     ^^^^^^^^^^^^"]
    assert (fault.as_dict()["line"], fault.as_dict()["column"]) == (5, 5)
    assert "source_line" not in fault.as_dict()


def test_an_unknown_key_is_underlined(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, f"{HEAD}{QUEUES}colour: red\n")
    assert fault.excerpt(80)[1] == "      | ^^^^^^"


def test_a_key_that_is_not_in_the_file_shows_no_line_of_it(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, HEAD.replace("region: us-east-1\n", "") + QUEUES)
    assert str(fault).startswith(f"{tmp_path}/demo.yaml:1:1: region: is missing")
    assert fault.excerpt(80) == []


def test_a_narrow_terminal_shows_the_part_with_the_value(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, HEAD + QUEUES.replace("count: 4", "count: four"))
    line, underline = fault.excerpt(48)
    assert max(len(line), len(underline)) <= 48
    assert line[underline.index("^") :].startswith("four")


def test_wide_and_control_characters_keep_the_underline_in_place(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, f"{HEAD}{QUEUES}tags: {{team: \u7814\u7a76, owner: \u202e}}\n")[1:]
    line, underline = fault.excerpt(80)
    assert (line, underline) == ("    5 | tags: {team: \u7814\u7a76, owner: ?}", "      |                           ^")


@pytest.mark.parametrize(
    "text",
    [
        "ngc_secret_arn: hunter2\n",
        "slurm: {database: {hots: x, user: y, password_secret_arn: hunter2}}\n",
        "colour: red # the password is hunter2\n",
        "colour: {password: hunter2}\n",
        "ngc_secret_arn:\n  x: hunter2\n  password: [hunter2]\n",
        "password: 'hunter2\n",
        "token: !!str hunter2\n",
        f"colour: hunter2 {AWS_DOCUMENTATION_KEY}\n",
    ],
)
def test_a_line_with_a_secret_is_never_shown(tmp_path: Path, text: str) -> None:
    faults = _faults(tmp_path, HEAD + QUEUES + text)
    assert faults
    assert "hunter2" not in "\n".join(line for fault in faults for line in fault.excerpt(100))
