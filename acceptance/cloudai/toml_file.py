"""TOML files with the place of each key: `tomllib` returns values only, and a fault needs its line.

The places are looked for only when a remark needs one, in a text that `tomllib` has accepted.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
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
DEEPEST = 40  # tables and lists in each other; CloudAI's own files have 6
_LARGEST_NUMBER = 1 << 63  # TOML's numbers have 64 bits
# tomllib needs quadratic time for a key of many parts.
_LONG_KEY = re.compile(r"""[ \t\[]*(?:(?:[\w-]+|"[^"]*"|'[^']*')[ \t]*[.][ \t]*){1000}""")
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
        self._lines: list[int] = []  # where each line begins
        if any(piece.count(".") >= 1000 and _LONG_KEY.match(piece) for piece in re.split("[{,\n]", text)):
            raise InputError([f"{path}: has a key of more than 1000 parts. Hint: is it the right file?"])
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
        except ValueError:  # Python reads no number of more than 4,300 digits
            match = re.search(r"(?:\d_?){4300}", text)
            line = text.count("\n", 0, match.start() if match else 0) + 1
            raise InputError([f"{path}:{line}: has a number of more than 64 bits. Hint: correct the number"]) from None
        self._refuse_extremes()

    def _refuse_extremes(self) -> None:
        """Refuse what TOML allows and no file of CloudAI has: numbers of more than 64 bits, and deep nesting."""
        work: list[tuple[Key, Any]] = [((), self.data)]
        while work:
            path, value = work.pop()
            if isinstance(value, int) and not -_LARGEST_NUMBER <= value < _LARGEST_NUMBER:
                raise InputError([f"{self._where(path)}: has more than 64 bits. Hint: correct the number"])
            if len(path) > DEEPEST:
                rule = f"is nested deeper than {DEEPEST} tables and lists"
                raise InputError([f"{self._where(path[:4])}: {rule}. Hint: is it the right file?"])
            if isinstance(value, dict):
                work += [((*path, name), item) for name, item in value.items()]
            elif isinstance(value, list):
                work += [((*path, index), item) for index, item in enumerate(value)]

    def _where(self, path: Key) -> str:
        line, column = self.place(path)
        return f"{self.path}:{line}:{column}: {'.'.join(map(str, path))}"

    def place(self, path: Key) -> tuple[int, int]:
        """Return line and column, from 1, of a key, or of the nearest table above it."""
        if self._places is None:
            self._places = {}
            self._lines = [0, *(match.end() for match in re.finditer("\n", self.text))]
            for known, offset in _Places(self.text).scan():
                self._places.setdefault(known, offset)
        for length in range(len(path), 0, -1):
            before = self.renamed.get(path[:length])
            if before is not None:
                path = (*before, *path[length:])
        while path and path not in self._places:
            path = path[:-1]
        offset = self._places.get(path, 0)
        line = bisect.bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1


def read_toml(path: Path) -> TomlFile:
    """Read a file. Raises InputError with place and reason."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # such as a pipe, which is not waited for
                raise InputError([f"{path}: is not a file. Hint: give the path of a TOML file"])
            data = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError([f"{path}: {error.strerror or error}. Hint: give the path of a TOML file"]) from None
    if len(data) > LARGEST_FILE:
        raise InputError([f"{path}: is larger than {LARGEST_FILE} bytes. Hint: is it a file of CloudAI?"])
    if data.startswith(b"\xef\xbb\xbf"):
        rule = "begins with a byte order mark, which TOML refuses"
        raise InputError([f"{path}:1:1: {rule}. Hint: save the file as UTF-8 without it"])
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
                yield from ((table[:length], offset) for length in range(1, min(len(table), DEEPEST) + 1))
            else:
                yield from self._pair(table)

    def _header(self) -> Key:
        array = self._tokens[self._at + 1][1] == "["
        self._at += 2 if array else 1
        names, table = self._names("]"), ()  # type: tuple[list[str], Key]
        self._at += 2 if array else 1
        for index, name in enumerate(names[:DEEPEST]):
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
        for length in range(1, min(len(names), DEEPEST) + 1):
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
