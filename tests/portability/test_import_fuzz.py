"""No configuration, however broken, ends in a traceback, and none loses a value in silence. Seeded and bounded."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from slipway.cluster_config import placeholder_facts
from slipway.errors import SlipwayError
from slipway.exchange.export import configuration_text
from slipway.exchange.import_report import leave_out_refused
from slipway.exchange.ledger import Fate
from slipway.exchange.pcluster_file import read_configuration
from slipway.exchange.pcluster_import import imported
from slipway.settings.write import get_at
from tests.portability.strategies import loaded

FIXTURES = sorted((Path(__file__).parent / "configurations").glob("*.yaml"))
TEXTS = [file.read_text(encoding="utf-8") for file in FIXTURES]
PLAIN = [re.sub(r"(\{your-[^}]*\})", r"'\1'", text) for text in TEXTS]  # in braces they are tables for a plain reader
EXPORTED = loaded(
    {
        "name": "exported",
        "region": "us-east-1",
        "zone": "us-east-1a",
        "queues": [{"name": "train", "instance_type": "p5.48xlarge", "count": 2, "efa": True}],
        "budget": {"monthly_usd": 10**6},
        "observability": {"alert_email": "a@example.com"},
    }
)
FACTS = dataclasses.replace(placeholder_facts(EXPORTED), bundle_sha256="1" * 64)
TEXTS.append(configuration_text(EXPORTED, FACTS))  # with its block, and with facts in it
BOUNDED = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
PIECES = [
    "${X}", "{your-id}", "<x>", "null", "true", "[]", "{}", "-1", "1e400", ".nan", "99999999999999999999999", "!Ref a",
    "*alias", "&a b", "'", '"\\ud800"', "\t", "# slipway: version: 1", "\u2028", "\x07", "{a: {b: c}}", "[[1]]", "- x",
    "Name: x", "s3://b/k", "fs-0123456789abcdef0", "~", "2026-01-01", "0x1f", "a: b",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    lines = draw(st.sampled_from(TEXTS)).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        line, piece = lines[number], draw(st.sampled_from(PIECES) | st.text(max_size=5))
        key, colon, _ = line.partition(": ")
        change = draw(st.sampled_from(["value", "drop", "twice", "insert", "indent", "cut"]))
        if change == "value":
            lines[number] = f"{key}{colon or ': '}{piece}"
        elif change == "drop":
            lines[number] = ""
        elif change == "twice":
            lines[number] = f"{line}\n{line}"
        elif change == "insert":
            place = draw(st.integers(0, len(line)))
            lines[number] = line[:place] + piece + line[place:]
        elif change == "indent":
            lines[number] = f"  {line}" if draw(st.booleans()) else line.removeprefix("  ")
        else:
            lines = lines[: number + 1]
    return "\n".join(lines)


VALUES: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-2, 70) | st.integers(),
    str: st.sampled_from([piece for piece in PIECES if "\\ud" not in piece])
    | st.sampled_from(
        ["p5.48xlarge", "c5.large", "ONDEMAND", "SPOT", "CAPACITY_BLOCK", "FsxLustre", "Ebs", "Efs", "/fsx", "/home"]
    )
    | st.text(max_size=8),
}


@st.composite
def of_the_right_form(draw: st.DrawFn) -> str:
    """A fixture with other values of the same kinds, and parts of it missing."""
    data = YAML(typ="safe", pure=True).load(draw(st.sampled_from(PLAIN)))
    for _ in range(draw(st.integers(1, 8))):
        places = [*_places(data)]
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        if type(holder[key]) in VALUES and draw(st.integers(0, 3)):
            holder[key] = draw(VALUES[type(holder[key])])
        elif draw(st.booleans()):
            del holder[key]
    return json.dumps(data)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def account_for(text: str, folder: Path) -> bool:
    """Import `text`: a fault of ours, or settings and an account of every value. Whether it was read at all."""
    file = folder / "cluster.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        configuration = read_configuration(file)
    except SlipwayError:
        return False
    result = imported(configuration, {})
    leave_out_refused(result)
    assert result.ledger.rest() == []
    for entry in result.ledger.of(Fate.CARRIED, Fate.TO_FILL):
        if entry.to and entry.path:
            assert get_at(result.settings, entry.to) is not None, f"{entry.path} is said to be at {entry.to}"
    return True


@BOUNDED
@given(text=mutated())
def test_mutated_text(text: str, tmp_path: Path) -> None:
    account_for(text, tmp_path)


def test_mutated_values(tmp_path: Path) -> None:
    read = []

    @BOUNDED
    @given(text=of_the_right_form())
    def run(text: str) -> None:
        read.append(account_for(text, tmp_path))

    run()
    assert sum(read) > len(read) / 2  # most of them get past the form, to what this is about
