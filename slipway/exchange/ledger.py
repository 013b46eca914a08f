"""The account of an imported file: the fate of every value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from slipway.settings.source import Place, path_text


class Fate(StrEnum):
    """The fate of a value: in the settings, written by Slipway anyway, to be filled in, or not carried over."""

    CARRIED = "carried"
    IMPLIED = "implied"
    TO_FILL = "to-fill"
    NOT_CARRIED = "not-carried"


@dataclasses.dataclass
class Entry:
    """One decision about a value or a part of the file (`path`); `to` is the key of the settings, if any."""

    path: Place
    fate: Fate
    text: str = ""
    to: Place = ()


class Ledger:
    """Every leaf of the file (path -> value) and what became of it. The first decision about a leaf stays.

    `spell` writes a path the way the file's own documentation does.
    """

    def __init__(self, leaves: dict[Place, Any], spell: Callable[[Place], str] = path_text) -> None:
        self.leaves = leaves
        self.entries: list[Entry] = []
        self.spell = spell
        self._decided: dict[Place, Entry] = {}

    def decide(self, path: Place, fate: Fate, text: str = "", to: Place = ()) -> None:
        """Decide the fate of every leaf at or below `path` that has none yet."""
        entry = Entry(path, fate, text, to)
        open_leaves = [leaf for leaf in self.below(path) if leaf not in self._decided]
        for leaf in open_leaves:
            self._decided[leaf] = entry
        if open_leaves:
            self.entries.append(entry)

    def add(self, fate: Fate, text: str, to: Place) -> None:
        """Add an entry about a key that the settings need and the file does not have."""
        self.entries.append(Entry((), fate, text, to))

    def below(self, path: Place) -> Iterator[Place]:
        """Return the leaves at or below `path`."""
        if path in self.leaves:  # nothing is below a leaf, and most decisions are about one
            return iter((path,))
        return (leaf for leaf in self.leaves if leaf[: len(path)] == path)

    def rest(self) -> list[Place]:
        """Return the leaves that have no fate yet."""
        return [leaf for leaf in self.leaves if leaf not in self._decided]

    def take_back(self, to: Place, text: str) -> None:
        """Mark what was carried to `to` or below as not carried; later items of its list move up."""
        taken = [entry for entry in self.entries if entry.to[: len(to)] == to and entry.fate is not Fate.NOT_CARRIED]
        for entry in taken:
            entry.fate, entry.text, entry.to = Fate.NOT_CARRIED, text, ()
        if not taken:
            self.entries.append(Entry((), Fate.NOT_CARRIED, text, to))
        if isinstance(to[-1], int):
            for entry in self.entries:
                entry.to = moved_up(entry.to, to)

    def of(self, *fates: Fate) -> list[Entry]:
        """Return the entries with one of these fates in the order of the file, those without a path last."""
        order = {leaf: number for number, leaf in enumerate(self.leaves)}
        return sorted(
            (entry for entry in self.entries if entry.fate in fates),
            key=lambda entry: min((order[leaf] for leaf in self.below(entry.path)), default=len(order)),
        )

    def names(self, entry: Entry) -> str:
        """Return what the entry is about: the path in the file, or the key of the settings."""
        return self.spell(entry.path) if entry.path else path_text(entry.to)


def moved_up(path: Place, removed: Place) -> Place:
    """Return `path` as it is after the list item at `removed` has been removed."""
    last = len(removed) - 1
    if len(path) <= last or path[:last] != removed[:last]:
        return path
    here, gone = path[last], removed[last]
    if not isinstance(here, int) or not isinstance(gone, int) or here < gone:
        return path
    return (*path[:last], here - 1, *path[last + 1 :])
