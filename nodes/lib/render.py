#!/usr/bin/env python3
"""Fill one template of the bundle from node.env.

Usage: `render.py TEMPLATE --env NODE_ENV --output FILE [KEY=VALUE ...]`; exit 0, or 2 with one line that names
the template and what is missing. Runs on nodes: Python 3.9, the standard library, and the jinja2 of acceptance.pyz.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parents[2]
_PAIR = re.compile(r"([A-Z][A-Z0-9_]*)=([^\x00-\x1f\x7f]*)")

# jinja2 travels inside the bundle, so a node needs no package for it.
if (BUNDLE / "acceptance.pyz").exists():
    sys.path.insert(0, str(BUNDLE / "acceptance.pyz"))

import jinja2  # noqa: E402  (found only after the line above)


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

    Raises RenderError if the template needs a key that `values` lacks, or is not valid.
    """
    environment = jinja2.Environment(  # noqa: S701  (makes configuration files, never HTML)
        loader=jinja2.FileSystemLoader(str(template.parent)),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        return environment.get_template(template.name).render(values)
    except jinja2.UndefinedError as error:
        missing = re.search(r"'([^']+)' is undefined", str(error))
        key = missing.group(1) if missing else str(error)
        hint = f"add {key}=... to /etc/slipway/site.env and run the setup again"
        raise RenderError(f"{template.name}: {place} has no {key}. Hint: {hint}") from error
    except jinja2.TemplateError as error:
        raise RenderError(f"{template.name}: {error}. Hint: deploy again, the bundle is damaged") from error


def main(arguments: list[str]) -> int:
    """Render to the output file; return the exit code."""
    parser = argparse.ArgumentParser(description="Fill one template from node.env.")
    parser.add_argument("template", type=Path)
    parser.add_argument("--env", type=Path, required=True, help="file of KEY=VALUE lines")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("pairs", nargs="*", help="further KEY=VALUE")
    options = parser.parse_intermixed_args(arguments)
    try:
        # Only a line feed ends a line: splitlines() would also split at characters that a value may hold.
        values = parse_pairs(options.env.read_text(encoding="utf-8").split("\n"), str(options.env))
        values.update(parse_pairs(options.pairs, "arguments"))
        options.output.write_text(render(options.template, values, str(options.env)), encoding="utf-8")
    except RenderError as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 2
    except (OSError, UnicodeDecodeError) as error:
        print(f"render.py: {options.template}: {error}. Hint: are the files there and readable?", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
