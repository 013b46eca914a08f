"""Writing TOML: what `tomllib` reads back as the same values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: Mapping[str, Any]) -> str:
    """Return a table as TOML. None is left out: TOML has no such value."""
    return "\n".join(_lines(table, "")).strip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, value in table.items():
        if value is not None and not _is_table(value) and not _is_tables(value):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in table.items():
        below = f"{path}{_key(name)}"
        if _is_table(value):
            lines = list(_lines(value, f"{below}."))
            # A table that has only tables needs no head of its own.
            if not lines or not lines[0].startswith("\n"):
                yield f"\n[{below}]"
            yield from lines
        elif _is_tables(value):
            for item in value:
                yield f"\n[[{below}]]"
                yield from _lines(item, f"{below}.")


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL and lone surrogates.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(name)} = {_value(item)}" for name, item in value.items() if item is not None)
        return f"{{{', '.join(pairs)}}}"
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)
