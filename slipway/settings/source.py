"""YAML text with the place of each key, so that a fault can name file and line.

One pass over ruamel.yaml's events makes plain data and notes the line of each key and item. Scalars follow the core
schema of YAML 1.2 (``yes`` is text, ``010`` is ten); dates stay text. Aliases, tags and depth are refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from slipway.errors import Fault, SettingsError
from slipway.text import visible

PathKey = str | int
Place = tuple[PathKey, ...]

MAX_DIGITS = 300  # Python refuses to read numbers of more than 4300 digits; nothing here needs more than 16
MAX_DEPTH = 20  # the settings themselves are five levels deep
MAX_BYTES = 1 << 20  # 1 MiB: a settings file is a page or two; anything larger is the wrong file
MAX_SHOWN = 80  # characters of a value that a fault repeats

INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
OCTAL = re.compile(r"0o[0-7]+", re.ASCII)
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}

NOTHING = object()
HIDDEN = "(not shown)"
SECRETS = re.compile(
    r"nvapi-[A-Za-z0-9_-]{16,}"  # NVIDIA NGC and API catalog
    r"|(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"  # AWS access key ids (IAM user guide, unique identifiers)
    r"|hf_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"  # GitHub
    r"|glpat-[A-Za-z0-9_-]{20,}"  # GitLab
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?<=://)[^/\s:@'\"<>${}]+:[^/\s@'\"<>${}]+@"  # a password in an address, https://user:password@host
)
SECRET_KEY = re.compile(r"passw|secret|token|api_?key|credential|private_?key", re.IGNORECASE)
"""Keys whose value is not repeated unless it is an ARN: whoever misunderstands them writes the secret itself."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A parsed settings file: its name, its plain data, and the line of each path that stands in it."""

    file: str
    data: dict[str, Any]
    lines: dict[Place, int]
    faults: tuple[Fault, ...] = ()
    text: str = ""

    @cached_property
    def tree(self) -> Any:
        """The content as ruamel.yaml's round-trip tree, which keeps tags, styles and keys of any kind.

        Raises SettingsError for what ruamel.yaml refuses, such as a key that stands twice.
        """
        from ruamel.yaml import YAML

        yaml = YAML(typ="rt")
        yaml.constructor.add_constructor("tag:yaml.org,2002:timestamp", type(yaml.constructor).construct_yaml_str)
        with _refusing(self.file):
            return yaml.load(self.text)

    def line(self, path: Sequence[PathKey]) -> int:
        """The 1-based line of the deepest part of ``path`` that stands in the file."""
        place = tuple(path)
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def node(self, path: Sequence[PathKey]) -> Any:
        """What stands at ``path``, or NOTHING."""
        node: Any = self.data
        for key in path:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                return NOTHING
        return node

    def value(self, path: Sequence[PathKey]) -> str | None:
        """What stands at ``path`` as short text; None when nothing does or it is a table. Secrets are not shown."""
        node = self.node(path)
        if node is NOTHING or isinstance(node, dict):
            return None
        if isinstance(node, list) and any(isinstance(item, (dict, list)) for item in node):
            return None
        text = _shown(node)
        key = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
        if SECRET_KEY.search(key) and isinstance(node, str) and not node.startswith("arn:"):
            return HIDDEN
        text = redacted(text)
        return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _shown(node: Any) -> str:
    if node is None:
        return "null"
    if isinstance(node, bool):
        return str(node).lower()
    return repr(node) if isinstance(node, (list, str)) else str(node)


def redacted(text: str) -> str:
    """``text`` without what looks like a secret, on one line and without what steers a terminal."""
    return visible(SECRETS.sub(HIDDEN, text))


def path_text(path: Sequence[PathKey]) -> str:
    """``("queues", 0, "count")`` as ``queues[0].count``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def read_source(file: str | Path) -> Source:
    """Read and parse ``file``.

    Raises SettingsError when it is missing, unreadable, too large, no UTF-8, no YAML or no table. Faults that leave
    the rest readable (a key that stands twice, a tag) come with the source.
    """
    name = str(file)
    return parse_source(name, _read_text(name))


def parse_source(name: str, text: str) -> Source:
    """``text`` as the content of a file called ``name``; see ``read_source``."""
    from ruamel.yaml import YAML

    reader = _Reader(name)
    with _refusing(name):
        data = reader.document(YAML(typ="safe", pure=True).parse(text))
    if not isinstance(data, dict):
        kind = "empty" if data is None else "not a table of keys"
        raise _refusal(name, 1, "file-table", f"the file is {kind}", "start from one of clusters/*.yaml")
    return Source(name, data, reader.lines, tuple(reader.faults), text)


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    """What ruamel.yaml raises, told as SettingsError."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = f"is not valid YAML: {redacted((error.problem or 'cannot be parsed').strip())}"
        hint = "check indentation, colons and quotes"
        raise _refusal(name, mark.line + 1 if mark else 0, "yaml-syntax", text, hint) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, LookupError, AssertionError) as error:
        reason = redacted(str(error).partition("\n")[0] or type(error).__name__)
        raise _refusal(name, 0, "yaml-syntax", f"is not valid YAML: {reason}", "save it as plain text") from None


class _Reader:
    """Makes data of events. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Place, int] = {}
        self.faults: list[Fault] = []

    def document(self, events: Iterator[Any]) -> Any:
        """The one document of the stream."""
        data: Any = None
        found = 0
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                found += 1
                if found > 1:
                    raise self._refused(
                        event, "yaml-syntax", "is not valid YAML: has a second document", "one cluster a file"
                    )
            elif kind not in {"StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"}:
                data = self._node(event, events, (), 1)
        return data

    def _node(self, event: Any, events: Iterator[Any], place: Place, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            # Aliases make ten lines into billions of values, and depth without end; a settings file needs neither.
            raise self._refused(event, "yaml-alias", "uses a YAML alias (*name)", "write the value out")
        if depth > MAX_DEPTH:
            raise self._refused(
                event, "yaml-depth", f"is nested deeper than {MAX_DEPTH} levels", "see docs/settings.md"
            )
        if event.tag is not None and str(event.tag) != "!":
            self._fault(event, place, "yaml-tag", "has a YAML tag", "write the plain value; quotes make it text")
        if kind == "ScalarEvent":
            return scalar(event.value) if event.implicit[0] else event.value
        return self._mapping(events, place, depth) if kind == "MappingStartEvent" else self._list(events, place, depth)

    def _list(self, events: Iterator[Any], place: Place, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            inner = (*place, len(items))
            self.lines[inner] = event.start_mark.line + 1
            items.append(self._node(event, events, inner, depth + 1))
        return items

    def _mapping(self, events: Iterator[Any], place: Place, depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for event in events:
            kind = type(event).__name__
            if kind == "MappingEndEvent":
                break
            if kind != "ScalarEvent":
                self._fault(event, place, "yaml-key", "has a list or a table as a key", "a key is one word")
                self._node(event, events, (*place, "?"), depth + 1)
                self._node(next(events), events, (*place, "?"), depth + 1)
                continue
            key = str(event.value)
            inner = (*place, key)
            line = event.start_mark.line + 1
            if key in table:
                first = self.lines[inner]
                self._fault(event, inner, "yaml-key-twice", f"stands twice, first on line {first}", "keep one of them")
                self._node(next(events), events, (*place, key, "(again)"), depth + 1)
                continue
            self.lines[inner] = line
            table[key] = self._node(next(events), events, inner, depth + 1)
        return table

    def _fault(self, event: Any, place: Place, rule: str, text: str, hint: str) -> None:
        line = event.start_mark.line + 1
        path = redacted(path_text(place))
        self.faults.append(Fault(self.name, line, path, None, text, hint, rule_name=rule))

    def _refused(self, event: Any, rule: str, text: str, hint: str) -> SettingsError:
        return _refusal(self.name, event.start_mark.line + 1, rule, text, hint)


def scalar(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2; a number of more than MAX_DIGITS digits stays text."""
    if text in WORDS:
        return WORDS[text]
    if len(text) > MAX_DIGITS:
        return text
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if OCTAL.fullmatch(text):
        return int(text[2:], 8)
    return int(text[2:], 16) if HEXADECIMAL.fullmatch(text) else text


def _refusal(name: str, line: int, rule: str, text: str, hint: str) -> SettingsError:
    return SettingsError([Fault(name, line, "", None, text, hint, rule_name=rule)])


def _read_text(name: str) -> str:
    path = Path(name)
    try:
        if path.is_dir():
            raise _refusal(
                name,
                0,
                "file-kind",
                "is a folder, not a settings file",
                "name a .yaml file, e.g. clusters/rehearsal.yaml",
            )
        if path.exists() and not path.is_file():
            raise _refusal(name, 0, "file-kind", "is no regular file", "name a .yaml file")
        if path.stat().st_size > MAX_BYTES:
            raise _refusal(name, 0, "file-size", f"is larger than {MAX_BYTES} bytes", "is this the right file?")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(str(sibling) for sibling in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        hint = f"files there: {', '.join(near[:8])}" if near else "look in clusters/ for examples"
        raise _refusal(name, 0, "file-missing", "no such file", hint) from None
    except UnicodeDecodeError:
        raise _refusal(name, 0, "file-encoding", "is not UTF-8 text", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise _refusal(
            name, 0, "file-unreadable", f"cannot be read: {reason}", "check the path and its permissions"
        ) from None
