"""pydantic's errors told in Slipway's words, with file, line, rule and "did you mean"."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from slipway.errors import Fault
from slipway.settings.rules import RULES_BY_NAME
from slipway.settings.source import NOTHING, SECRETS, PathKey, Place, Source, path_text, redacted
from slipway.text import VERY_CLOSE, did_you_mean, nearest

__all__ = ["did_you_mean", "faults_of", "model_in", "secret_faults"]

KIND_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a number",
    "bool": "true or false",
    "string": "text (in quotes if it looks like a number)",
    "tuple": "a list",
    "list": "a list",
    "date": "a date such as 2026-11-27",
    "model": "a table of keys",
    "dict": "a table of keys",
}
BOUNDS = ("greater_than", "less_than")
LENGTHS = ("too_short", "too_long")


def faults_of(error: ValidationError, source: Source, model: type[BaseModel]) -> tuple[list[Fault], list[Place]]:
    """Every error as a Fault, and the paths that are wrong or were meant by a misspelled key."""
    faults, paths = [], []
    for detail in error.errors(include_url=False):
        path = _path_in_file(detail["loc"], source)
        if detail["type"] == "too_short" and source.node(path) not in (NOTHING, []):
            continue  # the list is short only because its items, each told by itself, are wrong
        paths.append(path)
        rule, text, hint = _told(detail, path, model)
        if rule == "unknown-key":
            meant = nearest(str(path[-1]), _keys_beside(path, model))
            paths += [(*path[:-1], meant)] if meant else []
        subject = redacted(path_text(path))
        faults.append(
            Fault(source.file, source.line(path), subject, source.value(path), text, redacted(hint), rule_name=rule)
        )
    return faults, paths


def secret_faults(source: Source) -> list[Fault]:
    """A fault for every line that holds what looks like a secret, comments included. The secret is not repeated."""
    if not SECRETS.search(source.text):
        return []
    text, hint = (
        "looks like a secret",
        "keep it in Secrets Manager, name its ARN here, and make a new key: this one is known",
    )
    on_line: dict[int, Place] = {}
    for path, line in source.lines.items():
        on_line[line] = path
    return [
        Fault(
            source.file,
            number,
            redacted(path_text(on_line.get(number, ()))),
            None,
            text,
            hint,
            rule_name="secret-value",
        )
        for number, line in enumerate(source.text.split("\n"), start=1)
        if SECRETS.search(line)
    ]


def _path_in_file(loc: Sequence[PathKey], source: Source) -> Place:
    """The error's location without pydantic's own parts (names of union members and validators)."""
    path: list[PathKey] = []
    node: Any = source.data
    for index, key in enumerate(loc):
        inside = (isinstance(node, dict) and key in node) or (
            isinstance(node, list) and isinstance(key, int) and key < len(node)
        )
        if inside:
            path.append(key)
            node = node[key]
        elif index == len(loc) - 1 and isinstance(node, dict) and key != "[key]":
            path.append(key)  # a missing key is named although it does not stand in the file
    return tuple(path)


def _told(detail: Any, path: Sequence[PathKey], model: type[BaseModel]) -> tuple[str, str, str]:
    """The rule's name, what is wrong, and the hint."""
    kind, context = str(detail["type"]), detail.get("ctx") or {}
    if kind == "extra_forbidden":
        return "unknown-key", "is not a known key", did_you_mean(str(path[-1]), _keys_beside(path, model))
    if kind == "missing":
        return "missing-key", "is missing", "every cluster needs it; see clusters/*.yaml for examples"
    if kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "")
        return "not-a-choice", f"must be one of {expected}", _literal_hint(detail["input"], expected)
    if kind in RULES_BY_NAME:
        choices = context.get("choices")
        return kind, detail["msg"], did_you_mean(str(detail["input"]), choices, VERY_CLOSE) if choices else ""
    if kind.startswith(BOUNDS):
        return "out-of-range", _lower_first(detail["msg"]), ""
    if kind in LENGTHS:
        few, many = context.get("min_length"), context.get("max_length")
        return (
            "list-length",
            f"must have at least {few} item" if many is None else f"must have at most {many} items",
            "",
        )
    for prefix, words in KIND_WORDS.items():
        if kind.startswith(prefix):
            return "wrong-type", f"must be {words}", ""
    return "wrong-type", _lower_first(detail["msg"]), ""


def _literal_hint(value: Any, expected: str) -> str:
    if not isinstance(value, str):
        return ""
    near = nearest(value, expected.replace(" or ", ", ").split(", "))
    return f"did you mean {near}?" if near else ""


def _lower_first(text: str) -> str:
    text = text.replace("Input should be", "must be")
    return text[:1].lower() + text[1:]


def _keys_beside(path: Sequence[PathKey], model: type[BaseModel]) -> list[str]:
    """The keys the table that holds ``path`` may have."""
    for key in path[:-1]:
        if isinstance(key, int):
            continue
        field = model.model_fields.get(key)
        inner = model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field's annotation holds, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = model_in(argument)
        if found:
            return found
    return None
