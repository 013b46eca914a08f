"""Checks a settings file: every fault at once, with place, value, rule and repair.

`load_settings(file)` returns `Settings` or raises `SettingsError`; `examine(file)` returns the warnings too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slipway.errors import Fault, SettingsError, UsageError, order
from slipway.settings.forms import FORMS, PCLUSTER
from slipway.settings.model import Part, Settings, example_of, part_at
from slipway.settings.rules import RULES, rule_faults
from slipway.settings.source import (
    FILE_REASONS,
    LINE_BREAK,
    NOTHING,
    OURS,
    SECRET_RULE,
    YAML_SPECIFICATION,
    PathKey,
    Place,
    Reason,
    Source,
    Span,
    holds_secret,
    read_source,
)
from slipway.text import VERY_CLOSE, did_you_mean, nearest

FIELD_REASONS = tuple(
    Reason(name=name, why=why, source=source)
    for name, why, source in (
        ("unknown-key", "The setting behind a misspelled key would not be made, without a message.", OURS),
        ("missing-key", "The key has no default that would be right for most clusters.", OURS),
        (
            "wrong-type",
            'Text is never turned into numbers or truth values: "yes", "010" and "1e3" mean different things to '
            "different programs.",
            YAML_SPECIFICATION,
        ),
        ("not-a-choice", "The key accepts these words only.", "docs/settings.md"),
        (
            "out-of-range",
            "AWS or ParallelCluster refuses a value outside of these bounds; docs/settings.md has each bound.",
            f"{PCLUSTER}, schemas/cluster_schema.py; EC2, FSx and CloudFormation quotas",
        ),
        (
            "list-length",
            "A cluster has at least one queue; ParallelCluster accepts at most 50.",
            f"{PCLUSTER}, MaxCountValidator, MAX_NUMBER_OF_QUEUES",
        ),
    )
)
TEXT_REASONS = (
    Reason(
        name=SECRET_RULE,
        why="A settings file is kept in a repository and in CloudFormation's history; a key in it is no longer secret. "
        "It is not repeated in the message.",
        source="Secrets Manager user guide; forms of NVIDIA, AWS, Hugging Face, GitHub and GitLab keys",
    ),
    Reason(
        name="dynamic-reference",
        why="CloudFormation replaces {{resolve:...}} in a template by the secret or parameter that it names; on a "
        "command line, in a tag or in a log everybody on the node could read it.",
        source="CloudFormation user guide, dynamic references",
    ),
)
REASONS: tuple[Reason, ...] = (*FILE_REASONS, *TEXT_REASONS, *FIELD_REASONS, *FORMS, *RULES)
"""Everything that a check can report: about the file, its text, single fields, and keys together."""
REASONS_BY_NAME = {reason.name: reason for reason in REASONS}

DYNAMIC_REFERENCE = "{{"


@dataclasses.dataclass(frozen=True)
class Examination:
    """The result for one file. `settings` is None if there are faults; warnings alone leave it."""

    settings: Settings | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def load_settings(file: str | Path | None) -> Settings:
    """Read, validate and freeze the settings in `file`. Raises SettingsError with every fault.

    Raises UsageError for None: the cluster is never guessed.
    """
    if not file:
        raise UsageError("which cluster? Name its file: --context settings=clusters/NAME.yaml")
    examination = examine(file)
    if examination.settings is None:
        raise SettingsError(examination.faults)
    return examination.settings


def examine(file: str | Path) -> Examination:
    """Check `file`; raises nothing for its content."""
    try:
        source = read_source(file)
    except SettingsError as error:
        return Examination(None, error.faults, ())
    return examine_source(source)


def examine_source(source: Source, model: type[Settings] = Settings) -> Examination:
    """Check a file that is parsed already."""
    references = {place: source.fault(place, *REFERENCE) for place in _dynamic_references(source.data)}
    faults = [*source.faults, *_secret_faults(source), *references.values()]
    settings: Settings | None = None
    try:
        settings = model.model_validate(source.data)
        bad_places = list(references)
    except ValidationError as error:
        errors = [detail for detail in error.errors(include_url=False) if not _follows_from_items(detail, source)]
        places = [_place_in_file(detail["loc"], source) for detail in errors]
        faults += [
            _fault(detail, place, source, model)
            for detail, place in zip(errors, places, strict=True)
            if place not in references
        ]
        bad_places = [*references, *places, *_meant(errors, places, model)]
    valid = settings or _valid_rest(source.data, bad_places, model)
    faults += rule_faults(valid.in_folder(Path(source.file).parent), source, bad_places) if valid else []
    faults.sort(key=order)
    warnings = tuple(fault for fault in faults if fault.severity == "warning")
    faults = [fault for fault in faults if fault.severity == "fault"]
    return Examination(None if faults else settings, tuple(faults), warnings)


# ---- the text ----

SECRET = (
    "looks like a secret",
    "keep it in Secrets Manager, name its ARN here, and make a new key: this one is known",
    SECRET_RULE,
)
REFERENCE = (
    "contains {{, which CloudFormation takes for a dynamic reference",
    "write the value itself; a secret is named by its ARN in a key that ends in secret_arn",
    "dynamic-reference",
)


def _secret_faults(source: Source) -> Iterator[Fault]:
    """A fault for every line with what looks like a secret, comments included. The secret is not repeated."""
    if not holds_secret(source.text):
        return
    last_on_line = {span.line: place for place, span in source.keys.items()}
    for number, line in enumerate(LINE_BREAK.split(source.text), start=1):
        if holds_secret(line):
            place = last_on_line.get(number, ())
            column = source.span(place).column if place else 1
            yield source.fault(place, *SECRET, span=Span(number, column, 0))


def _dynamic_references(node: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all text, keys included, that CloudFormation would replace."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if isinstance(node, str) and DYNAMIC_REFERENCE in node:
        yield place
    for key, value in items:
        if isinstance(key, str) and DYNAMIC_REFERENCE in key:
            yield (*place, key)
        else:
            yield from _dynamic_references(value, (*place, key))


# ---- pydantic's errors in Slipway's words ----

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


def _follows_from_items(detail: Any, source: Source) -> bool:
    """Whether a list is only too short because its items, each reported separately, are wrong."""
    return detail["type"] == "too_short" and source.node(_place_in_file(detail["loc"], source)) not in (NOTHING, [])


def _place_in_file(loc: Sequence[PathKey], source: Source) -> Place:
    """The error's location without pydantic's own parts (names of union members and validators)."""
    place: list[PathKey] = []
    node: Any = source.data
    for index, key in enumerate(loc):
        inside = (isinstance(node, dict) and key in node) or (
            isinstance(node, list) and isinstance(key, int) and key < len(node)
        )
        if inside:
            place.append(key)
            node = node[key]
        elif index == len(loc) - 1 and isinstance(node, dict) and key != "[key]":
            place.append(key)  # a missing key is named although it is not in the file
    return tuple(place)


def _fault(detail: Any, place: Place, source: Source, model: type[Part]) -> Fault:
    name, text, hint = _words(detail, place, model)
    of_key = detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)
    return source.fault(place, text, hint, name, of_key=of_key)


def _words(detail: Any, place: Place, model: type[Part]) -> tuple[str, str, str]:
    """The rule's name, what is wrong, and the hint."""
    kind, context = str(detail["type"]), detail.get("ctx") or {}
    if kind == "extra_forbidden":
        return "unknown-key", "is not a known key", did_you_mean(str(place[-1]), _known_keys(place, model))
    if kind == "missing":
        return "missing-key", "is missing", "every cluster needs it; see clusters/*.yaml for examples"
    if kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "")
        near = nearest(str(detail["input"]), expected.replace(" or ", ", ").split(", "))
        hint = f"did you mean {near}?" if near and isinstance(detail["input"], str) else ""
        return "not-a-choice", f"must be one of {expected}", hint
    if kind in REASONS_BY_NAME:
        choices = getattr(REASONS_BY_NAME[kind], "choices", None)
        return kind, detail["msg"], did_you_mean(str(detail["input"]), choices(), VERY_CLOSE) if choices else ""
    if kind.startswith(BOUNDS):
        return "out-of-range", _lower_first(detail["msg"]), ""
    if kind in LENGTHS:
        few, many = context.get("min_length"), context.get("max_length")
        text = f"must have at least {few} item" if many is None else f"must have at most {many} items"
        return "list-length", text, ""
    words = next((words for prefix, words in KIND_WORDS.items() if kind.startswith(prefix)), "")
    return "wrong-type", f"must be {words}" if words else _lower_first(detail["msg"]), ""


def _lower_first(text: str) -> str:
    text = text.replace("Input should be", "must be")
    return text[:1].lower() + text[1:]


def _known_keys(place: Place, model: type[Part]) -> list[str]:
    """The keys that the table around `place` may have."""
    part = part_at(place[:-1], model)
    return list(part.model_fields) if part else []


# ---- the rest of a file with errors ----


def _meant(errors: Sequence[Any], places: Sequence[Place], model: type[Part]) -> Iterator[Place]:
    """The places that misspelled keys were meant for: their values are wrong, not left out."""
    for detail, place in zip(errors, places, strict=True):
        near = nearest(str(place[-1]), _known_keys(place, model)) if detail["type"] == "extra_forbidden" else None
        if near:
            yield (*place[:-1], near)


def _valid_rest(data: dict[str, Any], bad_places: Sequence[Place], model: type[Settings]) -> Settings | None:
    """The settings with defaults or examples in place of what is wrong, so that the rules can check the rest."""
    data = copy.deepcopy(data)
    for place in sorted(bad_places, key=len, reverse=True):
        _repair(data, place, model)
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def _repair(data: dict[str, Any], place: Place, model: type[Part]) -> None:
    """Remove the value at `place`, or replace it by an example: an item of a list, or a key that is needed."""
    table: Any = data
    for key in place[:-1]:
        try:
            table = table[key]
        except (KeyError, IndexError, TypeError):
            return
    last = place[-1] if place else None
    if isinstance(table, dict) and isinstance(last, str):
        table.pop(last, None)
        part = part_at(place[:-1], model)
        field = part.model_fields.get(last) if part else None
        if field and field.is_required():
            table[last] = example_of(field.annotation, field.metadata)
    elif isinstance(table, list) and isinstance(last, int) and last < len(table):
        name = next(key for key in reversed(place) if isinstance(key, str))
        part = part_at(tuple(place[: place.index(name)]), model)
        field = part.model_fields.get(name) if part else None
        if field and isinstance(example := example_of(field.annotation), list):
            table[last] = example[0]
