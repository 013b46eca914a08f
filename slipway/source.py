"""YAML text with the place of each key, so that a fault can name file and line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from slipway.errors import Fault, SettingsError

PathKey = str | int
MAX_BITS = 1024  # Python refuses to print much larger numbers
MAX_DEPTH = 20  # the settings themselves are five levels deep
MAX_BYTES = 1 << 20  # 1 MiB: a settings file is a page or two; anything larger is the wrong file


@dataclasses.dataclass(frozen=True)
class Source:
    """A parsed settings file: its name, its plain data and the tree that knows the lines."""

    file: str
    tree: CommentedMap

    @property
    def data(self) -> dict[str, Any]:
        """The content as plain dicts, lists and scalars."""
        plain: dict[str, Any] = _plain(self.tree)
        return plain

    def line(self, path: Sequence[PathKey]) -> int:
        """The 1-based line of the deepest part of ``path`` that stands in the file."""
        node: Any = self.tree
        line = 1
        for key in path:
            try:
                if isinstance(node, CommentedMap):
                    line = node.lc.key(key)[0] + 1
                elif isinstance(node, CommentedSeq):
                    line = node.lc.item(key)[0] + 1
                node = node[key]
            except (KeyError, IndexError, TypeError, AttributeError):
                break
        return line

    def value(self, path: Sequence[PathKey]) -> str | None:
        """What stands at ``path`` as short text; None when nothing does or it is a table."""
        node: Any = self.tree
        for key in path:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                return None
        if isinstance(node, CommentedMap):
            return None
        text = repr(_plain(node)) if isinstance(node, (list, str)) else _scalar(node)
        return text if len(text) <= 80 else text[:77] + "..."


def _scalar(node: Any) -> str:
    if node is None:
        return "null"
    if isinstance(node, int) and node.bit_length() > MAX_BITS:
        return "a number without end"
    return str(node).lower() if isinstance(node, bool) else str(node)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def path_text(path: Sequence[PathKey]) -> str:
    """``("queues", 0, "count")`` as ``queues[0].count``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def read_source(file: str | Path) -> Source:
    """Read and parse ``file``.

    Raises SettingsError when it is missing, unreadable, too large, no UTF-8, no YAML, has a key twice or is no table.
    """
    name = str(file)
    text = _read_text(name)
    try:
        _refuse_repetition(name, text)
        tree = _parser().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = (error.problem or "cannot be parsed").strip()
        hint = (
            "one key per name; see the line" if "duplicate key" in problem else "check indentation, colons and quotes"
        )
        raise SettingsError(
            [Fault(name, mark.line + 1 if mark else 0, "", None, f"is not valid YAML: {problem}", hint)]
        ) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingsError([Fault(name, 0, "", None, f"is not valid YAML: {reason}")]) from None
    if not isinstance(tree, CommentedMap):
        kind = "empty" if tree is None else "not a table of keys"
        raise SettingsError([Fault(name, 1, "", None, f"the file is {kind}", "start from one of clusters/*.yaml")])
    return Source(name, tree)


def _refuse_repetition(name: str, text: str) -> None:
    """Aliases make ten lines into billions of values, and depth without end; a settings file needs neither."""
    depth = 0
    for event in YAML(typ="rt").parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, AliasEvent):
            raise SettingsError([Fault(name, line, "", None, "uses a YAML alias (*name)", "write the value out")])
        if depth > MAX_DEPTH:
            raise SettingsError(
                [Fault(name, line, "", None, f"is nested deeper than {MAX_DEPTH} levels", "see docs/settings.md")]
            )


def _parser() -> YAML:
    """YAML 1.2 that keeps lines; dates stay text, so that a wrong one is told with its place."""
    yaml = YAML(typ="rt")
    yaml.constructor.add_constructor("tag:yaml.org,2002:timestamp", type(yaml.constructor).construct_yaml_str)
    return yaml


def _read_text(name: str) -> str:
    path = Path(name)
    try:
        if path.is_dir():
            raise SettingsError(
                [
                    Fault(
                        name,
                        0,
                        "",
                        None,
                        "is a folder, not a settings file",
                        "name a .yaml file, e.g. clusters/rehearsal.yaml",
                    )
                ]
            )
        if path.exists() and not path.is_file():
            raise SettingsError([Fault(name, 0, "", None, "is no regular file", "name a .yaml file")])
        if path.stat().st_size > MAX_BYTES:
            raise SettingsError(
                [Fault(name, 0, "", None, f"is larger than {MAX_BYTES} bytes", "is this the right file?")]
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(str(sibling) for sibling in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        hint = f"files there: {', '.join(near[:8])}" if near else "look in clusters/ for examples"
        raise SettingsError([Fault(name, 0, "", None, "no such file", hint)]) from None
    except UnicodeDecodeError:
        raise SettingsError([Fault(name, 0, "", None, "is not UTF-8 text", "save it as UTF-8")]) from None
    except OSError as error:
        raise SettingsError([Fault(name, 0, "", None, f"cannot be read: {error.strerror}")]) from None
