"""pydantic's errors told in Slipway's words, with file, line and "did you mean"."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from slipway.errors import Fault
from slipway.source import PathKey, Source, path_text

KIND_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text (in quotes if it looks like a number)",
    "tuple": "a list",
    "list": "a list",
    "date": "a date such as 2026-11-27",
}


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint naming the nearest choice, or the first few choices when none is near."""
    known = list(choices)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"one of: {', '.join(known)}" if len(known) <= 20 else ""


def faults_of(
    error: ValidationError, source: Source, model: type[BaseModel]
) -> tuple[list[Fault], list[tuple[PathKey, ...]]]:
    """Every error as a Fault, and the paths that are wrong."""
    faults, paths = [], []
    for detail in error.errors(include_url=False):
        path = _path_in_file(detail["loc"], source)
        if detail["type"] == "too_short" and source.value(path) not in (None, "[]"):
            continue  # the list is short only because its items, each told by itself, are wrong
        rule, hint = _rule_and_hint(detail, path, model)
        faults.append(Fault(source.file, source.line(path), path_text(path), source.value(path), rule, hint))
        paths.append(path)
    return faults, paths


def _path_in_file(loc: Sequence[PathKey], source: Source) -> tuple[PathKey, ...]:
    """The error's location without pydantic's own parts (names of union members and validators)."""
    path: list[PathKey] = []
    node: Any = source.tree
    for index, key in enumerate(loc):
        inside = (isinstance(node, dict) and key in node) or (
            isinstance(node, list) and isinstance(key, int) and key < len(node)
        )
        if inside:
            path.append(key)
            node = node[key]
        elif index == len(loc) - 1 and isinstance(node, dict):
            path.append(key)  # a missing key is named although it does not stand in the file
    return tuple(path)


def _rule_and_hint(detail: Any, path: Sequence[PathKey], model: type[BaseModel]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx") or {}
    if kind == "extra_forbidden":
        return "is not a known key", did_you_mean(str(path[-1]), _keys_beside(path, model))
    if kind == "missing":
        return "is missing", "every cluster needs it; see clusters/*.yaml for examples"
    if kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "")
        return f"must be one of {expected}", _literal_hint(detail["input"], expected)
    if kind == "instance_type":
        return detail["msg"], did_you_mean(str(detail["input"]), context["choices"])
    for prefix, words in KIND_WORDS.items():
        if kind in {f"{prefix}_type", f"{prefix}_parsing", f"{prefix}_from_float"} or (
            prefix == "date" and kind.startswith("date")
        ):
            return f"must be {words}", ""
    if kind in {"model_type", "dict_type", "model_attributes_type"}:
        return "must be a table of keys", ""
    return _lower_first(detail["msg"]), ""


def _literal_hint(value: Any, expected: str) -> str:
    if not isinstance(value, str):
        return ""
    choices = expected.replace(" or ", ", ").split(", ")
    hint = did_you_mean(str(value), choices)
    return hint if hint.startswith("did") else ""


def _lower_first(text: str) -> str:
    text = text.replace("Input should be", "must be")
    return text[:1].lower() + text[1:]


def _keys_beside(path: Sequence[PathKey], model: type[BaseModel]) -> list[str]:
    """The keys the table that holds ``path`` may have."""
    for key in path[:-1]:
        if isinstance(key, int):
            continue
        field = model.model_fields.get(key)
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = _model_in(argument)
        if found:
            return found
    return None
