"""Read a ParallelCluster configuration: its text, its tables as plain data, and every leaf by its path.

Keys and the kinds of values come from ParallelCluster's own schema (`slipway/data/pcluster_schema.json`). Every key
that is not in it and every value of another kind is a fault with its line. A placeholder of a template (`${VAR}`,
`{name}`, `<name>`) may be in the place of any value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, TaggedScalar

from slipway.errors import Fault, SettingsError
from slipway.settings import PARALLELCLUSTER_VERSION
from slipway.settings.source import Place, Source, path_text, read_source, redacted, yaml_errors_as_faults
from slipway.settings.write import get_at
from slipway.text import did_you_mean

PLACEHOLDER = re.compile(r"\$\{[^{}]*\}|\$[A-Za-z_]\w*|\{\{?[^{}]*\}?\}|<[^<>]+>|^![\w:]+", re.ASCII)
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)
TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
KIND_WORDS = {"text": "text (in quotes)", "whole": "a whole number", "number": "a number", "truth": "true or false"}
NUMBER_TEXT = re.compile(r"[+-]?\d{1,18}", re.ASCII)
PLACEHOLDER_RULES = ("yaml-tag", "yaml-key")  # forbidden in a settings file, allowed in a template
BRACES_OR_TAGS = re.compile(r"[{!]")  # only a text with these needs the tree, which is slower than plain data
EXPECTED = "a ParallelCluster configuration of version 3 is expected"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """`data` has the values of the right form, `leaves` every value by its path, in the order of the file."""

    file: str
    text: str
    data: dict[str, Any]
    leaves: dict[Place, Any]


def read_configuration(file: str | Path, variables: Mapping[str, str] | None = None) -> Configuration:
    """Read `file` with `${NAME}` replaced by `variables`. Raises SettingsError with every fault."""
    try:
        source = read_source(file)
        tree = _tree(source) if BRACES_OR_TAGS.search(source.text) else source.data
    except SettingsError as error:
        raise SettingsError([_in_our_words(fault) for fault in error.faults]) from None
    reader = _Reader(source, variables or {})
    reader.faults += [fault for fault in source.faults if fault.rule_name not in PLACEHOLDER_RULES]
    data = reader.table(tree, _schema(), ())
    if not reader.faults and not get_at(data, ("Scheduling", "SlurmQueues")):
        reader.fault(("Scheduling", "SlurmQueues"), "is missing", EXPECTED)
    if reader.faults:
        raise SettingsError(reader.faults)
    return Configuration(str(file), source.text, data, reader.leaves)


def _tree(source: Source) -> Any:
    """Return the content as ruamel.yaml's round-trip tree, which keeps tags, styles and keys of any kind."""
    yaml = YAML(typ="rt")
    yaml.constructor.add_constructor("tag:yaml.org,2002:timestamp", type(yaml.constructor).construct_yaml_str)
    with yaml_errors_as_faults(source.file, source.text):
        return yaml.load(source.text)


def from_dictionary(configuration: dict[str, Any], text: str = "") -> Configuration:
    """Return the same for a configuration that Slipway made."""
    leaves: dict[Place, Any] = {}
    _collect(configuration, (), leaves)
    return Configuration("", text, configuration, leaves)


def is_placeholder(value: Any) -> bool:
    """Return whether this value is a template's placeholder."""
    return isinstance(value, str) and bool(PLACEHOLDER.search(value))


def spell(path: Place) -> str:
    """Return a path as ParallelCluster's documentation writes it: `Scheduling/SlurmQueues[0]/Name`."""
    return path_text(path, "/")


def pattern(path: Place) -> str:
    """Return the path without the numbers of its lists: `Scheduling/SlurmQueues[]/Name`."""
    return re.sub(r"\[\d+\]", "[]", spell(path))


@cache
def knowledge() -> Any:
    """Return `data/pcluster_import.yaml`: defaults, older keys, reasons, and scripts of public templates."""
    text = resources.files("slipway").joinpath("data/pcluster_import.yaml").read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)


def _schema() -> dict[str, Any]:
    text = resources.files("slipway").joinpath("data/pcluster_schema.json").read_text(encoding="utf-8")
    keys: dict[str, Any] = json.loads(text)["keys"]
    return keys


def _in_our_words(fault: Fault) -> Fault:
    """Reword a fault of `read_source`, which is written for settings files."""
    hint = EXPECTED if "clusters/" in fault.hint or "docs/" in fault.hint else fault.hint
    return dataclasses.replace(fault, rule=fault.rule.replace("settings file", "configuration"), hint=hint)


def _collect(node: Any, path: Place, leaves: dict[Place, Any]) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            _collect(value, (*path, key), leaves)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _collect(value, (*path, index), leaves)
    else:
        leaves[path] = node


class _Reader:
    """Walks a parsed file along the schema."""

    def __init__(self, source: Source, variables: Mapping[str, str]) -> None:
        self.leaves: dict[Place, Any] = {}
        self.faults: list[Fault] = []
        self._source = source
        self._variables = variables

    def fault(self, path: Place, rule: str, hint: str = "") -> None:
        fault = self._source.fault(path, rule, hint, "")
        self.faults.append(dataclasses.replace(fault, path=redacted(spell(path))))

    def table(self, node: Any, schema: dict[str, Any], path: Place) -> dict[str, Any]:
        data = {}
        for key, value in node.items():
            here = (*path, key if isinstance(key, str) else str(key))
            if pattern(here) in knowledge()["older"]:
                self._free(_as_placeholder(value), here)
            elif key not in schema:
                rule = f"is not a key of ParallelCluster {PARALLELCLUSTER_VERSION}"
                self.fault(here, rule, did_you_mean(str(key), schema))
            else:
                data[key] = self._value(value, schema[key], here)
        return {key: value for key, value in data.items() if value is not None}

    def _value(self, node: Any, schema: Any, path: Place) -> Any:
        """Return the value in plain form; None if it is empty, a placeholder of a table, or a fault."""
        node = self._filled(_as_placeholder(node))
        if is_placeholder(node) or node is None:
            self.leaves[path] = node
            return node if isinstance(schema, str) else None
        if isinstance(schema, dict):
            if isinstance(node, dict):
                return self.table(node, schema, path)
            return self.fault(path, "must be a table of keys")
        if isinstance(schema, list):
            if isinstance(node, list):
                return [self._value(item, schema[0], (*path, index)) for index, item in enumerate(node)]
            return self.fault(path, "must be a list")
        if schema in ("free", "any"):
            return self._free(node, path)
        return self._scalar(node, schema, path)

    def _free(self, node: Any, path: Place) -> Any:
        if isinstance(node, dict):
            return {str(key): self._free(value, (*path, str(key))) for key, value in node.items()}
        if isinstance(node, list):
            return [self._free(value, (*path, index)) for index, value in enumerate(node)]
        self.leaves[path] = self._filled(_plain(node))
        return self.leaves[path]

    def _scalar(self, node: Any, kind: str, path: Place) -> Any:
        value = None if isinstance(node, (dict, list)) else _converted(_plain(node), kind)
        if value is None:
            return self.fault(path, f"must be {KIND_WORDS[kind]}")
        self.leaves[path] = value
        return value

    def _filled(self, node: Any) -> Any:
        if not isinstance(node, str):
            return node
        return VARIABLE.sub(lambda match: self._variables.get(match[1] or match[2], match[0]), node)


def _as_placeholder(node: Any) -> Any:
    """Return as text what YAML reads as another type: `{name}` and `{{name}}` are tables, `!Ref name` is tagged."""
    if isinstance(node, TaggedScalar):
        return f"{node.tag.value} {node.value}"
    if isinstance(node, dict) and len(node) == 1:
        key, value = next(iter(node.items()))
        if value is None and not isinstance(key, str):
            inner = ", ".join(str(part) for part in key) if hasattr(key, "__iter__") else str(key)
            return f"{{{{{inner}}}}}"
        if value is None and isinstance(node, CommentedMap) and node.fa.flow_style():
            return f"{{{key}}}"
    return node


def _plain(node: Any) -> Any:
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return str(node)


def _converted(value: Any, kind: str) -> Any:
    """Return `value` as ParallelCluster reads it, or None if it is not of that kind. CloudFormation makes all text."""
    if kind == "text":
        return value if isinstance(value, str) else None
    if kind == "truth":
        return value if isinstance(value, bool) else TRUTHS.get(str(value).lower())
    if isinstance(value, bool):
        return None
    if kind == "number" and isinstance(value, float):
        return value
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and NUMBER_TEXT.fullmatch(value) else None
