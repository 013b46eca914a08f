"""A settings file's text from plain data, with comments; and what `slipway check` says about it."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from slipway.errors import Fault, SettingsError
from slipway.places import CHECKOUT, SCHEMA
from slipway.settings.check import examine_source
from slipway.settings.forms import size_text
from slipway.settings.model import Part, Settings, part_in
from slipway.settings.source import PathKey, Place, parse_source, redacted

SIZES: tuple[Place, ...] = (("acceptance", "min_bytes"), ("acceptance", "max_bytes"))


def settings_text(data: Mapping[str, Any], comments: Mapping[Place, str], head: Sequence[str] = ()) -> str:
    """`data` as YAML in the model's order, `comments` next to their values, `head` before all."""
    tree = _tree(_ordered(_with_sizes({**data}), Settings), (), comments)
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1 << 20
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(tree, stream)
    lines = "".join(f"# {redacted(line)}".rstrip() + "\n" for line in head)
    return f"{lines}\n{stream.getvalue()}" if lines else stream.getvalue()


def schema_line(output: Path | None) -> tuple[str, ...]:
    """The head line that names the schema to editors; none outside the checkout, where no relative path lasts."""
    folder = output.parent.resolve() if output else None
    if folder is None or CHECKOUT is None or not folder.is_relative_to(CHECKOUT) or not SCHEMA.is_file():
        return ()
    return (f"yaml-language-server: $schema={os.path.relpath(SCHEMA, folder)}",)


def _ordered(node: Any, model: type[Part] | None) -> Any:
    """The tables in the order in which the model documents them; free tables as they are."""
    if isinstance(node, (list, tuple)):
        return [_ordered(item, model) for item in node]
    if not isinstance(node, Mapping) or model is None:
        return node
    known = {key: field.annotation for key, field in model.model_fields.items() if key in node}
    return {key: _ordered(node[key], part_in(annotation)) for key, annotation in known.items()}


def faults_in(text: str, name: str) -> list[Fault]:
    """What `slipway check` finds in a settings file with this text; faults name it `name`."""
    try:
        return list(examine_source(parse_source(name, text)).faults)
    except SettingsError as error:
        return list(error.faults)


def _tree(node: Any, path: Place, comments: Mapping[Place, str]) -> Any:
    items = list(node.items()) if isinstance(node, Mapping) else list(enumerate(node)) if _is_list(node) else None
    if items is None:
        return node
    tree: Any = CommentedMap() if isinstance(node, Mapping) else CommentedSeq([None] * len(items))
    for key, value in items:
        tree[key] = _tree(value, (*path, key), comments)
        comment = comments.get((*path, key))
        if comment and not isinstance(value, Mapping) and not _is_list(value):
            tree.yaml_add_eol_comment(redacted(comment), key, column=0)
    return tree


def _is_list(node: Any) -> bool:
    return isinstance(node, (list, tuple))


def _with_sizes(data: dict[str, Any]) -> dict[str, Any]:
    """Numbers of bytes in the largest unit that fits them exactly."""
    changed = {**data}
    for part, key in SIZES:
        value = get_at(data, (part, key))
        if isinstance(value, int):
            changed[str(part)] = {**changed[str(part)], key: size_text(value)}
    if get_at(data, ("acceptance", "limits")):
        limits = [{**limit, "size": size_text(limit["size"])} for limit in data["acceptance"]["limits"]]
        changed["acceptance"] = {**changed["acceptance"], "limits": limits}
    return changed


def set_at(data: dict[str, Any], path: Iterable[PathKey], value: Any) -> None:
    """Put `value` at `path`; what is missing on the way is made. An index is the next one, or one that is there."""
    keys = list(path)
    node: Any = data
    for key, following in itertools.pairwise(keys):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(node, list) and key == len(node):
            node.append(empty)
        elif isinstance(node, dict) and key not in node:
            node[key] = empty
        node = node[key]
    if isinstance(node, list) and keys[-1] == len(node):
        node.append(value)
    else:
        node[keys[-1]] = value


def get_at(data: Any, path: Iterable[PathKey]) -> Any:
    """Return the value at `path`, or None."""
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def remove_at(data: dict[str, Any], path: Place) -> None:
    """Remove the value at `path`, and the tables and lists that are empty without it."""
    holder = get_at(data, path[:-1])
    del holder[path[-1]]
    if not holder and len(path) > 1:
        remove_at(data, path[:-1])
