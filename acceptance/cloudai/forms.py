"""The forms of values: a function takes a value and its spot, returns the value as it is used, or makes a remark.

Numbers and booleans may be given as texts, as in CloudAI's files: "8", "True". A form that finds a fault returns
INVALID.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acceptance.cloudai.remarks import NO_VALUE, Spot, did_you_mean

INVALID: Any = object()
Form = Callable[[Any, Spot], Any]
ABSENT: Any = object()
_PLACEHOLDER = re.compile("<[A-Za-z][^<>]*>")


@dataclass(frozen=True)
class Key:
    """One key of a table. default: ABSENT leaves the key out when the file has none."""

    form: Form
    required: bool = False
    default: Any = ABSENT


Schema = Mapping[str, Key]


def text(value: Any, spot: Spot) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        spot.error(value, "must be a text", 'write "..."')
        return INVALID
    return _printable(str(value), spot)


def _printable(value: str, spot: Spot) -> Any:
    if "\0" in value:
        spot.error(value, "must not contain a NUL character", "remove it")
        return INVALID
    return value


def line(value: Any, spot: Spot) -> Any:
    """A text of one line that is not empty."""
    value = text(value, spot)
    if value is not INVALID and (not value.strip() or not value.replace("\t", " ").isprintable()):
        spot.error(value, "must be a text of one line", "write one line that is not empty")
        return INVALID
    if value is not INVALID and _PLACEHOLDER.fullmatch(value.strip()):  # in part it may be a command's redirections
        return without_placeholder(value, spot)
    return value


def without_placeholder(value: Any, spot: Spot) -> Any:
    """A text without a placeholder of a guide, such as <YOUR PARTITION NAME>."""
    if value is not INVALID and _PLACEHOLDER.search(value):
        rule = "has a placeholder in <>, in whose place the guide wants a value of your own"
        spot.error(value, rule, "write that value; `sinfo` lists partitions and nodes")
        return INVALID
    return value


def path(value: Any, spot: Spot) -> Any:
    """A path. `~` is no folder of a home here: no shell reads it, and a folder of that name would be made."""
    value = without_placeholder(line(value, spot), spot)
    if value is not INVALID and value.startswith("~"):
        spot.error(
            value, "must not begin with ~, which no shell expands here", 'write the whole path: "/home/NAME/..."'
        )
        return INVALID
    return value


def matching(pattern: str, rule: str, hint: str) -> Form:
    """A text that a regular expression matches whole."""
    compiled = re.compile(pattern)

    def form(value: Any, spot: Spot) -> Any:
        value = text(value, spot)
        if value is not INVALID and not compiled.fullmatch(value):
            spot.error(value, rule, hint)
            return INVALID
        return value

    return form


def boolean(value: Any, spot: Spot) -> Any:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if not isinstance(value, bool):
        spot.error(value, "must be true or false", "write true or false")
        return INVALID
    return value


def whole(low: int = 0, high: int = 1 << 50) -> Form:
    """A whole number from low to high."""

    def form(value: Any, spot: Spot) -> Any:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,16}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bound = f" from {low} to {high}" if high < 1 << 50 else f", {low} or more"
            spot.error(value, f"must be a whole number{bound}", "correct the number")
            return INVALID
        return value

    return form


def number(value: Any, spot: Spot) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+([.]\d+)?([eE][+-]?\d+)?", value.strip()):
        value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        spot.error(value, "must be a number", "correct the number")
        return INVALID
    return value


def scalar(value: Any, spot: Spot) -> Any:
    if not isinstance(value, (str, int, float)):
        spot.error(value, "must be a text, a number or a boolean", 'write "..."')
        return INVALID
    return value if not isinstance(value, str) else _printable(value, spot)


def anything(value: Any, spot: Spot) -> Any:  # noqa: ARG001  (a form)
    return value


def choice(*choices: str) -> Form:
    """One of these texts."""

    def form(value: Any, spot: Spot) -> Any:
        if value not in choices:
            hint = did_you_mean(value, choices, f"write {choices[0]}")
            spot.error(value, f"must be one of {', '.join(choices)}", hint)
            return INVALID
        return value

    return form


def listing(form: Form, least: int = 0) -> Form:
    """A list, each item of one form."""

    def read(value: Any, spot: Spot) -> Any:
        if not isinstance(value, list) or len(value) < least:
            rule = "must be a list" + (f" of {least} or more" if least else "")
            spot.error(value, rule, "write [...]")
            return INVALID
        spot = spot.whole()  # a list replaces a list, also where tables are merged
        items = [form(item, spot.at(index)) for index, item in enumerate(value)]
        return [item for item in items if item is not INVALID]

    return read


def swept(form: Form) -> Form:
    """A value, or a list of values, which is a sweep."""
    many = listing(form, least=1)

    def read(value: Any, spot: Spot) -> Any:
        return many(value, spot) if isinstance(value, list) else form(value, spot)

    return read


def mapping(form: Form, names: str = r"[^\0\n]+") -> Form:
    """A table with free keys and values of one form."""
    pattern = re.compile(names)

    def read(value: Any, spot: Spot) -> Any:
        if not isinstance(value, dict):
            spot.error(value, "must be a table", "write a [table]")
            return INVALID
        result = {}
        for name, item in value.items():
            if not pattern.fullmatch(name):
                spot.at(name).error(item, "has a name that cannot be used here", "rename it: letters, digits and _")
            entry = form(item, spot.at(name))
            if entry is not INVALID:
                result[name] = entry
        return result

    return read


def table(schema: Schema, others: str = "error") -> Form:
    """A table with these keys. others: `error`, or what becomes of other keys: `option` (passed on), `free`."""

    def read(value: Any, spot: Spot) -> Any:
        if not isinstance(value, dict):
            spot.error(value, "must be a table", "write a [table]")
            return INVALID
        return read_table(schema, value, spot, others)

    return read


def read_table(schema: Schema, values: Mapping[str, Any], spot: Spot, others: str = "error") -> dict[str, Any]:
    """Return the values of a table in the schema's order, then its other keys.

    Keys that the file has not get their defaults, except where the spot is partial: that table changes another one.
    """
    names = {name if name in schema else _underscored(name, schema): name for name in values}
    result: dict[str, Any] = {}
    for name, key in schema.items():
        if name in names:
            entry = key.form(values[names[name]], spot.at(names[name]))
            if entry is not INVALID:
                result[name] = entry
            elif key.default is not ABSENT:
                result[name] = _default(key, spot)
        elif key.required and not spot.partial:
            spot.at(name).error(NO_VALUE, "is missing", "add it")
        elif key.default is not ABSENT and not spot.partial:
            result[name] = _default(key, spot)
    for name, written in names.items():
        if name not in schema:
            _other(name, values[written], spot.at(written), schema, others)
            result[name] = values[written]
    return result


def _default(key: Key, spot: Spot) -> Any:
    """Return the default of a key; that of a table has the defaults of its keys."""
    return key.form(dict(key.default), spot) if isinstance(key.default, dict) else key.default


def _underscored(name: str, schema: Schema) -> str:
    plain = name.replace("-", "_")
    return plain if plain in schema else name


def _other(name: str, value: Any, spot: Spot, schema: Schema, others: str) -> None:
    if others == "error":
        spot.error(value, "is not a field of this table", spot.remarks.did_you_mean(name, schema, "remove it"))
    elif others == "option":
        near = difflib.get_close_matches(name, list(schema), 1, 0.8) if len(name) <= 100 else []
        if near:
            spot.warn(value, "is passed on as an option of the program", f"did you mean {near[0]}?")
