"""Words of the shell: values of the files are data, in which only `$NAME` and `${NAME}` are replaced, in the job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_REFERENCE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")


def word(text: object) -> str:
    """Return a value as one word. References to variables stay alive; commands, quotes and blanks are text."""
    value = str(text)
    if not _REFERENCE.search(value):
        return shlex.quote(value)
    parts, at = [], 0
    for match in _REFERENCE.finditer(value):
        parts += [_escaped(value[at : match.start()]), match[0]]
        at = match.end()
    return f'"{"".join([*parts, _escaped(value[at:])])}"'


def _escaped(text: str) -> str:
    return re.sub(r'([\\"`$])', r"\\\1", text)


def has_command(text: str) -> bool:
    """Whether a shell that read this text would run a command in it."""
    return "$(" in text or "`" in text


def words(values: Iterable[object]) -> str:
    """Return values as words on one line."""
    return " ".join(word(value) for value in values)


def lines(parts: Iterable[str], indent: str = "  ") -> str:
    """Return parts of one command, which are words already, on lines of their own."""
    return f" \\\n{indent}".join(parts)


def batch_value(text: str) -> str:
    """Return a value for an `#SBATCH` line, in which a blank would end it. Patterns such as %j stay."""
    if not re.search(r"""[\s#'"\\]""", text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
