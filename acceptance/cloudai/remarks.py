"""What is wrong with CloudAI's files, or old in them: each remark with place, value, rule and repair."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from acceptance.cloudai.toml_file import Key, TomlFile
from acceptance.text import without_password

HIDDEN = "(not shown)"
_SECRET_KEY = re.compile(r"passw|secret|(^|_)token$|api_?key|credential|private_?key", re.IGNORECASE)
_MOST_COMPARISONS = 100_000  # of two words: some seconds


@dataclass(frozen=True)
class Remark:
    """One error, or one warning. where: the path in the file, such as `Tests[1].time_limit`; line and column from 1."""

    file: str
    line: int
    column: int
    where: str
    value: str | None
    rule: str
    hint: str
    warning: bool = False

    def text(self) -> str:
        """Return the line that is printed."""
        shown = f" = {self.value}" if self.value is not None else ""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        subject = f"{self.where}{shown}: " if self.where else ""
        line = f"{place}: {'warning: ' if self.warning else ''}{subject}{self.rule}. Hint: {self.hint}"
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        names = ("file", "line", "column", "where", "value", "rule", "hint")
        return {**{name: getattr(self, name) for name in names}, "severity": "warning" if self.warning else "error"}


@dataclass
class Remarks:
    """All remarks of all files, in the order in which they were found. Each is kept once."""

    all: list[Remark] = field(default_factory=list)
    _comparisons: int = 0  # of words, for hints
    _seen: set[Remark] = field(default_factory=set)

    def add(self, remark: Remark) -> None:
        if remark not in self._seen:
            self._seen.add(remark)
            self.all.append(remark)

    def add_unreadable(self, text: str) -> None:
        """Add what `read_toml` raised: `FILE[:LINE[:COLUMN]]: RULE. Hint: HINT`."""
        rule, _, hint = text.partition(". Hint: ")
        file, _, rule = rule.partition(": ")
        name, *numbers = file.rsplit(":", 2)
        while numbers and not numbers[0].isdigit():
            name += ":" + numbers.pop(0)
        line, column = [*map(int, numbers), 1, 1][:2] if numbers else (0, 0)
        self.add(Remark(name, line, column, "", None, rule, hint))

    def did_you_mean(self, word: object, words: Collection[str], otherwise: str) -> str:
        """Return a hint as `did_you_mean` does, as long as all hints together take no more than some seconds."""
        self._comparisons += len(words) * (1 + len(str(word)) // 100)
        return did_you_mean(word, words, otherwise) if self._comparisons < _MOST_COMPARISONS else otherwise

    @property
    def errors(self) -> list[Remark]:
        return [remark for remark in self.all if not remark.warning]

    @property
    def warnings(self) -> list[Remark]:
        return [remark for remark in self.all if remark.warning]


@dataclass(frozen=True)
class Spot:
    """A path in a file, at which a remark can be made. partial: the table there changes values of another one."""

    file: TomlFile
    remarks: Remarks
    path: Key = ()
    partial: bool = False

    def at(self, *names: Any) -> Spot:
        """Return the spot of a key or an item below this one."""
        return Spot(self.file, self.remarks, (*self.path, *names), self.partial)

    def whole(self) -> Spot:
        """Return this spot for a value that replaces another one whole."""
        return Spot(self.file, self.remarks, self.path)

    def error(self, value: Any, rule: str, hint: str) -> None:
        self._add(value, rule, hint, warning=False)

    def warn(self, value: Any, rule: str, hint: str) -> None:
        self._add(value, rule, hint, warning=True)

    def _add(self, value: Any, rule: str, hint: str, warning: bool) -> None:
        line, column = self.file.place(self.path)
        shown = None if value is NO_VALUE else HIDDEN if _has_secret(self.path, value) else _shown(value)
        self.remarks.add(Remark(str(self.file.path), line, column, dotted(self.path), shown, rule, hint, warning))


NO_VALUE: Any = object()


def _has_secret(path: Key, value: Any) -> bool:
    """Whether a value is, by the name of its key or of one in it, what no message may repeat."""
    named = [name for name in path[-1:] if isinstance(name, str)]
    work = [value]
    while work:
        one = work.pop()
        if isinstance(one, dict):
            named += one
        work += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return any(_SECRET_KEY.search(name) for name in named)


def _shown(value: Any) -> str:
    text = without_password(json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= 60 else text[:57] + "..."


def dotted(path: Key) -> str:
    """Return a path as text: `Tests[1].cmd_args."a b"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part)
            text += f".{name}" if text else name
    return text


def did_you_mean(word: object, words: Iterable[str], otherwise: str) -> str:
    """Return a hint with the nearest of `words`."""
    near = difflib.get_close_matches(str(word), list(words), 1)
    return f"did you mean {near[0]}?" if near else otherwise
