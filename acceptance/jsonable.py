"""The JSON form of this program's values."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any


def finite(number: float | None) -> float | None:
    """Return `number` where JSON can hold it, else None (JSON has no nan and no inf)."""
    return number if number is not None and math.isfinite(number) else None


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
