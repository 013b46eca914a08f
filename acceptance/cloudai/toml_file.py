"""TOML files with the place of each key: `tomllib` returns values only, and a fault needs its line.

The places are looked for only when a remark needs one, in a text that `tomllib` has accepted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acceptance.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib  # novm
else:
    import tomli as tomllib

Key = tuple[Any, ...]  # a path into a file: names of keys and indices of lists
LARGEST_FILE = 1 << 20  # bytes
_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+|\#[^\n]*)
    |(?P<line>\r?\n)
    |(?P<text>\"{3}(?:\\.|[^\\])*?\"{3}\"{0,2}|'{3}.*?'{3}'{0,2}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<mark>[\[\]{}=,.])
    |(?P<bare>[^\s\[\]{}=,.\#"']+)""",
    re.VERBOSE | re.DOTALL,
)


class TomlFile:
    """A decoded file. renamed: paths of today's spelling, and the path in the file that each was read from."""

    def __init__(self, path: Path, text: str) -> None:
        """Raises InputError if the text is not TOML."""
        self.path, self.text = path, text
        self.renamed: dict[Key, Key] = {}
        self._places: dict[Key, int] | None = None
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
            reason = match[1] if match else str(error)
            line, column = (match[2], match[3]) if match and match[2] else (text.count("\n") + 1, 1)
            where, reason = f":{line}:{column}", reason[:1].lower() + reason[1:]
            raise InputError([f"{path}{where}: is not TOML: {reason}. Hint: correct the file at this place"]) from None
        except RecursionError:
            raise InputError([f"{path}: is not TOML: too many nested values. Hint: is it the right file?"]) from None

    def place(self, path: Key) -> tuple[int, int]:
        """Return line and column, from 1, of a key, or of the nearest table above it."""
        if self._places is None:
            self._places = {}
            for known, offset in _Places(self.text).scan():
                self._places.setdefault(known, offset)
        for length in range(len(path), 0, -1):
            before = self.renamed.get(path[:length])
            if before is not None:
                path = (*before, *path[length:])
        while path and path not in self._places:
            path = path[:-1]
        offset = self._places.get(path, 0)
        start = self.text.rfind("\n", 0, offset) + 1
        return self.text.count("\n", 0, offset) + 1, offset - start + 1


def read_toml(path: Path) -> TomlFile:
    """Read a file. Raises InputError with place and reason."""
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError([f"{path}: {error.strerror or error}. Hint: give the path of a TOML file"]) from None
    if len(data) > LARGEST_FILE:
        raise InputError([f"{path}: is larger than {LARGEST_FILE} bytes. Hint: is it a file of CloudAI?"])
    try:
        return TomlFile(path, data.decode("utf-8").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError([f"{path}:{line}: is not UTF-8. Hint: save the file as UTF-8"]) from None


class _Places:
    """Walks over the tokens of a valid TOML text and yields each path with the offset of its key."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            (match.lastgroup, match[0], match.start()) for match in _TOKEN.finditer(text) if match.lastgroup != "blank"
        ]
        self._tokens.append(("line", "\n", len(text)))
        self._at = 0
        self._counts: dict[Key, int] = {}  # tables of each array so far

    def scan(self) -> Iterator[tuple[Key, int]]:
        table: Key = ()
        while self._at < len(self._tokens):
            kind, word, offset = self._tokens[self._at]
            if kind == "line":
                self._at += 1
            elif word == "[":
                table = self._header()
                yield from ((table[:length], offset) for length in range(1, len(table) + 1))
            else:
                yield from self._pair(table)

    def _header(self) -> Key:
        array = self._tokens[self._at + 1][1] == "["
        self._at += 2 if array else 1
        names, table = self._names("]"), ()  # type: tuple[list[str], Key]
        self._at += 2 if array else 1
        for index, name in enumerate(names):
            table = (*table, name)
            if array and index == len(names) - 1:
                self._counts[table] = self._counts.get(table, 0) + 1
            if table in self._counts:
                table = (*table, self._counts[table] - 1)
        return table

    def _names(self, end: str) -> list[str]:
        names: list[str] = []
        while self._tokens[self._at][1] != end:
            kind, word, _ = self._tokens[self._at]
            if kind == "text":
                names.append(next(iter(tomllib.loads(f"{word} = 1"))))
            elif kind == "bare":
                names.append(word)
            self._at += 1
        return names

    def _pair(self, table: Key) -> Iterator[tuple[Key, int]]:
        offset = self._tokens[self._at][2]
        names = self._names("=")
        self._at += 1
        for length in range(1, len(names) + 1):
            yield (*table, *names[:length]), offset
        yield from self._value((*table, *names))

    def _value(self, path: Key) -> Iterator[tuple[Key, int]]:
        word = self._tokens[self._at][1]
        if word == "{":
            self._at += 1
            while self._skip_to_item() != "}":
                yield from self._pair(path)
            self._at += 1
        elif word == "[":
            self._at += 1
            index = 0
            while self._skip_to_item() != "]":
                yield (*path, index), self._tokens[self._at][2]
                yield from self._value((*path, index))
                index += 1
            self._at += 1
        else:
            self._at += 1
            while self._tokens[self._at][0] != "line" and self._tokens[self._at][1] not in (",", "]", "}"):
                self._at += 1

    def _skip_to_item(self) -> str:
        while self._tokens[self._at][0] == "line" or self._tokens[self._at][1] == ",":
            self._at += 1
        return self._tokens[self._at][1]
