"""No settings file, however wrong, ends in a traceback: 5,000 generated and mutated ones, the same in every run.

For each: faults and warnings are well formed, the rules they name exist, no text steers a terminal, and it is quick.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from slipway.errors import SettingsError
from slipway.settings import Examination, Settings, examine, examine_source
from slipway.settings.bad_files import FOLDER
from slipway.settings.check import REASONS_BY_NAME
from slipway.settings.model import part_in
from slipway.settings.source import parse_source
from slipway.text import UNSHOWN

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = [file.read_text(encoding="utf-8") for file in sorted((REPOSITORY / "clusters").glob("*.yaml"))]
SOURCES += [file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.yaml")) if file.stem != "file-encoding"]
TREES, MUTATIONS, BYTES = 500, 4200, 300
MOST_SECONDS = 2.0  # of CPU for a file; the usual one takes milliseconds

WILD = [
    "", "null", "~", "true", "yes", "-1", "0", "1e309", ".inf", "-.inf", ".nan", "9" * 400, "0x" + "f" * 400, "0o7", "1_000",
    "'", '"', "[", "]", "{", "}", "[]", "{}", "- ", "? ", ": ", "&a", "*a", "<<: *a", "!!python/object:os.system ls", "!x", "%YAML 1.1",
    "---", "...", "|", ">", "# x", "\t", "\r", "\x00", "\x1b[31m", "\x07", "\u2028", "\u202e", "\ufeff", "\U0001f680", "ä", "\\ud800",
    '"\\ud800"', '"\\x00"', '"\\u202e"', "a" * 5000, "x: " * 30, "[" * 30, "2026-02-30", "2026-11-27", "10.0.0.0/33", "cr-" + "0" * 17,
    "p5.48xlarge", "us-east-1", "docker://", "s3://", "arn:aws:secretsmanager:", "nvapi-" + "x" * 40, "AKIA" + "A" * 16, "name", "queues", "count: 5",
]  # fmt: skip


def look(text: str) -> Examination:
    try:
        return examine_source(parse_source("fuzz.yaml", text))
    except SettingsError as error:
        return Examination(None, error.faults, ())


def hold(found: Examination, seconds: float) -> None:
    """What is true of every answer."""
    assert seconds < MOST_SECONDS
    assert (found.settings is None) == bool(found.faults)
    for kind, faults in (("fault", found.faults), ("warning", found.warnings)):
        for fault in faults:
            assert fault.file
            assert fault.line >= 0
            assert fault.severity == kind
            assert fault.rule_name in REASONS_BY_NAME, fault
            assert not UNSHOWN.search(str(fault)), fault
            assert str(fault).encode("utf-8")
            json.dumps(fault.as_dict())


def check(text: str) -> None:
    began = time.process_time()
    found = look(text)
    hold(found, time.process_time() - began)


# --- trees: what a program would write


def _words() -> list[str]:
    """Every key of the settings."""
    found: set[str] = set()

    def walk(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            found.add(name)
            inner = part_in(field.annotation)
            if inner:
                walk(inner)

    walk(Settings)
    return sorted(found)


GOOD_VALUES = [
    "demo", "us-east-1", "us-east-1a", "p5.48xlarge", "g6.xlarge", "c5.large", "capacity-block", "on-demand", "cr-0123456789abcdef0",
    "10.0.0.0/16", "vpc-0123456789abcdef0", "subnet-0123456789abcdef0", "fs-0123456789abcdef0", "scratch-1", "ebs", "efs", "16MiB", "16GiB",
    "shared", "v2.28.7-1", "v1.17.2-aws", "s3://bucket/script.sh", "arn:aws:iam::aws:policy/X", "all_reduce", "/datasets", "datasets/", "/",
    "docker://nvcr.io#nvidia/pytorch:24.01-py3", "2026-11-27", "a@b.example", 0, 1, 4, 64, 65, 1200, 2400, 5000, 250, True, False, None,
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(GOOD_VALUES),
    st.text(max_size=20),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.booleans(),
)
KEYS = st.one_of(st.sampled_from(_words()), st.text(max_size=8))
NODES = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=40,
)
BASE = {
    "name": "demo",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "queues": [{"name": "train", "instance_type": "p5.48xlarge", "count": 4, "efa": True}],
}


def _typed(model: type[BaseModel], depth: int = 0) -> st.SearchStrategy[Any]:
    """A table with the keys that it may have, and values that mostly have nothing to do with them."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in model.model_fields.items():
        inner = part_in(field.annotation)
        own = _typed(inner, depth + 1) if inner and depth < 4 else VALUES
        fields[name] = (
            st.one_of(st.lists(own, max_size=3), own, VALUES)
            if "tuple" in str(field.annotation)
            else st.one_of(own, VALUES)
        )
    return st.fixed_dictionaries({}, optional=fields)


TABLES = st.one_of(
    st.dictionaries(KEYS, NODES, max_size=10),
    _typed(Settings),
    _typed(Settings).map(lambda table: {**table, **BASE}),
    _typed(Settings).map(lambda table: {**BASE, **table}),
)


@seed(20261127)
@settings(max_examples=TREES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(TABLES)
def test_generated_trees(table: dict[str, Any]) -> None:
    check(json.dumps(table))  # JSON is YAML, but for numbers without end and NaN, which are wild values too


# --- mutations: what a person's hand does to a good file


def _insert(r: random.Random, text: str) -> str:
    place = r.randrange(len(text) + 1)
    return text[:place] + r.choice(WILD) + text[place:]


def _delete(r: random.Random, text: str) -> str:
    place = r.randrange(len(text) + 1)
    return text[:place] + text[place + r.randrange(1, 30) :]


def _swap(r: random.Random, text: str) -> str:
    lines = text.split("\n")
    one, other = r.randrange(len(lines)), r.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _value(r: random.Random, text: str) -> str:
    lines = text.split("\n")
    place = r.randrange(len(lines))
    head, colon, _ = lines[place].partition(": ")
    lines[place] = f"{head}{colon}{r.choice(WILD)}" if colon else lines[place] + r.choice(WILD)
    return "\n".join(lines)


def _repeat(r: random.Random, text: str) -> str:
    lines = text.split("\n")
    place = r.randrange(len(lines))
    return "\n".join(lines[:place] + lines[place : place + 3] * r.randrange(2, 4) + lines[place + 3 :])


def _indent(r: random.Random, text: str) -> str:
    lines = text.split("\n")
    place = r.randrange(len(lines))
    lines[place] = lines[place][1:] if r.random() < 0.5 else " " * r.randrange(1, 5) + lines[place]
    return "\n".join(lines)


def _key(r: random.Random, text: str) -> str:
    lines = text.split("\n")
    place = r.randrange(len(lines))
    lines[place] = lines[place].replace(r.choice("aeinost"), r.choice("aeinost_-."), 1)
    return "\n".join(lines)


def _flip(r: random.Random, text: str) -> str:
    place = r.randrange(len(text))
    return (
        text[:place]
        + chr(r.choice((r.randrange(128), r.randrange(0xD7FF), r.randrange(0xE000, 0x110000))))
        + text[place + 1 :]
    )


MUTATIONS_OF_TEXT: list[Callable[[random.Random, str], str]] = [
    _insert,
    _delete,
    _swap,
    _value,
    _value,
    _repeat,
    _indent,
    _key,
    _flip,
]


@pytest.mark.timeout(120)
def test_mutated_files() -> None:
    r = random.Random(20261127)  # noqa: S311 (the same files in every run)
    for _ in range(MUTATIONS):
        text = r.choice(SOURCES)
        for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
            text = r.choice(MUTATIONS_OF_TEXT)(r, text) if text else r.choice(WILD)
        check(text)


@pytest.mark.timeout(120)
def test_mutated_bytes(tmp_path: Path) -> None:
    r = random.Random(20261128)  # noqa: S311 (the same files in every run)
    file = tmp_path / "fuzz.yaml"
    for _ in range(BYTES):
        data = bytearray(r.choice(SOURCES).encode("utf-8"))
        for _ in range(r.randrange(1, 8)):
            data[r.randrange(len(data))] = r.randrange(256)
        file.write_bytes(data)
        began = time.process_time()
        found = examine(file)
        hold(found, time.process_time() - began)


@pytest.mark.parametrize(
    "text",
    [
        "name: " + "a" * 900_000,
        "queues:\n" + "  - {name: q, instance_type: p5.48xlarge, count: 1, efa: true}\n" * 3000,
        "tags: {" + ", ".join(f"k{number}: v" for number in range(8000)) + "}",
        "images: [" + ", ".join(["x"] * 20_000) + "]",
        "".join(f"key{number}: 1\n" for number in range(5000)),
        "storage: {associations: ["
        + ", ".join(f"{{path: /d{number}, prefix: p{number}/}}" for number in range(2000))
        + "]}",
    ],
    ids=["long word", "many queues", "many tags", "many images", "many keys", "many associations"],
)
def test_a_large_file_does_not_take_for_ever(text: str) -> None:
    began = time.process_time()
    found = look(text)
    assert found.faults
    assert time.process_time() - began < 30
