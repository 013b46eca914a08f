"""The end of every import: leave out what the rules refuse, write the settings, report the fate of every value."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway.errors import EXIT_GOOD, EXIT_NO, Fault
from slipway.exchange.ledger import Fate, Ledger, moved_up
from slipway.exchange.pcluster_file import is_placeholder
from slipway.exchange.translate import FILL
from slipway.files import write_whole
from slipway.settings.model import part_at
from slipway.settings.source import SECRET_KEY, Place, holds_secret, path_text, redacted
from slipway.settings.write import faults_in, get_at, remove_at, schema_line, set_at, settings_text

ROUNDS = 100  # one value a round; a file has a handful that are refused
KEPT: tuple[Place, ...] = (("network",),)  # wrong ids are repaired, not left out: without them another network is meant
WITHHELD = "looks like a secret: keep it in Secrets Manager, and make a new one, as this one is known"
UNJUDGED = ("limit-unknown", "acceptance-nodes", "acceptance-gpus")  # rules that a change of the nodes can break
TITLES = {Fate.NOT_CARRIED: "not carried over", Fate.TO_FILL: "to fill in"}


@dataclasses.dataclass
class Imported:
    """Imported settings as plain data, and the account of every value."""

    file: str
    settings: dict[str, Any]
    ledger: Ledger
    comments: dict[Place, str]
    notes: list[str]
    edits: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Target:
    """Where the settings are written (None: standard output), and the form of the report."""

    output: Path | None = None
    force: bool = False
    as_json: bool = False


def finish(imported: Imported, target: Target) -> int:
    """Write the settings and the report. Return 0 if every value is carried or implied and they are valid, else 1."""
    withhold_secrets(imported)
    faults = leave_out_refused(imported)
    _comment_on(imported, faults)
    text = settings_text(imported.settings, imported.comments, [*schema_line(target.output), *_head(imported)])
    if target.output is not None:
        write_whole(target.output, text, force=target.force)
    if faults:  # once more, for the lines of the text as it is written
        faults = _further(imported, faults_in(text, str(target.output or "settings")))
    if target.as_json:
        print(json.dumps(_as_json(imported, target, text, faults)))
    else:
        if target.output is None:
            sys.stdout.write(text)
        for line in _report(imported, target, faults):
            print(redacted(line), file=sys.stderr)
    open_points = imported.ledger.of(Fate.NOT_CARRIED, Fate.TO_FILL)
    return EXIT_NO if open_points or faults else EXIT_GOOD


def _comment_on(imported: Imported, faults: list[Fault]) -> None:
    """Add to each wrong value that is kept a comment with its rule."""
    places = {path_text(path): path for path in _paths(imported.settings, ())}
    for fault in faults:
        if fault.path in places:
            imported.comments.setdefault(places[fault.path], "; ".join(filter(None, (fault.rule, fault.hint))))


def _further(imported: Imported, faults: list[Fault]) -> list[Fault]:
    """Return the faults without those of values to fill in, which the report lists already."""
    listed = {path_text(entry.to) for entry in imported.ledger.of(Fate.TO_FILL)}
    return [fault for fault in faults if fault.path not in listed]


def withhold_secrets(imported: Imported) -> None:
    """Keep secrets out of the new file: leave each out, or have it filled in where the settings need a value."""
    for path in reversed(list(_paths(imported.settings, ()))):  # from the end: the numbers of list items change
        if not _is_secret(path, get_at(imported.settings, path)):
            continue
        target = _removable(path)
        if target is not None:
            _take_out(imported, target, WITHHELD)
        else:
            imported.ledger.take_back(path, WITHHELD)
            set_at(imported.settings, path, FILL)
            imported.comments[path] = WITHHELD
            imported.ledger.add(Fate.TO_FILL, WITHHELD, path)


def _is_secret(path: Place, value: Any) -> bool:
    if not isinstance(value, str) or is_placeholder(value):
        return False
    return holds_secret(value) or (bool(SECRET_KEY.search(str(path[-1]))) and not value.startswith("arn:"))


def leave_out_refused(imported: Imported) -> list[Fault]:
    """Leave out optional values that the rules refuse, noting each. Return the faults that remain."""
    faults: list[Fault] = []
    for _ in range(ROUNDS):
        faults = faults_in(settings_text(imported.settings, imported.comments), "")
        has_acceptance = "acceptance" in imported.settings
        unjudged = (fault for fault in faults if has_acceptance and fault.rule_name in UNJUDGED)
        impossible = (fault for fault in faults if not has_acceptance and fault.path.startswith("acceptance"))
        if not (
            _switch_acceptance_off(imported, next(unjudged, None))
            or any(_leave_out(imported, fault) for fault in faults)
            or _switch_acceptance_off(imported, next(impossible, None))
        ):
            break
    return faults


def _leave_out(imported: Imported, fault: Fault) -> bool:
    """Return whether the value of `fault` was left out. One at a time: the numbers of list items change."""
    paths = {path_text(path): path for path in _paths(imported.settings, ())}
    path = paths.get(fault.path)
    if path is None or _to_be_filled(get_at(imported.settings, path)):
        return False
    target = _removable(path)
    if target is None or _is_missed(imported.settings, target, fault):
        return False
    value = get_at(imported.settings, path)
    shown = "" if isinstance(value, (dict, list)) or value is None else f"{value} "
    text = f"{shown}{fault.rule}{f' ({fault.hint})' if fault.hint else ''}"
    reason = text if target == path else f"{path_text(path[len(target) :]).lstrip('.')} {text}"
    instead = _default_at(target)
    _take_out(imported, target, reason if instead is None else f"{reason}; the default {instead} applies instead")
    return True


def _default_at(path: Place) -> str | None:
    """Return the default at `path` as the file would write it; None if it is not a single value."""
    model, key = part_at(path[:-1]), path[-1]
    field = model.model_fields.get(key) if model and isinstance(key, str) else None
    default: Any = field.default if field else None
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, (str, int, float)) and default != "" else None


def _take_out(imported: Imported, target: Place, why: str) -> None:
    remove_at(imported.settings, target)
    imported.ledger.take_back(target, why)
    gone = path_text(target)
    imported.notes = [note for note in imported.notes if not note.startswith((f"{gone}.", f"{gone}:", f"{gone}["))]
    imported.comments = {
        moved_up(place, target) if isinstance(target[-1], int) else place: comment
        for place, comment in imported.comments.items()
        if place[: len(target)] != target
    }


def _is_missed(settings: dict[str, Any], target: Place, fault: Fault) -> bool:
    """Return whether the rules would ask for the value if it were left out: then the wrong value is kept."""
    without = copy.deepcopy(settings)
    remove_at(without, target)
    return any(other.path == fault.path and other.value is None for other in faults_in(settings_text(without, {}), ""))


def _to_be_filled(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_to_be_filled(item) for item in value.values())
    return is_placeholder(value)


def _paths(node: Any, path: Place) -> Iterator[Place]:
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _paths(value, (*path, key))


def _removable(path: Place) -> Place | None:
    """Return the smallest part around `path` that the settings do not need; None if they need all of it."""
    if path[:1] in KEPT:
        return None
    for end in range(len(path), 0, -1):
        *holder, key = path[:end]
        if isinstance(key, int):
            if holder != ["queues"]:
                return path[:end]
        elif not _is_needed(tuple(holder), key):
            return path[:end]
    return None


def _is_needed(holder: Place, key: str) -> bool:
    model = part_at(holder)
    if model is None:
        return False  # a table of free keys: tags, parameters of Slurm
    if key in ("count", "max_count") and holder[:1] == ("queues",):
        return True  # one of the two is needed
    return key in model.model_fields and model.model_fields[key].is_required()


def _switch_acceptance_off(imported: Imported, fault: Fault | None) -> bool:
    """Return whether acceptance was switched off because of `fault`; its other settings stay in the file."""
    acceptance = imported.settings.get("acceptance", {})
    if fault is None or not isinstance(acceptance, dict) or acceptance.get("scenario") == "none":
        return False
    imported.settings["acceptance"] = {**acceptance, "scenario": "none"}
    imported.comments["acceptance", "scenario"] = fault.rule
    text = f"acceptance is off: {fault.rule}. {fault.hint}".rstrip(". ")
    kept = "; the limits stay in the file" if acceptance.get("limits") else ""
    imported.notes.append(f"{text}{kept}")
    return True


def _head(imported: Imported) -> list[str]:
    lines = [f"Made by `slipway import` from {imported.file}."]
    for fate, title in TITLES.items():
        entries = imported.ledger.of(fate)
        if entries:
            lines += ["", f"{title[:1].upper()}{title[1:]}:"]
            lines += [f"- {imported.ledger.names(entry)}: {entry.text}" for entry in entries]
    return lines


def _report(imported: Imported, target: Target, faults: list[Fault]) -> Iterator[str]:
    ledger = imported.ledger
    for fate, title in TITLES.items():
        entries = ledger.of(fate)
        if entries:
            yield f"{title} ({len(entries)}):"
        for entry in entries:
            where = f" -> {path_text(entry.to)}" if entry.to and entry.path else ""
            yield f"  {ledger.names(entry)}{where}: {entry.text}"
    for title, lines in (("the configuration wins over its block", imported.edits), ("to know", imported.notes)):
        if lines:
            yield f"{title} ({len(lines)}):"
        yield from (f"  {line}" for line in lines)
    if faults:
        yield f"slipway check finds ({len(faults)}):"
        yield from (f"  {fault}" for fault in faults)
    counted = Counter(entry.fate for entry in ledger.entries)
    yield (
        f"{imported.file} -> {target.output or 'standard output'}: {counted[Fate.CARRIED]} carried, "
        f"{counted[Fate.IMPLIED]} as Slipway has them anyway, {counted[Fate.TO_FILL]} to fill in, "
        f"{counted[Fate.NOT_CARRIED]} not carried"
    )


def _as_json(imported: Imported, target: Target, text: str, faults: list[Fault]) -> dict[str, Any]:
    ledger = imported.ledger
    kinds = {
        fate.value.replace("-", "_"): [
            {
                "path": redacted(ledger.spell(entry.path)),
                "setting": redacted(path_text(entry.to)),
                "text": redacted(entry.text),
            }
            for entry in ledger.of(fate)
        ]
        for fate in Fate
    }
    return {
        "file": imported.file,
        "output": str(target.output) if target.output else None,
        "complete": not kinds["not_carried"] and not kinds["to_fill"] and not faults,
        **kinds,
        "edited": [redacted(edit) for edit in imported.edits],
        "notes": [redacted(note) for note in imported.notes],
        "faults": [fault.as_dict() for fault in faults],
        "settings": text,
    }
