#!/usr/bin/env python3
"""Fill one template of the bundle from node.env, and print it.

Usage: `render.py TEMPLATE NODE_ENV [KEY=VALUE ...]`; exit 0, or 2 with one line that names the template and what is
missing. Runs on nodes: Python 3.9, standard library only, because loading jinja2 takes ten times as long as the rest
of a step. The templates are those of jinja2 with these parts alone: `{{ KEY }}`, `{{ KEY | tojson }}`, and lines
`{% if KEY %}` or `{% if KEY == "TEXT" %}` with `{% endif %}`, not nested.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_PAIR = re.compile(r"([A-Z][A-Z0-9_]*)=([^\x00-\x1f\x7f]*)")
_VALUE = re.compile(r"\{\{ ([A-Z][A-Z0-9_]*)( \| tojson)? \}\}")
_IF = re.compile(r"\s*\{% if ([A-Z][A-Z0-9_]*)(?: == \"([^\"{}%]*)\")? %\}\s*")
_ENDIF = re.compile(r"\s*\{% endif %\}\s*")
_MARK = re.compile(r"\{[{%#]")
_KNOWN = (
    'not {{ KEY }}, {{ KEY | tojson }}, or a line {% if KEY %}, {% if KEY == "TEXT" %} or {% endif %}, none inside '
    "another. Hint: correct the template"
)


class RenderError(Exception):
    """A template that cannot be filled; the text is one line for the user."""


def parse_pairs(lines: list[str], place: str) -> dict[str, str]:
    """Return the values of `KEY=VALUE` lines, taken literally; the last one of a key holds.

    Raises RenderError if a line is neither a pair, nor empty, nor a comment.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        match = _PAIR.fullmatch(line)
        if match is None:
            raise RenderError(f"{place}:{number}: {line!r}: not KEY=VALUE. Hint: correct the line and run it again")
        values[match.group(1)] = match.group(2)
    return values


def render(template: Path, values: dict[str, str], place: str) -> str:
    """Return the filled template.

    Raises RenderError if the template needs a key that `values` lacks, or has a part that this program does not know.
    """

    def value(key: str) -> str:
        if key not in values:
            hint = f"add {key}=... to /etc/slipway/site.env and run the set-up again"
            raise RenderError(f"{template.name}: {place} has no {key}. Hint: {hint}")
        return values[key]

    def fill(match: re.Match[str]) -> str:
        return json.dumps(value(match[1])) if match[2] else value(match[1])

    filled: list[str] = []
    condition: bool | None = None  # of the block that the line is in
    for number, line in enumerate(template.read_text(encoding="utf-8").split("\n"), start=1):
        begins, ends = _IF.fullmatch(line), _ENDIF.fullmatch(line)
        if begins and condition is None:
            text = value(begins[1])
            condition = bool(text) if begins[2] is None else text == begins[2]
        elif ends and condition is not None:
            condition = None
        elif begins or ends or _MARK.search(_VALUE.sub("", line)):
            raise RenderError(f"{template.name}:{number}: {line.strip()!r}: {_KNOWN}")
        elif condition is not False:
            filled.append(_VALUE.sub(fill, line))
    if condition is not None:
        raise RenderError(f"{template.name}: the last {{% if %}} has no {{% endif %}}. Hint: add the line")
    return "\n".join(filled)


def main(template: str, env: str, *pairs: str) -> int:
    """Print the filled template; return the exit code."""
    try:
        # Only a line feed ends a line: splitlines() would also split at characters that a value may hold.
        values = parse_pairs(Path(env).read_text(encoding="utf-8").split("\n"), env)
        values.update(parse_pairs(list(pairs), "arguments"))
        text = render(Path(template), values, env)
    except RenderError as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 2
    except (OSError, UnicodeDecodeError) as error:
        print(f"render.py: {template}: {error}. Hint: are the files there and readable?", file=sys.stderr)
        return 2
    sys.stdout.buffer.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
