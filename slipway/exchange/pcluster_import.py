"""`slipway import pcluster`: make a settings file from an existing ParallelCluster configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.cluster_config import cluster_configuration
from slipway.exchange.env_import import read_variables
from slipway.exchange.import_report import Imported, Target, finish
from slipway.exchange.ledger import Entry, Fate, Ledger
from slipway.exchange.pcluster_file import Configuration, from_dictionary, read_configuration, spell
from slipway.exchange.settings_block import Block, BlockFault, read_block, settings_data
from slipway.exchange.translate import FILL, Translation, translate
from slipway.files import refuse_existing
from slipway.settings.source import Place, path_text
from slipway.settings.write import get_at, set_at

COUNTS = ("count", "min_count", "max_count")
WHOLE: tuple[Place, ...] = (("network",), ("storage", "fsx"))  # parts that are replaced as a whole
NEEDED = {
    "name": "the cluster's name, --name; it is not in the file",
    "region": "the region, --region; it is not in the file",
    "zone": "the availability zone of the compute subnet and the reservation, --zone; it is not in the file",
}


def import_pcluster(
    file: Path | str,
    output: Path | None = None,
    *,
    variables: Path | str | None = None,
    as_json: bool = False,
    force: bool = False,
    **known: str | None,
) -> int:
    """Write the settings for the configuration `file` to `output` (None: standard output), and the report to stderr.

    `known` has what the file does not say: name, region, zone, vpc_id. `variables` is a file of `export NAME=value`
    lines for placeholders `${NAME}`. Return 0 if every value was carried or implied and the settings are valid, else 1.
    Raises SettingsError if the file is not a valid configuration, UsageError if `output` exists without `force`.
    """
    refuse_existing(output, force)
    values = read_variables(variables).values if variables is not None else {}
    configuration = read_configuration(file, values)
    return finish(
        imported(configuration, {key: value for key, value in known.items() if value}), Target(output, force, as_json)
    )


def imported(configuration: Configuration, given: Mapping[str, str]) -> Imported:
    """Return the settings for `configuration`; `given` values replace those of the file."""
    result = _with_block(configuration)
    for key, text in NEEDED.items():
        if key in given:
            _say(result, (key,), given[key])
        elif key not in result.settings:
            _need(result, (key,), text)
    if "vpc_id" in given and get_at(result.settings, ("network", "vpc_id")):
        _say(result, ("network", "vpc_id"), given["vpc_id"])
    return result


def _say(result: Imported, to: Place, value: str) -> None:
    """Put an option of the command in place of the file's value, or of a missing one."""
    set_at(result.settings, to, value)
    result.comments.pop(to, None)
    for entry in [entry for entry in result.ledger.entries if entry.to == to and entry.fate is Fate.TO_FILL]:
        if entry.path:
            entry.fate, entry.text = Fate.CARRIED, "given on the command line"
        else:
            result.ledger.entries.remove(entry)


def _need(result: Imported, to: Place, text: str) -> None:
    set_at(result.settings, to, FILL)
    result.comments[to] = text
    result.ledger.add(Fate.TO_FILL, text, to)


def _with_block(configuration: Configuration) -> Imported:
    actual = translate(configuration)
    plain = Imported(configuration.file, actual.settings, actual.ledger, actual.comments, actual.notes)
    try:
        block = read_block(configuration.text)
    except BlockFault as error:
        plain.ledger.add(
            Fate.NOT_CARRIED, f"the block of comments {error}; what only it knew is unknown", ("# slipway",)
        )
        return plain
    return _joined(configuration, actual, block) if block else plain


def _joined(configuration: Configuration, actual: Translation, block: Block) -> Imported:
    """Return the block's settings; where the configuration was edited after the export, the edit is used."""
    expected = from_dictionary(cluster_configuration(block.settings, block.facts))
    made = translate(expected)
    settings = settings_data(block.settings)
    edits: list[str] = []
    _patch(settings, made.settings, actual.settings, (), edits)
    ledger = Ledger(configuration.leaves, spell)
    for leaf, value in configuration.leaves.items():
        if leaf in expected.leaves and expected.leaves[leaf] == value:
            ledger.decide(leaf, Fate.CARRIED, "as it was exported")
    for entry in actual.ledger.entries:
        if entry.path:
            ledger.decide(entry.path, entry.fate, entry.text, entry.to)
    _report_removed(ledger, made.ledger, configuration)
    comments = {
        place: text
        for place, text in actual.comments.items()
        if get_at(settings, place) == get_at(actual.settings, place)
    }
    for entry in actual.ledger.entries:
        if not entry.path and get_at(settings, entry.to) == FILL:
            ledger.add(entry.fate, entry.text, entry.to)
    return Imported(configuration.file, settings, ledger, comments, [], edits)


def _report_removed(ledger: Ledger, made: Ledger, configuration: Configuration) -> None:
    """Report what was removed from an exported file and Slipway writes again: no setting can leave it out."""
    for entry in made.entries:
        gone = entry.fate is Fate.IMPLIED and not any(leaf in configuration.leaves for leaf in made.below(entry.path))
        if gone and _holder_is_there(entry.path, configuration):
            ledger.entries.append(
                Entry(entry.path, Fate.NOT_CARRIED, "was taken out of the file; Slipway writes it again")
            )


def _holder_is_there(path: Place, configuration: Configuration) -> bool:
    """Return False inside a queue, a mount or another list item that is gone: its own entry reports that."""
    lists = [end for end in range(1, len(path)) if isinstance(path[end - 1], int)]
    return all(get_at(configuration.data, path[:end]) is not None for end in lists)


def _patch(base: dict[str, Any], old: dict[str, Any], new: dict[str, Any], path: Place, edits: list[str]) -> None:
    """Apply to `base` the differences between the translation of what was exported and that of the file now."""
    for key in {**old, **new}:
        here = (*path, key)
        was, now = old.get(key), new.get(key)
        if was == now:
            continue
        if key == "queues":
            base[key] = _patched_queues(base[key], was or [], now or [], edits)
        elif here not in WHOLE and all(part is None or isinstance(part, dict) for part in (was, now)):
            _patch(base.setdefault(key, {}), was or {}, now or {}, here, edits)
            if not base[key]:
                del base[key]
        else:
            _replace(base, key, now, here, edits)


def _replace(base: dict[str, Any], key: str, value: Any, path: Place, edits: list[str]) -> None:
    before = base.pop(key, None)
    if value is not None:
        base[key] = copy.deepcopy(value)
    shown = ["nothing" if value is None else str(value) for value in (before, value)]
    edits.append(f"{path_text(path)}: {shown[1]} instead of {shown[0]}")


def _patched_queues(
    base: list[dict[str, Any]], old: list[dict[str, Any]], new: list[dict[str, Any]], edits: list[str]
) -> list[dict[str, Any]]:
    """Return the queues of the file now; a queue with a name of `base` keeps the rest of its settings."""
    before = {str(queue.get("name")): queue for queue in old}
    kept = {str(queue.get("name")): queue for queue in base}
    result = []
    for index, queue in enumerate(new):
        name = str(queue.get("name"))
        if name in kept and name in before:
            result.append(kept[name])
            _patch_counts(kept[name], before[name], queue, index, edits)
            rest = [
                {key: value for key, value in table.items() if key not in COUNTS} for table in (before[name], queue)
            ]
            _patch(kept[name], rest[0], rest[1], ("queues", index), edits)
        else:
            result.append(copy.deepcopy(queue))
            edits.append(f"queues[{index}]: {name} is new")
    edits += [f"queues: {name} is gone" for name in kept if name not in {str(queue.get("name")) for queue in new}]
    return result


def _patch_counts(base: dict[str, Any], old: dict[str, Any], new: dict[str, Any], index: int, edits: list[str]) -> None:
    was, now = ({key: queue[key] for key in COUNTS if key in queue} for queue in (old, new))
    if was == now:
        return
    for key in COUNTS:
        base.pop(key, None)
    base.update(now)
    shown = (", ".join(f"{key} {value}" for key, value in counts.items()) for counts in (now, was))
    edits.append(f"queues[{index}]: {' instead of '.join(shown)}")
