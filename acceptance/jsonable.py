"""The JSON form of this program's values."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any


def finite(number: float | None) -> float | None:
    """Return `number` where JSON can hold it, else None (JSON has no nan and no inf)."""
    return number if number is not None and math.isfinite(number) else None


class FormError(ValueError):
    """What a value of a file may not be, in words."""


def form_fault(error: Exception) -> str:
    """Say in words what is wrong with a file of JSON whose reading raised this."""
    if isinstance(error, (FormError, OSError)):
        return str(getattr(error, "strerror", None) or error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "it has half of a pair of surrogates, which is no character"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, RecursionError):
        return "it has too many nested values"
    return "a value has another form"


def object_of(text: str) -> dict[str, Any]:
    """Return the object that a text of JSON is. Raises ValueError, RecursionError."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise FormError("it must be an object")
    return value


def json_of_fields(value: Any) -> dict[str, Any]:
    """Return the JSON form of a data class by its fields, for a class whose `as_json` adds to it."""
    return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}


def jsonable(value: Any) -> Any:
    """Return the JSON form of a value: of its `as_json`, else of a data class or named tuple by its fields."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value):
        return json_of_fields(value)
    if hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return finite(value) if isinstance(value, float) else value
