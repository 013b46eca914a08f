"""YAML text with the place of each key and value, so that a fault can name line and column.

One pass over ruamel.yaml's events makes plain data and notes where each key and item is. Scalars follow the core
schema of YAML 1.2 (`yes` is text, `010` is ten); dates stay text. Aliases, tags and depth are refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
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
MAX_LINE = 10_000  # characters of a line that a fault can show a part of

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

LINE_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # where ruamel.yaml counts a line
NOTHING = object()
STDIN = "-"
"""The argument that means standard input."""
STDIN_SHOWN = "<stdin>"
"""How faults name standard input."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reason:
    """Why a fault of this name exists: `why` is what happens without it, `source` where that is documented."""

    name: str
    why: str
    source: str


OURS, YAML_SPECIFICATION = "Slipway", "YAML 1.2.2, core schema"
FILE_REASONS = tuple(
    Reason(name=name, why=why, source=source)
    for name, why, source in (
        ("file-missing", "Without a file there is nothing to check.", OURS),
        ("file-kind", "A folder has no settings, and a device or a pipe may never end.", OURS),
        ("file-size", "A settings file is a page or two long: a larger file is the wrong file.", OURS),
        ("file-unreadable", "The operating system did not return the file's content.", "open(2)"),
        ("file-encoding", "YAML is read as UTF-8.", "YAML 1.2.2, character encodings"),
        ("file-table", "The top level of a settings file is a table of keys.", "docs/settings.md"),
        ("yaml-syntax", "Text that cannot be parsed is not guessed at.", YAML_SPECIFICATION),
        (
            "yaml-alias",
            "With aliases ten lines of text become billions of values.",
            "the billion laughs attack, known from XML (CVE-2003-1564)",
        ),
        ("yaml-depth", "The settings are five levels deep; a parser does not survive endless depth.", OURS),
        (
            "yaml-tag",
            "A tag changes the type of a value without a visible sign in the value; no setting needs one.",
            YAML_SPECIFICATION,
        ),
        ("yaml-key", "Every key of the settings is a word.", "docs/settings.md"),
        (
            "yaml-key-twice",
            "Keys of a YAML table are unique; programs differ in which of two equal keys they use.",
            "YAML 1.2.2, mappings",
        ),
    )
)


# ---- secrets ----

HIDDEN = "(not shown)"
KEYS_OF_SERVICES = re.compile(
    r"nvapi-[A-Za-z0-9_-]{16,}"  # NVIDIA NGC and API catalog
    r"|(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"  # AWS access key ids (IAM user guide, unique identifiers)
    r"|hf_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"  # GitHub
    r"|glpat-[A-Za-z0-9_-]{20,}"  # GitLab
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?<=://)[^/\s:@'\"<>${}]+:[^/\s@'\"<>${}]+@"  # a password in an address, https://user:password@host
)
FORTY_CHARACTERS = re.compile(r"(?<![A-Za-z0-9/+:#@._-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
"""The form of an AWS secret access key, which has no prefix. `_is_random` decides whether it is one."""
WORD = re.compile(r"[A-Z]?[a-z]{3,}")
FEWEST_WITHOUT_WORDS = 17
"""Characters of a secret access key that are not in words of three or more lower-case letters.

In 40 random characters there are 33 on average, and fewer than 17 in about one of 1,000. Paths and names in CamelCase
have about ten; digests in hexadecimal have no upper case.
"""
SECRET_KEY = re.compile(r"passw|secret|token|api_?key|credential|private_?key", re.IGNORECASE)
"""Keys whose value is not repeated unless it is an ARN: users who misread such a key write the secret itself."""
SECRET_RULE = "secret-value"  # noqa: S105 (the name of a rule)


def _is_random(word: str) -> bool:
    kinds = any(map(str.isdigit, word)) and any(map(str.isupper, word)) and any(map(str.islower, word))
    return kinds and len(WORD.sub("", word)) >= FEWEST_WITHOUT_WORDS


def holds_secret(text: str) -> bool:
    """Whether `text` contains what looks like a secret."""
    return bool(KEYS_OF_SERVICES.search(text)) or any(_is_random(word) for word in FORTY_CHARACTERS.findall(text))


def redacted(text: str) -> str:
    """`text` without what looks like a secret, on one line and without control characters."""
    text = FORTY_CHARACTERS.sub(lambda word: HIDDEN if _is_random(word[0]) else word[0], text)
    return visible(KEYS_OF_SERVICES.sub(HIDDEN, text))


# ---- the parsed file ----


@dataclasses.dataclass(frozen=True)
class Span:
    """Part of one line of the file: 1-based line and column, and the number of characters."""

    line: int
    column: int
    length: int


@dataclasses.dataclass(frozen=True)
class Source:
    """A parsed settings file: its name, its plain data, and where the keys and values are.

    `keys` has the span of each key, or of the whole item of a list; `values` that of each scalar on its key's line.
    """

    file: str
    data: dict[str, Any]
    keys: dict[Place, Span]
    values: dict[Place, Span]
    faults: tuple[Fault, ...] = ()
    text: str = ""
    _shown_lines: dict[int, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def line(self, place: Sequence[PathKey]) -> int:
        """The 1-based line of the deepest part of `place` that is in the file."""
        return self.span(place).line

    def span(self, place: Sequence[PathKey], *, of_key: bool = False) -> Span:
        """Where the deepest part of `place` that is in the file is: its value, or its key if that is asked for."""
        place = tuple(place)
        if place in self.values and not of_key:
            return self.values[place]
        while place and place not in self.keys:
            place = place[:-1]
        return self.keys.get(place, Span(1, 1, 0))

    def fault(
        self,
        place: Place,
        text: str,
        hint: str,
        name: str,
        *,
        severity: str = "fault",
        of_key: bool = False,
        span: Span | None = None,
    ) -> Fault:
        """Return the fault called `name` about the value at `place`, without secrets and control characters.

        With `span` the fault is about that part of the text, and no value is shown.
        """
        at = span or self.span(place, of_key=of_key)
        return Fault(
            self.file,
            at.line,
            redacted(path_text(place)),
            None if span else self.value(place),
            redacted(text),
            redacted(hint),
            rule_name=name,
            severity=severity,
            column=at.column,
            length=at.length,
            source_line=self._shown_line(at.line, place) if span or at.length else "",  # a missing key has no line
        )

    def _shown_line(self, number: int, place: Place) -> str:
        """Line `number` as a fault about `place` may show it: empty if there may be a secret on it."""
        if number not in self._shown_lines:
            hidden = any(map(self._is_hidden, self._places.get(number, ())))
            line = "" if hidden else next(iter(self._lines[number - 1 : number]), "")
            unsafe = len(line) > MAX_LINE or holds_secret(line) or SECRET_KEY.search(line.partition("#")[2])
            self._shown_lines[number] = "" if unsafe else line
        return "" if "PRIVATE KEY" in self.text or self._is_hidden(place) else self._shown_lines[number]

    @cached_property
    def _lines(self) -> list[str]:
        return LINE_BREAK.split(self.text)

    @cached_property
    def _places(self) -> dict[int, list[Place]]:
        """The places of the keys on each line."""
        places: dict[int, list[Place]] = {}
        for place, span in self.keys.items():
            places.setdefault(span.line, []).append(place)
        return places

    def _is_hidden(self, place: Sequence[PathKey]) -> bool:
        """Whether a key on the way to `place` is one for a secret, and the value is not an ARN."""
        secret = any(isinstance(key, str) and SECRET_KEY.search(key) for key in place)
        return secret and not str(self.node(place)).startswith("arn:")

    def node(self, place: Sequence[PathKey]) -> Any:
        """The data at `place`, or NOTHING."""
        node: Any = self.data
        for key in place:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                return NOTHING
        return node

    def value(self, place: Sequence[PathKey]) -> str | None:
        """The value at `place` as short text; None for no value and for a table. Secrets are not shown."""
        node = self.node(place)
        if node is NOTHING or isinstance(node, dict):
            return None
        if isinstance(node, list) and any(isinstance(item, (dict, list)) for item in node):
            return None
        if isinstance(node, str) and self._is_hidden(place):
            return HIDDEN
        text = redacted(_shown(node))
        return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _shown(node: Any) -> str:
    if node is None:
        return "null"
    if isinstance(node, bool):
        return str(node).lower()
    return repr(node) if isinstance(node, (list, str)) else str(node)


def path_text(path: Sequence[PathKey], separator: str = ".") -> str:
    """`("queues", 0, "count")` as `queues[0].count`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f"{separator}{key}" if text else str(key)
    return text


def read_source(file: str | Path) -> Source:
    """Read and parse `file`, or standard input for `-`.

    Raises SettingsError if it is missing, unreadable, too large, not UTF-8, not YAML or not a table. Faults that leave
    the rest readable (a key that is there twice, a tag) come with the source.
    """
    name = str(file)
    return parse_source(STDIN_SHOWN if name == STDIN else name, _read_text(name))


def parse_source(name: str, text: str) -> Source:
    """Parse `text` as the content of a file called `name`; see `read_source`."""
    from ruamel.yaml import YAML

    reader = _Reader(name, text)
    with yaml_errors_as_faults(name, text):
        data = reader.document(YAML(typ="safe", pure=True).parse(text))
    if not isinstance(data, dict):
        kind = "empty" if data is None else "not a table of keys"
        fault = reader.source.fault((), f"the file is {kind}", "start from one of clusters/*.yaml", "file-table")
        raise SettingsError([fault])
    source = dataclasses.replace(reader.source, data=data)
    faults = tuple(source.fault(place, text, hint, rule, span=span) for span, place, text, hint, rule in reader.faults)
    return dataclasses.replace(source, faults=faults)


@contextlib.contextmanager
def yaml_errors_as_faults(name: str, text: str) -> Iterator[None]:
    """Raise SettingsError for the errors of ruamel.yaml, with their line and column."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        yield
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = f"is not valid YAML: {redacted((error.problem or 'cannot be parsed').strip())}"
        hint = "check indentation, colons and quotes"
        span = Span(mark.line + 1, mark.column + 1, 1) if mark else Span(0, 0, 0)
        before = LINE_BREAK.split(text)[: span.line]
        unsafe = any(SECRET_KEY.search(line) and "arn:" not in line for line in before)  # its value may go on below
        source = Source(name, {}, {}, {}, (), "" if unsafe else text)
        raise SettingsError([source.fault((), problem, hint, "yaml-syntax", span=span)]) from None
    except ReaderError as error:  # a character that YAML does not allow
        before = LINE_BREAK.split(text[: error.position])
        span = Span(len(before), len(before[-1]) + 1, 1)
        problem = f"is not valid YAML: unacceptable character U+{ord(text[error.position]):04X}"
        source = Source(name, {}, {}, {}, (), "")
        raise SettingsError([source.fault((), problem, "save it as plain text", "yaml-syntax", span=span)]) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, LookupError, AssertionError) as error:
        reason = redacted(str(error).partition("\n")[0] or type(error).__name__)
        raise _unread(name, "yaml-syntax", f"is not valid YAML: {reason}", "save it as plain text") from None


class _Reader:
    """Makes data of events. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, name: str, text: str) -> None:
        self.source = Source(name, {}, {}, {}, (), text)
        self.faults: list[tuple[Span, Place, str, str, str]] = []

    def document(self, events: Iterator[Any]) -> Any:
        """Return the data of the stream's only document."""
        data: Any = None
        documents = 0
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    text = "is not valid YAML: has a second document"
                    raise self._refused(event, (), "yaml-syntax", text, "one cluster a file")
            elif kind not in {"StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"}:
                data = self._node(event, events, (), 1)
        return data

    def _node(self, event: Any, events: Iterator[Any], place: Place, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            # Aliases make ten lines into billions of values, and depth without end; a settings file needs neither.
            raise self._refused(event, place, "yaml-alias", "uses a YAML alias (*name)", "write the value out")
        if depth > MAX_DEPTH:
            text = f"is nested deeper than {MAX_DEPTH} levels"
            raise self._refused(event, place, "yaml-depth", text, "see docs/settings.md")
        if event.tag is not None and str(event.tag) != "!":
            self._fault(event, place, "yaml-tag", "has a YAML tag", "write the plain value; quotes make it text")
        if kind == "ScalarEvent":
            span = _span(event)
            if place in self.source.keys and span.line == self.source.keys[place].line:
                self.source.values[place] = span
            return scalar(event.value) if event.implicit[0] else event.value
        return self._mapping(events, place, depth) if kind == "MappingStartEvent" else self._list(events, place, depth)

    def _list(self, events: Iterator[Any], place: Place, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            inner = (*place, len(items))
            self.source.keys[inner] = _span(event)
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
            if key in table:
                first = self.source.keys[inner].line
                text = f"is there twice, first on line {first}"
                self._fault(event, inner, "yaml-key-twice", text, "keep one of them")
                self._node(next(events), events, (*place, key, "(again)"), depth + 1)
                continue
            self.source.keys[inner] = _span(event)
            table[key] = self._node(next(events), events, inner, depth + 1)
        return table

    def _fault(self, event: Any, place: Place, rule: str, text: str, hint: str) -> None:
        self.faults.append((_span(event), place, text, hint, rule))

    def _refused(self, event: Any, place: Place, rule: str, text: str, hint: str) -> SettingsError:
        fault = self.source.fault(place, text, hint, rule, span=_span(event))
        return SettingsError([dataclasses.replace(fault, path="")])  # the file as a whole is refused


def _span(event: Any) -> Span:
    """The part of its first line that an event covers; a table or a list begins there and has one character."""
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if start.line == end.line else 1
    return Span(start.line + 1, start.column + 1, max(length, 1))


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


def _unread(name: str, rule: str, text: str, hint: str) -> SettingsError:
    """The refusal of a file as a whole, which has no line."""
    return SettingsError([Fault(STDIN_SHOWN if name == STDIN else name, 0, "", None, text, hint, rule_name=rule)])


def _read_text(name: str) -> str:
    path = Path(name)
    try:
        if name == STDIN:
            return _bounded(name, sys.stdin.buffer.read(MAX_BYTES + 1))
        if path.is_dir():
            hint = "name a .yaml file, e.g. clusters/rehearsal.yaml"
            raise _unread(name, "file-kind", "is a folder, not a settings file", hint)
        if path.exists() and not path.is_file():
            raise _unread(name, "file-kind", "is not a regular file", "name a .yaml file")
        with path.open("rb") as stream:
            return _bounded(name, stream.read(MAX_BYTES + 1))
    except FileNotFoundError:
        if path.is_symlink():
            text = f"is a link to {visible(str(path.readlink()))}, which does not exist"
            raise _unread(name, "file-missing", text, "name the file itself") from None
        near = sorted(str(sibling) for sibling in path.parent.glob("*.yaml") if sibling.exists())
        hint = f"files there: {', '.join(near[:8])}" if near else "look in clusters/ for examples"
        raise _unread(name, "file-missing", "no such file", hint) from None
    except UnicodeDecodeError:
        raise _unread(name, "file-encoding", "is not UTF-8 text", "save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        hint = "check the path and its permissions"
        raise _unread(name, "file-unreadable", f"cannot be read: {reason}", hint) from None


def _bounded(name: str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _unread(name, "file-size", f"is larger than {MAX_BYTES} bytes", "is this the right file?")
    return data.decode("utf-8")
